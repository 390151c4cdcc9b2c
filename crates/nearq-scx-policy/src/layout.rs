//! The structures, sizes and reasons of `policy/policy.h`, as the kernel's BPF program and this process have them in memory.
//!
//! Bindgen writes them from the header, with checks of their layout; the header says what each is for. This module has the names for Rust,
//! texts for users, and items that the header does not need. All structures are plain numbers: any bytes are a valid value.

#![allow(missing_docs, reason = "the header says it")]

// Written by a tool.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]
#[doc(hidden)]
pub mod header {
    include!(concat!(env!("OUT_DIR"), "/policy.rs"));
}

pub use header::{NQ_NONE as NONE, NQ_UNIT as UNIT};
pub use header::{
    nq as Nq, nq_cpu as Cpu, nq_cpu_state as CpuState, nq_llc as Llc, nq_llc_state as LlcState,
    nq_node as Node, nq_node_state as NodeState, nq_process as Process, nq_take as TakeWhich,
    nq_task as Task, nq_told as HomeHint, nq_weights as Weights, nq_why as HomeReason,
};

/// Most CPUs.
pub const CPUS: usize = header::NQ_CPUS as usize;
/// Words of a mask of CPUs.
pub const WORDS: usize = header::NQ_WORDS as usize;
/// Most nodes.
pub const NODES: usize = header::NQ_NODES as usize;
/// Most last-level caches.
pub const LLCS: usize = header::NQ_LLCS as usize;

/// The counts, by index of [`CpuState::events`]: names for users and for metrics, and what each counts.
pub const EVENTS: [(&str, &str); CROSSED] = [
    ("home_exec", "homes picked because a task began a program"),
    ("home_fork", "homes picked because a process was forked"),
    ("home_thread", "homes picked for new threads"),
    ("home_told", "homes that were told"),
    ("home_memory", "homes that followed a task's memory"),
    ("home_room", "homes that moved from a crowded node to one with room"),
    ("home_affinity", "homes picked because a task may no longer run at its home"),
    ("woke_previous", "tasks that woke up on their previous CPU, at home"),
    ("woke_cache", "tasks that woke up under the same cache, at home"),
    ("woke_node", "tasks that woke up elsewhere on their home node"),
    ("woke_away", "tasks that woke up on an idle CPU away from home"),
    ("waited", "tasks that woke up and found no idle CPU"),
    ("preempted", "tasks that woke up and interrupted one that was further ahead"),
    ("hinted", "tasks that woke up near a CPU that a program had named"),
    ("took_cache", "tasks that a CPU took from the queue of its cache"),
    ("took_node", "tasks that an idle CPU took from another queue of its node"),
    ("took_own", "tasks that a CPU of their home took back from elsewhere"),
    ("took_idle", "tasks that an idle CPU took from another node"),
    ("took_relief", "tasks that a busy CPU took from a place that was more crowded"),
    ("took_rescue", "tasks taken from queues that no CPU had served"),
    ("left", "tasks that began to run away from home"),
    ("returned", "tasks that ran at home again"),
    ("sent", "tasks that a tick sent home"),
];
/// The index of the only count that has no name above: changes of node, whatever the home.
pub const CROSSED: usize = header::NQ_CROSSED as usize;
/// The index of the count of tasks that woke up and found no idle CPU.
pub const WAITED: usize = header::NQ_WAITED as usize;
/// The index of the count of tasks that interrupted another one.
pub const PREEMPTED: usize = header::NQ_PREEMPTED as usize;
/// Numbers of [`CpuState::events`].
pub const COUNTED: usize = header::NQ_EVENTS as usize;

/// Texts for users about a [`HomeReason`], by [`Task::why`].
pub const HOME_REASONS: [&str; HomeReason::TakenBack as usize + 1] = [
    "it has none yet",
    "picked when it began its program",
    "picked when its process was forked",
    "the home of its process",
    "told",
    "its memory is there",
    "its previous home was crowded",
    "it may not run elsewhere",
    "it ran there when the scheduler began",
    "told, then taken back",
];

impl HomeReason {
    /// The count for homes that tasks got for this reason, if there is one: an index of [`EVENTS`].
    pub fn event(self) -> Option<usize> {
        let is_counted = HomeReason::Exec as usize..=HomeReason::Affinity as usize;
        is_counted.contains(&(self as usize)).then(|| self as usize - HomeReason::Exec as usize)
    }
}

impl Nq {
    /// All zeros. Boxed, because it is half a megabyte.
    pub fn zeroed() -> Box<Self> {
        // SAFETY: the fields are plain numbers, for which zero bytes are a valid value; the box is allocated as that type, and never on the
        // stack.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        let start = std::ptr::from_ref(self).cast();
        // SAFETY: the slice is as long as the value and borrows it. Padding was zeroed with the value and is never written.
        unsafe { std::slice::from_raw_parts(start, size_of::<Self>()) }
    }

    /// The value that these bytes represent.
    ///
    /// # Errors
    /// If there are too few or too many bytes: they are from another version. The error is the right number.
    pub fn from_bytes(bytes: &[u8]) -> Result<Box<Self>, usize> {
        if bytes.len() != size_of::<Self>() {
            return Err(size_of::<Self>());
        }
        let mut value = Self::zeroed();
        let target = std::ptr::from_mut(&mut *value).cast::<u8>();
        // SAFETY: both have that length and do not overlap, and any bytes are a valid value.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(value)
    }
}

impl Default for Weights {
    /// The values that apply unless others are set.
    fn default() -> Self {
        const MILLISECOND: u64 = 1_000_000;
        Weights {
            slice: 100 * MILLISECOND,
            busy_slice: 3 * MILLISECOND,
            credit: 6 * MILLISECOND,
            preempt: MILLISECOND,
            steal_delay: MILLISECOND,
            imbalance: 1000,
            imbalance_step: 500,
            imbalance_percent: 25,
            own_bonus: 0,
            relief_interval: 10 * MILLISECOND,
            stay: 20 * MILLISECOND,
            rescue: 50 * MILLISECOND,
            period: 10 * MILLISECOND,
        }
    }
}

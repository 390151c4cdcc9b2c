//! The structures of `policy/policy.h`, as the kernel's BPF program and this process have them in memory.
//!
//! Field by field what the header has, in its order; what each is for is said there. A test of the feature `harness` compares sizes
//! and places with what the C compiler says. All are plain numbers: any bytes are a value.

#![allow(missing_docs, reason = "the header says it")]

/// Most CPUs.
pub const CPUS: usize = 1024;
/// Words of a mask of CPUs.
pub const WORDS: usize = CPUS / 64;
/// Most last-level caches.
pub const LLCS: usize = 256;
/// Most nodes.
pub const NODES: usize = 32;
/// In place of the virtual time of a queue's first task where there is none.
pub const NOBODY: u64 = u64::MAX;
/// No CPU, node or queue.
pub const NONE: u32 = u32::MAX;
/// What a full CPU can do.
pub const UNIT: u32 = 1024;

/// What is counted, by index of [`CpuState::events`]: names for people and for metrics, and what each counts.
pub const EVENTS: [(&str, &str); 22] = [
    ("home_exec", "homes picked because a task began a program"),
    ("home_fork", "homes picked because a process was forked"),
    ("home_thread", "homes picked for new threads"),
    ("home_told", "homes that were told"),
    ("home_memory", "homes that followed a task's memory"),
    ("home_room", "homes that moved from a crowded node to one with room"),
    ("home_affinity", "homes picked because a task may not run at its home any more"),
    ("woke_previous", "tasks that woke up on their previous CPU, at home"),
    ("woke_cache", "tasks that woke up under the same cache, at home"),
    ("woke_node", "tasks that woke up elsewhere on their home node"),
    ("woke_away", "tasks that woke up on an idle CPU away from home"),
    ("waited", "tasks that woke up and found no idle CPU"),
    ("preempted", "tasks that woke up and interrupted one that was further"),
    ("took_cache", "tasks that a CPU took from the queue of its cache"),
    ("took_node", "tasks that an idle CPU took from another queue of its node"),
    ("took_own", "tasks that a CPU of their home took back from elsewhere"),
    ("took_idle", "tasks that an idle CPU took from another node"),
    ("took_relief", "tasks that a busy CPU took from a place that was more crowded"),
    ("took_rescue", "tasks taken from queues that nobody had served"),
    ("left", "tasks that began to run away from home"),
    ("returned", "tasks that ran at home again"),
    ("sent", "tasks that a tick sent home"),
];
/// The index of what is counted and has no name above: changes of node, whatever the home.
pub const CROSSED: usize = EVENTS.len();
/// The index of those that woke up and found no idle CPU.
pub const WAITED: usize = 11;
/// The index of those that interrupted another one.
pub const PREEMPTED: usize = 12;
/// Numbers of [`CpuState::events`].
pub const COUNTED: usize = CROSSED + 1;

/// Why a task has its home, by [`Task::why`].
pub const WHY: [&str; 10] = [
    "it has none yet",
    "picked when it began its program",
    "picked when its process was forked",
    "as its process's",
    "told",
    "its memory is there",
    "its home before was crowded",
    "it may not run elsewhere",
    "it ran there when the scheduler began",
    "told, and taken back",
];

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Cpu {
    pub llc: u32,
    pub node: u32,
    pub sibling: u32,
    pub capacity: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Llc {
    pub node: u32,
    pub from: u32,
    pub to: u32,
    pub unused: u32,
    pub cpus: [u64; WORDS],
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Node {
    pub llc: u32,
    pub llcs: u32,
    pub from: u32,
    pub to: u32,
    pub cpus: [u64; WORDS],
    pub near: [u32; NODES],
    pub distance: [u32; NODES],
    pub id: u32,
    pub unused: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Weights {
    pub slice: u64,
    pub busy_slice: u64,
    pub credit: u64,
    pub preempt: u64,
    pub steal_delay: u64,
    pub imbalance: u64,
    pub imbalance_step: u64,
    pub imbalance_percent: u64,
    pub relief_interval: u64,
    pub stay: u64,
    pub rescue: u64,
    pub period: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(128))]
pub struct CpuState {
    pub home: u32,
    pub running: u32,
    pub vtime: u64,
    pub counted_at: u64,
    pub weight: u32,
    pub aged_at: u32,
    pub relief_at: u64,
    pub home_ns: u64,
    pub away_ns: u64,
    pub events: [u64; COUNTED],
    pub step: u32,
    pub at: u32,
    pub llc_at: u32,
    pub queue: u32,
    pub event: u32,
    pub wakes: u32,
    pub looks: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(128))]
pub struct LlcState {
    pub vnow: u64,
    pub advanced_at: u64,
    pub waiting: u32,
    pub running: u32,
    pub woke: u32,
    pub unused: u32,
    pub since: u64,
    pub served: u64,
    pub capacity: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(128))]
pub struct NodeState {
    pub homes: u32,
    pub wanting: u32,
    pub waiting_away: u32,
    pub waiting: u32,
    pub running: u32,
    pub load: u32,
    pub capacity: u32,
    pub strays: u32,
    pub smoothed_at: u64,
    pub demand: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Task {
    pub vtime: u64,
    pub began_at: u64,
    pub ran_at: u64,
    pub waits_at: u64,
    pub left_at: u64,
    pub returned_at: u64,
    pub home_ns: u64,
    pub away_ns: u64,
    pub accounted: u64,
    pub allowed: [u64; WORDS],
    pub weight: u32,
    pub home: u32,
    pub place: u32,
    pub cpu: u32,
    pub clock: u32,
    pub queue: u32,
    pub crossings: u32,
    pub swings: u32,
    pub why: u8,
    pub wanting: u8,
    pub running: u8,
    pub homed: u8,
    pub follows: u8,
    pub told: u8,
    pub wakes: u16,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Process {
    pub home: u32,
    pub threads: u32,
    pub inherited: u32,
    pub listed: u32,
    pub touched: u64,
    pub at_home: [u32; NODES],
    pub ran: [u64; NODES],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Told {
    pub node: u32,
    pub why: u32,
}

#[derive(Clone, Debug)]
#[repr(C)]
pub struct Nq {
    pub cpus: u32,
    pub llcs: u32,
    pub nodes: u32,
    pub starving: u32,
    pub looked_at: u32,
    pub unused: u32,
    pub weights: Weights,
    pub online: [u64; WORDS],
    pub idle: [u64; WORDS],
    pub idle_cores: [u64; WORDS],
    pub cpu: [Cpu; CPUS],
    pub llc: [Llc; LLCS],
    pub node: [Node; NODES],
    pub on_cpu: [CpuState; CPUS],
    pub on_llc: [LlcState; LLCS],
    pub on_node: [NodeState; NODES],
}

impl Nq {
    /// All zeros. Boxed, as it is half a megabyte.
    pub fn zeroed() -> Box<Self> {
        // SAFETY: plain numbers, of which all zeros are values; the box is allocated as that type, and never on the stack.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        let start = std::ptr::from_ref(self).cast();
        // SAFETY: as long as the value and borrowed as it is. Padding was zeroed with it and is never written.
        unsafe { std::slice::from_raw_parts(start, size_of::<Self>()) }
    }

    /// What these bytes are.
    ///
    /// # Errors
    /// They are too few, or too many: of another version. The number that there should be.
    pub fn from_bytes(bytes: &[u8]) -> Result<Box<Self>, usize> {
        if bytes.len() != size_of::<Self>() {
            return Err(size_of::<Self>());
        }
        let mut value = Self::zeroed();
        let target = std::ptr::from_mut(&mut *value).cast::<u8>();
        // SAFETY: both are that long, apart from each other, and any bytes are a value.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(value)
    }
}

impl Default for Weights {
    /// What the header's `nq_defaults` sets.
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
            relief_interval: 10 * MILLISECOND,
            stay: 20 * MILLISECOND,
            rescue: 50 * MILLISECOND,
            period: 10 * MILLISECOND,
        }
    }
}

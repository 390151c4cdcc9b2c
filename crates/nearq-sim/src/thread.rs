//! Simulated threads: what the simulator knows about each, and the table of the threads that are alive.

use corosensei::Yielder;
use nearq_platform::{HeldLocks, ThreadSpec, Wait};
use nearq_topology::CpuSet;

use crate::costs;
use crate::memory::Placing;

/// Names a simulated thread while it lives and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    pub(crate) slot: usize,
    pub(crate) id: u64,
}

impl Thread {
    /// A small number that no other living thread has, for tables: a later thread may have it again.
    pub fn slot(self) -> usize {
        self.slot
    }

    /// Its number; 1 is the program's first thread.
    pub fn number(self) -> u64 {
        self.id
    }
}

/// The right to wait for a simulated thread's end.
#[derive(Debug)]
pub struct JoinHandle(pub(crate) Thread);

impl JoinHandle {
    /// The thread whose end can be waited for.
    pub fn thread(&self) -> Thread {
        self.0
    }
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// On a CPU.
    Running,
    /// Waiting for a CPU: the scheduler has the thread.
    Ready,
    /// It could run, but a fault keeps it off the CPUs until its deadline.
    StandingStill,
    /// Asleep on a word.
    Waiting { address: usize, expected: u32 },
    /// Asleep until its deadline.
    Sleeping,
    /// Asleep until another thread ends.
    Joining { thread: Thread },
}

/// What a thread does in one piece on its CPU: declared work, or watching a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Units of work that are left: see [`FULL_RATE`](crate::cpu::FULL_RATE).
    pub(crate) left: u64,
    /// Whether the piece takes longer on a slow or shared core; waiting for memory and watching a word do not.
    pub(crate) scaled: bool,
    /// Whether the piece is the watching of a word.
    pub(crate) watch: bool,
    /// Whether the word has changed.
    pub(crate) over: bool,
}

/// What is called when a thread ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndCallback {
    /// Nothing.
    Unset,
    /// The function that it gave with its number.
    Set(fn(u32)),
    /// The function was called.
    Called,
}

/// A thread that is alive.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) state: State,
    /// The CPU it is on, or was on last.
    pub(crate) cpu: usize,
    /// The CPU that counts as its previous one at its next wake-up, if one was set.
    pub(crate) wake_cpu: Option<usize>,
    /// The CPUs on which its creator or the thread itself wants it to run.
    pub(crate) affinity: CpuSet,
    /// Where it may run: the affinity within the limits.
    pub(crate) allowed: CpuSet,
    pub(crate) nice: i32,
    pub(crate) weight: u64,
    pub(crate) slice: u64,
    /// Under a schedule that has priorities: the higher value goes first.
    pub(crate) priority: u64,
    /// Whether it was ever on a CPU.
    pub(crate) has_run: bool,
    /// What it is doing in one piece.
    pub(crate) piece: Option<Piece>,
    pub(crate) cpu_time: u64,
    /// How much of its CPU time it has spent in the kernel.
    pub(crate) kernel_time: u64,
    /// While running: the time up to which `cpu_time` is counted.
    pub(crate) counted_to: u64,
    /// How long it has waited for CPUs, up to when it last got one.
    pub(crate) waited: u64,
    /// While it waits for a CPU: since when, and the CPU for which it was enqueued.
    pub(crate) waits: (u64, usize),
    /// The time since which it sleeps, if it does.
    pub(crate) asleep_since: u64,
    /// Whether its timer is a fault: the thread wakes up for no reason.
    pub(crate) spurious: bool,
    pub(crate) deadline: Option<u64>,
    /// Whether its sleeps end without slack.
    pub(crate) exact: bool,
    /// While it sleeps with slack: its deadline as the timer has it, and the CPU of the timer.
    pub(crate) slack_from: Option<(u64, usize)>,
    pub(crate) outcome: Wait,
    /// Slots of the threads that wait for its end.
    pub(crate) joiners: Vec<usize>,
    /// The process that it belongs to.
    pub(crate) process: u64,
    /// Where the memory that it touches first comes from.
    pub(crate) placing: Placing,
    /// The platform's slot: the worker that it is.
    pub(crate) worker_slot: *const (),
    /// The platform's second slot.
    pub(crate) worker_ending: *const (),
    pub(crate) employer: u64,
    /// Its number in the locks' tables.
    pub(crate) number: u32,
    /// The locks that it holds.
    pub(crate) held: HeldLocks,
    /// What is called at its end.
    pub(crate) end_callback: EndCallback,
    /// Where its coroutine gives up control; null until it first runs.
    pub(crate) yielder: *const Yielder<(), ()>,
}

impl Entry {
    /// The CPU from which a search for its next one starts.
    pub(crate) fn previous_cpu(&self) -> usize {
        self.wake_cpu.unwrap_or(self.cpu)
    }
}

/// The threads that are alive, by slot; slots are reused.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    made: u64,
}

impl Threads {
    /// A new thread; it is `Sleeping` until it is made ready.
    pub(crate) fn add(
        &mut self,
        spec: &ThreadSpec,
        affinity: CpuSet,
        nice: i32,
        cpu: usize,
        slice: u64,
    ) -> Thread {
        self.made += 1;
        let entry = Entry {
            id: self.made,
            name: cut_name(&spec.name),
            state: State::Sleeping,
            cpu,
            wake_cpu: None,
            allowed: CpuSet::new(),
            affinity,
            nice,
            weight: costs::weight(nice),
            slice,
            priority: 0,
            has_run: false,
            piece: None,
            cpu_time: 0,
            kernel_time: 0,
            counted_to: 0,
            waited: 0,
            waits: (0, cpu),
            asleep_since: 0,
            spurious: false,
            deadline: None,
            exact: false,
            slack_from: None,
            outcome: Wait::Woken,
            joiners: Vec::new(),
            process: 1,
            placing: Placing::default(),
            worker_slot: std::ptr::null(),
            worker_ending: std::ptr::null(),
            employer: 0,
            number: 0,
            held: HeldLocks::new(),
            end_callback: EndCallback::Unset,
            yielder: std::ptr::null(),
        };
        let slot = self.free.pop().unwrap_or(self.entries.len());
        if slot == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[slot] = Some(entry);
        Thread { slot, id: self.made }
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Entry {
        self.free.push(slot);
        self.entries[slot].take().expect("a thread ends once")
    }

    pub(crate) fn at(&self, slot: usize) -> &Entry {
        self.entries[slot].as_ref().expect("the slot is in use")
    }

    pub(crate) fn at_mut(&mut self, slot: usize) -> &mut Entry {
        self.entries[slot].as_mut().expect("the slot is in use")
    }

    /// The thread, unless it has ended.
    pub(crate) fn find(&self, thread: Thread) -> Option<&Entry> {
        self.entries.get(thread.slot)?.as_ref().filter(|entry| entry.id == thread.id)
    }

    /// The thread in `slot`, unless it has ended.
    pub(crate) fn in_slot(&self, slot: usize) -> Option<&Entry> {
        self.entries.get(slot)?.as_ref()
    }

    /// Slots of the threads that are alive.
    pub(crate) fn slots(&self) -> Vec<usize> {
        (0..self.entries.len()).filter(|slot| self.entries[*slot].is_some()).collect()
    }
}

/// Linux keeps 15 bytes of a thread's name.
pub(crate) fn cut_name(name: &str) -> String {
    name[..name.floor_char_boundary(15)].to_owned()
}

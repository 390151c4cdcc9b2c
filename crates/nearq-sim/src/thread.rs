//! Simulated threads: what the simulator knows of each, and the table of those that are alive.

use corosensei::Yielder;
use nearq_platform::{ThreadSpec, Wait};
use nearq_topology::CpuSet;

use crate::costs;
use crate::memory::Placing;

/// Names a simulated thread, as long as it lives and longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    pub(crate) slot: usize,
    pub(crate) id: u64,
}

/// The right to wait for a simulated thread's end.
#[derive(Debug)]
pub struct JoinHandle(pub(crate) Thread);

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// On a CPU.
    Running,
    /// In the queue of its CPU, under this key.
    Ready { key: (u64, u64) },
    /// Asleep on a word.
    Waiting { address: usize, expected: u32 },
    /// Asleep until its deadline.
    Sleeping,
    /// Asleep until another thread ends.
    Joining { thread: Thread },
}

/// A thread that is alive.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) state: State,
    /// The CPU it is on, or was on last.
    pub(crate) cpu: usize,
    /// Where its creator or itself wants it to run.
    pub(crate) affinity: CpuSet,
    /// Where it may run: the affinity within the limits.
    pub(crate) allowed: CpuSet,
    pub(crate) nice: i32,
    pub(crate) weight: u64,
    pub(crate) slice: u64,
    /// CPU time divided by weight, on the scale of its CPU's queue. Means something on a CPU or in its queue.
    pub(crate) virtual_time: u64,
    /// How far it was ahead of its queue when it left it.
    pub(crate) lag: i64,
    pub(crate) cpu_time: u64,
    /// While running: up to when `cpu_time` and `virtual_time` are counted.
    pub(crate) counted_to: u64,
    /// Counts its sleeps, so that a deadline of an earlier one is told from this one's.
    pub(crate) sleeps: u64,
    pub(crate) deadline: Option<u64>,
    pub(crate) outcome: Wait,
    /// Slots of the threads that wait for its end.
    pub(crate) joiners: Vec<usize>,
    /// The process that it belongs to.
    pub(crate) process: u64,
    /// Where the memory that it touches first comes from.
    pub(crate) placing: Placing,
    /// The platform's slot: the worker that it is.
    pub(crate) own: *const (),
    /// Where its coroutine gives up control; null until it runs first.
    pub(crate) yielder: *const Yielder<(), ()>,
}

/// The threads that are alive, by slot; a slot is used again.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    made: u64,
}

impl Threads {
    /// A new thread; it is `Sleeping` until somebody makes it ready.
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
            allowed: affinity.clone(),
            affinity,
            nice,
            weight: costs::weight(nice),
            slice,
            virtual_time: 0,
            lag: 0,
            cpu_time: 0,
            counted_to: 0,
            sleeps: 0,
            deadline: None,
            outcome: Wait::Woken,
            joiners: Vec::new(),
            process: 1,
            placing: Placing::default(),
            own: std::ptr::null(),
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

    /// The thread in `slot`, unless that one has ended.
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

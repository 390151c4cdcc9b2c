//! The state of a simulated machine, and what happens next on it.
//!
//! One rule gives the run its order: **the CPU with the earliest clock goes next**, the lower number where clocks
//! are equal. A thread does something that others can see only while its CPU is the earliest; otherwise it gives
//! up control until it is. So accesses happen in the order of virtual time, and a run is a function of machine,
//! program and seed.
//!
//! Nothing here switches coroutines or runs a simulated thread's code: `context` does.

use std::collections::{BTreeMap, VecDeque};

use nearq_platform::Wait;
use nearq_topology::{CpuSet, Limits};

use crate::costs::Costs;
use crate::cpu::Cpu;
use crate::events::{Events, What};
use crate::faults::Faults;
use crate::hardware::Hardware;
use crate::memory::{Access, AddressMap, Memory};
use crate::outcome::{Ending, Panicked};
use crate::process::Processes;
use crate::rng::Rng;
use crate::simulation::Schedule;
use crate::thread::{Entry, State, Threads};
use crate::trace::{Kind, Trace};

/// Which coroutine the event loop resumes, or why it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Run { slot: usize },
    End(Ending),
}

/// A simulated machine with everything on it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) hardware: Hardware,
    pub(crate) costs: Costs,
    pub(crate) limits: Limits,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) schedule: Schedule,
    pub(crate) faults: Faults,
    pub(crate) jitter: bool,
    pub(crate) time_limit: u64,
    /// By number; numbers that are no CPU have an unused entry.
    pub(crate) cpus: Vec<Cpu>,
    /// The CPUs without a thread.
    pub(crate) idle: CpuSet,
    /// The CPUs with threads waiting for them.
    pub(crate) crowded: CpuSet,
    pub(crate) threads: Threads,
    pub(crate) events: Events,
    pub(crate) memory: Memory,
    pub(crate) processes: Processes,
    /// Slots of the threads that sleep on a word, in the order in which they came.
    sleepers: AddressMap<VecDeque<usize>>,
    /// CPUs whose thread spins on a word.
    watchers: AddressMap<Vec<usize>>,
    pub(crate) rng: Rng,
    pub(crate) trace: Trace,
    /// The CPU whose thread runs now.
    pub(crate) cpu: usize,
    /// The slot of that thread.
    pub(crate) slot: usize,
    /// The slot of the program's first thread, until it ends.
    pub(crate) main: Option<usize>,
    pub(crate) panics: Vec<Panicked>,
    pub(crate) warnings: Vec<String>,
    pub(crate) accesses: u64,
    pub(crate) switches: u64,
}

impl World {
    pub(crate) fn new(
        hardware: Hardware,
        costs: &Costs,
        limits: Limits,
        seed: u64,
        trace: Trace,
    ) -> Self {
        let cpus = (0..hardware.numbers()).map(|_| Cpu::default()).collect();
        let idle = hardware.topology().possible().clone();
        let memory = Memory::new(&hardware, costs);
        World {
            hardware,
            costs: *costs,
            limits,
            settings: BTreeMap::new(),
            schedule: Schedule::Fair,
            faults: Faults::NONE,
            jitter: true,
            time_limit: u64::MAX,
            cpus,
            idle,
            crowded: CpuSet::new(),
            threads: Threads::default(),
            events: Events::default(),
            memory,
            processes: Processes::default(),
            sleepers: AddressMap::default(),
            watchers: AddressMap::default(),
            rng: Rng::new(seed),
            trace,
            cpu: 0,
            slot: 0,
            main: None,
            panics: Vec::new(),
            warnings: Vec::new(),
            accesses: 0,
            switches: 0,
        }
    }

    // ---- the thread that runs --------------------------------------------------------------------------

    /// The time on the CPU of the thread that runs.
    pub(crate) fn now(&self) -> u64 {
        self.cpus[self.cpu].clock
    }

    pub(crate) fn me(&self) -> &Entry {
        self.threads.at(self.slot)
    }

    pub(crate) fn me_mut(&mut self) -> &mut Entry {
        self.threads.at_mut(self.slot)
    }

    /// A cost with its share of chance: up to an eighth more.
    pub(crate) fn jittered(&mut self, cost: u64) -> u64 {
        if self.jitter { cost + self.rng.below(cost / 8 + 1) } else { cost }
    }

    /// Lets time pass for the thread that runs.
    pub(crate) fn charge(&mut self, cost: u64) {
        let cost = self.jittered(cost);
        self.cpus[self.cpu].clock += cost;
    }

    pub(crate) fn record(&mut self, kind: Kind, number: u64) {
        let (time, id) = (self.now(), self.me().id);
        self.trace.record(time, self.cpu, id, kind, number);
    }

    /// Charges an access of the thread that runs.
    pub(crate) fn access(&mut self, address: usize, access: Access) {
        let now = self.now();
        let (line, cost) =
            self.memory.access(address, self.cpu, access, now, &self.hardware, &self.costs);
        self.accesses += 1;
        self.record(if access == Access::Read { Kind::Read } else { Kind::Write }, line);
        self.charge(cost);
    }

    // ---- sleeping and spinning on words ----------------------------------------------------------------

    /// Puts the thread that runs to sleep on a word. The next one is on its CPU when this returns.
    pub(crate) fn sleep_on(&mut self, address: usize, expected: u32, deadline: Option<u64>) {
        let line = self.memory.line(address).unwrap_or(0);
        self.record(Kind::Wait, line);
        self.sleepers.entry(address).or_default().push_back(self.slot);
        self.block(State::Waiting { address, expected }, deadline);
    }

    /// Takes the thread that runs off its CPU until something makes it ready.
    pub(crate) fn block(&mut self, state: State, deadline: Option<u64>) {
        let slot = self.slot;
        self.take_off();
        let thread = self.threads.at_mut(slot);
        thread.state = state;
        thread.deadline = deadline;
        thread.sleeps += 1;
        let wait = thread.sleeps;
        if let Some(time) = deadline {
            self.events.push(time, What::Deadline { slot, wait });
        }
        self.go_on(self.cpu);
    }

    /// Wakes the first `count` threads that sleep on a word, for the thread that runs. How many there were.
    pub(crate) fn wake(&mut self, address: usize, count: usize) -> usize {
        let mut woken = 0;
        while woken < count {
            let Some(queue) = self.sleepers.get_mut(&address) else { break };
            let Some(slot) = queue.pop_front() else { break };
            if queue.is_empty() {
                self.sleepers.remove(&address);
            }
            self.charge(self.costs.wake_up);
            self.wake_slot(slot, self.now());
            woken += 1;
        }
        woken
    }

    fn wake_slot(&mut self, slot: usize, now: u64) {
        let thread = self.threads.at_mut(slot);
        thread.outcome = Wait::Woken;
        thread.deadline = None;
        // Voids the deadline that may still be in the queue of events.
        thread.sleeps += 1;
        let (id, cpu) = (thread.id, self.cpu);
        let waker = self.threads.in_slot(self.slot).map_or(0, |waker| waker.id);
        self.trace.record(now, cpu, waker, Kind::Ready, id);
        self.make_ready(slot, now);
    }

    fn time_out(&mut self, slot: usize, now: u64) {
        let thread = self.threads.at_mut(slot);
        thread.outcome = Wait::TimedOut;
        thread.deadline = None;
        let (id, cpu) = (thread.id, thread.cpu);
        if let State::Waiting { address, .. } = thread.state
            && let Some(queue) = self.sleepers.get_mut(&address)
        {
            queue.retain(|other| *other != slot);
            if queue.is_empty() {
                self.sleepers.remove(&address);
            }
        }
        self.trace.record(now, cpu, id, Kind::TimedOut, cpu as u64);
        self.make_ready(slot, now);
    }

    /// The thread that runs looks at a word from now on.
    pub(crate) fn watch(&mut self, address: usize) {
        self.watchers.entry(address).or_default().push(self.cpu);
    }

    pub(crate) fn unwatch(&mut self, address: usize) {
        if let Some(cpus) = self.watchers.get_mut(&address) {
            cpus.retain(|cpu| *cpu != self.cpu);
            if cpus.is_empty() {
                self.watchers.remove(&address);
            }
        }
    }

    /// A word has changed: those that look at it see it now.
    pub(crate) fn changed(&mut self, address: usize) {
        if self.watchers.is_empty() {
            return;
        }
        if let Some(cpus) = self.watchers.get(&address).cloned() {
            for cpu in cpus {
                self.interrupt(cpu, self.now());
            }
        }
    }

    // ---- the end of threads ----------------------------------------------------------------------------

    /// The thread that ran has returned from its function.
    pub(crate) fn end_current(&mut self) {
        let (slot, now) = (self.slot, self.now());
        self.take_off();
        self.record(Kind::End, self.me().cpu_time);
        for joiner in std::mem::take(&mut self.me_mut().joiners) {
            self.wake_slot(joiner, now);
        }
        self.leave_process(slot);
        self.threads.remove(slot);
        if self.main == Some(slot) {
            self.main = None;
        } else {
            self.go_on(self.cpu);
        }
    }

    // ---- what happens next -----------------------------------------------------------------------------

    /// Goes to the next event that lets a thread run.
    pub(crate) fn next(&mut self) -> Next {
        loop {
            if self.main.is_none() {
                return Next::End(Ending::Returned);
            }
            let Some(event) = self.events.pop() else {
                return Next::End(Ending::Deadlock);
            };
            match event.what {
                What::Cpu { cpu, version } if self.cpus[cpu].version == version => {
                    if event.time > self.time_limit {
                        return Next::End(Ending::TimeLimit);
                    }
                    self.cpu = cpu;
                    self.slot =
                        self.cpus[cpu].current.expect("only a CPU with a thread has a valid event");
                    self.switches += 1;
                    return Next::Run { slot: self.slot };
                }
                What::Deadline { slot, wait } => {
                    if self.threads.in_slot(slot).is_some_and(|thread| thread.sleeps == wait) {
                        if event.time > self.time_limit {
                            return Next::End(Ending::TimeLimit);
                        }
                        self.time_out(slot, event.time);
                    }
                }
                What::Cpu { .. } => {}
            }
        }
    }
}

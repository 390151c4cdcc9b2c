//! The state of a simulated machine, and what happens next on it.
//!
//! One rule gives the run its order: **the CPU with the earliest clock goes next**, the lower number if clocks are equal. A thread does
//! something that others can see only while its CPU is the earliest; otherwise it gives up control until its CPU is the earliest. So
//! accesses happen in the order of virtual time, and a run is a function of machine, program and seed.
//!
//! Nothing here switches coroutines or runs a simulated thread's code: `context` does.

use std::collections::{BTreeMap, VecDeque};

use nearq_platform::{Instant, Wait};
use nearq_topology::{CpuSet, Limits};

use crate::costs::Costs;
use crate::cpu::Cpu;
use crate::events::{Events, Timer, What};
use crate::faults::Faults;
use crate::hardware::Hardware;
use crate::injection::Injection;
use crate::kept::Kept;
use crate::memory::{Access, AddressMap, By, Memory};
use crate::noise::Slack;
use crate::outcome::{Ending, Panicked, Progressed};
use crate::priorities::Priorities;
use crate::process::Processes;
use crate::quota::Bandwidth;
use crate::rng::Rng;
use crate::sched::{Orders, Reason, Scheduler};
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
    /// Whether the scheduler receives wake hints.
    pub(crate) wake_hints: bool,
    pub(crate) schedule: Schedule,
    pub(crate) scheduler: Box<dyn Scheduler>,
    /// The orders of the scheduler that have not been carried out yet.
    pub(crate) orders: Orders,
    pub(crate) jitter: bool,
    pub(crate) time_limit: u64,
    /// By number; numbers without a CPU have an unused entry.
    pub(crate) cpus: Vec<Cpu>,
    /// The CPUs that are online.
    pub(crate) online: CpuSet,
    /// The CPUs that the limits allow and that are online.
    pub(crate) usable: CpuSet,
    /// The CPUs without a thread that could have one.
    pub(crate) idle: CpuSet,
    /// How many CPUs are busy.
    pub(crate) busy: usize,
    /// The CPU quota, if the limits have one.
    pub(crate) quota: Option<Bandwidth>,
    /// The priorities, if the schedule has them.
    pub(crate) priorities: Option<Priorities>,
    /// What goes wrong.
    pub(crate) injection: Injection,
    /// Whether threads are disturbed at their steps: by a schedule or by faults.
    pub(crate) disturbed: bool,
    pub(crate) threads: Threads,
    pub(crate) events: Events,
    pub(crate) memory: Memory,
    pub(crate) processes: Processes,
    /// What the program's locks share.
    pub(crate) locks: Kept,
    /// The deadlines that may be missed by the timers' slack.
    pub(crate) slack: Slack,
    /// Slots of the threads that sleep on a word, in the order in which they began to sleep.
    sleepers: AddressMap<VecDeque<usize>>,
    /// Slots of the threads that spin on a word.
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
    /// How many events there were.
    pub(crate) event_count: u64,
}

impl World {
    pub(crate) fn new(
        hardware: Hardware,
        costs: &Costs,
        limits: Limits,
        seed: u64,
        trace: Trace,
        scheduler: Box<dyn Scheduler>,
    ) -> Self {
        let memory = Memory::new(&hardware, costs);
        let numbers = hardware.numbers();
        let cpus = (0..numbers).map(|cpu| Cpu::new(hardware.capacity(cpu) * 100)).collect();
        let online = hardware.topology().online().clone();
        let usable = limits.effective().intersection(&online);
        World {
            hardware,
            costs: *costs,
            limits,
            settings: BTreeMap::new(),
            wake_hints: false,
            schedule: Schedule::Fair,
            scheduler,
            orders: Orders::default(),
            jitter: true,
            time_limit: u64::MAX,
            cpus,
            idle: online.clone(),
            online,
            usable,
            busy: 0,
            quota: None,
            priorities: None,
            injection: Injection::new(Faults::NONE, seed),
            disturbed: false,
            threads: Threads::default(),
            events: Events::new(numbers),
            memory,
            processes: Processes::default(),
            locks: Kept::default(),
            slack: Slack::default(),
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
            event_count: 0,
        }
    }

    // ---- the running thread --------------------------------------------------------------------------

    /// The time on the running thread's CPU.
    pub(crate) fn now(&self) -> u64 {
        self.cpus[self.cpu].clock
    }

    pub(crate) fn me(&self) -> &Entry {
        self.threads.at(self.slot)
    }

    pub(crate) fn me_mut(&mut self) -> &mut Entry {
        self.threads.at_mut(self.slot)
    }

    /// A cost with its random part: up to an eighth more.
    pub(crate) fn jittered(&mut self, cost: u64) -> u64 {
        if self.jitter { cost + self.rng.below(cost / 8 + 1) } else { cost }
    }

    /// Lets time pass for the running thread.
    pub(crate) fn charge(&mut self, cost: u64) {
        let cost = self.jittered(cost);
        self.cpus[self.cpu].clock += cost;
    }

    /// Lets time pass for the running thread until other CPUs have seen all its stores.
    pub(crate) fn await_stores(&mut self) {
        let (cpu, now) = (self.cpu, self.now());
        self.cpus[cpu].clock = self.memory.stores_seen(cpu, now);
    }

    /// Charges what the kernel does for the running thread.
    pub(crate) fn charge_kernel(&mut self, cost: u64) {
        self.await_stores();
        let cost = self.jittered(cost);
        self.cpus[self.cpu].clock += cost;
        self.me_mut().kernel_time += cost;
    }

    pub(crate) fn record(&mut self, kind: Kind, number: u64) {
        let (time, id) = (self.now(), self.me().id);
        self.trace.record(time, self.cpu, id, kind, number);
    }

    /// Whether the running thread must wait for a line that another CPU has captured. Then its time has passed, and it tries again.
    #[inline]
    pub(crate) fn waits_for_line(&mut self, address: usize, access: Access) -> bool {
        if self.costs.capture == 0 {
            return false;
        }
        let by = (self.cpu, self.now());
        let again = self.memory.wait(address, access, by, &self.hardware, &self.costs);
        if let Some(again) = again {
            self.cpus[self.cpu].clock = again;
        }
        again.is_some()
    }

    /// Whether the running thread must wait for the CPU's store buffer before an access. Then its time has passed, and it tries again: what
    /// other CPUs do meanwhile comes first.
    #[inline]
    pub(crate) fn waits_for_stores(&mut self, access: Access) -> bool {
        if self.costs.store_buffer == 0 {
            return false;
        }
        let now = self.now();
        let ready = self.memory.ready(access, self.cpu, now, &self.costs);
        self.cpus[self.cpu].clock = ready;
        ready > now
    }

    /// Charges an access of the running thread.
    pub(crate) fn access(&mut self, address: usize, access: Access) {
        let now = self.now();
        let policy = &self.threads.at(self.slot).placing.policy;
        let by = By { cpu: self.cpu, now, policy };
        let (line, cost) = self.memory.access(address, access, by, &self.hardware, &self.costs);
        self.accesses += 1;
        self.record(if access == Access::Read { Kind::Read } else { Kind::Write }, line);
        self.charge(cost);
    }

    /// The running thread's CPU asks for a copy of the line at an address, and does not wait for it.
    pub(crate) fn fetch_ahead(&mut self, address: usize) {
        self.memory.fetch_ahead(address, (self.cpu, self.now()), &self.hardware);
    }

    /// The running thread drops the atomic at an address.
    pub(crate) fn give_line_back(&mut self, address: usize) {
        self.memory.give_line_back(address, self.cpu, &self.costs);
    }

    // ---- sleeping and spinning on words ----------------------------------------------------------------

    /// Puts the running thread to sleep on a word. When this returns, the next thread is on the CPU. Returns false if instead the thread
    /// wakes up at once for no reason.
    pub(crate) fn sleep_on(
        &mut self,
        address: usize,
        expected: u32,
        deadline: Option<u64>,
    ) -> bool {
        let line = self.memory.line(address).unwrap_or(0);
        self.record(Kind::Wait, line);
        let (slot, now) = (self.slot, self.now());
        let early = self.wakes_for_no_reason(now);
        if early == Some(now) {
            self.note_spurious(slot, now);
            self.me_mut().outcome = Wait::Woken;
            return false;
        }
        self.sleepers.entry(address).or_default().push_back(slot);
        self.block(State::Waiting { address, expected }, deadline);
        if let Some(early) = early
            && deadline.is_none_or(|deadline| early < deadline)
        {
            self.threads.at_mut(slot).spurious = true;
            self.events.set_timer(Timer::Deadline { slot }, early);
        }
        true
    }

    /// Takes the running thread off its CPU until it is made ready.
    pub(crate) fn block(&mut self, state: State, deadline: Option<u64>) {
        let (slot, now) = (self.slot, self.now());
        if let Some(deadline) = deadline {
            self.arm(deadline);
        }
        self.stop(self.cpu, false);
        let thread = self.threads.at_mut(slot);
        thread.state = state;
        thread.deadline = deadline;
        thread.asleep_since = now;
        self.go_on(self.cpu);
    }

    /// Wakes the first `count` threads that sleep on a word, on behalf of the running thread. Returns how many there
    /// were.
    pub(crate) fn wake(&mut self, address: usize, count: usize) -> usize {
        let mut woken = 0;
        while woken < count {
            let Some(queue) = self.sleepers.get_mut(&address) else { break };
            let Some(slot) = queue.pop_front() else { break };
            if queue.is_empty() {
                self.sleepers.remove(&address);
            }
            self.charge_kernel(self.costs.wake_up);
            let interrupted = self.wake_slot(slot, self.now());
            if interrupted && self.costs.interrupt > 0 {
                self.charge_kernel(self.costs.interrupt);
            }
            woken += 1;
        }
        woken
    }

    /// Wakes a thread. Returns whether another CPU was interrupted.
    fn wake_slot(&mut self, slot: usize, now: u64) -> bool {
        self.disarm(slot);
        let thread = self.threads.at_mut(slot);
        thread.outcome = Wait::Woken;
        thread.deadline = None;
        thread.spurious = false;
        let (id, cpu) = (thread.id, self.cpu);
        let waker = self.threads.in_slot(self.slot).map_or(0, |waker| waker.id);
        self.trace.record(now, cpu, waker, Kind::Ready, id);
        self.make_ready(slot, now, Reason::Woken)
    }

    /// The deadline of a thread's sleep has passed.
    pub(crate) fn time_out(&mut self, slot: usize, now: u64) {
        let thread = self.threads.at_mut(slot);
        let spurious = std::mem::take(&mut thread.spurious);
        thread.outcome = if spurious { Wait::Woken } else { Wait::TimedOut };
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
        if spurious {
            self.note_spurious(slot, now);
        } else {
            self.trace.record(now, cpu, id, Kind::TimedOut, cpu as u64);
        }
        self.make_ready(slot, now, Reason::Woken);
    }

    /// The running thread watches a word from now on.
    pub(crate) fn watch(&mut self, address: usize) {
        self.watchers.entry(address).or_default().push(self.slot);
    }

    pub(crate) fn unwatch(&mut self, address: usize) {
        if let Some(slots) = self.watchers.get_mut(&address) {
            slots.retain(|slot| *slot != self.slot);
            if slots.is_empty() {
                self.watchers.remove(&address);
            }
        }
    }

    /// A word has changed: threads that watch it see the change now.
    #[inline]
    pub(crate) fn changed(&mut self, address: usize) {
        if self.watchers.is_empty() {
            return;
        }
        if let Some(slots) = self.watchers.get_mut(&address) {
            let slots = std::mem::take(slots);
            let now = self.now();
            for slot in &slots {
                self.end_piece(*slot, now);
            }
            self.watchers.insert(address, slots);
        }
    }

    // ---- the end of threads ----------------------------------------------------------------------------

    /// The thread that ran has returned from its function.
    pub(crate) fn end_current(&mut self) {
        let (slot, now) = (self.slot, self.now());
        self.stop(self.cpu, false);
        self.record(Kind::End, self.me().cpu_time);
        for joiner in std::mem::take(&mut self.me_mut().joiners) {
            self.wake_slot(joiner, now);
        }
        self.leave_process(slot);
        let thread = self.thread(slot);
        self.ask(now, |scheduler, kernel| scheduler.exit_thread(kernel, thread));
        self.threads.remove(slot);
        if self.main == Some(slot) {
            self.main = None;
        } else {
            self.go_on(self.cpu);
        }
    }

    // ---- what happens next -----------------------------------------------------------------------------

    /// How far the run has got.
    pub(crate) fn progressed(&self) -> Progressed {
        Progressed {
            now: Instant::from_nanos(self.now()),
            accesses: self.accesses,
            switches: self.switches,
            events: self.event_count,
        }
    }

    /// Goes to the next event that lets a thread run.
    pub(crate) fn next(&mut self) -> Next {
        loop {
            if self.main.is_none() {
                return Next::End(Ending::Returned);
            }
            if self.events.no_thread_will_run() && !self.is_throttled() {
                return Next::End(Ending::Deadlock);
            }
            let Some((time, what)) = self.events.pop() else {
                return Next::End(Ending::Deadlock);
            };
            if time > self.time_limit {
                return Next::End(Ending::TimeLimit);
            }
            self.event_count += 1;
            match what {
                What::Cpu(cpu) => {
                    if let Some(slot) = self.cpu_goes_on(cpu, time) {
                        (self.cpu, self.slot) = (cpu, slot);
                        self.switches += 1;
                        return Next::Run { slot };
                    }
                }
                What::Timer(Timer::Deadline { slot }) => {
                    if self.threads.at(slot).state == State::StandingStill {
                        self.go_on_after_standstill(slot, time);
                    } else {
                        self.timer_interrupt(slot, time);
                    }
                }
                What::Timer(Timer::Tick) => self.tick(time),
                What::Timer(Timer::Quota) => self.new_period(time),
                What::Timer(Timer::CpuFault) => self.cpu_fault(time),
                What::Timer(Timer::LimitsFault) => self.limits_fault(time),
            }
        }
    }
}

//! A small kernel for the policy: tasks, CPUs and queues in steps of half a millisecond, with the calls in the order in which Linux
//! makes them. A CPU whose task's slice is over first searches for another one; then its own task is enqueued.

mod holds;

use std::collections::{BTreeMap, VecDeque};

use holds::CHECKED;
use nearq_policy_harness::Policy;
use nearq_scx_policy::layout::{HomeReason, NONE, TakeWhich, Task, WAITED};
use nearq_topology::{CpuSet, Topology};

pub(crate) const MS: u64 = 1_000_000;
/// The length of a step of time.
pub(crate) const STEP: u64 = MS / 2;
/// The time from one tick to the next.
pub(crate) const TICK: u64 = 4 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Sleeps,
    Waits {
        llc: usize,
        key: (u64, u64),
    },
    /// It runs next on a CPU.
    Next(usize),
    Runs(usize),
    Ended,
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) task: Task,
    pub(crate) state: State,
    pub(crate) cpu: usize,
    pub(crate) affinity: CpuSet,
    /// When its state began.
    pub(crate) since: u64,
    /// How long it works, and below, how long it then sleeps; it works without end if it does not sleep.
    pub(crate) works: u64,
    pub(crate) sleeps: u64,
    left: u64,
    pub(crate) longest_wait: u64,
}

#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) online: bool,
    pub(crate) current: Option<usize>,
    next: VecDeque<usize>,
    /// Whether it has nothing to run; below, since when.
    pub(crate) idle: bool,
    pub(crate) idle_since: u64,
    slice_end: u64,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) policy: Policy,
    pub(crate) threads: Vec<Thread>,
    pub(crate) cpus: Vec<Cpu>,
    queues: Vec<BTreeMap<(u64, u64), usize>>,
    pub(crate) now: u64,
    came: u64,
    kicks: VecDeque<(usize, bool)>,
    /// CPUs that search again, for a task that is on its way to a queue.
    again: Vec<usize>,
}

impl Model {
    pub(crate) fn new(machine: &str) -> Self {
        let machine = Topology::from_synthetic(machine).unwrap();
        Self::of(&machine)
    }

    pub(crate) fn of(machine: &Topology) -> Self {
        let policy = Policy::new(machine, machine.online()).unwrap();
        let cpu = || Cpu {
            online: true,
            current: None,
            next: VecDeque::new(),
            idle: true,
            idle_since: 0,
            slice_end: 0,
        };
        let count = policy.state().cpus as usize;
        let queues = vec![BTreeMap::new(); policy.state().llcs as usize];
        let cpus = (0..count).map(|_| cpu()).collect();
        let mut model = Model {
            policy,
            threads: Vec::new(),
            cpus,
            queues,
            // Not zero, because no kernel clock is.
            now: 1000 * MS,
            came: 0,
            kicks: VecDeque::new(),
            again: Vec::new(),
        };
        for cpu in 0..count {
            model.policy.idle(cpu);
            model.cpus[cpu].idle_since = model.now;
        }
        model
    }

    pub(crate) fn all(&self) -> CpuSet {
        (0..self.cpus.len()).collect()
    }

    // ---- what happens to tasks -----------------------------------------------------------------------------

    /// Adds a task of a process of its own, which may run on these CPUs and began on `cpu`.
    pub(crate) fn fork(
        &mut self,
        weight: u32,
        affinity: &CpuSet,
        works: u64,
        sleeps: u64,
    ) -> usize {
        let number = self.fork_at(weight, affinity, works, sleeps, None);
        self.wake(number);
        number
    }

    /// The same, with a home if one is given, and asleep.
    pub(crate) fn fork_at(
        &mut self,
        weight: u32,
        affinity: &CpuSet,
        works: u64,
        sleeps: u64,
        home: Option<usize>,
    ) -> usize {
        let mut task = Task::default();
        self.policy.init_task(&mut task, weight);
        Policy::allow(&mut task, affinity);
        let cpu = self.usable(affinity);
        let home =
            home.unwrap_or_else(|| self.policy.pick(&mut task, Some(self.policy.node_of(cpu))));
        self.policy.set_home(&mut task, home, HomeReason::Fork);
        let affinity = affinity.clone();
        let (state, since, left) = (State::Sleeps, self.now, works.max(STEP));
        self.threads.push(Thread {
            task,
            state,
            cpu,
            affinity,
            since,
            works,
            sleeps,
            left,
            longest_wait: 0,
        });
        self.threads.len() - 1
    }

    /// The first CPU of a set that is online.
    fn usable(&self, affinity: &CpuSet) -> usize {
        affinity.iter().find(|cpu| self.cpus[*cpu].online).expect("somewhere it may run")
    }

    pub(crate) fn wake(&mut self, number: usize) {
        self.wake_while(number, None);
    }

    /// The same, but if the task has to wait, another task falls asleep at that moment: after the search for idle CPUs, and before the
    /// first one is in its queue.
    pub(crate) fn wake_while(&mut self, number: usize, other: Option<usize>) {
        let thread = &mut self.threads[number];
        if thread.state != State::Sleeps {
            return;
        }
        thread.left = thread.works.max(STEP);
        let (chosen, event) = self.policy.select_cpu(&mut thread.task, thread.cpu, None);
        self.policy.count(chosen, event);
        self.policy.runnable(&mut thread.task);
        if event != WAITED {
            assert!(self.cpus[chosen].current.is_none() && self.cpus[chosen].online);
            self.next_on(number, chosen);
            self.kicks.push_back((chosen, false));
        } else {
            let thread = &self.threads[number];
            let fits = self.cpus[chosen].online && Policy::may_run(&thread.task, chosen);
            let cpu = if fits { chosen } else { self.usable(&thread.affinity) };
            self.threads[number].since = self.now;
            self.enqueue_while(number, cpu, true, other);
        }
        self.settle();
    }

    fn next_on(&mut self, number: usize, cpu: usize) {
        self.cpus[cpu].next.push_back(number);
        self.threads[number].state = State::Next(cpu);
    }

    fn enqueue(&mut self, number: usize, cpu: usize, woken: bool) {
        self.enqueue_while(number, cpu, woken, None);
    }

    fn enqueue_while(&mut self, number: usize, cpu: usize, woken: bool, other: Option<usize>) {
        let thread = &mut self.threads[number];
        thread.cpu = cpu;
        let llc = self.policy.enqueue(&mut thread.task, cpu, woken, self.now);
        let key = (thread.task.vtime, self.came);
        self.came += 1;
        thread.state = State::Waits { llc, key };
        let kick = if let Some(idle) = self.policy.wake(&mut thread.task, llc, self.now) {
            Some((idle, false))
        } else if let Some(stray) = self.policy.displaces(&mut thread.task, llc) {
            Some((stray, true))
        } else {
            let preempts = woken && self.policy.preempts(&mut thread.task, cpu, self.now);
            preempts.then_some((cpu, true))
        };
        if let Some(other) = other.filter(|other| *other != number) {
            self.sleep(other);
        }
        self.queues[llc].insert(key, number);
        self.kicks.extend(kick);
        self.kicks.extend(self.again.drain(..).map(|cpu| (cpu, false)));
    }

    /// Takes a task out of wherever it waits.
    fn dequeue(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        match thread.state {
            State::Waits { llc, key } => {
                self.queues[llc].remove(&key);
                self.policy.leave_queue(&mut thread.task, self.now);
            }
            State::Next(cpu) => self.cpus[cpu].next.retain(|other| *other != number),
            _ => panic!("it does not wait"),
        }
    }

    /// Makes a task that runs or waits sleep until it is woken.
    pub(crate) fn sleep(&mut self, number: usize) {
        match self.threads[number].state {
            State::Runs(cpu) => {
                self.cpus[cpu].current = None;
                self.policy.stopping(&mut self.threads[number].task, cpu, self.now);
                self.quiescent(number);
                self.kicks.push_back((cpu, true));
            }
            State::Waits { .. } => {
                self.dequeue(number);
                self.quiescent(number);
            }
            _ => return,
        }
        self.settle();
    }

    fn quiescent(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        self.policy.quiescent(&mut thread.task, self.now);
        (thread.state, thread.since) = (State::Sleeps, self.now);
    }

    pub(crate) fn end(&mut self, number: usize) {
        self.sleep(number);
        let thread = &mut self.threads[number];
        if thread.state == State::Sleeps {
            self.policy.exit_task(&mut thread.task, self.now);
            thread.state = State::Ended;
        }
    }

    pub(crate) fn set_home(&mut self, number: usize, home: usize) {
        let thread = &mut self.threads[number];
        if thread.state != State::Ended && self.policy.is_open(&mut thread.task, home) {
            self.policy.set_home(&mut thread.task, home, HomeReason::Told);
        }
    }

    pub(crate) fn set_weight(&mut self, number: usize, weight: u32) {
        Policy::set_weight(&mut self.threads[number].task, weight);
    }

    pub(crate) fn set_affinity(&mut self, number: usize, affinity: &CpuSet) {
        let online: CpuSet = affinity.iter().filter(|cpu| self.cpus[*cpu].online).collect();
        let thread = &mut self.threads[number];
        if thread.state == State::Ended || online.is_empty() {
            return;
        }
        thread.affinity = affinity.clone();
        Policy::allow(&mut thread.task, affinity);
        let home = thread.task.home as usize;
        if !self.policy.is_open(&mut thread.task, home) {
            let home = self.policy.pick(&mut thread.task, Some(home));
            self.policy.set_home(&mut thread.task, home, HomeReason::Affinity);
        }
        match thread.state {
            State::Waits { .. } => {
                self.dequeue(number);
                self.enqueue(number, self.usable(affinity), false);
            }
            State::Runs(cpu) if !affinity.contains(cpu) => self.move_away(number, cpu),
            _ => {}
        }
        self.settle();
    }

    /// A task must leave the CPU on which it runs.
    fn move_away(&mut self, number: usize, cpu: usize) {
        self.cpus[cpu].current = None;
        let to = self.usable(&self.threads[number].affinity.clone());
        self.policy.stopping(&mut self.threads[number].task, cpu, self.now);
        self.threads[number].since = self.now;
        self.enqueue(number, to, false);
        self.kicks.push_back((cpu, true));
    }

    pub(crate) fn set_online(&mut self, cpu: usize, online: bool) {
        let count = self.cpus.iter().filter(|cpu| cpu.online).count();
        if self.cpus[cpu].online == online || !online && count == 1 {
            return;
        }
        self.cpus[cpu].online = online;
        self.policy.online(cpu, online);
        if !online {
            // After all that, the CPU has nothing to run.
            self.policy.idle(cpu);
        }
        if online {
            self.cpus[cpu].idle_since = self.now;
            self.kicks.push_back((cpu, false));
            self.settle();
            return;
        }
        for number in 0..self.threads.len() {
            let thread = &self.threads[number];
            if thread.state == State::Ended {
                continue;
            }
            if !thread.affinity.iter().any(|cpu| self.cpus[cpu].online) {
                // The kernel does this too if a task may no longer run anywhere.
                self.set_affinity(number, &self.all());
            }
            match self.threads[number].state {
                State::Runs(on) if on == cpu => self.move_away(number, cpu),
                // A task must be enqueued again if it waits in a queue whose CPUs it may no longer use: no idle CPU there may take it.
                State::Waits { llc, .. } if !self.can_run_under(number, llc) => {
                    self.dequeue(number);
                    let to = self.usable(&self.threads[number].affinity.clone());
                    self.enqueue(number, to, false);
                }
                _ => {}
            }
        }
        self.settle();
    }

    fn can_run_under(&self, number: usize, llc: usize) -> bool {
        let mut cpus = self.threads[number].affinity.iter();
        cpus.any(|cpu| self.cpus[cpu].online && self.policy.llc_of(cpu) == llc)
    }

    // ---- CPUs ---------------------------------------------------------------------------------------------

    /// Carries out the kicks.
    fn settle(&mut self) {
        let mut rounds = 0;
        while let Some((cpu, preempt)) = self.kicks.pop_front() {
            rounds += 1;
            assert!(rounds < 10_000, "CPUs kick each other for ever");
            if self.cpus[cpu].online && (preempt || self.cpus[cpu].current.is_none()) {
                self.schedule(cpu);
            }
        }
    }

    /// Takes a task for a CPU, as the policy says.
    fn take(&mut self, cpu: usize, stays: Option<usize>) -> bool {
        self.policy.begin(cpu);
        while let Some(take) = self.policy.next(cpu, stays.is_some(), self.now) {
            let (policy, threads, now) = (&mut self.policy, &mut self.threads, self.now);
            let queue = self.queues[take.llc].iter().map(|(key, number)| (*key, *number));
            let mut fits = |(_, number): &(_, usize)| {
                policy.fits(&mut threads[*number].task, cpu, take.which, now)
            };
            let found = match take.which {
                TakeWhich::Old => queue.rev().take(CHECKED).find(&mut fits),
                TakeWhich::First => queue.into_iter().find(&mut fits),
                _ => queue.take(CHECKED).find(&mut fits),
            };
            let Some((key, number)) = found else { continue };
            self.check_order(take, cpu, number);
            self.queues[take.llc].remove(&key);
            self.policy.count(cpu, take.event);
            self.next_on(number, cpu);
            return true;
        }
        false
    }

    /// A CPU searches for its next task.
    fn schedule(&mut self, cpu: usize) {
        let previous = self.cpus[cpu].current.take();
        if let Some(number) = previous {
            self.policy.charge(&mut self.threads[number].task, cpu, self.now);
        }
        if self.cpus[cpu].next.is_empty() && !self.take(cpu, previous) && previous.is_none() {
            self.policy.idle(cpu);
            if self.policy.anything(cpu, self.now) && self.take(cpu, None) {
                self.policy.busy(cpu);
            }
        }
        if let Some(number) = previous {
            let task = &mut self.threads[number].task;
            self.policy.stopping(task, cpu, self.now);
            if self.cpus[cpu].next.is_empty() && !self.policy.leaves(task, cpu) {
                self.next_on(number, cpu);
            } else {
                self.threads[number].since = self.now;
                self.enqueue(number, cpu, false);
            }
        }
        if let Some(number) = self.cpus[cpu].next.pop_front() {
            let thread = &mut self.threads[number];
            assert!(Policy::may_run(&thread.task, cpu), "it may run there");
            if previous != Some(number) {
                thread.longest_wait = thread.longest_wait.max(self.now - thread.since);
                thread.since = self.now;
            }
            (thread.state, thread.cpu) = (State::Runs(cpu), cpu);
            let slice = self.policy.running(&mut thread.task, cpu, self.now);
            self.cpus[cpu].slice_end = self.now + slice;
            self.cpus[cpu].current = Some(number);
            self.cpus[cpu].idle = false;
            return;
        }
        if !std::mem::replace(&mut self.cpus[cpu].idle, true) {
            self.cpus[cpu].idle_since = self.now;
        }
        self.policy.idle(cpu);
        if !self.policy.anything(cpu, self.now) {
            return;
        }
        if self.take(cpu, None) {
            self.kicks.push_back((cpu, false));
        } else {
            let on_its_way = self.on_its_way();
            if self.policy.looks_again(cpu, on_its_way) {
                self.again.push(cpu);
            }
        }
    }

    /// A queue that has fewer tasks than are counted, if there is one.
    fn on_its_way(&self) -> Option<usize> {
        let counted = |llc: usize| self.policy.state().on_llc[llc].waiting as usize;
        (0..self.queues.len()).find(|llc| self.queues[*llc].len() < counted(*llc))
    }

    /// Lets half a millisecond pass.
    pub(crate) fn step(&mut self) {
        self.now += STEP;
        for number in 0..self.threads.len() {
            let thread = &mut self.threads[number];
            match thread.state {
                State::Runs(_) if thread.sleeps > 0 => {
                    thread.left = thread.left.saturating_sub(STEP);
                    if thread.left == 0 {
                        self.sleep(number);
                    }
                }
                State::Sleeps if thread.sleeps > 0 && self.now - thread.since >= thread.sleeps => {
                    self.wake(number);
                }
                _ => {}
            }
        }
        for cpu in 0..self.cpus.len() {
            let Some(number) = self.cpus[cpu].current else {
                continue;
            };
            // Each CPU ticks at a different moment, like real CPUs.
            let tick = (self.now / STEP + cpu as u64).is_multiple_of(TICK / STEP);
            let mut over = self.now >= self.cpus[cpu].slice_end;
            if tick {
                let llc = self.policy.llc_of(cpu);
                let first = self.queues[llc].first_key_value().map(|(_, number)| *number);
                let first = first.map(|number| self.threads[number].task.vtime);
                self.policy.advance(llc, first, self.now);
                let told = self.policy.tick(&mut self.threads[number].task, cpu, self.now);
                over |= told.yields;
                if let Some(idle) = told.wakes {
                    self.kicks.push_back((idle, false));
                }
            }
            if over {
                self.kicks.push_back((cpu, true));
            }
            self.settle();
        }
        self.check();
    }

    pub(crate) fn run(&mut self, time: u64) {
        for _ in 0..time / STEP {
            self.step();
        }
    }

    /// Where a task runs.
    pub(crate) fn runs_on(&self, number: usize) -> Option<usize> {
        match self.threads[number].state {
            State::Runs(cpu) => Some(cpu),
            _ => None,
        }
    }

    pub(crate) fn node_of_task(&self, number: usize) -> Option<usize> {
        self.runs_on(number).map(|cpu| self.policy.node_of(cpu))
    }
}

/// A task that is not in any model.
pub(crate) fn task(policy: &mut Policy, allowed: &CpuSet, home: usize) -> Task {
    let mut task = Task::default();
    policy.init_task(&mut task, 100);
    Policy::allow(&mut task, allowed);
    policy.set_home(&mut task, home, HomeReason::Fork);
    assert_eq!((task.queue, task.place), (NONE, NONE));
    task
}

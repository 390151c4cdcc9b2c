//! Which thread is on which CPU: carries out what the scheduler decides, and does the accounting.
//!
//! A thread that works ([`Piece`](crate::thread::Piece)) or spins stays suspended until its piece is done. When its slice ends, when it is
//! interrupted, or when a CPU of its core becomes busy or idle, the piece is accounted up to that moment. It then goes on at the new rate,
//! on this CPU or another, without a switch of coroutines.

use crate::cpu::FULL_RATE;
use crate::events::Timer;
use crate::sched::{Kernel, Reason, Scheduler};
use crate::thread::{State, Thread};
use crate::trace::Kind;
use crate::world::World;

/// Nanoseconds from tick to tick: 250 a second, as most distributions configure the kernel.
pub(crate) const TICK: u64 = 4_000_000;

impl World {
    // ---- asking the scheduler --------------------------------------------------------------------------

    /// Calls a hook of the scheduler, at `now`.
    pub(crate) fn ask<R>(
        &mut self,
        now: u64,
        hook: impl FnOnce(&mut dyn Scheduler, &mut Kernel<'_>) -> R,
    ) -> R {
        let mut kernel = Kernel {
            now,
            hardware: &self.hardware,
            costs: &self.costs,
            threads: &self.threads,
            cpus: &self.cpus,
            idle: &self.idle,
            online: &self.online,
            orders: &mut self.orders,
        };
        hook(&mut *self.scheduler, &mut kernel)
    }

    /// Carries out what the scheduler has ordered.
    pub(crate) fn carry_out_orders(&mut self, now: u64) {
        self.spend_as_ordered(now);
        while !self.orders.kicks.is_empty() {
            for (cpu, preempt) in std::mem::take(&mut self.orders.kicks) {
                if self.idle.contains(cpu) {
                    self.leave_idle(cpu, now);
                } else if preempt && self.cpus.get(cpu).is_some_and(|cpu| cpu.current.is_some()) {
                    self.request(cpu, now);
                }
            }
            self.spend_as_ordered(now);
        }
    }

    fn spend_as_ordered(&mut self, now: u64) {
        while let Some((cpu, nanoseconds)) = self.orders.spent.pop() {
            self.take_from(cpu, now, nanoseconds);
        }
    }

    /// Takes time from a CPU: what it does, it does that much later.
    pub(crate) fn take_from(&mut self, cpu: usize, now: u64, nanoseconds: u64) {
        self.settle(cpu, now);
        let at = &mut self.cpus[cpu];
        if !at.busy {
            at.clock = at.clock.max(now) + nanoseconds;
            return;
        }
        let works = at.current.is_some_and(|slot| self.threads.at(slot).piece.is_some());
        if works {
            at.since += nanoseconds;
            self.plan(cpu);
        } else {
            at.clock += nanoseconds;
            let clock = at.clock;
            // A CPU without a time is the CPU that acts now: it gets its next time when it is done.
            if self.events.has_cpu(cpu) {
                self.events.set_cpu(cpu, clock);
            }
        }
    }

    pub(crate) fn thread(&self, slot: usize) -> Thread {
        Thread { slot, id: self.threads.at(slot).id }
    }

    // ---- threads that need a CPU -----------------------------------------------------------------------

    /// Finds a CPU for a thread that can run. Returns whether another CPU than the caller's was interrupted for it.
    pub(crate) fn make_ready(&mut self, slot: usize, now: u64, reason: Reason) -> bool {
        let thread = self.thread(slot);
        let cpu = self.ask(now, |scheduler, kernel| scheduler.select_cpu(kernel, thread, reason));
        if self.threads.at(slot).state == State::Ready {
            self.end_wait(slot, now);
        }
        let entry = self.threads.at_mut(slot);
        assert!(
            entry.allowed.contains(cpu),
            "the scheduler {} chose CPU {cpu} for thread {}, which may run on {}: select_cpu must return a CPU of Kernel::allowed",
            self.scheduler.name(),
            entry.id,
            entry.allowed
        );
        entry.state = State::Ready;
        entry.waits = (now, cpu);
        entry.wake_cpu = None;
        self.ask(now, |scheduler, kernel| scheduler.enqueue(kernel, thread, cpu, reason));
        let mut interrupted = true;
        if self.idle.contains(cpu) {
            self.leave_idle(cpu, now);
        } else if self.cpus[cpu].current.is_some()
            && self.ask(now, |scheduler, kernel| scheduler.preempts(kernel, thread, cpu))
        {
            self.request(cpu, now);
        } else {
            interrupted = false;
        }
        self.carry_out_orders(now);
        interrupted && cpu != self.cpu
    }

    /// Recomputes where a thread may run, and moves it there. A thread that may run only on CPUs that are offline may run on all CPUs from
    /// then on; a thread whose allowed CPUs are all outside the limits runs on the CPUs that the limits allow.
    pub(crate) fn restrict(&mut self, slot: usize, now: u64) {
        let all = self.hardware.topology().possible();
        let entry = self.threads.at_mut(slot);
        if !entry.affinity.intersects(&self.online) {
            entry.affinity = all.clone();
        }
        let both = entry.affinity.intersection(&self.usable);
        let allowed = if both.is_empty() { self.usable.clone() } else { both };
        if allowed == entry.allowed {
            return;
        }
        entry.allowed = allowed;
        let thread = self.thread(slot);
        self.ask(now, |scheduler, kernel| scheduler.set_cpumask(kernel, thread));
        let entry = self.threads.at(slot);
        match entry.state {
            State::Ready => {
                self.ask(now, |scheduler, kernel| scheduler.dequeue(kernel, thread));
                self.make_ready(slot, now, Reason::Moved);
            }
            State::Running if !entry.allowed.contains(entry.cpu) => self.request(entry.cpu, now),
            _ => {}
        }
        self.carry_out_orders(now);
    }

    /// A newly made thread can run from now on.
    pub(crate) fn begin(&mut self, slot: usize, now: u64) {
        let thread = self.thread(slot);
        self.draw_priority(slot);
        self.ask(now, |scheduler, kernel| scheduler.init_thread(kernel, thread));
        self.restrict(slot, now);
        self.make_ready(slot, now, Reason::New);
    }

    // ---- CPUs that need a thread -----------------------------------------------------------------------

    /// An idle CPU wakes up and searches for a thread.
    pub(crate) fn leave_idle(&mut self, cpu: usize, now: u64) {
        self.idle.remove(cpu);
        self.ask(now, |scheduler, kernel| scheduler.update_idle(kernel, cpu, false));
        let exit = self.idle_exit(cpu, now);
        let at = &mut self.cpus[cpu];
        let start = at.clock.max(now);
        at.clock = start + exit;
        self.set_busy(cpu, true, start);
        self.go_on(cpu);
    }

    /// A CPU without a thread takes the next one, or becomes idle.
    pub(crate) fn go_on(&mut self, cpu: usize) {
        debug_assert!(self.cpus[cpu].current.is_none());
        let now = self.cpus[cpu].clock;
        if !self.online.contains(cpu) {
            self.set_busy(cpu, false, now);
            self.return_budget(cpu);
            return;
        }
        if !self.has_budget(cpu) {
            self.throttle(cpu);
            return;
        }
        let mut next = self.ask(now, |scheduler, kernel| scheduler.dispatch(kernel, cpu));
        if next.is_none() {
            next = self.ask(now, |scheduler, kernel| {
                scheduler.balance(kernel, cpu);
                scheduler.dispatch(kernel, cpu)
            });
            self.spend_as_ordered(now);
        }
        if let Some(thread) = next {
            self.start(cpu, thread.slot);
        } else {
            self.idle.insert(cpu);
            let clock = self.cpus[cpu].clock;
            self.cpus[cpu].idle_since = clock;
            self.set_busy(cpu, false, clock);
            self.return_budget(cpu);
            self.ask(clock, |scheduler, kernel| scheduler.update_idle(kernel, cpu, true));
            self.trace.record(clock, cpu, 0, Kind::Idle, 0);
        }
        self.carry_out_orders(now);
    }

    /// Switches a CPU to a thread.
    fn start(&mut self, cpu: usize, slot: usize) {
        let entry = self.threads.at(slot);
        assert!(
            entry.state == State::Ready && entry.allowed.contains(cpu),
            "the scheduler {} dispatched thread {} to CPU {cpu}: it is {:?} and may run on {}; dispatch must return a \
             thread that waits and is allowed there",
            self.scheduler.name(),
            entry.id,
            entry.state,
            entry.allowed
        );
        let (id, moves) = (entry.id, entry.has_run && entry.cpu != cpu);
        let before = std::mem::replace(&mut self.cpus[cpu].last, id);
        if before != id {
            self.cpus[cpu].clock += self.jittered(self.costs.context_switch);
        }
        if moves {
            self.cpus[cpu].clock += self.jittered(self.costs.migration);
        }
        self.end_wait(slot, self.cpus[cpu].clock);
        let at = &mut self.cpus[cpu];
        let entry = self.threads.at_mut(slot);
        if entry.cpu != cpu {
            entry.wake_cpu = None;
        }
        entry.cpu = cpu;
        entry.has_run = true;
        entry.state = State::Running;
        entry.counted_to = at.clock;
        at.current = Some(slot);
        at.reschedule = false;
        at.since = at.clock;
        let clock = at.clock;
        let thread = Thread { slot, id };
        let slice = self.ask(clock, |scheduler, kernel| scheduler.running(kernel, thread, cpu));
        self.cpus[cpu].slice_end = clock.saturating_add(slice.max(1));
        self.set_leave(cpu);
        self.trace.record(clock, cpu, id, Kind::Run, before);
        self.plan(cpu);
    }

    /// Takes the thread off a CPU, which then has none.
    pub(crate) fn stop(&mut self, cpu: usize, runnable: bool) {
        self.count(cpu);
        debug_assert!(!self.cpus[cpu].preemption_off, "its thread keeps the CPU");
        let slot = self.cpus[cpu].current.take().expect("it has a thread");
        let (thread, now) = (self.thread(slot), self.cpus[cpu].clock);
        self.ask(now, |scheduler, kernel| scheduler.stopping(kernel, thread, cpu, runnable));
        self.release_highest(now);
    }

    /// Takes the CPU away from its thread, which stays ready.
    pub(crate) fn put_back(&mut self, cpu: usize) {
        let slot = self.cpus[cpu].current.expect("it has a thread");
        let (thread, now) = (self.thread(slot), self.cpus[cpu].clock);
        self.trace.record(now, cpu, thread.id, Kind::Preempted, cpu as u64);
        self.stop(cpu, true);
        let entry = self.threads.at_mut(slot);
        entry.state = State::Ready;
        entry.waits = (now, cpu);
        self.ask(now, |scheduler, kernel| {
            scheduler.enqueue(kernel, thread, cpu, Reason::Preempted);
        });
    }

    /// Asks the thread on a CPU to leave it: at `now` if the thread works or spins, otherwise before it does anything that other threads
    /// see.
    pub(crate) fn request(&mut self, cpu: usize, now: u64) {
        self.cpus[cpu].reschedule = true;
        self.settle(cpu, now);
        self.plan_if_it_works(cpu);
        self.release_held(cpu, now);
    }

    /// Called when a CPU's time is reached. Returns the slot of its thread if that thread must go on.
    pub(crate) fn cpu_goes_on(&mut self, cpu: usize, now: u64) -> Option<usize> {
        self.settle(cpu, now);
        self.cpus[cpu].held_since = None;
        if let Some(nanoseconds) = self.cpus[cpu].stall.take() {
            self.stand_still(cpu, nanoseconds);
            return None;
        }
        let at = &self.cpus[cpu];
        if at.must_check(now) && !self.keeps_cpu(cpu, now) {
            return None;
        }
        let slot = self.cpus[cpu].current.expect("only a CPU with a thread has a time");
        if self.threads.at(slot).piece.as_ref().is_some_and(|piece| !piece.over && piece.left > 0) {
            self.plan(cpu);
            return None;
        }
        Some(slot)
    }

    /// Called at the end of a slice or of a share of the quota, or when the thread was asked to leave: returns whether the thread stays. If
    /// not, the CPU runs on when this returns.
    fn keeps_cpu(&mut self, cpu: usize, now: u64) -> bool {
        self.count(cpu);
        let slot = self.cpus[cpu].current.expect("only a CPU with a thread has a time");
        if !self.threads.at(slot).allowed.contains(cpu) {
            self.trace.record(now, cpu, self.threads.at(slot).id, Kind::Preempted, cpu as u64);
            self.stop(cpu, true);
            self.make_ready(slot, now, Reason::Moved);
            self.go_on(cpu);
            return false;
        }
        if !self.has_budget(cpu) {
            self.put_back(cpu);
            self.throttle(cpu);
            return false;
        }
        if !std::mem::take(&mut self.cpus[cpu].reschedule) {
            if now < self.cpus[cpu].slice_end {
                self.set_leave(cpu);
                return true;
            }
            let thread = self.thread(slot);
            let next = self.ask(now, |scheduler, kernel| scheduler.slice_over(kernel, thread, cpu));
            if let Some(slice) = next {
                self.cpus[cpu].slice_end = now.saturating_add(slice.max(1));
                self.set_leave(cpu);
                return true;
            }
        }
        self.put_back(cpu);
        self.go_on(cpu);
        false
    }

    /// The running thread offers its CPU to others.
    pub(crate) fn yield_now(&mut self) {
        self.count(self.cpu);
        let (cpu, now, thread) = (self.cpu, self.now(), self.thread(self.slot));
        if self.ask(now, |scheduler, kernel| scheduler.yield_now(kernel, thread, cpu)) {
            self.cpus[cpu].reschedule = true;
        }
    }

    // ---- books -----------------------------------------------------------------------------------------

    /// Counts the CPU time of a CPU's thread up to the CPU's clock.
    pub(crate) fn count(&mut self, cpu: usize) {
        let at = &mut self.cpus[cpu];
        let Some(slot) = at.current else { return };
        let entry = self.threads.at_mut(slot);
        let ran = at.clock.saturating_sub(entry.counted_to);
        entry.counted_to = entry.counted_to.max(at.clock);
        entry.cpu_time += ran;
        at.ran += ran;
        at.budget = at.budget.saturating_sub(ran);
    }

    /// Records that a thread has waited for a CPU until `now`: the time counts for the CPU that it was enqueued for, whichever CPU it gets.
    fn end_wait(&mut self, slot: usize, now: u64) {
        let entry = self.threads.at_mut(slot);
        let (since, cpu) = entry.waits;
        let waited = now.saturating_sub(since);
        entry.waited += waited;
        self.cpus[cpu].waited += waited;
    }

    /// Recomputes when a CPU's thread must be checked; its CPU time has been counted.
    pub(crate) fn set_leave(&mut self, cpu: usize) {
        let limited = self.quota.is_some();
        let at = &mut self.cpus[cpu];
        let Some(slot) = at.current else { return };
        let budget_end =
            if limited { self.threads.at(slot).counted_to + at.budget } else { u64::MAX };
        at.leave_at = at.slice_end.min(budget_end);
    }

    /// Records how much of its piece the thread on a CPU has done until `now`.
    pub(crate) fn settle(&mut self, cpu: usize, now: u64) {
        let at = &mut self.cpus[cpu];
        let Some(piece) = at.current.and_then(|slot| self.threads.at_mut(slot).piece.as_mut())
        else {
            return;
        };
        // No work is done beyond the time that the CPU was given.
        let until = now.min(at.clock);
        if until > at.since {
            let rate = if piece.scaled { at.rate } else { FULL_RATE };
            piece.left = piece.left.saturating_sub((until - at.since).saturating_mul(rate));
            at.since = until;
        }
    }

    /// Gives a CPU with a thread its time: the moment at which the thread's piece ends or must be checked.
    pub(crate) fn plan(&mut self, cpu: usize) {
        let at = &mut self.cpus[cpu];
        let slot = at.current.expect("only a CPU with a thread has a time");
        if let Some(piece) = &self.threads.at(slot).piece {
            at.clock = if piece.over || at.must_leave() {
                at.since
            } else {
                let rate = if piece.scaled { at.rate } else { FULL_RATE };
                let end = at.since.saturating_add(piece.left.div_ceil(rate));
                end.min(at.check_at().max(at.since))
            };
        }
        self.events.set_cpu(cpu, self.cpus[cpu].clock);
    }

    fn plan_if_it_works(&mut self, cpu: usize) {
        let works =
            self.cpus[cpu].current.is_some_and(|slot| self.threads.at(slot).piece.is_some());
        if works {
            self.plan(cpu);
        }
    }

    /// The piece of a thread ends early: the word that it watches has changed.
    pub(crate) fn end_piece(&mut self, slot: usize, now: u64) {
        let entry = self.threads.at(slot);
        let (cpu, runs) = (entry.cpu, entry.state == State::Running);
        if runs {
            self.settle(cpu, now);
        }
        if let Some(piece) = &mut self.threads.at_mut(slot).piece {
            piece.over = true;
            if runs {
                self.plan(cpu);
            }
        }
    }

    /// A CPU becomes busy or idle at `now`: the other CPUs of its core become slower or faster.
    pub(crate) fn set_busy(&mut self, cpu: usize, busy: bool, now: u64) {
        if self.cpus[cpu].busy == busy {
            return;
        }
        self.cpus[cpu].busy = busy;
        if busy {
            self.busy += 1;
            if !self.events.is_set(Timer::Tick) {
                self.events.set_timer(Timer::Tick, (now / TICK + 1) * TICK);
            }
        } else {
            self.busy -= 1;
        }
        for at in 0..self.hardware.siblings(cpu).len() {
            let sibling = self.hardware.siblings(cpu)[at] as usize;
            let rate = self.rate(sibling);
            if rate != self.cpus[sibling].rate {
                self.settle(sibling, now);
                self.cpus[sibling].rate = rate;
                self.plan_if_it_works(sibling);
            }
        }
    }

    /// Units of work that a CPU currently does in a nanosecond.
    fn rate(&self, cpu: usize) -> u64 {
        let shared =
            self.hardware.siblings(cpu).iter().any(|other| self.cpus[*other as usize].busy);
        let percent = if shared { self.costs.smt_percent.clamp(1, 100) } else { 100 };
        self.hardware.capacity(cpu) * percent
    }

    /// The scheduler's tick.
    pub(crate) fn tick(&mut self, now: u64) {
        if self.busy == 0 {
            return;
        }
        self.events.set_timer(Timer::Tick, now + TICK);
        self.work_of_tick(now);
        self.ask(now, |scheduler, kernel| scheduler.tick(kernel));
        self.carry_out_orders(now);
    }
}

//! The default scheduler, modelled on Linux's fair class: [`Fair`] says what was modelled.
//!
//! [`queue`] has the threads of one CPU, [`placement`] finds CPUs for threads, and [`balance`] evens out the CPUs' queues; this file has
//! the hooks that the engine calls.

mod balance;
mod placement;
mod queue;

use self::balance::CpuBalance;
use self::queue::{Entity, Queue};
use super::{Kernel, Reason, Scheduler};
use crate::thread::Thread;

/// The least time that a thread stays on a CPU that it gets, in nanoseconds.
const SHORTEST_RUN: u64 = 50_000;

/// The default scheduler: fair by weight, with the placement and the balancing of Linux's fair class.
///
/// It is modelled on what the kernel's documentation says (`sched-eevdf`, `sched-design-CFS`, `sched-nice-design`,
/// `sched-domains`) and on the default values of its tunables; it copies no code and no text.
/// - **On one CPU**, virtual time is CPU time divided by weight. Of the threads that are owed CPU time, the one with the earliest virtual
///   deadline goes next. A deadline is one slice away: [`Costs::slice`](crate::Costs::slice), or the slice that the thread asks for. A
///   thread that sleeps keeps the time that it is owed, up to two slices or a tick, whichever is more. If it has had too much time, it pays
///   the excess off while it sleeps and other threads run. A new thread starts in the middle of a slice. A thread that yields gives up the
///   rest of its slice.
/// - **A woken thread** goes to its previous CPU if that is idle; otherwise to an idle CPU under the same last-level cache, preferably of
///   an idle core; otherwise to an idle CPU of the node, with the same preference; otherwise it waits at its previous CPU, however idle the
///   rest of the machine may be. There it interrupts the running thread if it is owed time and has the earlier deadline.
///   ([`waking_within_cache`](Self::waking_within_cache) leaves the node out.)
/// - **The idle class** has a weight of 3. Its threads interrupt no other thread, and any other thread interrupts them at once. For a woken
///   thread of another class, a CPU that has only such threads counts as idle, but CPUs that really are idle come first.
/// - **A new thread**, and a thread that replaces its program, goes to the node with the fewest runnable threads per CPU, then by the same
///   rule to a last-level cache, a core and a CPU in it.
/// - **A CPU that runs out of threads** takes a thread that waits elsewhere: in its last-level cache, then its node, then the machine. The
///   search costs a transfer of a line for each CPU of the domain, and the CPU does not search a domain if that takes longer than it is
///   idle on average.
/// - **At ticks**, every 4 ms, a CPU evens out a domain at an interval of as many milliseconds as the domain has CPUs, idle CPUs included
///   while a thread waits anywhere; a busy CPU does so 16 times more rarely. It takes waiting threads if it has spare capacity and their
///   group has none, or if the load of their group exceeds its own by more than 17 % within a last-level cache and 25 % beyond. A thread
///   that ran within the last 0.5 ms stays, unless earlier tries have failed.
///
/// So, as on a real machine, a CPU may be idle for some milliseconds while a thread that could run on it waits.
///
/// The kernel has these features, which this scheduler lacks: averages of load over time, drawing a woken thread to its waker, moving a
/// thread that is on a CPU, preferring fast cores, groups with weights, real-time and deadline classes, NUMA balancing. A slice ends to the
/// nanosecond, as with `HRTICK`. Ticks cost nothing except for balancing.
#[derive(Debug, Default)]
pub struct Fair {
    /// By slot.
    entities: Vec<Entity>,
    /// By CPU.
    queues: Vec<Queue>,
    balances: Vec<CpuBalance>,
    /// How many CPUs have threads waiting for them.
    crowded: usize,
    /// Whether a woken thread searches for an idle CPU only under its last-level cache.
    wakes_within_cache: bool,
    /// Whether there has been a thread of the idle class so far.
    knows_idle_class: bool,
}

impl Fair {
    /// A scheduler for a machine with any number of CPUs.
    pub fn new() -> Self {
        Fair::default()
    }

    /// Makes a woken thread search for an idle CPU only under its last-level cache, and not in the rest of its node. Linux does the same
    /// (`select_idle_sibling`), but has other means besides, which this scheduler lacks. On a machine with several caches per node, this
    /// decides how soon threads leave a crowded cache.
    #[must_use]
    pub fn waking_within_cache(mut self, within: bool) -> Self {
        self.wakes_within_cache = within;
        self
    }

    /// How many threads wait for a CPU.
    pub(super) fn waiting(&self, cpu: usize) -> usize {
        self.queues.get(cpu).map_or(0, |queue| queue.waiting.len())
    }

    /// The threads that wait for a CPU, the earliest deadline first.
    pub(super) fn waiting_threads(
        &self,
        kernel: &Kernel<'_>,
        cpu: usize,
    ) -> impl Iterator<Item = Thread> {
        self.queues[cpu].waiting.values().map(|slot| kernel.thread_in(*slot))
    }

    /// Takes a thread out of its queue, to run it.
    pub(super) fn take(&mut self, thread: Thread) {
        self.remove(thread.slot);
    }

    /// Makes space for the CPU.
    fn know(&mut self, cpu: usize) {
        if self.queues.len() <= cpu {
            self.queues.resize_with(cpu + 1, Queue::default);
            self.balances.resize_with(cpu + 1, CpuBalance::default);
        }
    }

    /// Counts the time of the thread on a CPU up to now.
    fn count(&mut self, kernel: &Kernel<'_>, cpu: usize) {
        self.queues[cpu].count(&mut self.entities, kernel.now());
    }

    /// Adds a thread that waits to a CPU's queue.
    fn add(&mut self, slot: usize, cpu: usize) {
        let queue = &mut self.queues[cpu];
        self.crowded += usize::from(queue.no_thread_waits());
        queue.add(slot, &mut self.entities[slot]);
        self.entities[slot].cpu = cpu;
    }

    /// Takes a thread that waits out of its queue.
    fn remove(&mut self, slot: usize) {
        let queue = &mut self.queues[self.entities[slot].cpu];
        queue.remove(&mut self.entities, slot);
        self.crowded -= usize::from(queue.no_thread_waits());
    }

    /// Puts a thread that comes from elsewhere on the scale of a CPU's queue.
    fn arrive(&mut self, slot: usize, cpu: usize) {
        let mut lag = self.entities[slot].lag;
        let left_at = self.entities[slot].left_at.take();
        if lag < 0 {
            // The thread has paid off as much as the virtual time of the queue that it left has advanced since.
            let home = &self.queues[self.entities[slot].cpu];
            let paid = left_at.map_or(i64::MAX, |then| {
                home.virtual_time(&self.entities).saturating_sub(then) as i64
            });
            lag = lag.saturating_add(paid).min(0);
        }
        let now = self.queues[cpu].virtual_time(&self.entities);
        let load = self.queues[cpu].load(&self.entities);
        let entity = &mut self.entities[slot];
        let most = entity.as_virtual((2 * entity.slice).max(crate::running::TICK)) as i64;
        lag = lag.clamp(-most, most);
        if load > 0 {
            // The thread's arrival moves the queue's virtual time; adding this much keeps its lag the same afterwards.
            let moved = i128::from(lag) * i128::from(load + entity.weight) / i128::from(load);
            lag = i64::try_from(moved).unwrap_or(lag);
        }
        entity.virtual_time = now.saturating_add_signed(-lag);
        entity.set_deadline();
    }

    /// Notes how far a thread is behind its queue, which it leaves.
    fn depart(&mut self, slot: usize) {
        let queue = &self.queues[self.entities[slot].cpu];
        let now = queue.virtual_time(&self.entities);
        let entity = &mut self.entities[slot];
        entity.lag = now.cast_signed() - entity.virtual_time.cast_signed();
        entity.left_at = None;
    }
}

impl Scheduler for Fair {
    fn name(&self) -> &'static str {
        "fair"
    }

    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, thread: Thread, reason: Reason) -> usize {
        match reason {
            Reason::New | Reason::Exec => self.idlest(kernel, thread),
            _ => self.wake_cpu(kernel, thread),
        }
    }

    fn enqueue(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, reason: Reason) {
        self.know(cpu);
        self.count(kernel, cpu);
        if reason != Reason::Preempted {
            self.arrive(thread.slot, cpu);
            if reason == Reason::New {
                let entity = &mut self.entities[thread.slot];
                entity.deadline = entity.virtual_time + entity.as_virtual(entity.slice / 2);
            }
        }
        self.add(thread.slot, cpu);
    }

    fn dequeue(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        let cpu = self.entities[thread.slot].cpu;
        self.count(kernel, cpu);
        self.depart(thread.slot);
        self.remove(thread.slot);
    }

    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: usize) -> Option<Thread> {
        self.know(cpu);
        let slot = self.queues[cpu].first(&self.entities)?;
        self.remove(slot);
        Some(kernel.thread_in(slot))
    }

    fn preempts(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        self.count(kernel, cpu);
        let queue = &self.queues[cpu];
        let Some(current) = queue.current else { return false };
        let (new, old) = (&self.entities[thread.slot], &self.entities[current]);
        if new.is_idle_class() || old.is_idle_class() {
            return !new.is_idle_class();
        }
        new.virtual_time <= queue.virtual_time(&self.entities) && new.deadline < old.deadline
    }

    fn running(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> u64 {
        let queue = &mut self.queues[cpu];
        queue.current = Some(thread.slot);
        queue.counted_to = kernel.now();
        let entity = &mut self.entities[thread.slot];
        if entity.until_deadline() == 0 {
            entity.set_deadline();
        }
        entity.until_deadline().max(SHORTEST_RUN)
    }

    fn stopping(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, runnable: bool) {
        self.count(kernel, cpu);
        let slot = thread.slot;
        self.depart(slot);
        let alone = self.queues[cpu].no_thread_waits();
        self.queues[cpu].clear_current(&self.entities);
        let entity = &mut self.entities[slot];
        if entity.until_deadline() == 0 {
            entity.set_deadline();
        }
        entity.ran_at = Some(kernel.now());
        if !runnable && !alone {
            let left_at = self.queues[cpu].virtual_time(&self.entities);
            self.entities[slot].left_at = Some(left_at);
        }
    }

    fn slice_over(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> Option<u64> {
        self.count(kernel, cpu);
        let entity = &mut self.entities[thread.slot];
        if entity.until_deadline() == 0 {
            entity.set_deadline();
        }
        let left = entity.until_deadline().max(SHORTEST_RUN);
        self.queues[cpu].no_thread_waits().then_some(left)
    }

    fn yield_now(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        self.count(kernel, cpu);
        if self.queues[cpu].no_thread_waits() {
            return false;
        }
        // The thread gives up the rest of its slice.
        let entity = &mut self.entities[thread.slot];
        entity.virtual_time = entity.virtual_time.max(entity.deadline);
        entity.set_deadline();
        true
    }

    fn tick(&mut self, kernel: &mut Kernel<'_>) {
        self.balance_at_tick(kernel);
    }

    fn balance(&mut self, kernel: &mut Kernel<'_>, cpu: usize) {
        self.balance_new_idle(kernel, cpu);
    }

    fn update_idle(&mut self, kernel: &mut Kernel<'_>, cpu: usize, idle: bool) {
        self.know(cpu);
        self.balances[cpu].note_idle(kernel.now(), idle);
    }

    fn set_weight(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        let slot = thread.slot;
        let (weight, slice) = (kernel.weight(thread), kernel.slice(thread));
        let waits = self.entities[slot].key.is_some();
        let cpu = self.entities[slot].cpu;
        self.know(cpu);
        self.count(kernel, cpu);
        if waits {
            self.depart(slot);
            self.remove(slot);
        }
        let entity = &mut self.entities[slot];
        // The thread is owed CPU time; for a heavier thread the same CPU time is less virtual time.
        entity.lag =
            (i128::from(entity.lag) * i128::from(entity.weight) / i128::from(weight)) as i64;
        (entity.weight, entity.slice) = (weight, slice);
        self.knows_idle_class |= entity.is_idle_class();
        entity.set_deadline();
        if waits {
            self.arrive(slot, cpu);
            self.add(slot, cpu);
        }
    }

    fn init_thread(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        if self.entities.len() <= thread.slot {
            self.entities.resize_with(thread.slot + 1, Entity::default);
        }
        let cpu = kernel.previous_cpu(thread);
        self.know(cpu);
        self.entities[thread.slot] = Entity {
            weight: kernel.weight(thread),
            slice: kernel.slice(thread),
            cpu,
            ..Entity::default()
        };
        self.knows_idle_class |= self.entities[thread.slot].is_idle_class();
    }
}

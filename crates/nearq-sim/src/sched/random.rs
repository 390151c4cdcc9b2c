//! [`Fair`] that chooses at random where it has a choice: for finding interleavings.

use super::{Fair, Kernel, Reason, Scheduler};
use crate::rng::Rng;
use crate::thread::Thread;

/// One in so many threads that need a CPU gets any that it may use.
const ANYWHERE: u64 = 4;

/// Places one thread in four anywhere, and takes any thread of a queue next; balances as [`Fair`] does.
#[derive(Debug)]
pub(crate) struct Shuffled {
    fair: Fair,
    rng: Rng,
}

impl Shuffled {
    pub(crate) fn new(seed: u64) -> Self {
        Shuffled { fair: Fair::new(), rng: Rng::new(seed) }
    }
}

impl Scheduler for Shuffled {
    fn name(&self) -> &'static str {
        "random"
    }

    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, thread: Thread, reason: Reason) -> usize {
        if self.rng.one_in(ANYWHERE) {
            let allowed = kernel.allowed(thread);
            let place = self.rng.below(allowed.len() as u64) as usize;
            return allowed.iter().nth(place).expect("a thread may run somewhere");
        }
        self.fair.select_cpu(kernel, thread, reason)
    }

    fn enqueue(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, reason: Reason) {
        self.fair.enqueue(kernel, thread, cpu, reason);
    }

    fn dequeue(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        self.fair.dequeue(kernel, thread);
    }

    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: usize) -> Option<Thread> {
        let waiting = self.fair.waiting(cpu);
        if waiting == 0 {
            return None;
        }
        let place = self.rng.below(waiting as u64) as usize;
        let thread = self.fair.waiting_threads(kernel, cpu).nth(place)?;
        self.fair.take(thread);
        Some(thread)
    }

    fn preempts(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        self.fair.preempts(kernel, thread, cpu)
    }

    fn running(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> u64 {
        self.fair.running(kernel, thread, cpu)
    }

    fn stopping(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, runnable: bool) {
        self.fair.stopping(kernel, thread, cpu, runnable);
    }

    fn slice_over(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> Option<u64> {
        self.fair.slice_over(kernel, thread, cpu)
    }

    fn yield_now(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        self.fair.yield_now(kernel, thread, cpu)
    }

    fn tick(&mut self, kernel: &mut Kernel<'_>) {
        self.fair.tick(kernel);
    }

    fn balance(&mut self, kernel: &mut Kernel<'_>, cpu: usize) {
        self.fair.balance(kernel, cpu);
    }

    fn update_idle(&mut self, kernel: &mut Kernel<'_>, cpu: usize, idle: bool) {
        self.fair.update_idle(kernel, cpu, idle);
    }

    fn set_weight(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        self.fair.set_weight(kernel, thread);
    }

    fn init_thread(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        self.fair.init_thread(kernel, thread);
    }
}

//! [`Fair`] with another order of its queues: for finding interleavings.

use super::{Fair, Kernel, Reason, Scheduler};
use crate::rng::Rng;
use crate::thread::Thread;

/// At random: one in this many threads that need a CPU gets any CPU that it may use.
const ANYWHERE: u64 = 4;

/// Which of the threads that wait for a CPU goes next.
#[derive(Debug)]
enum Order {
    /// Any of them.
    Random(Rng),
    /// The thread with the highest priority; the fair choice after a slice or a yield, so that no thread starves.
    Priority { fairly: bool },
}

/// Chooses from a queue by an order other than fairness; mostly places and balances as [`Fair`] does.
#[derive(Debug)]
pub(crate) struct Disordered {
    fair: Fair,
    order: Order,
}

impl Disordered {
    /// Takes any thread next, and places one thread in four on any CPU.
    pub(crate) fn at_random(seed: u64) -> Self {
        Disordered { fair: Fair::new(), order: Order::Random(Rng::new(seed)) }
    }

    /// Takes the thread with the highest priority next, and lets it interrupt threads with lower ones.
    pub(crate) fn by_priority() -> Self {
        Disordered { fair: Fair::new(), order: Order::Priority { fairly: false } }
    }
}

impl Disordered {
    /// The next thread is the fair choice if a thread has just left the CPU.
    fn be_fair_once(&mut self, made_room: bool) {
        if let Order::Priority { fairly } = &mut self.order {
            *fairly |= made_room;
        }
    }
}

impl Scheduler for Disordered {
    fn name(&self) -> &'static str {
        match self.order {
            Order::Random(_) => "random",
            Order::Priority { .. } => "priority",
        }
    }

    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, thread: Thread, reason: Reason) -> usize {
        if let Order::Random(rng) = &mut self.order
            && rng.one_in(ANYWHERE)
        {
            let allowed = kernel.allowed(thread);
            let place = rng.below(allowed.len() as u64) as usize;
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
        let thread = match &mut self.order {
            Order::Random(rng) => {
                let place = rng.below(waiting as u64) as usize;
                self.fair.waiting_threads(kernel, cpu).nth(place)?
            }
            Order::Priority { fairly } => {
                if std::mem::take(fairly) {
                    return self.fair.dispatch(kernel, cpu);
                }
                let waiting = self.fair.waiting_threads(kernel, cpu);
                waiting.max_by_key(|thread| kernel.priority(*thread))?
            }
        };
        self.fair.take(thread);
        Some(thread)
    }

    fn preempts(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        if let Order::Random(_) = self.order {
            return self.fair.preempts(kernel, thread, cpu);
        }
        let current = kernel.current(cpu);
        current.is_some_and(|current| kernel.priority(current) < kernel.priority(thread))
    }

    fn running(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> u64 {
        self.fair.running(kernel, thread, cpu)
    }

    fn stopping(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, runnable: bool) {
        self.fair.stopping(kernel, thread, cpu, runnable);
    }

    fn slice_over(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> Option<u64> {
        let next = self.fair.slice_over(kernel, thread, cpu);
        self.be_fair_once(next.is_none());
        next
    }

    fn yield_now(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        let gives_way = self.fair.yield_now(kernel, thread, cpu);
        self.be_fair_once(gives_way);
        gives_way
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

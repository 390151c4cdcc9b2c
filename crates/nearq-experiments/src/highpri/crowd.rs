//! The load of the document: thousands of ordinary threads on one CPU, each of which sleeps a millisecond, again and again.
//!
//! Each sleep ends by a timer, a wake-up and a switch, some microseconds together: some hundred such threads are enough to
//! saturate the CPU.
//!
//! Threads begin and end while the CPU is idle: on a saturated one each start and each end would take as long as a turn of all
//! of them, and they take the lock of the process's memory, for which the others would line up. So they wait at a gate until all
//! are there, and after their last sleep until they are let go, some at a time.

use super::limits;
use crate::Error;
use crate::harness::Host;
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering, ThreadSpec};
use nearq_topology::CpuSet;
use std::sync::Arc;
use std::time::Duration;

/// What a simulated thread of the crowd does between two sleeps, beside what the simulated kernel takes for the timer, the
/// wake-up and the switch: a stated round input, not a measurement. On Linux it does nothing, in some 10 ns.
pub(crate) const CROWD_WORK: Duration = Duration::from_micros(1);

/// How long each of them sleeps.
pub(crate) const SLEEP: Duration = Duration::from_millis(1);
/// They need little: room for a call and for what the platform does at a thread's start.
const STACK: usize = 64 << 10;
/// How often it is looked whether all are at the gate.
const LOOK: Duration = Duration::from_millis(2);
/// So many are let go at once.
const TOGETHER: usize = 16;

/// Not all are there yet.
const CLOSED: u32 = 0;
/// They sleep in their loops.
const OPEN: u32 = 1;
/// They are to come back to the gate.
const BACK: u32 = 2;
/// They are let go as they are woken.
const OVER: u32 = 3;

struct Shared<P: Host> {
    gate: P::AtomicU32,
    /// Threads at the gate.
    there: P::AtomicU32,
    sleeps: P::AtomicU64,
}

/// The threads. Dropped, they end, and the drop waits for that.
pub(crate) struct Crowd<P: Host> {
    shared: Arc<Shared<P>>,
    threads: Vec<P::JoinHandle>,
}

impl<P: Host> Crowd<P> {
    /// Starts so many on that CPU. An error says how many could be started, and which limit was reached; they have ended then.
    pub(crate) fn start(threads: usize, cpu: usize) -> Result<Self, Error> {
        let shared = Shared::<P> {
            gate: P::AtomicU32::new(CLOSED),
            there: P::AtomicU32::new(0),
            sleeps: P::AtomicU64::new(0),
        };
        let mut crowd = Self { shared: Arc::new(shared), threads: Vec::new() };
        for number in 0..threads {
            let shared = Arc::clone(&crowd.shared);
            let spec = ThreadSpec {
                name: format!("crowd/{number}"),
                stack_size: Some(STACK),
                affinity: Some(CpuSet::single(cpu)),
                ..ThreadSpec::default()
            };
            match P::spawn(spec, move || shared.live()) {
                Ok(thread) => crowd.threads.push(thread),
                Err(refused) => {
                    // Before they end: what is reached is what they are part of.
                    let reached = limits::reached();
                    drop(crowd);
                    let reached =
                        if reached.is_empty() { refused.to_string() } else { reached.join(", ") };
                    return Err(Error::run(format!(
                        "--threads {threads}: {number} could be started, no more: {reached}; give {number} at most, \
                         or raise the limit"
                    )));
                }
            }
        }
        crowd.shared.await_all(threads);
        crowd.shared.open(OPEN, usize::MAX);
        Ok(crowd)
    }

    /// How often one of them has slept and woken so far, all together.
    pub(crate) fn sleeps(&self) -> u64 {
        self.shared.sleeps.load(Ordering::Relaxed)
    }
}

impl<P: Host> Shared<P> {
    /// The life of one of them.
    fn live(&self) {
        self.wait(CLOSED);
        self.sleep_again_and_again();
        self.wait(BACK);
    }

    /// Waits at the gate as long as that is so.
    fn wait(&self, gate: u32) {
        self.there.fetch_add(1, Ordering::Relaxed);
        // Relaxed here and below: nothing hangs on it but when they go on.
        while self.gate.load(Ordering::Relaxed) == gate {
            P::wait(&self.gate, gate, None);
        }
        self.there.fetch_sub(1, Ordering::Relaxed);
    }

    fn sleep_again_and_again(&self) {
        /// Sleeps that are counted at once: the counter is not what the threads are there for.
        const COUNTED: u64 = 16;
        let mut sleeps = 0;
        while self.gate.load(Ordering::Relaxed) == OPEN {
            P::sleep(SLEEP);
            P::crowd_work();
            sleeps += 1;
            if sleeps % COUNTED == 0 {
                self.sleeps.fetch_add(COUNTED, Ordering::Relaxed);
            }
        }
    }

    fn open(&self, gate: u32, count: usize) {
        self.gate.store(gate, Ordering::Relaxed);
        P::wake(&raw const self.gate, count);
    }

    /// Waits until all of them are at the gate.
    fn await_all(&self, threads: usize) {
        while (self.there.load(Ordering::Relaxed) as usize) < threads {
            P::sleep(LOOK);
        }
    }
}

impl<P: Host> Drop for Crowd<P> {
    fn drop(&mut self) {
        // Those that never began, since not all could be started, are at the gate as well.
        if self.shared.gate.load(Ordering::Relaxed) == OPEN {
            self.shared.gate.store(BACK, Ordering::Relaxed);
        }
        self.shared.await_all(self.threads.len());
        self.shared.gate.store(OVER, Ordering::Relaxed);
        let mut left = self.threads.len();
        while left > 0 {
            let before = left;
            self.shared.open(OVER, TOGETHER);
            left = left.saturating_sub(TOGETHER);
            // Until these are gone, so that they do not meet the next ones.
            while self.shared.there.load(Ordering::Relaxed) as usize > left && before > left {
                P::sleep(Duration::from_micros(100));
            }
        }
        self.threads.drain(..).for_each(P::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::{Linux, Platform as _};
    use nearq_sim::{Sim, Simulation};
    use nearq_topology::Topology;

    #[test]
    fn all_of_them_sleep_until_they_are_dropped() {
        let cpu = Linux::current_cpu();
        let crowd = Crowd::<Linux>::start(40, cpu).unwrap();
        Linux::sleep(Duration::from_millis(200));
        // At most one a millisecond each; a busy machine may give them a tenth of that.
        let sleeps = crowd.sleeps();
        assert!((40..=40 * 250).contains(&sleeps), "{sleeps}");
    }

    #[test]
    fn a_simulated_crowd_saturates_its_cpu_and_no_other() {
        let machine = Topology::from_synthetic("core:2").unwrap();
        let ended = Simulation::new(machine, 1).run(|| {
            let crowd = Crowd::<Sim>::start(1000, 1).unwrap();
            let before = (crowd.sleeps(), Sim::now());
            Sim::sleep(Duration::from_millis(100));
            let each = (Sim::now() - before.1).as_nanos() as u64 / (crowd.sleeps() - before.0);
            assert!((1_000..10_000).contains(&each), "{each} ns a sleep: it cannot be busier");
        });
        ended.expect();
    }
}

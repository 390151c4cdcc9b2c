//! One run of one lock: threads that read and write two numbers under it, and what they got.
//!
//! A reader checks that both numbers are equal, works, and checks again; a writer changes one, works, and changes the other. So a reader that
//! is inside beside a writer is found, and so are two writers, by the numbers at the end.

use super::contestant::Shared;
use crate::Error;
use crate::harness::Host;
use crate::lock::load::{Phase, Together, together};
use crate::lock::{Line, Waits, bump};
use nearq_platform::{Atomic as _, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// One run of one lock.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) threads: usize,
    /// How many of a hundred uses are writes.
    pub(super) writes: usize,
    /// The CPUs that threads are pinned to, in this order, round and round.
    pub(super) cpus: Vec<usize>,
    /// Rounds of computing under the lock, and between two uses of it.
    pub(super) inside: u64,
    pub(super) outside: u64,
    pub(super) duration: Duration,
    /// Which order the threads start in.
    pub(super) seed: u64,
}

/// How often threads had the lock so, and how long they waited.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// Uses within the run.
    pub(super) counted: u64,
    /// All uses.
    entered: u64,
    pub(super) waits: Waits,
}

impl Class {
    fn new<P: Host>() -> Self {
        Self { counted: 0, entered: 0, waits: Waits::new::<P>() }
    }

    fn add(&mut self, other: &Self) {
        self.counted += other.counted;
        self.entered += other.entered;
        self.waits.add(&other.waits);
    }
}

/// What one thread got, or all of them.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) reads: Class,
    pub(super) writes: Class,
    /// How many readers found two different numbers.
    torn: u64,
    pub(super) elapsed: Duration,
}

impl Sample {
    fn new<P: Host>() -> Self {
        let class = Class::new::<P>;
        Self { reads: class(), writes: class(), torn: 0, elapsed: Duration::ZERO }
    }

    /// Uses of all threads in a second.
    pub(super) fn per_second(&self) -> f64 {
        (self.reads.counted + self.writes.counted) as f64 / self.elapsed.as_secs_f64()
    }
}

/// The lock, and what it protects.
struct Protected<P: Host, L> {
    lock: Line<L>,
    numbers: [Line<P::AtomicU64>; 2],
}

impl<P: Host, L: Shared> Protected<P, L> {
    /// Whether both numbers are equal. Relaxed, here and below: under the lock that is measured.
    fn is_whole(&self) -> bool {
        let [one, other] = &self.numbers;
        one.0.load(Ordering::Relaxed) == other.0.load(Ordering::Relaxed)
    }

    fn read(&self, thread: usize, inside: u64, acquired: impl FnOnce()) -> bool {
        self.lock.0.read(thread, || {
            acquired();
            let before = self.is_whole();
            compute::<P>(inside);
            before && self.is_whole()
        })
    }

    fn write(&self, inside: u64, acquired: impl FnOnce()) {
        self.lock.0.write(|| {
            acquired();
            bump::<P>(&self.numbers[0].0);
            compute::<P>(inside);
            bump::<P>(&self.numbers[1].0);
        });
    }
}

fn compute<P: Host>(rounds: u64) {
    if rounds > 0 {
        P::compute(rounds);
    }
}

/// Uses the lock until the run is over.
fn work<P: Host, L: Shared>(
    phase: &Phase<P>,
    shared: &Protected<P, L>,
    plan: &Plan,
    thread: usize,
) -> Sample {
    let mut got = Sample::new::<P>();
    // Any sequence will do, if each thread has its own (Park, Miller, 1988).
    let mut random = thread as u64 + 1;
    phase.await_begin();
    loop {
        random = random * 48271 % 0x7fff_ffff;
        let writes = random % 100 < plan.writes as u64;
        let before = P::ticks();
        let mut after = before;
        if writes {
            shared.write(plan.inside, || after = P::ticks());
        } else if !shared.read(thread, plan.inside, || after = P::ticks()) {
            got.torn += 1;
        }
        let class = if writes { &mut got.writes } else { &mut got.reads };
        class.entered += 1;
        class.waits.note::<P>(after.saturating_sub(before));
        compute::<P>(plan.outside);
        if phase.is_over() {
            return got;
        }
        class.counted += 1;
    }
}

/// Runs the plan once with a fresh lock.
pub(super) fn measure<P: Host, L: Shared>(plan: &Plan) -> Result<Sample, Error> {
    let number = || Line(P::AtomicU64::new(0));
    let shared =
        Arc::new(Protected::<P, L> { lock: Line(L::free()), numbers: [number(), number()] });
    let run = Together {
        threads: plan.threads,
        cpus: &plan.cpus,
        duration: plan.duration,
        seed: plan.seed,
        name: "thread",
        option: "--threads",
    };
    let (of_threads, of_plan) = (Arc::clone(&shared), plan.clone());
    let (all, elapsed) = together::<P, Sample>(&run, move |phase, thread| {
        work(phase, &of_threads, &of_plan, thread)
    })?;
    let mut total = Sample::new::<P>();
    for one in &all {
        total.reads.add(&one.reads);
        total.writes.add(&one.writes);
        total.torn += one.torn;
    }
    total.elapsed = elapsed;
    let found = [0, 1].map(|at| shared.numbers[at].0.load(Ordering::Relaxed));
    if total.torn > 0 || found != [total.writes.entered; 2] {
        return Err(Error::run(format!(
            "{} threads, {} % writes: the lock failed to exclude other threads: {} readers found two different numbers, which stand at {found:?} after {} changes of each",
            plan.threads, plan.writes, total.torn, total.writes.entered,
        )));
    }
    Ok(total)
}

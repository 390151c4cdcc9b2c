//! One run: threads pinned to their CPUs start together, take their locks again and again for a fixed time, and end.
//!
//! # Protocol
//! Each thread says that it is there (`there`), and waits until the run begins (`phase` from `WAITING` to `RUNNING`). The main
//! thread sleeps for the run's duration, ends it (`OVER`), and waits for the threads' ends. A thread looks at the phase after
//! each turn: what was over then is counted, one turn of each thread is not. The time is that between the two changes of the
//! phase, as the main thread made them, however late it woke up.
//!
//! The tallies are of the threads, each its own, until they have ended.

use super::load::Plan;
use super::sample::{Sample, Tally, Waits};
use super::{Line, load};
use crate::Error;
use crate::harness::Host;
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering, ThreadSpec};
use nearq_topology::CpuSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What threads do with locks.
pub(super) trait Shape<P: Host>: Send + Sync + 'static {
    /// As it is at the start, for the writers of a plan.
    fn new(plan: &Plan) -> Self;

    /// One turn of a writer, its `turn`-th from 0 on; calls `acquired` once it has all the locks of it.
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce());

    /// Whether all that was done is there, after so many turns of each writer. An error says what is not: two threads were
    /// inside at once.
    fn verify(&self, entered: &[u64]) -> Result<(), String>;
}

const WAITING: u32 = 0;
const RUNNING: u32 = 1;
const OVER: u32 = 2;

struct Shared<P: Host, S> {
    shape: S,
    there: Line<P::AtomicU32>,
    phase: Line<P::AtomicU32>,
    tallies: Vec<Mutex<Option<Tally>>>,
}

impl<P: Host, S: Shape<P>> Shared<P, S> {
    fn work(&self, writer: usize, outside: u64) {
        let mut tally = Tally { entered: 0, counted: 0, waits: Waits::new::<P>() };
        // Relaxed here and below: what threads share they share under the locks that are measured.
        self.there.0.fetch_add(1, Ordering::Relaxed);
        P::wake(&raw const self.there.0, 1);
        while self.phase.0.load(Ordering::Relaxed) == WAITING {
            P::wait(&self.phase.0, WAITING, None);
        }
        loop {
            let before = P::ticks();
            let mut after = before;
            self.shape.step(writer, tally.entered, || after = P::ticks());
            tally.entered += 1;
            tally.waits.note::<P>(after.saturating_sub(before));
            if outside > 0 {
                P::compute(outside);
            }
            if self.phase.0.load(Ordering::Relaxed) == OVER {
                break;
            }
            tally.counted = tally.entered;
        }
        *self.tallies[writer].lock().expect("nobody panics while holding it") = Some(tally);
    }

    /// Waits until so many threads are there.
    fn await_all(&self, threads: u32) {
        loop {
            let there = self.there.0.load(Ordering::Relaxed);
            if there == threads {
                return;
            }
            P::wait(&self.there.0, there, None);
        }
    }

    fn enter(&self, phase: u32) {
        self.phase.0.store(phase, Ordering::Relaxed);
        P::wake(&raw const self.phase.0, usize::MAX);
    }
}

/// Runs the plan once with fresh locks.
pub(super) fn measure<P: Host, S: Shape<P>>(plan: &Plan) -> Result<Sample, Error> {
    let shared = Arc::new(Shared::<P, S> {
        shape: S::new(plan),
        there: Line(P::AtomicU32::new(0)),
        phase: Line(P::AtomicU32::new(WAITING)),
        tallies: (0..plan.writers).map(|_| Mutex::new(None)).collect(),
    });
    let mut threads = Vec::with_capacity(plan.writers);
    for writer in 0..plan.writers {
        let (of_thread, outside) = (Arc::clone(&shared), plan.outside);
        let spec = ThreadSpec {
            name: format!("writer/{writer}"),
            affinity: Some(CpuSet::single(plan.cpus[writer % plan.cpus.len()])),
            ..ThreadSpec::default()
        };
        match P::spawn(spec, move || of_thread.work(writer, outside)) {
            Ok(thread) => threads.push(thread),
            Err(refused) => {
                shared.enter(OVER);
                threads.into_iter().for_each(P::join);
                return Err(Error::input(format!(
                    "--writers {}: {writer} threads could be started, no more: {refused}; give {writer} at most, or raise \
                     the limit",
                    plan.writers
                )));
            }
        }
    }
    shared.await_all(plan.writers as u32);
    let start = P::now();
    shared.enter(RUNNING);
    P::sleep(plan.duration);
    shared.enter(OVER);
    let elapsed: Duration = P::now() - start;
    threads.into_iter().for_each(P::join);

    let tallies: Option<Vec<Tally>> =
        shared.tallies.iter().map(|tally| tally.lock().ok()?.take()).collect();
    let tallies = tallies.ok_or_else(|| Error::run("a writer ended without its tally"))?;
    let entered: Vec<u64> = tallies.iter().map(|tally| tally.entered).collect();
    shared.shape.verify(&entered).map_err(|wrong| {
        let load = load::described(plan.load, plan.writers);
        Error::run(format!("{load}: the lock did not exclude: {wrong}"))
    })?;
    Ok(Sample::of::<P>(&tallies, elapsed))
}

//! One run: issuers on a queue for some seconds, and what went through in that time.

use super::issuer::{Issuer, Shared};
use super::scenario::Scenario;
use crate::Error;
use crate::executor::Executor;
use crate::payload::BLOCK_BYTES;
use crate::store::Store;
use crate::usage::cpu_time;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long the one who watches sleeps between looks, at most.
const TICK: Duration = Duration::from_millis(20);

/// What a run measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Verified data per second of wall time, in MiB/s.
    pub throughput_mib_s: f64,
    /// CPU time of the process in percent of `cpus`.
    pub cpu_percent: f64,
}

/// Runs `scenario` on `executor`: `warm_up` uncounted, then `duration` counted.
pub(super) fn run(
    executor: &dyn Executor,
    store: &dyn Store,
    scenario: &Scenario,
    warm_up: Duration,
    duration: Duration,
    cpus: usize,
    seed: u64,
) -> Result<Measured, Error> {
    let shared = Shared::default();
    let places = store.places() / scenario.issuers as u64;
    let issue = |number: u64, ready: mpsc::Sender<()>| {
        let own = number * places..(number + 1) * places;
        let seed = seed ^ (number << 32);
        // Made by its own thread, so that its memory is near it.
        let issuer = Issuer::new(&shared, executor, store, own, scenario.in_flight, seed);
        drop(ready);
        issuer.inspect_err(|_| shared.stop.store(true, Ordering::Relaxed))?.run()
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let (ready, all_ready) = mpsc::channel();
        for number in 0..scenario.issuers as u64 {
            let (issue, ready) = (&issue, ready.clone());
            let builder = thread::Builder::new().name(format!("issuer/{number}"));
            match builder.spawn_scoped(scope, move || issue(number, ready)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    return Err(Error::run(format!("issuer {number} cannot be started: {error}")));
                }
            }
        }
        drop(ready);
        // Nothing is ever sent: this ends when every issuer has dropped its sender.
        let _ = all_ready.recv();
        wait(warm_up, &shared);
        let start = Reading::take(&shared);
        wait(duration, &shared);
        let end = Reading::take(&shared);
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| Error::run("an issuer panicked"))??;
        }
        Ok(end.since(&start, cpus))
    })
}

fn wait(duration: Duration, shared: &Shared) {
    let end = Instant::now() + duration;
    while !shared.stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(TICK));
    }
}

/// Wall time, CPU time and progress at one moment.
struct Reading {
    at: Instant,
    cpu: Duration,
    blocks: u64,
}

impl Reading {
    fn take(shared: &Shared) -> Self {
        Self {
            at: Instant::now(),
            cpu: cpu_time(),
            blocks: shared.verified.load(Ordering::Relaxed),
        }
    }

    fn since(&self, start: &Self, cpus: usize) -> Measured {
        let wall = (self.at - start.at).as_secs_f64();
        let mib = (self.blocks - start.blocks) as f64 * BLOCK_BYTES as f64 / f64::from(1 << 20);
        let cpu = self.cpu.checked_sub(start.cpu).unwrap().as_secs_f64();
        Measured { throughput_mib_s: mib / wall, cpu_percent: cpu / wall / cpus as f64 * 100.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::Bell;
    use crate::peers::queue_for_tests;
    use crate::store::{Direction, FileStore, Lane, MemoryStore, Transfer};
    use std::ops::Range;

    fn scenario() -> Scenario {
        Scenario { name: "test".into(), meaning: "", issuers: 2, in_flight: 5 }
    }

    fn short(store: &dyn Store) -> Result<Measured, Error> {
        let executor = queue_for_tests(2);
        run(
            &*executor,
            store,
            &scenario(),
            Duration::from_millis(10),
            Duration::from_millis(60),
            2,
            1,
        )
    }

    #[test]
    fn data_goes_round_through_memory() {
        let measured = short(&MemoryStore::new(10)).unwrap();
        assert!(measured.throughput_mib_s > 0.1, "{measured:?}");
        assert!(measured.cpu_percent > 1.0 && measured.cpu_percent < 400.0, "{measured:?}");
    }

    #[test]
    fn data_goes_round_through_a_file() {
        let path = std::env::temp_dir().join(format!("nearq-scopes-run-{}", std::process::id()));
        let store = FileStore::open(&path, 10, 40).unwrap();
        assert!(short(&store).unwrap().throughput_mib_s > 0.01);
    }

    /// A store that flips one bit of the twentieth block that it gives back.
    struct Faulty(MemoryStore);
    struct FaultyLane(Box<dyn Lane>, u32);

    impl Store for Faulty {
        fn places(&self) -> u64 {
            self.0.places()
        }

        fn describe(&self) -> String {
            "faulty".into()
        }

        fn lane(
            &self,
            places: Range<u64>,
            in_flight: usize,
            bell: &Bell,
        ) -> Result<Box<dyn Lane>, Error> {
            Ok(Box::new(FaultyLane(self.0.lane(places, in_flight, bell)?, 0)))
        }
    }

    impl Lane for FaultyLane {
        fn start(&mut self, transfer: Transfer) -> Result<Option<Transfer>, Error> {
            let mut transfer = self.0.start(transfer)?;
            if let Some(transfer) = &mut transfer
                && transfer.direction == Direction::Read
            {
                self.1 += 1;
                if self.1 == 20 {
                    transfer.data[777] ^= 4;
                }
            }
            Ok(transfer)
        }

        fn reap(&mut self, finished: &mut Vec<Transfer>) -> Result<(), Error> {
            self.0.reap(finished)
        }
    }

    #[test]
    fn one_flipped_bit_fails_the_run() {
        let executor = queue_for_tests(2);
        let (warm_up, duration) = (Duration::ZERO, Duration::from_secs(10));
        let started = Instant::now();
        let error =
            run(&*executor, &Faulty(MemoryStore::new(10)), &scenario(), warm_up, duration, 2, 1)
                .unwrap_err();
        assert!(error.to_string().contains("did not verify"), "{error}");
        assert_eq!(error.exit_status(), 1);
        assert!(started.elapsed() < duration, "the run ends when it fails");
    }
}

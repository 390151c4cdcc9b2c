//! One run: issuers on a queue for some seconds, and what went through in that time.

use super::issuer::{Issuer, Shared};
use super::payload::Payload;
use super::scenario::Scenario;
use crate::Error;
use crate::harness::{Census, Role};
use crate::payload::BLOCK_BYTES;
use crate::scopes::{Counts, Executor};
use crate::store::Store;
use nearq_platform::{Atomic as _, AtomicInt as _, Instant, Ordering, Platform as _, ThreadSpec};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the one who watches sleeps between looks, at most.
const TICK: Duration = Duration::from_millis(20);

/// What a run measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Verified data per second of wall time, in MiB/s.
    pub throughput_mib_s: f64,
    /// CPU time of the process in percent of `cpus`.
    pub cpu_percent: f64,
    /// CPU time of an issuer in percent of wall time.
    pub issuer_cpu_percent: f64,
    /// How many of a hundred items workers of other pods ran, and how often for a hundred items a worker was brought
    /// back into its pod; none if the queue does not count.
    pub moved_percent: Option<(f64, f64)>,
}

/// A run that is to be made.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    /// Uncounted, before what counts.
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
    /// The CPUs of which [`Measured::cpu_percent`] is a share.
    pub(super) cpus: usize,
    pub(super) seed: u64,
}

/// What the issuers' threads share with the one who watches them.
struct Crew<L: Payload> {
    shared: Arc<Shared<L::Host>>,
    executor: Arc<dyn Executor>,
    store: Arc<dyn Store<L::Host>>,
    payload: L,
    census: Census<L::Host>,
    /// Issuers that have not begun.
    missing: <L::Host as nearq_platform::Platform>::AtomicU32,
    errors: Mutex<Vec<Error>>,
}

/// Makes a run on `executor`, whose workers enter `census`.
pub(super) fn run<L: Payload>(
    executor: Arc<dyn Executor>,
    store: Arc<dyn Store<L::Host>>,
    payload: L,
    census: Census<L::Host>,
    plan: &Plan,
) -> Result<Measured, Error> {
    let issuers = plan.scenario.issuers as u32;
    let crew = Arc::new(Crew {
        shared: Arc::new(Shared::new()),
        executor,
        store,
        payload,
        census,
        missing: <L::Host as nearq_platform::Platform>::AtomicU32::new(issuers),
        errors: Mutex::default(),
    });
    let mut threads = Vec::new();
    for number in 0..u64::from(issuers) {
        let (own, plan) = (Arc::clone(&crew), plan.clone());
        let spec = ThreadSpec { name: format!("issuer/{number}"), ..ThreadSpec::default() };
        match L::Host::spawn(spec, move || own.issue(number, &plan)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                crew.fail(Error::run(format!("issuer {number} cannot be started: {error}")));
                (number..u64::from(issuers)).for_each(|_| crew.arrive());
                break;
            }
        }
    }
    crew.all_have_begun();
    crew.wait(plan.warm_up);
    let start = crew.reading();
    crew.wait(plan.duration);
    let end = crew.reading();
    crew.shared.stop();
    threads.into_iter().for_each(L::Host::join);
    let error = crew.errors.lock().expect("nobody panics while holding it").drain(..).next();
    error.map_or_else(|| Ok(end.since(&start, plan)), Err)
}

impl<L: Payload> Crew<L> {
    /// The life of an issuer.
    fn issue(&self, number: u64, plan: &Plan) {
        let mut arrival = Arrival { crew: self, begun: false, ended: false };
        self.census.enter(Role::Issuer);
        let (issuers, in_flight) = (plan.scenario.issuers as u64, plan.scenario.in_flight);
        let places = self.store.places() / issuers;
        let own = number * places..(number + 1) * places;
        let blocks = self.payload.blocks(plan.seed ^ (number << 32));
        // Made by its own thread, so that its memory is near it.
        let (shared, executor) = (Arc::clone(&self.shared), &*self.executor);
        let issuer = Issuer::<L>::new(shared, executor, &*self.store, own, in_flight, blocks);
        arrival.begun();
        if let Err(error) = issuer.and_then(Issuer::run) {
            self.fail(error);
        }
        arrival.ended = true;
    }

    /// One more has begun.
    fn arrive(&self) {
        // Release: pairs with the acquire in `all_have_begun`.
        if self.missing.fetch_sub(1, Ordering::Release) == 1 {
            L::Host::wake(&raw const self.missing, 1);
        }
    }

    /// Waits until every issuer has begun, or failed to.
    fn all_have_begun(&self) {
        loop {
            let missing = self.missing.load(Ordering::Acquire);
            if missing == 0 {
                return;
            }
            L::Host::wait(&self.missing, missing, None);
        }
    }

    /// Keeps the error, and ends the run.
    fn fail(&self, error: Error) {
        // Nobody calls the platform while holding the lock.
        self.errors.lock().expect("nobody panics while holding it").push(error);
        self.shared.stop();
    }

    /// Waits for `duration`, or until the run is over.
    fn wait(&self, duration: Duration) {
        let end = L::Host::now() + duration;
        while !self.shared.stopped() {
            let left = end - L::Host::now();
            if left.is_zero() {
                return;
            }
            L::Host::sleep(left.min(TICK));
        }
    }

    fn reading(&self) -> Reading {
        Reading {
            at: L::Host::now(),
            cpu: self.census.cpu_time(),
            issuers_cpu: self.census.issuers_cpu_time(),
            counts: self.executor.counts(),
            blocks: self.shared.verified(),
        }
    }
}

/// An issuer's promise to begin and to end; one that panics keeps it as well.
struct Arrival<'c, L: Payload> {
    crew: &'c Crew<L>,
    begun: bool,
    ended: bool,
}

impl<L: Payload> Arrival<'_, L> {
    fn begun(&mut self) {
        self.begun = true;
        self.crew.arrive();
    }
}

impl<L: Payload> Drop for Arrival<'_, L> {
    fn drop(&mut self) {
        if !self.ended {
            self.crew.fail(Error::run("an issuer panicked"));
        }
        if !self.begun {
            self.crew.arrive();
        }
    }
}

/// Time, CPU time and progress at one moment.
struct Reading {
    at: Instant,
    cpu: Duration,
    issuers_cpu: Duration,
    counts: Option<Counts>,
    blocks: u64,
}

impl Reading {
    fn since(&self, start: &Self, plan: &Plan) -> Measured {
        let wall = (self.at - start.at).as_secs_f64();
        let mib = (self.blocks - start.blocks) as f64 * BLOCK_BYTES as f64 / f64::from(1 << 20);
        let percent = |cpu: Duration, before: Duration, of: usize| {
            cpu.saturating_sub(before).as_secs_f64() / wall / of as f64 * 100.0
        };
        let moved = self.counts.zip(start.counts).map(|(end, start)| {
            let items = (end.completed - start.completed).max(1) as f64;
            let percent = |end: u64, start: u64| (end - start) as f64 / items * 100.0;
            let repatriated = percent(end.repatriated, start.repatriated);
            (percent(end.helped, start.helped), repatriated)
        });
        Measured {
            throughput_mib_s: mib / wall,
            cpu_percent: percent(self.cpu, start.cpu, plan.cpus),
            issuer_cpu_percent: percent(self.issuers_cpu, start.issuers_cpu, plan.scenario.issuers),
            moved_percent: moved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::EventBell;
    use crate::scopes::executor::{Placement, nearq};
    use crate::scopes::payload::Real;
    use crate::store::{Direction, FileStore, Lane, MemoryStore, Transfer};
    use nearq_platform::Linux;
    use std::ops::Range;

    fn short(store: impl Store<Linux> + 'static, duration: Duration) -> Result<Measured, Error> {
        let scenario = Scenario { name: "test".into(), meaning: "", issuers: 2, in_flight: 5 };
        let warm_up = duration / 6;
        let plan = Plan { scenario, warm_up, duration, cpus: 2, seed: 1 };
        let scope = nearq_topology::Scope::System;
        let placement = Placement { scope, strict: false, localize: false, helping: true };
        let census = Census::default();
        let executor = nearq::<Linux>(placement, &census)?.into();
        run(executor, Arc::new(store), Real, census, &plan)
    }

    /// The first run that is long enough for something to come round: on a busy machine a short one may not be.
    fn long_enough<S: Store<Linux> + 'static>(store: impl Fn() -> S) -> Measured {
        let durations = [60, 600, 6_000, 60_000].map(Duration::from_millis);
        let mut each = durations.into_iter().map(|duration| short(store(), duration).unwrap());
        each.find(|measured| measured.throughput_mib_s > 0.0).expect("something comes round")
    }

    #[test]
    fn data_goes_round_through_memory() {
        let measured = long_enough(|| MemoryStore::new(10));
        assert!(measured.cpu_percent > 0.0 && measured.cpu_percent < 400.0, "{measured:?}");
    }

    #[test]
    fn data_goes_round_through_a_file() {
        let path = std::env::temp_dir().join(format!("nearq-scopes-run-{}", std::process::id()));
        long_enough(|| FileStore::open(&path, 10, 40).unwrap());
    }

    /// A store that flips one bit of the twentieth block that it gives back.
    struct Faulty(MemoryStore);
    struct FaultyLane(Box<dyn Lane>, u32);

    impl Store<Linux> for Faulty {
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
            bell: &EventBell,
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
        let duration = Duration::from_secs(10);
        let started = std::time::Instant::now();
        let error = short(Faulty(MemoryStore::new(10)), duration).unwrap_err();
        assert!(error.to_string().contains("did not verify"), "{error}");
        assert_eq!(error.exit_status(), 1);
        assert!(started.elapsed() < duration, "the run ends when it fails");
    }
}

//! Tests of `issuer`: one run.

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
    let scope = nearq_topology::AffinityScope::System;
    let placement = Placement { scope, strict: false, localize: false, helping: true };
    let census = Census::default();
    let executor = nearq::<Linux>(placement, &census)?.into();
    run(executor, Arc::new(store), Real, census, &plan)
}

/// The first run that is long enough for a block to complete: on a busy machine a short one may not be.
fn long_enough<S: Store<Linux> + 'static>(store: impl Fn() -> S) -> Measured {
    let durations = [60, 600, 6_000, 60_000].map(Duration::from_millis);
    let mut each = durations.into_iter().map(|duration| short(store(), duration).unwrap());
    each.find(|measured| measured.throughput_mib_s > 0.0).expect("a run makes progress")
}

#[test]
fn data_makes_a_round_trip_through_memory() {
    let measured = long_enough(|| MemoryStore::new(10));
    assert!(measured.cpu_percent > 0.0 && measured.cpu_percent < 400.0, "{measured:?}");
}

#[test]
fn data_makes_a_round_trip_through_a_file() {
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

//! Tests of `load`: the loads of the `dispatch` experiment, the same code for every contestant.

use super::*;
use crate::peers::{Bounded, Rayon, Tokio};
use nearq_platform::Linux;
use std::time::Instant;

const SHORT: Duration = Duration::from_millis(30);

#[test]
fn a_flood_counts_every_item_once() {
    let gauge = Gauge::<Linux>::leak(2);
    let pool = Bounded::start(2).unwrap();
    let started = Instant::now();
    let sample = flood(&mut Detached { pool: &pool, gauge }, gauge, SHORT).unwrap();
    let items = gauge.completed() as f64;
    let ns = sample.ns_per_item.unwrap();
    assert!(
        ns * items >= SHORT.as_nanos() as f64 && ns * items <= started.elapsed().as_nanos() as f64
    );
    let (queue, start) = (sample.queue.unwrap(), sample.start.unwrap());
    assert!(queue.p50 > 0.0 && queue.p50 <= start.max && start.p50 <= start.p99, "{sample:?}");
}

#[test]
fn the_joined_and_inside_loads_run_every_closure() {
    let gauge = Gauge::<Linux>::leak(2);
    assert!(joined(&Tokio::start(2).unwrap(), gauge, SHORT).ns_per_item.unwrap() > 0.0);
    let joined = gauge.completed();
    assert!(joined >= IN_FLIGHT as u64 && joined.is_multiple_of(QUARTER));
    assert!(inside(Rayon::start(2).unwrap(), gauge, SHORT).unwrap().ns_per_item.unwrap() > 0.0);
    let inside = gauge.completed() - joined;
    assert!(inside >= IN_FLIGHT as u64 && inside.is_multiple_of(IN_FLIGHT as u64));
}

#[test]
fn closures_of_many_threads_all_run_once_uncounted_and_once_counted() {
    let gauge = Gauge::<Linux>::leak(2);
    let sample = many_outside(Rayon::start(2).unwrap(), gauge, 7).unwrap();
    assert!(sample.ns_per_item.unwrap() > 0.0 && sample.cpus_busy.unwrap() > 0.0);
    assert_eq!(gauge.completed() as usize, 2 * 7 * OUTSIDE_THREADS);
    // More than the channel holds: the threads wait for space.
    let many = 2 * IN_FLIGHT / OUTSIDE_THREADS;
    many_outside(Bounded::start(2).unwrap(), gauge, many).unwrap();
    assert_eq!(gauge.completed() as usize, 2 * (7 + many) * OUTSIDE_THREADS);
}

#[test]
fn idle_items_start_after_they_are_queued() {
    let gauge = Gauge::<Linux>::leak(2);
    let pool = Tokio::start(1).unwrap();
    let sample =
        idle(&mut Detached { pool: &pool, gauge }, gauge, 5, Duration::from_millis(2)).unwrap();
    assert_eq!(gauge.completed(), 5 + IDLE_WARM_UP as u64);
    assert!(sample.start.unwrap().p50 > 0.0 && sample.ns_per_item.is_none());
}

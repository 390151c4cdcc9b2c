//! Delayed items that may be late, on simulated machines: when they are queued, and how often that wakes the timer's thread.

use std::sync::Arc;
use std::time::Duration;

use nearq_core::{Runtime, Work};
use nearq_lock::Mutex;
use nearq_platform::{Instant, LockPlatform};
use nearq_sim::{Sim, Simulation};
use nearq_topology::Topology;

use crate::common::ms;

const ITEMS: u64 = 20;
const DELAY: Duration = Duration::from_millis(100);
/// How much later than its deadline an item may begin.
const LATE: Duration = Duration::from_millis(1);

/// Items that queue themselves again and again for a second, begun at different times: for each item when it was queued and when it ran.
fn run(slack: Duration, seed: u64) -> Vec<(Instant, Instant)> {
    let machine = Topology::from_synthetic("core:4").expect("well formed");
    let outcome = Simulation::new(machine, seed).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let queue = runtime.workqueue_builder("periodic").build().expect("valid");
        let runs = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
        let works: Vec<_> = (0..ITEMS)
            .map(|number| {
                let (handle, runs) = (queue.handle(), Arc::clone(&runs));
                Sim::sleep(ms(3 + number % 4));
                let queued = Mutex::<_, Sim>::new_in(Sim::now());
                let work = Work::new_in(move |work: &Work<Sim>| {
                    let now = Sim::now();
                    let before = std::mem::replace(&mut *queued.lock(), now);
                    runs.lock().push((before, now));
                    handle.queue_delayed_within(work, DELAY, slack);
                });
                assert!(queue.queue_delayed_within(&work, DELAY, slack));
                assert!(!queue.queue_delayed_within(&work, DELAY, slack), "it is pending");
                work
            })
            .collect();
        Sim::sleep(ms(1000));
        for work in &works {
            work.disable_sync().expect("not by an item");
        }
        core::mem::take(&mut *runs.lock())
    });
    assert!(outcome.warnings.is_empty() && outcome.panics.is_empty(), "{}", outcome.report());
    outcome.expect()
}

/// How many of the instants are apart from the one before.
fn instants(runs: &[(Instant, Instant)]) -> usize {
    let mut ran: Vec<Instant> = runs.iter().map(|(_, ran)| *ran).collect();
    ran.sort_unstable();
    1 + ran.windows(2).filter(|pair| pair[1] - pair[0] > LATE).count()
}

#[test]
fn items_with_slack_share_instants_and_are_neither_early_nor_too_late() {
    for seed in 0..3 {
        let exact = run(Duration::ZERO, seed);
        let lazy = run(DELAY, seed);
        for (slack, runs) in [(Duration::ZERO, &exact), (DELAY, &lazy)] {
            assert!(runs.len() as u64 >= 5 * ITEMS, "{}", runs.len());
            for (queued, ran) in runs {
                let took = *ran - *queued;
                assert!(took >= DELAY, "early: {took:?}");
                assert!(took <= DELAY + slack + LATE, "late: {took:?}");
            }
        }
        let (exact, lazy) = (instants(&exact), instants(&lazy));
        // A slack of 100 ms: instants that are 2 to the 26th nanoseconds apart, in 1.1 s.
        assert!(lazy <= 17, "seed {seed}: {lazy} instants with slack");
        assert!(exact > 5 * lazy, "seed {seed}: {exact} without slack, {lazy} with it");
    }
}

#[test]
fn an_item_on_the_timer_with_slack_can_be_cancelled_and_its_queue_dropped() {
    let machine = Topology::from_synthetic("core:4").expect("well formed");
    let outcome = Simulation::new(machine, 1).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let queue = runtime.workqueue_builder("periodic").build().expect("valid");
        let work = Work::new_in(|_: &Work<Sim>| panic!("it was cancelled"));
        let handle = queue.handle();
        assert!(handle.queue_delayed_within(&work, ms(5), ms(5)));
        assert!(work.cancel() && !work.is_pending());
        assert!(queue.queue_delayed_within(&work, ms(5), Duration::MAX));
        drop(queue);
        Sim::sleep(ms(20));
        assert!(!work.is_pending(), "its queue is gone");
        assert!(!handle.queue_delayed_within(&work, ms(5), ms(5)), "the queue has ended");
    });
    assert!(outcome.panics.is_empty(), "{}", outcome.report());
}

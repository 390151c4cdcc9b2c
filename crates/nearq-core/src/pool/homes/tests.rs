//! Which worker takes which items, on a simulated machine of two nodes whose pools have no threads.

// Miri cannot run the simulation's coroutines.
#![cfg(not(miri))]

use super::*;
use core::ptr::NonNull;
use nearq_platform::LockPlatform;

use crate::base::ids::QueueKind;
use crate::home::Home;
use crate::item::Name;
use crate::item::tests::pending;
use crate::item::{Executed, ItemVtable, Origin};
use crate::layout::attributes::{Attributes, MachineConfig};
use crate::{Runtime, Workqueue};
use nearq_sim::{Sim, Simulation};
use nearq_topology::Topology;

unsafe fn not_run(_: NonNull<Item<Sim>>) -> Executed {
    unreachable!("it is only moved")
}

unsafe fn free(_: NonNull<Item<Sim>>) {}

static TABLE: ItemVtable<Sim> = ItemVtable {
    is_optional: crate::item::never_optional,
    execute: not_run,
    free,
    parts: None,
    refuse: crate::item::never_refused,
    name: Name::Given("moved"),
};

/// Items with these homes, as if queued on CPU 0.
fn items(homes: &[Option<u32>]) -> Vec<Item<Sim>> {
    let made = homes.iter().map(|home| {
        let item = Item::new_pending(&TABLE);
        item.set_origin(Origin::new(0, *home));
        item
    });
    made.collect()
}

/// Runs `test` with the pools of the two nodes of a machine on which homes are in use.
fn with_pools(test: impl FnOnce(&Pool<Sim>, &Pool<Sim>) + 'static) {
    let machine = Topology::from_synthetic("numa:2 l3:1 core:4").expect("well formed");
    let outcome = Simulation::new(machine, 1).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let _home = Home::on_in(&runtime, 0).expect("there is one");
        let _queue: Workqueue<Sim> = runtime
            .workqueue_builder("pools")
            .affinity_scope(crate::AffinityScope::Numa)
            .build()
            .expect("the call succeeds");
        let inner = runtime.inner();
        let machine_config: std::sync::Arc<MachineConfig> =
            std::sync::Arc::clone(&inner.machine_config.lock());
        let attributes = Attributes {
            affinity_scope: Some(crate::AffinityScope::Numa),
            ..Attributes::default()
        };
        let layout = machine_config.layout(QueueKind::Unbound, &attributes);
        let [first, second] = [0, 1].map(|index| inner.pool(&layout.pools[index]));
        assert_eq!((first.node, second.node), (Some(0), Some(1)));
        for pool in [&first, &second] {
            // As many of its own workers are awake as may be.
            (0..pool.max_running()).for_each(|_| pool.change_awake(true));
        }
        test(&first, &second);
    });
    outcome.expect();
}

/// The homes of what a worker has taken out of the pool, in order, as if it ran them.
fn taken(pool: &Pool<Sim>, worker: &Worker<Sim>) -> Vec<Option<u32>> {
    let homes: Vec<_> =
        core::iter::from_fn(|| worker.next()).map(|item| item.origin().home()).collect();
    homes.iter().flatten().for_each(|_| pool.homed_left());
    homes
}

/// Puts items there as if no worker could be called.
fn put(pool: &Pool<Sim>, items: &[Item<Sim>]) {
    for item in items {
        pool.arrivals.inbox.push(pending(item));
        if item.origin().home().is_some() {
            pool.homed.count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn a_helper_prefers_its_own_items_then_homeless_ones_and_strays_then_distant_ones() {
    with_pools(|here, other| {
        // The node of one of them is neither pool's.
        let homes = [Some(0), None, Some(1), Some(0), Some(2), None, Some(1)];
        let list = items(&homes);
        put(here, &list);
        let helper = other.entry_for_test();
        let mut order = Vec::new();
        for _ in 0..5 {
            assert_eq!(other.take_by_homes(helper, 1), 1);
            order.extend(taken(here, helper));
        }
        assert_eq!(order, [Some(1), Some(1), None, Some(2), None]);
        // Two items at home there wait for four CPUs: helping is not worth it.
        assert_eq!(other.take_by_homes(helper, 1), 0);
        assert!(here.has_work());
        here.homed.open.store(1, Ordering::Relaxed);
        assert_eq!(other.take_by_homes(helper, 1), 1, "they have waited for long");
        assert_eq!(taken(here, helper), [Some(0)]);
        here.homed.open.store(0, Ordering::Relaxed);
        let many = items(&[Some(0); 12]);
        put(here, &many);
        assert_eq!(other.take_by_homes(helper, 4), 4, "more than the threshold of 0.6 a CPU");
        assert_eq!(taken(here, helper), [Some(0); 4]);
    });
}

#[test]
fn a_helper_takes_from_a_batch_in_the_same_order_and_the_rest_stays_in_order() {
    with_pools(|here, other| {
        let list = items(&[Some(0), Some(1), None, Some(0)]);
        put(here, &list);
        let owner = here.entry_for_test();
        let mut all = here.arrivals.inbox.take_all();
        assert_eq!(owner.fill(&mut all, 4), 4);
        let helper = other.entry_for_test();
        assert_eq!(other.take_by_homes(helper, 1), 1);
        assert_eq!(taken(here, helper), [None], "of the younger half");
        assert_eq!(other.take_by_homes(helper, 1), 1);
        assert_eq!(taken(here, helper), [Some(1)], "of the younger half of what was left");
        assert_eq!(other.take_by_homes(helper, 1), 0);
        let left: Vec<_> = here.listed.ready.lock().nodes().collect();
        let place = |node| list.iter().position(|item| core::ptr::eq(item, node));
        let left: Vec<_> = left.into_iter().filter_map(place).collect();
        assert!(left.is_sorted(), "{left:?}");
        drop(taken(here, owner));
        here.listed.ready.lock().extract(|_| true, usize::MAX, usize::MAX);
    });
}

#[test]
fn the_pool_is_open_while_items_have_waited_for_long() {
    with_pools(|here, other| {
        let list = items(&[Some(0), Some(0)]);
        put(here, &list);
        let mut noted = None;
        let begin = Sim::now();
        let update = |noted: &mut _, millis| {
            here.update_homed(noted, here.has_waiting(), begin + Duration::from_millis(millis));
            here.lets_in(other)
        };
        assert!(!update(&mut noted, 0) && !update(&mut noted, 9));
        assert!(update(&mut noted, 10), "two waited, and none was taken");
        let worker = here.entry_for_test();
        while here.take(worker, 1) != 0 {
            taken(here, worker);
        }
        assert!(!update(&mut noted, 11) && noted.is_none());
        // A count that is wrong is corrected when nothing waits at two checks.
        here.homed.count.store(3, Ordering::SeqCst);
        update(&mut noted, 12);
        assert_eq!(here.homed.count.load(Ordering::SeqCst), 3);
        update(&mut noted, 15);
        assert_eq!(here.homed.count.load(Ordering::SeqCst), 0);
        here.homed_left();
        assert_eq!(here.homed.count.load(Ordering::SeqCst), 0, "never below zero");
    });
}

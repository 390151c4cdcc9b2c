//! Random calls, checked against the simplest possible model: an item runs as often as it was queued.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use nearq_core::{AffinityScope, CpuSet, JoinHandle, Runtime, Work, Workqueue};
use proptest::prelude::*;

use crate::common;

/// One call.
#[derive(Clone, Debug)]
enum Call {
    Queue {
        queue: usize,
        item: usize,
    },
    QueueOn {
        queue: usize,
        item: usize,
        cpu: usize,
    },
    QueueOnNode {
        queue: usize,
        item: usize,
    },
    /// The item's next execution queues it again, on this queue.
    Again {
        queue: usize,
        item: usize,
    },
    Spawn {
        queue: usize,
        keep: bool,
        panics: bool,
    },
    Scope {
        queue: usize,
        count: usize,
    },
    DropHandle,
    Join,
    SetScope {
        queue: usize,
        scope: usize,
    },
    SetFlags {
        queue: usize,
        strict: bool,
        localize: bool,
        helping: bool,
        affinity: bool,
    },
    SetMask {
        queue: usize,
        cpu: Option<usize>,
    },
    SetNice {
        queue: usize,
        nice: i32,
    },
    SetMaxActive {
        queue: usize,
        items: usize,
    },
    SetAffinity(bool),
    /// What was spawned on the queue before has then ended.
    Flush {
        queue: usize,
    },
    /// As above; items of other queues may be refused meanwhile.
    Drain {
        queue: usize,
    },
    /// The queue is dropped, which waits for its items, and another queue takes its place.
    Renew {
        queue: usize,
    },
    /// The item's handle is dropped; an execution that was queued still happens.
    RenewItem {
        item: usize,
    },
}

const QUEUES: usize = 3;
const ITEMS: usize = 6;

fn call() -> impl Strategy<Value = Call> {
    let (queue, item) = (0..QUEUES, 0..ITEMS);
    let both = (queue.clone(), item.clone());
    prop_oneof![
        12 => both.clone().prop_map(|(queue, item)| Call::Queue { queue, item }),
        4 => (both.clone(), 0..4_usize).prop_map(|((queue, item), cpu)| Call::QueueOn { queue, item, cpu }),
        1 => both.clone().prop_map(|(queue, item)| Call::QueueOnNode { queue, item }),
        4 => both.prop_map(|(queue, item)| Call::Again { queue, item }),
        6 => (queue.clone(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(queue, keep, panics)| Call::Spawn { queue, keep, panics }),
        1 => (queue.clone(), 0..5_usize).prop_map(|(queue, count)| Call::Scope { queue, count }),
        1 => Just(Call::DropHandle),
        2 => Just(Call::Join),
        1 => (queue.clone(), 0..7_usize).prop_map(|(queue, scope)| Call::SetScope { queue, scope }),
        1 => (queue.clone(), any::<[bool; 4]>()).prop_map(|(queue, [strict, localize, helping, affinity])| {
            Call::SetFlags { queue, strict, localize, helping, affinity }
        }),
        1 => (queue.clone(), prop::option::of(0..2_usize)).prop_map(|(queue, cpu)| Call::SetMask { queue, cpu }),
        1 => (queue.clone(), 0..3).prop_map(|(queue, nice)| Call::SetNice { queue, nice }),
        1 => (queue.clone(), 1..4_usize).prop_map(|(queue, items)| Call::SetMaxActive { queue, items }),
        1 => any::<bool>().prop_map(Call::SetAffinity),
        2 => queue.clone().prop_map(|queue| Call::Flush { queue }),
        1 => queue.clone().prop_map(|queue| Call::Drain { queue }),
        1 => queue.prop_map(|queue| Call::Renew { queue }),
        1 => item.prop_map(|item| Call::RenewItem { item }),
    ]
}

type Queues = Arc<Mutex<Vec<Arc<Workqueue>>>>;

/// What is known of an item: how often it was queued, and how often it ran.
#[derive(Default)]
struct Observed {
    queued: AtomicU64,
    runs: AtomicU64,
    inside: AtomicBool,
    /// One more than the number of the queue on which its next execution queues it again.
    again: AtomicU64,
}

fn item(queues: &Queues) -> (Work, Arc<Observed>) {
    let observed = Arc::new(Observed::default());
    let (known_clone, queues) = (Arc::clone(&observed), Arc::clone(queues));
    let work = Work::new(move |work: &Work| {
        assert!(!known_clone.inside.swap(true, Ordering::AcqRel), "two executions at once");
        known_clone.runs.fetch_add(1, Ordering::SeqCst);
        let again = known_clone.again.swap(0, Ordering::SeqCst);
        if again != 0 {
            // Counted first: the execution may be over before we count.
            known_clone.queued.fetch_add(1, Ordering::SeqCst);
            let queue = Arc::clone(&queues.lock().unwrap()[again as usize - 1]);
            if !queue.queue(work) {
                known_clone.queued.fetch_sub(1, Ordering::SeqCst);
            }
        }
        known_clone.inside.store(false, Ordering::Release);
    });
    (work, observed)
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::builder().build().unwrap())
}

fn renewed() -> Arc<Workqueue> {
    Arc::new(runtime().workqueue_builder("model").build().unwrap())
}

/// Waits until no other thread has the queue, and drops it.
fn put_away(mut queue: Arc<Workqueue>) {
    common::eventually("the item that has the queue ends", || Arc::strong_count(&queue) == 1);
    while let Err(shared) = Arc::try_unwrap(queue) {
        queue = shared;
    }
}

fn check(calls: &[Call]) {
    let _watchdog = common::watch(Some(runtime()));
    let queues: Queues = Arc::new(Mutex::new((0..QUEUES).map(|_| renewed()).collect()));
    let get = |number: usize| Arc::clone(&queues.lock().unwrap()[number]);
    let mut items: Vec<_> = (0..ITEMS).map(|_| item(&queues)).collect();
    let mut past = Vec::new();
    let mut handles: Vec<(JoinHandle<usize>, Option<usize>)> = Vec::new();
    let counts = || [(); QUEUES].map(|()| AtomicU64::new(0));
    let (spawned, ran) = (counts(), Arc::new(counts()));
    let all_ran =
        |queue: usize| ran[queue].load(Ordering::SeqCst) == spawned[queue].load(Ordering::SeqCst);
    let queue_by = |observed: &Observed, call: &dyn Fn() -> bool| {
        observed.queued.fetch_add(1, Ordering::SeqCst);
        if !call() {
            observed.queued.fetch_sub(1, Ordering::SeqCst);
        }
    };
    for (number, call) in calls.iter().enumerate() {
        match *call {
            Call::Queue { queue, item } => {
                let (work, observed) = &items[item];
                queue_by(observed, &|| get(queue).queue(work));
            }
            Call::QueueOn { queue, item, cpu } => {
                let (work, observed) = &items[item];
                let possible = runtime().topology().possible().contains(cpu);
                queue_by(observed, &|| {
                    let queued = get(queue).queue_on(cpu, work);
                    assert_eq!(queued.is_ok(), possible);
                    queued.unwrap_or(false)
                });
            }
            Call::QueueOnNode { queue, item } => {
                let (work, observed) = &items[item];
                let node = runtime().topology().nodes()[0].id;
                queue_by(observed, &|| get(queue).queue_on_node(node, work).unwrap());
            }
            Call::Again { queue, item } => {
                let (work, observed) = &items[item];
                observed.again.store(queue as u64 + 1, Ordering::SeqCst);
                queue_by(observed, &|| get(queue).queue(work));
            }
            Call::Spawn { queue, keep, panics } => {
                let ran = Arc::clone(&ran);
                spawned[queue].fetch_add(1, Ordering::SeqCst);
                let handle = get(queue).spawn(move || {
                    ran[queue].fetch_add(1, Ordering::SeqCst);
                    if panics {
                        std::panic::resume_unwind(Box::new("on purpose"));
                    }
                    number
                });
                if keep {
                    handles.push((handle, (!panics).then_some(number)));
                }
            }
            Call::Scope { queue, count } => {
                let inside = AtomicU64::new(0);
                get(queue).scope(|scope| {
                    (0..count).for_each(|_| {
                        scope.spawn(|| {
                            inside.fetch_add(1, Ordering::Relaxed);
                        });
                    });
                });
                assert_eq!(inside.into_inner(), count as u64);
            }
            Call::DropHandle => drop(handles.pop()),
            Call::Join => {
                if let Some((handle, expected)) = handles.pop() {
                    assert_eq!(handle.join().ok(), expected);
                }
            }
            Call::SetScope { queue, scope } => {
                get(queue).set_affinity_scope(AffinityScope::ALL.get(scope).copied()).unwrap()
            }
            Call::SetFlags { queue, strict, localize, helping, affinity } => {
                let change = |attributes: &mut nearq_core::Attributes| {
                    attributes.affinity_strict = strict;
                    attributes.localize = localize;
                    attributes.helping = helping;
                    attributes.affinity_enabled = affinity;
                };
                get(queue).change(change).unwrap();
            }
            Call::SetMask { queue, cpu } => {
                let observed = cpu.filter(|cpu| runtime().allowed_cpus().contains(*cpu));
                get(queue).set_cpumask(observed.map(CpuSet::single)).unwrap();
            }
            Call::SetNice { queue, nice } => get(queue).set_nice(nice).unwrap(),
            Call::SetMaxActive { queue, items } => get(queue).set_max_active(items).unwrap(),
            Call::Flush { queue } => {
                get(queue).flush().unwrap();
                assert!(all_ran(queue), "flushed");
            }
            Call::Drain { queue } => {
                get(queue).drain().unwrap();
                assert!(all_ran(queue), "drained");
            }
            Call::SetAffinity(on) => runtime().set_affinity_enabled(on),
            Call::Renew { queue } => {
                let old = core::mem::replace(&mut queues.lock().unwrap()[queue], renewed());
                put_away(old);
            }
            Call::RenewItem { item: at } => {
                let (work, observed) = core::mem::replace(&mut items[at], item(&queues));
                drop(work);
                past.push(observed);
            }
        }
    }
    for (handle, expected) in handles {
        assert_eq!(handle.join().ok(), expected);
    }
    let all = || items.iter().map(|(_, observed)| observed).chain(&past);
    common::eventually("each item has run as often as it was queued", || {
        all().all(|observed| {
            observed.runs.load(Ordering::SeqCst) == observed.queued.load(Ordering::SeqCst)
        })
    });
    for queue in 0..QUEUES {
        let old = core::mem::replace(&mut queues.lock().unwrap()[queue], renewed());
        put_away(old);
    }
    assert!(items.iter().all(|(work, _)| !work.is_pending() && !work.is_running()));
    assert!(
        all().all(|observed| observed.runs.load(Ordering::SeqCst)
            == observed.queued.load(Ordering::SeqCst))
    );
    assert!((0..QUEUES).all(all_ran));
    runtime().set_affinity_enabled(true);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_item_runs_as_often_as_it_was_queued(calls in prop::collection::vec(call(), 1..150)) {
        check(&calls);
    }

    /// On one pwq, one item at a time: items run in the order of queueing, whatever is changed without changing the pwq.
    #[test]
    fn held_back_items_of_one_pwq_start_in_order(
        bursts in prop::collection::vec((1..20_usize, any::<bool>()), 1..8),
    ) {
        let queue = runtime().workqueue_builder("ordered").affinity_scope(AffinityScope::System).max_active(1).build().unwrap();
        let _watchdog = common::watch(Some(runtime()));
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut count = 0;
        for (burst, joins) in bursts {
            let mut last = None;
            for _ in 0..burst {
                let order = Arc::clone(&order);
                last = Some(queue.spawn(move || order.lock().unwrap().push(count)));
                count += 1;
            }
            if joins {
                last.unwrap().join().unwrap();
            }
        }
        drop(queue);
        prop_assert_eq!(&*order.lock().unwrap(), &(0..count).collect::<Vec<_>>());
    }
}

//! `max_active` by node, checked against the simplest possible model: each domain counts its items.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "what a test writes down is no part of the simulated machine"
)]

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nearq_core::{AffinityScope, Error, JoinError, Runtime, Workqueue, inspect::Domain};
use nearq_platform::{LockPlatform, Parker};
use nearq_sim::{Sim, Simulation};
use nearq_topology::{CpuSet, Topology};
use proptest::prelude::*;

/// One call.
#[derive(Clone, Debug)]
enum Call {
    /// An item is queued for a CPU. It runs until the test ends it.
    Queue(usize),
    /// An item of the CPU's domain ends, if one runs.
    End(usize),
    MaxActive(usize),
    MinActive(usize),
    Mask(Option<CpuSet>),
}

const MACHINE: &str = "numa:3 core:2";
const CPUS: usize = 6;

fn call() -> impl Strategy<Value = Call> {
    let masks = vec![None, Some("0-3"), Some("0,2,4-5"), Some("1"), Some("0-2")];
    let mask = |text: Option<&str>| text.map(|text| text.parse().expect("well formed"));
    prop_oneof![
        12 => (0..CPUS).prop_map(Call::Queue),
        8 => (0..CPUS).prop_map(Call::End),
        2 => (1..12_usize).prop_map(Call::MaxActive),
        1 => (0..12_usize).prop_map(Call::MinActive),
        1 => prop::sample::select(masks).prop_map(move |text| Call::Mask(mask(text))),
    ]
}

/// The state of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    limit: usize,
    active: usize,
    inactive: usize,
}

/// The model: nodes of two CPUs each, and one domain for pods that do not lie inside one node.
struct Model {
    scope: AffinityScope,
    mask: CpuSet,
    max_active: usize,
    min_active: usize,
    counts: BTreeMap<Domain, Count>,
}

impl Model {
    fn domain(&self, cpu: usize) -> Domain {
        let pod: CpuSet = match self.scope {
            AffinityScope::System => self.mask.clone(),
            _ => CpuSet::from_range(cpu / 2 * 2..cpu / 2 * 2 + 2).intersection(&self.mask),
        };
        let pod = if pod.is_empty() { &self.mask } else { &pod };
        let node = pod.first().expect("not empty") / 2;
        if pod.iter().all(|cpu| cpu / 2 == node) { Domain::Node(node) } else { Domain::Across }
    }

    /// After each call: sets the limits as they are now, and admits what waits and may be admitted.
    fn settle(&mut self) {
        // Domains are made when a layout first uses them.
        for cpu in 0..CPUS {
            self.counts.entry(self.domain(cpu)).or_default();
        }
        for (domain, count) in &mut self.counts {
            count.limit = match domain {
                Domain::Node(node) => {
                    let here = self.mask.iter().filter(|cpu| cpu / 2 == *node).count();
                    let part = (self.max_active * here).div_ceil(self.mask.len());
                    part.max(self.min_active).min(self.max_active).max(1)
                }
                _ => self.max_active,
            };
            let more = count.limit.saturating_sub(count.active).min(count.inactive);
            count.active += more;
            count.inactive -= more;
        }
    }
}

/// The items that run, by the domain in which they were counted.
type Running = Arc<Mutex<Vec<(Domain, Arc<Parker<Sim>>)>>>;

fn queue_item(queue: &Workqueue<Sim>, cpu: usize, domain: Domain, running: &Running) {
    let parker = Arc::new(Parker::<Sim>::new());
    let running = Arc::clone(running);
    let work = nearq_core::Work::new_in(move |_: &nearq_core::Work<Sim>| {
        running.lock().expect("the mutex is not poisoned").push((domain, Arc::clone(&parker)));
        parker.park(None);
    });
    assert!(queue.queue_on(cpu, &work).expect("there is such a CPU"));
}

/// Ends an item of the domain, if the domain has an active one: such an item runs within some milliseconds.
fn end(domain: Domain, running: &Running) {
    for _ in 0..2000 {
        // A simulated thread may not wait for this lock, so the lock is not held during calls of the platform.
        let found = {
            let mut running = running.lock().expect("the mutex is not poisoned");
            let at = running.iter().position(|(of, _)| *of == domain);
            at.map(|at| running.remove(at).1)
        };
        if let Some(parker) = found {
            return parker.unpark();
        }
        Sim::sleep(Duration::from_millis(1));
    }
    panic!("an active item of {domain} does not start");
}

/// A worker admits what waits. All workers of a pool may be busy: then the monitor adds one, some 10 ms later, which may become busy as
/// well.
fn check(queue: &Workqueue<Sim>, model: &Model, after: &Call) -> Result<(), String> {
    let mut counts = BTreeMap::new();
    for _ in 0..4000 {
        Sim::sleep(Duration::from_micros(300));
        let rows = queue.limits().into_iter().map(|row| {
            let (limit, active, inactive) = (row.limit, row.active, row.inactive);
            (row.domain, Count { limit, active, inactive })
        });
        counts = rows.collect();
        if counts == model.counts {
            return Ok(());
        }
    }
    Err(format!("after {after:?}: {counts:?} instead of {:?}", model.counts))
}

fn run(
    runtime: &Runtime<Sim>,
    scope: AffinityScope,
    max_active: usize,
    calls: &[Call],
) -> Result<(), String> {
    let builder = runtime.workqueue_builder("modelled").affinity_scope(scope).helping(false);
    // Dropped at the end only: the drop would wait for items that are never ended.
    let queue =
        ManuallyDrop::new(builder.max_active(max_active).build().expect("the call succeeds"));
    let mut model = Model {
        scope,
        mask: CpuSet::all(CPUS),
        max_active,
        min_active: max_active.min(8),
        counts: BTreeMap::new(),
    };
    model.settle();
    let running = Running::default();
    for call in calls {
        match call {
            Call::Queue(cpu) => {
                let domain = model.domain(*cpu);
                queue_item(&queue, *cpu, domain, &running);
                model.counts.get_mut(&domain).expect("in use").inactive += 1;
            }
            Call::End(cpu) => {
                let domain = model.domain(*cpu);
                let count = model.counts.get_mut(&domain).expect("in use");
                if count.active > 0 {
                    count.active -= 1;
                    end(domain, &running);
                }
            }
            Call::MaxActive(items) => {
                queue.set_max_active(*items).expect("not ordered");
                model.max_active = *items;
                model.min_active = model.min_active.min(*items);
            }
            Call::MinActive(items) => {
                let set = queue.set_min_active(*items);
                if *items > model.max_active {
                    let max_active = model.max_active;
                    assert_eq!(set, Err(Error::MinActive { asked: *items, max_active }));
                } else {
                    set.expect("the amount is allowed");
                    model.min_active = *items;
                }
            }
            Call::Mask(mask) => {
                queue.set_cpumask(mask.clone()).expect("allowed");
                model.mask = mask.clone().unwrap_or(CpuSet::all(CPUS));
            }
        }
        model.settle();
        assert_eq!((queue.max_active(), queue.min_active()), (model.max_active, model.min_active));
        check(&queue, &model, call)?;
    }
    let left = |model: &Model| -> Option<Domain> {
        model.counts.iter().find(|(_, count)| count.active > 0).map(|(domain, _)| *domain)
    };
    while let Some(domain) = left(&model) {
        model.counts.get_mut(&domain).expect("it was just found").active -= 1;
        model.settle();
        end(domain, &running);
    }
    check(&queue, &model, &Call::End(0))?;
    drop(ManuallyDrop::into_inner(queue));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_domain_has_the_limit_of_the_model(
        whole in prop::bool::weighted(0.25),
        max_active in 1..12_usize,
        calls in prop::collection::vec(call(), 1..60),
    ) {
        let scope = if whole { AffinityScope::System } else { AffinityScope::Numa };
        let machine = Topology::from_synthetic(MACHINE).expect("well formed");
        let outcome = Simulation::new(machine, 1).run(move || {
            let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
            let result = run(&runtime, scope, max_active, &calls);
            if result.is_err() {
                core::mem::forget(runtime);
            }
            result
        });
        prop_assert_eq!(outcome.result, Some(Ok(())));
    }
}

#[test]
fn a_min_active_above_the_limit_is_refused_with_the_allowed_range() {
    let machine = Topology::from_synthetic(MACHINE).expect("well formed");
    let outcome = Simulation::new(machine, 1).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let refused = runtime.workqueue_builder("q").max_active(4).min_active(5).build().map(drop);
        let error = refused.expect_err("too much");
        assert_eq!(error, Error::MinActive { asked: 5, max_active: 4 });
        assert!(error.to_string().contains("0 to 4"), "{error}");
        let queue = runtime
            .workqueue_builder("q")
            .affinity_scope(AffinityScope::Numa)
            .max_active(6)
            .min_active(0);
        let queue = queue.build().expect("the call succeeds");
        let limits: Vec<_> =
            queue.limits().into_iter().map(|row| (row.domain, row.limit)).collect();
        assert_eq!(limits, [0, 1, 2].map(|node| (Domain::Node(node), 2)));
        queue.set_min_active(6).expect("the amount is allowed");
        assert!(queue.limits().iter().all(|row| row.limit == 6));
    });
    outcome.expect();
}

/// An item that gets `Deadlock` for a member raises the limit, and waits for the others.
#[test]
fn a_set_can_be_joined_once_max_active_is_raised() {
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let outcome = Simulation::new(machine, 1).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue = Arc::new(
            runtime.workqueue_builder("set").max_active(1).build().expect("the settings are valid"),
        );
        let queue_clone = Arc::clone(&queue);
        let joiner = queue.spawn(move || {
            let mut set = queue_clone.join_set();
            (0..4).for_each(|number| set.spawn(move || number));
            assert!(matches!(set.blocking_join_next(), Some(Err(JoinError::Deadlock))));
            queue_clone.set_max_active(2).expect("the call succeeds");
            let rest: Vec<u32> = core::iter::from_fn(|| set.blocking_join_next()?.ok()).collect();
            (rest, set.len())
        });
        joiner.join().expect("does not panic")
    });
    assert_eq!(outcome.expect(), (vec![1, 2, 3], 0));
}

//! Per-CPU queues on simulated machines: where items run, what can be set, and what happens to items when CPUs go offline.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "what a test writes down is no part of the simulated machine"
)]

use std::sync::Arc;
use std::time::Duration;

use nearq_core::inspect::QueueKind;
use nearq_core::{AffinityScope, Attributes, Error, Runtime, Work, Workqueue, inspect::Domain};
use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, ThreadSpec, Threads};
use nearq_sim::{Sim, Simulation, compute};
use nearq_topology::{CpuSet, Limits, Topology};

fn machine(text: &str) -> Topology {
    Topology::from_synthetic(text).expect("well formed")
}

/// What an item saw: the CPU it was queued for, and the one it ran on.
type SeenCpus = Arc<Mutex<Vec<(usize, usize)>, Sim>>;

fn runtime() -> Runtime<Sim> {
    Runtime::<Sim>::builder_in().build().expect("the machine is known")
}

fn queue(runtime: &Runtime<Sim>) -> Workqueue<Sim> {
    runtime.workqueue_builder("percpu").per_cpu().build().expect("the call succeeds")
}

fn witness(seen: &SeenCpus, queued: usize) -> Work<Sim> {
    let seen = Arc::clone(seen);
    Work::new_in(move |_: &Work<Sim>| {
        compute(Duration::from_micros(3));
        seen.lock().push((queued, Sim::current_cpu()));
    })
}

#[test]
fn items_run_on_the_named_cpu_or_the_queueing_cpu() {
    let outcome = Simulation::new(machine("pack:2 l3:2 core:2 pu:2"), 3).run(|| {
        let runtime = runtime();
        let queue = Arc::new(queue(&runtime));
        let seen: SeenCpus = Arc::new(Mutex::new_in(Vec::new()));
        let issuers: Vec<_> = (0..16)
            .map(|cpu| {
                let (queue, seen) = (Arc::clone(&queue), Arc::clone(&seen));
                let main = move || {
                    for round in 0..20 {
                        // Two at a time: no worker of another CPU may help.
                        let other = (cpu + round) % 16;
                        assert!(queue.queue(&witness(&seen, cpu)));
                        assert!(queue.queue_on(other, &witness(&seen, other)).unwrap());
                        Sim::sleep(Duration::from_micros(5));
                    }
                };
                let affinity = Some(CpuSet::single(cpu));
                Sim::spawn(ThreadSpec { affinity, ..ThreadSpec::default() }, main)
                    .expect("a thread can be started")
            })
            .collect();
        issuers.into_iter().for_each(Sim::join);
        drop(queue);
        core::mem::take(&mut *seen.lock())
    });
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let seen = outcome.expect();
    assert_eq!(seen.len(), 16 * 20 * 2);
    for (queued, ran) in seen {
        assert_eq!(queued, ran);
    }
}

#[test]
fn the_limit_is_for_each_cpu() {
    let outcome = Simulation::new(machine("numa:2 core:2"), 3).run(|| {
        let runtime = runtime();
        let queue = runtime.workqueue_builder("percpu").per_cpu().max_active(2).build().unwrap();
        let works: Vec<_> = (0..12)
            .map(|_| Work::new_in(|_: &Work<Sim>| Sim::sleep(Duration::from_millis(200))))
            .collect();
        for (number, work) in works.iter().enumerate() {
            assert!(queue.queue_on(number % 4, work).unwrap());
        }
        // Each CPU has one item that sleeps, and gets a second worker for its other item.
        Sim::sleep(Duration::from_millis(100));
        for (cpu, row) in queue.limits().into_iter().enumerate() {
            assert_eq!((row.domain, row.cpus), (Domain::Cpu(cpu), CpuSet::single(cpu)));
            assert_eq!((row.limit, row.active, row.inactive), (2, 2, 1));
        }
        assert_eq!(works.iter().filter(|work| work.is_running()).count(), 8);
        queue.set_max_active(3).unwrap();
        Sim::sleep(Duration::from_millis(50));
        assert_eq!(works.iter().filter(|work| work.is_running()).count(), 12);
    });
    outcome.expect();
}

#[test]
fn only_queues_of_equal_nice_values_share_cpu_pools() {
    let outcome = Simulation::new(machine("core:2"), 3).run(|| {
        let runtime = runtime();
        let strict = runtime
            .workqueue_builder("strict")
            .affinity_scope(AffinityScope::Cpu)
            .affinity_strict(true)
            .build()
            .unwrap();
        let queues = [queue(&runtime), queue(&runtime)];
        for queue in queues.iter().chain([&strict]) {
            for cpu in 0..2 {
                let ran = Arc::new(Mutex::<_, Sim>::new_in(None));
                let ran_clone = Arc::clone(&ran);
                let work =
                    Work::new_in(move |_: &Work<Sim>| *ran_clone.lock() = Some(Sim::current_cpu()));
                queue.queue_on(cpu, &work).unwrap();
                Sim::sleep(Duration::from_millis(1));
                assert_eq!(*ran.lock(), Some(cpu));
            }
        }
        let bound: Vec<_> = runtime.pools().into_iter().filter(|pool| pool.bound).collect();
        assert_eq!(bound.len(), 2, "one for each CPU: {bound:?}");
        assert_eq!(runtime.pools().len(), 4);
        // A change of the nice value is a change of pools.
        queues[0].set_nice(5).unwrap();
        assert_eq!(runtime.pools().len(), 6);
        assert_eq!(queues[0].pods(), [0, 1].map(CpuSet::single));
    });
    outcome.expect();
}

#[test]
fn workers_are_named_after_their_cpu() {
    let names = Arc::new(std::sync::Mutex::new(Vec::new()));
    let names_clone = Arc::clone(&names);
    Simulation::new(machine("core:3"), 3)
        .run(move || {
            let runtime = Runtime::<Sim>::builder_in()
                .on_worker_start(move |info| names_clone.lock().unwrap().push(info.name.clone()))
                .build()
                .unwrap();
            let queue = queue(&runtime);
            queue.queue_on(2, &Work::new_in(|_: &Work<Sim>| {})).unwrap();
            Sim::sleep(Duration::from_millis(1));
        })
        .expect();
    assert_eq!(*names.lock().unwrap(), ["nq/2:0"]);
}

#[test]
fn unsupported_settings_are_refused_with_the_supported_ones() {
    let outcome = Simulation::new(machine("numa:2 core:1"), 3).run(|| {
        let runtime = runtime();
        let percpu = || runtime.workqueue_builder("percpu").per_cpu();
        let refused = |what| Err(Error::Unsupported { attribute: what, kind: QueueKind::PerCpu });
        assert_eq!(
            percpu().affinity_scope(AffinityScope::Numa).build().map(drop),
            refused("an affinity scope")
        );
        assert_eq!(percpu().min_active(1).build().map(drop), refused("min_active"));
        let queue = percpu().nice(3).build().unwrap();
        assert!(queue.is_per_cpu());
        assert_eq!(queue.affinity_scope_in_words(), "per-cpu");
        assert_eq!(queue.set_affinity_scope(AffinityScope::Cpu), refused("an affinity scope"));
        assert_eq!(queue.set_affinity_strict(true), refused("affinity_strict"));
        assert_eq!(queue.set_localize(true), refused("localize"));
        assert_eq!(queue.set_helping(false), refused("helping"));
        assert_eq!(queue.set_affinity_enabled(false), refused("affinity_enabled"));
        assert_eq!(queue.set_cpumask(CpuSet::single(0)), refused("a CPU mask"));
        assert_eq!(queue.set_min_active(1), refused("min_active"));
        let work = Work::new_in(|_: &Work<Sim>| {});
        assert_eq!(queue.queue_on_node(0, &work).map(drop), refused("a node"));
        assert!(!work.is_pending());
        let mut favoured = Attributes::new();
        favoured.nice = 3;
        assert_eq!(queue.attributes(), favoured);
        queue.set_nice(4).unwrap();
        queue.set_time_slice(std::time::Duration::from_millis(1)).unwrap();
        queue.set_sched_idle(true).unwrap();
        queue.set_max_active(7).unwrap();
        let text = queue.set_affinity_scope(AffinityScope::Cpu).unwrap_err().to_string();
        assert!(
            text.contains("an affinity scope")
                && text.contains("nice, sched_idle, time_slice and max_active can"),
            "{text}"
        );
    });
    outcome.expect();
}

#[test]
fn items_of_an_offline_cpu_run_elsewhere_until_it_is_back() {
    for started_before in [false, true] {
        let outcome = Simulation::new(machine("core:4"), 3).run(move || {
            let runtime = runtime();
            let queue = queue(&runtime);
            let seen: SeenCpus = Arc::new(Mutex::new_in(Vec::new()));
            let ran = |expected: fn(usize) -> bool| {
                queue.queue_on(3, &witness(&seen, 3)).unwrap();
                Sim::sleep(Duration::from_millis(2));
                let (_, cpu) = seen.lock().pop().expect("it has run");
                assert!(expected(cpu), "it ran on CPU {cpu}");
            };
            if started_before {
                ran(|cpu| cpu == 3);
            }
            Sim::set_online(3, false).unwrap();
            runtime.refresh();
            ran(|cpu| cpu < 3);
            Sim::set_online(3, true).unwrap();
            runtime.refresh();
            ran(|cpu| cpu == 3);
            // The runtime has not noticed the change yet.
            Sim::set_online(3, false).unwrap();
            ran(|cpu| cpu < 3);
            Sim::set_online(3, true).unwrap();
            ran(|cpu| cpu == 3);
        });
        outcome.expect();
    }
}

#[test]
fn items_of_a_forbidden_cpu_run_on_other_cpus() {
    let outcome = Simulation::new(machine("core:4"), 3).run(|| {
        let all = machine("core:4").possible().clone();
        let mut limits = Limits::unlimited(all.clone());
        limits.cpuset = Some("0-1".parse().unwrap());
        Sim::set_limits(limits);
        let runtime = runtime();
        let queue = queue(&runtime);
        let seen: SeenCpus = Arc::new(Mutex::new_in(Vec::new()));
        queue.queue_on(3, &witness(&seen, 3)).unwrap();
        Sim::sleep(Duration::from_millis(2));
        let (_, cpu) = seen.lock().pop().expect("it has run");
        assert!(cpu < 2, "{cpu}");
        Sim::set_limits(Limits::unlimited(all));
        Sim::sleep(Duration::from_millis(2));
        queue.queue_on(3, &witness(&seen, 3)).unwrap();
        Sim::sleep(Duration::from_millis(2));
        assert_eq!(seen.lock().pop(), Some((3, 3)));
    });
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    outcome.expect();
}

/// A flush of a busy queue makes a pwq for each CPU. The flush does not visit all pwqs for each of them.
#[test]
fn a_flush_takes_linear_time_in_the_number_of_cpus() {
    const CPUS: usize = 256;
    let accesses = |flushes: bool| {
        let outcome =
            Simulation::new(machine(&format!("numa:2 core:{}", CPUS / 2)), 1).run(move || {
                let queue = queue(&runtime());
                let work =
                    Work::<Sim>::new_in(|_: &Work<Sim>| Sim::sleep(Duration::from_millis(1)));
                assert!(queue.queue(&work));
                if flushes {
                    queue.flush().unwrap();
                }
                work.flush().unwrap();
            });
        let accesses = outcome.accesses;
        outcome.expect();
        accesses
    };
    let (with, without) = (accesses(true), accesses(false));
    assert!(with < without + 100 * CPUS as u64, "{with} accesses with a flush, {without} without");
}

/// A queue of the scope `cpu` has a pool for each CPU, and each of these pools helps all others. The list of pools that it helps is made
/// once for each pool. A change of attributes costs the same, however many changes there were before.
#[test]
fn creating_pools_takes_linear_time_in_the_number_of_cpus() {
    const CPUS: u64 = 128;
    let accesses = |changes: u64| {
        let outcome = Simulation::new(machine("numa:2 core:64"), 1).run(move || {
            let runtime = runtime();
            let queue = runtime
                .workqueue_builder("cpus")
                .affinity_scope(AffinityScope::Cpu)
                .build()
                .expect("the call succeeds");
            for round in 0..changes {
                queue.set_time_slice(Duration::from_micros(101 + round)).expect("a slice");
            }
        });
        let accesses = outcome.accesses;
        outcome.expect();
        accesses
    };
    let (none, few, many) = (accesses(0), accesses(4), accesses(12));
    assert!(none < 100 * CPUS, "{none} accesses");
    let (first, last) = ((few - none) / 4, (many - few) / 8);
    assert!(
        last < first * 3 / 2,
        "{first} accesses for each of the first changes, {last} for the last ones"
    );
}

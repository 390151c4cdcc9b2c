//! Isolated CPUs on simulated machines: what keeps off them, and what may use them. The mask of the runtime, from the environment and from the
//! builder.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use nearq_core::{AffinityScope, Error, Runtime, Work, Workqueue, inspect::QueueKind};
use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, Placement, ThreadSpec, Threads};
use nearq_sim::{Sim, Simulation};
use nearq_topology::{CpuSet, Limits, Topology};

/// Two caches of four CPUs each; the second one is isolated.
const MACHINE: &str = "l3:2 core:4";
const ISOLATED: std::ops::Range<usize> = 4..8;

fn simulation(seed: u64) -> Simulation {
    let machine = Topology::from_synthetic(MACHINE).expect("well formed");
    Simulation::new(machine.with_isolated(&CpuSet::from_range(ISOLATED)), seed)
}

/// The CPUs on which items run that pinned threads queue, one thread on each CPU.
fn used(queue: &Arc<Workqueue<Sim>>) -> CpuSet {
    let seen = Arc::new(Mutex::<_, Sim>::new_in(BTreeSet::new()));
    let issuer = |cpu| {
        let (queue, seen) = (Arc::clone(queue), Arc::clone(&seen));
        let main = move || {
            for _ in 0..20 {
                let seen = Arc::clone(&seen);
                let work = Work::new_in(move |_: &Work<Sim>| {
                    seen.lock().insert(Sim::current_cpu());
                    nearq_sim::compute(Duration::from_micros(300));
                    seen.lock().insert(Sim::current_cpu());
                });
                queue.queue(&work);
                work.flush().expect("not by an item");
            }
        };
        let affinity = Some(CpuSet::single(cpu));
        Sim::spawn(ThreadSpec { affinity, ..ThreadSpec::default() }, main).expect("a thread")
    };
    let issuers: Vec<_> = (0..8).map(issuer).collect();
    issuers.into_iter().for_each(Sim::join);
    let seen = core::mem::take(&mut *seen.lock());
    seen.into_iter().collect()
}

fn queue(runtime: &Runtime<Sim>, kind: QueueKind) -> Arc<Workqueue<Sim>> {
    let builder = runtime.workqueue_builder("some").kind(kind);
    let builder = match kind {
        QueueKind::Unbound => builder.affinity_scope(AffinityScope::Cpu),
        _ => builder,
    };
    Arc::new(builder.build().expect("the settings are valid"))
}

#[test]
fn unbound_and_ordered_queues_keep_off_isolated_cpus_and_per_cpu_queues_do_not() {
    for seed in 0..3 {
        let outcome = simulation(seed).run(|| {
            let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
            assert_eq!(runtime.allowed_cpus().to_list(), "0-3");
            assert_eq!(runtime.parallelism(), 8, "a per-CPU queue may use all");
            [QueueKind::Unbound, QueueKind::Ordered, QueueKind::PerCpu]
                .map(|kind| used(&queue(&runtime, kind)))
        });
        assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
        let [unbound, ordered, per_cpu] = outcome.expect();
        assert!(!unbound.intersects(&CpuSet::from_range(ISOLATED)), "seed {seed}: {unbound}");
        assert!(!ordered.intersects(&CpuSet::from_range(ISOLATED)), "seed {seed}: {ordered}");
        assert_eq!(per_cpu, CpuSet::all(8), "seed {seed}: each item on the CPU of its issuer");
    }
}

#[test]
fn a_mask_that_names_isolated_cpus_counts() {
    let outcome = simulation(1).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let queue = queue(&runtime, QueueKind::Unbound);
        let isolated = CpuSet::from_range(ISOLATED);
        queue.set_cpumask(isolated.clone()).expect("the process may use them");
        let by_queue = used(&queue);
        queue.set_cpumask(None).expect("no mask");
        runtime.set_cpumask(CpuSet::from_range(3..6)).expect("the process may use them");
        let by_runtime = used(&queue);
        runtime.set_cpumask(None).expect("no mask");
        (by_queue, by_runtime, used(&queue))
    });
    let (by_queue, by_runtime, neither) = outcome.expect();
    assert_eq!((by_queue.to_list().as_str(), by_runtime.to_list().as_str()), ("4-7", "3-5"));
    assert_eq!(neither.to_list(), "0-3");
}

#[test]
fn isolated_cpus_are_used_if_the_process_has_no_others() {
    let mut limits = Limits::unlimited(CpuSet::from_range(5..7));
    limits.isolated = CpuSet::from_range(ISOLATED);
    let outcome = simulation(1).limits(limits).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let queue = queue(&runtime, QueueKind::Unbound);
        let work = Work::new_in(|_: &Work<Sim>| assert!([5, 6].contains(&Sim::current_cpu())));
        queue.queue(&work);
        work.flush().expect("not by an item");
        runtime.allowed_cpus()
    });
    assert!(outcome.panics.is_empty(), "{}", outcome.report());
    assert_eq!(outcome.expect().to_list(), "5-6");
}

#[test]
fn a_partition_that_is_made_later_is_respected() {
    let machine = Topology::from_synthetic(MACHINE).expect("well formed");
    let outcome = Simulation::new(machine, 1).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let queue = queue(&runtime, QueueKind::Unbound);
        let before = used(&queue);
        let mut limits = Limits::unlimited(CpuSet::all(8));
        limits.isolated = CpuSet::from_range(ISOLATED);
        Sim::set_limits(limits);
        runtime.refresh();
        (before, used(&queue))
    });
    let (before, after) = outcome.expect();
    assert_eq!((before.to_list().as_str(), after.to_list().as_str()), ("0-7", "0-3"));
}

#[test]
fn no_thread_of_the_runtime_runs_on_an_isolated_cpu_that_only_queues_work() {
    let outcome = simulation(2).run(|| {
        let isolated = CpuSet::single(7);
        Sim::set_affinity(Sim::current_thread(), &CpuSet::single(0)).expect("it is online");
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let queue = queue(&runtime, QueueKind::Unbound);
        let (handle, delayed) = (Arc::clone(&queue), Duration::from_millis(2));
        // All service threads are started by this thread or by those of the runtime: the timer's for the delayed item, the monitor's for
        // workers that sleep while more waits.
        let main = move || {
            let nap = || Work::new_in(|_: &Work<Sim>| Sim::sleep(Duration::from_millis(30)));
            let naps: Vec<_> = (0..20).map(|_| nap()).collect();
            for (index, work) in naps.iter().enumerate() {
                handle.queue_delayed(work, delayed * (index as u32 % 2));
            }
            Sim::sleep(Duration::from_millis(200));
            for work in &naps {
                work.flush_delayed().expect("not by an item");
            }
        };
        let spec = ThreadSpec { affinity: Some(isolated), ..ThreadSpec::default() };
        let issuer = Sim::spawn(spec, main).expect("a thread");
        Sim::sleep(Duration::from_millis(1));
        let begun = Sim::cpu_statistics();
        Sim::join(issuer);
        assert!(runtime.monitor_thread_id().is_some(), "the monitor was needed");
        let ended = Sim::cpu_statistics();
        (4..8).map(|cpu| ended[cpu].ran.saturating_sub(begun[cpu].ran)).collect::<Vec<_>>()
    });
    let ran = outcome.expect();
    assert_eq!(ran[..3], [Duration::ZERO; 3], "isolated, and nothing was queued there");
    assert!(ran[3] < Duration::from_millis(1), "only the issuer: {:?}", ran[3]);
}

#[test]
fn the_monitor_keeps_off_the_isolated_cpu_whose_items_need_it() {
    let outcome = simulation(2).run(|| {
        Sim::set_affinity(Sim::current_thread(), &CpuSet::single(0)).expect("it is online");
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let queue = queue(&runtime, QueueKind::PerCpu);
        let works: Vec<_> = (0..30)
            .map(|_| Work::new_in(|_: &Work<Sim>| Sim::sleep(Duration::from_millis(100))))
            .collect();
        for work in &works {
            queue.queue_on(7, work).expect("there is such a CPU");
        }
        for work in &works {
            work.flush().expect("not by an item");
        }
        assert!(runtime.monitor_thread_id().is_some(), "it replaced the workers that slept");
        Sim::cpu_statistics()[7].ran
    });
    let ran = outcome.expect();
    // The 30 workers take 467 us of it. The monitor would take as much again.
    assert!(ran < Duration::from_micros(700), "{ran:?}");
}

#[test]
fn the_variable_is_the_mask_that_the_runtime_begins_with() {
    let outcome = simulation(1).setting("NEARQ_CPUMASK", " 2-4 ").run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let list = |mask: Option<CpuSet>| mask.map(|mask| mask.to_list());
        assert_eq!(list(runtime.cpumask()).as_deref(), Some("2-4"));
        let queue = queue(&runtime, QueueKind::Unbound);
        let begun = used(&queue);
        // It is set as by a call: another call replaces it.
        queue.set_cpumask(CpuSet::single(0)).expect_err("outside of the runtime's mask");
        runtime.set_cpumask(CpuSet::from_range(0..2)).expect("the process may use them");
        let set = used(&queue);
        runtime.set_cpumask(None).expect("no mask");
        let builder = Runtime::<Sim>::builder_in().cpumask(CpuSet::single(7));
        let named = builder.build().expect("the program's own mask counts").allowed_cpus();
        (begun, set, used(&queue), named)
    });
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let (begun, set, unset, named) = outcome.expect();
    let lists = [begun, set, unset, named].map(|cpus| cpus.to_list());
    assert_eq!(lists, ["2-4", "0-1", "0-3", "7"]);
}

#[test]
fn a_mask_that_cannot_be_applied_is_refused() {
    // No list, no CPU at all, a CPU that the machine does not have, none that the process may use.
    for value in ["some", ",", "0-8", "6"] {
        let mut limits = Limits::unlimited(CpuSet::from_range(0..6));
        limits.online = CpuSet::all(8);
        let outcome = simulation(1).limits(limits).setting("NEARQ_CPUMASK", value).run(|| {
            let runtime = Runtime::<Sim>::builder_in().build().expect("a variable is no error");
            (runtime.cpumask(), runtime.allowed_cpus().to_list())
        });
        let warning = format!(
            "NEARQ_CPUMASK is `{value}`; it must be a list of CPUs such as 0-3,8, all of which the machine has (0-7), and at least one of \
             which the process may use (0-5). It counts as not set"
        );
        assert_eq!(outcome.warnings, [warning]);
        assert_eq!(outcome.expect(), (None, "0-5".to_owned()));
    }
    let refused = |mask: CpuSet| {
        simulation(1).run(|| {
            Runtime::<Sim>::builder_in()
                .cpumask(mask)
                .build()
                .expect_err("no such mask")
                .to_string()
        })
    };
    assert!(refused(CpuSet::single(8)).expect().contains("there is no CPU 8"));
    assert_eq!(refused(CpuSet::new()).expect(), Error::EmptyMask.to_string());
}

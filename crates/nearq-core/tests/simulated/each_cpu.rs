//! A closure on each CPU, on simulated machines.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nearq_core::{JoinError, Runtime, Workqueue};
use nearq_platform::LockPlatform as _;
use nearq_sim::{Sim, Simulation};
use nearq_topology::{CpuSet, Limits, Topology};

fn simulation(seed: u64) -> Simulation {
    Simulation::new(Topology::from_synthetic("numa:2 core:4").expect("well formed"), seed)
}

fn queue(runtime: &Runtime<Sim>) -> Workqueue<Sim> {
    runtime.workqueue_builder("each").per_cpu().build().expect("the settings are valid")
}

#[test]
fn a_call_runs_on_each_cpu_that_the_process_may_use_and_no_other() {
    for seed in 0..5 {
        let mut limits = Limits::unlimited(CpuSet::from_range(1..7));
        limits.isolated = CpuSet::from_range(5..8);
        let outcome = simulation(seed).limits(limits).run(|| {
            let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
            runtime.set_cpumask(CpuSet::single(2)).expect("it may be used");
            let queue = queue(&runtime);
            let begun = Sim::now();
            let ran = queue.on_each_cpu(|cpu| {
                Sim::sleep(Duration::from_millis(10));
                (cpu, Sim::current_cpu())
            });
            (ran.expect("no call fails"), Sim::now() - begun)
        });
        let (ran, took) = outcome.expect();
        let wanted: Vec<_> = (1..7).map(|cpu| (cpu, (cpu, cpu))).collect();
        assert_eq!(ran, wanted, "seed {seed}");
        assert!(took < Duration::from_millis(15), "all at the same time: {took:?}");
    }
}

#[test]
fn an_item_of_the_queue_may_wait_for_calls_on_all_cpus() {
    let outcome = simulation(1).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let queue = queue(&runtime);
        queue.scope(|scope| {
            let own = &queue;
            let inner = scope.spawn_with_handle(move || {
                own.on_each_cpu(|_| Sim::current_cpu()).expect("no call fails").len()
            });
            inner.join().expect("no panic")
        })
    });
    assert_eq!(outcome.expect(), 8);
}

#[test]
fn a_panic_of_a_call_is_the_error_and_the_others_have_ended() {
    let outcome = simulation(3).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("a machine");
        let queue = queue(&runtime);
        let ended = std::sync::Arc::new(nearq_lock::Mutex::<_, Sim>::new_in(0));
        let counted = std::sync::Arc::clone(&ended);
        let error = queue.on_each_cpu(move |cpu| {
            assert_ne!(cpu, 2, "not on this one");
            Sim::sleep(Duration::from_millis(5));
            *counted.lock() += 1;
        });
        let ended = *ended.lock();
        let unbound = runtime.workqueue_builder("unbound").build().expect("valid");
        let refused = catch_unwind(AssertUnwindSafe(|| unbound.on_each_cpu(|_| ()))).is_err();
        (error.expect_err("one panicked"), ended, refused)
    });
    let (error, ended, refused) = outcome.result.expect("the run ends");
    assert!(matches!(error, JoinError::Panicked(_)), "{error}");
    assert_eq!((ended, refused), (7, true));
}

//! What can be seen from outside: thread names, hooks, what a worker does, statistics.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use nearq_core::{
    AffinityScope, Runtime, Work,
    inspect::{PoolStatistics, WorkerState},
    set_description,
};
use nearq_platform::{Linux, Threads};

use crate::common::{PATIENCE, alone, eventually, threads, watch};

fn comm() -> String {
    std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim_end().to_owned()
}

#[test]
fn worker_threads_are_named_after_their_pool_and_number() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    for scope in [AffinityScope::Cpu, AffinityScope::System] {
        let queue = runtime
            .workqueue_builder("names")
            .affinity_scope(scope)
            .helping(false)
            .build()
            .unwrap();
        let name = queue.spawn(comm).join().unwrap();
        let pool =
            queue.statistics().iter().find(|pwq| pwq.completed + pwq.started > 0).unwrap().pool;
        let number = name.strip_prefix(&format!("nq/u{pool}:")).unwrap_or_else(|| panic!("{name}"));
        number.parse::<u32>().unwrap();
    }
    // So many items wait that the monitor must check the pool.
    let queue = runtime.workqueue_builder("names").build().unwrap();
    queue.scope(|scope| {
        (0..20).for_each(|_| scope.spawn(|| std::thread::sleep(Duration::from_millis(2))))
    });
    assert!(threads().into_values().any(|name| name == "nq/monitor"), "{:?}", threads());
    for (id, name) in threads() {
        assert!(name == "nq/monitor" || name.starts_with("nq/u"), "{id}: {name}");
    }
}

#[test]
fn each_worker_calls_the_start_and_stop_hooks() {
    let _alone = alone();
    let _watchdog = watch(None);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (start, stop) = (Arc::clone(&calls), Arc::clone(&calls));
    let runtime = Runtime::builder()
        .on_worker_start(move |info| {
            assert_eq!(comm(), info.name, "by the worker itself");
            start.lock().unwrap().push(("start", info.name.clone(), info.pod.clone()));
        })
        .on_worker_stop(move |info| {
            assert_eq!(comm(), info.name);
            stop.lock().unwrap().push(("stop", info.name.clone(), info.pod.clone()));
        })
        .build()
        .unwrap();
    let allowed = runtime.allowed_cpus();
    let queue =
        runtime.workqueue_builder("hooked").affinity_scope(AffinityScope::System).build().unwrap();
    let name = queue.spawn(comm).join().unwrap();
    assert!(calls.lock().unwrap().contains(&("start", name.clone(), allowed.clone())));
    drop(queue);
    drop(runtime);
    let calls = calls.lock().unwrap();
    assert!(calls.contains(&("stop", name, allowed)));
    let count = |what| calls.iter().filter(|call| call.0 == what).count();
    assert_eq!(count("start"), count("stop"));
}

#[test]
fn a_worker_keeps_running_after_its_hook_panics() {
    let _alone = alone();
    let runtime = Runtime::builder()
        .on_worker_start(|_| panic!("on purpose: a hook"))
        .on_worker_stop(|_| panic!("on purpose: a hook"))
        .build()
        .unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("hooked").build().unwrap();
    for number in 0..10 {
        assert_eq!(queue.spawn(move || number).join().unwrap(), number);
    }
    drop(queue);
}

fn doing(runtime: &Runtime, description: &str) -> Option<WorkerState> {
    runtime.workers().into_iter().find(|worker| worker.description == description)
}

#[test]
fn a_worker_shows_its_item_and_the_items_description() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("shown").build().unwrap();
    set_description("not a worker: nothing happens");
    let ((sender, receiver), (go, gate)) = (mpsc::channel(), mpsc::channel::<()>());
    let mut first = true;
    let work = Work::new(move |_: &Work| {
        if first {
            set_description("reading");
            set_description("writing ä block of five thousand bytes");
        }
        first = false;
        sender.send(Linux::thread_id(Linux::current_thread())).unwrap();
        gate.recv_timeout(PATIENCE).unwrap();
    });
    queue.queue(&work);
    let thread = receiver.recv_timeout(PATIENCE).unwrap();
    // Cut to 31 bytes.
    let worker = doing(&runtime, "writing ä block of five thousa").expect("cut");
    assert!(!worker.sleeping);
    assert_eq!(worker.thread_id, Some(thread));
    let function = worker.function.expect("it runs");
    assert!(function.contains("observing") && function.contains("closure"), "{function}");
    go.send(()).unwrap();
    eventually("the description is gone", || {
        runtime.workers().iter().all(|w| w.description.is_empty())
    });
    eventually("it sleeps", || {
        runtime.workers().iter().all(|w| w.sleeping && w.function.is_none())
    });
    queue.queue(&work);
    receiver.recv_timeout(PATIENCE).unwrap();
    assert!(
        runtime.workers().iter().all(|worker| worker.description.is_empty()),
        "of the last execution"
    );
    go.send(()).unwrap();
}

#[test]
fn a_description_is_cleared_even_if_the_item_panics() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("shown").build().unwrap();
    let panics = queue.spawn(|| {
        set_description("about to panic");
        panic!("on purpose: described")
    });
    assert_eq!(panics.join().unwrap_err().message(), Some("on purpose: described"));
    eventually("the description is gone", || doing(&runtime, "about to panic").is_none());
}

fn sum(pwqs: &[PoolStatistics], field: impl Fn(&PoolStatistics) -> u64) -> u64 {
    pwqs.iter().map(field).sum()
}

#[test]
fn statistics_are_plausible() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue =
        runtime.workqueue_builder("counted").affinity_scope(AffinityScope::System).build().unwrap();
    assert_eq!(sum(&queue.statistics(), |pwq| pwq.started), 0);
    let burn = Duration::from_millis(50);
    queue
        .spawn(move || {
            let me = Linux::current_thread();
            let begin = Linux::cpu_time(me).unwrap();
            while Linux::cpu_time(me).unwrap() < begin + burn {
                std::hint::spin_loop();
            }
        })
        .join()
        .unwrap();
    eventually("the time is counted", || {
        queue.statistics().iter().map(|pwq| pwq.cpu_time).sum::<Duration>() >= burn
    });
    let time: Duration = queue.statistics().iter().map(|pwq| pwq.cpu_time).sum();
    assert!(time < burn * 3 / 2, "{time:?}");
    for _ in 0..10 {
        // Without the panic hook, which may print a backtrace and take long.
        drop(queue.spawn(|| std::panic::resume_unwind(Box::new("on purpose: counted"))));
    }
    let (go, gate) = mpsc::channel::<()>();
    let ((sender, receiver), gate) = (mpsc::channel(), Arc::new(Mutex::new(gate)));
    let waits = queue.spawn(move || {
        sender.send(()).unwrap();
        gate.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    });
    receiver.recv_timeout(PATIENCE).unwrap();
    eventually("all but one have ended", || sum(&queue.statistics(), |pwq| pwq.completed) == 11);
    eventually("one item runs", || sum(&queue.statistics(), |pwq| pwq.started) == 12);
    assert_eq!(sum(&queue.statistics(), |pwq| pwq.panicked), 10);
    go.send(()).unwrap();
    waits.join().unwrap();
    eventually("it has ended", || sum(&queue.statistics(), |pwq| pwq.completed) == 12);
    eventually("no item runs", || sum(&queue.statistics(), |pwq| pwq.started) == 12);
    // Sleeping items use no CPU time.
    let time: Duration = queue.statistics().iter().map(|pwq| pwq.cpu_time).sum();
    assert!(time < burn * 2, "{time:?}");
}

#[test]
fn pools_are_shared_by_equal_attributes_and_shown() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let make = |nice| {
        runtime
            .workqueue_builder("shared")
            .affinity_scope(AffinityScope::System)
            .nice(nice)
            .build()
            .unwrap()
    };
    let queues = [make(0), make(0), make(5)];
    for queue in &queues {
        queue.spawn(|| {}).join().unwrap();
    }
    let pools = runtime.pools();
    assert_eq!(pools.len(), 2, "{pools:?}");
    assert_eq!(pools.iter().map(|pool| pool.nice).collect::<Vec<_>>(), [0, 5]);
    assert!(
        pools
            .iter()
            .all(|pool| pool.workers >= 1 && pool.pod == runtime.allowed_cpus() && !pool.strict)
    );
    let nice = |queue: &nearq_core::Workqueue| {
        queue.spawn(|| Linux::nice(Linux::current_thread()).unwrap()).join().unwrap()
    };
    let own_nice = Linux::nice(Linux::current_thread()).unwrap();
    assert_eq!(
        [nice(&queues[0]), nice(&queues[1])],
        [own_nice; 2],
        "nice 0 is what the process has"
    );
    assert_eq!(nice(&queues[2]), 5);
    eventually("all sleep", || {
        runtime.pools().iter().all(|pool| pool.sleeping == pool.workers && pool.ready == 0)
    });
    assert_eq!(runtime.thread_count(), runtime.workers().len());
}

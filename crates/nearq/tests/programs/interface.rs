//! What the crate's first page lists works: each way to run something, each kind of queue, each wait. With the oldest compiler that the
//! crate supports these tests run too, so nothing here needs a newer one.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nearq::home::Home;
use nearq::topology::{CpuSet, Topology};
use nearq::{AffinityScope, JoinError, Runtime, Work, Workqueue, block_in_place};

const LONG: Duration = Duration::from_secs(3600);

/// Wakes the thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future, as the `block_on` of an executor.
fn wait_for<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// A work item, and how often it has run.
fn counting() -> (Work, Arc<AtomicU32>) {
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let work = Work::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    (work, runs)
}

#[test]
fn closures_and_futures_return_their_results() {
    let queue = Workqueue::builder("closures").build().unwrap();
    assert_eq!(queue.spawn(|| 6 * 7).join().unwrap(), 42);
    assert_eq!(wait_for(queue.spawn(|| "awaited")).unwrap(), "awaited");
    let doubled = queue.spawn(|| 21);
    assert_eq!(queue.spawn_future(async { doubled.await.unwrap() * 2 }).join().unwrap(), 42);
    let panicked = queue.spawn(|| -> u32 { panic!("on purpose") }).join().unwrap_err();
    assert!(panicked.panic().is_some(), "{panicked:?}");
    assert_eq!(queue.spawn(|| block_in_place(|| 3)).join().unwrap(), 3);

    let mut set = queue.join_set();
    (0_u32..50).for_each(|number| set.spawn(move || number));
    set.spawn_future(async { 50 });
    let mut sum = 0;
    while let Some(number) = set.blocking_join_next() {
        sum += number.unwrap();
    }
    assert_eq!(sum, 50 * 51 / 2);
    assert!(wait_for(set.join_next()).is_none());
}

#[test]
fn closures_that_borrow_fork_and_join() {
    fn sum(numbers: &[u64]) -> u64 {
        if numbers.len() < 100 {
            return numbers.iter().sum();
        }
        let (left, right) = numbers.split_at(numbers.len() / 2);
        let (left, right) = nearq::join(|| sum(left), || sum(right));
        left + right
    }
    let queue = Workqueue::builder("fork").affinity_scope(AffinityScope::Cache).build().unwrap();
    let mut squares: Vec<u64> = (0..1000).collect();
    queue.scope(|scope| squares.iter_mut().for_each(|n| scope.spawn(move || *n *= *n)));
    let expected = (0..1000).map(|n| n * n).sum::<u64>();
    assert_eq!(queue.install(|| sum(&squares)), expected);
    assert_eq!(queue.join(|| sum(&squares), || squares.len()), (expected, 1000));
}

#[test]
fn an_item_is_queued_again_and_again_delayed_and_cancelled() {
    let queue = Workqueue::builder("items").build().unwrap();
    let (work, runs) = counting();
    for round in 1..=100 {
        assert!(queue.queue(&work));
        work.flush().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), round);
    }
    assert!(queue.queue_delayed(&work, LONG));
    assert!(!queue.queue(&work) && work.is_pending());
    assert!(work.cancel() && !work.is_pending());
    assert!(queue.queue_delayed(&work, LONG));
    assert!(queue.modify_delayed(&work, Duration::from_millis(1)));
    assert!(work.flush_delayed().unwrap());
    assert!(queue.queue(&work));
    wait_for(work.flushed()).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 102);

    work.disable_sync().unwrap();
    assert!(!queue.queue(&work) && work.is_disabled());
    assert!(queue.enable_and_queue(&work));
    work.flush().unwrap();
    let cpu = Runtime::global().allowed_cpus().iter().next().unwrap();
    assert!(queue.queue_on(cpu, &work).unwrap());
    work.flush().unwrap();
    assert_eq!(queue.task().on_cpu(cpu).unwrap().spawn(|| 1).join().unwrap(), 1);
    assert_eq!(runs.load(Ordering::Relaxed), 104);
    assert!(!work.cancel_sync().unwrap());
}

#[test]
fn each_kind_of_queue_runs_its_items() {
    let of = |name: &str| Workqueue::builder(name);
    let queues = [
        of("scoped").affinity_scope(AffinityScope::Numa).affinity_strict(true),
        of("per CPU").per_cpu().cpu_intensive(),
        of("ordered").ordered(),
        of("idle").sched_idle(),
        of("limited").max_active(2).min_active(1),
        of("rescued").rescuer(),
        of("freezable").freezable(),
        of("masked").cpumask(Runtime::global().allowed_cpus()).helping(false).localize(true),
    ];
    for builder in queues {
        let queue = builder.build().unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        for _ in 0..50 {
            let runs = Arc::clone(&runs);
            queue.spawn(move || runs.fetch_add(1, Ordering::Relaxed));
        }
        queue.flush().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 50, "{queue:?}");
        queue.spawn(|| ());
        wait_for(queue.flushed()).unwrap();
        wait_for(queue.drained()).unwrap();
    }
    let ordered = of("in order").ordered().build().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for number in 0..100 {
        let seen = Arc::clone(&seen);
        ordered.spawn(move || seen.lock().unwrap().push(number));
    }
    drop(ordered);
    assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
    assert!(of("bad").nice(100).build().is_err());
}

#[test]
fn a_runtime_is_changed_frozen_inspected_and_ended() {
    let runtime = Runtime::builder().thread_limit(8).spin(0).build().unwrap();
    let queue = runtime.workqueue_builder("own").freezable().build().unwrap();
    queue.set_affinity_scope(AffinityScope::System).unwrap();
    queue.set_max_active(3).unwrap();
    assert_eq!(queue.max_active(), 3);
    let (begin, begun) = mpsc::channel::<()>();
    let item = queue.spawn(move || begun.recv().is_ok());
    let names = || runtime.queues().iter().map(|queue| queue.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(), ["own"]);
    let end = Instant::now() + Duration::from_secs(60);
    while runtime.running().is_empty() {
        assert!(Instant::now() < end, "the item begins");
        thread::yield_now();
    }
    begin.send(()).unwrap();
    assert!(item.join().unwrap());

    runtime.freeze().unwrap();
    let frozen = queue.spawn(|| 5);
    assert!(runtime.is_frozen() && !frozen.is_finished());
    runtime.thaw();
    assert_eq!(frozen.join().unwrap(), 5);

    let handle = queue.handle();
    drop(queue);
    assert!(handle.upgrade().is_none() && names().is_empty());
    assert!(matches!(handle.spawn(|| ()).join(), Err(JoinError::Refused)));
    runtime.shutdown(LONG).unwrap();
    assert_eq!(runtime.thread_count(), 0);
}

#[test]
fn work_and_memory_have_a_home() {
    let node = Runtime::global().topology().nodes()[0].id;
    let home = Home::on(node).unwrap();
    let queue = Workqueue::builder("home").home(&home).build().unwrap();
    assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
    let (work, runs) = counting();
    work.set_home(&home);
    assert!(queue.queue_on_node(node, &work).unwrap());
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!((work.home(), home.node()), (Some(home), Some(node)));
    assert!(Home::on(usize::MAX).is_err());
}

#[test]
fn a_machine_is_described() {
    let machine = Topology::from_synthetic("pack:2 l3:2 core:4 pu:2").unwrap();
    assert_eq!(machine.pods(AffinityScope::Cache, 8).pods.len(), 4);
    assert_eq!(CpuSet::parse_list("0-3,8").unwrap().to_list(), "0-3,8");
    assert!(!Runtime::global().topology().online().is_empty());
}

#[test]
fn files_of_hwloc_are_read_if_that_is_built_in() {
    let path = std::env::temp_dir().join(format!("nearq-hwloc-{}.xml", std::process::id()));
    let text = r#"<topology version="2.0"><object type="Machine" cpuset="0x3" complete_cpuset="0x3">
        <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/></object></topology>"#;
    std::fs::write(&path, text).unwrap();
    let machine = Topology::from_description(path.to_str().unwrap());
    std::fs::remove_file(&path).unwrap();
    match machine {
        Ok(machine) => assert_eq!(machine.online().to_list(), "0-1"),
        Err(error) if cfg!(feature = "hwloc") => panic!("{error}"),
        // With the rest of the workspace it is built in for others.
        Err(error) => assert!(error.to_string().contains("without the feature hwloc"), "{error}"),
    }
}

#[cfg(feature = "metrics")]
#[test]
fn the_counts_are_exported() {
    let queue = Workqueue::builder("counted").build().unwrap();
    queue.spawn(|| ()).join().unwrap();
    let text = nearq::metrics::text(nearq::metrics::statistics(Runtime::global()), Vec::new());
    assert!(text.contains("counted") && text.ends_with("# EOF\n"), "{text}");
}

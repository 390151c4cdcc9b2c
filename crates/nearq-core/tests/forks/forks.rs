//! After a fork, the child starts afresh with what it inherits, nothing of the parent's runs in the child, nothing hangs, and the parent is
//! not affected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearq_core::{AffinityScope, Runtime, Work, system};

use crate::common::child::{
    CHILD_PATIENCE, Child, builds_another, child, drop_in_child, end, fork, uses,
};
use crate::common::{self, Barrier, alone, alone_with_runtime, eventually, watch};

#[test]
fn a_child_uses_inherited_queues_and_the_parent_continues() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("inherited").build().unwrap();
    // Some threads that sleep, and one that runs.
    uses(&queue);
    let parent = std::process::id();
    let threads = threads_that_stay();
    child(|| {
        assert_ne!(std::process::id(), parent);
        assert_eq!(runtime.thread_count(), 0, "nothing was started");
        assert!(runtime.workers().is_empty());
        assert!(common::threads().is_empty());
        assert_eq!(
            queue.statistics().iter().map(|pwq| pwq.started - pwq.completed).sum::<u64>(),
            0
        );
        uses(&queue);
        assert!(runtime.thread_count() > 0);
        builds_another(&runtime);
        // Settings of the runtime reach every queue.
        runtime.set_default_affinity_scope(AffinityScope::Numa);
        runtime.set_affinity_enabled(false);
        runtime.refresh();
        uses(&queue);
        // The last handles are dropped, and no thread is left. The parent's watchdog has a handle of the runtime.
        drop_in_child(&queue);
        drop_in_child(&runtime);
        true
    });
    let now = common::threads();
    assert!(
        threads.keys().all(|id| now.contains_key(id)),
        "a thread of the parent is gone: {threads:?}, {now:?}"
    );
}

/// The threads that are left when those of pools that no queue uses have ended, which takes 100 ms.
fn threads_that_stay() -> BTreeMap<u64, String> {
    let mut threads = common::threads();
    eventually("no more threads end", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = common::threads();
        core::mem::replace(&mut threads, now.clone()) == now
    });
    assert!(!threads.is_empty());
    threads
}

#[test]
fn a_runtime_that_is_dropped_in_the_child_leaves_no_thread() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("dropped").build().unwrap();
    uses(&queue);
    let _watchdog = watch(None);
    child(|| {
        uses(&queue);
        drop_in_child(&queue);
        drop_in_child(&runtime);
        eventually("no thread is left", || common::threads().is_empty());
        true
    });
}

#[test]
fn the_system_queue_and_the_default_runtime() {
    let _alone = alone();
    let _watchdog = watch(None);
    assert_eq!(system::unbound().spawn(|| 1).join().unwrap(), 1);
    child(|| {
        assert_eq!(Runtime::global().thread_count(), 0);
        uses(system::unbound());
        builds_another(Runtime::global());
        true
    });
    assert_eq!(system::unbound().spawn(|| 2).join().unwrap(), 2);
}

/// An item of the parent's that waits for another item of its queue does not wait in the child, and takes no place under the limit there.
#[test]
fn items_that_wait_for_each_other_in_the_parent_do_not_block_the_child() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = Arc::new(runtime.workqueue_builder("beside").max_active(2).build().unwrap());
    let (entered, leave) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let hold = |leave: Arc<AtomicBool>| {
        queue.spawn(move || eventually("it may end", || leave.load(Ordering::SeqCst)))
    };
    let wait = |queue: Arc<nearq_core::Workqueue>, entered: Arc<AtomicBool>| {
        move || {
            let behind = queue.spawn(|| {});
            entered.store(true, Ordering::SeqCst);
            behind.join().is_ok()
        }
    };
    let holder = hold(Arc::clone(&leave));
    let waiter = queue.spawn(wait(Arc::clone(&queue), Arc::clone(&entered)));
    eventually("it is about to wait", || entered.load(Ordering::SeqCst));
    std::thread::sleep(Duration::from_millis(5));
    child(|| {
        let leave = Arc::new(AtomicBool::new(false));
        let entered = Arc::new(AtomicBool::new(false));
        let holder = hold(Arc::clone(&leave));
        let waiter = queue.spawn(wait(Arc::clone(&queue), Arc::clone(&entered)));
        eventually("it is about to wait", || entered.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(5));
        leave.store(true, Ordering::SeqCst);
        holder.join().unwrap();
        waiter.join().unwrap()
    });
    leave.store(true, Ordering::SeqCst);
    holder.join().unwrap();
    assert!(waiter.join().unwrap());
}

/// 200 forks while four threads queue, spawn, hold back, change and drop.
#[test]
fn forks_under_load() {
    const FORKS: usize = 200;
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let wide =
        runtime.workqueue_builder("wide").affinity_scope(AffinityScope::Cpu).build().unwrap();
    let narrow = runtime.workqueue_builder("narrow").max_active(2).build().unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let (queued, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        for issuer in 0..4 {
            let (runtime, wide, narrow) = (&runtime, &wide, &narrow);
            let (runs, queued, stop) = (&runs, &queued, &stop);
            threads.spawn(move || {
                let works: Vec<_> = (0..16)
                    .map(|_| {
                        let runs = Arc::clone(runs);
                        Work::new(move |_: &Work| {
                            runs.fetch_add(1, Ordering::Relaxed);
                        })
                    })
                    .collect();
                let mut at = 0_usize;
                while !stop.load(Ordering::Relaxed) {
                    let queue = [wide, narrow][at % 2];
                    let yes = queue.queue(&works[at / 2 % works.len()]);
                    queued.fetch_add(u64::from(yes), Ordering::Relaxed);
                    if at.is_multiple_of(64) {
                        assert_eq!(queue.spawn(move || at).join().unwrap(), at);
                    }
                    if at % 1000 == issuer {
                        let short = runtime.workqueue_builder("short").build().unwrap();
                        let runs = Arc::clone(runs);
                        queued.fetch_add(1, Ordering::Relaxed);
                        drop(short.spawn(move || runs.fetch_add(1, Ordering::Relaxed)));
                        wide.set_affinity_scope(
                            AffinityScope::ALL[at / 1000 % AffinityScope::ALL.len()],
                        )
                        .unwrap();
                        narrow.set_max_active(1 + at / 1000 % 4).unwrap();
                    }
                    at += 1;
                }
                for work in &works {
                    eventually("all items have run", || !work.is_pending() && !work.is_running());
                }
            });
        }
        let parent = std::process::id();
        for round in 0..FORKS {
            let before = runs.load(Ordering::Relaxed);
            child(|| {
                assert_ne!(std::process::id(), parent);
                assert_eq!(runtime.thread_count(), 0);
                assert_eq!((wide.inactive(), narrow.inactive()), (0, 0));
                assert_eq!(narrow.spawn(|| 1).join().unwrap(), 1);
                assert_eq!(wide.spawn(|| 2).join().unwrap(), 2);
                if round % 8 == 0 {
                    uses(&narrow);
                    uses(&wide);
                    builds_another(&runtime);
                }
                // What was pending in the parent has not run here, although there were workers.
                let now = runs.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(300));
                assert!(now >= before);
                assert_eq!(
                    runs.load(Ordering::Relaxed),
                    now,
                    "an item of the parent ran in the child"
                );
                drop_in_child(&wide);
                drop_in_child(&narrow);
                true
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop((wide, narrow));
    assert_eq!(
        runs.load(Ordering::Relaxed),
        queued.load(Ordering::Relaxed),
        "nothing is lost or doubled"
    );
}

/// A runtime that was shut down, or is being shut down, is in the same state in the child, and can be ended and dropped there.
#[test]
fn forks_beside_a_shutdown() {
    let _alone = alone();
    let _watchdog = watch(None);
    for _ in 0..10 {
        let runtime = Runtime::builder().build().unwrap();
        let queue = runtime.workqueue_builder("shut").build().unwrap();
        let barrier = Barrier::default();
        let held = barrier.hold(&queue);
        let ends_in_the_child = || {
            child(|| {
                assert!(queue.try_queue(&Work::new(|_: &Work| {})).is_err());
                runtime.shutdown(CHILD_PATIENCE).unwrap();
                drop_in_child(&queue);
                drop_in_child(&runtime);
                // Another runtime is not affected.
                builds_another(&Runtime::builder().build().unwrap());
                true
            });
        };
        std::thread::scope(|threads| {
            threads.spawn(|| runtime.shutdown(CHILD_PATIENCE).unwrap());
            eventually("it is shut", || queue.try_queue(&Work::new(|_: &Work| {})).is_err());
            ends_in_the_child();
            barrier.open();
        });
        held.join().unwrap();
        ends_in_the_child();
    }
}

#[test]
fn many_forks_at_once() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("shared").build().unwrap();
    std::thread::scope(|threads| {
        for number in 0..4 {
            let queue = &queue;
            threads.spawn(move || {
                for _ in 0..20 {
                    drop(queue.spawn(|| {}));
                    child(|| queue.spawn(move || number).join().unwrap() == number);
                }
            });
        }
    });
}

#[test]
fn grandchildren() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("ancestral").build().unwrap();
    uses(&queue);
    child(|| {
        uses(&queue);
        // While the runtime's own workers are busy.
        let barrier = Barrier::default();
        let held = barrier.hold(&queue);
        child(|| {
            assert!(held.is_finished());
            uses(&queue);
            child(|| {
                uses(&queue);
                true
            });
            uses(&queue);
            true
        });
        assert!(!held.is_finished());
        barrier.open();
        held.join().unwrap();
        uses(&queue);
        true
    });
    uses(&queue);
}

/// A task of the parent's has no result in the child: a thread that waits for it gets an error.
#[test]
fn handles_of_the_parents_tasks() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("tasks").max_active(1).build().unwrap();
    let done = queue.spawn(|| 7);
    eventually("it has ended", || done.is_finished());
    let barrier = Barrier::default();
    let running = barrier.hold(&queue);
    let [waiting, dropped, polled] = [(); 3].map(|()| queue.spawn(|| ()));
    eventually("three wait", || queue.inactive() == 3);
    child(|| {
        assert_eq!(done.join().unwrap(), 7, "tasks that had ended have their result");
        for handle in [running, waiting] {
            assert!(handle.is_finished(), "the task counts as finished in the child");
            assert!(handle.join().unwrap_err().is_cancelled());
        }
        drop(dropped);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let outcome = std::pin::pin!(polled).poll(&mut context);
        assert!(matches!(outcome, std::task::Poll::Ready(Err(_))));
        uses(&queue);
        drop_in_child(&queue);
        true
    });
    barrier.open();
}

#[test]
fn forks_while_many_items_are_held_back() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("crowded").max_active(1).build().unwrap();
    let (barrier, runs) = (Barrier::default(), Arc::new(AtomicU32::new(0)));
    let handles: Vec<_> = (0..500)
        .map(|_| {
            let (barrier, runs) = (barrier.clone(), Arc::clone(&runs));
            queue.spawn(move || {
                barrier.wait();
                runs.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    eventually("they wait", || queue.inactive() == 499);
    for round in 0..20 {
        child(|| {
            barrier.open();
            assert_eq!(queue.inactive(), 0);
            queue.spawn(|| {}).join().unwrap();
            uses(&queue);
            if round % 2 == 0 {
                // The drop does not wait for anything of the parent's.
                drop_in_child(&queue);
            }
            runs.load(Ordering::Relaxed) == 0
        });
    }
    assert_eq!(queue.inactive(), 499);
    barrier.open();
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(runs.load(Ordering::Relaxed), 500);
    uses(&queue);
}

/// Threads of the parent wait for a queue when it forks; the child's copy of the queue is empty and open.
#[test]
fn forks_while_other_threads_flush_and_drain() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("awaited").max_active(2).build().unwrap();
    for drains in [false, true] {
        let barrier = Barrier::default();
        for _ in 0..4 {
            drop(barrier.hold(&queue));
        }
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| if drains { queue.drain() } else { queue.flush() }.unwrap());
            }
            if drains {
                // A different item each time, because the first may be queued, and wait.
                eventually("it drains", || queue.try_queue(&Work::new(|_: &Work| {})).is_err());
            } else {
                std::thread::sleep(Duration::from_millis(5));
            }
            for _ in 0..10 {
                child(|| {
                    queue.flush().unwrap();
                    uses(&queue);
                    drop_in_child(&queue);
                    true
                });
            }
            barrier.open();
        });
    }
    uses(&queue);
}

/// A `Command` that runs something in the child before `exec` really forks; the hooks must not disturb that.
#[test]
fn commands_with_and_without_pre_exec() {
    use std::os::unix::process::CommandExt as _;
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("commanding").build().unwrap();
    for _ in 0..20 {
        let outputs = queue.spawn(|| {
            let mut forked = std::process::Command::new("/bin/echo");
            // SAFETY: does nothing.
            unsafe { forked.arg("x").pre_exec(|| Ok(())) };
            [forked.output().unwrap(), std::process::Command::new("/bin/echo").output().unwrap()]
        });
        let [forked, spawned] = outputs.join().unwrap();
        assert_eq!(
            (forked.stdout.as_slice(), spawned.stdout.as_slice()),
            (&b"x\n"[..], &b"\n"[..])
        );
        uses(&queue);
    }
}

/// What the hooks add to a fork, in the process that forks and in the child, with many queues.
///
/// `cargo test --release -p nearq-core --test forks -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn what_a_fork_costs() {
    const FORKS: usize = 300;
    /// Medians of two times: of the call in the parent, and from the beginning of the call to its return in the child.
    fn measure() -> [Duration; 2] {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..FORKS {
            let mut pipe = [0; 2];
            // SAFETY: there is space for two descriptors.
            assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
            let begin = Instant::now();
            let pid = fork();
            let took = begin.elapsed();
            let mut nanos = took.as_nanos() as u64;
            if pid == 0 {
                // SAFETY: eight bytes that are ours.
                unsafe { libc::write(pipe[1], (&raw const nanos).cast(), 8) };
                end(true);
            }
            times[0].push(took);
            // SAFETY: eight bytes that are ours.
            assert_eq!(unsafe { libc::read(pipe[0], (&raw mut nanos).cast(), 8) }, 8);
            times[1].push(Duration::from_nanos(nanos));
            Child(pid).fares_well();
            for end in pipe {
                // SAFETY: the descriptors are ours, and not used any more.
                unsafe { libc::close(end) };
            }
        }
        times.map(|mut times| {
            times.sort_unstable();
            times[FORKS / 2]
        })
    }
    let _alone = alone();
    println!(
        "no runtime: {:?} in the parent, {:?} until the child goes on",
        measure()[0],
        measure()[1]
    );
    let runtime = Runtime::builder().build().unwrap();
    let mut queues = Vec::new();
    for count in [1, 10, 100, 1000] {
        while queues.len() < count {
            let queue = runtime
                .workqueue_builder("one of many")
                .affinity_scope(AffinityScope::Cpu)
                .build()
                .unwrap();
            drop(queue.spawn(|| {}));
            queues.push(queue);
        }
        for queue in &queues {
            drop(queue.spawn(|| {}));
        }
        std::thread::sleep(Duration::from_millis(20));
        let [parent, child] = measure();
        println!("{count} queues: {parent:?} in the parent, {child:?} until the child goes on");
    }
}

//! After a fork: the child starts afresh on what it inherits, nothing of the parent's runs there, nothing hangs, and the
//! parent does not notice.
//!
//! Children are made by the C library's `fork` and say how they fared by their exit status. One that does not end in time
//! is killed, and the test fails.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]
#![cfg(not(any(miri, tsan)))]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nearq_core::{Runtime, Scope, Work, Workqueue, system_unbound};

use common::child::{CHILD_PATIENCE, Child, child, drop_in_child};
use common::{alone, eventually, watch};

/// Everything that one may do with a queue, on an inherited one.
fn uses(queue: &Workqueue) {
    let (sender, receiver) = mpsc::channel();
    let work = Work::new(move |work: &Work| {
        assert!(work.is_running());
        sender.send(std::process::id()).unwrap();
    });
    for _ in 0..3 {
        assert!(queue.queue(&work));
        assert_eq!(receiver.recv_timeout(CHILD_PATIENCE), Ok(std::process::id()));
        eventually("it has ended", || !work.is_running());
    }
    assert!(queue.queue_on(0, &work).unwrap());
    receiver.recv_timeout(CHILD_PATIENCE).unwrap();
    let handles: Vec<_> = (0..200).map(|number| queue.spawn(move || number)).collect();
    let sum: u32 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
    assert_eq!(sum, 199 * 200 / 2);
    let mut halves = [0, 0];
    queue.scope(|scope| {
        for half in &mut halves {
            scope.spawn(move || *half = 1);
        }
    });
    assert_eq!(halves, [1, 1]);
    for scope in [Scope::Cpu, Scope::System, Scope::Cache] {
        queue.set_scope(scope).unwrap();
        assert_eq!(queue.spawn(move || scope).join().unwrap(), scope);
    }
    let limit = queue.max_active();
    queue.set_max_active(1).unwrap();
    let handles: Vec<_> = (0..50).map(|number| queue.spawn(move || number)).collect();
    queue.set_max_active(limit).unwrap();
    assert!(handles.into_iter().enumerate().all(|(at, handle)| handle.join().unwrap() == at));
    assert_eq!(queue.inactive(), 0);
    queue.flush().unwrap();
    queue.drain().unwrap();
}

/// Builds, uses and drops a queue on `runtime`.
fn builds_another(runtime: &Runtime) {
    let other = runtime.workqueue("child's").max_active(2).build_in().unwrap();
    uses(&other);
    drop(other);
}

#[test]
fn a_child_uses_what_it_inherits_and_the_parent_goes_on() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue("inherited").build_in().unwrap();
    // Threads that sleep, and one that runs.
    uses(&queue);
    let parent = std::process::id();
    let threads = common::threads();
    child(|| {
        assert_ne!(std::process::id(), parent);
        assert_eq!(runtime.threads(), 0, "nothing was started");
        assert!(runtime.workers().is_empty());
        assert!(common::threads().is_empty());
        assert_eq!(
            queue.statistics().iter().map(|link| link.started - link.completed).sum::<u64>(),
            0
        );
        uses(&queue);
        assert!(runtime.threads() > 0);
        builds_another(&runtime);
        // Settings of the runtime reach every queue.
        runtime.set_default_scope(Scope::Numa);
        runtime.set_affinity(false);
        runtime.refresh();
        uses(&queue);
        // The last handles: no thread is left. The parent's watchdog has one of the runtime.
        drop_in_child(&queue);
        drop_in_child(&runtime);
        true
    });
    uses_of_parent(&threads);
}

fn uses_of_parent(threads: &std::collections::BTreeMap<u64, String>) {
    let now = common::threads();
    assert!(
        threads.keys().all(|id| now.contains_key(id)),
        "a thread of the parent is gone: {threads:?}, {now:?}"
    );
}

#[test]
fn a_runtime_that_is_dropped_in_the_child_leaves_no_thread() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue("dropped").build_in().unwrap();
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
    assert_eq!(system_unbound().spawn(|| 1).join().unwrap(), 1);
    child(|| {
        assert_eq!(Runtime::default().threads(), 0);
        uses(system_unbound());
        builds_another(&Runtime::default());
        true
    });
    assert_eq!(system_unbound().spawn(|| 2).join().unwrap(), 2);
}

/// 200 forks beside four threads that queue, spawn, hold back, change and drop.
#[test]
fn forks_under_load() {
    const FORKS: usize = 200;
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let wide = runtime.workqueue("wide").scope(Scope::Cpu).build_in().unwrap();
    let narrow = runtime.workqueue("narrow").max_active(2).build_in().unwrap();
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
                        let short = runtime.workqueue("short").build_in().unwrap();
                        let runs = Arc::clone(runs);
                        queued.fetch_add(1, Ordering::Relaxed);
                        drop(short.spawn(move || runs.fetch_add(1, Ordering::Relaxed)));
                        wide.set_scope(Scope::ALL[at / 1000 % 6]).unwrap();
                        narrow.set_max_active(1 + at / 1000 % 4).unwrap();
                    }
                    at += 1;
                }
                for work in &works {
                    eventually("all of it has run", || !work.is_pending() && !work.is_running());
                }
            });
        }
        let parent = std::process::id();
        for round in 0..FORKS {
            let before = runs.load(Ordering::Relaxed);
            child(|| {
                assert_ne!(std::process::id(), parent);
                assert_eq!(runtime.threads(), 0);
                assert_eq!((wide.inactive(), narrow.inactive()), (0, 0));
                assert_eq!(narrow.spawn(|| 1).join().unwrap(), 1);
                assert_eq!(wide.spawn(|| 2).join().unwrap(), 2);
                if round % 8 == 0 {
                    uses(&narrow);
                    uses(&wide);
                    builds_another(&runtime);
                }
                // What was pending in the parent has not run here, although workers were there.
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

/// A runtime that was shut down, or is being, is so in the child too, and can be ended and dropped there.
#[test]
fn beside_a_shutdown() {
    let _alone = alone();
    let _watchdog = watch(None);
    for _ in 0..10 {
        let runtime = Runtime::builder().build().unwrap();
        let queue = runtime.workqueue("shut").build_in().unwrap();
        let gate = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&gate);
        let held = queue.spawn(move || {
            while !own.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let ends_in_the_child = || {
            child(|| {
                assert!(queue.try_queue(&Work::new(|_: &Work| {})).is_err());
                runtime.shutdown(CHILD_PATIENCE).unwrap();
                drop_in_child(&queue);
                drop_in_child(&runtime);
                // Another one is not concerned.
                builds_another(&Runtime::builder().build().unwrap());
                true
            });
        };
        std::thread::scope(|threads| {
            threads.spawn(|| runtime.shutdown(CHILD_PATIENCE).unwrap());
            eventually("it is shut", || queue.try_queue(&Work::new(|_: &Work| {})).is_err());
            ends_in_the_child();
            gate.store(true, Ordering::Relaxed);
        });
        held.join().unwrap();
        ends_in_the_child();
    }
}

#[test]
fn many_forks_at_once() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue("shared").build_in().unwrap();
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
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue("ancestral").build_in().unwrap();
    uses(&queue);
    child(|| {
        uses(&queue);
        // While its own workers are busy.
        let gate = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&gate);
        let held = queue.spawn(move || {
            while !own.load(Ordering::Relaxed) {
                std::thread::yield_now()
            }
        });
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
        gate.store(true, Ordering::Relaxed);
        held.join().unwrap();
        uses(&queue);
        true
    });
    uses(&queue);
}

/// A task of the parent's has no result in the child: whoever waits for it is told.
#[test]
fn handles_of_the_parents_tasks() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue("tasks").max_active(1).build_in().unwrap();
    let done = queue.spawn(|| 7);
    eventually("it has ended", || done.is_finished());
    let gate = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&gate);
    let running = queue.spawn(move || {
        while !own.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(100));
        }
        8
    });
    let waiting = queue.spawn(|| 9);
    let dropped = queue.spawn(|| 10);
    let polled = queue.spawn(|| 11);
    eventually("three wait", || queue.inactive() == 3);
    child(|| {
        assert_eq!(done.join().unwrap(), 7, "what had ended before is there");
        for handle in [running, waiting] {
            assert!(handle.is_finished(), "it will never be more finished here");
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
    gate.store(true, Ordering::Relaxed);
}

#[test]
fn many_items_wait_behind_the_limit() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue("crowded").max_active(1).build_in().unwrap();
    let (gate, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let handles: Vec<_> = (0..500)
        .map(|_| {
            let (gate, runs) = (Arc::clone(&gate), Arc::clone(&runs));
            queue.spawn(move || {
                while !gate.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                runs.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    eventually("they wait", || queue.inactive() == 499);
    for round in 0..20 {
        child(|| {
            gate.store(true, Ordering::Relaxed);
            assert_eq!(queue.inactive(), 0);
            queue.spawn(|| {}).join().unwrap();
            uses(&queue);
            if round % 2 == 0 {
                // The drop waits for nothing of the parent's.
                drop_in_child(&queue);
            }
            runs.load(Ordering::Relaxed) == 0
        });
    }
    assert_eq!(queue.inactive(), 499);
    gate.store(true, Ordering::Relaxed);
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(runs.load(Ordering::Relaxed), 500);
    uses(&queue);
}

/// Threads of the parent wait for a queue when it forks; the child's copy of the queue is empty and open.
#[test]
fn while_others_flush_and_drain() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue("awaited").max_active(2).build_in().unwrap();
    for drains in [false, true] {
        let gate = Arc::new(AtomicBool::new(false));
        for _ in 0..4 {
            let gate = Arc::clone(&gate);
            drop(queue.spawn(move || {
                while !gate.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }));
        }
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| if drains { queue.drain() } else { queue.flush() }.unwrap());
            }
            if drains {
                // Each time another one: the first may be queued, and wait.
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
            gate.store(true, Ordering::Relaxed);
        });
    }
    uses(&queue);
}

/// The queue that a test's items use; items cannot borrow it.
fn shared(runtime: &Runtime, name: &str) -> Arc<Workqueue> {
    Arc::new(runtime.workqueue(name).build_in().unwrap())
}

/// From inside an item: the child is that item's copy, an ordinary thread.
#[test]
fn a_fork_inside_an_item() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = shared(&runtime, "forking");
    for _ in 0..20 {
        let inside = Arc::clone(&queue);
        let handle = queue.spawn(move || {
            nearq_core::set_description("forks");
            child(|| {
                // What a worker may not do, an ordinary thread may: the queue's drop waits for others only.
                uses(&inside);
                builds_another(inside.runtime());
                assert!(
                    inside.runtime().workers().iter().all(|worker| worker.description.is_empty())
                );
                true
            });
            5
        });
        assert_eq!(handle.join().unwrap(), 5, "the parent's item goes on");
    }
    uses(&queue);
}

/// The item returns in the child as well: its thread ends and does nothing to what others use by then.
#[test]
fn a_task_that_forked_returns_in_the_child() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = shared(&runtime, "returning");
    for _ in 0..20 {
        let inside = Arc::clone(&queue);
        let handle = queue.spawn(move || {
            let child = fork_and_return(move || {
                for _ in 0..5 {
                    uses(&inside);
                    builds_another(inside.runtime());
                }
                let handle = inside.spawn(|| 1);
                drop(inside);
                handle.join().unwrap() == 1
            });
            child.is_some()
        });
        // The parent's copy has started a child; the child's copy would have said that it has not.
        assert!(handle.join().unwrap());
        let mut status = -1;
        // SAFETY: any child of ours, and a place for its status.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        assert!(pid > 0 && status == 0, "{pid} {status}");
    }
    uses(&queue);
}

/// Forks; in the child, another thread runs `part` and ends the process, and the caller gets `None`.
fn fork_and_return(part: impl FnOnce() -> bool + Send + 'static) -> Option<libc::pid_t> {
    // SAFETY: the child is ended by the thread that it starts here.
    match unsafe { libc::fork() } {
        0 => {
            std::thread::spawn(move || {
                let outcome = catch_unwind(AssertUnwindSafe(part));
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(!outcome.is_ok_and(|held| held))) }
            });
            None
        }
        pid => {
            assert!(pid > 0, "{}", std::io::Error::last_os_error());
            Some(pid)
        }
    }
}

/// As above for an item that can be queued again: the child's copy is queued in the child while it runs there, and runs once
/// more there, by a worker of the child.
#[test]
fn a_work_that_forked_and_queues_itself_in_the_child() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = shared(&runtime, "requeueing");
    for queued_before in [false, true] {
        let parent = std::process::id();
        let (sender, receiver) = mpsc::channel();
        let inside = Arc::clone(&queue);
        let mut runs = 0;
        let work = Work::new(move |work: &Work| {
            runs += 1;
            if std::process::id() != parent {
                let fresh = inside.runtime().threads() > 0 && runs == 2;
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(if fresh { 0 } else { 3 }) }
            }
            if runs == 2 {
                assert!(queued_before);
                sender.send(0).unwrap();
                return;
            }
            if queued_before {
                assert!(inside.queue(work), "it runs, so it can be queued");
            }
            // SAFETY: the child returns from this function, which is what the test is about.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid != 0 {
                return sender.send(pid).unwrap();
            }
            assert!(work.is_running());
            assert!(!work.is_pending(), "the parent's queueing is not the child's");
            assert!(inside.queue(work));
            assert!(!inside.queue(work));
        });
        assert!(queue.queue(&work));
        Child(receiver.recv_timeout(CHILD_PATIENCE).unwrap()).fares_well();
        if queued_before {
            assert_eq!(receiver.recv_timeout(CHILD_PATIENCE), Ok(0), "once more in the parent");
        }
        eventually("it has ended", || !work.is_running() && !work.is_pending());
    }
    uses(&queue);
}

/// In a scope: the child's end of the scope waits for the child's closures, and not for the parent's.
#[test]
fn a_fork_inside_a_scope() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue("scoped").build_in().unwrap();
    let (gate, ended) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut pid = 0;
    let parent = std::process::id();
    queue.scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !gate.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        // SAFETY: the child leaves the scope and ends below.
        pid = unsafe { libc::fork() };
        if pid == 0 {
            for _ in 0..3 {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    ended.fetch_add(10, Ordering::Relaxed);
                });
            }
        }
        gate.store(pid != 0, Ordering::Relaxed);
    });
    if std::process::id() != parent {
        let own = ended.load(Ordering::Relaxed) == 30;
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!own)) }
    }
    assert_eq!(ended.load(Ordering::Relaxed), 4);
    Child(pid).fares_well();
}

/// `Command` with something to do in the child before `exec` forks for real; the hooks must not disturb it.
#[test]
fn commands_with_and_without_pre_exec() {
    use std::os::unix::process::CommandExt as _;
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = shared(&runtime, "commanding");
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
    /// Medians: the call in the parent, and from the call's beginning to its return in the child.
    fn measure() -> [Duration; 2] {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..FORKS {
            let mut pipe = [0; 2];
            // SAFETY: a place for two descriptors.
            assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
            let begin = Instant::now();
            // SAFETY: the child writes a number and ends.
            let pid = unsafe { libc::fork() };
            let took = begin.elapsed();
            let mut nanos = took.as_nanos() as u64;
            if pid == 0 {
                // SAFETY: eight bytes that are ours.
                unsafe { libc::write(pipe[1], (&raw const nanos).cast(), 8) };
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(0) }
            }
            times[0].push(took);
            // SAFETY: eight bytes that are ours.
            assert_eq!(unsafe { libc::read(pipe[0], (&raw mut nanos).cast(), 8) }, 8);
            times[1].push(Duration::from_nanos(nanos));
            Child(pid).fares_well();
            for end in pipe {
                // SAFETY: ours, and not used any more.
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
            let queue = runtime.workqueue("one of many").scope(Scope::Cpu).build_in().unwrap();
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

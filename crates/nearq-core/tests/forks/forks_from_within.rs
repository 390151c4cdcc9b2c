//! Forks from inside an item, a task, a future or a scope: the child goes on as a copy of it, in an ordinary thread, and the
//! parent's goes on as well.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Duration;

use nearq_core::{Runtime, Work, Workqueue};

use crate::common::child::{CHILD_PATIENCE, Child, builds_another, child, end, end_as, fork, uses};
use crate::common::{Barrier, alone_with_runtime, eventually};

/// The queue that a test's items use; items cannot borrow it.
fn shared(runtime: &Runtime, name: &str) -> Arc<Workqueue> {
    Arc::new(runtime.workqueue_builder(name).build().unwrap())
}

/// From inside an item: the child is that item's copy, an ordinary thread.
#[test]
fn a_fork_inside_an_item() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = shared(&runtime, "forking");
    for _ in 0..20 {
        let inside = Arc::clone(&queue);
        let handle = queue.spawn(move || {
            nearq_core::set_description("forks");
            child(|| {
                // An ordinary thread may do what a worker may not: the queue's drop waits for other threads only.
                uses(&inside);
                builds_another(inside.runtime());
                assert!(
                    inside.runtime().workers().iter().all(|worker| worker.description.is_empty())
                );
                true
            });
            5
        });
        assert_eq!(handle.join().unwrap(), 5, "the parent's item continues");
    }
    uses(&queue);
}

/// The item returns in the child as well: its thread ends, and does not touch what other threads use by then.
#[test]
fn a_task_that_forked_returns_in_the_child() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = shared(&runtime, "returning");
    for _ in 0..20 {
        let inside = Arc::clone(&queue);
        let handle = queue.spawn(move || {
            fork_and_return(move || {
                for _ in 0..5 {
                    uses(&inside);
                    builds_another(inside.runtime());
                }
                let handle = inside.spawn(|| 1);
                drop(inside);
                handle.join().unwrap() == 1
            })
        });
        // The parent's copy says that it has started a child; the child's copy would have said that it has not.
        assert!(handle.join().unwrap());
        let mut status = -1;
        // SAFETY: any child of ours, and a place for its status.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        assert!(pid > 0 && status == 0, "{pid} {status}");
    }
    uses(&queue);
}

/// Forks; true in the parent. In the child, another thread runs `part` and ends the process, and the caller goes on.
fn fork_and_return(part: impl FnOnce() -> bool + Send + 'static) -> bool {
    if fork() != 0 {
        return true;
    }
    std::thread::spawn(move || end_as(part));
    false
}

/// The same for an item that can be queued again: the child's copy is queued in the child while it runs there, and a worker of the child
/// runs it once more.
#[test]
fn a_work_that_forked_and_queues_itself_in_the_child() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = shared(&runtime, "requeueing");
    for queued_before in [false, true] {
        let parent = std::process::id();
        let (sender, receiver) = mpsc::channel();
        let inside = Arc::clone(&queue);
        let mut runs = 0;
        let work = Work::new(move |work: &Work| {
            runs += 1;
            if std::process::id() != parent {
                end(inside.runtime().thread_count() > 0 && runs == 2);
            }
            if runs == 2 {
                assert!(queued_before);
                sender.send(0).unwrap();
                return;
            }
            if queued_before {
                assert!(inside.queue(work), "it runs, so it can be queued");
            }
            // The child returns from this function, which is what the test is about.
            let pid = fork();
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

/// A fork in a scope: in the child, the end of the scope waits for the child's closures, and not for the parent's.
#[test]
fn a_fork_inside_a_scope() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("scoped").build().unwrap();
    let (barrier, ended) = (Barrier::default(), AtomicU32::new(0));
    let mut pid = 0;
    let parent = std::process::id();
    queue.scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        // The child leaves the scope, and ends below.
        pid = fork();
        if pid == 0 {
            for _ in 0..3 {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    ended.fetch_add(10, Ordering::Relaxed);
                });
            }
        } else {
            barrier.open();
        }
    });
    if std::process::id() != parent {
        end(ended.load(Ordering::Relaxed) == 30);
    }
    assert_eq!(ended.load(Ordering::Relaxed), 4);
    Child(pid).fares_well();
}

/// A future whose poll forks goes on in the child, too.
#[test]
fn a_future_that_forks() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("forking").build().unwrap();
    let parent = std::process::id();
    let mut forked = None;
    let task = queue.spawn_future(std::future::poll_fn(move |context: &mut Context<'_>| {
        if forked.is_none() {
            let waker = context.waker().clone();
            // The child ends in the poll that follows its wake.
            forked = Some(fork());
            std::thread::spawn(move || waker.wake());
            return Poll::Pending;
        }
        if std::process::id() != parent {
            end(true);
        }
        Poll::Ready(forked.unwrap())
    }));
    Child(task.join().unwrap()).fares_well();
}

/// A scope inside an item of the same queue, whose closures run in the place of that item: one of them forks, and returns in the child.
#[test]
fn a_scope_within_an_item() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = Arc::new(runtime.workqueue_builder("narrow").max_active(1).build().unwrap());
    for after in [false, true] {
        let (inside, parent) = (Arc::clone(&queue), std::process::id());
        let task = queue.spawn(move || {
            let (runs, forked) = (AtomicU32::new(0), AtomicU32::new(0));
            let queue = &*inside;
            queue.scope(|scope| {
                let (runs, forked) = (&runs, &forked);
                let count = move || {
                    runs.fetch_add(1, Ordering::SeqCst);
                };
                scope.spawn(count);
                scope.spawn(move || {
                    // The child goes on as this thread, and ends below.
                    let pid = fork();
                    if pid == 0 {
                        runs.store(100, Ordering::SeqCst);
                        if after {
                            scope.spawn(count);
                        }
                    } else {
                        forked.store(pid.cast_unsigned(), Ordering::SeqCst);
                    }
                });
                scope.spawn(count);
                scope.spawn(count);
            });
            if std::process::id() != parent {
                // The parent's closures do not run here; the child's own closures do.
                let right = runs.load(Ordering::SeqCst) == 100 + u32::from(after);
                let works = queue.spawn(|| 1).join().unwrap() == 1;
                end(right && works);
            }
            assert_eq!(runs.load(Ordering::SeqCst), 3);
            forked.load(Ordering::SeqCst)
        });
        Child(task.join().unwrap().cast_signed()).fares_well();
    }
}

/// A fork inside a join. The child goes on with the closures that it has; a closure that a thread of the parent has is lost, and the join
/// reports it.
#[test]
fn a_fork_inside_a_join() {
    fn sum(from: u64, to: u64) -> u64 {
        if to - from == 1 {
            return from;
        }
        let middle = u64::midpoint(from, to);
        let (a, b) = nearq_core::join(|| sum(from, middle), || sum(middle, to));
        a + b
    }
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = shared(&runtime, "joining");
    let parent = std::process::id();
    for round in 0..20 {
        let inside = Arc::clone(&queue);
        let task = queue.spawn(move || {
            let mut pid = 0;
            let halves = catch_unwind(AssertUnwindSafe(|| {
                let first = || {
                    if round % 2 == 0 {
                        // Leaves a thief time to steal.
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    pid = fork();
                    sum(0, 1000)
                };
                nearq_core::join(first, || sum(1000, 2000))
            }));
            if std::process::id() != parent {
                let right = match halves {
                    Ok((a, b)) => a + b == 1_999_000,
                    Err(payload) => payload
                        .downcast_ref::<&str>()
                        .is_some_and(|text| text.contains("a thread of the parent runs")),
                };
                let works = inside.join(|| sum(0, 100), || sum(100, 200)) == (4950, 14950);
                end(right && works);
            }
            let (a, b) = halves.unwrap();
            assert_eq!(a + b, 1_999_000);
            pid
        });
        Child(task.join().unwrap()).fares_well();
    }
}

/// The stolen closure forks, and goes on in the child while the child starts threads of its own, on the stacks of threads that the child
/// does not have. The closure's result belongs to one of those stacks.
#[test]
#[allow(clippy::large_stack_arrays, reason = "it is about what lies on stacks")]
fn a_fork_inside_a_stolen_closure_that_returns_in_the_child() {
    const LARGE: usize = 32 << 10;
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = shared(&runtime, "joining");
    let parent = std::process::id();
    for _ in 0..5 {
        let inside = Arc::clone(&queue);
        let task = queue.spawn(move || {
            let pid = AtomicU32::new(0);
            let keep = Arc::clone(&inside);
            let ((), large) = nearq_core::join(
                || std::thread::sleep(Duration::from_millis(100)),
                || {
                    // The closure was stolen, and its owner sleeps.
                    let forked = fork();
                    if forked == 0 {
                        let keep = std::mem::ManuallyDrop::new(keep);
                        // Starts threads of the child that use their stacks, and check them.
                        for _ in 0..4 {
                            std::mem::forget(
                                std::thread::Builder::new().stack_size(2 << 20).spawn(|| {
                                    let mine = [0x11_u8; LARGE * 16];
                                    let mine = std::hint::black_box(&mine);
                                    std::thread::sleep(Duration::from_millis(300));
                                    let wrong = mine.iter().filter(|byte| **byte != 0x11).count();
                                    println!("child's thread: {wrong} bytes were overwritten");
                                    end(wrong == 0);
                                }),
                            );
                        }
                        let _ = &keep;
                        std::thread::sleep(Duration::from_millis(100));
                        return [0xEE_u8; LARGE];
                    }
                    pid.store(forked.cast_unsigned(), Ordering::SeqCst);
                    [0; LARGE]
                },
            );
            assert!(std::process::id() == parent);
            assert_eq!(large[0], 0);
            pid.load(Ordering::SeqCst)
        });
        Child(task.join().unwrap().cast_signed()).fares_well();
    }
}

//! Closures that run once: joined, awaited, dropped, panicking, borrowing, and from within workers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use nearq_core::{AffinityScope, CpuSet, JoinError, Runtime, Work, Workqueue};

use crate::common::{self, PATIENCE, block_on, watch};

fn runtime() -> Runtime {
    Runtime::builder().build().unwrap()
}

fn queue() -> Workqueue {
    runtime().workqueue_builder("spawning").build().unwrap()
}

/// A queue whose pool has one CPU, and so one worker.
fn narrow(runtime: &Runtime) -> Workqueue {
    let first = runtime.allowed_cpus().first().unwrap();
    let narrow = runtime
        .workqueue_builder("narrow")
        .cpumask(CpuSet::single(first))
        .affinity_strict(true)
        .helping(false);
    narrow.affinity_scope(AffinityScope::System).build().unwrap()
}

#[test]
fn tasks_can_be_joined_and_awaited() {
    let queue = queue();
    let _watchdog = watch(Some(queue.runtime()));
    for number in 0..2000 {
        assert_eq!(queue.spawn(move || number * 2).join().unwrap(), number * 2);
        assert_eq!(block_on(queue.spawn(move || number.to_string())).unwrap(), number.to_string());
    }
    let sum = block_on(async {
        let (first, second) = (queue.spawn(|| 1), queue.spawn(|| 2));
        let third = queue.spawn(|| 4).await.unwrap();
        first.await.unwrap() + second.await.unwrap() + third
    });
    assert_eq!(sum, 7);
}

#[test]
fn a_join_with_a_timeout_returns_the_result_or_the_handle() {
    let queue = queue();
    let _watchdog = watch(Some(queue.runtime()));
    let (end, ended) = mpsc::channel::<()>();
    let slow = queue.spawn(move || ended.recv().is_err());
    let timeout = Duration::from_millis(30);
    let began = Instant::now();
    let slow = slow.join_timeout(timeout).expect_err("it has not ended");
    assert!(began.elapsed() >= timeout);
    // No time at all is a question.
    let slow = slow.join_timeout(Duration::ZERO).expect_err("it has not ended");
    drop(end);
    assert!(slow.join_timeout(PATIENCE).expect("it ends").unwrap());

    let panics = queue.spawn(|| panic!("on purpose"));
    assert!(matches!(panics.join_timeout(PATIENCE), Ok(Err(JoinError::Panicked(_)))));
    let future = queue.spawn_future(async { 5 });
    assert_eq!(future.join_timeout(Duration::MAX).expect("it ends").unwrap(), 5);

    // A handle that has waited in vain can be awaited, cancelled or dropped like any other one.
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let slow = queue.spawn(move || ended.lock().unwrap().recv().is_err());
    let slow = slow.join_timeout(Duration::ZERO).expect_err("it has not ended");
    let ender = std::thread::spawn(|| drop(end));
    assert!(block_on(slow).unwrap());
    ender.join().unwrap();
    let never = queue.spawn_future(std::future::pending::<()>());
    let never = never.join_timeout(Duration::from_millis(1)).expect_err("it never ends");
    assert!(never.cancel());
    assert!(never.join_timeout(PATIENCE).expect("it ends").unwrap_err().is_cancelled());
}

#[test]
fn a_worker_that_waits_with_a_timeout_is_replaced() {
    let runtime = runtime();
    let queue = narrow(&runtime);
    let _watchdog = watch(Some(&runtime));
    let handle = queue.handle();
    let outer = queue.spawn(move || handle.spawn(|| 7).join_timeout(PATIENCE).expect("it ends"));
    assert_eq!(outer.join().unwrap().unwrap(), 7);
}

#[test]
fn writes_of_the_closure_are_visible_after_the_join() {
    let queue = queue();
    let _watchdog = watch(Some(queue.runtime()));
    for round in 0..2000 {
        let word = Arc::new(AtomicU64::new(0));
        let word_clone = Arc::clone(&word);
        let handle = queue.spawn(move || word_clone.store(round, Ordering::Relaxed));
        handle.join().unwrap();
        assert_eq!(word.load(Ordering::Relaxed), round);
    }
}

#[test]
fn dropped_handles_do_not_cancel_closures_and_nothing_leaks() {
    let queue = queue();
    let _watchdog = watch(Some(queue.runtime()));
    let tail = Arc::new(AtomicU64::new(0));
    for number in 0..5000 {
        let tail_clone = Arc::clone(&tail);
        let handle = queue.spawn(move || {
            tail_clone.fetch_add(1, Ordering::Relaxed);
            tail_clone
        });
        if number % 3 == 0 {
            while !handle.is_finished() {
                std::thread::yield_now();
            }
        }
        drop(handle);
    }
    drop(queue);
    assert_eq!(tail.load(Ordering::Relaxed), 5000);
    assert_eq!(Arc::strong_count(&tail), 1);
}

#[test]
fn a_panic_reaches_the_joiner_with_its_message() {
    let queue = queue();
    let _watchdog = watch(Some(queue.runtime()));
    let panic = queue.spawn(|| panic!("on purpose: {}", 1 + 1)).join().unwrap_err();
    assert_eq!(panic.message(), Some("on purpose: 2"));
    assert_eq!(panic.to_string(), "the closure panicked: on purpose: 2");
    let panic = block_on(queue.spawn(|| -> u32 { std::panic::panic_any(7_u8) })).unwrap_err();
    assert_eq!(panic.message(), None);
    assert_eq!(*panic.into_panic().unwrap().into_payload().downcast::<u8>().unwrap(), 7);
    drop(queue.spawn(|| panic!("on purpose, and no thread joins it")));
    for _ in 0..100 {
        assert_eq!(queue.spawn(|| 3).join().unwrap(), 3, "the workers survive");
    }
    common::eventually("the panics are counted", || {
        queue.statistics().iter().map(|pwq| pwq.panicked).sum::<u64>() == 3
    });
}

/// Panics when it is dropped.
struct Bomb(Arc<AtomicU32>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose: what a closure captured panics when it is dropped");
    }
}

#[test]
fn a_result_that_panics_when_dropped_does_not_end_a_worker() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = narrow(&runtime);
    let _watchdog = watch(Some(&runtime));
    let drops = Arc::new(AtomicU32::new(0));
    // A result that no thread takes.
    let bomb = Bomb(Arc::clone(&drops));
    let (sender, gate) = mpsc::channel::<()>();
    let handle = queue.spawn(move || {
        let _ = gate.recv();
        bomb
    });
    drop(handle);
    sender.send(()).unwrap();
    common::eventually("the result was dropped", || drops.load(Ordering::SeqCst) == 1);
    // What the closure captured, together with the last handle of an item that runs.
    let bomb = Bomb(Arc::clone(&drops));
    let (sender, gate) = mpsc::channel::<()>();
    let work = Work::new(move |_: &Work| {
        let _ = (&bomb, gate.recv());
    });
    queue.queue(&work);
    drop(work);
    sender.send(()).unwrap();
    common::eventually("the function was dropped", || drops.load(Ordering::SeqCst) == 2);
    assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
    let alive: Vec<_> = runtime.workers().into_iter().map(|worker| worker.thread_id).collect();
    common::eventually("every live worker is listed", || {
        let threads = common::threads();
        alive.iter().all(|id| id.is_some_and(|id| threads.contains_key(&id)))
    });
    drop(queue);
}

#[test]
fn joining_within_the_only_worker() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = Arc::new(narrow(&runtime));
    let _watchdog = watch(Some(&runtime));
    fn deep(queue: &Arc<Workqueue>, depth: u32) -> u32 {
        if depth == 0 {
            return 0;
        }
        let queue_clone = Arc::clone(queue);
        queue.spawn(move || deep(&queue_clone, depth - 1)).join().unwrap() + 1
    }
    for _ in 0..20 {
        assert_eq!(deep(&queue, 8), 8);
    }
    // The same while other items wait beside it.
    let queue_clone = Arc::clone(&queue);
    let sum: u32 = queue
        .spawn(move || {
            let handles: Vec<_> =
                (0..10_u32).map(|number| queue_clone.spawn(move || number)).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).sum()
        })
        .join()
        .unwrap();
    assert_eq!(sum, 45);
}

#[test]
fn scopes_borrow_and_nest_in_workers() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = narrow(&runtime);
    let _watchdog = watch(Some(&runtime));
    let text = "borrowed".to_owned();
    let mut numbers = vec![0_u32; 64];
    let lengths = Mutex::new(Vec::new());
    queue.scope(|scope| {
        for (at, number) in numbers.iter_mut().enumerate() {
            let (lengths, text, queue) = (&lengths, &text, &queue);
            scope.spawn(move || {
                let mut halves = [0; 2];
                // A scope within a worker, on the same queue: other workers take its place meanwhile.
                queue.scope(|inner| {
                    for half in &mut halves {
                        inner.spawn(move || *half = at as u32);
                    }
                });
                *number = halves.iter().sum();
                lengths.lock().unwrap().push(text.len());
            });
        }
    });
    assert_eq!(numbers, (0..64).map(|at| 2 * at).collect::<Vec<_>>());
    assert_eq!(lengths.into_inner().unwrap(), [8; 64]);
}

#[test]
fn closures_of_a_scope_spawn_more_of_them() {
    let queue = queue();
    let _watchdog = watch(Some(queue.runtime()));
    for _ in 0..50 {
        let count = AtomicU32::new(0);
        let value = queue.scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        scope.spawn(|| {
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
            "returned"
        });
        assert_eq!((value, count.load(Ordering::Relaxed)), ("returned", 16));
    }
    assert_eq!(queue.scope(|_| 5), 5, "an empty one");
}

#[test]
fn a_panic_in_a_scope_is_counted() {
    let _watch = watch(None);
    let queue = queue();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        queue.scope(|scope| {
            scope.spawn(|| {});
            scope.spawn(|| panic!("on purpose: one of two"));
        });
    }));
    let message = outcome.unwrap_err();
    assert_eq!(message.downcast_ref::<&str>(), Some(&"on purpose: one of two"));
    let sum = |count: fn(&nearq_core::inspect::PoolStatistics) -> u64| -> u64 {
        queue.statistics().iter().map(count).sum()
    };
    common::eventually("both are counted", || sum(|pwq| pwq.completed) == 2);
    assert_eq!(sum(|pwq| pwq.panicked), 1);
}

#[test]
fn a_panic_leaves_a_scope_after_all_closures_have_ended() {
    let queue = queue();
    let _watchdog = watch(Some(queue.runtime()));
    let message =
        |panic: Box<dyn std::any::Any + Send>| (*panic.downcast::<&str>().unwrap()).to_owned();
    for own in [false, true] {
        let ended = AtomicU32::new(0);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            queue.scope(|scope| {
                for number in 0..20 {
                    let ended = &ended;
                    scope.spawn(move || {
                        if number == 3 {
                            ended.fetch_add(1, Ordering::Relaxed);
                            panic!("on purpose: a closure");
                        }
                        std::thread::sleep(std::time::Duration::from_millis(1));
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(!own, "on purpose: the scope's function");
            });
        }))
        .unwrap_err();
        assert_eq!(ended.load(Ordering::Relaxed), 20, "no closure borrows any more");
        let expected =
            if own { "on purpose: the scope's function" } else { "on purpose: a closure" };
        assert_eq!(message(panic), expected);
    }
}

#[test]
fn a_thread_of_the_program_may_wait_while_workers_wait_too() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = narrow(&runtime);
    let _watchdog = watch(Some(&runtime));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for number in 0..200_u32 {
                    let (left, right) = (queue.spawn(move || number), queue.spawn(|| 1));
                    assert_eq!(right.join().unwrap() + left.join().unwrap(), number + 1);
                }
            });
        }
    });
}

#[test]
fn an_item_runs_where_it_was_queued_for() {
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let strict = runtime
        .workqueue_builder("strict")
        .affinity_scope(AffinityScope::Cpu)
        .affinity_strict(true)
        .build()
        .unwrap();
    let (sender, receiver) = mpsc::channel();
    let work = Work::new(move |_: &Work| {
        sender
            .send(<nearq_platform::Linux as nearq_platform::LockPlatform>::current_cpu())
            .unwrap();
    });
    let cpus: Vec<_> = runtime.allowed_cpus().iter().collect();
    for round in 0..100 {
        let cpu = cpus[round % cpus.len()];
        assert!(strict.queue_on(cpu, &work).unwrap());
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok(cpu));
    }
    let node = runtime.topology().nodes()[0].clone();
    for _ in 0..20 {
        assert!(strict.queue_on_node(node.id, &work).unwrap());
        assert!(node.cpus.contains(receiver.recv_timeout(PATIENCE).unwrap()));
    }
    // With `localize`, an item runs where it was queued, although the pod is wider. This holds nearly always, because a worker cannot be
    // kept there.
    let local = runtime
        .workqueue_builder("local")
        .affinity_scope(AffinityScope::System)
        .localize(true)
        .build()
        .unwrap();
    let rounds = 200;
    let mut there = 0;
    for round in 0..rounds {
        let cpu = cpus[round % cpus.len()];
        assert!(local.queue_on(cpu, &work).unwrap());
        there += usize::from(receiver.recv_timeout(PATIENCE) == Ok(cpu));
    }
    assert!(there > rounds * 8 / 10, "{there} of {rounds} on the CPU that queued them");
}

/// `?` converts the errors into the usual boxed error, which can be shared between threads.
#[test]
fn a_join_error_converts_to_a_boxed_error() {
    fn fails(
        queue: &nearq_core::Workqueue,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        queue.spawn(|| panic!("as the test wants")).join()?;
        Ok(())
    }
    let queue = Runtime::builder().build().unwrap().workqueue_builder("errors").build().unwrap();
    assert_eq!(fails(&queue).unwrap_err().to_string(), "the closure panicked: as the test wants");
}

/// A task that would wait for itself, or for another task that waits for it, gets an error, as `Work::flush` returns one.
#[test]
fn joining_a_task_that_the_joiner_prevents_from_starting_is_an_error() {
    let runtime = runtime();
    let _watchdog = watch(Some(&runtime));
    let queue = Arc::new(runtime.workqueue_builder("ordered").ordered().build().unwrap());
    let queue_clone = Arc::clone(&queue);
    let (inner, outcome) = queue
        .spawn(move || {
            let ran = Arc::new(AtomicU32::new(0));
            let runs = Arc::clone(&ran);
            let handle = queue_clone.spawn(move || runs.fetch_add(1, Ordering::SeqCst));
            (ran, handle.join().map(drop))
        })
        .join()
        .unwrap();
    assert!(matches!(outcome, Err(nearq_core::JoinError::Deadlock)), "{outcome:?}");
    assert!(outcome.unwrap_err().to_string().contains("max_active"));
    // The task goes on by itself.
    queue.flush().unwrap();
    assert_eq!(inner.load(Ordering::SeqCst), 1);

    // The set returns each of them, and is empty afterwards.
    let queue_clone = Arc::clone(&queue);
    let ended = queue.spawn(move || {
        let mut set = queue_clone.join_set();
        (0..3).for_each(|number| set.spawn(move || number));
        let mut deadlocks = 0;
        while let Some(result) = set.blocking_join_next() {
            deadlocks += u32::from(matches!(result, Err(nearq_core::JoinError::Deadlock)));
        }
        (deadlocks, set.len())
    });
    assert_eq!(ended.join().unwrap(), (3, 0));

    // The limit has two places, so one item may wait.
    let two = Arc::new(runtime.workqueue_builder("two").max_active(2).build().unwrap());
    let ready = Arc::new(std::sync::Barrier::new(2));
    let both = [(); 2].map(|()| {
        let (queue_clone, ready) = (Arc::clone(&two), Arc::clone(&ready));
        two.spawn(move || {
            ready.wait();
            let handle = queue_clone.spawn(|| 7);
            ready.wait();
            handle.join()
        })
    });
    let mut outcomes = both.map(|handle| handle.join().unwrap());
    outcomes.sort_by_key(Result::is_ok);
    assert!(matches!(outcomes[0], Err(nearq_core::JoinError::Deadlock)), "{outcomes:?}");
    assert_eq!(*outcomes[1].as_ref().unwrap(), 7);
}

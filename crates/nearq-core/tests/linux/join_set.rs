//! Sets of spawned closures and futures, cancelled closures, and scopes within items of the same queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use nearq_core::{AffinityScope, CpuSet, JoinSet, Runtime, Work, Workqueue};

use crate::common::{PATIENCE, eventually, watch};

fn runtime() -> Runtime {
    Runtime::builder().build().unwrap()
}

/// A queue whose pool has one CPU, and so one worker; and the sender that lets the blocked worker go on.
fn blocked(runtime: &Runtime) -> (Workqueue, mpsc::Sender<()>) {
    let first = runtime.allowed_cpus().first().unwrap();
    let narrow =
        runtime.workqueue_builder("blocked").cpumask(CpuSet::single(first)).affinity_strict(true);
    let queue =
        narrow.max_active(1).helping(false).affinity_scope(AffinityScope::System).build().unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    drop(queue.spawn(move || {
        begun.send(()).unwrap();
        let _ = gate.recv();
    }));
    has_begun.recv_timeout(PATIENCE).unwrap();
    (queue, open)
}

#[test]
fn members_are_joined_in_the_order_in_which_they_end() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("order").max_active(16).build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let mut set = queue.join_set();
    assert!(set.is_empty() && set.blocking_join_next().is_none() && set.try_join_next().is_none());
    let gates: Vec<_> = (0..6_usize)
        .map(|number| {
            let (open, gate) = mpsc::channel::<()>();
            set.spawn(move || {
                gate.recv().unwrap();
                number
            });
            open
        })
        .collect();
    assert_eq!(set.len(), 6);
    for number in [3, 0, 5, 1, 4, 2] {
        assert!(set.try_join_next().is_none());
        gates[number].send(()).unwrap();
        assert_eq!(set.blocking_join_next().unwrap().unwrap(), number);
    }
    assert!(set.is_empty());
}

#[test]
fn a_set_joins_many_closures_and_futures_and_their_panics() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("many").build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let mut set = JoinSet::new(queue.handle());
    for number in 0..10_000_u64 {
        match number % 3 {
            0 => set.spawn(move || number),
            1 => set.spawn_future(async move { number }),
            _ => set.spawn(move || {
                assert!(number != 8, "on purpose: member {number}");
                number
            }),
        }
    }
    let (mut sum, mut panics) = (0, 0);
    while let Some(result) = set.blocking_join_next() {
        match result {
            Ok(number) => sum += number,
            Err(error) => {
                assert_eq!(error.message(), Some("on purpose: member 8"));
                panics += 1;
            }
        }
    }
    assert_eq!((sum, panics), (9_999 * 5_000 - 8, 1));
}

#[test]
fn a_set_can_be_awaited_on_its_own_queue() {
    let runtime = runtime();
    let queue = Arc::new(runtime.workqueue_builder("awaited").build().unwrap());
    let _watchdog = watch(Some(&runtime));
    for _ in 0..100 {
        let queue_clone = Arc::clone(&queue);
        let sum = queue.spawn_future(async move {
            let mut set = queue_clone.join_set();
            for number in 1..=50_u32 {
                set.spawn(move || number);
            }
            let mut sum = 0;
            while let Some(result) = set.join_next().await {
                sum += result.unwrap();
            }
            sum
        });
        assert_eq!(sum.join().unwrap(), 1275);
    }
}

#[test]
fn a_set_can_be_joined_within_the_only_worker() {
    let runtime = runtime();
    let first = runtime.allowed_cpus().first().unwrap();
    let queue =
        runtime.workqueue_builder("narrow").cpumask(CpuSet::single(first)).affinity_strict(true);
    let queue = Arc::new(queue.helping(false).build().unwrap());
    let _watchdog = watch(Some(&runtime));
    let queue_clone = Arc::clone(&queue);
    let handle = queue.spawn(move || {
        let mut set = queue_clone.join_set();
        (0..20).for_each(|number| set.spawn(move || number));
        core::iter::from_fn(|| set.blocking_join_next()).map(Result::unwrap).sum::<u32>()
    });
    assert_eq!(handle.join().unwrap(), 190);
}

#[test]
fn cancelled_closures_are_dropped_immediately() {
    let runtime = runtime();
    let (queue, open) = blocked(&runtime);
    let _watchdog = watch(Some(&runtime));
    let (tail, ran) = (Arc::new(()), Arc::new(AtomicU32::new(0)));
    let spawn = || {
        let (tail_clone, ran) = (Arc::clone(&tail), Arc::clone(&ran));
        queue.spawn(move || {
            ran.fetch_add(1, Ordering::Relaxed);
            drop(tail_clone);
        })
    };
    let handles: Vec<_> = (0..100).map(|_| spawn()).collect();
    let last = spawn();
    for handle in &handles {
        assert!(handle.cancel());
        assert!(handle.is_finished());
    }
    assert_eq!(Arc::strong_count(&tail), 2, "all but the last result");
    for (number, handle) in handles.into_iter().enumerate() {
        if number % 2 == 0 {
            assert!(handle.join().unwrap_err().is_cancelled());
        }
    }
    open.send(()).unwrap();
    last.join().unwrap();
    drop(queue);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

#[test]
fn a_cancel_races_with_the_start() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("race").build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let ran = Arc::new(AtomicU32::new(0));
    let mut cancelled = 0;
    const COUNT: u32 = 20_000;
    for round in 0..COUNT {
        let ran_clone = Arc::clone(&ran);
        let handle = queue.spawn(move || ran_clone.fetch_add(1, Ordering::Relaxed));
        for _ in 0..round % 300 {
            std::hint::spin_loop();
        }
        let did_cancel = handle.cancel();
        cancelled += u32::from(did_cancel);
        assert_eq!(handle.join().is_err(), did_cancel);
    }
    println!("{cancelled} of {COUNT} cancelled");
    assert_eq!(ran.load(Ordering::Relaxed) + cancelled, COUNT);
}

#[test]
fn a_set_cancels_members_that_have_not_started() {
    let runtime = runtime();
    let (queue, open) = blocked(&runtime);
    let _watchdog = watch(Some(&runtime));
    let ran = Arc::new(AtomicU32::new(0));
    let mut set = queue.join_set();
    for number in 0..50 {
        let ran = Arc::clone(&ran);
        let run = move || ran.fetch_add(1, Ordering::Relaxed);
        if number % 2 == 0 { set.spawn(run) } else { set.spawn_future(async move { run() }) }
    }
    set.cancel_all();
    open.send(()).unwrap();
    for _ in 0..50 {
        assert!(set.blocking_join_next().unwrap().unwrap_err().is_cancelled());
    }
    assert!(set.blocking_join_next().is_none());
    drop(set);
    // A set is dropped: what runs goes on, and what has not started is gone.
    let (begun, has_begun) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let (go, signal) = std::sync::mpsc::channel::<std::task::Waker>();
    let mut set = queue.join_set();
    let ran_clone = Arc::clone(&ran);
    let mut polls = 0;
    set.spawn_future(std::future::poll_fn(move |context| {
        polls += 1;
        if polls == 1 {
            go.send(context.waker().clone()).unwrap();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(ran_clone.fetch_add(1000, Ordering::Relaxed))
    }));
    let waker = signal.recv_timeout(PATIENCE).unwrap();
    let ran_clone = Arc::clone(&ran);
    set.spawn(move || {
        begun.send(()).unwrap();
        gate.recv().unwrap();
        ran_clone.fetch_add(100, Ordering::Relaxed)
    });
    has_begun.recv_timeout(PATIENCE).unwrap();
    for number in 0..50 {
        let ran = Arc::clone(&ran);
        let run = move || ran.fetch_add(1, Ordering::Relaxed);
        if number % 2 == 0 { set.spawn(run) } else { set.spawn_future(async move { run() }) }
    }
    drop(set);
    open.send(()).unwrap();
    waker.wake();
    eventually("running members end", || ran.load(Ordering::Relaxed) == 1100);
    drop(queue);
    assert_eq!(ran.load(Ordering::Relaxed), 1100);
}

// ---- scopes within items of the same queue ---------------------------------------------------------------------

#[test]
fn a_scope_within_an_item_of_a_queue_that_runs_one_at_a_time() {
    let runtime = runtime();
    let queue = Arc::new(runtime.workqueue_builder("one").max_active(1).build().unwrap());
    let _watchdog = watch(Some(&runtime));
    let queue_clone = Arc::clone(&queue);
    let order = queue
        .spawn(move || {
            let order = std::sync::Mutex::new(Vec::new());
            queue_clone.scope(|scope| {
                let (queue_clone, order) = (&queue_clone, &order);
                for number in 0..20 {
                    scope.spawn(move || {
                        order.lock().unwrap().push(number);
                        if number == 5 {
                            // A deeper scope, and more closures of the outer one.
                            queue_clone.scope(|inner| {
                                inner.spawn(|| order.lock().unwrap().push(100));
                                inner.spawn(|| order.lock().unwrap().push(101));
                            });
                            scope.spawn(|| order.lock().unwrap().push(200));
                        }
                    });
                }
            });
            order.into_inner().unwrap()
        })
        .join()
        .unwrap();
    let expected: Vec<_> = (0..=5).chain([100, 101]).chain(6..20).chain([200]).collect();
    assert_eq!(order, expected);
    assert_eq!(queue.spawn(|| 6).join().unwrap(), 6, "nodes that were left behind have no effect");
}

#[test]
fn scopes_within_items_that_use_up_max_active() {
    let runtime = runtime();
    let queue = Arc::new(runtime.workqueue_builder("few").max_active(3).build().unwrap());
    let _watchdog = watch(Some(&runtime));
    for _ in 0..50 {
        let count = Arc::new(AtomicU32::new(0));
        let mut set = queue.join_set();
        for _ in 0..6 {
            let (queue_clone, count) = (Arc::clone(&queue), Arc::clone(&count));
            set.spawn(move || {
                queue_clone.scope(|scope| {
                    for _ in 0..10 {
                        scope.spawn(|| {
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            });
        }
        while let Some(result) = set.blocking_join_next() {
            result.unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 60);
    }
}

#[test]
fn an_item_that_keeps_entering_scopes_uses_bounded_memory() {
    let runtime = runtime();
    let queue = Arc::new(runtime.workqueue_builder("endless").max_active(1).build().unwrap());
    let _watchdog = watch(Some(&runtime));
    let queue_clone = Arc::clone(&queue);
    let (sender, receiver) = mpsc::channel();
    let work = Work::new(move |_: &Work| {
        let mut sum = 0_u32;
        for _ in 0..5000 {
            queue_clone.scope(|scope| scope.spawn(|| sum += 1));
        }
        sender.send((sum, queue_clone.inactive())).unwrap();
    });
    queue.queue(&work);
    let (sum, left) = receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(sum, 5000);
    assert!(left <= 2048, "{left}");
}

#[test]
fn a_panic_in_a_scope_within_an_item_is_counted_and_propagated() {
    let runtime = runtime();
    let queue = Arc::new(runtime.workqueue_builder("panics").max_active(1).build().unwrap());
    let _watchdog = watch(Some(&runtime));
    let queue_clone = Arc::clone(&queue);
    let error = queue
        .spawn(move || {
            queue_clone.scope(|scope| {
                scope.spawn(|| std::thread::sleep(Duration::from_millis(1)));
                scope.spawn(|| panic!("on purpose: within"));
            });
        })
        .join()
        .unwrap_err();
    assert_eq!(error.message(), Some("on purpose: within"));
    eventually("the closure and the item are counted", || {
        queue.statistics().iter().map(|pwq| pwq.panicked).sum::<u64>() == 2
    });
}

struct Counted(AtomicU32);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_set_that_has_returned_all_members_holds_no_waker() {
    let runtime = runtime();
    let (queue, open) = blocked(&runtime);
    let mut set = queue.join_set();
    set.spawn(|| ());
    let counted = Arc::new(Counted(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&counted));
    assert!(set.poll_join_next(&mut Context::from_waker(&waker)).is_pending());
    drop(open);
    eventually("it is woken", || counted.0.load(Ordering::SeqCst) == 1);
    for left in [true, false] {
        match set.poll_join_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => assert_eq!(result.is_some(), left),
            Poll::Pending => panic!("it has ended"),
        }
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&counted), 1);
}

/// A future that can no longer be woken, joined or cancelled is dropped, even if it owns a set.
#[test]
fn a_future_that_can_never_be_woken_is_dropped_with_its_set() {
    struct NotifyDrop(mpsc::Sender<()>);
    impl Drop for NotifyDrop {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let runtime = runtime();
    let queue: &'static Workqueue =
        Box::leak(Box::new(runtime.workqueue_builder("leaked").build().unwrap()));
    let (dropped, is_dropped) = mpsc::channel();
    let notify_drop = NotifyDrop(dropped);
    drop(queue.spawn_future(async move {
        let _notify_drop = notify_drop;
        let mut set = queue.join_set();
        set.spawn(|| std::thread::sleep(Duration::from_millis(20)));
        set.join_next().await.unwrap().unwrap();
        std::future::pending::<()>().await;
        drop(set);
    }));
    is_dropped.recv_timeout(PATIENCE).expect("it is dropped");
}

/// A waker is cloned once each time it is registered, so nothing is dropped when a clone panics.
#[test]
fn a_clone_and_a_drop_of_a_waker_that_both_panic() {
    thread_local! {
        static CLONES: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            CLONES.set(CLONES.get() + 1);
            assert!(CLONES.get() != 2, "the second clone");
            RawWaker::new(std::ptr::null(), &TABLE)
        },
        |_| {},
        |_| {},
        |_| panic!("a drop"),
    );
    let runtime = runtime();
    let queue = runtime.workqueue_builder("clones").build().unwrap();
    let mut set = queue.join_set();
    set.spawn_future(std::future::pending::<()>());
    // SAFETY: its functions touch no data.
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) };
    let waker = std::mem::ManuallyDrop::new(waker);
    for _ in 0..3 {
        let poll = || set.poll_join_next(&mut Context::from_waker(&waker)).is_pending();
        let _ = catch_unwind(AssertUnwindSafe(poll));
    }
}

//! Foreign code that the runtime calls: destructors, hooks, panic payloads, closures that change a queue. What it does, and how long it
//! takes, affects nothing else: nothing waits for it, and the runtime's counts stay right if it panics.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

use nearq_core::{AffinityScope, Runtime, Work, Workqueue};

use crate::common::{self, Barrier};

fn runtime() -> Runtime {
    Runtime::builder().build().unwrap()
}

/// A value whose destructor reports the thread in which it ran.
struct DropLog(Arc<Mutex<Vec<ThreadId>>>);

impl DropLog {
    fn new() -> (Self, Arc<Mutex<Vec<ThreadId>>>) {
        let dropped = Arc::default();
        (DropLog(Arc::clone(&dropped)), dropped)
    }
}

impl Drop for DropLog {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(std::thread::current().id());
    }
}

/// An item that captured such a value.
fn item_with_drop_log() -> (Work, Arc<Mutex<Vec<ThreadId>>>) {
    let (drop_log, dropped) = DropLog::new();
    let work = Work::new(move |_: &Work| {
        let _ = &drop_log;
    });
    (work, dropped)
}

fn here() -> Vec<ThreadId> {
    vec![std::thread::current().id()]
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // Without calling the panic hook: ten thousand backtraces take minutes on a busy host.
        resume_unwind(Box::new("on purpose"));
    }
}

/// No worker is free until the gate is opened.
fn busy(queue: &Workqueue) -> Barrier {
    let barrier = Barrier::default();
    let entered = Arc::new(AtomicU32::new(0));
    for _ in 0..queue.runtime().parallelism() {
        let (barrier, entered) = (barrier.clone(), Arc::clone(&entered));
        drop(queue.spawn(move || {
            entered.fetch_add(1, Ordering::SeqCst);
            // Computes, so that no other worker takes its place.
            while !barrier.is_open() {
                std::hint::spin_loop();
            }
        }));
    }
    let all = queue.runtime().parallelism() as u32;
    common::eventually("all are busy", || entered.load(Ordering::SeqCst) == all);
    barrier
}

#[test]
fn a_cancelled_item_on_a_timer_is_freed_with_its_last_handle() {
    let queue = runtime().workqueue_builder("delayed").build().unwrap();
    let (work, dropped) = item_with_drop_log();
    assert!(queue.queue_delayed(&work, Duration::from_hours(1)));
    let second = work.clone();
    assert!(work.cancel_sync().unwrap());
    drop(work);
    assert_eq!(*dropped.lock().unwrap(), [], "a handle is left");
    drop(second);
    assert_eq!(*dropped.lock().unwrap(), here());
}

#[test]
fn a_cancelled_item_on_a_list_is_freed_with_its_last_handle() {
    let queue =
        runtime().workqueue_builder("lists").affinity_scope(AffinityScope::System).build().unwrap();
    let barrier = busy(&queue);
    for times in 0..3 {
        let (work, dropped) = item_with_drop_log();
        assert!(queue.queue(&work) && work.cancel());
        // These queueings have proxies of the first item.
        for _ in 0..times {
            assert!(queue.queue(&work) && work.cancel());
        }
        drop(work);
        assert_eq!(*dropped.lock().unwrap(), here(), "{times} times again");
    }
    barrier.open();
}

#[test]
fn a_cancelled_held_back_item_is_freed_with_its_last_handle() {
    let queue = runtime().workqueue_builder("limited").max_active(1).build().unwrap();
    let barrier = Barrier::default();
    let holder = barrier.hold(&queue);
    let (work, dropped) = item_with_drop_log();
    assert!(queue.queue(&work) && queue.inactive() == 1 && work.cancel());
    drop(work);
    assert_eq!(*dropped.lock().unwrap(), here());
    barrier.open();
    holder.join().unwrap();
    queue.flush().unwrap();
}

/// If the queue is gone, what an item captured is dropped before the item's time; items of other queues keep waiting for theirs.
#[test]
fn items_on_a_timer_are_dropped_with_their_queue() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("gone").build().unwrap();
    let other = runtime.workqueue_builder("there").build().unwrap();
    let ((work, dropped), (kept, keeps)) = (item_with_drop_log(), item_with_drop_log());
    let (sender, runs) = mpsc::channel();
    let later = Work::new(move |_: &Work| sender.send(()).unwrap());
    assert!(other.queue_delayed(&later, Duration::from_millis(300)));
    assert!(queue.queue_delayed(&work, Duration::from_hours(1)));
    assert!(queue.queue_delayed(&kept, Duration::from_hours(1)));
    drop((work, queue));
    common::eventually("the value is dropped", || dropped.lock().unwrap().len() == 1);
    common::eventually("it is free again", || !kept.is_pending());
    assert!(other.queue_delayed(&kept, Duration::from_millis(1)), "by another queue");
    common::eventually("it has run", || !kept.is_pending());
    assert_eq!(*keeps.lock().unwrap(), []);
    runs.recv_timeout(Duration::from_mins(1)).unwrap();
}

/// The execution was the last that could use the value: the worker drops the value, although a cancelled node is left.
#[test]
fn an_item_that_drops_its_last_handle_is_freed_after_its_execution() {
    let queue = Arc::new(
        runtime().workqueue_builder("last").affinity_scope(AffinityScope::System).build().unwrap(),
    );
    let (drop_log, dropped) = DropLog::new();
    let slot: Arc<Mutex<Option<Work>>> = Arc::default();
    let (slot_clone, weak) = (Arc::clone(&slot), Arc::downgrade(&queue));
    let (gone, wait) = mpsc::channel::<()>();
    let at_end = Arc::new(AtomicU32::new(0));
    let at_end_clone = Arc::clone(&at_end);
    let work = Work::new(move |work: &Work| {
        let _ = &drop_log;
        // Until the test has dropped its handle.
        let _ = wait.recv();
        let queue = weak.upgrade().unwrap();
        assert!(queue.queue(work) && work.cancel());
        drop(slot_clone.lock().unwrap().take());
        at_end_clone.store(1, Ordering::SeqCst);
    });
    *slot.lock().unwrap() = Some(work.clone());
    assert!(queue.queue(&work));
    drop(work);
    drop(gone);
    common::eventually("the value is dropped", || dropped.lock().unwrap().len() == 1);
    assert_eq!(at_end.load(Ordering::SeqCst), 1);
    assert_ne!(*dropped.lock().unwrap(), here());
}

/// An item on the timer may have captured the last handle of the very queue that it is for: the timer does not wait for itself.
#[test]
fn a_delayed_item_may_own_the_last_handle_of_its_queue() {
    let runtime = runtime();
    let queue = Arc::new(runtime.workqueue_builder("own").build().unwrap());
    let queue_clone = Arc::clone(&queue);
    let work = Work::new(move |_: &Work| {
        let _ = &queue_clone;
    });
    assert!(queue.queue_delayed(&work, Duration::from_millis(50)));
    drop((work, queue));
    let other = runtime.workqueue_builder("other").build().unwrap();
    let (end, wait) = mpsc::channel::<()>();
    let holder = other.spawn(move || {
        let _ = wait.recv_timeout(Duration::from_mins(1));
    });
    // The shutdown refuses the item when its time has come, and waits for the other item.
    let ender = {
        let runtime = runtime.clone();
        std::thread::spawn(move || runtime.shutdown(Duration::from_mins(1)).is_ok())
    };
    std::thread::sleep(Duration::from_millis(100));
    drop(end);
    holder.join().unwrap();
    assert!(ender.join().unwrap(), "every thread ends, the timer too");
}

/// The last two handles are dropped at once: the value is still dropped with them, before a worker takes the node off its list.
#[test]
fn handles_dropped_at_the_same_time_leave_no_value_behind() {
    // However long this takes, no worker gets the items: the limit holds them back.
    let queue = runtime().workqueue_builder("at once").max_active(1).build().unwrap();
    let barrier = Barrier::default();
    drop(barrier.hold(&queue));
    for _ in 0..300 {
        let (work, dropped) = item_with_drop_log();
        assert!(queue.queue(&work) && work.cancel());
        let other = work.clone();
        let go = Arc::new(AtomicU32::new(0));
        let ready = Arc::clone(&go);
        let thread = std::thread::spawn(move || {
            ready.store(1, Ordering::SeqCst);
            drop(other);
        });
        while go.load(Ordering::SeqCst) == 0 {
            std::hint::spin_loop();
        }
        drop(work);
        thread.join().unwrap();
        assert_eq!(dropped.lock().unwrap().len(), 1);
    }
    barrier.open();
}

/// If destructors panic at any moment of cancelling and queueing again, no worker is lost, and everything ends.
#[test]
fn panicking_destructors_lose_nothing() {
    let runtime = runtime();
    let watchdog = common::watch(Some(&runtime));
    let queue =
        runtime.workqueue_builder("bombs").affinity_scope(AffinityScope::System).build().unwrap();
    for round in 0..5000_u32 {
        let bomb = Bomb;
        let work = Work::new(move |_: &Work| {
            let _ = &bomb;
        });
        queue.queue(&work);
        work.cancel();
        queue.queue(&work);
        (0..round % 200).for_each(|_| std::hint::spin_loop());
        work.cancel();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
    }
    queue.flush().unwrap();
    // Threads are identified by their numbers, because other tests of this process have threads too.
    common::eventually("every counted worker exists", || {
        let (workers, threads) = (runtime.workers(), common::threads());
        let is_there = |id: Option<u64>| id.is_some_and(|id| threads.contains_key(&id));
        workers.len() == runtime.thread_count()
            && workers.iter().all(|worker| is_there(worker.thread_id))
    });
    drop(queue);
    runtime.shutdown(Duration::from_mins(1)).unwrap();
    drop(watchdog);
}

#[test]
fn panic_payloads_of_a_scope_may_panic_themselves() {
    let queue = runtime().workqueue_builder("scope").build().unwrap();
    for itself_too in [false, true] {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            queue.scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| panic_any(Bomb));
                }
                assert!(!itself_too, "the scope's own closure panics");
                Bomb
            })
        }));
        // The payload is one that panics when it is dropped, if the scope passes on a payload of one of its closures.
        match outcome {
            Ok(_) => panic!("three closures have panicked"),
            Err(payload) if payload.is::<Bomb>() => std::mem::forget(payload),
            Err(payload) => assert!(itself_too, "{:?}", payload.downcast_ref::<&str>()),
        }
    }
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
}

/// The payload of another closure takes long to drop; the scope does not wait for that.
#[test]
fn a_scope_does_not_wait_for_payloads_that_it_discards() {
    struct Waits(mpsc::Receiver<()>);
    impl Drop for Waits {
        fn drop(&mut self) {
            let _ = self.0.recv_timeout(Duration::from_mins(2));
        }
    }
    let queue = runtime().workqueue_builder("payloads").build().unwrap();
    let (ends, waits): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel()).unzip();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        queue.scope(|scope| {
            for wait in waits {
                scope.spawn(move || panic_any(Waits(wait)));
            }
        });
    }));
    drop(ends);
    assert!(outcome.is_err_and(|payload| payload.is::<Waits>()));
}

/// Shuts the runtime down, or drops its last handle, in a hook.
fn in_a_hook(stop: bool, act: impl Fn(Runtime) + Send + Sync + 'static) -> Runtime {
    let slot: Arc<OnceLock<Mutex<Option<Runtime>>>> = Arc::default();
    let slot_clone = Arc::clone(&slot);
    let done = Arc::new(AtomicU32::new(0));
    let done_clone = Arc::clone(&done);
    let hook = move |_: &nearq_core::inspect::WorkerInfo| {
        while slot_clone.get().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
        let taken = slot_clone.get().unwrap().lock().unwrap().take();
        if let Some(runtime) = taken {
            act(runtime);
            done_clone.store(1, Ordering::SeqCst);
        }
    };
    let builder = Runtime::builder().idle_timeout(Duration::from_millis(20));
    let builder = if stop { builder.on_worker_stop(hook) } else { builder.on_worker_start(hook) };
    let runtime = builder.build().unwrap();
    slot.set(Mutex::new(Some(runtime.clone()))).unwrap();
    let queue = runtime.workqueue_builder("hooks").build().unwrap();
    queue.spawn(|| ()).join().unwrap();
    drop(queue);
    common::eventually("the hook is over", || done.load(Ordering::SeqCst) == 1);
    runtime
}

#[test]
fn a_hook_cannot_shut_its_runtime_down_and_changes_nothing() {
    for stop in [false, true] {
        let runtime = in_a_hook(stop, |runtime| {
            let refused = runtime.shutdown(Duration::from_mins(1)).unwrap_err();
            assert!(matches!(refused, nearq_core::ShutdownError::WouldDeadlock));
        });
        let queue = runtime.workqueue_builder("after").build().unwrap();
        assert_eq!(queue.try_spawn(|| 7).unwrap().join().unwrap(), 7);
        drop(queue);
        runtime.shutdown(Duration::from_mins(1)).unwrap();
    }
}

#[test]
fn the_last_handle_may_be_dropped_in_a_hook() {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    // The hook keeps a handle until the test has dropped its own.
    let (gone, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let builder = Runtime::builder().idle_timeout(Duration::from_millis(20));
    let slot: Arc<Mutex<Option<Runtime>>> = Arc::default();
    let slot_clone = Arc::clone(&slot);
    let runtime = builder
        .on_worker_stop(move |_| {
            let Some(runtime) = slot_clone.lock().unwrap().take() else { return };
            let _ = wait.lock().unwrap().recv();
            drop(runtime);
            sender.lock().unwrap().send(()).unwrap();
        })
        .build()
        .unwrap();
    *slot.lock().unwrap() = Some(runtime.clone());
    let queue = runtime.workqueue_builder("last handle").build().unwrap();
    queue.spawn(|| ()).join().unwrap();
    drop(queue);
    common::eventually("the hook has it", || slot.lock().unwrap().is_none());
    drop(runtime);
    drop(gone);
    receiver
        .recv_timeout(Duration::from_mins(1))
        .expect("the drop does not wait for its own thread");
}

#[test]
fn a_closure_that_changes_a_queue_may_use_it() {
    let queue = runtime().workqueue_builder("changed").build().unwrap();
    queue
        .change(|attributes| {
            assert!(queue.max_active() > 0 && !queue.attributes().affinity_strict);
            queue.set_max_active(7).unwrap();
            // The other change stays in effect, except for attributes that this one changes as well.
            queue.set_helping(false).unwrap();
            queue.set_affinity_strict(true).unwrap();
            attributes.localize = true;
            attributes.affinity_strict = true;
        })
        .unwrap();
    let attributes = queue.attributes();
    assert!(attributes.localize && attributes.affinity_strict && !attributes.helping);
    assert_eq!(queue.max_active(), 7);
}

#[test]
fn the_largest_numbers_are_accepted() {
    let long = Duration::from_secs(18_446_744_074);
    let runtime = Runtime::builder().idle_timeout(long).cpu_intensive_after(long).build().unwrap();
    assert!(runtime.cpu_intensive_after() > Duration::from_hours(24 * 365 * 500));
    let queue = runtime.workqueue_builder("long").build().unwrap();
    assert_eq!(runtime.trace(None, u32::MAX).every(), 1 << 20);
    queue.spawn(|| ()).join().unwrap();
    // Truncated to 64 bits, this delay would be 0.3 s.
    std::thread::sleep(Duration::from_millis(500));
    assert_ne!(runtime.thread_count(), 0, "idle workers stay");
}

/// Too many handles do not cause a panic, which could be caught: the process ends, as with `Arc`.
#[test]
fn overflowing_the_handle_count_aborts_the_process() {
    const NAME: &str = "foreign::overflowing_the_handle_count_aborts_the_process";
    if std::env::var_os("NEARQ_TEST_CHILD").is_some() {
        let work = Work::new(|_: &Work| {});
        for _ in 0..1 << 24 {
            let _ = catch_unwind(AssertUnwindSafe(|| std::mem::forget(work.clone())));
        }
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([NAME, "--exact", "--nocapture"])
        .env("NEARQ_TEST_CHILD", "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("8388607 handles"), "{stderr}");
}

/// A rescuer drops the last handle of its queue in a hook: it does not wait for its own end.
#[test]
fn a_rescuers_hook_may_drop_its_queue() {
    let slot: Arc<Mutex<Option<Workqueue>>> = Arc::default();
    let slot_clone = Arc::clone(&slot);
    let (done, over) = mpsc::channel();
    let done = Mutex::new(done);
    let hook = move |info: &nearq_core::inspect::WorkerInfo| {
        if !info.name.starts_with("nq/R-") {
            return;
        }
        while slot_clone.lock().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
        let queue = slot_clone.lock().unwrap().take();
        drop(queue);
        done.lock().unwrap().send(()).unwrap();
    };
    let runtime = Runtime::builder().on_worker_start(hook).build().unwrap();
    let queue = runtime.workqueue_builder("rescued").rescuer().build().unwrap();
    *slot.lock().unwrap() = Some(queue);
    over.recv_timeout(Duration::from_mins(1)).expect("the hook comes to its end");
    runtime.shutdown(Duration::from_mins(1)).unwrap();
}

/// The queue of the item is gone when the item's time comes, and the timer had the last reference: the destructor holds up no other
/// deadline.
#[test]
fn a_delayed_item_without_a_queue_delays_no_other_deadline() {
    struct Waits(mpsc::Receiver<()>);
    impl Drop for Waits {
        fn drop(&mut self) {
            let _ = self.0.recv_timeout(Duration::from_mins(1));
        }
    }
    let runtime = runtime();
    let (end, wait) = mpsc::channel();
    let waits = Mutex::new(Waits(wait));
    let work = Work::new(move |_: &Work| {
        let _ = &waits;
    });
    let gone = runtime.workqueue_builder("gone").build().unwrap();
    assert!(gone.queue_delayed(&work, Duration::from_millis(10)));
    drop((work, gone));
    let queue = runtime.workqueue_builder("other").build().unwrap();
    let (sender, runs) = mpsc::channel();
    let other = Work::new(move |_: &Work| sender.send(()).unwrap());
    assert!(queue.queue_delayed(&other, Duration::from_millis(50)));
    runs.recv_timeout(Duration::from_secs(30)).expect("the timer waits for no thread");
    drop(end);
}

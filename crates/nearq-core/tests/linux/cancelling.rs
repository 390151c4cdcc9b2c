//! Cancelling, disabling and waiting for items, on this machine.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use nearq_core::{CancelToken, Error, Runtime, Work, Workqueue};
use nearq_platform::{Linux, Threads};

use crate::common::{self, eventually};

/// A separate runtime, and a queue on it.
fn queue(max_active: usize) -> Workqueue {
    let runtime = Runtime::builder().build().unwrap();
    runtime.workqueue_builder("cancelling").max_active(max_active).build().unwrap()
}

/// An item that counts its runs, and blocks in each until it is released.
struct Gate {
    work: Work,
    entered: Arc<AtomicU32>,
    open: Arc<AtomicU32>,
}

impl Gate {
    fn new() -> Self {
        let (entered, open) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (entered_clone, until) = (Arc::clone(&entered), Arc::clone(&open));
        let work = Work::new(move |_: &Work| {
            entered_clone.fetch_add(1, Ordering::SeqCst);
            while until.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        Gate { work, entered, open }
    }

    /// A queue on which an item runs.
    fn entered(queue: &Workqueue) -> Self {
        let gate = Self::new();
        assert!(queue.queue(&gate.work));
        common::eventually("it runs", || gate.entered.load(Ordering::SeqCst) == 1);
        gate
    }

    fn open(&self) {
        self.open.store(1, Ordering::SeqCst);
    }
}

impl Drop for Gate {
    /// So that a test that fails does not wait for ever.
    fn drop(&mut self) {
        self.open();
    }
}

/// Starts a thread that waits for an item; returns once the thread waits.
fn waiter(work: &Work) -> std::thread::JoinHandle<Result<bool, Error>> {
    let (work, (sender, receiver)) = (work.clone(), std::sync::mpsc::channel());
    let waiter = std::thread::spawn(move || {
        sender.send(Linux::thread_id(Linux::current_thread())).unwrap();
        work.flush()
    });
    let thread = receiver.recv().unwrap();
    common::eventually("it waits", || common::sleeps(thread));
    waiter
}

/// An item that counts its runs.
fn counter() -> (Work, Arc<AtomicU32>) {
    let runs = Arc::new(AtomicU32::new(0));
    let runs_clone = Arc::clone(&runs);
    let work = Work::new(move |_: &Work| {
        runs_clone.fetch_add(1, Ordering::SeqCst);
    });
    (work, runs)
}

#[test]
fn a_held_back_item_can_be_cancelled_and_queued_again_at_the_end() {
    let queue = queue(1);
    let gate = Gate::entered(&queue);
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let works: Vec<Work> = (0..4)
        .map(|number| {
            let order = Arc::clone(&order);
            Work::new(move |_: &Work| order.lock().unwrap().push(number))
        })
        .collect();
    for work in &works {
        assert!(queue.queue(work));
    }
    assert_eq!(queue.inactive(), 4);
    assert!(works[0].cancel());
    assert!(!works[0].cancel(), "only once");
    assert!(!works[0].is_pending());
    assert_eq!(queue.inactive(), 3);
    assert!(queue.queue(&works[0]), "again, behind the others");
    assert!(!queue.queue(&works[0]));
    assert!(works[0].cancel());
    assert!(queue.queue(&works[0]), "and once more");
    assert!(works[2].cancel());
    gate.open();
    works[0].flush().unwrap();
    assert_eq!(*order.lock().unwrap(), [1, 3, 0]);
    // An execution is counted a moment after it has ended.
    common::eventually("four executions", || common::completed(&queue) == 4);
}

/// The second cancelled queueing has a node of its own, which has a reference to the item.
#[test]
fn a_repeatedly_cancelled_item_is_freed() {
    for max_active in [1, 8] {
        let queue = queue(max_active);
        let gates: Vec<_> = (0..max_active).map(|_| Gate::entered(&queue)).collect();
        let captured = Arc::new(());
        let alive = Arc::downgrade(&captured);
        let work = Work::new(move |_: &Work| drop(Arc::clone(&captured)));
        for _ in 0..3 {
            assert!(queue.queue(&work));
            assert!(work.cancel());
        }
        drop(work);
        gates.iter().for_each(Gate::open);
        queue.flush().unwrap();
        drop(queue);
        common::eventually("the item is freed", || alive.strong_count() == 0);
    }
}

#[test]
fn an_item_cancelled_while_held_back_works_normally_afterwards() {
    let runtime = Runtime::builder().thread_limit(1).build().unwrap();
    let narrow = runtime.workqueue_builder("narrow").max_active(1).build().unwrap();
    let wide = runtime.workqueue_builder("wide").build().unwrap();
    let gate = Gate::entered(&narrow);
    let ((work, runs), (behind, _)) = (counter(), counter());
    narrow.queue(&work);
    narrow.queue(&behind);
    assert!(work.cancel());
    gate.open();
    // The worker that admits the item has taken the cancelled one off the list before.
    behind.flush().unwrap();
    // The item is admitted at once, and waits for the only worker.
    let gate = Gate::entered(&wide);
    assert!(wide.queue(&work) && work.cancel());
    assert_eq!((wide.inactive(), narrow.inactive()), (0, 0));
    assert!(wide.queue(&work));
    gate.open();
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    common::eventually("two executions", || common::completed(&wide) == 2);
}

#[test]
fn a_cancelled_item_frees_its_place_at_once_and_the_queue_ends() {
    let (work, runs) = counter();
    let runtime = Runtime::builder().build().unwrap();
    for _ in 0..2000 {
        let queue = runtime.workqueue_builder("short-lived").max_active(2).build().unwrap();
        queue.queue(&work);
        work.cancel();
        drop(queue);
        assert!(!work.is_pending() && !work.is_running());
    }
    assert!(runs.load(Ordering::SeqCst) <= 2000);
}

#[test]
fn an_item_that_queues_itself_cannot_escape() {
    let queue = Arc::new(queue(0));
    for _ in 0..100 {
        let runs = Arc::new(AtomicU32::new(0));
        let (again, runs_clone) = (Arc::clone(&queue), Arc::clone(&runs));
        let work = Work::new(move |work: &Work| {
            runs_clone.fetch_add(1, Ordering::SeqCst);
            again.queue(work);
        });
        queue.queue(&work);
        common::eventually("it runs", || runs.load(Ordering::SeqCst) > 3);
        work.cancel_sync().unwrap();
        let seen = runs.load(Ordering::SeqCst);
        assert!(!work.is_pending() && !work.is_running());
        std::thread::yield_now();
        assert_eq!(runs.load(Ordering::SeqCst), seen);
    }
}

#[test]
fn a_disabled_item_refuses_until_it_is_enabled_as_often() {
    let queue = queue(0);
    let (work, runs) = counter();
    assert!(!work.disable());
    assert!(!work.disable_sync().unwrap());
    assert!(work.is_disabled());
    assert!(!queue.queue(&work));
    assert!(!work.enable());
    assert!(!queue.enable_and_queue(&Work::clone(&work)) || runs.load(Ordering::SeqCst) <= 1);
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(!work.is_disabled());
    assert!(queue.queue(&work));
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[test]
fn disabling_a_pending_item_cancels_it() {
    let queue = queue(1);
    let gate = Gate::entered(&queue);
    let (work, runs) = counter();
    queue.queue(&work);
    assert!(work.disable());
    assert!(!queue.queue(&work));
    assert!(!gate.work.disable(), "it runs, and is not pending");
    gate.open();
    gate.work.flush().unwrap();
    assert!(work.enable() && gate.work.enable());
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[test]
fn a_flush_waits_for_the_last_queueing_and_not_for_later_ones() {
    let queue = Arc::new(queue(0));
    let (work, runs) = counter();
    assert!(!work.flush().unwrap(), "idle");
    queue.queue(&work);
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    // An item that requeues itself for ever keeps no thread waiting.
    let again = Arc::clone(&queue);
    let endless = Work::new(move |work: &Work| {
        again.queue(work);
    });
    queue.queue(&endless);
    for _ in 0..1000 {
        endless.flush().unwrap();
    }
    endless.cancel_sync().unwrap();
    assert!(!endless.flush().unwrap());
}

#[test]
fn cancelling_a_later_queueing_does_not_end_the_wait_for_an_execution() {
    let queue = queue(1);
    let gate = Gate::entered(&queue);
    let waiter = waiter(&gate.work);
    for _ in 0..3 {
        assert!(queue.queue(&gate.work));
        assert!(gate.work.cancel());
    }
    std::thread::sleep(Duration::from_millis(20));
    let waits = gate.work.is_running() && !waiter.is_finished();
    // A thread that begins to wait after the cancellations waits for the execution that runs, and for the one that is queued behind it.
    assert!(queue.queue(&gate.work));
    let last = gate.work.flushed();
    gate.open();
    assert!(waits, "the awaited item was still running");
    assert!(waiter.join().unwrap().unwrap());
    assert!(queue.spawn_future(last).join().unwrap().unwrap());
    assert_eq!(gate.entered.load(Ordering::SeqCst), 2);
    // Nothing of that is left for the next waiter.
    assert!(!gate.work.flush().unwrap());
    queue.queue(&gate.work);
    gate.work.flush().unwrap();
    assert_eq!(gate.entered.load(Ordering::SeqCst), 3);
}

#[test]
fn a_cancel_ends_the_wait_for_a_queued_item() {
    let queue = queue(1);
    let gate = Gate::entered(&queue);
    let (work, runs) = counter();
    queue.queue(&work);
    let waiter = waiter(&work);
    assert!(!waiter.is_finished());
    assert!(work.cancel());
    assert_eq!(waiter.join().unwrap(), Ok(true));
    gate.open();
    gate.work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[test]
fn waiting_for_oneself_is_an_error() {
    let queue = Arc::new(queue(1));
    let (sender, receiver) = std::sync::mpsc::channel();
    let (behind, _) = counter();
    let queue_clone = Arc::clone(&queue);
    let work = Work::new(move |work: &Work| {
        queue_clone.queue(&behind);
        sender
            .send((work.flush(), work.cancel_sync(), work.disable_sync(), behind.flush()))
            .unwrap();
    });
    queue.queue(&work);
    let (flush, cancel, disable, other) = receiver.recv().unwrap();
    for outcome in [flush, cancel, disable, other] {
        assert!(matches!(outcome, Err(Error::Deadlock(_))), "{outcome:?}");
    }
    work.flush().unwrap();
    assert!(!work.is_disabled());
}

#[test]
fn the_last_active_item_may_not_wait_for_a_held_back_item() {
    let queue = Arc::new(queue(3));
    let (held_back, runs) = counter();
    let (sender, receiver) = std::sync::mpsc::channel();
    let ready = Arc::new(std::sync::Barrier::new(4));
    let waiters: Vec<Work> = (0..3)
        .map(|_| {
            let (ready, sender, held_back) =
                (Arc::clone(&ready), sender.clone(), held_back.clone());
            Work::new(move |_: &Work| {
                ready.wait();
                // It was queued by the main thread.
                ready.wait();
                sender.send(held_back.flush()).unwrap();
            })
        })
        .collect();
    for work in &waiters {
        queue.queue(work);
    }
    ready.wait();
    assert!(queue.queue(&held_back));
    assert_eq!(queue.inactive(), 1);
    ready.wait();
    let mut outcomes: Vec<_> = (0..3).map(|_| receiver.recv().unwrap()).collect();
    // The item whose wait is refused ends, and so makes the place for which the others wait.
    outcomes.sort_by_key(Result::is_ok);
    assert!(matches!(outcomes[0], Err(Error::Deadlock(_))), "{outcomes:?}");
    assert_eq!(outcomes[1..], [Ok(true), Ok(true)]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn concurrent_queueing_cancelling_disabling_and_waiting() {
    let queues: Arc<Vec<Workqueue>> = Arc::new((0..3).map(|number| queue(number * 2)).collect());
    let running = Arc::new(AtomicU32::new(0));
    let runs = Arc::new(AtomicU32::new(0));
    let (inside, count, from) = (Arc::clone(&running), Arc::clone(&runs), Arc::clone(&queues));
    let work = Work::new(move |work: &Work| {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one execution at a time");
        let run = count.fetch_add(1, Ordering::SeqCst);
        if run % 3 == 0 {
            from[run as usize % 2].queue(work);
        }
        if run % 7 == 0 {
            work.cancel();
        }
        inside.fetch_sub(1, Ordering::SeqCst);
    });
    common::from_all_sides(5000, |dice| match dice % 8 {
        0..=3 => _ = queues[dice as usize / 8 % 3].queue(&work),
        4 | 5 => _ = work.cancel(),
        6 => _ = work.flush().unwrap(),
        _ => _ = work.cancel_sync().unwrap(),
    });
    work.cancel_sync().unwrap();
    assert!(!work.is_pending() && !work.is_running());
    let before = runs.load(Ordering::SeqCst);
    queues[0].queue(&work);
    work.flush().unwrap();
    assert!(runs.load(Ordering::SeqCst) > before);
    work.cancel_sync().unwrap();
}

/// The temporary disabling by `cancel_sync` is not undone by an `enable` of another thread, which has nothing to undo.
#[test]
fn enable_does_not_undo_cancel_sync() {
    let queue = queue(4);
    let gate = Gate::entered(&queue);
    let cancellers: Vec<_> = (0..40)
        .map(|_| {
            let work = gate.work.clone();
            std::thread::spawn(move || work.cancel_sync())
        })
        .collect();
    common::eventually("it refuses to be queued", || gate.work.is_disabled());
    for _ in 0..5 {
        let enabled = std::panic::catch_unwind(|| gate.work.enable());
        assert!(enabled.is_err(), "there is nothing to enable");
    }
    // It can be enabled as often as it was disabled, and not more often.
    gate.work.disable();
    assert!(!gate.work.enable(), "cancel_sync still waits");
    assert!(std::panic::catch_unwind(|| gate.work.enable()).is_err());
    assert!(gate.work.is_disabled() && !queue.queue(&gate.work));
    gate.open();
    for canceller in cancellers {
        assert!(!canceller.join().unwrap().unwrap(), "it was not queued");
    }
    assert!(!gate.work.is_disabled());
    assert!(queue.queue(&gate.work));
    queue.flush().unwrap();
    assert_eq!(gate.entered.load(Ordering::SeqCst), 2);
}

#[test]
fn the_disable_count_has_a_limit() {
    let queue = queue(4);
    let (work, runs) = counter();
    (0..4094).for_each(|_| assert!(!work.disable()));
    assert!(std::panic::catch_unwind(|| work.disable()).is_err());
    assert!(!work.cancel_sync().unwrap(), "there is room for that");
    for left in (0..4094).rev() {
        assert_eq!(work.enable(), left == 0);
    }
    assert!(queue.queue(&work));
    queue.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// An item is cancelled and queued again while all workers are busy: the nodes that this leaves on the pool's list do not accumulate
/// without limit.
#[test]
#[cfg(not(miri))]
fn cancelled_queueings_do_not_pile_up_behind_busy_workers() {
    use crate::common::{command, output_text, part};
    if part().is_none() {
        let test = cancelled_queueings_do_not_pile_up_behind_busy_workers;
        let output = command(test, "child").output().unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        return;
    }
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let queue = Runtime::builder().build().unwrap().workqueue_builder("debounced").build().unwrap();
    let barrier = crate::common::Barrier::default();
    for _ in 0..queue.runtime().parallelism() {
        let barrier = barrier.clone();
        drop(queue.spawn(move || {
            while !barrier.is_open() {
                std::hint::spin_loop();
            }
        }));
    }
    let work = Work::new(|_: &Work| {});
    let before = resident();
    // Each time leaves a node of some 80 bytes. ThreadSanitizer uses additional memory for each node, and is many times slower.
    let rounds = if cfg!(tsan) { 20_000 } else { 400_000 };
    for round in 0..rounds {
        work.cancel();
        queue.queue(&work);
        if round % 10_000 == 0 {
            // The monitor checks every few milliseconds; on a busy machine this thread would be faster.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let more = resident().saturating_sub(before) >> 20;
    assert!(cfg!(tsan) || more < 12, "{more} MiB");
    work.cancel();
    barrier.open();
}

#[test]
fn a_closure_that_runs_can_ask_whether_it_was_cancelled() {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let queue = runtime.workqueue_builder("asked").build().expect("the call succeeds");
    let (sender, receiver) = mpsc::channel();
    let until_asked = move || {
        sender.send(nearq_core::is_cancelled()).unwrap();
        eventually("it is asked", nearq_core::is_cancelled);
        5
    };
    let task = queue.spawn(until_asked.clone());
    assert_eq!(receiver.recv(), Ok(false));
    assert!(!task.cancel(), "it has begun");
    assert_eq!(task.join().unwrap(), 5, "so it has a result");
    // A set that is dropped asks those that run.
    let mut set = queue.join_set();
    set.spawn(until_asked);
    assert_eq!(receiver.recv(), Ok(false));
    drop(set);
    queue.flush().unwrap();
    assert!(!nearq_core::is_cancelled(), "no item");
    // The next item on the same worker was not asked.
    assert!(!queue.spawn(nearq_core::is_cancelled).join().unwrap());
}

#[test]
fn what_is_tied_to_a_future_is_cancelled_with_it() {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let queue = runtime.workqueue_builder("tied").max_active(1).build().expect("it is valid");
    let mut context = Context::from_waker(Waker::noop());
    // One that runs, and one that has not begun.
    let (sender, receiver) = mpsc::channel();
    let runs = queue.spawn(move || {
        sender.send(false).unwrap();
        eventually("it is asked", nearq_core::is_cancelled);
        sender.send(true).unwrap();
    });
    assert_eq!(receiver.recv(), Ok(false));
    let captured = Arc::new(());
    let waits = queue.spawn({
        let captured = Arc::clone(&captured);
        move || drop(captured)
    });
    let (mut runs, mut waits) = (runs.cancel_on_drop(), waits.cancel_on_drop());
    assert!(Pin::new(&mut runs).poll(&mut context).is_pending());
    assert!(Pin::new(&mut waits).poll(&mut context).is_pending());
    drop(waits);
    assert_eq!(Arc::strong_count(&captured), 1, "it is dropped at once");
    drop(runs);
    assert_eq!(receiver.recv(), Ok(true));
    // A future that waits for a wake.
    let of_future = Arc::clone(&captured);
    let never = async move {
        std::future::pending::<()>().await;
        drop(of_future);
    };
    let mut never = queue.spawn_future(never).cancel_on_drop();
    assert!(Pin::new(&mut never).poll(&mut context).is_pending());
    drop(never);
    eventually("it is dropped", || Arc::strong_count(&captured) == 1);
    // What is awaited to its end is not cancelled.
    let results = [queue.spawn(|| 1), queue.spawn_future(async { 2 })];
    let results = results.map(|task| common::block_on(task.cancel_on_drop()).unwrap());
    assert_eq!(results, [1, 2]);
}

#[test]
fn an_item_that_is_disabled_or_awaited_by_cancel_sync_should_end_early() {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let queue = runtime.workqueue_builder("asked").build().expect("the call succeeds");
    let (sender, receiver) = mpsc::channel();
    let work = Work::new(move |_: &Work| {
        sender.send(nearq_core::is_cancelled()).unwrap();
        eventually("it is asked", nearq_core::is_cancelled);
        sender.send(true).unwrap();
    });
    for _ in 0..2 {
        assert!(queue.queue(&work));
        assert_eq!(receiver.recv(), Ok(false));
        assert!(!work.cancel_sync().unwrap());
        assert_eq!(receiver.recv(), Ok(true));
    }
    assert!(queue.queue(&work));
    assert_eq!(receiver.recv(), Ok(false));
    assert!(!work.disable_sync().unwrap());
    assert_eq!(receiver.recv(), Ok(true));
}

#[test]
fn a_token_reaches_closures_and_futures_and_its_children() {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let queue = runtime.workqueue_builder("tokens").build().expect("the call succeeds");
    let service = CancelToken::new();
    let (request, other) = (service.child(), service.child());
    let deepest = request.child();
    let wait = |token: &CancelToken| {
        let token = token.clone();
        queue.spawn(move || eventually("it is cancelled", || token.is_cancelled()))
    };
    let awaits = |token: &CancelToken| queue.spawn_future(token.cancelled());
    let tasks = [wait(&request), wait(&deepest), awaits(&request), awaits(&deepest)];
    let rest = [wait(&other), awaits(&other), awaits(&service)];
    request.cancel();
    for task in tasks {
        task.join().unwrap();
    }
    assert!(!service.is_cancelled() && !other.is_cancelled());
    assert!(rest.iter().all(|task| !task.is_finished()));
    drop(other.cancelled());
    service.cancel();
    for task in rest {
        task.join().unwrap();
    }
    let late = service.child();
    assert!(late.is_cancelled(), "made after that");
}

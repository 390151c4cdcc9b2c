//! Futures on a queue's workers: they are woken from anywhere, are cancelled, panic, or lose their queue.

use std::cell::UnsafeCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nearq_core::{AffinityScope, CpuSet, JoinHandle, Runtime, Workqueue};

use crate::common::{eventually, watch};

fn runtime() -> Runtime {
    Runtime::builder().build().unwrap()
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

/// The signal that a future waits for.
#[derive(Clone, Default)]
struct Signal(Arc<(AtomicBool, Mutex<Option<Waker>>)>);

impl Signal {
    fn fire(&self) {
        self.0.0.store(true, Ordering::Release);
        let waker = self.0.1.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_waited_for(&self) -> bool {
        self.0.1.lock().unwrap().is_some()
    }

    async fn wait(&self) {
        poll_fn(|context| {
            *self.0.1.lock().unwrap() = Some(context.waker().clone());
            if self.0.0.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// A future that lets others run, once.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A future that waits for a signal, and has been polled.
fn waiting(queue: &Workqueue) -> (Signal, JoinHandle<u32>) {
    let signal = Signal::default();
    let signal_clone = signal.clone();
    let handle = queue.spawn_future(async move {
        signal_clone.wait().await;
        7
    });
    eventually("it waits", || signal.is_waited_for());
    (signal, handle)
}

#[test]
fn futures_await_closures_and_each_other() {
    let runtime = runtime();
    let queue = Arc::new(runtime.workqueue_builder("futures").build().unwrap());
    let _watchdog = watch(Some(&runtime));
    for round in 0..500_u64 {
        let queue_clone = Arc::clone(&queue);
        let handle = queue.spawn_future(async move {
            let inner = queue_clone.spawn_future(async move { round + 1 });
            let closure = queue_clone.spawn(move || round + 2);
            let sum = inner.await.unwrap() + closure.await.unwrap();
            yield_now().await;
            sum
        });
        assert_eq!(handle.join().unwrap(), 2 * round + 3);
    }
    // A chain of futures, each woken by the one before it.
    let mut last = queue.spawn_future(async { 0_u32 });
    for _ in 0..1000 {
        let before = last;
        last = queue.spawn_future(async move { before.await.unwrap() + 1 });
    }
    assert_eq!(last.join().unwrap(), 1000);
}

#[test]
fn dropped_handles_do_not_cancel_futures_and_nothing_leaks() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("dropped").build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let tail = Arc::new(AtomicU32::new(0));
    for _ in 0..2000 {
        let tail_clone = Arc::clone(&tail);
        drop(queue.spawn_future(async move {
            yield_now().await;
            tail_clone.fetch_add(1, Ordering::Relaxed);
            tail_clone
        }));
    }
    eventually("all have run", || tail.load(Ordering::Relaxed) == 2000);
    drop(queue);
    assert_eq!(Arc::strong_count(&tail), 1);
}

/// Counts its polls in plain memory, and notices two polls at once.
struct Alone {
    within: Arc<AtomicBool>,
    polls: UnsafeCell<u64>,
    seen: Arc<AtomicU64>,
    end: Arc<AtomicU64>,
}

// SAFETY: only `poll` touches the cell, and has exclusive access to it.
unsafe impl Send for Alone {}

impl Future for Alone {
    type Output = u64;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        assert!(!self.within.swap(true, Ordering::Relaxed), "it is polled twice at once");
        // SAFETY: this is the only poll, or the assertion has failed.
        let polls = unsafe { &mut *self.polls.get() };
        *polls += 1;
        std::hint::black_box(context.waker().clone());
        // What the waking threads wrote before they woke the future.
        let end = self.end.load(Ordering::Relaxed);
        self.seen.store(end, Ordering::Relaxed);
        self.within.store(false, Ordering::Relaxed);
        if end == u64::MAX { Poll::Ready(*polls) } else { Poll::Pending }
    }
}

#[test]
fn a_future_woken_by_many_threads_is_polled_by_one_at_a_time() {
    const WAKES: u64 = 20_000;
    let runtime = runtime();
    let queue =
        runtime.workqueue_builder("woken").affinity_scope(AffinityScope::Cpu).build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let (end, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (within, slot) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let mut future =
        Alone { within, polls: UnsafeCell::new(0), seen: Arc::clone(&seen), end: Arc::clone(&end) };
    let given = Arc::clone(&slot);
    let handle = queue.spawn_future(poll_fn(move |context| {
        given.lock().unwrap().get_or_insert_with(|| context.waker().clone());
        Pin::new(&mut future).poll(context)
    }));
    eventually("it has been polled", || slot.lock().unwrap().is_some());
    let waker = slot.lock().unwrap().clone().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..WAKES {
                    waker.wake_by_ref();
                }
            });
        }
        // Each wake by this thread causes, or joins, a poll that sees what was written.
        for number in 1..500 {
            end.store(number, Ordering::Relaxed);
            let waker_clone = waker.clone();
            waker_clone.wake();
            while seen.load(Ordering::Relaxed) < number {
                std::thread::yield_now();
            }
        }
    });
    end.store(u64::MAX, Ordering::Relaxed);
    waker.wake_by_ref();
    let polls = handle.join().unwrap();
    assert!((2..=3 * WAKES + 600).contains(&polls), "{polls}");
    // Woken after its end.
    waker.wake_by_ref();
    drop(queue);
    waker.wake();
}

#[test]
fn an_endlessly_yielding_future_lets_other_items_run() {
    let runtime = runtime();
    let queue = narrow(&runtime);
    let _watchdog = watch(Some(&runtime));
    let stop = Arc::new(AtomicBool::new(false));
    let turns: Vec<_> = (0..4).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let yielders: Vec<_> = turns
        .iter()
        .map(|turns| {
            let (turns, stop) = (Arc::clone(turns), Arc::clone(&stop));
            queue.spawn_future(async move {
                while !stop.load(Ordering::Relaxed) {
                    turns.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            })
        })
        .collect();
    for round in 0..200 {
        assert_eq!(queue.spawn(move || round).join().unwrap(), round);
    }
    let all = || turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect::<Vec<_>>();
    // Some may have begun earlier than others.
    eventually("each has begun", || all().iter().all(|turns| *turns > 0));
    let begun = all();
    let since = || all().iter().zip(&begun).map(|(now, begun)| now - begun).collect::<Vec<_>>();
    eventually("each runs many times", || since().iter().all(|turns| *turns > 1000));
    // From then on the futures take turns: at any time they have had nearly the same number of turns.
    let now = since();
    let (least, most) = (now.iter().min().unwrap(), now.iter().max().unwrap());
    stop.store(true, Ordering::Relaxed);
    for handle in yielders {
        handle.join().unwrap();
    }
    assert!(most - least < most / 2 + 1000, "{now:?}");
}

#[test]
fn a_future_waiting_for_a_wake_does_not_count_against_max_active() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("one").max_active(1).build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let waiting: Vec<_> = (0..20).map(|_| waiting(&queue)).collect();
    assert_eq!(queue.spawn(|| 3).join().unwrap(), 3);
    assert_eq!(queue.inactive(), 0);
    for (signal, _) in &waiting {
        signal.fire();
    }
    for (_, handle) in waiting {
        assert_eq!(handle.join().unwrap(), 7);
    }
}

#[test]
fn panics_of_futures_reach_the_joiner_and_are_counted() {
    let runtime = runtime();
    let queue = narrow(&runtime);
    let _watchdog = watch(Some(&runtime));
    let handle = queue.spawn_future(async {
        yield_now().await;
        panic!("on purpose: a future");
    });
    let error = handle.join().unwrap_err();
    assert_eq!(error.message(), Some("on purpose: a future"));
    assert_eq!(queue.spawn_future(async { 4 }).join().unwrap(), 4, "the worker survives");
    eventually("it is counted", || {
        queue.statistics().iter().map(|pwq| pwq.panicked).sum::<u64>() == 1
    });
}

#[test]
fn futures_can_be_cancelled_in_each_state() {
    let runtime = runtime();
    let queue = narrow(&runtime);
    let _watchdog = watch(Some(&runtime));
    // The future waits for a wake: a worker drops it.
    let tail = Arc::new(());
    let tail_clone = Arc::clone(&tail);
    let handle = queue.spawn_future(async move {
        std::future::pending::<()>().await;
        drop(tail_clone);
    });
    std::thread::sleep(Duration::from_millis(5));
    assert!(handle.cancel());
    assert!(handle.join().unwrap_err().is_cancelled());
    assert_eq!(Arc::strong_count(&tail), 1);
    // The future is being polled.
    let (begun, has_begun) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let tail_clone = Arc::clone(&tail);
    let handle = queue.spawn_future(async move {
        begun.send(()).unwrap();
        gate.recv().unwrap();
        std::future::pending::<()>().await;
        drop(tail_clone);
    });
    has_begun.recv().unwrap();
    assert!(handle.cancel());
    assert!(!handle.is_finished(), "not while it is polled");
    assert_eq!(Arc::strong_count(&tail), 2);
    open.send(()).unwrap();
    assert!(handle.join().unwrap_err().is_cancelled());
    assert_eq!(Arc::strong_count(&tail), 1);
    // The future has ended.
    let handle = queue.spawn_future(async { 1 });
    eventually("it has ended", || handle.is_finished());
    assert!(!handle.cancel());
    assert_eq!(handle.join().unwrap(), 1);
}

#[test]
fn dropping_a_queue_does_not_wait_for_sleeping_futures() {
    let runtime = runtime();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("gone").build().unwrap();
    let ((first, handle), (second, other)) = (waiting(&queue), waiting(&queue));
    let (_third, lonely) = waiting(&queue);
    drop(queue);
    assert!(!handle.is_finished());
    first.fire();
    assert!(handle.is_finished(), "in the thread that wakes it");
    assert!(handle.join().unwrap_err().is_cancelled());
    // Cancelled through its handle, and without its handle.
    assert!(lonely.cancel());
    assert!(lonely.join().unwrap_err().is_cancelled());
    drop(other);
    second.fire();
    // A separate runtime ends together with its queue, although a future sleeps.
    let other = Runtime::builder().build().unwrap();
    let queue = other.workqueue_builder("last").build().unwrap();
    drop(other);
    let (signal, handle) = waiting(&queue);
    drop(queue);
    signal.fire();
    assert!(handle.join().unwrap_err().is_cancelled());
}

#[test]
fn dropping_a_queue_runs_queued_futures_and_the_futures_they_wake() {
    let runtime = runtime();
    let _watchdog = watch(Some(&runtime));
    for _ in 0..200 {
        let queue = runtime.workqueue_builder("drained").build().unwrap();
        let closure = queue.spawn(|| {
            std::thread::sleep(Duration::from_micros(50));
            1
        });
        let waits = queue.spawn_future(async move { closure.await.unwrap() + 1 });
        let chained = queue.spawn_future(async move {
            let value = waits.await.unwrap();
            yield_now().await;
            value + 1
        });
        drop(queue);
        assert!(chained.is_finished(), "each was woken by an item of the queue");
        assert_eq!(chained.join().unwrap(), 3);
    }
}

#[test]
fn a_wake_races_with_the_drop_of_the_queue() {
    let runtime = runtime();
    let _watchdog = watch(Some(&runtime));
    let (mut done, mut cancelled) = (0, 0);
    for round in 0..1500 {
        let queue = runtime.workqueue_builder("race").build().unwrap();
        let (signal, handle) = waiting(&queue);
        let waker = std::thread::spawn(move || {
            for _ in 0..round % 50 {
                std::hint::spin_loop();
            }
            signal.fire();
        });
        for _ in 0..(round * 7) % 400 {
            std::hint::spin_loop();
        }
        drop(queue);
        waker.join().unwrap();
        match handle.join() {
            Ok(value) => {
                assert_eq!(value, 7);
                done += 1;
            }
            Err(error) => {
                assert!(error.is_cancelled());
                cancelled += 1;
            }
        }
    }
    println!("{done} done, {cancelled} cancelled");
}

#[test]
fn a_future_may_drop_its_own_queue() {
    let runtime = runtime();
    let _watchdog = watch(Some(&runtime));
    for _ in 0..100 {
        let queue = runtime.workqueue_builder("own").build().unwrap();
        let (signal, sleeper) = waiting(&queue);
        let slot = Arc::new(Mutex::new(None::<Workqueue>));
        let slot_clone = Arc::clone(&slot);
        let go = Signal::default();
        let start = go.clone();
        let handle = queue.spawn_future(async move {
            start.wait().await;
            let queue = slot_clone.lock().unwrap().take();
            drop(queue);
            yield_now().await;
            5
        });
        *slot.lock().unwrap() = Some(queue);
        go.fire();
        assert_eq!(handle.join().unwrap(), 5, "its own wakes come from inside");
        signal.fire();
        assert!(sleeper.join().unwrap_err().is_cancelled());
    }
}

/// What each future of a chain holds, and what its drop does.
#[derive(Clone, Copy, PartialEq)]
enum Chain {
    /// It wakes the next one.
    Wakes,
    /// It drops the last waker of the next one.
    Keeps,
}

/// The signal that a future waits for, and what the future before it holds.
#[derive(Default)]
struct Slot {
    over: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

struct Next {
    slot: Arc<Slot>,
    wakes: bool,
}

impl Drop for Next {
    fn drop(&mut self) {
        let waker = self.slot.waker.lock().unwrap().take();
        if self.wakes {
            self.slot.over.store(true, Ordering::SeqCst);
            waker.expect("it waits").wake();
        }
    }
}

/// A chain of that many futures, none of which has begun to end; with what ends the first one, and the count of those that have ended.
fn chain(queue: Workqueue, length: u32, kind: Chain) -> (Next, Arc<AtomicU32>) {
    let wakes = kind == Chain::Wakes;
    let ended = Arc::new(AtomicU32::new(0));
    let first = Arc::new(Slot::default());
    let mut slot = Arc::clone(&first);
    for _ in 0..length {
        let next = Arc::new(Slot::default());
        let (current, holds, ended) =
            (slot, Next { slot: Arc::clone(&next), wakes }, Arc::clone(&ended));
        slot = next;
        let mut counted = Counted(ended, Some(holds));
        drop(queue.spawn_future(poll_fn(move |context| {
            let _ = &mut counted;
            // If it does not wake the next one, it alone has the waker.
            *current.waker.lock().unwrap() = Some(context.waker().clone());
            if current.over.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })));
    }
    // The last future wakes no other one.
    *slot.waker.lock().unwrap() = Some(Waker::noop().clone());
    queue.flush().unwrap();
    drop(queue);
    (Next { slot: first, wakes }, ended)
}

struct Counted(Arc<AtomicU32>, #[expect(dead_code, reason = "dropped last")] Option<Next>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The queue of the futures is gone: each future ends in the thread that ends the one before it, and that needs no deep stack.
#[test]
fn a_long_chain_of_futures_is_dropped_on_a_small_stack() {
    let length = if cfg!(miri) { 100 } else { 20_000 };
    for kind in [Chain::Wakes, Chain::Keeps] {
        let (first, ended) =
            chain(runtime().workqueue_builder("chain").build().unwrap(), length, kind);
        let small = std::thread::Builder::new().stack_size(256 << 10);
        small.spawn(move || drop(first)).unwrap().join().unwrap();
        assert_eq!(ended.load(Ordering::SeqCst), length);
    }
}

/// A destructor waits for a future that its own wake ends, deep in a chain of them.
#[test]
fn a_destructor_may_wait_for_a_future_that_it_ends() {
    struct Waits(Option<Next>, Option<JoinHandle<()>>, Arc<AtomicU32>);
    impl Drop for Waits {
        fn drop(&mut self) {
            drop(self.0.take());
            let ended = self.1.take().expect("dropped once").join();
            assert!(ended.unwrap_err().is_cancelled());
            self.2.fetch_add(1, Ordering::SeqCst);
        }
    }
    let queue = runtime().workqueue_builder("chain").build().unwrap();
    let joined = Arc::new(AtomicU32::new(0));
    let mut next: Option<(Next, JoinHandle<()>)> = None;
    for _ in 0..100 {
        let slot = Arc::new(Slot::default());
        let slot_clone = Arc::clone(&slot);
        let mut waits =
            next.map(|(next, handle)| Waits(Some(next), Some(handle), Arc::clone(&joined)));
        let handle = queue.spawn_future(poll_fn(move |context| {
            let _ = &mut waits;
            *slot_clone.waker.lock().unwrap() = Some(context.waker().clone());
            Poll::Pending
        }));
        next = Some((Next { slot, wakes: true }, handle));
    }
    queue.flush().unwrap();
    drop(queue);
    let (first, handle) = next.unwrap();
    drop(first);
    assert!(handle.join().unwrap_err().is_cancelled());
    assert_eq!(joined.load(Ordering::SeqCst), 99);
}

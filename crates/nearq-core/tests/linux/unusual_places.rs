//! Foreign code in places where it is not expected: destructors of thread-locals, hooks of workers that are about to end, wakes, and
//! deadlines. The foreign code waits there, or drops the last handle of something.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nearq_core::{JoinSet, Runtime, Work, Workqueue};

use crate::common::{self, Barrier, PATIENCE};

/// Does something when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

type Place = Arc<Mutex<Option<Waker>>>;

/// A future that is never ready, and stores its waker.
struct Sleep(Place);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.0.lock().unwrap() = Some(context.waker().clone());
        Poll::Pending
    }
}

thread_local!(static KEPT: RefCell<Option<Box<dyn Send>>> = const { RefCell::new(None) });

/// Makes a worker keep the value until its thread ends.
fn keep_in_a_worker(queue: &Workqueue, kept: impl Send + 'static) {
    queue.spawn(move || KEPT.set(Some(Box::new(kept)))).join().unwrap();
}

fn ends_soon() -> Runtime {
    Runtime::builder().idle_timeout(Duration::from_millis(20)).build().unwrap()
}

#[test]
fn a_workers_thread_local_may_own_the_last_handle() {
    for of_queue in [false, true] {
        let runtime = ends_soon();
        let queue = runtime.workqueue_builder("keeps").build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let on_drop = OnDrop(move || sender.send(()).unwrap());
        if of_queue {
            let other = runtime.workqueue_builder("kept").build().unwrap();
            keep_in_a_worker(&queue, (other, on_drop));
        } else {
            keep_in_a_worker(&queue, (runtime.clone(), on_drop));
        }
        drop((queue, runtime));
        receiver.recv_timeout(PATIENCE).expect("the destructor returns");
    }
}

#[test]
fn a_workers_thread_local_cannot_shut_its_runtime_down() {
    let runtime = ends_soon();
    let queue = runtime.workqueue_builder("keeps").build().unwrap();
    let (sender, receiver) = mpsc::channel();
    let runtime_clone = runtime.clone();
    let shuts = OnDrop(move || sender.send(runtime_clone.shutdown(PATIENCE).is_err()).unwrap());
    keep_in_a_worker(&queue, shuts);
    assert!(receiver.recv_timeout(PATIENCE).unwrap(), "it would wait for itself");
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7, "nothing has happened");
}

/// The wake finds the queue closed, and has the last reference to it, so the runtime ends with that wake. One of the runtime's workers
/// wants a lock that the waking thread holds.
#[test]
fn a_wake_does_not_wait_for_workers() {
    static REGISTRY: Mutex<()> = Mutex::new(());
    let runtime = Runtime::builder().on_worker_stop(|_| drop(REGISTRY.lock())).build().unwrap();
    let queue = runtime.workqueue_builder("woken").build().unwrap();
    let place = Place::default();
    let (begun, has_begun) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let place_clone = Arc::clone(&place);
    drop(queue.spawn_future(async move {
        let _guard = OnDrop(move || {
            begun.send(()).unwrap();
            may_go.recv().unwrap();
        });
        Sleep(place_clone).await;
    }));
    queue.flush().unwrap();
    // An item keeps the drop of the queue waiting, while the gate is closed.
    let (end, may_end) = mpsc::channel::<()>();
    queue.spawn(move || may_end.recv().unwrap());
    let owner = std::thread::spawn(move || drop((queue, runtime)));
    std::thread::sleep(Duration::from_millis(50));
    let (sender, receiver) = mpsc::channel();
    let waker = place.lock().unwrap().take().unwrap();
    std::thread::spawn(move || {
        let registry = REGISTRY.lock().unwrap();
        waker.wake();
        drop(registry);
        sender.send(()).unwrap();
    });
    has_begun.recv_timeout(PATIENCE).expect("the future is cancelled");
    end.send(()).unwrap();
    // For its owner the queue has ended; its memory is freed by the wake.
    owner.join().unwrap();
    go.send(()).unwrap();
    receiver.recv_timeout(PATIENCE).expect("the wake returns");
}

#[test]
fn a_destructor_may_join_a_set_whose_future_it_ends() {
    const DEPTH: usize = 16;
    let runtime = Runtime::builder().build().unwrap();
    let queue: &'static Workqueue =
        Box::leak(Box::new(runtime.workqueue_builder("deep").build().unwrap()));
    let places: Vec<Place> = (0..=DEPTH).map(|_| Place::default()).collect();
    let mut set: JoinSet<()> = queue.join_set();
    let last = Arc::clone(&places[DEPTH]);
    set.spawn_future(Sleep(last));
    let mut set = Some(set);
    let (sender, receiver) = mpsc::channel();
    for at in (0..DEPTH).rev() {
        let (at_clone, next) = (Arc::clone(&places[at]), Arc::clone(&places[at + 1]));
        let mut waits = set.take();
        let sender = sender.clone();
        drop(queue.spawn_future(async move {
            let _guard = OnDrop(move || {
                let waker = next.lock().unwrap().take();
                waker.unwrap().wake();
                if let Some(mut set) = waits.take() {
                    sender.send(set.blocking_join_next().unwrap().is_err()).unwrap();
                }
            });
            Sleep(at_clone).await;
        }));
    }
    queue.flush().unwrap();
    runtime.shutdown(PATIENCE).unwrap();
    let first = places[0].lock().unwrap().take().unwrap();
    std::thread::spawn(move || first.wake());
    assert!(receiver.recv_timeout(PATIENCE).unwrap(), "it is cancelled");
}

/// The stop hook of a worker that was retired to make room waits for the pool for which it has made room.
#[test]
fn a_stop_hook_may_wait_for_items_that_its_exit_admits() {
    static OTHER: OnceLock<Workqueue> = OnceLock::new();
    let builder = Runtime::builder().thread_limit(1).on_worker_stop(|_| {
        let _ = OTHER.get().unwrap().flush();
    });
    let runtime = builder.build().unwrap();
    let queue = runtime.workqueue_builder("first").build().unwrap();
    OTHER.set(runtime.workqueue_builder("other").nice(5).build().unwrap()).unwrap();
    queue.spawn(|| {}).join().unwrap();
    let (sender, receiver) = mpsc::channel();
    OTHER.get().unwrap().spawn(move || sender.send(()).unwrap());
    receiver.recv_timeout(PATIENCE).expect("the other pool has a worker");
}

/// Nothing was ever queued on the queue; but its limit was changed, or it was drained, and no worker has come since.
#[test]
fn the_drop_of_an_empty_queue_does_not_wait_for_a_worker() {
    let runtime = Runtime::builder().thread_limit(1).build().unwrap();
    let queue = runtime.workqueue_builder("outer").build().unwrap();
    let (sender, receiver) = mpsc::channel();
    let runtime_clone = runtime.clone();
    queue.spawn(move || {
        let inner = runtime_clone.workqueue_builder("inner").build().unwrap();
        inner.set_max_active(5).unwrap();
        drop(inner);
        let inner = runtime_clone.workqueue_builder("inner").build().unwrap();
        inner.drain().unwrap();
        drop(inner);
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(PATIENCE).expect("both drops return");
}

/// A cancelled item is still on the list of held-back items, and its queue is gone when its time comes: the destructor of what it captured
/// waits for another deadline.
#[test]
fn a_destructor_run_by_a_deadline_may_wait_for_another_deadline() {
    let runtime = Runtime::builder().build().unwrap();
    let other = Arc::new(runtime.workqueue_builder("other").build().unwrap());
    let limited = runtime.workqueue_builder("limited").ordered().build().unwrap();
    let barrier = Barrier::default();
    let inside = barrier.clone();
    let holder = limited.spawn(move || inside.wait());
    let (sender, receiver) = mpsc::channel();
    let other_clone = Arc::clone(&other);
    let waits = OnDrop(move || {
        let (come, has_come) = mpsc::channel();
        let work = Work::new(move |_: &Work| come.send(()).unwrap());
        other_clone.queue_delayed(&work, Duration::from_millis(1));
        sender.send(has_come.recv_timeout(PATIENCE).is_ok()).unwrap();
    });
    let work = Work::new(move |_: &Work| {
        let _ = &waits;
    });
    assert!(limited.queue(&work) && work.cancel());
    let gone = runtime.workqueue_builder("gone").build().unwrap();
    assert!(gone.queue_delayed(&work, Duration::from_millis(50)));
    drop((gone, work));
    assert!(receiver.recv_timeout(2 * PATIENCE).unwrap(), "the timer's thread is free");
    barrier.open();
    holder.join().unwrap();
}

/// Items with slow destructors: their queue is gone when their times come, one after the other.
#[test]
fn destructors_run_by_deadlines_need_few_threads() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("gone").build().unwrap();
    let count = Arc::new(());
    for number in 0..60 {
        let slow = (OnDrop(|| std::thread::sleep(Duration::from_millis(20))), Arc::clone(&count));
        let work = Work::new(move |_: &Work| {
            let _ = &slow;
        });
        assert!(queue.queue_delayed(&work, Duration::from_millis(20 + 2 * number)));
    }
    drop(queue);
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|name| name.trim() == "nq/drop").count()
    };
    let mut most = 0;
    common::eventually("all are dropped", || {
        most = most.max(threads());
        Arc::strong_count(&count) == 1
    });
    // Other tests have such threads, too.
    assert!(most <= 12, "{most} threads");
}

/// There is more work than the workers can do, so that no worker goes to sleep.
#[test]
fn queues_dropped_by_their_items_are_freed_although_workers_are_busy() {
    static BUSY: OnceLock<Workqueue> = OnceLock::new();
    let runtime = Runtime::builder().thread_limit(2).build().unwrap();
    BUSY.set(runtime.workqueue_builder("busy").build().unwrap()).unwrap();
    let again = |work: &Work| {
        std::hint::black_box(
            (0..2000).fold(0_u64, |sum, number| sum ^ std::hint::black_box(number)),
        );
        BUSY.get().unwrap().queue(work);
    };
    let works: Vec<_> = (0..64).map(|_| Work::new(again)).collect();
    for work in &works {
        assert!(BUSY.get().unwrap().queue(work));
    }
    for _ in 0..200 {
        let queue = Arc::new(runtime.workqueue_builder("once").build().unwrap());
        let queue_clone = Arc::clone(&queue);
        let (end, may_end) = mpsc::channel::<()>();
        queue.spawn(move || {
            let _ = may_end.recv();
            drop(queue_clone);
        });
        drop((queue, end));
    }
    common::eventually("all but the busy worker have ended", || runtime.queues().len() == 1);
    for work in &works {
        work.cancel_sync().unwrap();
    }
}

#[test]
fn a_worker_with_a_long_spin_time_exits_with_its_runtime() {
    let runtime = Runtime::builder().spin(u32::MAX).build().unwrap();
    let queue = runtime.workqueue_builder("spins").build().unwrap();
    queue.spawn(|| {}).join().unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        drop(queue);
        runtime.shutdown(PATIENCE).unwrap();
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(PATIENCE).expect("it checks whether it should end");
}

#[test]
fn the_largest_shards_and_traces_are_accepted() {
    let runtime = Runtime::builder().cache_shard_size(usize::MAX).build().unwrap();
    let queue = runtime
        .workqueue_builder("large")
        .affinity_scope(nearq_core::AffinityScope::CacheShard)
        .build()
        .unwrap();
    let mut tracer = runtime.trace(None, 1);
    queue.spawn(|| {}).join().unwrap();
    queue.flush().unwrap();
    assert!(!tracer.take(usize::MAX).is_empty());
}

//! The system refuses every thread for a second, and then allows threads again. What was accepted meanwhile runs, whichever way a thread
//! waits for it. Nothing is queued once threads are allowed again.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Waker};
use core::time::Duration;
use std::sync::Arc;

use nearq_core::{Runtime, Work, Workqueue};
use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, ThreadSpec, Threads};
use nearq_sim::{Faults, Sim, Simulation};
use nearq_topology::Topology;

/// How long threads are refused.
const REFUSED: Duration = Duration::from_secs(1);
/// The time by which every wait must have ended.
const LIMIT: Duration = Duration::from_secs(5);

/// Sets whether every thread is refused, or none.
fn refuse(all: bool) {
    let mut faults = Faults::NONE;
    faults.spawn_refused_one_in = u64::from(all);
    Sim::start_faults(faults);
}

/// Runs `test` with a queue, on which nothing was ever queued, while threads are refused for a second; returns how long it took.
fn while_refused(test: impl FnOnce(Workqueue<Sim>) + 'static) -> Duration {
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let outcome = Simulation::new(machine, 1).time_limit(Duration::from_secs(100)).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue = runtime.workqueue_builder("refused").build().expect("the call succeeds");
        let began = Sim::now();
        let relief = Sim::spawn(ThreadSpec::default(), || {
            Sim::sleep(REFUSED);
            refuse(false);
        });
        refuse(true);
        test(queue);
        let took = Sim::now() - began;
        Sim::join(relief.expect("not refused yet"));
        took
    });
    outcome.expect()
}

/// As [`while_refused`]; fails if `test` does not wait until threads are allowed again, or does not end then.
fn ends(test: impl FnOnce(Workqueue<Sim>) + 'static) {
    let took = while_refused(test);
    assert!(took >= REFUSED, "nothing can have run after {took:?}");
    assert!(took < LIMIT, "it took {took:?}");
}

#[test]
fn a_join_returns_without_threads() {
    ends(|queue| assert_eq!(queue.spawn(|| 7).join().expect("no panic"), 7));
}

#[test]
fn a_scope_returns_without_threads() {
    ends(|queue| {
        let ran = Mutex::<_, Sim>::new_in(0);
        queue.scope(|scope| {
            scope.spawn(|| {
                *ran.lock() += 1;
            });
        });
        assert_eq!(*ran.lock(), 1);
    });
}

#[test]
fn the_flush_of_an_item_returns_without_threads() {
    ends(|queue| {
        let work = Work::<Sim>::new_in(|_: &Work<Sim>| {});
        queue.queue(&work);
        assert_eq!(work.flush(), Ok(true));
    });
}

#[test]
fn the_flush_and_the_drain_of_a_queue_return_without_threads() {
    ends(|queue| {
        drop(queue.spawn(|| {}));
        queue.flush().expect("not in an item");
    });
    ends(|queue| {
        drop(queue.spawn(|| {}));
        queue.drain().expect("not in an item");
    });
}

#[test]
fn the_drop_of_a_queue_returns_without_threads() {
    ends(|queue| {
        drop(queue.spawn(|| {}));
        drop(queue);
    });
}

/// A delayed item runs although the timer's thread is refused for a second and no thread waits. Other threads of the runtime retry:
/// workers, which end after that long without work, and the monitor.
fn runs_unwaited(idle_timeout: Duration) {
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let simulation = Simulation::new(machine, 1).time_limit(Duration::from_secs(100));
    let outcome = simulation.run(move || {
        let builder = Runtime::<Sim>::builder_in().idle_timeout(idle_timeout);
        let runtime = builder.build().expect("the machine is known");
        let queue = runtime.workqueue_builder("unwaited").build().expect("the call succeeds");
        // There are more items than CPUs, and all of them sleep: the monitor starts workers for the items that wait.
        let sleepers: Vec<_> =
            (0..8).map(|_| queue.spawn(|| Sim::sleep(Duration::from_millis(5)))).collect();
        for sleeper in sleepers {
            sleeper.join().expect("no panic");
        }
        Sim::sleep(Duration::from_millis(100));
        let ran = Arc::new(Mutex::<_, Sim>::new_in(0));
        let counter = Arc::clone(&ran);
        let work = Work::<Sim>::new_in(move |_: &Work<Sim>| *counter.lock() += 1);
        refuse(true);
        queue.queue_delayed(&work, Duration::from_millis(1));
        Sim::sleep(REFUSED);
        assert_eq!(*ran.lock(), 0, "no thread can have run it");
        refuse(false);
        Sim::sleep(LIMIT);
        *ran.lock()
    });
    assert_eq!(outcome.expect(), 1);
}

#[test]
fn the_last_idle_worker_stays_to_retry() {
    runs_unwaited(Duration::from_millis(300));
}

#[test]
fn the_monitor_retries_if_no_worker_is_left() {
    runs_unwaited(Duration::from_millis(1));
}

#[test]
fn a_delayed_item_runs_during_a_flush_of_its_queue() {
    ends(|queue| {
        let work = Work::<Sim>::new_in(|_: &Work<Sim>| {});
        queue.queue_delayed(&work, Duration::from_millis(50));
        while work.is_pending() {
            Sim::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn polling_a_closure_observes_its_end() {
    ends(|queue| {
        let handle = queue.spawn(|| {});
        while !handle.is_finished() {
            Sim::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn a_waiting_thread_is_notified_of_a_later_refusal() {
    ends(|queue| {
        // The thread waits for an item of another runtime, which already has its threads.
        refuse(false);
        let (other, ran) =
            (Runtime::<Sim>::builder_in().build(), Arc::new(Mutex::<_, Sim>::new_in(false)));
        let others = other
            .expect("the machine is known")
            .workqueue_builder("other")
            .build()
            .expect("the call succeeds");
        let ran_clone = Arc::clone(&ran);
        let handle = others.spawn(move || {
            while !*ran_clone.lock() {
                Sim::sleep(Duration::from_millis(10));
            }
        });
        let waiting = Sim::spawn(ThreadSpec::default(), move || handle.join().expect("no panic"));
        Sim::sleep(Duration::from_millis(10));
        refuse(true);
        let ran_clone = Arc::clone(&ran);
        drop(queue.spawn(move || *ran_clone.lock() = true));
        // The thread waits in a way that the runtime does not know.
        while !*ran.lock() {
            Sim::sleep(Duration::from_millis(10));
        }
        Sim::join(waiting.expect("not refused"));
    });
}

#[test]
fn an_idle_worker_retries_for_another_pool() {
    ends(|queue| {
        refuse(false);
        queue.spawn(|| {}).join().expect("no panic");
        refuse(true);
        let ran = Arc::new(Mutex::<_, Sim>::new_in(false));
        let ran_clone = Arc::clone(&ran);
        let runtime = queue.runtime();
        let favoured =
            runtime.workqueue_builder("favoured").nice(-5).build().expect("the call succeeds");
        drop(favoured.spawn(move || *ran_clone.lock() = true));
        while !*ran.lock() {
            Sim::sleep(Duration::from_millis(10));
        }
    });
}

/// An executor that knows nothing of the runtime polls now and then, and no thread waits by other means.
fn awaits<F: Future>(make: impl FnOnce(Workqueue<Sim>) -> F + 'static) {
    ends(|queue| {
        let mut future = pin!(make(queue));
        while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            Sim::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn every_await_ends() {
    awaits(async |queue| queue.spawn(|| {}).await.expect("no panic"));
    awaits(async |queue| queue.spawn_future(async {}).await.expect("no panic"));
    awaits(async |queue| {
        drop(queue.spawn(|| {}));
        queue.flushed().await.expect("not in an item");
    });
    awaits(async |queue| {
        drop(queue.spawn(|| {}));
        queue.drained().await.expect("not in an item");
    });
    awaits(async |queue| {
        let work = Work::<Sim>::new_in(|_: &Work<Sim>| {});
        queue.queue(&work);
        assert_eq!(work.flushed().await, Ok(true));
    });
    awaits(async |queue| {
        let mut set = queue.join_set();
        set.spawn(|| {});
        assert!(set.join_next().await.is_some_and(|result| result.is_ok()));
    });
}

/// How many thread starts are refused while an idle worker, a delayed item and the given number of waiting threads retry for a second.
fn refused_in_a_second(threads: usize) -> u64 {
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let outcome = Simulation::new(machine, 1).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue =
            Arc::new(runtime.workqueue_builder("refused").build().expect("the call succeeds"));
        let favoured =
            runtime.workqueue_builder("favoured").nice(-5).build().expect("the call succeeds");
        queue.spawn(|| {}).join().expect("no panic");
        refuse(true);
        let handles: Vec<_> = (0..threads).map(|_| favoured.spawn(|| {})).collect();
        refuse(false);
        let start = |handle: nearq_core::JoinHandle<(), Sim>| {
            let main = move || handle.join().expect("no panic");
            Sim::spawn(ThreadSpec::default(), main).expect("not refused")
        };
        let waiting: Vec<_> = handles.into_iter().map(start).collect();
        refuse(true);
        let work = Work::<Sim>::new_in(|_: &Work<Sim>| {});
        queue.queue_delayed(&work, Duration::from_millis(1));
        let until = Sim::now() + REFUSED;
        while Sim::now() < until {
            Sim::sleep(Duration::from_micros(500));
            assert!(work.is_pending());
        }
        refuse(false);
        waiting.into_iter().for_each(Sim::join);
        work.flush().expect("not in an item");
    });
    let refused = outcome.faults.spawns_refused;
    outcome.expect();
    refused
}

#[test]
fn starts_are_retried_ten_times_a_second_for_any_number_of_waiters() {
    // At first, fourteen tries each for the monitor and the timer, and a push that is refused; then two for each attempt.
    for threads in [0, 1, 20] {
        let refused = refused_in_a_second(threads);
        assert!(refused < 60 + 3 * threads as u64, "{threads} threads: {refused}");
    }
}

//! Handles of a scope's closures: values, panics, and who runs a closure that is joined.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use nearq_core::{JoinError, Runtime, Workqueue};

/// What a panic says.
fn text(payload: &(dyn Any + Send)) -> String {
    let owned = payload.downcast_ref::<String>().cloned();
    owned.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap()
}

fn queue(max_active: usize) -> (Runtime, Workqueue) {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let queue = runtime.workqueue_builder("scoped").max_active(max_active).build().unwrap();
    (runtime, queue)
}

/// On every kind of caller: a thread, an item of the queue, and an item of another one.
fn everywhere(test: impl Fn(&Workqueue) + Send + Sync + Clone + 'static) {
    let (runtime, queue) = queue(1);
    let queue = Arc::new(queue);
    test(&queue);
    let other = runtime.workqueue_builder("other").build().unwrap();
    let serial = Arc::new(runtime.workqueue_builder("serial").ordered().build().unwrap());
    for (on, scoped) in [(&*queue, &queue), (&other, &queue), (&serial, &serial)] {
        let (test, scoped) = (test.clone(), Arc::clone(scoped));
        on.spawn(move || test(&scoped)).join().unwrap();
    }
}

#[test]
fn values_reach_the_threads_that_join() {
    everywhere(|queue| {
        let words = ["near", "its", "data"].map(String::from);
        let lengths = queue.scope(|scope| {
            let handles = words.each_ref().map(|word| scope.spawn_with_handle(|| word.len()));
            handles.map(|handle| handle.join().unwrap())
        });
        assert_eq!(lengths, [4, 3, 4]);
        // In another order, and only some of them.
        let mut ran = [false; 4];
        let sum = queue.scope(|scope| {
            let mut handles: Vec<_> = ran
                .iter_mut()
                .enumerate()
                .map(|(number, ran)| {
                    scope.spawn_with_handle(move || {
                        *ran = true;
                        number
                    })
                })
                .collect();
            handles.remove(1).join().unwrap() + handles.remove(2).join().unwrap()
        });
        assert_eq!((sum, ran), (4, [true; 4]));
    });
}

#[test]
fn a_handle_may_be_joined_by_another_closure_of_the_scope() {
    everywhere(|queue| {
        let value = queue.scope(|scope| {
            let first = scope.spawn_with_handle(|| 20);
            let second = scope.spawn_with_handle(move || first.join().unwrap() + 1);
            scope.spawn_with_handle(move || second.join().unwrap() * 2).join().unwrap()
        });
        assert_eq!(value, 42);
    });
}

#[test]
fn a_panic_belongs_to_the_thread_that_joins_and_otherwise_to_the_scope() {
    everywhere(|queue| {
        let error = queue.scope(|scope| {
            scope.spawn_with_handle(|| -> () { panic!("joined") }).join().unwrap_err()
        });
        assert!(matches!(error, JoinError::Panicked(_)), "{error:?}");
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            queue.scope(|scope| drop(scope.spawn_with_handle(|| -> () { panic!("dropped") })));
        }));
        assert_eq!(text(&*outcome.unwrap_err()), "dropped");
    });
    // The closure has ended before the handle is dropped.
    let (_runtime, queue) = queue(4);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        queue.scope(|scope| {
            let handle = scope.spawn_with_handle(|| -> () { panic!("dropped late") });
            while !handle.is_finished() {
                std::thread::yield_now();
            }
            drop(handle);
        });
    }));
    assert_eq!(text(&*outcome.unwrap_err()), "dropped late");
}

#[test]
fn values_are_dropped_before_the_scope_ends() {
    struct Counts<'a>(&'a AtomicUsize);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    everywhere(|queue| {
        let dropped = AtomicUsize::new(0);
        queue.scope(|scope| {
            for _ in 0..10 {
                drop(scope.spawn_with_handle(|| Counts(&dropped)));
                let _late = scope.spawn_with_handle(|| Counts(&dropped));
            }
            drop(scope.spawn_with_handle(|| Counts(&dropped)).join());
        });
        assert_eq!(dropped.load(Ordering::SeqCst), 21);
    });
}

#[test]
fn a_refused_closure_is_refused_to_its_handle() {
    let (runtime, queue) = queue(4);
    let (entered, waits) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let holder = queue.spawn(move || {
        entered.send(()).unwrap();
        assert!(ended.recv().is_err());
    });
    waits.recv().unwrap();
    let outcome = std::thread::scope(|threads| {
        let drains = threads.spawn(|| queue.drain());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            queue.scope(|scope| {
                loop {
                    match scope.spawn_with_handle(|| ()).join() {
                        Err(error) => {
                            break assert!(matches!(error, JoinError::Refused), "{error:?}");
                        }
                        Ok(()) => std::thread::yield_now(),
                    }
                }
            });
        }));
        drop(end);
        drains.join().unwrap().unwrap();
        outcome
    });
    assert!(text(&*outcome.unwrap_err()).contains("drained"));
    holder.join().unwrap();
    drop((queue, runtime));
}

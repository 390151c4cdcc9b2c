//! A handle as an executor of other crates: what they spawn runs on the queue, and is dropped once the queue has ended.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use futures_task::{FutureObj, Spawn};
use hyper::rt::Executor;
use nearq_core::{Runtime, Workqueue};

fn queue() -> Workqueue {
    Workqueue::builder("executor").build().unwrap()
}

/// A future that sends the name of its thread; and where the name arrives.
fn named() -> (impl Future<Output = ()> + Send + 'static, Receiver<String>) {
    let (sender, receiver) = mpsc::channel();
    let future = async move {
        sender.send(std::thread::current().name().unwrap_or_default().to_owned()).unwrap();
    };
    (future, receiver)
}

fn is_worker(names: &Receiver<String>) -> bool {
    let name = names.recv_timeout(Duration::from_secs(60)).unwrap();
    name.starts_with("nq/")
}

#[test]
fn hyper_spawns_on_the_queue() {
    let queue = queue();
    let (future, names) = named();
    queue.handle().execute(future);
    assert!(is_worker(&names));
    // Any output is dropped.
    queue.handle().execute(async { 42 });
    queue.flush().unwrap();
}

#[test]
fn what_hyper_spawns_on_an_ended_queue_is_dropped() {
    let ended = queue().handle();
    let held = Arc::new(());
    let (clone, (future, names)) = (Arc::clone(&held), named());
    ended.execute(async move {
        future.await;
        drop(clone);
    });
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(names.recv().is_err());
}

#[test]
fn futures_objects_run_on_the_queue_until_it_ends() {
    let queue = queue();
    let executor = queue.handle();
    let (future, names) = named();
    executor.status().unwrap();
    executor.spawn_obj(FutureObj::new(Box::new(future))).unwrap();
    assert!(is_worker(&names));
    drop(queue);
    let (future, names) = named();
    assert!(executor.status().unwrap_err().is_shutdown());
    assert!(executor.spawn_obj(FutureObj::new(Box::new(future))).is_err());
    assert!(names.recv().is_err());
}

#[test]
fn a_runtime_that_was_shut_down_refuses() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("executor").build().unwrap();
    runtime.shutdown(Duration::from_secs(60)).unwrap();
    let (future, names) = named();
    assert!(queue.handle().spawn_obj(FutureObj::new(Box::new(future))).is_err());
    assert!(names.recv().is_err());
}

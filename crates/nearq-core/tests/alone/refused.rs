//! The system refuses every thread for a moment, and then allows threads again. What was accepted meanwhile runs, whichever way a thread
//! waits for it, although nothing more is queued. Here the waiting functions of Linux retry (`nearq_platform`); tests/simulated/refused.rs
//! tests those of the simulator.
//!
//! This program has its own `pthread_create`, which refuses threads as long as a test wants it to.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nearq_core::{Runtime, Work, Workqueue};

use crate::common::{self, PATIENCE, command, output_text, part};

/// Whether the system refuses threads.
static REFUSES: AtomicBool = AtomicBool::new(false);

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

/// # Safety
/// As for the C library's.
// SAFETY: it calls the C library's function, or fails as that function may.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if REFUSES.load(Ordering::SeqCst) {
        return libc::EAGAIN;
    }
    // SAFETY: the name is a C string.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
    // SAFETY: the C library's function of that name, which has this type.
    let real: Create = unsafe { core::mem::transmute(real) };
    // SAFETY: as the caller says.
    unsafe { real(thread, attributes, start, argument) }
}

/// A way to wait for work of a queue on which nothing was ever queued; threads are refused from when `refuse` is called.
type Wait = fn(Workqueue, fn());

fn refuse() {
    REFUSES.store(true, Ordering::SeqCst);
}

/// An item waits inside a worker for what is queued on another pool, for which no worker can be started.
fn running(queue: &Workqueue, refuse: fn(), inside: impl FnOnce(&Workqueue) + Send + 'static) {
    let favoured = queue.runtime().workqueue_builder("other pool").nice(7).build().unwrap();
    let waiter = queue.spawn(move || {
        refuse();
        inside(&favoured);
    });
    waiter.join().unwrap();
}

const WAITS: [(&str, Wait); 13] = [
    ("join", |queue, refuse| {
        refuse();
        queue.spawn(|| {}).join().unwrap();
    }),
    ("the flush of an item", |queue, refuse| {
        refuse();
        let work = Work::new(|_: &Work| {});
        queue.queue(&work);
        assert_eq!(work.flush(), Ok(true));
    }),
    ("flush", |queue, refuse| {
        refuse();
        drop(queue.spawn(|| {}));
        queue.flush().unwrap();
    }),
    ("drain", |queue, refuse| {
        refuse();
        drop(queue.spawn(|| {}));
        queue.drain().unwrap();
    }),
    ("scope", |queue, refuse| {
        refuse();
        queue.scope(|scope| {
            scope.spawn(|| {});
        });
    }),
    ("the drop of a queue", |queue, refuse| {
        refuse();
        drop(queue.spawn(|| {}));
    }),
    ("a delayed item", |queue, refuse| {
        refuse();
        let work = Work::new(|_: &Work| {});
        queue.queue_delayed(&work, Duration::from_millis(1));
        common::eventually("it runs", || !work.is_pending());
    }),
    ("blocking_join_next", |queue, refuse| {
        refuse();
        let mut set = queue.join_set();
        set.spawn(|| {});
        assert!(set.blocking_join_next().unwrap().is_ok());
    }),
    ("cancel_sync", |queue, refuse| {
        let (sender, receiver) = mpsc::channel();
        let (began, begins) = mpsc::channel();
        let receiver = std::sync::Mutex::new(receiver);
        let work = Work::new(move |_: &Work| {
            began.send(()).unwrap();
            receiver.lock().unwrap().recv().unwrap();
        });
        queue.queue(&work);
        begins.recv().unwrap();
        refuse();
        // The item ends when this item runs.
        let other = queue.runtime().workqueue_builder("other pool").nice(7).build().unwrap();
        drop(other.spawn(move || sender.send(()).unwrap()));
        assert!(!work.cancel_sync().unwrap());
    }),
    ("freeze", |queue, refuse| {
        let freezable = queue.runtime().workqueue_builder("frozen").freezable().build().unwrap();
        refuse();
        drop(freezable.spawn(|| {}));
        queue.runtime().freeze().unwrap();
        queue.runtime().thaw();
    }),
    ("shutdown", |queue, refuse| {
        refuse();
        drop(queue.spawn(|| {}));
        queue.runtime().shutdown(PATIENCE).unwrap();
    }),
    ("join in an item", |queue, refuse| {
        running(&queue, refuse, |other| other.spawn(|| {}).join().unwrap());
    }),
    ("scope in an item", |queue, refuse| {
        running(&queue, refuse, |other| {
            other.scope(|scope| {
                scope.spawn(|| {});
            });
        });
    }),
];

#[test]
fn every_wait_ends_when_threads_can_be_started_again() {
    if part().is_none() {
        let output =
            command(every_wait_ends_when_threads_can_be_started_again, "alone").output().unwrap();
        return assert!(output.status.success(), "{}", output_text(&output));
    }
    // This thread exists before any thread is refused. No other thread of the process waits at the same time, because it would try again
    // too.
    let (waits, next) = mpsc::channel::<Wait>();
    let (done, ends) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        for way in next {
            let runtime = Runtime::builder().build().unwrap();
            way(runtime.workqueue_builder("refused").build().unwrap(), refuse);
            done.send(runtime).unwrap();
        }
    });
    for (name, wait) in WAITS {
        waits.send(wait).unwrap();
        common::eventually(name, || REFUSES.load(Ordering::SeqCst));
        // By then the thread waits, and some threads were refused again.
        let early = ends.recv_timeout(Duration::from_millis(200));
        REFUSES.store(false, Ordering::SeqCst);
        assert!(early.is_err(), "{name}: it ended although no thread could be started");
        drop(ends.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{name} does not end")));
    }
    drop(waits);
    thread.join().unwrap();
}

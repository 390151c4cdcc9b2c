//! The process-wide runtime, and how its workers enter the interpreter.
//!
//! # Thread states
//! A thread that enters the interpreter needs a thread state, which holds its thread-local values, its context variables and its
//! `threading.Thread`. Made for each call, it would be slow, and all of that would be lost between calls. So a worker makes one in its
//! first call, keeps it, and frees it when it ends.
//!
//! # The end of the interpreter
//! A thread that enters the interpreter while it ends never comes back, or ends the process. So there is a gate, one word: its lowest bit
//! says that it is closed, the rest counts the threads that are inside, by twos.
//!
//! * A worker enters by adding two. If it then sees the bit, it takes the two back and stays outside: it forgets the call.
//! * `close` sets the bit, then waits until the count is zero. Python calls it at exit, after the last call has ended and before the
//!   interpreter begins to end.
//!
//! Both are one read-modify-write of the same word, so either `close` sees the worker inside and waits for it, or the worker sees the bit.
//!
//! # Forks
//! In the child, all threads but one have vanished, wherever they were. `after_fork_in_child` counts that one again if it is inside.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nearq::{Error, Runtime};
use pyo3::ffi;
use pyo3::prelude::*;

/// As much as the threads of a Python program have where `ulimit -s` is as usual: CPython's limit of recursion relies on it.
const STACK_SIZE: usize = 8 << 20;
/// How often `close` checks whether the last worker has left: this takes it microseconds.
const CLOSE_INTERVAL: Duration = Duration::from_micros(100);

const CLOSED: usize = 1;
const INSIDE: usize = 2;

/// See the head of the file.
static GATE: AtomicUsize = AtomicUsize::new(0);

/// A thread state that its worker keeps.
#[derive(Clone, Copy)]
struct Kept {
    /// What ends it.
    before: ffi::PyGILState_STATE,
    /// What enters the interpreter with it.
    state: *mut ffi::PyThreadState,
}

thread_local! {
    /// The thread state of this worker, once it has one.
    static KEPT: Cell<Option<Kept>> = const { Cell::new(None) };
    /// Whether this thread is counted in the gate.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The runtime, which is made on first use. No lock is held meanwhile: another thread may fork.
pub(crate) fn runtime() -> Result<&'static Runtime, Error> {
    let builder = Runtime::builder().stack_size(STACK_SIZE).on_worker_stop(|_| stop());
    match builder.build_global() {
        // Made before, or by another thread at this moment; with these settings, as each extension has a runtime of its own.
        Err(Error::GlobalExists) => Runtime::try_global(),
        made => made,
    }
}

/// The right of a worker to be in the interpreter, until it is dropped.
struct Pass;

impl Pass {
    /// `None` if the interpreter ends.
    fn get() -> Option<Self> {
        // Acquire and release: what a thread did inside happens before `close` returns.
        if GATE.fetch_add(INSIDE, Ordering::AcqRel) & CLOSED != 0 {
            GATE.fetch_sub(INSIDE, Ordering::AcqRel);
            return None;
        }
        IS_INSIDE.set(true);
        Some(Self)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
        GATE.fetch_sub(INSIDE, Ordering::AcqRel);
    }
}

/// Runs `f` in the interpreter, in a worker. If the interpreter ends, `f` is forgotten: what it holds is Python's, and must not be freed
/// any more.
pub(crate) fn enter<F: FnOnce(Python<'_>)>(f: F) {
    let Some(_pass) = Pass::get() else {
        std::mem::forget(f);
        return;
    };
    if KEPT.get().is_none() {
        keep();
    }
    Python::attach(f);
}

/// Makes the thread state of this worker.
fn keep() {
    // SAFETY: the interpreter exists, and does not end while the thread has a pass; the thread has no thread state yet.
    let before = unsafe { ffi::PyGILState_Ensure() };
    // SAFETY: the thread has just entered; it leaves, and the state stays.
    let state = unsafe { ffi::PyEval_SaveThread() };
    KEPT.set(Some(Kept { before, state }));
}

/// The worker ends: frees its thread state.
fn stop() {
    let (Some(kept), Some(_pass)) = (KEPT.take(), Pass::get()) else { return };
    // SAFETY: the state is this thread's own, made by `keep` and left since; the interpreter does not end while the thread has a pass.
    unsafe { ffi::PyEval_RestoreThread(kept.state) };
    // SAFETY: pairs with the call in `keep`; the thread is in the interpreter, with that state.
    unsafe { ffi::PyGILState_Release(kept.before) };
}

/// From now on no worker enters the interpreter; waits for those that are inside.
#[pyfunction]
pub(crate) fn close(py: Python<'_>) {
    py.detach(|| {
        let mut found = GATE.fetch_or(CLOSED, Ordering::AcqRel) | CLOSED;
        while found != CLOSED {
            std::thread::sleep(CLOSE_INTERVAL);
            found = GATE.load(Ordering::Acquire);
        }
    });
}

/// The process is the child of a fork: the workers have vanished.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    let own = if IS_INSIDE.get() { INSIDE } else { 0 };
    // Relaxed: there is no other thread.
    GATE.store(own, Ordering::Relaxed);
}

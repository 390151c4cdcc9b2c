//! How a closure or a future can end without a result: [`Panic`] and [`JoinError`]; and panics that must go no further.

use core::fmt;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a closure or future panicked with.
///
/// ```
/// # use nearq_core as nearq;
/// let panicked = nearq::system::unbound().spawn(|| panic!("out of paper")).join().unwrap_err();
/// assert_eq!(panicked.message(), Some("out of paper"));
/// let payload = panicked.into_panic().unwrap().into_payload();
/// let again = std::thread::spawn(|| std::panic::resume_unwind(payload));
/// assert!(again.join().is_err());
/// ```
pub struct Panic(Box<dyn Any + Send>);

// SAFETY: a shared reference gives access only to the message, which is a `&str` or a `String` and so may be read by all threads; of any
// other value only the type is examined. The value itself comes out by value only, and is `Send`.
unsafe impl Sync for Panic {}

impl Panic {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        Panic(payload)
    }

    /// Returns the value that the closure panicked with, for `std::panic::resume_unwind`.
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        self.0
    }

    /// Returns the message, if the value is a text.
    pub fn message(&self) -> Option<&str> {
        self.0
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| self.0.downcast_ref::<String>().map(String::as_str))
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the closure panicked: {}", self.message().unwrap_or("(not a text)"))
    }
}

nearq_topology::debug_as_display!(Panic);

impl std::error::Error for Panic {}

/// Why a spawned closure or future has no result.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{JoinError, Workqueue};
///
/// let queue = Workqueue::builder("example").build()?;
/// match queue.spawn(|| "7".parse::<u32>().unwrap()).join() {
///     Ok(number) => assert_eq!(number, 7),
///     Err(JoinError::Panicked(panic)) => std::panic::resume_unwind(panic.into_payload()),
///     Err(error) => eprintln!("no number: {error}"),
/// }
/// # Ok::<(), nearq::Error>(())
/// ```
#[non_exhaustive]
pub enum JoinError {
    /// It panicked.
    Panicked(Panic),
    /// It was cancelled: by [`JoinHandle::cancel`](crate::JoinHandle::cancel), by its [`JoinSet`](crate::JoinSet), or, if it is a future,
    /// by a wake after its queue was dropped. Or the process is the child of a fork, and the parent runs it.
    Cancelled,
    /// It never ran: the queue refused it, because it was being drained, because its last [`Workqueue`](crate::Workqueue) was dropped, or
    /// because the runtime was shut down. `try_spawn` returns it instead, with the reason.
    Refused,
    /// The wait for it was refused because it would never have ended: the limit of its queue holds it back, and every item that counts
    /// under that limit waits like the caller. The item itself goes on, and starts when one of the others has ended.
    Deadlock,
}

impl JoinError {
    /// Returns whether it was cancelled. False if its queue refused it.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, JoinError::Cancelled)
    }

    /// Returns whether its queue refused it, so that it never ran.
    pub fn is_refused(&self) -> bool {
        matches!(self, JoinError::Refused)
    }

    /// Returns the panic, if there was one.
    pub fn panic(&self) -> Option<&Panic> {
        match self {
            JoinError::Panicked(panic) => Some(panic),
            JoinError::Cancelled | JoinError::Refused | JoinError::Deadlock => None,
        }
    }

    /// Returns the panic, if there was one; its payload can be passed to `std::panic::resume_unwind`.
    pub fn into_panic(self) -> Option<Panic> {
        match self {
            JoinError::Panicked(panic) => Some(panic),
            JoinError::Cancelled | JoinError::Refused | JoinError::Deadlock => None,
        }
    }

    /// Returns the message of the panic, if there was one and it is a text.
    pub fn message(&self) -> Option<&str> {
        self.panic().and_then(Panic::message)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Panicked(panic) => panic.fmt(f),
            JoinError::Cancelled => write!(f, "it was cancelled before it had ended"),
            JoinError::Refused => write!(
                f,
                "it never ran: its queue is being drained or has ended, or its runtime was shut down; `try_spawn` says which"
            ),
            JoinError::Deadlock => write!(
                f,
                "it is held back by its queue's limit, and every item that is admitted by that limit waits like the caller; let the caller end first, use a scope or two queues, or raise max_active"
            ),
        }
    }
}

nearq_topology::debug_as_display!(JoinError);

impl std::error::Error for JoinError {}

/// Runs foreign code whose panic must go no further: a user's function, hook or waker, or the drop of a user's value, must not end a
/// worker. The panic hook has already reported it. True if it panicked.
#[inline]
pub(crate) fn contain(f: impl FnOnce()) -> bool {
    let outcome = catch_unwind(AssertUnwindSafe(f));
    outcome.map_err(discard).is_err()
}

/// Drops the value of a panic. The drop is foreign code too, and may panic with another value; in the end that is forgotten.
#[cold]
fn discard(mut payload: Box<dyn Any + Send>) {
    for _ in 0..8 {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    core::mem::forget(payload);
}

//! [`CancelOnDrop`]: what was spawned ends with the future that awaits it.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use nearq_platform::{Linux, Platform};

use crate::base::outcome::JoinError;
use crate::task::join::JoinHandle;

/// Becomes the result of what was spawned, and [cancels](JoinHandle::cancel) it if it is dropped before; returned by
/// [`JoinHandle::cancel_on_drop`].
#[must_use = "dropping it cancels what was spawned"]
pub struct CancelOnDrop<T, P: Platform = Linux> {
    /// Until the result is taken.
    handle: Option<JoinHandle<T, P>>,
}

impl<T, P: Platform> CancelOnDrop<T, P> {
    pub(crate) fn new(handle: JoinHandle<T, P>) -> Self {
        CancelOnDrop { handle: Some(handle) }
    }
}

impl<T, P: Platform> Future for CancelOnDrop<T, P> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// If it is polled after it has returned its result.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let handle = self.handle.as_mut().expect("it is not polled after its end");
        let result = Pin::new(handle).poll(context);
        if result.is_ready() {
            self.handle = None;
        }
        result
    }
}

impl<T, P: Platform> Drop for CancelOnDrop<T, P> {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            handle.cancel();
        }
    }
}

impl<T, P: Platform> fmt::Debug for CancelOnDrop<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelOnDrop").field(&self.handle).finish()
    }
}

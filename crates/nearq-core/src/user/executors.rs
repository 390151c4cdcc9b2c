//! A [`Handle`] as an executor of other crates, each behind a feature that has the crate's version in its name.
//!
//! What they spawn is detached. Only a `Handle` is one: they clone and keep their executor, which must not keep a queue open.

#[cfg(feature = "hyper_1")]
use core::future::Future;

use nearq_platform::Platform;

use crate::user::handle::Handle;

/// With the feature `hyper_1`: hyper spawns the futures of its connections on the queue. A queue that has ended drops them.
///
/// ```
/// # use nearq_core as nearq;
/// use hyper::rt::Executor;
/// use nearq::Workqueue;
///
/// let queue = Workqueue::builder("http").build()?;
/// // As in `hyper::client::conn::http2::handshake(queue.handle(), stream)`.
/// queue.handle().execute(async { println!("polled by a worker") });
/// # Ok::<(), nearq::Error>(())
/// ```
#[cfg(feature = "hyper_1")]
impl<F, P: Platform> hyper::rt::Executor<F> for Handle<P>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.spawn_future(future));
    }
}

/// With the feature `futures_task_0_3`: what takes a `Spawn` of the futures crate runs on the queue.
///
/// ```
/// # use nearq_core as nearq;
/// use futures_task::{FutureObj, Spawn};
/// use nearq::Workqueue;
///
/// let queue = Workqueue::builder("tasks").build()?;
/// let executor = queue.handle();
/// // Or `executor.spawn(…)` of `futures::task::SpawnExt`.
/// executor.spawn_obj(FutureObj::new(Box::new(async { println!("polled by a worker") }))).unwrap();
/// drop(queue);
/// assert!(executor.status().is_err());
/// # Ok::<(), nearq::Error>(())
/// ```
#[cfg(feature = "futures_task_0_3")]
impl<P: Platform> futures_task::Spawn for Handle<P> {
    fn spawn_obj(
        &self,
        future: futures_task::FutureObj<'static, ()>,
    ) -> Result<(), futures_task::SpawnError> {
        // The error of that crate has one reason only.
        let spawned = self.task().try_spawn_future(future).map(drop);
        spawned.map_err(|_| futures_task::SpawnError::shutdown())
    }

    fn status(&self) -> Result<(), futures_task::SpawnError> {
        // Without `upgrade`: the owner that it makes may become the last, whose drop waits for the queue's items.
        if self.shared().rundown.is_closed() {
            return Err(futures_task::SpawnError::shutdown());
        }
        Ok(())
    }
}

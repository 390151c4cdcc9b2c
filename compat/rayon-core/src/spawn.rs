//! [`spawn`] and [`spawn_fifo`].

use crate::registry::Registry;

/// Has a closure run in the current pool, or else in the global one. It may run after the caller has returned, so it cannot borrow.
///
/// In a member of the pool, closures that it has spawned run newest first, if no other member takes them; others take the oldest.
///
/// A panic of the closure goes to the pool's [panic handler](crate::ThreadPoolBuilder::panic_handler); without one, it ends the process.
///
/// ```
/// let (sender, receiver) = std::sync::mpsc::channel();
/// rayon_core::spawn(move || sender.send(7).unwrap());
/// assert_eq!(receiver.recv(), Ok(7));
/// ```
pub fn spawn<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    Registry::current().spawn(func, false);
}

/// As [`spawn`], but closures that a member has spawned with this function run in the order in which it has spawned them.
pub fn spawn_fifo<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    Registry::current().spawn(func, true);
}

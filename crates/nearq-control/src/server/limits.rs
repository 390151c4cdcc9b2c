//! The numbers: how much a client may ask for, and how long it may take.

use std::time::Duration;

/// Bytes of the thread's stack.
pub(super) const STACK: usize = 64 * 1024;

/// One part in this many of a CPU may be used for clients.
pub(super) const SHARE: u64 = 20;
/// CPU time that may be used at once after a quiet period: enough for some answers about hundreds of queues.
pub(super) const BURST: Duration = Duration::from_millis(100);

/// Time for a call from its first byte to its last.
pub(super) const CALL_PATIENCE: Duration = Duration::from_secs(5);
/// Time within which the client must read some part of an answer: a user may pause while reading a trace.
pub(super) const READ_PATIENCE: Duration = Duration::from_secs(60);
/// The same time, while other clients wait for capacity.
pub(super) const CROWDED_PATIENCE: Duration = Duration::from_millis(500);

/// The number of bytes of unread answers, over all connections, from which on calls wait. One more answer may be added to that.
pub(super) const MOST_UNREAD: usize = 256 << 10;
/// Bytes that are read at once.
pub(super) const MOST_READ: usize = 4096;

/// Traces at once. Each is sent about as many events as items are timed, which costs the thread 1 to 2 % of a CPU.
pub(super) const MOST_TRACES: usize = 4;
/// How often traces are read.
pub(super) const TRACE_INTERVAL: Duration = Duration::from_millis(50);
/// Events in a batch.
pub(super) const MOST_EVENTS: usize = 1024;

/// The most connections at once whose end undoes something: the other places always remain for clients that make a call and leave.
pub(super) const MOST_HOLDING: usize = 12;
/// The time until the next try if no file can be opened.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

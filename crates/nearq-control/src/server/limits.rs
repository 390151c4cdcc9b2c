//! The numbers: how much a client may ask for, and how long it may take.

use std::time::Duration;

/// Bytes of the thread's stack.
pub(super) const STACK: usize = 64 * 1024;

/// Of a CPU, one part in so many may be used for connections.
pub(super) const SHARE: u64 = 20;
/// CPU time that may be used at once after a quiet time: some answers about hundreds of queues.
pub(super) const BURST: Duration = Duration::from_millis(100);

/// Time for a call from its first byte to its last.
pub(super) const CALL_PATIENCE: Duration = Duration::from_secs(5);
/// Time in which something of an answer must be read.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer that must be read each second, beyond [`ANSWER_PATIENCE`]: who reads a byte now and then is no reader.
pub(super) const SLOWEST_READER: u64 = 16 * 1024;
/// Likewise for a trace, whose reader may have stopped to look at something.
pub(super) const TRACE_PATIENCE: Duration = Duration::from_mins(1);
/// Likewise for all, while others wait for room.
pub(super) const CROWDED_PATIENCE: Duration = Duration::from_millis(500);
/// Time to read why the connection is closed.
pub(super) const CLOSING_PATIENCE: Duration = Duration::from_secs(1);

/// Calls of a connection in a second.
pub(super) const MOST_CALLS_PER_SECOND: u32 = 200;
/// Bytes of unread answers, all connections together, from which on calls wait. One answer may come on top.
pub(super) const MOST_UNREAD: usize = 256 << 10;
/// Bytes that are read at once.
pub(super) const MOST_READ: usize = 16 * 1024;

/// Traces at once. Each is sent about as many events as items are timed, which costs the thread 1 to 2 % of a CPU.
pub(super) const MOST_TRACES: usize = 4;
/// How often traces are looked at.
pub(super) const TRACE_INTERVAL: Duration = Duration::from_millis(50);
/// Events in a batch.
pub(super) const MOST_EVENTS: usize = 1024;
/// Batches that are sent at once: 80,000 events a second.
pub(super) const MOST_BATCHES: usize = 4;

/// Connections at once whose end changes something: some places are always left for those who ask and go.
pub(super) const MOST_HOLDING: usize = 12;
/// After so long without a call, a connection may have to give way to a new one.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// Likewise, where nothing of an answer was read for so long.
pub(super) const STUCK: Duration = Duration::from_millis(250);
/// Likewise, where its end takes something back or ends the timing of items.
pub(super) const LONG_IDLE: Duration = Duration::from_mins(1);
/// For how long new ones are left to wait for a connection to give way, before they are told that there is no room.
pub(super) const ROOM_PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether one gives way.
pub(super) const ROOM_PAUSE: Duration = Duration::from_millis(100);
/// Where no file can be opened, time until it is tried again.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

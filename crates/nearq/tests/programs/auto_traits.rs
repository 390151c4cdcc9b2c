//! Which types may go to other threads and through a caught panic. Checked when this is compiled: an accidental change breaks programs.

use core::panic::{RefUnwindSafe, UnwindSafe};

use nearq::future::{CancelOnDrop, DrainedQueue, Flushed, FlushedQueue, JoinNext};
use nearq::home::{
    AtHome, Home, HomeChoice, MemoryPolicy, NodeHomes, Registered, Residency, Weights,
};
use nearq::inspect::{
    Activity, BusyWorker, CpuHog, Domain, DomainLimit, InFlight, PoolId, PoolInfo, PoolStatistics,
    QueueId, QueueKind, QueueView, RunningItem, Stall, StillRunning, Waiting, WaitingItems,
    WorkerInfo, WorkerState,
};
use nearq::trace::{Histogram, QueueTimes, TimingGuard, TraceEvent, TraceKind, Tracer};
use nearq::{
    AffinityScope, Attributes, CpuSet, Error, Handle, JoinError, JoinHandle, JoinSet, Panic,
    Runtime, RuntimeBuilder, Scope, ShutdownError, TaskBuilder, TrySpawnError, Work, Workqueue,
    WorkqueueBuilder,
};

/// Each type has all of the marks.
macro_rules! is {
    (@one $kind:ty: [$($mark:path),+]) => {
        const _: () = {
            const fn is<T: ?Sized $(+ $mark)+>() {}
            is::<$kind>();
        };
    };
    ($($kind:ty),+ $(,)?: $marks:tt) => {
        $(is!(@one $kind: $marks);)+
    };
}

/// May be sent to another thread, and not shared.
type Sent = core::cell::Cell<u32>;

is!(Workqueue, Handle, QueueView, Runtime, Home, Work: [Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Clone]);
is!(
    JoinHandle<Sent>, CancelOnDrop<Sent>, JoinSet<Sent>, Flushed, Registered, Tracer, TimingGuard, RuntimeBuilder, WorkqueueBuilder:
    [Send, Sync, Unpin, UnwindSafe, RefUnwindSafe]
);
is!(
    TaskBuilder<'static>, DrainedQueue<'static>, FlushedQueue<'static>, JoinNext<'static, Sent>:
    [Send, Sync, UnwindSafe, RefUnwindSafe]
);
// The value belongs to its thread.
is!(AtHome: [Unpin, UnwindSafe, RefUnwindSafe]);
is!(Scope<'static, 'static>: [Send, Sync, RefUnwindSafe]);
is!(
    AffinityScope, Attributes, CpuSet, Error, HomeChoice, MemoryPolicy, NodeHomes, Residency, Weights, ShutdownError,
    Activity, BusyWorker, CpuHog, Domain, DomainLimit, InFlight, PoolId, PoolInfo, PoolStatistics, QueueId, QueueKind,
    RunningItem, Stall, StillRunning, Waiting, WaitingItems, WorkerInfo, WorkerState, Histogram, QueueTimes, TraceEvent,
    TraceKind: [Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, Clone, core::fmt::Debug]
);
// A value that a panic left behind may be in any state, as in std.
is!(JoinError, Panic: [Send, Sync, Unpin, std::error::Error]);
is!(TrySpawnError<fn()>: [Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, std::error::Error]);
is!(Error, ShutdownError: [std::error::Error]);

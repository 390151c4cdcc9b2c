//! Every type may be sent to other threads and pass through a caught panic. This is checked at compile time, because an accidental change
//! would break users' programs.

use core::panic::{RefUnwindSafe, UnwindSafe};

use nearq_topology::{
    AffinityScope, Cache, CacheKind, Core, Cpu, CpuIdTooLarge, CpuSet, Distance, Group, Iter,
    Limits, Llc, Node, ParseError, Pod, Pods, Quota, Topology, TopologyError, Unread,
};

/// Each type has all of the marker traits.
macro_rules! is {
    (@one $kind:ty: [$($mark:path),+]) => {
        const _: () = {
            const fn is<T: ?Sized $(+ $mark)+>() {}
            is::<$kind>();
        };
    };
    ($($kind:ty),+: $marks:tt) => {
        $(is!(@one $kind: $marks);)+
    };
}

is!(
    Cache, CacheKind, Core, Cpu, CpuIdTooLarge, CpuSet, Distance, Group, Iter<'static>, Limits, Llc,
    Node, ParseError, Pod, Pods, Quota, AffinityScope, Topology, Unread:
    [Send, Sync, UnwindSafe, RefUnwindSafe, Unpin]
);
// Not `UnwindSafe`, because `std::io::Error` is not.
is!(TopologyError: [Send, Sync, Unpin]);

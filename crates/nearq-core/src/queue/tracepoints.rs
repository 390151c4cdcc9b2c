//! The points of an item's path that can be watched with external tools: its queueing, its start and its end. Each is behind a feature;
//! without the feature, it does not exist.
//!
//! * `usdt`: probes of the system (USDT), `nearq:queue`, `nearq:start` and `nearq:end`. If no tool is attached, some 10 to 40
//!   instructions each, most of them to keep the arguments at hand. The arguments, in this order: the item's address, the queue's number,
//!   the queue's name and its length, the function's name and its length, the pool's number, the CPU.
//! * `tracing`: an event at the queueing and a span around the execution, level `TRACE`, target `nearq::item`. A subscriber is the
//!   program's own code: it runs in the issuer and in the worker.
//!
//! Unlike timing (`observe`), this applies to every item.

use nearq_platform::Platform;

#[cfg(feature = "tracing")]
use crate::base::outcome::contain;
use crate::item::{Item, ItemVtable};
use crate::limit::pool_workqueue::PoolWorkqueue;

#[cfg(feature = "tracing")]
const TARGET: &str = "nearq::item";

/// Fires the probe of that name.
#[cfg(feature = "usdt")]
macro_rules! trace {
    ($name:ident, $pwq:expr, $item:expr, $table:expr, $cpu:expr) => {{
        let (pwq, table): (&PoolWorkqueue<P>, &ItemVtable<P>) = ($pwq, $table);
        let queue = pwq.queue();
        probe::probe_lazy!(
            nearq,
            $name,
            $item.addr(),
            queue.id.0,
            queue.name.as_ptr(),
            queue.name.len(),
            table.name.text().as_ptr(),
            table.name.text().len(),
            pwq.pool.id.0,
            $cpu
        )
    }};
}

/// An item is about to be queued on the pwq.
#[inline(always)]
pub(crate) fn queued<P: Platform>(pwq: &PoolWorkqueue<P>, item: &Item<P>, cpu: usize) {
    #[cfg(feature = "usdt")]
    trace!(queue, pwq, core::ptr::from_ref(item), item.table(), cpu);
    // A subscriber is foreign code, whose panic must not leave the item half queued.
    #[cfg(feature = "tracing")]
    contain(|| {
        tracing::trace!(
            target: TARGET,
            queue = pwq.queue().name,
            function = item.table().name.text(),
            pool = pwq.pool.id.0,
            cpu,
            "queued"
        );
    });
    let _ = (pwq, item, cpu);
}

/// Calls `execute`, which runs the item that was queued on the pwq.
#[inline(always)]
pub(crate) fn run<P: Platform, R>(
    pwq: &PoolWorkqueue<P>,
    item: *const Item<P>,
    table: &'static ItemVtable<P>,
    execute: impl FnOnce() -> R,
) -> R {
    #[cfg(feature = "usdt")]
    trace!(start, pwq, item, table, P::current_cpu());
    #[cfg(feature = "tracing")]
    let mut entered = None;
    #[cfg(feature = "tracing")]
    contain(|| {
        let span = tracing::trace_span!(
            target: TARGET,
            "item",
            queue = pwq.queue().name,
            function = table.name.text(),
            pool = pwq.pool.id.0
        );
        entered = Some(span.entered());
    });
    let result = execute();
    #[cfg(feature = "tracing")]
    contain(|| drop(entered));
    // The item may be gone; its address is still its number.
    #[cfg(feature = "usdt")]
    trace!(end, pwq, item, table, P::current_cpu());
    let _ = (pwq, item, table);
    result
}

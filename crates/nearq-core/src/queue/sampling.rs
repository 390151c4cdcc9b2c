//! Samples of a queue's items: which ones, and what is recorded of them (`observe`).

use core::time::Duration;

use nearq_platform::{Atomic, Instant, Ordering, Platform};

use crate::item::stamp::Stamp;
use crate::item::{Item, ItemVtable};
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::observe::{TraceEvent, TraceKind};

impl<P: Platform> PoolWorkqueue<P> {
    /// Marks an item that is about to be queued here as a sample, or as none. The caller owns its `PENDING`, and the pwq is observed.
    #[inline]
    pub(crate) fn stamp(&self, item: &Item<P>, cpu: u32) {
        let sample_shift = self.sample_shift();
        // The count of entered items grows by one with each item that is admitted. The caller writes that word next in any case.
        if self.entered() & ((1 << sample_shift) - 1) == 0 {
            self.sample(item, cpu, sample_shift);
        } else {
            item.set_stamp(Stamp::NONE);
        }
    }

    /// Makes the item a sample, which stands for two to the power of `sample_shift` items, if there may be one now.
    #[cold]
    #[inline(never)]
    fn sample(&self, item: &Item<P>, cpu: u32, sample_shift: u32) {
        let queue = self.queue();
        let now = P::now();
        let rate = &queue.observed.rate;
        let allowed = queue.inner().observation.budget.allows(rate, now);
        self.set_sample_shift(rate.sample_shift());
        if !allowed {
            item.set_stamp(Stamp::NONE);
            return;
        }
        item.set_stamp(Stamp::new(now, sample_shift));
        self.trace(TraceKind::Queue, item, item.table(), now, Duration::ZERO, Some(cpu));
    }

    /// Calls `execute`, and reads the clock before and after if the item is a sample.
    #[inline]
    pub(crate) fn time<R>(
        &self,
        item: *const Item<P>,
        table: &'static ItemVtable<P>,
        stamp: Stamp,
        execute: impl FnOnce() -> R,
    ) -> R {
        let observed = &self.queue().observed;
        let Some(times) = observed.times() else { return execute() };
        let begin = P::now();
        let Some(waited) = observed.waited(stamp, begin) else { return execute() };
        self.trace(TraceKind::Start, item, table, begin, waited, None);
        times.wait.record(waited.as_nanos() as u64, stamp.weight());
        let result = execute();
        let end = P::now();
        times.run.record((end - begin).as_nanos() as u64, stamp.weight());
        // The item may be gone; its address is still its number.
        self.trace(TraceKind::End, item, table, end, end - begin, None);
        result
    }

    fn trace(
        &self,
        kind: TraceKind,
        item: *const Item<P>,
        table: &'static ItemVtable<P>,
        at: Instant,
        took: Duration,
        queued_on: Option<u32>,
    ) {
        let queue = self.queue();
        if queue.observed.events.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(tape) = queue.inner().observation.tape() else { return };
        let cpu = queued_on.map_or_else(P::current_cpu, |cpu| cpu as usize);
        tape.write(TraceEvent {
            at_nanos: at.as_nanos(),
            kind,
            queue: queue.id,
            item: item.addr(),
            name: table.name,
            cpu,
            thread: queued_on.is_none().then(|| P::thread_id(P::current_thread())),
            pool: self.pool.id,
            took,
        });
    }
}

//! When a sampled item was queued, for measuring how long items wait (`observe`).
//!
//! A word of the item, in nanoseconds, with the sample's weight (a power of two) in its highest bits. Written by the owner of `PENDING`
//! while the pwq is observed: 0 if the item is no sample. Read by the worker that has just started the item; a fast queuer may have
//! written the next one by then, so that a sample is taken for a shorter one, or for none. (To read it before the start would cost each
//! item an instruction.) It is never cleared: a stamp from before the queue was last observed (`since`) counts as none. Relaxed: it travels
//! with the item, which is handed on with release and acquire.

use nearq_platform::Instant;

/// The bit at which the weight begins in a stamp. One bit of the stamp belongs to the item (`item_ext`). The bits below are nanoseconds: 9
/// years.
const WEIGHT: u32 = 58;

/// What a sample records of its queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) u64);

impl Stamp {
    /// The item is no sample.
    pub(crate) const NONE: Stamp = Stamp(0);

    /// The stamp of a sample that stands for two to the power of `sample_shift` items.
    pub(crate) fn new(now: Instant, sample_shift: u32) -> Self {
        Stamp(now.as_nanos() & ((1 << WEIGHT) - 1) | u64::from(sample_shift) << WEIGHT)
    }

    /// When it was queued.
    pub(crate) fn nanos(self) -> u64 {
        self.0 & ((1 << WEIGHT) - 1)
    }

    /// How many items it stands for.
    pub(crate) fn weight(self) -> u64 {
        1 << (self.0 >> WEIGHT)
    }
}

//! When an item was queued that is a sample, for those who measure how long items wait (`observe`).
//!
//! A word of the item, in nanoseconds, with the sample's weight (a power of two) in its highest bits. Written by the owner of `PENDING`
//! while the link is observed: 0 if the item is no sample. Read by the worker that has just started the item; a queuer that is as fast
//! may have written the next one, then a sample is taken for a shorter one, or for none. (To read it before the start would cost each
//! item an instruction.) Nobody clears it: a stamp from before the queue was observed last (`since`) counts as none. Relaxed: it
//! goes with the item, which is handed on with release and acquire.

use nearq_platform::Instant;

/// Where the weight begins in a stamp, of which one bit is the item's (`extra`). What is below are nanoseconds: 9 years.
const WEIGHT: u32 = 58;

/// What a sample knows of its queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) u64);

impl Stamp {
    /// The item is no sample.
    pub(crate) const NONE: Stamp = Stamp(0);

    /// Of a sample that stands for two to the power of `power` items.
    pub(crate) fn new(now: Instant, power: u32) -> Self {
        Stamp(now.as_nanos() & ((1 << WEIGHT) - 1) | u64::from(power) << WEIGHT)
    }

    /// When it was queued.
    pub(crate) fn nanos(self) -> u64 {
        self.0 & ((1 << WEIGHT) - 1)
    }

    /// For how many items it stands.
    pub(crate) fn weight(self) -> u64 {
        1 << (self.0 >> WEIGHT)
    }
}

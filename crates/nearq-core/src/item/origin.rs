//! The CPU that queued an item and the item's home node, in one word.

/// An item's origin and home: the lower bits are the CPU that queued it, the bits above are one more than the number of its home node.
/// Linux has at most 8192 CPUs and 1024 nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    const CPU_BITS: u32 = 20;

    /// The origin stored in an item's word.
    #[inline(always)]
    pub(super) fn from_word(word: u32) -> Self {
        Origin(word)
    }

    /// The word to store in an item.
    #[inline(always)]
    pub(super) fn word(self) -> u32 {
        self.0
    }

    /// The origin of an item without a home.
    #[inline(always)]
    pub(crate) fn of_cpu(cpu: usize) -> Self {
        Origin(cpu as u32)
    }

    pub(crate) fn new(cpu: usize, home: Option<u32>) -> Self {
        let cpu = cpu as u32 & ((1 << Self::CPU_BITS) - 1);
        Origin(cpu | home.map_or(0, |home| (home + 1) << Self::CPU_BITS))
    }

    /// The CPU that queued it.
    pub(crate) fn cpu(self) -> usize {
        (self.0 & ((1 << Self::CPU_BITS) - 1)) as usize
    }

    /// The number of its home node.
    #[inline]
    pub(crate) fn home(self) -> Option<u32> {
        (self.0 >> Self::CPU_BITS).checked_sub(1)
    }
}

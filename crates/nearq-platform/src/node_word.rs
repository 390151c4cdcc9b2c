//! A word to sleep on that says on which node the system keeps those who do.

use core::ops::Deref;

use crate::{Atomic, Ordering, Platform};

/// What stands for no node.
const NOWHERE: u32 = u32::MAX;

/// A word to sleep on, and behind it the node on which the system keeps its sleepers, if that was asked for.
///
/// It is used as the word, but for sleeping and waking: [`Platform::wait_at_node`] and [`Platform::wake_at_node`] look at the node, so
/// that both sides do the same at any time. The node is changed only while nobody sleeps on the word, by
/// [`Platform::keep_sleepers_here`]; a wake-up that comes late, for somebody who is awake by then, may find either node.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct NodeWord<P: Platform> {
    pair: [P::AtomicU32; 2],
}

impl<P: Platform> NodeWord<P> {
    /// A word whose sleepers are kept wherever the system likes.
    pub fn new(value: u32) -> Self {
        NodeWord { pair: [P::AtomicU32::new(value), P::AtomicU32::new(NOWHERE)] }
    }

    /// The node that its sleepers are kept on; none if that is the system's affair.
    pub fn node(&self) -> Option<u32> {
        // Relaxed: who finds somebody asleep has read the word by acquire, and who fell asleep is the one who changes it.
        Some(self.pair[1].load(Ordering::Relaxed)).filter(|node| *node != NOWHERE)
    }

    /// As the system takes it.
    #[cfg(target_os = "linux")]
    pub(crate) fn pair(&self) -> &[P::AtomicU32; 2] {
        &self.pair
    }

    /// Nobody sleeps on the word.
    #[cfg(target_os = "linux")]
    pub(crate) fn set_node(&self, node: Option<u32>) {
        // Relaxed: published with whatever others come to know of the word by.
        self.pair[1].store(node.unwrap_or(NOWHERE), Ordering::Relaxed);
    }
}

impl<P: Platform> Deref for NodeWord<P> {
    type Target = P::AtomicU32;

    #[inline]
    fn deref(&self) -> &P::AtomicU32 {
        &self.pair[0]
    }
}

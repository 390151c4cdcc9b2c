//! Separates what different CPUs write.

use core::ops::Deref;

/// A value on cache lines of its own: 128 bytes, because x86 fetches lines in pairs and some Arm cores have
/// lines of that size.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

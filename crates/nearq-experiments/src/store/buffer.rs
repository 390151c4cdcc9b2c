//! The memory of one block, aligned for direct input and output.

use crate::payload::BLOCK_BYTES;
use std::ops::{Deref, DerefMut};

/// One block in memory, at an address that direct input and output accepts (a multiple of 4096).
#[derive(Debug)]
pub struct Buffer(Box<Page>);

#[derive(Debug)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_BYTES]);

impl Buffer {
    /// A block of zeroes, touched, so that no run pays for its first use.
    #[expect(
        clippy::large_stack_arrays,
        reason = "32 KiB, once for each block, and it needs no unsafe code"
    )]
    pub fn new() -> Self {
        Self(Box::new(Page([0; BLOCK_BYTES])))
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_is_aligned_and_one_block_long() {
        let buffers: Vec<Buffer> = (0..5).map(|_| Buffer::new()).collect();
        assert!(
            buffers
                .iter()
                .all(|buffer| buffer.as_ptr().addr().is_multiple_of(4096)
                    && buffer.len() == 32 << 10)
        );
    }
}

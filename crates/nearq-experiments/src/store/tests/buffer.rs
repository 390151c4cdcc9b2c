//! Tests of `memory`: the memory of one block, aligned for direct input and output.

use super::*;

#[test]
fn every_buffer_is_aligned_and_one_block_long() {
    let buffers: Vec<Buffer> = (0..5).map(|_| Buffer::new()).collect();
    assert!(
        buffers
            .iter()
            .all(|buffer| buffer.as_ptr().addr().is_multiple_of(4096) && buffer.len() == 32 << 10)
    );
}

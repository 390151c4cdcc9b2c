//! Anything, sent to the server: its frames, calls and answers. `cargo fuzz run calls` in the crate's folder, on a nightly compiler.
//!
//! The first two bytes say how long the pieces are that it comes in. Whatever the fuzzer finds belongs into the corpus, which the
//! tests go through on the stable compiler.

#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let lengths = [*bytes.first().unwrap_or(&1), *bytes.get(1).unwrap_or(&1)];
    common::speaking::check(bytes, &lengths.map(|length| usize::from(length) + 1));
});

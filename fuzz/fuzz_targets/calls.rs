//! Anything, sent to the server: its frames, calls and answers.
//!
//! The first two bytes say how long the pieces are that it comes in.

#![no_main]

#[path = "../../crates/nearq-control/tests/common/mod.rs"]
mod common;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let lengths = [*bytes.first().unwrap_or(&1), *bytes.get(1).unwrap_or(&1)];
    common::speaking::check(bytes, &lengths.map(|length| usize::from(length) + 1));
});

//! Anything, answered to a client.

#![no_main]

#[path = "../../crates/nearq-control/tests/common/answering.rs"]
mod answering;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| answering::check(bytes));

//! A command with placeholders, and the list of its inputs.

#![no_main]

#[path = "../../crates/nearq-cli/tests/command/listed.rs"]
mod listed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    listed::check(bytes);
});

//! A stranger's export of hwloc.

#![no_main]

#[allow(dead_code, reason = "the trees are another target's")]
#[path = "../../crates/nearq-topology/tests/topology/checked.rs"]
mod checked;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checked::xml(bytes));

//! A stranger's export of hwloc.

#![no_main]

#[allow(dead_code, reason = "the trees are another target's")]
#[path = "../../crates/nearq-topology/tests/topology/checked.rs"]
mod checked;
#[path = "../../crates/nearq-report/tests/drawing/shown.rs"]
mod shown;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(machine) = checked::xml(bytes) {
        shown::shown(&machine);
    }
});

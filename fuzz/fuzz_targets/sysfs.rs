//! A stranger's copy of `/sys` and `/proc`, as a text that tells its files.

#![no_main]

#[allow(dead_code, reason = "the exports are another target's")]
#[path = "../../crates/nearq-topology/tests/topology/checked.rs"]
mod checked;
#[path = "../../crates/nearq-report/tests/drawing/shown.rs"]
mod shown;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = std::env::temp_dir().join(format!("nearq-fuzz-{}", std::process::id()));
    if let Some(machine) = checked::sysfs(bytes, &folder) {
        shown::shown(&machine);
    }
});

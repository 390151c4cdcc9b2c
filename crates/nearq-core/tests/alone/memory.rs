//! What changes of attributes leave behind.

use std::time::Duration;

use nearq_core::{Runtime, Scope};

use crate::common::alone;

/// Of the process, in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    // SAFETY: takes nothing, and returns a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned()
}

/// Pools, tables and links of old attributes are kept, because an issuer may still go by them (`queue/change.rs`). Threads, their stacks and
/// their entries are not.
#[test]
fn a_change_of_attributes_leaves_some_kib_for_each_pool() {
    const CHANGES: u64 = 500;
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    for scope in [Scope::System, Scope::Cpu] {
        let queue = runtime.workqueue("changed").scope(scope).build().unwrap();
        let pools = match scope {
            Scope::Cpu => runtime.topology().possible().len() as u64,
            _ => 1,
        };
        let change = |number: u64| {
            // Another one each time.
            queue.set_slice(Duration::from_nanos(200_000 + number * 1000)).unwrap();
            queue.spawn(|| {}).join().unwrap();
        };
        (0..CHANGES / 10).for_each(change);
        let before = resident();
        (CHANGES / 10..CHANGES).for_each(change);
        let taken = resident().saturating_sub(before) / (CHANGES - CHANGES / 10);
        println!("{scope}: {taken} bytes a change, {pools} pools");
        assert!(taken < 12 * 1024 * pools, "{taken}");
    }
}

//! What changes of attributes leave behind.

use std::time::Duration;

use nearq_core::{AffinityScope, Runtime};

use crate::common::{alone, eventually};

/// Memory mappings of the process. Each stack is one mapping, and its guard page is another.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Pools, tables and pwqs of old attributes are kept, because an issuer may still use them (`queue/change.rs`). Threads, their stacks and
/// their entries are not kept.
#[test]
fn a_change_of_attributes_leaves_no_thread_no_stack_and_no_entry() {
    const CHANGES: u64 = 400;
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let queue =
        runtime.workqueue_builder("changed").affinity_scope(AffinityScope::System).build().unwrap();
    let change = |number: u64| {
        // A different value each time.
        queue.set_time_slice(Duration::from_nanos(200_000 + number * 1000)).unwrap();
        queue.spawn(|| std::thread::current().name().map(str::to_owned)).join().unwrap()
    };
    let (before, mut name) = (mappings(), None);
    for number in 0..CHANGES {
        name = change(number);
        // The workers of unused pools end after 100 ms.
        eventually("there are few threads", || runtime.thread_count() < 40);
    }
    eventually("only the threads of the last pools are left", || runtime.thread_count() <= 4);
    // The C library keeps some stacks for the next threads.
    let more = mappings().saturating_sub(before);
    assert!(more < CHANGES as usize, "{more} mappings more after {CHANGES} changes");
    let name = name.unwrap();
    let entry: u64 = name.rsplit(':').next().unwrap().parse().unwrap();
    assert!(entry < CHANGES / 2, "{name}: the entries of ended workers are not used again");
}

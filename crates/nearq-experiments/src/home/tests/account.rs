//! Tests of `task`: a task's own account of where it ran.

use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_task_is_at_home_once_its_memory_has_arrived() {
    let mut account = Account::open(2, 0, Duration::ZERO);
    account.settle(&[10, 2]);
    account.record(50 * MS, 50 * MS, 1);
    account.settle(&[6, 6]);
    account.record(60 * MS, 60 * MS, 1);
    account.settle(&[5, 7]);
    account.record(100 * MS, 100 * MS, 1);
    account.settle(&[0, 0]);
    let report = account.close(100 * MS, MS, vec![0, 12]);
    assert_eq!((report.home, report.stray, report.crossings), (1, false, 1));
    assert_eq!(report.returns, [50_000_000]);
    assert_eq!(report.slots, [[0, 60_000_000], [40_000_000, 0]]);
}

#[test]
fn time_is_charged_to_the_sampled_node_and_to_its_slot() {
    let mut account = Account::open(3, 1, 5 * MS);
    account.record(10 * MS, 8 * MS, 1);
    account.settle(&[10, 20, 20]);
    for (at, cpu, node) in [(50, 40, 1), (120, 60, 2), (180, 70, 0), (350, 100, 1), (390, 110, 2)] {
        account.record(at * MS, cpu * MS, node);
    }
    let report = account.close(100 * MS, MS, vec![0, 1, 2]);
    let ms = |time: u64| time / 1_000_000;
    assert_eq!(report.by_node.iter().copied().map(ms).collect::<Vec<_>>(), [10, 65, 30]);
    assert_eq!((report.first, report.home, report.most(), report.crossings), (1, 1, 1, 4));
    assert_eq!(report.returns.iter().copied().map(ms).collect::<Vec<_>>(), [230]);
    assert!(report.stray);
    let within = |from, to| report.within(from * MS, to * MS).map(ms);
    assert_eq!(within(0, 100), [32, 0], "time before the memory was settled is left out");
    assert_eq!(within(100, 200), [0, 30]);
    assert_eq!(within(0, 10_000), [62, 40]);
    assert_eq!(within(9_000, 10_000), [0, 0]);
    assert_eq!(ms(report.cpu_time()), 105);
}

//! `dispatch` on simulated machines: a run is a function of the machine and the seed.

use nearq_experiments::{Common, DispatchOptions};
use nearq_report::{Progress, Report, metric};

fn run(machine: &str) -> Report {
    let common =
        Common { machine: machine.into(), runs: Some(2), goals: true, ..Common::default() };
    let options = DispatchOptions { common, idle_samples: Some(3), items: Some(10) };
    nearq_experiments::run(&options, &Progress::hidden()).expect("nothing is lost")
}

#[test]
fn the_same_machine_gives_the_same_rows() {
    // One cache of sixteen cores: two shards.
    let [first, second] = [run("l3:1 core:16"), run("l3:1 core:16")];
    assert_eq!(first.rows, second.rows);
    assert_eq!(first.parameters, second.parameters);
    assert_eq!(first.text, second.text);
    for (scenario, row) in [
        ("outside", "nearq requeue"),
        ("joined", "nearq spawn"),
        ("inside", "nearq spawn"),
        ("many outside", "nearq spawn"),
        ("scope", "cache_shard"),
        ("issuers", "cpu"),
        ("issuers", "cache_shard"),
        ("issuers", "system"),
    ] {
        let ns = first.find(scenario, row, metric::NS_PER_ITEM);
        assert!(ns.is_some_and(|row| row.summary.median > 1.0), "{scenario} {row}");
    }
    // There are only our rows, and two seeds are two runs.
    assert!(first.rows.iter().all(|row| row.row != "rayon" && row.row != "tokio"));
    let shard = first.find("issuers", "cache_shard", metric::ITEMS_PER_SECOND).unwrap().summary;
    assert!(shard.runs == 2 && shard.min < shard.max, "{shard:?}");
    // So few items give figures but no verdict.
    let shards = &first.parameters["shards"];
    assert!(shards["factor"].is_number() && shards["met"].is_null(), "{shards}");
    assert!(first.text.contains("Too small to judge") && !first.text.contains("goal"));
}

#[test]
fn equal_pods_have_equal_figures() {
    let report = run("l3:2 core:4");
    let rate = |row| report.find("issuers", row, metric::ITEMS_PER_SECOND).unwrap().summary;
    assert_eq!(rate("cpu"), rate("smt"));
    assert_eq!(rate("cache"), rate("cache_shard"));
    assert_eq!(rate("numa"), rate("system"));
    assert_ne!(rate("cpu"), rate("system"));
    assert!(report.parameters["shards"].is_null(), "a cache of four cores is one shard");
}

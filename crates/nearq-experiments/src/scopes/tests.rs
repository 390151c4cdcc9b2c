//! Short runs of the whole experiment, here and on simulated machines.

use super::*;
use crate::Progress;
use configuration::scaled;
use nearq_report::Report;

fn short() -> ScopesOptions {
    let common =
        Common { runs: Some(2), duration: Some(Duration::from_millis(20)), ..Common::default() };
    ScopesOptions { common, in_flight: Some(4), ..ScopesOptions::default() }
}

#[test]
fn the_report_has_every_configuration_once_and_names_those_that_coincide() {
    let machine = Machine::here().unwrap();
    let report = harness::run(&short(), &Progress::hidden()).unwrap();
    for plan in plan(&machine) {
        let name = plan.configuration.name;
        for scenario in ["HIGH", "MED", "LOW"] {
            for metric in [metric::THROUGHPUT, metric::CPU_PERCENT] {
                let row = report.find(scenario, name, metric);
                assert_eq!(row.is_some(), plan.same_as.is_none(), "{scenario} {name}");
            }
        }
        assert!(report.text.contains(name), "{name} is missing from\n{}", report.text);
        assert_eq!(plan.same_as.is_some(), report.parameters["coincide"].get(name).is_some());
    }
    let system = report.find("MED", "system", metric::THROUGHPUT).unwrap();
    assert_eq!((system.published, system.summary.runs), (Some(1155.40), 2));
    assert!(report.text.contains("1155.40"), "{}", report.text);
    assert!(report.svg.contains("MED"));
}

#[test]
fn as_many_issuers_as_asked_for() {
    let options = ScopesOptions { issuers: Some(1), ..short() };
    let report = harness::run(&options, &Progress::hidden()).unwrap();
    assert!(report.find("1 issuer", "system", metric::THROUGHPUT).is_some());
    assert!(report.find("HIGH", "system", metric::THROUGHPUT).is_none());
}

#[test]
fn zero_of_anything_is_refused() {
    let refused = |options: ScopesOptions| {
        let error = harness::run(&options, &Progress::hidden()).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        error.to_string()
    };
    let text = refused(ScopesOptions { issuers: Some(0), ..ScopesOptions::default() });
    assert_eq!(text, "--issuers 0: give a number from 1 to 4096");
    let text = refused(ScopesOptions { in_flight: Some(0), ..ScopesOptions::default() });
    assert_eq!(text, "--in-flight 0: give a number from 1 to 4096");
    let text = refused(ScopesOptions {
        file: Some("/no such folder/f".into()),
        ..ScopesOptions::default()
    });
    assert!(text.starts_with("--file /no such folder/f: cannot be written"), "{text}");
}

#[test]
fn large_simulated_machines_get_shorter_runs_and_no_more_blocks_than_a_queue_may_have_active() {
    let quick = ScopesOptions {
        common: Common { quick: true, ..Common::default() },
        ..ScopesOptions::default()
    };
    for cpus in [1, 24, 72, 384, 4096] {
        for options in [&ScopesOptions::default(), &quick] {
            let times = options.simulated_times(cpus);
            assert!(times.warm_up + times.duration >= 2 * SIMULATED_LEAST / 10, "{times:?}");
            assert!(times.duration <= SIMULATED_FULL && times.runs >= 2, "{times:?}");
        }
        let in_flight = |scenario: &Scenario| scenario.issuers * scenario.in_flight;
        let scenarios = quick.simulated_scenarios(cpus).unwrap();
        let most = MOST_ACTIVE.max(cpus);
        assert!(scenarios.iter().all(|one| in_flight(one) <= most), "{cpus}: {scenarios:?}");
    }
    assert_eq!(quick.simulated_times(24).duration, SIMULATED_QUICK);
    assert_eq!(quick.simulated_scenarios(24).unwrap(), scaled(24), "the document's loads");
    let asked = ScopesOptions { in_flight: Some(4096), ..ScopesOptions::default() };
    assert_eq!(asked.simulated_scenarios(384).unwrap()[0].in_flight, 4096);
}

#[test]
fn a_quick_run_ends_within_thirty_seconds_on_any_machine() {
    let options = ScopesOptions {
        common: Common { quick: true, ..Common::default() },
        ..ScopesOptions::default()
    };
    for cells in 1..=3 * CONFIGURATIONS.len() {
        let times = options.times(cells);
        let total = (times.duration + times.warm_up) * (times.runs * cells) as u32;
        assert!(
            total <= QUICK_TOTAL + Duration::from_millis(1) && times.runs >= 2,
            "{cells}: {total:?}"
        );
    }
}

fn shortest() -> Common {
    Common {
        runs: Some(1),
        duration: Some(Duration::from_millis(20)),
        goals: true,
        ..Common::default()
    }
}

#[test]
fn scopes_runs_on_workqueues_and_everything_verifies() {
    let verifies = |duration| {
        let common = Common { duration: Some(duration), ..shortest() };
        let options = ScopesOptions { common, in_flight: Some(5), ..ScopesOptions::default() };
        let report = harness::run(&options, &Progress::hidden()).unwrap();
        let throughput = report.find("HIGH", "system", metric::THROUGHPUT).unwrap();
        throughput.summary.median > 0.0
    };
    // On a busy machine it may be that no block completes in a short time.
    assert!([20, 200, 2_000, 20_000].map(Duration::from_millis).into_iter().any(verifies));
}

fn simulated(machine: &str, seeds: usize) -> Report {
    let common = Common { machine: machine.into(), runs: Some(seeds), ..shortest() };
    // Few in flight, so that some are verified within a short run.
    let options = ScopesOptions { common, in_flight: Some(8), ..ScopesOptions::default() };
    let machine = options.common.on().unwrap();
    let mut job = options.plan(&machine).unwrap();
    // Shorter than the options allow: the simulator is slow without optimisation.
    job.times.duration = Duration::from_millis(nearq_model::bound(8, 20));
    harness::run_plan(&options, &machine, job, &Progress::hidden()).unwrap()
}

#[test]
fn a_simulated_run_is_the_same_each_time() {
    let _judged = crate::harness::options::tests::AnySize::new();
    let report = simulated("l3:2 core:2 pu:2", 2);
    assert_eq!(report.to_json(), simulated("l3:2 core:2 pu:2", 2).to_json());
    assert_eq!(report.machine, "l3:2 core:2 pu:2");
    for scenario in ["HIGH", "MED", "LOW"] {
        for row in ["system", "cache+strict", "cache+local", "cpu+strict", "cache+helping"] {
            let throughput = report.find(scenario, row, metric::THROUGHPUT).unwrap();
            let cpu = report.find(scenario, row, metric::CPU_PERCENT).unwrap().summary;
            assert!(throughput.summary.min > 1.0, "{scenario} {row}");
            let of_items = |metric| report.find(scenario, row, metric).unwrap().summary.mean;
            let helped = of_items(metric::HELPED_PERCENT);
            assert!(helped == 0.0 || row == "cache+helping", "{scenario} {row}: {helped}");
            assert!((1.0..100.5).contains(&of_items(metric::ISSUER_CPU_PERCENT)));
            assert!(cpu.min > 5.0 && cpu.max < 100.5, "{scenario} {row}: {cpu:?}");
        }
    }
    let system = report.find("HIGH", "system", metric::THROUGHPUT).unwrap().summary;
    assert!(system.deviation > 0.0, "another seed gives another run");
    assert_eq!(report.parameters["declared"]["item_percent"], 400);
    let judgements = report.parameters["judgements"].as_array().unwrap();
    assert!(judgements.iter().all(|one| one["published"].is_null()), "not the document's machine");
    assert_eq!(judgements.len(), 6);
    assert!(report.text.contains("Targets") && report.svg.contains("cache+helping"));
    assert!(crate::redraw::is_drawn_from_the_json(&report));
}

#[test]
fn the_work_of_an_item_decides_the_load_of_the_workers() {
    let busy = |item_percent| {
        let options = ScopesOptions {
            common: Common { machine: "core:4".into(), ..shortest() },
            issuers: Some(1),
            item_percent: Some(item_percent),
            ..ScopesOptions::default()
        };
        let report = harness::run(&options, &Progress::hidden()).unwrap();
        report.find("1 issuer", "system", metric::CPU_PERCENT).unwrap().summary.mean
    };
    let (little, much) = (busy(100), busy(1000));
    assert!(little < 65.0 && much > 95.0, "{little} % and {much} % of four CPUs");
}

#[test]
fn what_the_machine_does_not_support_is_refused() {
    let refused = |machine: &str, options: ScopesOptions| {
        let common = Common { machine: machine.into(), ..shortest() };
        let error =
            harness::run(&ScopesOptions { common, ..options }, &Progress::hidden()).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        error.to_string()
    };
    let file = ScopesOptions { file: Some("scratch".into()), ..ScopesOptions::default() };
    assert!(refused("core:2", file).starts_with("--file scratch: a simulated machine"));
    let work = |percent| ScopesOptions { item_percent: Some(percent), ..ScopesOptions::default() };
    assert!(refused("core:2", work(0)).starts_with("--item-work 0: give a number from 1 to"));
    assert!(refused("here", work(5)).starts_with("--item-work is only for simulated machines"));
    assert!(refused("cray-1", work(5)).starts_with("--on \"cray-1\""));
}

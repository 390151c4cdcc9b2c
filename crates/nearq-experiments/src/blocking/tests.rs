use super::*;
use nearq_model::bound;
use nearq_report::find;

fn short(machine: &str) -> BlockingOptions {
    let common =
        Common { machine: machine.into(), runs: Some(2), goals: true, ..Common::default() };
    BlockingOptions {
        common,
        items: Some(bound(60, 120)),
        sleep_ms: Some(2),
        every: Some(bound(20, 40)),
        ..BlockingOptions::default()
    }
}

#[test]
fn every_contestant_sleeps_and_those_with_hints_block_in_every_way() {
    let _judged = crate::harness::options::tests::AnySize::new();
    let report = blocking(&short("here"), &Progress::hidden()).unwrap();
    let of = |scenario, row, metric| report.find(scenario, row, metric).map(|row| row.summary);
    let every = [PLAIN, HINTED, "tokio spawn_blocking, all", "tokio spawn_blocking, sleepers"];
    let every = every.into_iter().chain(["tokio block_in_place", ENOUGH, BARE, IDEAL]);
    let once = ["rayon", "tokio", "async-executor", "threadpool"];
    let left_out = report.parameters["left_out"].as_array().unwrap();
    for way in Way::ALL {
        if left_out.iter().any(|one| one["scenario"] == way.name()) {
            assert_eq!(way, Way::Disk, "all other ways work on any machine");
            continue;
        }
        for row in every.clone() {
            let ratio = of(way.name(), row, metric::RATIO).unwrap_or_else(|| panic!("no {row}"));
            assert!(ratio.runs == 2 && ratio.min > 0.5, "{} {row}: {ratio:?}", way.name());
            assert!(of(way.name(), row, metric::ELAPSED).unwrap().min > 0.0);
            let computed = of(way.name(), row, metric::CPU_SECONDS);
            assert_eq!(computed.is_none(), row == IDEAL, "{row}");
            // The computing is a fixed amount: no pool can take much less than the ideal.
            let ideal = of(way.name(), IDEAL, metric::ELAPSED).unwrap().min;
            let cpus = report.parameters["workers"].as_f64().unwrap();
            assert!(computed.is_none_or(|cpu| cpu.min > 0.5 * ideal * cpus), "{row}");
        }
        for row in once {
            assert_eq!(of(way.name(), row, metric::RATIO).is_some(), way == Way::Sleep, "{row}");
        }
    }
    let ideal = of("sleep", IDEAL, metric::RATIO).unwrap();
    assert_eq!((ideal.min, ideal.max), (1.0, 1.0));
    assert!(of("sleep", "threadpool", metric::THREADS).unwrap().max >= 1.0);
    assert!(report.text.contains("Targets") && report.svg.contains(HINTED));
    assert!(crate::redraw::is_drawn_from_the_json(&report));
    assert_eq!(report.parameters["targets"].as_array().map(Vec::len), Some(6));
}

#[test]
fn one_way_and_nearq_alone_can_be_selected() {
    let _judged = crate::harness::options::tests::AnySize::new();
    let mut options = BlockingOptions { way: Some("pipe".into()), ours: true, ..short("here") };
    options.common.goals = false;
    let report = blocking(&options, &Progress::hidden()).unwrap();
    let mut found: Vec<_> = report.rows.iter().map(|row| (&*row.scenario, &*row.row)).collect();
    found.dedup();
    let rows = [PLAIN, HINTED, ENOUGH, BARE, IDEAL];
    assert_eq!(found, rows.map(|row| ("pipe", row)));
    assert!(!report.text.contains("Targets"), "not asked for: {}", report.text);
}

#[test]
fn impossible_options_are_refused() {
    let refused = |options: BlockingOptions| {
        let error = blocking(&options, &Progress::hidden()).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        error.to_string()
    };
    let text = refused(BlockingOptions { items: Some(0), ..short("here") });
    assert_eq!(text, "--items 0: give a number from 1 to 10000000");
    let text = refused(BlockingOptions { workers: Some(100_000), ..short("here") });
    assert!(text.starts_with("--workers 100000: give a number from 1 to "), "{text}");
    let text = refused(BlockingOptions { way: Some("nap".into()), ..short("here") });
    assert!(text.starts_with("--way \"nap\""), "{text}");
    let text = refused(BlockingOptions { way: Some("pipe".into()), ..short("core:2") });
    assert!(text.starts_with("--way, --folder: on a simulated machine items only sleep"), "{text}");
    let mut options = short("here");
    options.common.duration = Some(Duration::from_secs(1));
    assert!(refused(options).starts_with("--duration: "));
}

#[test]
fn a_quick_run_ends_within_thirty_seconds() {
    let common = Common { quick: true, ..Common::default() };
    let options = BlockingOptions { common, ..BlockingOptions::default() };
    let (plan, rounds) = options.plan(&Machine::named("core:2").unwrap()).unwrap();
    let nominal = plan.nominal().as_secs_f64();
    // Four pools whose two workers sleep with their items; all others take at most three times the ideal.
    let asleep = plan.items.div_ceil(plan.every) as f64 * plan.sleep.as_secs_f64() / 2.0;
    let total = rounds as f64 * (4.0 * (nominal + asleep) + 4.0 * 6.0 * 3.0 * nominal);
    assert!(total < 28.0, "{total} s");
}

#[test]
fn a_simulated_run_is_a_function_of_the_seed() {
    let run = || blocking(&short("core:2"), &Progress::hidden()).unwrap();
    let (first, second) = (run(), run());
    assert_eq!(first.rows, second.rows);
    let ratio = |row| find(&first.rows, "sleep", row, metric::RATIO).unwrap().summary;
    assert!(ratio(PLAIN).min > 1.0 && ratio(HINTED).min > 1.0 && ratio(ENOUGH).min > 1.0);
    assert_eq!(ratio(IDEAL).max, 1.0);
    assert!(first.rows.iter().all(|row| row.row != "rayon"));
    let threads = find(&first.rows, "sleep", HINTED, metric::THREADS).unwrap().summary;
    assert!(threads.min >= 2.0 && threads.max <= 8.0, "{threads:?}");
}

/// The medians of our ratios on a simulated machine, without and with hints.
fn simulated_ratios(machine: &str, workers: usize, items: usize) -> [f64; 2] {
    let common = Common { machine: machine.into(), runs: Some(2), ..Common::default() };
    let (workers, items) = (Some(workers), Some(items));
    let options = BlockingOptions { common, items, workers, ..BlockingOptions::default() };
    let report = blocking(&options, &Progress::hidden()).unwrap();
    [PLAIN, HINTED].map(|row| report.find("sleep", row, metric::RATIO).unwrap().summary.median)
}

#[test]
fn two_simulated_cpus_are_kept_busy_although_items_sleep() {
    // The last item that sleeps adds 0.08; a pool that does not notice takes six times as long.
    let [plain, hinted] = simulated_ratios("core:2", 2, 10_000);
    assert!(plain < 1.3, "without hints {plain}");
    assert!(hinted < 1.25, "with hints {hinted}");
}

#[test]
fn helpers_that_sleep_in_items_of_another_pod_are_replaced_too() {
    // All items come from one CPU, so they are items of one pod. A ratio near 4 means that only that pod's two CPUs worked.
    let [plain, hinted] = simulated_ratios("l3:4 core:2", 8, bound(20_000, 40_000));
    assert!(plain < 1.5, "without hints {plain}");
    assert!(hinted < 1.5, "with hints {hinted}");
}

#[test]
fn the_monitor_checks_running_workers_before_sleeping_ones() {
    // Some 130 workers of eight CPUs, most of them asleep: a monitor that asks them in turn reaches 1.35.
    let [plain, hinted] = simulated_ratios("l3:1 core:8", 8, bound(30_000, 80_000));
    assert!(plain < 1.25, "without hints {plain}");
    assert!(hinted < 1.2, "with hints {hinted}");
}

use super::contestant::Shared;
use super::*;
use crate::Progress;
use nearq_report::{Report, metric};

fn short(machine: &str, threads: &[usize], writes: &[usize]) -> RwlockOptions {
    let common = Common {
        machine: machine.into(),
        runs: Some(1),
        duration: Some(Duration::from_millis(10)),
        goals: true,
        ..Common::default()
    };
    let (threads, writes) = (Some(threads.to_vec()), Some(writes.to_vec()));
    RwlockOptions { common, threads, writes, ..RwlockOptions::default() }
}

fn uses(report: &Report, scenario: &str, row: &str) -> f64 {
    let found = report.find(scenario, row, metric::ACQUISITIONS_PER_SECOND);
    found.unwrap_or_else(|| panic!("{scenario}, {row} is missing")).summary.median
}

/// A lock that keeps no thread out.
struct Open;

impl Shared for Open {
    fn free() -> Self {
        Self
    }

    fn read<R>(&self, _thread: usize, section: impl FnOnce() -> R) -> R {
        section()
    }

    fn write<R>(&self, section: impl FnOnce() -> R) -> R {
        section()
    }
}

#[test]
fn a_lock_that_does_not_exclude_is_found() {
    let machine = Machine::named("numa:2 l3:2 core:2").unwrap();
    for writes in [10, 100] {
        let job = short("numa:2 l3:2 core:2", &[8], &[writes]).plan(&machine).unwrap();
        let plan = job.plan(writes, 8, 1);
        let run = move || load::measure::<Sim, Open>(&plan).map(|_| ());
        let error = simulate(&machine, 1, SIMULATED_LIMIT, run).unwrap().result.unwrap_err();
        assert!(error.to_string().contains("failed to exclude other threads"), "{error}");
    }
}

#[test]
fn every_lock_runs_here_at_every_mix() {
    let _judged = crate::harness::options::tests::AnySize::new();
    let options = short("here", &[1, 3], &[0, 10, 100]);
    let report = harness::run(&options, &Progress::hidden()).unwrap();
    let rows = [AUTO, PLAIN, MUTEX, STD, PARKING_LOT, PTHREAD_READERS, PTHREAD_WRITERS, SHARDED];
    for row in rows {
        for scenario in ["0% 1", "0% 3", "10% 1", "10% 3", "100% 1", "100% 3"] {
            assert!(uses(&report, scenario, row).is_finite(), "{row}, {scenario}");
        }
        assert!(report.find("0% 1", row, metric::WRITE_WAIT_MAX).is_none(), "{row}");
        assert!(report.find("100% 1", row, metric::READ_WAIT_MAX).is_none(), "{row}");
    }
    assert!(crate::redraw::is_drawn_from_the_json(&report));
    assert!(report.text.contains("Goals of nearq") && report.svg.contains(SHARDED));
    assert!(!report.parameters["goals"].as_array().unwrap().is_empty());
}

#[test]
fn a_simulated_run_is_a_function_of_its_seed_and_has_the_other_designs() {
    let _judged = crate::harness::options::tests::AnySize::new();
    let run = |threads, writes: &[usize]| {
        let options = short("numa:2 l3:2 core:2", &[threads], writes);
        let machine = options.common.on().unwrap();
        // Shorter than the options allow: the simulator is slow without optimisation.
        let job = Job { duration: Duration::from_millis(2), ..options.plan(&machine).unwrap() };
        harness::run_plan(&options, &machine, job, &Progress::hidden()).unwrap()
    };
    assert_eq!(run(2, &[20]).to_json(), run(2, &[20]).to_json());
    let one = run(8, &[0, 20, 100]);
    for row in [AUTO, PLAIN, MUTEX, RWSEM, BRAVO] {
        for scenario in ["0% 8", "20% 8", "100% 8"] {
            assert!(uses(&one, scenario, row) > 0.0, "{row}, {scenario}");
        }
    }
    // Readers of several caches do not hold each other up, with ours and with BRAVO.
    for row in [AUTO, BRAVO] {
        assert!(uses(&one, "0% 8", row) > 3.0 * uses(&one, "0% 8", RWSEM), "{row}");
    }
}

#[test]
fn threads_are_powers_of_two_up_to_the_machine() {
    assert_eq!(threads_of(1), [1]);
    assert_eq!(threads_of(6), [1, 2, 4, 6]);
    assert_eq!(threads_of(8), [1, 2, 4, 8]);
    let machine = Machine::named("core:2").unwrap();
    let refused = |options: RwlockOptions| options.plan(&machine).unwrap_err().to_string();
    let text = refused(short("core:2", &[1], &[101]));
    assert_eq!(
        text,
        "--writes 101: give different numbers from 0 to 100, with commas between them"
    );
    assert!(refused(short("core:2", &[0], &[1])).contains("--threads"));
}

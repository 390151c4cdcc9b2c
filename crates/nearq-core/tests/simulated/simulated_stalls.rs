//! Stalls on simulated machines: when and where they are reported, and the text.

use std::sync::Arc;
use std::time::Duration;

use nearq_core::{
    Runtime, RuntimeBuilder,
    inspect::{Activity, Stall},
    set_description_in,
};
use nearq_lock::Mutex;
use nearq_platform::{Instant, LockPlatform};
use nearq_sim::{Sim, Simulation};
use nearq_topology::Topology;

type Reports = Arc<Mutex<Vec<(Instant, Stall)>, Sim>>;

const PERIOD: Duration = Duration::from_millis(50);
/// The monitor checks every 10 ms if nothing has changed for long.
const LATE: Duration = Duration::from_millis(12);

fn simulation(seed: u64) -> Simulation {
    Simulation::new(Topology::from_synthetic("core:2").expect("well formed"), seed)
}

/// Two threads at most, and a note of each report.
fn builder(reports: &Reports) -> RuntimeBuilder<Sim> {
    let reports = Arc::clone(reports);
    Runtime::<Sim>::builder_in().thread_limit(2).stall_after(PERIOD).on_stall(move |stall| {
        reports.lock().push((Sim::now(), stall.clone()));
    })
}

fn reports() -> Reports {
    Arc::new(Mutex::new_in(Vec::new()))
}

#[test]
fn a_stall_is_reported_once_per_period() {
    for seed in 0..5 {
        let outcome = simulation(seed).run(|| {
            let reports = reports();
            let runtime = builder(&reports).build().expect("the settings are valid");
            let queue = runtime.workqueue_builder("stuck").build().expect("the call succeeds");
            let begin = Sim::now();
            let asleep = [(); 2].map(|()| {
                queue.spawn(|| {
                    set_description_in::<Sim>("waits for the others");
                    Sim::sleep(Duration::from_millis(280));
                })
            });
            let rest = [(); 3].map(|()| queue.spawn(|| ()));
            for handle in asleep.into_iter().chain(rest) {
                handle.join().expect("no panic");
            }
            // Nothing waits any more.
            Sim::sleep(Duration::from_millis(200));
            let reports = core::mem::take(&mut *reports.lock());
            (begin, reports)
        });
        assert!(
            outcome.warnings.is_empty(),
            "the callback replaces the warning: {:?}",
            outcome.warnings
        );
        let (begin, reports) = outcome.expect();
        assert_eq!(reports.len(), 5, "seed {seed}: {reports:?}");
        for (count, (at, stall)) in (1..).zip(&reports) {
            let after = *at - begin;
            let due = PERIOD * count;
            assert!(
                due <= after && after < due + LATE * count,
                "seed {seed}: {count}. after {after:?}"
            );
            assert!(stall.lasts >= due && stall.lasts <= after, "{stall:?}");
            assert_eq!((stall.nice, stall.waiting, stall.idle), (0, 3, 0), "{stall:?}");
            assert!(stall.refused, "the limit of threads: {stall:?}");
            assert_eq!((stall.busy.len(), stall.more_busy), (2, 0));
            for worker in &stall.busy {
                assert_eq!(worker.activity, Activity::Sleeps, "{stall:?}");
                assert_eq!(worker.description, "waits for the others");
                assert!(worker.function.contains("a_stall_is_reported"), "{}", worker.function);
                let runs = worker.runs.expect("it has a place");
                assert!(runs <= after && runs + LATE >= stall.lasts, "{runs:?} of {after:?}");
            }
        }
        let text = reports[0].1.to_string();
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        assert!(first.starts_with("pool 0 (CPUs 0-1, nice 0) has started nothing for 5"), "{text}");
        assert!(first.contains(", and at least 3 items wait; no thread can be started"), "{text}");
        for line in lines {
            assert!(
                line.starts_with("  nq/u0:") && line.contains(concat!(": ", module_path!(), "::")),
                "{text}"
            );
            assert!(line.contains(" for at least "), "{text}");
            assert!(line.ends_with(", sleeps: waits for the others"), "{text}");
        }
    }
}

#[test]
fn a_callback_that_panics_is_called_again() {
    let outcome = simulation(1).run(|| {
        let reports = reports();
        let reports_clone = Arc::clone(&reports);
        let runtime = builder(&reports).on_stall(move |stall| {
            reports_clone.lock().push((Sim::now(), stall.clone()));
            std::panic::resume_unwind(Box::new("of the callback"));
        });
        let runtime = runtime.build().expect("the settings are valid");
        let queue = runtime.workqueue_builder("stuck").build().expect("the call succeeds");
        let handles = [(); 3].map(|()| queue.spawn(|| Sim::sleep(Duration::from_millis(130))));
        for handle in handles {
            handle.join().expect("no panic");
        }
        reports.lock().len()
    });
    assert_eq!(outcome.expect(), 2);
}

#[test]
fn no_stall_is_reported_during_progress_or_when_switched_off() {
    let outcome = simulation(2).run(|| {
        let reports = reports();
        let runtime = builder(&reports).build().expect("the settings are valid");
        let queue = runtime.workqueue_builder("slow").build().expect("the call succeeds");
        // Work waits all the time, and something starts every 20 ms.
        let handles: Vec<_> =
            (0..40).map(|_| queue.spawn(|| Sim::sleep(Duration::from_millis(40)))).collect();
        for handle in handles {
            handle.join().expect("no panic");
        }
        // And if the report is switched off.
        let quiet =
            builder(&reports).stall_after(Duration::ZERO).build().expect("the settings are valid");
        let queue = quiet.workqueue_builder("stuck").build().expect("the call succeeds");
        let handles = [(); 3].map(|()| queue.spawn(|| Sim::sleep(Duration::from_millis(300))));
        for handle in handles {
            handle.join().expect("no panic");
        }
        core::mem::take(&mut *reports.lock())
    });
    assert_eq!(outcome.expect(), []);
}

/// A runtime with the given setting whose work waits for that long; returns the warnings.
fn warned(setting: &'static str, waits: Duration) -> Vec<String> {
    let outcome = simulation(3).setting("NEARQ_STALL_AFTER", setting).run(move || {
        let runtime = Runtime::<Sim>::builder_in().thread_limit(2).build()?;
        let queue = runtime.workqueue_builder("stuck").build()?;
        let handles = [(); 3].map(|()| queue.spawn(move || Sim::sleep(waits)));
        for handle in handles {
            handle.join().expect("no panic");
        }
        Ok::<_, nearq_core::Error>(())
    });
    let mut warnings = outcome.warnings.clone();
    if let Err(error) = outcome.expect() {
        warnings.push(error.to_string());
    }
    warnings
}

#[test]
fn without_a_callback_a_stall_is_a_warning_after_the_configured_time() {
    let warnings = warned("0.05", Duration::from_millis(120));
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().all(|line| line.contains("has started nothing for")), "{warnings:?}");
    assert_eq!(warned("0", Duration::from_secs(100)), [""; 0]);
    let standard = warned(" 30 ", Duration::from_secs(65));
    assert_eq!(standard.len(), 2, "{standard:?}");
    assert_eq!(warned("", Duration::ZERO), [""; 0]);
    for wrong in ["soon", "-1", "1e300", "NaN"] {
        let warnings = warned(wrong, Duration::ZERO);
        let text = format!(
            "NEARQ_STALL_AFTER is `{wrong}`; it must be a number of seconds, or 0 for never. \
             It counts as not set"
        );
        assert_eq!(warnings, [text]);
    }
}

#[test]
fn a_stall_names_workers_that_announced_blocking() {
    let outcome = simulation(4).run(|| {
        let reports = reports();
        let runtime = builder(&reports).build().expect("the settings are valid");
        let queue = runtime.workqueue_builder("said").build().expect("the call succeeds");
        let handles = [(); 3].map(|()| {
            let runtime_clone = runtime.clone();
            queue.spawn(move || {
                runtime_clone.block_in_place(|| Sim::sleep(Duration::from_millis(80)))
            })
        });
        for handle in handles {
            handle.join().expect("no panic");
        }
        core::mem::take(&mut *reports.lock())
    });
    let reports = outcome.expect();
    assert_eq!(reports.len(), 1, "{reports:?}");
    let busy = &reports[0].1.busy;
    assert_eq!(busy.len(), 2);
    assert!(busy.iter().all(|worker| worker.activity == Activity::Sleeps && worker.runs.is_none()));
}

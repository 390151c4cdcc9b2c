//! What the experiments have in common in what they can be told.

use crate::{Error, HERE, Machine};
use serde_json::Value;
use std::time::Duration;

/// What every experiment can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// The machine to run on: what [`Machine::named`] takes.
    pub machine: String,
    /// A short run, of some 30 seconds on an idle machine.
    pub quick: bool,
    /// Also say whether the project's own goals were reached.
    pub goals: bool,
    /// How often everything is run; `None` leaves it to the experiment.
    pub runs: Option<usize>,
    /// How long a run lasts; `None` leaves it to the experiment.
    pub duration: Option<Duration>,
}

impl Default for Common {
    fn default() -> Self {
        Self { machine: HERE.into(), quick: false, goals: false, runs: None, duration: None }
    }
}

/// Most runs of an experiment.
const MOST_RUNS: usize = 1000;
/// Shortest and longest run.
const DURATIONS: [Duration; 2] = [Duration::from_millis(10), Duration::from_hours(1)];

impl Common {
    /// The machine to run on.
    pub(crate) fn on(&self) -> Result<Machine, Error> {
        Machine::named(&self.machine)
    }

    /// Refuses what cannot be done.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(runs) = self.runs {
            within("--runs", runs, 1, MOST_RUNS)?;
        }
        if let Some(duration) = self.duration
            && !(DURATIONS[0]..=DURATIONS[1]).contains(&duration)
        {
            let [shortest, longest] = DURATIONS.map(|limit| limit.as_secs_f64());
            let given = duration.as_secs_f64();
            return Err(Error::input(format!(
                "--duration {given}: give {shortest} to {longest} seconds"
            )));
        }
        Ok(())
    }
}

/// Runs without which nothing is judged on the real machine: in each of them something else goes on too.
const LEAST_RUNS: usize = 3;

impl Common {
    /// Those of a quick run, which is the smallest one that is judged.
    pub(crate) fn of_a_quick_run(&self) -> Self {
        Self { quick: true, runs: None, duration: None, ..self.clone() }
    }
}

/// Why a run on `machine` says nothing about goals or differences, if it is too small: smaller than a quick run, or of fewer than three runs on
/// the real machine. Given are what it has and what it must have: runs, and sizes by their options.
pub(crate) fn too_small(
    machine: &Machine,
    runs: [usize; 2],
    sizes: &[(&str, [f64; 2])],
) -> Option<String> {
    #[cfg(test)]
    if tests::AnySize::is_judged() {
        return None;
    }
    let least = if machine.model().is_none() { runs[1].max(LEAST_RUNS) } else { runs[1] };
    let mut short = vec![("--runs", [runs[0] as f64, least as f64])];
    short.extend(sizes);
    short.retain(|(_, [given, least])| given < least);
    let list = |which: usize| {
        let sizes = short.iter().map(|(option, size)| format!("{option} {}", size[which]));
        sizes.collect::<Vec<_>>().join(", ")
    };
    (!short.is_empty())
        .then(|| format!("Too small to judge: {}. Give {}, or more.", list(0), list(1)))
}

/// Refuses a number outside of what is allowed, by the name of its option.
pub(crate) fn within(option: &str, given: usize, least: usize, most: usize) -> Result<(), Error> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(Error::input(format!("{option} {given}: give a number from {least} to {most}")))
}

/// The parameters of a report, and with them why nothing is judged, if that is so.
pub(crate) fn with_reason(mut parameters: Value, too_small: Option<&str>) -> Value {
    if let Some(why) = too_small {
        parameters["too_small"] = why.into();
    }
    parameters
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static ANY_SIZE: Cell<bool> = const { Cell::new(false) };
    }

    /// While there is one, this thread judges runs of any size: those of tests are small.
    pub(crate) struct AnySize;

    impl AnySize {
        pub(crate) fn new() -> Self {
            ANY_SIZE.set(true);
            Self
        }

        pub(crate) fn is_judged() -> bool {
            ANY_SIZE.get()
        }
    }

    impl Drop for AnySize {
        fn drop(&mut self) {
            ANY_SIZE.set(false);
        }
    }

    #[test]
    fn what_is_smaller_than_a_quick_run_is_too_small_and_so_are_two_runs_on_the_real_machine() {
        let [here, simulated] = [HERE, "core:2"].map(|name| Machine::named(name).unwrap());
        let sizes = |given: f64| [("--duration", [given, 0.1]), ("--items", [50.0, 50.0])];
        assert_eq!(too_small(&simulated, [2, 2], &sizes(0.1)), None);
        assert_eq!(too_small(&here, [3, 2], &sizes(0.2)), None);
        assert_eq!(
            too_small(&here, [2, 2], &sizes(0.05)).unwrap(),
            "Too small to judge: --runs 2, --duration 0.05. Give --runs 3, --duration 0.1, or more."
        );
        assert_eq!(
            too_small(&simulated, [1, 2], &[]).unwrap(),
            "Too small to judge: --runs 1. Give --runs 2, or more."
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_option_and_value() {
        let refused = |options: Common| {
            let error = options.check().unwrap_err();
            assert_eq!(error.exit_status(), 2);
            error.to_string()
        };
        let text = refused(Common { runs: Some(0), ..Common::default() });
        assert_eq!(text, "--runs 0: give a number from 1 to 1000");
        let text = refused(Common { duration: Some(Duration::ZERO), ..Common::default() });
        assert_eq!(text, "--duration 0: give 0.01 to 3600 seconds");
        let unknown = Common { machine: "cray-1".into(), ..Common::default() };
        assert!(unknown.on().unwrap_err().to_string().starts_with("--on \"cray-1\": "));
        assert_eq!(Common { runs: Some(1000), ..Common::default() }.check(), Ok(()));
    }
}

//! What the experiments have in common in what they can be told.

use crate::{Error, HERE, Machine};
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

/// Refuses a number outside of what is allowed, by the name of its option.
pub(crate) fn within(option: &str, given: usize, least: usize, most: usize) -> Result<(), Error> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(Error::input(format!("{option} {given}: give a number from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

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

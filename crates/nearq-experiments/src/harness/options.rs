//! The options that all experiments have, and the checks of options that several have.

use crate::{Error, HERE, Machine};
use clap::Args;
use nearq_report::Outputs;
use std::time::Duration;

/// The options of every experiment.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Common {
    /// The machine: `here`, a simulated one by name, a machine file (.json, .machine), an hwloc XML file, `sysfs:DIR`, or a synthetic description; --help says more
    #[arg(long = "on", value_name = "MACHINE", default_value = HERE, long_help = Machine::help())]
    pub machine: String,

    /// Run it here and on this simulated machine, and compare: a machine file of `nearq sim calibrate`, or what else --on takes
    #[arg(long, value_name = "MACHINE")]
    pub beside_simulated: Option<String>,

    /// On a simulated machine: with timers' interrupts and slack, the work of ticks, and a deeper idle state
    #[arg(long)]
    pub noise: bool,

    /// On a simulated machine: gives each CPU a store buffer with that many entries, 1 to 256, so that it does not wait for lines that it
    /// only stores to
    #[arg(long, value_name = "STORES", value_parser = number, allow_negative_numbers = true)]
    pub store_buffer: Option<usize>,

    /// A short run of some 30 seconds on an idle machine; its figures are less reliable
    #[arg(long)]
    pub quick: bool,

    /// Also show the goals of the nearq project, and whether this run reached them, if it is long enough
    #[arg(long)]
    pub goals: bool,

    /// How many times everything is run, 1 to 1000
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub runs: Option<usize>,

    /// How long a run lasts, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<Duration>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub outputs: Outputs,
}

impl Default for Common {
    fn default() -> Self {
        let (machine, outputs) = (HERE.into(), Outputs::default());
        Self {
            machine,
            beside_simulated: None,
            noise: false,
            store_buffer: None,
            quick: false,
            goals: false,
            runs: None,
            duration: None,
            outputs,
        }
    }
}

/// Most runs of an experiment.
const MOST_RUNS: usize = 1000;
/// Most entries of a store buffer.
const MOST_STORES: usize = 256;
/// Shortest and longest run.
const DURATIONS: [Duration; 2] = [Duration::from_millis(10), Duration::from_hours(1)];
/// The number of runs below which nothing is judged on the real machine, because other programs run during each of them.
const LEAST_RUNS: usize = 3;

impl Common {
    /// The machine to run on.
    pub(crate) fn on(&self) -> Result<Machine, Error> {
        let machine = Machine::named(&self.machine)?;
        let asked = [("--noise", self.noise), ("--store-buffer", self.store_buffer.is_some())];
        if let Some((option, _)) = asked.iter().find(|(_, asked)| *asked)
            && machine.model().is_none()
        {
            return Err(Error::input(format!(
                "{option}: this machine has its own; give a simulated one with --on or --beside-simulated"
            )));
        }
        Ok(self.with_more(machine))
    }

    /// The simulated machine with the noise and the store buffers that are asked for.
    pub(crate) fn with_more(&self, machine: Machine) -> Machine {
        let machine = if self.noise { machine.with_noise() } else { machine };
        match self.store_buffer {
            Some(entries) => machine.with_store_buffer(entries as u64),
            None => machine,
        }
    }

    /// What the simulated machine has more than usual, for the first line of a text.
    pub(crate) fn more(&self) -> String {
        let noise = if self.noise { ", with noise" } else { "" };
        let buffer = self.store_buffer.map(|of| format!(", with store buffers of {of} entries"));
        format!("{noise}{}", buffer.unwrap_or_default())
    }

    /// Refuses options that are not possible.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(runs) = self.runs {
            within("--runs", runs, 1, MOST_RUNS)?;
        }
        if let Some(entries) = self.store_buffer {
            within("--store-buffer", entries, 1, MOST_STORES)?;
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

    /// The options of a quick run, which is the smallest one that is judged.
    pub(crate) fn of_a_quick_run(&self) -> Self {
        Self { quick: true, runs: None, duration: None, ..self.clone() }
    }
}

/// Why a run on `machine` says nothing about goals or differences, if it is too small: smaller than a quick run, or of fewer than three
/// runs on the real machine. The arguments are the run's values and the required values: runs, and sizes by their options.
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

/// The number, or why it is refused: it is outside the allowed range. The error names the option.
pub(crate) fn within(
    option: &str,
    given: usize,
    least: usize,
    most: usize,
) -> Result<usize, Error> {
    if (least..=most).contains(&given) {
        return Ok(given);
    }
    Err(Error::input(format!("{option} {given}: give a number from {least} to {most}")))
}

/// Refuses a list of numbers that is empty, has a number that is not from 1 to `most`, or has a number twice.
pub(crate) fn all_within(option: &str, given: &[usize], most: usize) -> Result<(), Error> {
    if given.is_empty() {
        return Err(Error::input(format!(
            "{option}: give numbers from 1 to {most}, with commas between them"
        )));
    }
    for (at, &number) in given.iter().enumerate() {
        within(option, number, 1, most)?;
        if given[..at].contains(&number) {
            return Err(Error::input(format!("{option} {number}: give each number once")));
        }
    }
    Ok(())
}

/// The value that has this name.
pub(crate) fn named<T: Copy>(option: &str, given: &str, all: &[(&str, T)]) -> Result<T, Error> {
    let found = all.iter().find(|(name, _)| *name == given).map(|(_, one)| *one);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let (last, others) = names.split_last().expect("there are names");
        Error::input(format!("{option} {given:?}: give {} or {last}", others.join(", ")))
    })
}

/// Refuses an option that would have no effect beside another one.
pub(crate) fn means_something(
    option: &str,
    is_given: bool,
    is_used: bool,
    needed: &str,
) -> Result<(), Error> {
    if is_given && !is_used {
        return Err(Error::input(format!(
            "{option}: only {needed} uses it; leave one of the two out"
        )));
    }
    Ok(())
}

/// A number; the experiment knows the limits.
pub(crate) fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "give a whole number, 1 or more".into())
}

/// A time in seconds, or in parts of one.
fn time(text: &str, parts: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? / parts).ok()
}

fn seconds(text: &str) -> Result<Duration, String> {
    time(text, 1.0).ok_or_else(|| "give a number of seconds, 0.01 to 3600".into())
}

/// A time in milliseconds.
pub(crate) fn milliseconds(text: &str) -> Result<Duration, String> {
    time(text, 1000.0).ok_or_else(|| "give a number of milliseconds, 0.1 to 10000".into())
}
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static ANY_SIZE: Cell<bool> = const { Cell::new(false) };
    }

    /// While a value exists, this thread judges runs of any size, because those of tests are small.
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
    fn only_simulated_machines_get_store_buffers_and_these_have_a_limit() {
        let of = |machine: &str, entries| Common {
            machine: machine.into(),
            store_buffer: Some(entries),
            ..Common::default()
        };
        let machine = of("core:2", 8).on().expect("simulated");
        assert_eq!(machine.model().expect("simulated").costs().store_buffer, 8);
        assert_eq!(of("core:2", 8).more(), ", with store buffers of 8 entries");
        let refused = of(HERE, 8).on().expect_err("it has its own").to_string();
        assert!(refused.starts_with("--store-buffer: this machine has its own"), "{refused}");
        assert!(of("core:2", 256).check().is_ok());
        for entries in [0, 257] {
            let refused = of("core:2", entries).check().expect_err("out of range").to_string();
            assert_eq!(refused, format!("--store-buffer {entries}: give a number from 1 to 256"));
        }
    }

    #[test]
    fn less_than_a_quick_run_or_two_real_runs_is_too_small() {
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
    fn impossible_options_are_refused_with_their_value() {
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

//! The numbers of the scheduler that can be set: their names, bounds, and text form.

use std::fmt;

use nearq_command::screen::wrapped;
use nearq_scx_policy::layout::Weights;

use crate::output::Failure;

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Nanoseconds, written with their unit.
    Time,
    /// Thousandths of a task for each CPU.
    Milli,
    Percent,
}

/// A number that can be set.
#[derive(Debug)]
pub(crate) struct Weight {
    pub(crate) name: &'static str,
    about: &'static str,
    unit: Unit,
    least: u64,
    most: u64,
    field: fn(&mut Weights) -> &mut u64,
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// All weights, in the order of the structure.
#[rustfmt::skip]
pub(crate) const ALL: [Weight; 13] = [
    weight("slice", "how long a task runs while no other task waits for the same CPUs", Unit::Time, 100 * MICROSECOND, SECOND, |all| &mut all.slice),
    weight("busy_slice", "how long a task runs while others wait", Unit::Time, 100 * MICROSECOND, SECOND, |all| &mut all.busy_slice),
    weight("credit", "the most CPU time that a task is owed after it slept", Unit::Time, 100 * MICROSECOND, SECOND, |all| &mut all.credit),
    weight("preempt", "a task that wakes up interrupts one that is this much further ahead", Unit::Time, 0, SECOND, |all| &mut all.preempt),
    weight("steal_delay", "how long a task must have waited before an idle CPU of a node at distance 20 takes one; twice that at 30", Unit::Time, 0, SECOND, |all| &mut all.steal_delay),
    weight("imbalance", "how many more tasks per CPU, in thousandths, a place must have before a busy CPU of a place at distance 10 takes one", Unit::Milli, 1, 1_000_000, |all| &mut all.imbalance),
    weight("imbalance_step", "how many more, in thousandths, for each further 10 of distance", Unit::Milli, 0, 1_000_000, |all| &mut all.imbalance_step),
    weight("imbalance_percent", "and how much more crowded that place must be", Unit::Percent, 0, 1_000, |all| &mut all.imbalance_percent),
    weight("own_bonus", "how much more a waiting task counts, in thousandths, for CPUs of its home that choose between queues of other nodes, as in the scheduler of 2003; 0: idle CPUs choose the nearest, but first those with tasks of theirs, and busy ones choose by load alone", Unit::Milli, 0, 1_000_000, |all| &mut all.own_bonus),
    weight("relief_interval", "the least time between two checks of other queues by a busy CPU", Unit::Time, 100 * MICROSECOND, 10 * SECOND, |all| &mut all.relief_interval),
    weight("stay", "the least time that a running stray is left where it is; doubled for one that soon had to leave again", Unit::Time, 0, 10 * SECOND, |all| &mut all.stay),
    weight("rescue", "how long a queue must go unserved before any allowed CPU serves it", Unit::Time, MILLISECOND, 10 * SECOND, |all| &mut all.rescue),
    weight("period", "how often loads are smoothed", Unit::Time, 100 * MICROSECOND, SECOND, |all| &mut all.period),
];

const fn weight(
    name: &'static str,
    about: &'static str,
    unit: Unit,
    least: u64,
    most: u64,
    field: fn(&mut Weights) -> &mut u64,
) -> Weight {
    Weight { name, about, unit, least, most, field }
}

impl Weight {
    /// Its value in `all`.
    pub(crate) fn get(&self, all: &Weights) -> u64 {
        *(self.field)(&mut all.clone())
    }

    /// Its offset in the structure, in bytes.
    pub(crate) fn offset(&self) -> usize {
        let mut all = Weights::default();
        let start = std::ptr::from_ref(&all).addr();
        std::ptr::from_mut((self.field)(&mut all)).addr() - start
    }

    /// The value as it is written on a command line.
    pub(crate) fn text(&self, value: u64) -> String {
        if self.unit != Unit::Time {
            return value.to_string();
        }
        let units = [(SECOND, "s"), (MILLISECOND, "ms"), (MICROSECOND, "us"), (1, "ns")];
        let whole = units.into_iter().find(|(unit, _)| value != 0 && value.is_multiple_of(*unit));
        let (unit, name) = whole.unwrap_or((1, "ns"));
        format!("{}{name}", value / unit)
    }

    fn allowed(&self) -> String {
        let bounds = format!("from {} to {}", self.text(self.least), self.text(self.most));
        match self.unit {
            Unit::Time => format!("a time {bounds}, with its unit: s, ms, us or ns"),
            Unit::Milli => format!("thousandths {bounds}"),
            Unit::Percent => format!("percent {bounds}"),
        }
    }

    /// Reads a value.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, Failure> {
        let value = match self.unit {
            Unit::Time => time(text),
            Unit::Milli | Unit::Percent => text.parse().ok(),
        };
        value.filter(|value| (self.least..=self.most).contains(value)).ok_or_else(|| {
            Failure::input(format!("{}={text}: must be {}", self.name, self.allowed()))
        })
    }
}

/// Nanoseconds from `20ms`.
fn time(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "s" => SECOND,
        "ms" => MILLISECOND,
        "us" => MICROSECOND,
        "ns" => 1,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The weight of that name.
pub(crate) fn find(name: &str) -> Result<&'static Weight, Failure> {
    ALL.iter().find(|weight| weight.name == name).ok_or_else(|| {
        let names = ALL.each_ref().map(|weight| weight.name).join(", ");
        Failure::input(format!("{name}: there is no such weight; the weights are {names}"))
    })
}

/// Sets what `NAME=VALUE` says.
pub(crate) fn apply(all: &mut Weights, assignment: &str) -> Result<(), Failure> {
    let (name, value) = assignment
        .split_once('=')
        .ok_or_else(|| Failure::input(format!("{assignment}: give NAME=VALUE, as in stay=50ms")))?;
    let weight = find(name)?;
    *(weight.field)(all) = weight.parse(value)?;
    Ok(())
}

/// All weights with their purpose, as `--help` shows them: the widest line has 80 columns.
pub(crate) struct Legend;

impl fmt::Display for Legend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Weights::default();
        let lines = ALL.each_ref().map(|weight| {
            let text = format!("{}: {}", weight.text(weight.get(&usual)), weight.about);
            wrapped(&format!("  {:<19}", weight.name), text.split(' '), 80)
        });
        f.write_str(lines.concat().trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_structure_is_listed_once_and_in_order() {
        let offsets: Vec<usize> = ALL.iter().map(Weight::offset).collect();
        let expected: Vec<usize> = (0..size_of::<Weights>()).step_by(8).collect();
        assert_eq!(offsets, expected);
    }

    #[test]
    fn the_default_values_are_allowed_and_round_trip() {
        let usual = Weights::default();
        for weight in &ALL {
            let value = weight.get(&usual);
            assert_eq!(weight.parse(&weight.text(value)), Ok(value), "{}", weight.name);
        }
    }

    #[test]
    fn setting_one_weight_changes_only_that_weight() {
        let mut all = Weights::default();
        apply(&mut all, "stay=1500us").unwrap();
        assert_eq!(all, Weights { stay: 1_500_000, ..Weights::default() });
        assert_eq!(find("stay").unwrap().text(all.stay), "1500us");
        apply(&mut all, "imbalance_percent=0").unwrap();
        assert_eq!(all.imbalance_percent, 0);
    }

    #[test]
    fn a_refusal_names_the_allowed_values() {
        let mut all = Weights::default();
        let mut refused = |text| apply(&mut all, text).unwrap_err().to_string();
        assert_eq!(
            refused("stay=20"),
            "stay=20: must be a time from 0ns to 10s, with its unit: s, ms, us or ns"
        );
        assert_eq!(refused("imbalance=0"), "imbalance=0: must be thousandths from 1 to 1000000");
        assert!(refused("stay").contains("NAME=VALUE"));
        assert!(refused("stray=1ms").contains("slice, busy_slice, credit,"));
        for wrong in ["stay=ms", "stay=11s", "stay=-1ms", "stay=99999999999999999999s", "stay=1h"] {
            assert!(refused(wrong).contains("must be"), "{wrong}");
        }
        assert_eq!(all, Weights::default());
    }

    #[test]
    fn the_legend_fits_into_80_columns() {
        let text = Legend.to_string();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("  stay               20ms: the least time"), "{text}");
    }
}

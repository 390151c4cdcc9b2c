//! What an experiment provides so that its conclusions can be examined: the conclusions, and their values on a machine that is varied.

use crate::{Error, Machine};

/// An experiment whose conclusions are examined.
#[derive(Debug)]
pub struct Question {
    /// Its name.
    pub name: &'static str,
    /// The machine of its document.
    pub machine: &'static str,
    /// The parts of its load that can be varied, by name.
    pub parameters: &'static [&'static str],
    /// How large a run is, and a quick one, beside a run of the experiment itself.
    pub sizes: [&'static str; 2],
    /// The seeds without which runs of these sizes say nothing about the conclusions.
    pub least_runs: [usize; 2],
    /// Whether its machines have noise, whose costs are varied then, too.
    pub has_noise: bool,
    /// Why there are no conclusions for a machine, if there are none.
    pub refuses: fn(&Machine) -> Option<String>,
    /// Runs what the conclusions need, once.
    pub ask: fn(&Setting<'_>) -> Result<Answer, Error>,
}

impl Question {
    /// Refuses a machine for which the experiment has no conclusions.
    pub fn check(&self, machine: &Machine) -> Result<(), Error> {
        match (self.refuses)(machine) {
            None => Ok(()),
            Some(why) => Err(Error::input(format!(
                "{} has no conclusions for {}: {why}",
                self.name,
                machine.name()
            ))),
        }
    }
}

/// How an experiment is run.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'s> {
    /// The simulated machine, as varied.
    pub machine: &'s Machine,
    /// One of the experiment's own parameters, and the percentage of its value that it must have.
    pub parameter: Option<(&'static str, u64)>,
    /// The seed of the run.
    pub seed: u64,
    /// Whether a shorter run is enough.
    pub quick: bool,
}

/// The result of one run. The conclusions and their order depend only on the machine's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The conclusions.
    pub conclusions: Vec<Conclusion>,
    /// A hash of everything that happened: with equal hashes, what was varied is not used.
    pub trace_hash: u64,
}

/// A statement that holds or fails, and by how much.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// The statement.
    pub name: String,
    /// What it is about: a ratio of two results.
    pub value: f64,
    /// What the value must be for the statement to hold.
    pub bound: Bound,
}

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// This, or more.
    AtLeast(f64),
    /// This, or less.
    AtMost(f64),
}

impl Bound {
    /// By how much a value keeps the bound; negative if it does not.
    pub fn margin(self, value: f64) -> f64 {
        match self {
            Self::AtLeast(bound) => value - bound,
            Self::AtMost(bound) => bound - value,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::AtMost(bound) => write!(f, "at most {bound}"),
        }
    }
}

/// Joins the hashes of several runs into one.
pub(super) fn joined(hashes: impl IntoIterator<Item = u64>) -> u64 {
    // FNV-1a over words, as the simulator's own trace.
    hashes.into_iter().fold(0xCBF2_9CE4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29)
    })
}

#[cfg(test)]
#[path = "tests/question.rs"]
pub(super) mod tests;

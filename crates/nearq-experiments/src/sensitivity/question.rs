//! What an experiment offers to have its conclusions examined.

use crate::{Error, Machine};

/// An experiment that comes to conclusions on a simulated machine.
pub trait Question: Sync {
    /// The experiment's name.
    fn name(&self) -> &'static str;

    /// The machine of the document that the experiment is from.
    fn machine(&self) -> &'static str;

    /// What can be varied beside the machine's costs.
    fn parameters(&self) -> &'static [&'static str] {
        &[]
    }

    /// Runs the experiment once.
    fn ask(&self, setting: &Setting<'_>) -> Result<Answer, Error>;
}

/// How an experiment is run.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'s> {
    /// The simulated machine, with its costs as varied.
    pub machine: &'s Machine,
    /// One of the experiment's own parameters, and what percentage of its value it shall have.
    pub parameter: Option<(&'static str, u64)>,
    /// The seed of the run.
    pub seed: u64,
    /// Whether a shorter run will do.
    pub quick: bool,
}

/// What came out of one run. The conclusions and their order hang on the machine's shape alone.
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
mod tests {
    use super::*;

    #[test]
    fn margins_are_positive_where_a_bound_is_kept() {
        assert_eq!(Bound::AtLeast(1.5).margin(2.0), 0.5);
        assert_eq!(Bound::AtLeast(1.5).margin(1.25), -0.25);
        assert_eq!(Bound::AtMost(1.0).margin(0.75), 0.25);
        assert_eq!(Bound::AtMost(1.0).margin(1.5), -0.5);
        assert_eq!(Bound::AtMost(1.0).to_string(), "at most 1");
        assert_ne!(joined([1, 2]), joined([2, 1]));
    }
}

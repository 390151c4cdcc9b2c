//! Where a number comes from: every cost of a machine has one.

use std::fmt;

use serde::Deserialize;

/// How a number was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Origin {
    /// It was measured on this processor, or on another one of the same dies, and published.
    Measured,
    /// The vendor, the kernel or a manual states it: a size, a width, a default.
    Specified,
    /// The document that describes an experiment states it for its machine.
    Setup,
    /// It is not published for this processor: it is the number of a related processor, or follows from other numbers by a stated rule.
    Derived,
    /// It was given with the description of the machine, or it is the default for a machine of unknown make.
    #[default]
    Given,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Origin::Measured => "measured",
            Origin::Specified => "specified",
            Origin::Setup => "setup",
            Origin::Derived => "derived",
            Origin::Given => "given",
        })
    }
}

/// Where one cost of a machine comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// The name of the cost: one of [`Costs::NAMES`](crate::Costs::NAMES), or `clock_mhz`.
    pub cost: &'static str,
    /// The number.
    pub value: u64,
    /// How it was found.
    pub origin: Origin,
    /// The publication, with what it says, or the rule.
    pub text: String,
}

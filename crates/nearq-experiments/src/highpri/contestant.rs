//! The rows: who runs the item, and how favoured it is.

use super::issuer::Plan;
use super::samples::Samples;
use crate::Error;

/// One row of the table.
pub(crate) trait Contestant {
    /// The row's name.
    fn row(&self) -> &'static str;

    /// What the row is, in a few words.
    fn about(&self) -> &'static str;

    /// What the caller must be allowed for that; without it the row is left out.
    fn needs(&self) -> Privilege {
        Privilege::None
    }

    /// One run.
    fn measure(&self, plan: &Plan) -> Result<Samples, Error>;
}

/// What a row cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Privilege {
    /// Anybody may.
    None,
    /// A nice value of -20.
    Favoured,
    /// A real-time thread.
    RealTime,
}

/// Names of rows that conclusions are drawn from, or that have published figures.
pub(crate) mod row {
    /// Our queue of ordinary priority.
    pub(crate) const NORMAL: &str = "normal";
    /// Our high-priority queue.
    pub(crate) const HIGH: &str = "high";
    /// The same with the short slice.
    pub(crate) const HIGH_SLICE: &str = "high+slice";
    /// The high-priority queue, from the expiry of a timer.
    pub(crate) const HIGH_DELAYED: &str = "high delayed";
    /// A high-priority queue without the privilege to be favoured.
    pub(crate) const REFUSED: &str = "high refused";
    /// A real-time thread that only sleeps.
    pub(crate) const HICCUP: &str = "hiccup";
}

//! When a home's node is chosen.

use crate::base::error::Error;

/// When the node of a [picked](crate::home::Home::pick) home is chosen.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Runtime, home::{Home, HomeChoice}};
///
/// let home = Home::pick_when(Runtime::global(), HomeChoice::FirstRun);
/// println!("{}", home.explain());
/// assert_eq!("first-run".parse::<HomeChoice>()?, HomeChoice::FirstRun);
/// # Ok::<(), nearq::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HomeChoice {
    /// When the home is made, as a kernel does at `fork`: homes that are made at the same time are spread, and the node is known at once.
    #[default]
    Now = 0,
    /// When the node is first needed: its first item is queued, memory is bound, or a thread enters. It is chosen by the load at that
    /// moment; if two nodes are equal, the nearer to the thread that needs it.
    FirstRun = 1,
}

impl HomeChoice {
    pub(crate) fn from_number(number: u32) -> Self {
        if number == HomeChoice::FirstRun as u32 { HomeChoice::FirstRun } else { HomeChoice::Now }
    }

    /// Every choice.
    pub const ALL: &'static [Self] = &[HomeChoice::Now, HomeChoice::FirstRun];

    /// Returns its name, as used in settings; the text of `Display`.
    pub fn name(self) -> &'static str {
        match self {
            HomeChoice::Now => "now",
            HomeChoice::FirstRun => "first-run",
        }
    }
}

impl core::fmt::Display for HomeChoice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

impl core::str::FromStr for HomeChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|choice| choice.name() == text).copied();
        found.ok_or_else(|| Error::unknown_name("choice of homes", text, Self::ALL))
    }
}

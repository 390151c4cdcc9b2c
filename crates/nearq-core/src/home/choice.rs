//! When a home's node is chosen.

/// When the node of a home is chosen that may be anywhere; see [`Home::pick`](crate::Home::pick).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HomeChoice {
    /// When the home is made, as a kernel does at `fork`: what is made at the same time is spread, and where it is can be told.
    #[default]
    Now = 0,
    /// When it is needed for the first time: its first item is queued, memory is bound, a thread enters. By the load of that moment, and
    /// nearest to who needs it on a tie.
    FirstRun = 1,
}

impl HomeChoice {
    pub(crate) fn from_number(number: u32) -> Self {
        if number == HomeChoice::FirstRun as u32 { HomeChoice::FirstRun } else { HomeChoice::Now }
    }

    /// Its name, as settings have it.
    pub fn name(self) -> &'static str {
        match self {
            HomeChoice::Now => "now",
            HomeChoice::FirstRun => "first-run",
        }
    }

    /// The one of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        [HomeChoice::Now, HomeChoice::FirstRun].into_iter().find(|choice| choice.name() == name)
    }
}

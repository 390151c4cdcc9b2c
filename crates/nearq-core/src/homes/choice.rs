//! When a home's node is chosen.

/// When the node of a home that may be anywhere is chosen; see [`Home::pick`](crate::home::Home::pick).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HomeChoice {
    /// When the home is made, as a kernel does at `fork`: homes that are made at the same time are spread, and the node is known at once.
    #[default]
    Now = 0,
    /// When it is needed for the first time: its first item is queued, memory is bound, or a thread enters. Chosen by the load at that
    /// moment, and nearest to the thread that needs it on a tie.
    FirstRun = 1,
}

impl HomeChoice {
    pub(crate) fn from_number(number: u32) -> Self {
        if number == HomeChoice::FirstRun as u32 { HomeChoice::FirstRun } else { HomeChoice::Now }
    }

    /// Its name, as used in settings.
    pub fn name(self) -> &'static str {
        match self {
            HomeChoice::Now => "now",
            HomeChoice::FirstRun => "first-run",
        }
    }

    /// The choice of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        [HomeChoice::Now, HomeChoice::FirstRun].into_iter().find(|choice| choice.name() == name)
    }
}

//! How much imbalance makes a task leave its home, and the other numbers that can be set.

use core::fmt;

use nearq_topology::LOCAL_DISTANCE;

/// Where an item belongs, from the viewpoint of a worker that could run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Belongs {
    /// Its home is that worker's node: the worker takes it first, and always.
    Here,
    /// It has no home, or is a stray: its home is neither that worker's node nor the node where it waits. The worker takes it after the
    /// items that are at home here.
    Nowhere,
    /// Its home is the other node, where it waits: the worker takes it last, and only if the imbalance is worth the distance.
    Elsewhere,
}

/// The numbers that decide when an item or task leaves its home, and when a dynamic home moves. Each has a name.
///
/// ```
/// # mod nearq { pub mod home { pub use nearq_home::Weights; } }
/// use nearq::home::Weights;
///
/// let mut weights = Weights::default();
/// for name in Weights::names() {
///     let (least, most) = Weights::bounds(name).unwrap();
///     println!("{name}: {:?}, {least} to {most}; {}", weights.get(name), Weights::about(name).unwrap());
/// }
/// weights.set("item_imbalance", 500)?;
/// assert_eq!(weights.get("item_imbalance"), Some(500));
/// # Ok::<(), nearq_home::WeightError>(())
/// ```
///
/// A runtime uses the weights that begin with `item_` or `move_`, which `Runtime::set_home_weight` changes. The others are for the
/// placement of whole processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    values: [u32; COUNT],
}

/// A number that can be set: its name, what it is for, its bounds, and its default.
struct Described {
    name: &'static str,
    about: &'static str,
    least: u32,
    most: u32,
    usual: u32,
}

const COUNT: usize = 13;

const IMBALANCE: usize = 0;
const IMBALANCE_STEP: usize = 1;
const IMBALANCE_PERCENT: usize = 2;
const WAITING: usize = 3;
const TOLERANCE: usize = 4;
const STAY: usize = 5;
const PERIOD: usize = 6;
const BUSY_PERIOD: usize = 7;
const MOVE_TIME: usize = 8;
const MOVE_MARGIN: usize = 9;
const MOVE_INTERVAL: usize = 10;
const ITEM_IMBALANCE: usize = 11;
const ITEM_IMBALANCE_STEP: usize = 12;

#[rustfmt::skip]
const DESCRIBED: [Described; COUNT] = [
    described("imbalance", "for tasks: how many more per CPU a node must have, in thousandths, before one leaves it for a busy CPU of a node at distance 10", 1, 1_000_000, 1_000),
    described("imbalance_step", "for tasks: how many more, in thousandths, for each further 10 of distance", 0, 1_000_000, 500),
    described("imbalance_percent", "and how much more crowded that node must be, in percent: among many tasks, one more or less is chance", 0, 1_000, 25),
    described("waiting", "a task that waited for a CPU for this part of the last period, in thousandths, counts as crowded at home", 1, 1_000, 200),
    described("tolerance", "a node has room for a task if its load exceeds its CPUs by at most this part, in thousandths, and by at most half a task", 0, 1_000, 100),
    described("stay_ms", "the least time that a task stays away after it was let out, in milliseconds; doubled up to 8 times if it soon had to leave again", 1, 10_000, 40),
    described("period_ms", "the interval between two checks of the loads while no task waits too much, in milliseconds", 1, 10_000, 100),
    described("busy_period_ms", "the interval otherwise, in milliseconds; the kernel counts idle time in ticks of 10", 1, 10_000, 40),
    described("move_time", "for dynamic homes: the weight of all CPU time, in thousandths of the weight of all memory", 0, 10_000, 250),
    described("move_margin", "for dynamic homes: how much better another node must be, in thousandths of the weight of all memory", 1, 10_000, 300),
    described("move_interval_ms", "for dynamic homes: the least time between two moves, in milliseconds", 1, 3_600_000, 1_000),
    described("item_imbalance", "for items: how many must wait per CPU at home, in thousandths, before an idle worker of a node at distance 10 takes one", 1, 1_000_000, 100),
    described("item_imbalance_step", "for items: how many more, in thousandths, for each further 10 of distance: an item that needs its home's memory half of its time takes 1.5 times as long at distance 20, which equals the wait behind half an item", 0, 1_000_000, 500),
];

const fn described(
    name: &'static str,
    about: &'static str,
    least: u32,
    most: u32,
    usual: u32,
) -> Described {
    Described { name, about, least, most, usual }
}

impl Default for Weights {
    fn default() -> Self {
        Weights { values: DESCRIBED.map(|weight| weight.usual) }
    }
}

impl Weights {
    /// Returns the names of all weights.
    pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
        DESCRIBED.iter().map(|weight| weight.name)
    }

    /// Returns what the weight with that name is for; `None` if there is none.
    pub fn about(name: &str) -> Option<&'static str> {
        DESCRIBED.iter().find(|weight| weight.name == name).map(|weight| weight.about)
    }

    /// Returns the least and the greatest value that the weight with that name may have; `None` if there is none.
    pub fn bounds(name: &str) -> Option<(u32, u32)> {
        DESCRIBED
            .iter()
            .find(|weight| weight.name == name)
            .map(|weight| (weight.least, weight.most))
    }

    /// Returns the value of the weight with that name; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<u32> {
        DESCRIBED.iter().position(|weight| weight.name == name).map(|index| self.values[index])
    }

    /// Sets the weight with that name.
    ///
    /// # Errors
    /// If there is no weight with that name, or it may not have that value.
    pub fn set(&mut self, name: &str, value: u32) -> Result<(), WeightError> {
        let Some(index) = DESCRIBED.iter().position(|weight| weight.name == name) else {
            return Err(WeightError::Name(name.to_owned()));
        };
        let weight = &DESCRIBED[index];
        if !(weight.least..=weight.most).contains(&value) {
            return Err(WeightError::Value {
                name: weight.name,
                value,
                least: weight.least,
                most: weight.most,
            });
        }
        self.values[index] = value;
        Ok(())
    }

    /// How many items must wait per CPU at their home, in thousandths, before an idle worker of a node at that distance may take one. It
    /// grows with the distance. If fewer wait, the item would begin sooner elsewhere, but end later.
    ///
    /// ```
    /// # use nearq_home as nearq;
    /// let weights = nearq::Weights::default();
    /// assert_eq!(weights.threshold(10), 100);
    /// assert_eq!(weights.threshold(32), 1200);
    /// ```
    #[doc(hidden)]
    pub fn threshold(&self, distance: u32) -> u32 {
        grown(self.values[ITEM_IMBALANCE], self.values[ITEM_IMBALANCE_STEP], distance)
    }

    /// The same for tasks and a CPU that is not idle: how many more tasks per CPU a node must have than another, in thousandths.
    fn task_threshold(&self, distance: u32) -> u32 {
        grown(self.values[IMBALANCE], self.values[IMBALANCE_STEP], distance)
    }

    /// Whether an idle worker of a node at that distance may take an item if that many more wait per CPU of the item's node, in
    /// thousandths. Not for users.
    #[doc(hidden)]
    #[doc(hidden)]
    pub fn may_take(&self, belongs: Belongs, imbalance: u32, distance: u32) -> bool {
        match belongs {
            Belongs::Here | Belongs::Nowhere => true,
            Belongs::Elsewhere => imbalance > self.threshold(distance),
        }
    }

    /// Whether a task may leave a node with `here` tasks per CPU, in thousandths, for a node at that distance that would then have `there`:
    /// the difference must be large enough. Not for users.
    #[doc(hidden)]
    #[doc(hidden)]
    pub fn is_worth_leaving(&self, here: u32, there: u32, distance: u32) -> bool {
        let percent = u64::from(there) * u64::from(self.values[IMBALANCE_PERCENT]) / 100;
        let least = u64::from(self.task_threshold(distance)).max(percent);
        u64::from(here) > u64::from(there) + least
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.values[WAITING]
    }

    /// The capacity of a node, plus the tolerated excess. The excess is at most half a task: on a node of many CPUs, a fraction of the
    /// capacity would be a whole task, and a CPU elsewhere would idle for lack of that task.
    pub(crate) fn runnable_limit(&self, capacity: u32) -> u32 {
        const HALF_A_TASK: u64 = 500;
        let beyond = u64::from(capacity) * u64::from(self.values[TOLERANCE]) / 1000;
        capacity.saturating_add(beyond.min(HALF_A_TASK) as u32)
    }

    pub(crate) fn stay_ms(&self) -> u32 {
        self.values[STAY]
    }

    /// The time until the next check, in milliseconds: one value while a task is out or crowded, another while none is.
    #[doc(hidden)]
    pub fn period_ms(&self, busy: bool) -> u32 {
        self.values[if busy { BUSY_PERIOD } else { PERIOD }]
    }

    pub(crate) fn move_time(&self) -> u32 {
        self.values[MOVE_TIME]
    }

    pub(crate) fn move_margin(&self) -> u32 {
        self.values[MOVE_MARGIN]
    }

    /// The least time that a dynamic home stays where it is, in milliseconds.
    #[doc(hidden)]
    pub fn move_interval_ms(&self) -> u32 {
        self.values[MOVE_INTERVAL]
    }
}

/// The value at distance 10, plus a step for each further 10.
fn grown(least: u32, step: u32, distance: u32) -> u32 {
    let further = u64::from(distance.saturating_sub(LOCAL_DISTANCE));
    let grown = u64::from(least) + u64::from(step) * further / 10;
    u32::try_from(grown).unwrap_or(u32::MAX)
}

/// Why a weight cannot be set.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightError {
    /// There is no weight with that name.
    Name(String),
    /// The weight may not have that value.
    Value {
        /// Its name.
        name: &'static str,
        /// The requested value.
        value: u32,
        /// The least value that it may have.
        least: u32,
        /// The greatest value that it may have.
        most: u32,
    },
}

impl fmt::Display for WeightError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightError::Name(name) => {
                let names: Vec<&str> = Weights::names().collect();
                write!(out, "there is no weight {name:?}; there are {}", names.join(", "))
            }
            WeightError::Value { name, value, least, most } => {
                write!(out, "{name} cannot be {value}; give {least} to {most}")
            }
        }
    }
}

nearq_topology::debug_as_display!(WeightError);

impl core::error::Error for WeightError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_weight_can_be_set_within_its_bounds() {
        let mut weights = Weights::default();
        for name in Weights::names() {
            let (least, most) = Weights::bounds(name).unwrap();
            let usual = weights.get(name).unwrap();
            assert!((least..=most).contains(&usual) && Weights::about(name).is_some());
            weights.set(name, most).unwrap();
            assert_eq!(weights.get(name), Some(most));
            let error = weights.set(name, most + 1).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(&most.to_string()), "{error}");
        }
        let error = weights.set("imbalanse", 1).unwrap_err().to_string();
        assert!(error.contains("imbalance_step"), "{error}");
        assert_eq!(weights.get("imbalanse"), None);
    }

    #[test]
    fn farther_nodes_require_more_imbalance() {
        let weights = Weights::default();
        let at = |distance| weights.threshold(distance);
        assert!(at(10) < at(12) && at(12) < at(20) && at(20) < at(32));
        assert!(!weights.may_take(Belongs::Elsewhere, at(20), 20));
        assert!(weights.may_take(Belongs::Elsewhere, at(20) + 1, 20));
        assert!(
            weights.may_take(Belongs::Nowhere, 0, 20) && weights.may_take(Belongs::Here, 0, 20)
        );
    }

    #[test]
    fn no_node_has_space_for_more_tasks_than_cpus() {
        let weights = Weights::default();
        for cpus in [1, 2, 8, 16, 192] {
            let capacity = 1000 * cpus;
            assert!(
                (capacity + 1..capacity + 1000).contains(&weights.runnable_limit(capacity)),
                "{cpus}"
            );
        }
    }

    #[test]
    fn larger_loads_require_more_imbalance() {
        let weights = Weights::default();
        assert!(weights.is_worth_leaving(3000, 1000, 20));
        assert!(!weights.is_worth_leaving(102_000, 100_000, 20));
        assert!(weights.is_worth_leaving(126_000, 100_000, 20));
    }
}

//! What everything costs: the names of all costs, and their defaults.
//!
//! The numbers here are defaults by distance. They are round numbers in the order of magnitude of a large server of today,
//! for machines of which only the shape is known. Machines that a file describes, such as the built-in ones, have numbers
//! with sources: [`Machine::sources`](crate::Machine::sources). No number was fitted to any result.

use serde::Deserialize;
use serde_json::Value;

/// Defines [`Costs`] and the table of its fields, so that each can be found by name.
macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident = $default:literal,)*) => {
        /// What everything costs on a machine: virtual nanoseconds, unless stated otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Costs {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Costs {
            /// The costs of a machine of which only the shape is known.
            pub const DEFAULT: Costs = Costs { $($name: $default,)* };

            /// The names of all costs, in the order of their declaration.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The cost of that name.
            pub fn get(&self, name: &str) -> Option<u64> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }

            /// The cost of that name, to be changed.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }

        /// The costs that a file gives: each at most once, and no unknown ones.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Given {
            $($name: Option<Value>,)*
        }

        impl Given {
            /// The costs that the file has, in the order of [`Costs::NAMES`].
            pub(crate) fn each(self) -> impl Iterator<Item = (&'static str, Value)> {
                let all = [$((stringify!($name), self.$name)),*].into_iter();
                all.filter_map(|(name, given)| Some((name, given?)))
            }
        }
    };
}

costs! {
    // ---- single lines: atomics ---------------------------------------------------------------------------
    /// A read or write of a line that this CPU holds.
    own_line = 1,
    /// A read or write of a line that this CPU holds, as one of several that a CPU executes at once, in picoseconds.
    own_line_ps = 1_000,
    /// What a read-modify-write costs on top of a write.
    read_modify_write = 5,
    /// Getting a line from another CPU of the same core.
    same_core = 10,
    /// Getting a line from another core under the same last-level cache.
    same_llc = 40,
    /// Getting a line from another last-level cache of the same node.
    other_llc = 100,
    /// Getting a line from another node of the same package.
    same_package = 150,
    /// Getting a line from the nearest node of another package; from farther nodes the cost grows in proportion to the firmware's
    /// distances.
    other_package = 200,
    /// What a line takes longer for each of the two CPUs whose node is another one of the package than the line's home.
    home_same_package = 0,
    /// What a line takes longer for each of the two CPUs whose node is in another package than the line's home, if it is the nearest such
    /// node; for farther ones it grows in proportion.
    home_other_package = 0,
    /// A read-modify-write of a line that another CPU has, if it is executed where the line is at home and not by the CPU itself. Every kind
    /// but a compare-exchange. 0: the CPU gets the line for each.
    far_atomic = 0,
    /// How long a CPU keeps a line that it got for writing, whichever other CPUs want it. 0: the next one gets it after the access.
    capture = 0,
    /// Entries of a CPU's store buffer: a store has one until its line has come. 0: the CPU waits for each line, one after the other.
    store_buffer = 0,
    /// A memory fence.
    fence = 10,
    /// One check of `wait_until_changed`, the pause included.
    look = 20,

    // ---- declared bytes ----------------------------------------------------------------------------------
    /// Bytes a microsecond (MB/s) that one CPU streams out of its core's private cache.
    l2_stream = 100_000,
    /// Bytes a microsecond that one CPU streams out of its last-level cache.
    l3_stream = 30_000,
    /// Bytes a microsecond that one CPU streams out of its node's memory.
    memory_stream = 15_000,
    /// Latency of a read from the node's own memory. Also the cost of a line that no CPU holds.
    memory = 100,
    /// Latency of a read from the memory of another node of the same package.
    memory_same_package = 150,
    /// Latency of a read from the memory of the nearest node of another package; for farther nodes it grows in proportion.
    memory_other_package = 200,
    /// Bytes a microsecond between a last-level cache and everything beyond it.
    llc_bandwidth = 50_000,
    /// Bytes a microsecond of one node's memory.
    node_bandwidth = 100_000,
    /// Bytes a microsecond between a node and the others.
    link_bandwidth = 40_000,
    /// Bytes of a core's private cache, if the topology does not say.
    l2_size = 1_048_576,
    /// Bytes of a last-level cache, if the topology does not say.
    llc_size = 33_554_432,

    // ---- the core ----------------------------------------------------------------------------------------
    /// Each CPU's share of its full speed, in percent, while another CPU of its core is busy as well.
    smt_percent = 62,

    // ---- the kernel --------------------------------------------------------------------------------------
    /// Reading the clock.
    clock = 20,
    /// Reading the CPU's cycle counter.
    counter = 20,
    /// Entering and leaving the kernel.
    system_call = 200,
    /// Making a sleeping thread ready: the waker's cost for each.
    wake_up = 1_000,
    /// Interrupting another CPU for a woken thread, because it is idle or runs a thread that has to give way: the waker's cost beside
    /// `wake_up`. The other CPU does not wait for it.
    interrupt = 0,
    /// Leaving idle: from the wake-up to the first instruction of the switch.
    idle_exit = 1_000,
    /// What leaving idle takes longer, if the CPU has been idle for `deep_idle_after`. 0: no deeper state is simulated.
    deep_idle_exit = 0,
    /// How long a CPU is idle before it is in the deeper state.
    deep_idle_after = 0,
    /// The interrupt at the end of a sleep, on the CPU where the thread went to sleep, which also does the wake-up (`wake_up`). 0: neither
    /// costs anything.
    timer_interrupt = 0,
    /// How much later than at its deadline a sleep may end, so that one interrupt ends several.
    timer_slack = 0,
    /// What the scheduler's tick, every 4 ms, takes from each CPU that has a thread.
    tick = 0,
    /// Switching a CPU to another thread.
    context_switch = 1_000,
    /// The extra cost, on top of the switch, for a thread that continues on another CPU: the kernel's part of the move.
    migration = 1_000,
    /// Creating a thread: the creator's cost.
    spawn = 10_000,
    /// Creating a process.
    fork = 100_000,
    /// Replacing a process's program.
    exec = 500_000,
    /// The first touch of a page.
    page_fault = 500,
    /// Moving a page to another node.
    page_move = 2_000,
    /// Reading the description of the machine.
    read_machine = 1_000_000,
    /// How long a thread runs while others wait for its CPU.
    slice = 3_000_000,
}

impl Costs {
    /// What the cost of that name is counted in: `ns`, `MB/s`, `bytes`, `%`, and so on.
    pub fn unit(name: &str) -> &'static str {
        match name {
            "smt_percent" => "%",
            "own_line_ps" => "ps",
            "clock_mhz" => "MHz",
            "store_buffer" => "stores",
            _ if name.ends_with("_stream") || name.ends_with("_bandwidth") => "MB/s",
            _ if name.ends_with("_size") => "bytes",
            _ => "ns",
        }
    }

    /// The same costs with one of them at `percent` of what it is, at least 1 unless it is 0. None if there is no such cost.
    pub fn scaled(mut self, name: &str, percent: u64) -> Option<Self> {
        let cost = self.get_mut(name)?;
        // A cost of nothing stays one.
        *cost = (*cost * percent / 100).max((*cost).min(1));
        Some(self)
    }
}

impl Default for Costs {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The kernel's weights for nice -20 to 19 (`sched_prio_to_weight`): each step a factor of about 1.25.
const WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// The weight of nice 0.
pub(crate) const NORMAL_WEIGHT: u64 = 1024;

/// The weight of the idle class (`WEIGHT_IDLEPRIO`).
pub(crate) const IDLE_WEIGHT: u64 = 3;

/// The share of a CPU that a nice value stands for; values out of range are clamped.
pub(crate) fn weight(nice: i32) -> u64 {
    WEIGHTS[(nice.clamp(-20, 19) + 20) as usize]
}

/// The nice value of a weight; the worst one for the idle class.
pub(crate) fn nice(weight: u64) -> i32 {
    let at_least = WEIGHTS.iter().position(|of| *of <= weight);
    at_least.unwrap_or(WEIGHTS.len() - 1) as i32 - 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_found_by_name() {
        for name in Costs::NAMES {
            let half = Costs::DEFAULT.scaled(name, 50).expect("listed");
            let cost = Costs::DEFAULT.get(name).expect("listed");
            assert_eq!(half.get(name), Some((cost / 2).max(cost.min(1))), "{name}");
            assert_eq!(Costs::unit(name) == "bytes", name.ends_with("size"), "{name}");
        }
        assert_eq!(Costs::DEFAULT.scaled("luck", 50), None);
        assert_eq!(Costs::DEFAULT.scaled("own_line", 1).map(|costs| costs.own_line), Some(1));
    }

    #[test]
    fn a_step_of_nice_is_about_a_quarter() {
        assert_eq!(weight(0), NORMAL_WEIGHT);
        assert_eq!((weight(-20), weight(-99)), (88761, 88761));
        assert_eq!((weight(19), weight(99)), (15, 15));
        assert!((-20..=19).all(|value| nice(weight(value)) == value));
        assert_eq!(nice(IDLE_WEIGHT), 19);
        for nice in -20..19 {
            let step = weight(nice) as f64 / weight(nice + 1) as f64;
            assert!((1.15..1.35).contains(&step), "nice {nice}: {step}");
        }
    }
}

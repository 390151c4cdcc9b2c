//! What everything costs: the one place where the simulator's nanoseconds come from.
//!
//! **These are placeholders, chosen round.** They have the right order of magnitude for a large server of today
//! and belong to no machine in particular. Numbers with a source, one set for each machine, take their place
//! later; nothing but this module changes then. No number here was fitted to any result.

/// Costs in virtual nanoseconds. [`Costs::DEFAULT`] has the placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Costs {
    /// A read or write of a line that this CPU holds.
    pub own_line: u64,
    /// What a read-modify-write costs on top of a write.
    pub read_modify_write: u64,
    /// Getting a line from another CPU of the same core.
    pub same_core: u64,
    /// Getting a line from another core under the same last-level cache.
    pub same_llc: u64,
    /// Getting a line from another last-level cache of the same node.
    pub other_llc: u64,
    /// Getting a line from another node at distance 20; other distances in proportion.
    pub other_node: u64,
    /// Getting a line that nobody holds.
    pub memory: u64,
    /// A memory fence.
    pub fence: u64,
    /// One look of `wait_until_changed`, the pause included.
    pub look: u64,
    /// Reading the clock.
    pub clock: u64,
    /// Entering and leaving the kernel.
    pub system_call: u64,
    /// Making a sleeping thread ready: what the waker pays for each.
    pub wake_up: u64,
    /// Leaving idle: from the wake-up to the first instruction of the switch.
    pub idle_exit: u64,
    /// Switching a CPU to another thread.
    pub context_switch: u64,
    /// Creating a thread: what the creator pays.
    pub spawn: u64,
    /// Reading the description of the machine.
    pub read_machine: u64,
    /// How long a thread runs while others wait for its CPU.
    pub slice: u64,
}

impl Costs {
    /// The placeholders.
    pub const DEFAULT: Costs = Costs {
        own_line: 1,
        read_modify_write: 5,
        same_core: 10,
        same_llc: 40,
        other_llc: 100,
        other_node: 200,
        memory: 100,
        fence: 10,
        look: 20,
        clock: 20,
        system_call: 200,
        wake_up: 1_000,
        idle_exit: 1_000,
        context_switch: 1_000,
        spawn: 10_000,
        read_machine: 1_000_000,
        slice: 3_000_000,
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_nice_is_about_a_quarter() {
        assert_eq!(weight(0), NORMAL_WEIGHT);
        assert_eq!((weight(-20), weight(-99)), (88761, 88761));
        assert_eq!((weight(19), weight(99)), (15, 15));
        for nice in -20..19 {
            let step = weight(nice) as f64 / weight(nice + 1) as f64;
            assert!((1.15..1.35).contains(&step), "nice {nice}: {step}");
        }
    }
}

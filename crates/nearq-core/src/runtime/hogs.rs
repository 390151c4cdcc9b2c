//! Functions that keep the CPU of a per-CPU pool to themselves.
//!
//! A per-CPU pool has one worker that runs, so an item that computes for long holds up all others of its CPU. The monitor notices that when
//! others wait: an item that has used more than the limit of CPU time since it began or last slept does not count as running from then on,
//! and another worker starts. It is counted by the name of its function. A warning follows at the fourth time, and then each time that the
//! number has about doubled: at 4, 5, 7, 11, 19 and so on, as in the kernel.

use nearq_lock::Mutex;
use nearq_platform::Platform;

/// The most functions that are counted; further ones have no count.
const MOST: usize = 128;
/// The time from which on there is a warning.
const FIRST_SAID: u64 = 4;

/// A function whose items used the CPU of a per-CPU queue for too long; see [`Runtime::cpu_hogs`](crate::Runtime::cpu_hogs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuHog {
    /// The name of the function.
    pub function: &'static str,
    /// How often that happened.
    pub count: u64,
}

/// Functions, and how often each was too long.
pub(crate) struct Hogs<P: Platform> {
    counts: Mutex<Vec<(&'static str, u64)>, P>,
}

impl<P: Platform> Hogs<P> {
    pub(crate) fn new() -> Self {
        Hogs { counts: Mutex::new_in(Vec::new()) }
    }

    /// Counts one time; returns the number, if a warning is due.
    pub(crate) fn count(&self, function: &'static str) -> Option<u64> {
        let mut counts = self.counts.lock();
        let index = match counts.iter().position(|(known, _)| *known == function) {
            Some(index) => index,
            None if counts.len() < MOST => {
                counts.push((function, 0));
                counts.len() - 1
            }
            None => return None,
        };
        counts[index].1 += 1;
        let count = counts[index].1;
        (count >= FIRST_SAID && (count - FIRST_SAID + 1).is_power_of_two()).then_some(count)
    }

    /// The functions, most often first.
    pub(crate) fn list(&self) -> Vec<CpuHog> {
        let mut list = self.counts.lock().clone();
        list.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        list.into_iter().map(|(function, count)| CpuHog { function, count }).collect()
    }

    /// Forgets the parent's counts. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        // SAFETY: this is the only thread, and no user's code runs while the lock is held; the counts are thrown away.
        unsafe { self.counts.renew(Vec::new()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::Linux;

    #[test]
    fn it_is_said_at_the_fourth_time_and_then_less_and_less() {
        let hogs = Hogs::<Linux>::new();
        let said: Vec<_> = (0..40).filter_map(|_| hogs.count("f")).collect();
        assert_eq!(said, [4, 5, 7, 11, 19, 35]);
        assert_eq!(hogs.count("g"), None);
        let list: Vec<_> = hogs.list().iter().map(|hog| (hog.function, hog.count)).collect();
        assert_eq!(list, [("f", 40), ("g", 1)]);
    }

    #[test]
    fn the_number_of_functions_is_bounded() {
        let hogs = Hogs::<Linux>::new();
        const NAMES: &str = include_str!("hogs.rs");
        for length in 0..200 {
            hogs.count(&NAMES[..length]);
        }
        assert_eq!(hogs.list().len(), MOST);
    }
}

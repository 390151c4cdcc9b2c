//! Deadlines that may be late, put on instants that many of them share.
//!
//! A thread that sleeps until a deadline wakes an idle CPU. So a deadline with slack is put on the next instant whose number of nanoseconds
//! is a multiple of the largest power of two within the slack. All deadlines with that slack meet at these instants, those with more slack
//! at some of them, in this process and in others, because the clock is the system's. The instants are more than half of the slack apart:
//! any number of items with a slack of a second cause at most two wake-ups a second. The kernel's `round_jiffies` does the same with whole
//! seconds.

/// An instant that others meet too, from `earliest` on and at most `slack` later, in nanoseconds.
pub(crate) fn meeting(earliest: u64, slack: u64) -> u64 {
    let step = 1 << slack.max(1).ilog2();
    earliest.checked_next_multiple_of(step).unwrap_or(earliest)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::meeting;

    #[test]
    fn it_is_neither_early_nor_later_than_the_slack() {
        for slack in 0..70 {
            for earliest in 0..300 {
                let chosen = meeting(earliest, slack);
                assert!(
                    (earliest..=earliest + slack).contains(&chosen),
                    "{earliest} {slack}: {chosen}"
                );
            }
        }
        assert_eq!((meeting(u64::MAX, 9), meeting(5, u64::MAX)), (u64::MAX, 1 << 63));
    }

    #[test]
    fn many_deadlines_meet_at_few_instants_and_longer_slacks_at_some_of_these() {
        let second = 1_000_000_000;
        let meet = |slack: u64| -> BTreeSet<u64> {
            let phases = (0..second).step_by(999_983);
            phases.map(|phase| meeting(7 * second + phase, slack)).collect()
        };
        assert_eq!(meet(0).len(), 1001, "without slack none meet");
        let (short, long) = (meet(second / 4), meet(second));
        assert!(short.len() <= 9 && long.len() <= 3, "{short:?} {long:?}");
        let gaps = short.iter().zip(short.iter().skip(1)).map(|(one, next)| next - one);
        assert!(gaps.min() > Some(second / 8), "{short:?}");
        let shared = |at: &&u64| short.contains(at) || *at > short.last().expect("some");
        assert_eq!(long.iter().filter(shared).count(), long.len(), "{long:?} {short:?}");
    }
}

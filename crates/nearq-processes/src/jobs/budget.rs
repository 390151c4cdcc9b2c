//! How much memory the outputs of jobs that run may take: a job that prints for ever would take all that the machine has, and the
//! kernel would look for somebody to kill who did nothing.
//!
//! The lengths of memory files are looked at now and then: soon after a job has started, more seldom while little comes, and often
//! while much does.

use std::time::{Duration, Instant};

use crate::proc;

/// Looks are so far apart at least and at most.
const APART: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// The part of the memory that is available, and the least where that is not known.
const PART: u64 = 8;
const LEAST: u64 = 64 << 20;

/// Growth by one part in so many of the limit is much.
const MUCH: u64 = 64;

#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    before: u64,
    apart: Duration,
    at: Option<Instant>,
}

impl Budget {
    pub(crate) fn new() -> Self {
        let limit = proc::available_memory().map_or(LEAST, |available| available / PART).max(LEAST);
        Self { limit, before: 0, apart: APART[0], at: None }
    }

    /// When to look; never while nothing runs whose output is kept.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.at
    }

    /// A job has started.
    pub(crate) fn started(&mut self) {
        self.apart = APART[0];
        self.at.get_or_insert_with(|| Instant::now() + APART[0]);
    }

    /// Nothing runs any more.
    pub(crate) fn nothing_runs(&mut self) {
        (self.at, self.before) = (None, 0);
    }

    /// So much is there now. Whether that is too much.
    pub(crate) fn is_exceeded(&mut self, now: u64) -> bool {
        let grown = now.saturating_sub(self.before);
        self.before = now;
        self.apart =
            if grown >= self.limit / MUCH { APART[0] } else { (self.apart * 2).min(APART[1]) };
        self.at = Some(Instant::now() + self.apart);
        now > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_at_often_while_much_comes() {
        let mut budget = Budget { limit: 6400, before: 0, apart: APART[0], at: None };
        budget.started();
        assert!(budget.next_look().is_some());
        let apart: Vec<Duration> = [1, 2, 3, 4, 5, 6, 7, 200, 201]
            .iter()
            .map(|now| {
                assert!(!budget.is_exceeded(*now));
                budget.apart
            })
            .collect();
        assert_eq!(apart[0], APART[0] * 2);
        assert_eq!(apart[6], APART[1]);
        assert_eq!(apart[7], APART[0]);
        assert!(budget.is_exceeded(6401));
        budget.nothing_runs();
        assert_eq!(budget.next_look(), None);
    }

    #[test]
    fn some_may_be_kept_however_little_is_available() {
        assert!(Budget::new().limit >= LEAST);
    }
}

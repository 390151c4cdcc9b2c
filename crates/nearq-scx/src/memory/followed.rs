//! What is remembered of a process from one round to the next.

use std::time::{Duration, Instant};

use nearq_home::HomeMigration;
use nearq_scx_policy::layout::{NODES, Process};

use crate::crowd::Away;
use crate::remedy::Remedy;

/// The part of a process's memory, in thousandths, that may be away from home although the process counts as settled. A settled process is
/// not sampled again before `SETTLED_FOR` has passed, or its memory has changed by an eighth and `GROWN`.
pub(super) const SETTLED_BUT_FOR: u64 = 100;
const SETTLED_FOR: Duration = Duration::from_secs(10);
const GROWN: u64 = 1 << 20;

/// What is remembered of a process from one round to the next.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) migration: HomeMigration,
    pub(super) ran: [u64; NODES],
    /// The last round in which it had run.
    pub(super) seen: Instant,
    /// When its memory was last sampled.
    pub(super) sampled: Option<Instant>,
    /// How much memory it had touched when its memory was found at home; `None` while the memory is not at home or has not been sampled.
    pub(super) settled: Option<u64>,
    /// The time at which a hint for its home was given.
    pub(super) hinted: Option<Instant>,
    pub(super) away: Away,
    /// When it got another home because its own was crowded. It gets no further home if its memory could not follow it (`cannot_leave`).
    pub(super) relocated: Option<Instant>,
    pub(super) cannot_leave: bool,
    /// Whether a decision that it stays in the crowd has been logged.
    pub(super) stays: bool,
    /// The last decision, so that the same one is not logged each second.
    pub(super) last: Option<(Remedy, u32)>,
}

impl Followed {
    /// The state of a process that did not exist in the last round, or of any process under a scheduler that did not.
    pub(super) fn new(home: usize, now: Instant) -> Self {
        Followed {
            // Its first home was not chosen by memory, so it may change at once.
            migration: HomeMigration::new(home, Duration::ZERO),
            ran: [0; NODES],
            seen: now,
            sampled: None,
            settled: None,
            hinted: None,
            away: Away::default(),
            relocated: None,
            cannot_leave: false,
            stays: false,
            last: None,
        }
    }

    /// Records that it has not run since the last round.
    pub(super) fn rest(&mut self) {
        self.away.add(None);
        self.stays = false;
    }

    /// Whether its memory is still where it was when it was found at home, as far as this can be determined without sampling.
    pub(super) fn is_settled(&self, process: &Process, now: Instant) -> bool {
        let is_recent = self.sampled.is_some_and(|at| now - at < SETTLED_FOR);
        let is_as_it_was = |before: u64| {
            process.touched != u64::MAX
                && process.touched.abs_diff(before) <= (before / 8).max(GROWN)
        };
        is_recent && self.settled.is_some_and(is_as_it_was)
    }
}

//! What is known of a process from one round to the next.

use std::time::{Duration, Instant};

use nearq_home::HomeMigration;
use nearq_scx_policy::layout::{NODES, Process};

use crate::crowd::Away;
use crate::remedy::Remedy;

/// A process whose memory was at home when last sampled, but for this part in thousandths, is not sampled again before `SETTLED_FOR` has
/// passed, or its memory has changed by an eighth and `GROWN`.
pub(super) const SETTLED_BUT_FOR: u64 = 100;
const SETTLED_FOR: Duration = Duration::from_secs(10);
const GROWN: u64 = 1 << 20;

/// What is known of a process from one round to the next.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) migration: HomeMigration,
    pub(super) ran: [u64; NODES],
    /// The last round in which it had run.
    pub(super) seen: Instant,
    /// When its memory was last sampled.
    pub(super) sampled: Option<Instant>,
    /// How much it had touched when its memory was found at home; none while it is not at home, or has not been sampled.
    pub(super) settled: Option<u64>,
    /// Since when there has been a hint for its home.
    pub(super) hinted: Option<Instant>,
    pub(super) away: Away,
    /// When it got another home because its own was crowded. It gets no other one if its memory could not follow it (`cannot_leave`).
    pub(super) relocated: Option<Instant>,
    pub(super) cannot_leave: bool,
    /// A decision that it stays in the crowd has been logged.
    pub(super) stays: bool,
    /// The last decision, so that the same one is not logged each second.
    pub(super) last: Option<(Remedy, u32)>,
}

impl Followed {
    /// A process that did not exist in the last round, or a scheduler that did not.
    pub(super) fn new(home: usize, now: Instant) -> Self {
        Followed {
            // Its first home was no choice by memory: it may be left at once.
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

    /// It has not run since the last round.
    pub(super) fn rest(&mut self) {
        self.away.add(None);
        self.stays = false;
    }

    /// Whether its memory is where it was when it was found at home, as far as this is known without sampling.
    pub(super) fn is_settled(&self, process: &Process, now: Instant) -> bool {
        let is_recent = self.sampled.is_some_and(|at| now - at < SETTLED_FOR);
        let is_as_it_was = |before: u64| {
            process.touched != u64::MAX
                && process.touched.abs_diff(before) <= (before / 8).max(GROWN)
        };
        is_recent && self.settled.is_some_and(is_as_it_was)
    }
}

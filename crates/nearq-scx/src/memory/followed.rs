//! What is known of a process from one look at memory to the next.

use std::time::{Duration, Instant};

use nearq_home::HomeMigration;
use nearq_scx_policy::layout::{NODES, Process};

use crate::crowd::Away;
use crate::remedy::Remedy;

/// Whose memory was at home at the last look, but for this part in thousandths, is not looked at again before that time has passed, or its
/// memory is more or less by an eighth and this much.
pub(super) const SETTLED_BUT_FOR: u64 = 100;
const SETTLED_FOR: Duration = Duration::from_secs(10);
const GROWN: u64 = 1 << 20;

/// What is known of a process from one look to the next.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) migration: HomeMigration,
    pub(super) ran: [u64; NODES],
    /// The last look at which it had run.
    pub(super) seen: Instant,
    /// When its memory was looked at.
    pub(super) sampled: Option<Instant>,
    /// How much it had touched when its memory was found at home; none as long as it is not, or has not been looked at.
    pub(super) settled: Option<u64>,
    /// Since when a home is told to it.
    pub(super) hinted: Option<Instant>,
    pub(super) away: Away,
    /// When it got another home as its own was crowded. Never again if its memory could not come with it.
    pub(super) relocated: Option<Instant>,
    pub(super) cannot_leave: bool,
    /// It was said that it stays in the crowd.
    pub(super) stays: bool,
    /// The last thing that was decided, so that the same is not said each second.
    pub(super) last: Option<(Remedy, u32)>,
}

impl Followed {
    /// One that was not there at the last look, or the scheduler was not.
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

    /// It has not run since the last look.
    pub(super) fn rest(&mut self) {
        self.away.add(None);
        self.stays = false;
    }

    /// Whether its memory is where it was when it was found at home, as far as one can tell without looking.
    pub(super) fn is_settled(&self, process: &Process, now: Instant) -> bool {
        let is_recent = self.sampled.is_some_and(|at| now - at < SETTLED_FOR);
        let is_as_it_was = |before: u64| {
            process.touched != u64::MAX
                && process.touched.abs_diff(before) <= (before / 8).max(GROWN)
        };
        is_recent && self.settled.is_some_and(is_as_it_was)
    }
}

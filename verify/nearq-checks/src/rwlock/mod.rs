//! The protocol of the reader-writer lock: `raw_rwlock.rs`, `raw_rwlock/by_cache.rs` and `readers.rs` of `nearq-lock`, restated.
//!
//! - A step reads or writes one word, or is one read-modify-write. A read that only prepares a compare-exchange is part of it; reads that are
//!   part of Dekker's pattern, and the reads by which a writer adds up the lines, are steps of their own.
//! - The mutex `writers` is a bit: any thread that waits for it may get it when it is free. Its protocol is [`mutex`](crate::mutex)'s.
//! - Threads do not spin: a thread that has to wait sleeps. A thread that sleeps on a word checks again when it is woken, and a time-out may
//!   come whenever it sleeps. The conditions of the code (patience, an idle row) are decisions that are visited both ways.
//! - There are two domains and one row. Two locks may use it one after the other.

mod model;
mod steps;

pub use model::{Action, Step};

/// How many domains there are.
pub const DOMAINS: usize = 2;
/// How many locks there are.
pub const LOCKS: usize = 2;

/// A use of a lock by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// What the thread does.
    pub what: What,
    /// Which lock it uses.
    pub lock: u8,
    /// Whether a time-out may come while it sleeps.
    pub until: bool,
}

/// What a thread does with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// Reads.
    Read,
    /// Lends the row to the lock, if the row is free and the lock has none, also beside a writer; then reads.
    Lend,
    /// Writes.
    Write,
    /// Reads as an upgradable reader, then writes.
    Upgrade,
}

impl What {
    /// The use of a lock, without a time-out.
    #[must_use]
    pub fn of(self, lock: u8) -> Op {
        Op { what: self, lock, until: false }
    }

    /// The use of a lock, with a time-out that may come.
    #[must_use]
    pub fn until(self, lock: u8) -> Op {
        Op { what: self, lock, until: true }
    }
}

/// A thread of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Script {
    /// Where it runs when it enters.
    pub domain: u8,
    /// Where it runs when it leaves.
    pub leaves: u8,
    /// What it does, in this order.
    pub ops: Vec<Op>,
}

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Mutant {
    /// A writer that gives up changes the phase.
    GiveUpChangesPhase,
    /// A writer that leaves lets no reader in.
    LetsNobodyIn,
    /// The reader that makes `ACTIVE` 0 does not wake the writer if the lock has a row.
    LastInWordOnly,
    /// A reader by cache does not read the state again.
    NoSecondLook,
    /// A writer takes the row away although it has not said so before it waited for the readers.
    RowGoesUnannounced,
    /// A writer that leaves does not move `ACTIVE` into the row.
    ActiveStays,
    /// A writer sleeps without having read the lines again.
    NoThirdLook,
    /// A reader that lends the row does not wake the writer.
    LenderIsSilent,
    /// A late reader takes back what it has added without looking whether a writer sleeps.
    LateIsSilent,
    /// A late reader takes it back at the other domain's line.
    TakesBackElsewhere,
    /// A reader by cache that waits looks at the phase only, and not at the row.
    RowNotCompared,
    /// A writer that leaves lets the readers in without changing the phase: each of them enters when it notices that there is no writer.
    PhaseStays,
}

/// Threads that use locks.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The threads.
    pub scripts: Vec<Script>,
    /// Whether the first lock has the row from the start.
    pub lent: bool,
    /// What is wrong.
    pub mutant: Option<Mutant>,
}

/// Which thread besides readers has a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    #[default]
    None,
    Upgradable,
    Writer,
    Ending,
}

/// A lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lock {
    pub(crate) kind: Kind,
    pub(crate) phase: bool,
    pub(crate) reserved: bool,
    pub(crate) readers_asleep: bool,
    pub(crate) writer_asleep: bool,
    pub(crate) row: bool,
    pub(crate) active: i8,
    pub(crate) waiting: i8,
    /// Whether a thread has the mutex `writers`.
    pub(crate) head: bool,
}

impl Lock {
    pub(crate) fn has_writer(&self) -> bool {
        matches!(self.kind, Kind::Writer | Kind::Ending)
    }
}

/// The row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    pub(crate) lent: bool,
    /// By domain, then by phase.
    pub(crate) counts: [[i8; 2]; DOMAINS],
    /// The lock whose bucket a writer sleeps in.
    pub(crate) asleep: Option<u8>,
}

impl Row {
    pub(crate) fn sum(&self, phase: bool) -> i8 {
        self.counts.iter().map(|line| line[usize::from(phase)]).sum()
    }
}

/// Where a thread is in its use of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum At {
    #[default]
    Start,
    // ---- readers
    /// It wants to enter, and has lent the row or not.
    Enters,
    /// It has found this in the state, and adds one to the row.
    Count {
        phase: bool,
        writer: bool,
    },
    /// It is counted for that phase, and reads the state again.
    LookAgain {
        phase: bool,
    },
    /// It takes back what it has added; then it starts over, or gives up.
    TakeBack {
        phase: bool,
        gives_up: bool,
    },
    /// It has taken that back, and looks whether a writer sleeps.
    TookBack {
        gives_up: bool,
    },
    /// It is counted in `WAITING`, or in the row, and waits for the end of that phase.
    Waits {
        began: bool,
        by_cache: bool,
    },
    /// It has said that it is about to sleep.
    Marked {
        began: bool,
        by_cache: bool,
    },
    Asleep {
        began: bool,
        by_cache: bool,
    },
    TimedOut {
        began: bool,
        by_cache: bool,
    },
    Reads,
    /// It leaves, and has found no row.
    LeavesWord,
    /// It leaves, and has subtracted at the row.
    Left,
    // ---- writers and upgradable readers
    /// It waits for `writers`.
    Queues,
    Head,
    /// It has read the bucket's count, and says that it is about to sleep.
    HeadCounted {
        count: u8,
    },
    HeadMarked {
        count: u8,
    },
    HeadAsleep,
    ReadsUpgradably,
    /// It keeps new readers out, and adds up the readers: the next line, and the sum so far.
    Sums {
        line: u8,
        sum: i8,
        look: Look,
    },
    /// It has found readers.
    MustWait,
    DrainCounted {
        count: u8,
    },
    DrainMarked {
        count: u8,
    },
    DrainAsleep,
    GivesUp,
    /// It has the lock; if it is the head, it is about to release `writers`, or keeps it until it leaves.
    HasIt,
    Writes,
    /// It leaves, and has moved `ACTIVE` into the row.
    Moved,
    /// It has left, and gives the row back.
    FreesRow,
}

/// Why a writer reads the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Look {
    First,
    /// Before it sleeps, when the bucket had this count.
    BeforeSleep(u8),
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Thread {
    /// How many of its uses are over.
    pub(crate) done: u8,
    pub(crate) at: At,
    /// Whether it has `writers`.
    pub(crate) is_head: bool,
    /// It is about to wake the threads that sleep in a lock's bucket, or on a lock's state.
    pub(crate) wakes_bucket: Option<u8>,
    pub(crate) wakes_readers: Option<u8>,
    /// How many writers have had the lock and left while it waited.
    pub(crate) passed: u8,
}

/// All locks and threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) locks: [Lock; LOCKS],
    pub(crate) row: Row,
    /// The counters of the locks' buckets, as far as threads can tell values apart: modulo four.
    pub(crate) buckets: [u8; LOCKS],
    pub(crate) threads: Vec<Thread>,
    /// What has happened, for properties that say that it does.
    pub(crate) events: Events,
}

/// What has happened on the way to a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is one property")]
pub struct Events {
    pub(crate) by_cache: bool,
    pub(crate) waited_by_cache: bool,
    pub(crate) late: bool,
    pub(crate) ended: bool,
    pub(crate) gave_up: bool,
    pub(crate) reader_slept: bool,
    pub(crate) writer_slept: bool,
}

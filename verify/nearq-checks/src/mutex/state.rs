//! What the threads share, and each thread: one state of the model.
//!
//! Numbers of records and slots begin with 1; 0 is nobody's, as in the word. A record that nobody has, and one whose owner is in no
//! queue, are as new: what was written there before is written again before anybody reads it.

use super::at::At;

/// The most of each that a scenario may have.
pub(super) const MOST_THREADS: usize = 4;
pub(super) const MOST_RECORDS: usize = 6;
pub(super) const MUTEXES: usize = 2;
pub(super) const SLOTS: usize = 2;
pub(super) const DOMAINS: usize = 2;

/// A mutex's word (`word.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub struct Word {
    pub locked: bool,
    pub asleep: bool,
    pub reserved: bool,
    pub numa: bool,
    pub slot: u8,
    pub tail: u8,
}

/// What one that waits is told (`queue.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Message {
    Turn,
    Anew,
    Front,
}

/// A record's `state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum RecordState {
    #[default]
    Waiting,
    Asleep,
    Left,
    Told(Message),
}

/// A record's `next`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Next {
    #[default]
    Nobody,
    Record(u8),
    Gone(Message),
}

/// A record of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    /// Somebody has it.
    pub had: bool,
    /// What its owner waits for.
    pub state: RecordState,
    /// Who came after it.
    pub next: Next,
}

/// A domain's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// In `tail`: the generation.
    pub generation: u8,
    /// In `tail`: who came last.
    pub last: u8,
    /// Who stands up; 0 where nobody will read it.
    pub front: u8,
}

/// A slot (`slot.rs`); the first three fields after `had` are `top`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Some mutex has it.
    pub had: bool,
    /// The generation.
    pub generation: u8,
    /// Somebody has the turn.
    pub taken: bool,
    /// The domains' bits.
    pub standing: [bool; DOMAINS],
    /// The queues.
    pub lines: [Line; DOMAINS],
}

/// Whom a thread is about to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wake {
    /// One of those that sleep on a mutex's word.
    One(u8),
    /// All of them.
    All(u8),
    /// Who sleeps by a record.
    Record(u8),
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thread {
    /// Which of the scenario's scripts it follows.
    pub script: u8,
    /// How many operations of that are behind it.
    pub done: u8,
    /// Where in the code it is.
    pub at: At,
    /// The record that it has, or 0.
    pub own: u8,
    /// It holds the mutex of the operation that it is in.
    pub holds: bool,
    /// It has asked, while queueing up, that nobody pass by.
    pub asked: bool,
    /// How often it may still wake for no reason.
    pub spurious: u8,
    /// What it does before anything else.
    pub wake: Option<Wake>,
    /// The record that it wakes after that, or 0.
    pub wakes_then: u8,
    /// The record, told while its owner slept, that it wakes when it gives the mutex back, or 0.
    pub wakes_later: u8,
}

/// What must not happen and needs no look at the whole state to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A record is given back that nobody has.
    RecordFreedTwice,
    /// A record is told something that was told already, or is in no queue.
    RecordToldTwice,
    /// A record is put into a queue while another one leads to it.
    RecordStillReached,
    /// A mutex is taken out of a slot that it is not in, or a slot is given back that nobody has.
    SlotNotHad,
    /// A slot is made ready while somebody has its turn, or wants it.
    SlotNotReady,
    /// Two stand up in one domain.
    TwoStandUp,
    /// Nobody is in front where somebody stands up.
    NobodyStandsUp,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The mutexes' words.
    pub words: [Word; MUTEXES],
    /// Which mutexes are gone.
    pub dropped: [bool; MUTEXES],
    /// By number, less one.
    pub slots: [Slot; SLOTS],
    /// By number, less one.
    pub records: [Record; MOST_RECORDS],
    /// Those that there are; the rest have nothing to do.
    pub threads: [Thread; MOST_THREADS],
    /// The thread, plus one, that has the turn of the mutex and found it reserved or reserved it; 0 if none has.
    pub reserved_by: [u8; MUTEXES],
    /// Somebody else has taken `RESERVED` away since.
    pub robbed: bool,
    /// Somebody without the turn has taken the mutex since, although it was reserved.
    pub ignored: bool,
    /// Likewise, when it was not.
    pub passed: bool,
    /// The first one.
    pub fault: Option<Fault>,
}

impl State {
    pub(super) fn record(&mut self, number: u8) -> &mut Record {
        &mut self.records[usize::from(number) - 1]
    }

    pub(super) fn slot(&mut self, number: u8) -> &mut Slot {
        &mut self.slots[usize::from(number) - 1]
    }

    pub(super) fn faulty(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// Who of those that sleep on a mutex's word.
    pub(super) fn sleepers(&self, mutex: u8) -> impl Iterator<Item = usize> + '_ {
        let sleeps = move |thread: &Thread| matches!(thread.at, At::AsleepOnWord { mutex: on, .. } if on == mutex);
        (0..MOST_THREADS).filter(move |&index| sleeps(&self.threads[index]))
    }
}

//! One state of the model: what the threads share, and each thread.
//!
//! Numbers of records and slots begin with 1; 0 means none, as in the word. A record that no thread has, and one whose owner is in
//! no queue, count as new: what was written there before is overwritten before any thread reads it.

use super::at::At;

/// The maximum numbers that a scenario may have.
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

/// A message to a waiting thread (`queue.rs`).
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
    Sent(Message),
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

/// A record of the slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    /// Whether a thread has it.
    pub used: bool,
    /// What its owner waits for.
    pub state: RecordState,
    /// The record that came after it.
    pub next: Next,
}

/// A domain's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// The generation, in `tail`.
    pub generation: u8,
    /// The record that came last, in `tail`.
    pub last: u8,
    /// The record that stands up; 0 if no thread will read it.
    pub front: u8,
}

/// A slot (`slot.rs`); the first three fields after `used` are `top`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Whether a mutex has it.
    pub used: bool,
    /// The generation.
    pub generation: u8,
    /// Whether a thread has the turn.
    pub taken: bool,
    /// The domains' bits.
    pub standing: [bool; DOMAINS],
    /// The queues.
    pub lines: [Line; DOMAINS],
}

/// What a thread is about to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wake {
    /// One of the threads that sleep on a mutex's word.
    One(u8),
    /// All threads that sleep on a mutex's word.
    All(u8),
    /// The thread that sleeps by a record.
    Record(u8),
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thread {
    /// Which of the scenario's scripts it follows.
    pub script: u8,
    /// How many of its operations are done.
    pub done: u8,
    /// Where in the code it is.
    pub at: At,
    /// The record that it has, or 0.
    pub own: u8,
    /// Whether it holds the mutex of the operation that it is in.
    pub holds: bool,
    /// Whether it has asked, while queueing up, that no thread pass by.
    pub asked: bool,
    /// How often it may still wake for no reason.
    pub spurious: u8,
    /// The wake-up that it makes before anything else.
    pub wake: Option<Wake>,
    /// The record that it wakes after that, or 0.
    pub wakes_then: u8,
    /// The record that was sent a message while its owner slept, and whose owner this thread wakes when it releases the mutex; or 0.
    pub wakes_later: u8,
}

/// What must not happen, and can be detected without the whole state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A record that no thread has is given back.
    RecordFreedTwice,
    /// A record that was already sent a message, or is in no queue, is sent one.
    RecordSentToTwice,
    /// A record is put into a queue while another one leads to it.
    RecordStillReached,
    /// A mutex is taken out of a slot that it is not in, or a slot is given back that no mutex has.
    SlotNotHad,
    /// A slot is made ready while a thread has its turn, or wants it.
    SlotNotReady,
    /// Two threads stand up in one domain.
    TwoStandUp,
    /// A record stands up, but no thread is in front.
    NobodyStandsUp,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The mutexes' words.
    pub words: [Word; MUTEXES],
    /// Which mutexes are gone.
    pub dropped: [bool; MUTEXES],
    /// Indexed by number, less one.
    pub slots: [Slot; SLOTS],
    /// Indexed by number, less one.
    pub records: [Record; MOST_RECORDS],
    /// The existing threads; the rest have nothing to do.
    pub threads: [Thread; MOST_THREADS],
    /// The thread, plus one, that has the turn of the mutex and found it reserved or reserved it; 0 if none has.
    pub reserved_by: [u8; MUTEXES],
    /// Whether another thread has removed `RESERVED` since then.
    pub robbed: bool,
    /// Whether a thread without the turn has taken the mutex since then, although it was reserved.
    pub ignored: bool,
    /// Likewise, when it was not reserved.
    pub passed: bool,
    /// The first fault.
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

    /// The threads that sleep on a mutex's word.
    pub(super) fn sleepers(&self, mutex: u8) -> impl Iterator<Item = usize> + '_ {
        let sleeps = move |thread: &Thread| matches!(thread.at, At::AsleepOnWord { mutex: on, .. } if on == mutex);
        (0..MOST_THREADS).filter(move |&index| sleeps(&self.threads[index]))
    }
}

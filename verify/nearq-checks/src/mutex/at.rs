//! The places of the code at which a thread can be between two steps.

use super::state::{Line, Message, Word};

/// The queue that a thread waits in; if it is a domain's, it is that of the thread's own domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Queue {
    Plain,
    Domain { slot: u8, generation: u8 },
}

/// The tail of the queue in which a thread is told something (`Tail` in `queue.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Tail {
    Plain,
    Line { slot: u8, domain: u8, generation: u8 },
}

/// What kind of thread sleeps on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sleeper {
    /// A thread without a place in a queue.
    WithoutQueue,
    /// A thread whose turn it is; whether it has woken the one behind it.
    Contender(Queue, bool),
}

/// What follows `hand_to_domains`, or `unbind` of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Then {
    /// The thread has the mutex.
    Hold,
    /// Mutant: `unreserve`, and it has given up.
    Unreserve,
    /// It has given up.
    GiveUp,
    /// The mutex is gone.
    Dropped,
}

/// What follows leaving a front and telling the one behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum After {
    /// In `in_plain_queue`, with the mutex.
    PlainLocked,
    /// In `in_plain_queue`, without it.
    PlainGaveUp,
    /// In `in_domain`: the slot no longer belongs to the mutex.
    Anew,
    /// In `hand_on`, within the domain.
    Within(u8, Then),
    /// In `hand_on`, across: the one behind is not told, it sits behind.
    Across(u8, Then),
    /// In `give_away`.
    Away(u8, Then),
    /// In `unbind` of a slot.
    Unbind(u8, Then),
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum At {
    /// Before its next operation, or at the end.
    Between,

    // ---- raw_mutex.rs and waiting.rs
    /// `try_lock` has found the mutex reserved, by this word, and with a slot: does a thread have the turn there?
    TryQuiet(Word),
    /// No thread has, in this generation: is the word still that one?
    TryLookAgain {
        seen: Word,
        generation: u8,
    },
    /// It is: take the turn, if everything is as it was.
    TryTurn {
        slot: u8,
        generation: u8,
    },
    /// The thread has the turn: take the mutex, if no thread has it.
    TryTake {
        slot: u8,
    },
    /// Mutant: the mutex was free, and is taken by a store.
    StoreLocked,
    PassedBy(u8),
    Holding,
    /// `unlock_fair`: does a thread have the turn of the slot?
    FairQuiet(u8),
    /// `unlock_slow`, with what it keeps.
    Unlock {
        keep: bool,
    },
    /// `wait_without_queue`; whether it has slept.
    WithoutQueue {
        slept: bool,
    },
    /// About to sleep on the word, if it is this one.
    SleepOnWord {
        expected: Word,
        sleeper: Sleeper,
    },
    AsleepOnWord {
        mutex: u8,
        sleeper: Sleeper,
    },

    // ---- queueing up
    TakeRecord,
    QueueUp,
    /// `queue_up`, overtaken too often.
    AskNoPassing,
    Look {
        slot: u8,
    },
    LookAgain {
        slot: u8,
        seen: Line,
    },
    Join {
        slot: u8,
        seen: Line,
    },
    Link {
        before: u8,
        queue: Queue,
    },
    WaitBy(Queue),
    SleepBy(Queue),
    AsleepBy(Queue),
    /// Back from sleeping by the record; whether the deadline has come.
    Awake {
        queue: Queue,
        late: bool,
    },
    StandUp {
        slot: u8,
        generation: u8,
    },
    /// `stand_up` has found the turn taken and written `front`.
    SetBit {
        slot: u8,
        generation: u8,
    },

    // ---- with the turn
    /// Whether it has woken the one behind it.
    Contend {
        queue: Queue,
        roused: bool,
    },
    Reserve {
        queue: Queue,
        roused: bool,
    },
    HandOn {
        slot: u8,
        generation: u8,
        then: Then,
    },
    SitBehind {
        slot: u8,
        behind: u8,
        then: Then,
    },
    HandToDomains {
        slot: u8,
        then: Then,
    },
    /// `unreserve`, and then hands the turn on.
    Unreserve {
        slot: u8,
        generation: u8,
    },
    /// Mutant: `unreserve` after the turn was handed on; then the slot whose turn is the thread's, or 0.
    UnreserveLate {
        empty: u8,
    },

    // ---- leaving a queue
    /// `step_out`: which thread is behind?
    StepOut {
        number: u8,
        message: Message,
        tail: Tail,
        after: After,
    },
    /// No thread has linked.
    ClearTail {
        number: u8,
        message: Message,
        tail: Tail,
        after: After,
    },
    /// A thread has joined.
    SwapGone {
        number: u8,
        message: Message,
        tail: Tail,
        after: After,
    },
    Tell {
        number: u8,
        message: Message,
        tail: Tail,
        after: After,
    },
    /// `Slot::send`: the domain's bit has been cleared; which thread is in front?
    ReadFront {
        slot: u8,
        domain: u8,
        message: Message,
        after: After,
    },

    // ---- binding and unbinding
    TakeSlot,
    BindLine {
        slot: u8,
        domain: u8,
    },
    BindTop {
        slot: u8,
    },
    BindWord {
        slot: u8,
    },
    UnbindWord {
        slot: u8,
        then: Then,
    },
    UnbindTop {
        slot: u8,
        then: Then,
    },
    FreeSlot {
        slot: u8,
        then: Then,
    },
}

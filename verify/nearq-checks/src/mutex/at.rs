//! The places of the code at which a thread can be between two steps.

use super::state::{Line, Message, Word};

/// The queue that a thread waits in: the plain queue, or that of its own domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Queue {
    Plain,
    Domain { slot: u8, generation: u8 },
}

/// The tail of the queue in which a thread is sent a message (`Tail` in `queue.rs`).
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
    /// The thread that has the turn, and whether it has woken the one behind it.
    Contender(Queue, bool),
}

/// What follows `hand_to_domains`, or `unbind` of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Then {
    /// The thread has the mutex.
    Hold,
    /// Mutant: `unreserve` comes next; the thread has given up.
    Unreserve,
    /// The thread has given up.
    GiveUp,
    /// The mutex is gone.
    Dropped,
}

/// What follows after a thread has left a front and sent a message to the one behind.
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
    /// In `hand_on`, across: the thread behind gets no message, and stays in the queue.
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
    /// `try_lock` has read this word, which is reserved and names a slot: does a thread have the slot's turn?
    TryQuiet(Word),
    /// No thread has it, in this generation: is the word unchanged?
    TryLookAgain {
        seen: Word,
        generation: u8,
    },
    /// The word is unchanged: take the turn, if the slot is unchanged too.
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
    /// `unlock_slow`, with the bits that it keeps.
    Unlock {
        keep: bool,
    },
    /// `wait_without_queue`, and whether the thread has slept.
    WithoutQueue {
        slept: bool,
    },
    /// About to sleep on the word, if it has this value.
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
    /// `queue_up`: the thread was overtaken too often.
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
    /// Back from sleeping by the record, and whether the deadline has come.
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
    /// Mutant: `unreserve` after the turn was handed on; also the slot whose turn the thread has then, or 0.
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

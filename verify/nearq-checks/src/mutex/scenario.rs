//! What each thread does: the threads, mutexes and slots of one check, and the mutants by which the checks are checked.

/// How the waiters of a thread behave (`Mode` of `nearq-lock`), per thread: settings may change while other threads still wait according to
/// the old ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Mode {
    Off,
    Auto,
    Plain,
    Numa,
}

/// How a thread tries to take the mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// `lock`.
    Lock,
    /// `try_lock`.
    Try,
    /// `try_lock_until`: a deadline, which may come at any place where the code checks it.
    Until,
}

/// One operation of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Takes a mutex if possible, and releases it.
    With {
        /// Which mutex.
        mutex: u8,
        /// How the thread takes it.
        how: How,
        /// Whether it releases the mutex by `unlock_fair`.
        fair: bool,
        /// Whether it binds a slot while it holds the mutex (`bind_in_front`), as a thread does that had the turn, but without the queue.
        bind: bool,
    },
    /// Drops a mutex when the other threads no longer use it.
    Drop(u8),
}

impl Op {
    /// `lock` and `unlock`.
    pub const fn lock(mutex: u8) -> Self {
        Op::With { mutex, how: How::Lock, fair: false, bind: false }
    }

    /// With a deadline.
    pub const fn until(mutex: u8) -> Self {
        Op::With { mutex, how: How::Until, fair: false, bind: false }
    }

    /// `try_lock`.
    pub const fn try_lock(mutex: u8) -> Self {
        Op::With { mutex, how: How::Try, fair: false, bind: false }
    }

    /// `lock` and `unlock_fair`.
    pub const fn fair(mutex: u8) -> Self {
        Op::With { mutex, how: How::Lock, fair: true, bind: false }
    }

    /// `lock`, and a slot is bound.
    pub const fn bind(mutex: u8) -> Self {
        Op::With { mutex, how: How::Lock, fair: false, bind: true }
    }

    /// The mutex of the operation.
    pub(super) const fn mutex(self) -> u8 {
        match self {
            Op::With { mutex, .. } | Op::Drop(mutex) => mutex,
        }
    }
}

/// A script for threads: their operations, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// How many threads follow the script; they are interchangeable.
    pub threads: u8,
    /// The domain that they run in.
    pub domain: u8,
    /// How they wait.
    pub mode: Mode,
    /// What they do.
    pub ops: Vec<Op>,
}

/// A deliberate mistake in the protocol, which a check must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// `lock` takes the mutex by a load and a store.
    TakeInTwoSteps,
    /// `queue_up` does not read the word again after reading the tail.
    NoLookAgain,
    /// `unlock` wakes no thread.
    UnlockForgetsWake,
    /// `unlock` does not wake the sleeping thread to which this one has sent a message.
    UnlockForgetsDeferredWake,
    /// `unlock` removes `RESERVED`.
    UnlockForgetsReserved,
    /// `unlock` wakes only one thread although a thread has the turn; the woken thread may not be that one.
    UnlockWakesOne,
    /// `unbind` leaves the generation as it was.
    SameGeneration,
    /// `unbind` sends no message to threads that stand up.
    UnbindTellsNobody,
    /// `bind` does not give the tails the generation.
    BindLeavesTails,
    /// `bind` does not see that a thread is still in a queue.
    BindOverSomebody,
    /// A thread that passes by ignores `RESERVED`.
    ReservedIgnored,
    /// `rest` does not see that a thread has stood up.
    RestBlindly,
    /// `link` does not see that the thread before has left.
    LinkSeesNoGone,
    /// `step_out` does not see that a thread has joined.
    StepOutSeesNoJoiner,
    /// A thread that gives up writes `LEFT`, whatever message it was sent.
    LeftByStore,
    /// A thread that gives up its turn in the plain queue does not hand it on.
    TurnNotHandedOn,
    /// A thread that gives up its turn hands it on, and removes `RESERVED` afterwards.
    UnreservesLate,
    /// `try_lock` takes a mutex that is reserved for no thread without taking the turn of its slot.
    TryWithoutTurn,
    /// `try_lock` does not read the word again after reading the slot's turn.
    TryTrustsOldLook,
}

/// One check: the state at the start, and what each thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The threads.
    pub scripts: Vec<Script>,
    /// How many slots there are: 1 or 2.
    pub slots: u8,
    /// How many records there are: up to 5. With fewer records than threads, some threads wait without a queue.
    pub records: u8,
    /// Whether the first mutex is in slot 1 at the start.
    pub bound: bool,
    /// Whether a thread waits without a queue, so that `RESERVED` does not stop it.
    pub ignores: bool,
    /// How often each thread may wake for no reason.
    pub spurious: u8,
    /// The planted mistake, if any.
    pub mutant: Option<Mutant>,
}

impl Scenario {
    /// A scenario in which threads have more records than they need and there is one slot.
    pub fn new(scripts: Vec<Script>) -> Self {
        let threads: u8 = scripts.iter().map(|script| script.threads).sum();
        Scenario {
            scripts,
            slots: 1,
            // A thread that leaves its record behind takes another one.
            records: threads + 2,
            bound: false,
            ignores: false,
            spurious: 0,
            mutant: None,
        }
    }
}

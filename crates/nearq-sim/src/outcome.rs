//! The outcome of a run.

use std::fmt;

use nearq_platform::Instant;

use crate::faults::FaultCounts;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program's first function returned, or panicked: see [`Outcome::panics`].
    Returned,
    /// No thread could run, and no deadline was pending.
    Deadlock,
    /// Virtual time reached its limit.
    TimeLimit,
}

/// A thread that panicked, and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The thread's number; 1 is the program's first.
    pub thread: u64,
    /// Its name.
    pub name: String,
    /// The panic's text.
    pub message: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} \"{}\" panicked: {}", self.thread, self.name, self.message)
    }
}

/// What a thread that did not end was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// On a CPU, or ready for one.
    Runnable,
    /// Asleep on a word.
    Waiting {
        /// The word's line, numbered by first touch; 0 if it is unknown.
        line: u64,
        /// The word's offset in the line, in bytes.
        offset: usize,
        /// The value that it sleeps on.
        expected: u32,
    },
    /// Asleep for a time.
    Sleeping,
    /// Asleep until another thread ends.
    Joining {
        /// That thread's number.
        thread: u64,
        /// Its name.
        name: String,
    },
}

/// A thread that had not ended when the run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The thread's number; 1 is the program's first.
    pub thread: u64,
    /// Its name.
    pub name: String,
    /// The CPU that it was on, or was on last.
    pub cpu: usize,
    /// What it was doing.
    pub activity: Activity,
    /// The time since which it slept, if it did.
    pub since: Option<Instant>,
    /// When it would have given up, if it had a deadline.
    pub deadline: Option<Instant>,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} \"{}\" (CPU {}) ", self.thread, self.name, self.cpu)?;
        match &self.activity {
            Activity::Runnable => write!(f, "could run")?,
            Activity::Waiting { line, offset, expected } => {
                write!(f, "waits while the word at line {line}, byte {offset} holds {expected}")?;
            }
            Activity::Sleeping => write!(f, "sleeps")?,
            Activity::Joining { thread, name } => {
                write!(f, "waits for the end of thread {thread} \"{name}\"")?;
            }
        }
        if let Some(since) = self.since {
            write!(f, " since {} ns", since.as_nanos())?;
        }
        if let Some(deadline) = self.deadline {
            write!(f, ", at most until {} ns", deadline.as_nanos())?;
        }
        Ok(())
    }
}

/// How far a run has got: see [`Simulation::progress`](crate::Simulation::progress).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progressed {
    /// The virtual time.
    pub now: Instant,
    /// How many accesses to atomics there were.
    pub accesses: u64,
    /// How many times the event loop gave control to a thread.
    pub switches: u64,
    /// How many events there were.
    pub events: u64,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome<R> {
    /// What the program's first function returned; none if it panicked or did not return.
    pub result: Option<R>,
    /// Why the run ended.
    pub ending: Ending,
    /// The virtual time of the end.
    pub end: Instant,
    /// A hash of everything that happened, each access to an atomic included.
    pub trace_hash: u64,
    /// What happened, a line each, as far as the run was set to record it.
    pub trace: Vec<String>,
    /// The threads that panicked, in order.
    pub panics: Vec<Panicked>,
    /// The threads that had not ended, by number. Their stacks and what they own are leaked.
    pub unfinished: Vec<Unfinished>,
    /// The lines of [`LockPlatform::warn`](nearq_platform::LockPlatform::warn).
    pub warnings: Vec<String>,
    /// How many accesses to atomics there were.
    pub accesses: u64,
    /// How many times the event loop gave control to a thread.
    pub switches: u64,
    /// How many events there were: CPUs that went on, deadlines, ticks.
    pub events: u64,
    /// How often each fault that [`Faults`](crate::Faults) requested happened.
    pub faults: FaultCounts,
}

impl<R> Outcome<R> {
    /// The program's result.
    ///
    /// # Panics
    /// If the program did not return or any thread panicked; the text says which thread did what.
    #[track_caller]
    pub fn expect(self) -> R {
        let clean = self.panics.is_empty();
        let report = self.report();
        match self.result {
            Some(result) if clean => result,
            _ => panic!("{report}"),
        }
    }

    /// The end in words: why and when, which threads panicked, and what each thread waited for.
    pub fn report(&self) -> String {
        let mut lines = vec![match self.ending {
            Ending::Returned => format!("the program ended at {} ns", self.end.as_nanos()),
            Ending::Deadlock => {
                format!("deadlock at {} ns: no thread can run", self.end.as_nanos())
            }
            Ending::TimeLimit => {
                format!("the program did not end within {} ns", self.end.as_nanos())
            }
        }];
        lines.extend(self.panics.iter().map(ToString::to_string));
        lines.extend(self.unfinished.iter().map(ToString::to_string));
        lines.join("\n")
    }
}

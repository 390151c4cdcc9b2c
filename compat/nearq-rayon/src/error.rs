//! Why pools could not be made.

use std::fmt;

/// Pools could not be made. Displays as a sentence that says what was wrong, what is allowed, and what to do.
#[non_exhaustive]
pub enum Error {
    /// The machine cannot be read, not even which CPUs it has.
    Machine {
        /// Why not.
        reason: String,
    },
    /// A number of threads that no pool can have.
    Threads {
        /// The number.
        given: usize,
    },
    /// A thread was refused. Those that had been started end.
    Refused {
        /// Which thread, and why.
        reason: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine { reason } => write!(f, "the machine cannot be read: {reason}"),
            Self::Threads { given } => write!(
                f,
                "{given} threads in a pool: give 1 to {}, or none for one on each CPU of the pod",
                rayon_core::max_num_threads()
            ),
            Self::Refused { reason } => {
                write!(f, "{reason}; or ask for fewer threads, or for smaller stacks")
            }
        }
    }
}

nearq_topology::debug_as_display!(Error);

impl std::error::Error for Error {}

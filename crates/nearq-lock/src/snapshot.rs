//! A look at the mutexes of a process that have slots, from outside: by a thread that has nothing to do with them.
//!
//! # Who may touch what
//! Nothing is written, no lock is taken, and nobody else has a step more for it: what is read is what waiters and holders
//! keep for themselves. Each value was right at a moment of the look, not all at the same one. So all loads are relaxed,
//! but those by which what was made is found.
//!
//! A slot does not know where its mutex is, which may be gone at any time. So the mutex's word is not looked at: that somebody holds
//! it is concluded from somebody having the slot's turn, who waits because it is held.
//!
//! In the child of a fork, until the first mutex is waited for there, what is in the slots is the parent's (`room.rs`): the slots
//! are the child's by then, those who waited are not.

use nearq_platform::LockPlatform;

use crate::room::{MOST_DOMAINS, Room};

/// The mutexes of a process that have a place for queues by cache (a *slot*), as they were about now.
///
/// To look costs those who use the mutexes nothing.
///
/// ```
/// use nearq_lock::Snapshot;
/// use nearq_lock::platform::Linux;
///
/// let seen = Snapshot::of_process::<Linux>();
/// assert!(seen.mutexes.len() <= seen.slots);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Slots that were made. More are made as mutexes need them, up to 4095.
    pub slots: usize,
    /// The mutexes that have one, by the slot's number: one for each slot that is used.
    pub mutexes: Vec<SlottedMutex>,
}

/// A mutex that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlottedMutex {
    /// The number of its slot, from 1 on. Another mutex has it when this one has one queue again, or is gone.
    pub slot: u32,
    /// Whether it is held, as far as those who wait know: somebody has to wait for it. One that nobody has waited for since it was
    /// taken looks free.
    pub held: bool,
    /// In how many last-level caches threads wait for it. Where the machine has more than 32, neighbours count as one.
    pub caches: u32,
}

const _: () = assert!(MOST_DOMAINS == 32, "as the documentation says");

impl Snapshot {
    /// Looks at the mutexes of the caller's process. There are none before the first thread has had to wait.
    pub fn of_process<P: LockPlatform>() -> Self {
        let Some((room, is_ours)) = Room::<P>::as_it_is() else { return Snapshot::default() };
        let mut mutexes = Vec::new();
        room.slots.each_had(|slot, there| {
            let (held, caches) = if is_ours { there.who_waits() } else { (false, 0) };
            mutexes.push(SlottedMutex { slot, held, caches });
        });
        // After the others: there are at least as many as were found.
        Snapshot { slots: room.slots.made_count(), mutexes }
    }
}

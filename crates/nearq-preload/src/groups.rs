//! Entries that are allocated in groups, and that one thread at a time uses. Groups are never returned to the system.
//!
//! # Protocol
//! Each group has a bit for each of its entries, set while a thread uses it. The thread that sets the bit has the entry (acquire), until it
//! clears the bit (release). New groups are pushed in front of the others (release), and found from there (acquire).
//!
//! The model below fails if one of these orderings is weakened.

use core::array;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use std::alloc::{self, Layout};

use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Platform, PlatformCell, Threads};

/// An entry, or memory for one.
type Slot<T, P> = <P as Threads>::Cell<MaybeUninit<T>>;

struct Group<T: 'static, const EACH: usize, P: Platform> {
    used: P::AtomicU64,
    entries: [Slot<T, P>; EACH],
    /// Does not change once the group is pushed.
    next: P::Cell<*const Self>,
}

/// Entries in groups of `EACH`, at most 64.
pub(crate) struct Groups<T: 'static, const EACH: usize, P: Platform = Linux> {
    first: P::AtomicPtr<Group<T, EACH, P>>,
}

// SAFETY: `next` does not change, and the thread that has a thing's bit has the thing.
unsafe impl<T: Send, const EACH: usize, P: Platform> Sync for Groups<T, EACH, P> {}

impl<T, const EACH: usize> Groups<T, EACH> {
    pub(crate) const fn new() -> Self {
        Groups { first: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl<T, const EACH: usize, P: Platform> Groups<T, EACH, P> {
    fn all(&self) -> impl Iterator<Item = &'static Group<T, EACH, P>> {
        let first = self.first.load(Ordering::Acquire).cast_const();
        // SAFETY: groups are never freed.
        core::iter::successors(unsafe { first.as_ref() }, |group| unsafe {
            group.next.with(|next| *next).as_ref()
        })
    }

    /// A free slot, which the caller has until it gives it back; none if there is no memory for more.
    pub(crate) fn take(&self) -> Option<&'static Slot<T, P>> {
        self.all().find_map(Group::take).or_else(|| self.add())
    }

    /// The caller no longer has the slot.
    pub(crate) fn give_back(&self, entry: *const Slot<T, P>) {
        for group in self.all() {
            if let Some(slot) = group.entries.iter().position(|one| ptr::eq(one, entry)) {
                group.used.fetch_and(!(1 << slot), Ordering::Release);
                return;
            }
        }
    }

    /// The first slot of a new group; none if there is no memory.
    #[cold]
    fn add(&self) -> Option<&'static Slot<T, P>> {
        // SAFETY: not of size zero.
        let group =
            unsafe { alloc::alloc(Layout::new::<Group<T, EACH, P>>()) }.cast::<Group<T, EACH, P>>();
        if group.is_null() {
            return None;
        }
        let new = Group {
            used: P::AtomicU64::new(1),
            entries: array::from_fn(|_| P::Cell::new(MaybeUninit::uninit())),
            next: P::Cell::new(ptr::null()),
        };
        // SAFETY: allocated for it, and no other thread knows of it.
        unsafe { group.write(new) };
        // SAFETY: never freed.
        let new = unsafe { &*group };
        // Relaxed: decided by the step below.
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // SAFETY: ours, until it is pushed.
            new.next.with_mut(|next| unsafe { *next = first });
            // Release: this also covers the groups behind it, as the step reads what their pushes have written.
            match self.first.compare_exchange(first, group, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(&new.entries[0]),
                Err(found) => first = found,
            }
        }
    }
}

impl<T, const EACH: usize, P: Platform> Group<T, EACH, P> {
    /// The bits of all things.
    const ALL: u64 = u64::MAX >> (64 - EACH);

    fn take(&self) -> Option<&Slot<T, P>> {
        // Relaxed: decided by the step below.
        let mut used = self.used.load(Ordering::Relaxed);
        while used != Self::ALL {
            let slot = used.trailing_ones();
            let before = self.used.fetch_or(1 << slot, Ordering::Acquire);
            if before & 1 << slot == 0 {
                return Some(&self.entries[slot as usize]);
            }
            used = before;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nearq_model::Loom;
    use nearq_platform::ThreadSpec;

    use super::*;

    type SmallGroups = Groups<u32, 1, Loom>;

    /// Takes a thing, uses it for a while, and gives it back.
    fn use_one(entries: &SmallGroups, number: u32) {
        let entry = entries.take().expect("there is memory");
        // SAFETY: only the caller has it; that is tested.
        entry.with_mut(|slot| unsafe { (*slot).write(number) });
        // SAFETY: still only the caller has it; it was written above.
        assert_eq!(entry.with(|slot| unsafe { (*slot).assume_init() }), number);
        entries.give_back(entry);
    }

    #[test]
    fn an_entry_is_used_by_one_thread_at_a_time() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let entries = Arc::new(SmallGroups { first: Atomic::new(ptr::null_mut()) });
            let others = [1, 2].map(|number| {
                let groups = Arc::clone(&entries);
                let main = move || use_one(&groups, number);
                Loom::spawn(ThreadSpec::default(), main).expect("the model spawns")
            });
            use_one(&entries, 3);
            others.into_iter().for_each(Loom::join);
            assert!((1..=3).contains(&entries.all().count()));
        });
    }

    #[test]
    fn entries_are_unlimited_and_reused() {
        static MANY: Groups<u32, 64> = Groups::new();
        let taken: Vec<_> = (0..256).map(|_| MANY.take().expect("there is memory")).collect();
        assert_eq!(MANY.all().count(), 4);
        for (index, one) in taken.iter().enumerate() {
            assert!(!taken[..index].iter().any(|other| ptr::eq(*other, *one)));
        }
        MANY.give_back(taken[77]);
        assert!(ptr::eq(MANY.take().expect("one was given back"), taken[77]));
    }
}

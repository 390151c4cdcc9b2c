//! The list of a pool's entries, onto which any thread pushes and from which nothing is taken (`pool/threads`: "Entries").

use nearq_platform::{Atomic, Ordering, Platform};

/// The entries that a pool has ever used, newest first.
pub(super) struct Members<P: Platform, T> {
    first: P::AtomicPtr<Member<T>>,
}

struct Member<T> {
    entry: *const T,
    /// Written before the member is published.
    next: *mut Member<T>,
}

impl<P: Platform, T> Members<P, T> {
    pub(super) fn new() -> Self {
        Members { first: P::AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Adds an entry, unless it is on the list. The caller has claimed the entry, so no other thread adds it.
    pub(super) fn add(&self, entry: &T) {
        if self.iter().any(|known| core::ptr::eq(known, entry)) {
            return;
        }
        let mut first = self.first.load(Ordering::Relaxed);
        let member = Box::into_raw(Box::new(Member { entry, next: first }));
        loop {
            // Release: pairs with the acquire in `iter`.
            let added = self.first.compare_exchange_weak(
                first,
                member,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match added {
                Ok(_) => return,
                Err(found) => {
                    first = found;
                    // SAFETY: not published yet.
                    unsafe { (*member).next = first };
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        // Acquire: pairs with the release in `add`, and, as each addition is a read-modify-write, with the earlier ones.
        let mut next = self.first.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: null, or a member, which lives as long as the pool.
            let member = unsafe { next.as_ref() }?;
            next = member.next;
            // SAFETY: entries live as long as the runtime, and a thread that has a pool keeps that alive.
            Some(unsafe { &*member.entry })
        })
    }
}

impl<P: Platform, T> Drop for Members<P, T> {
    fn drop(&mut self) {
        let mut next = self.first.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: made by `add`, and no other thread has the list any more.
            let member = unsafe { Box::from_raw(next) };
            next = member.next;
        }
    }
}

//! The rundown reference through every interleaving: the thread that closed it sees everything that passed.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};

use super::RundownRef;
use crate::item::tests::{model, spawn};

type AtomicU32 = <Loom as LockPlatform>::AtomicU32;

#[test]
fn writes_made_under_references_are_visible_after_closing() {
    model(3, || {
        let rundown = Arc::new(RundownRef::<Loom>::new());
        let (sent, passed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let wakers = [(); 2].map(|()| {
            let (rundown, sent, passed) =
                (Arc::clone(&rundown), Arc::clone(&sent), Arc::clone(&passed));
            spawn(move || {
                let inside = rundown.pass(|| {
                    sent.fetch_add(1, Ordering::Relaxed);
                });
                passed.fetch_add(u32::from(inside.open), Ordering::Relaxed);
            })
        });
        rundown.close();
        rundown.wait_until_quiet();
        // From here on no thread passes.
        let seen = sent.load(Ordering::Relaxed);
        wakers.into_iter().for_each(Loom::join);
        assert_eq!(passed.load(Ordering::Relaxed), seen);
        assert_eq!(sent.load(Ordering::Relaxed), seen);
        assert!(rundown.is_quiet() && !rundown.pass(|| unreachable!("it is closed")).open);
    });
}

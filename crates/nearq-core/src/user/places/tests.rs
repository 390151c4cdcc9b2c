//! Every place that is given back reaches a thread that waits for one, and never more of them are taken than there are.

#![cfg(not(miri))]

use core::task::Waker;
use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};

use super::{Place, Places, Request};
use crate::item::tests::{model, spawn};

type Count = <Loom as LockPlatform>::AtomicU32;

/// Has the place for a moment.
fn use_place(place: Place<Loom>, taken: &Count, most: u32) {
    assert!(taken.fetch_add(1, Ordering::Relaxed) < most);
    taken.fetch_sub(1, Ordering::Relaxed);
    drop(place);
}

#[test]
fn threads_that_wait_get_the_places() {
    model(2, || {
        let (places, taken) = (Places::<Loom>::new(1), Arc::new(Count::new(0)));
        let other = || {
            let (places, taken) = (Arc::clone(&places), Arc::clone(&taken));
            spawn(move || use_place(Places::take(&places), &taken, 1))
        };
        let thread = other();
        use_place(Places::take(&places), &taken, 1);
        Loom::join(thread);
        assert_eq!(places.in_use(), 0);
    });
}

#[test]
fn a_future_that_leaves_loses_no_place() {
    model(2, || {
        let places = Places::<Loom>::new(1);
        let first = Places::take(&places);
        let mut request = Request::new();
        assert!(request.poll(&places, Waker::noop()).is_none());
        let gives = spawn(move || drop(first));
        // It may have got the place by then, or leave before.
        drop(request);
        Loom::join(gives);
        assert_eq!(places.in_use(), 0);
        assert!(Places::try_take(&places).is_some());
    });
}

#[test]
fn futures_that_leave_beside_a_giver_lose_no_place() {
    model(2, || {
        let places = Places::<Loom>::new(1);
        let first = Places::take(&places);
        let mut requests = [Request::new(), Request::new(), Request::new()];
        for request in &mut requests {
            assert!(request.poll(&places, Waker::noop()).is_none());
        }
        let gives = spawn(move || drop(first));
        let [one, mut two, three] = requests;
        // Each may have got the place by then, and gives it back; or it leaves, and may stay on the list.
        drop(one);
        drop(three);
        Loom::join(gives);
        let place =
            two.poll(&places, Waker::noop()).expect("the place is given to those that wait");
        assert_eq!(places.in_use(), 1);
        drop(place);
        assert_eq!(places.in_use(), 0);
        assert!(Places::try_take(&places).is_some());
    });
}

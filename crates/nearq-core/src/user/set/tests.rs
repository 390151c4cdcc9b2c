//! The set's list and its wait queue through every interleaving: each member is returned once, in the order in which they ended, and no
//! thread sleeps while one is available.

#![cfg_attr(miri, allow(dead_code, unused_imports, reason = "the model checker is not for Miri"))]

use core::task::{Context, Poll};
use std::sync::Arc;
use std::task::{Wake, Waker};

use nearq_model::{Loom, bound};
use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Parker, Platform, Threads};

use super::Members;
use crate::base::wait_queue::tests::Count;
use crate::item::tests::{model, spawn};
use crate::task::tests::{Desk, Sent, execute};

/// Adds a closure that gives `number`, and is not cancelled.
fn add<P: Platform>(members: &mut Members<u32, P>, number: u32) -> Sent<P> {
    Sent(members.add(|owner| crate::task::owned(owner, move || number)))
}

/// As [`add`], counted on `desk`, so that it can be cancelled.
fn add_on<P: Platform>(desk: &Desk<P>, members: &mut Members<u32, P>, number: u32) -> Sent<P> {
    let sent = add(members, number);
    desk.count(sent.0)
}

/// Takes the member off its list, and executes it as a worker does.
fn run<P: Platform>(sent: Sent<P>) {
    execute(sent.0);
}

/// Wakes a thread, and counts.
struct Ringer<P: Platform> {
    parker: Parker<P>,
    rung: P::AtomicU32,
}

impl<P: Platform> Wake for Ringer<P> {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        self.parker.unpark();
    }
}

fn ringer<P: Platform>() -> Arc<Ringer<P>> {
    Arc::new(Ringer { parker: Parker::new(), rung: P::AtomicU32::new(0) })
}

#[cfg(not(miri))]
mod modelled {
    use super::*;

    /// Two members that end in two threads, while `user` takes both.
    fn check(preemptions: usize, user: fn(&mut Members<u32, Loom>) -> u32) {
        model(preemptions, move || {
            let mut members = Members::<u32, Loom>::new();
            let workers = [1, 2].map(|number| {
                let sent = add(&mut members, number);
                spawn(move || run(sent))
            });
            let first = user(&mut members);
            let second = user(&mut members);
            assert_eq!(first + second, 3, "each of them once");
            assert_eq!(members.len(), 0);
            assert!(members.take().is_none());
            workers.into_iter().for_each(Loom::join);
        });
    }

    #[test]
    fn waited_for() {
        check(bound(1, 3), |members| {
            loop {
                if let Some(result) = members.take() {
                    return result.unwrap();
                }
                members.wait();
            }
        });
    }

    /// Polls until there is a result, and sleeps in between.
    fn poll_on(members: &mut Members<u32, Loom>) -> u32 {
        let ringer = ringer::<Loom>();
        let waker = Waker::from(Arc::clone(&ringer));
        loop {
            if let Poll::Ready(result) = members.poll(&mut Context::from_waker(&waker)) {
                return result.expect("it is a member").unwrap();
            }
            ringer.parker.park(None);
        }
    }

    #[test]
    fn polled() {
        check(bound(1, 2), poll_on);
    }

    #[test]
    fn polled_once_and_then_waited_for() {
        model(3, || {
            let mut members = Members::<u32, Loom>::new();
            let sent = add(&mut members, 5);
            let worker = spawn(move || run(sent));
            let ringer = ringer::<Loom>();
            let waker = Waker::from(Arc::clone(&ringer));
            if members.poll(&mut Context::from_waker(&waker)).is_pending() {
                loop {
                    if let Some(result) = members.take() {
                        assert_eq!(result.unwrap(), 5);
                        break;
                    }
                    members.wait();
                }
            }
            Loom::join(worker);
            assert!(ringer.rung.load(Ordering::Relaxed) <= 1);
        });
    }

    #[test]
    fn dropped_while_they_end() {
        model(bound(1, 2), || {
            let desk = Desk::<Loom>::new();
            let mut members = Members::<u32, Loom>::new();
            let [first, second] = [1, 2].map(|number| add_on(&desk, &mut members, number));
            let worker = spawn(move || {
                run(first);
                run(second);
            });
            for handle in members.handles() {
                handle.abandon();
            }
            drop(members);
            Loom::join(worker);
            desk.check();
        });
    }

    #[test]
    fn cancelled_while_one_ends() {
        model(2, || {
            let desk = Desk::<Loom>::new();
            let mut members = Members::<u32, Loom>::new();
            let sent = add_on(&desk, &mut members, 1);
            let worker = spawn(move || run(sent));
            let cancelled = members.handles().all(crate::task::join::JoinHandle::cancel);
            let result = loop {
                match members.take() {
                    Some(result) => break result,
                    None => members.wait(),
                }
            };
            assert_eq!(result.is_err(), cancelled);
            assert!(members.take().is_none());
            Loom::join(worker);
            desk.check();
        });
    }
}

// ---- without the model checker, also under Miri -----------------------------------------------------------

#[test]
fn members_are_returned_in_the_order_of_their_ends() {
    let mut members = Members::<u32, Linux>::new();
    let mut sent: Vec<_> = (0..6).map(|number| Some(add(&mut members, number))).collect();
    let mut end = |number: usize| run(sent[number].take().expect("ends once"));
    assert_eq!(members.len(), 6);
    [4, 1, 5].into_iter().for_each(&mut end);
    assert_eq!(members.take().unwrap().unwrap(), 4);
    // Members that end later come after those that were taken off the list and not yet returned.
    [0, 2].into_iter().for_each(&mut end);
    let rest: Vec<_> = core::iter::from_fn(|| members.take()).map(Result::unwrap).collect();
    assert_eq!(rest, [1, 5, 0, 2]);
    assert_eq!(members.len(), 1);
    end(3);
    members.wait();
    assert_eq!(members.take().unwrap().unwrap(), 3);
    // Places are used again.
    run(add(&mut members, 9));
    assert_eq!((members.handles.len(), members.len()), (6, 1));
}

#[test]
fn a_waker_is_called_once_and_replaced() {
    let mut members = Members::<u32, Linux>::new();
    let (first, second) = (ringer::<Linux>(), ringer::<Linux>());
    let wakers = [&first, &second].map(|ringer| Waker::from(Arc::clone(ringer)));
    let sent = [1, 2].map(|number| add(&mut members, number));
    for waker in [&wakers[0], &wakers[0], &wakers[1]] {
        assert!(members.poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&first), 2, "the set has released it");
    sent.into_iter().for_each(run);
    let rung = [&first, &second].map(|ringer| ringer.rung.load(Ordering::Relaxed));
    assert_eq!(rung, [0, 1]);
    for _ in 0..2 {
        assert!(members.poll(&mut Context::from_waker(&wakers[1])).is_ready());
    }
    assert!(matches!(members.poll(&mut Context::from_waker(&wakers[1])), Poll::Ready(None)));
}

#[test]
fn cancelled_members_are_returned_and_freed() {
    let desk = Desk::<Linux>::new();
    let mut members = Members::<u32, Linux>::new();
    let sent = [1, 2, 3].map(|number| add_on(&desk, &mut members, number));
    let [first, rest @ ..] = sent;
    run(first);
    members.handles().for_each(|handle| {
        handle.cancel();
    });
    assert_eq!(members.take().unwrap().unwrap(), 1);
    assert!(members.take().unwrap().unwrap_err().is_cancelled());
    drop(members);
    rest.into_iter().for_each(run);
}

/// The waker is dropped with the set, and not with the last member, wherever that is freed.
#[test]
fn a_waker_is_dropped_with_the_set_and_its_panic_is_caught() {
    static DROPPED: Count = Count::new(0);
    let (waker, other) =
        (crate::base::wait_queue::tests::bomb(&DROPPED), Waker::from(ringer::<Linux>()));
    let mut members = Members::<u32, Linux>::new();
    let sent = add(&mut members, 1);
    for waker in [&*waker, &other, &*waker] {
        assert!(members.poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    drop(members);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
    run(sent);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
}

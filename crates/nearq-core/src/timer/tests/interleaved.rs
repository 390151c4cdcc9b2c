//! The timer's protocol through every interleaving. Under the model checker time stands still at 0: what is due at 0 expires at once,
//! everything else never, and only other threads wake a thread that sleeps for it.

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, Instant, LockPlatform, Ordering, Threads};

use super::super::node::NONE;
use super::super::{Hold, ThreadState, Timer};
use super::{Owner, end};
use crate::item::tests::{model, model_within, spawn};

const DUE: Instant = Instant::from_nanos(0);
const FAR: Instant = Instant::from_nanos(1 << 40);
const FARTHER: Instant = Instant::from_nanos(1 << 50);

fn timer() -> Arc<Timer<Loom>> {
    Arc::new(Timer::new(None))
}

#[test]
fn armed_while_the_thread_goes_to_sleep() {
    model(3, || {
        let timer = timer();
        let owners = [Owner::new(&timer), Owner::new(&timer)];
        for owner in &owners {
            assert_eq!(owner.arm(DUE).hold, Hold::Taken);
            owner.wait(1);
        }
        end(&timer);
        owners.iter().for_each(Owner::check);
    });
}

#[test]
fn an_earlier_deadline_while_the_thread_puts_the_later_one_on_the_wheel() {
    model(3, || {
        let timer = timer();
        let owner = Owner::new(&timer);
        owner.arm(FARTHER);
        assert!(owner.arm(FAR).prevented);
        assert!(owner.arm(DUE).prevented);
        owner.wait(1);
        end(&timer);
        owner.check();
    });
}

#[test]
fn disarmed_while_it_expires() {
    model(3, || {
        let timer = timer();
        let owner = Owner::new(&timer);
        owner.arm(DUE);
        if !owner.disarm() {
            owner.wait(1);
        }
        end(&timer);
        owner.check();
    });
}

#[test]
fn rearmed_and_released_while_it_expires() {
    model(3, || {
        let timer = timer();
        let owner = Owner::new(&timer);
        owner.arm(DUE);
        let first = u32::from(!owner.arm(DUE).prevented);
        owner.wait(first + 1);
        end(&timer);
        owner.check();
    });
}

#[test]
fn disarmed_and_armed_again() {
    model(3, || {
        let timer = timer();
        let owner = Owner::new(&timer);
        owner.arm(FAR);
        assert!(owner.disarm());
        assert!(!owner.disarm());
        assert!(!owner.arm(DUE).prevented);
        owner.wait(1);
        end(&timer);
        owner.check();
    });
}

#[test]
fn a_node_arms_itself_while_it_expires() {
    model(3, || {
        let timer = timer();
        let owner = Owner::new(&timer);
        owner.0.again.store(1, Ordering::Relaxed);
        owner.arm(DUE);
        owner.wait(2);
        end(&timer);
        owner.check();
    });
}

#[test]
fn two_owners_arm_at_once() {
    model_within(1, 2, || {
        let timer = timer();
        let owners = [Owner::new(&timer), Owner::new(&timer)];
        let other = {
            let owner = owners[1].clone();
            spawn(move || {
                owner.arm(DUE);
                owner.wait(1);
            })
        };
        owners[0].arm(FAR);
        owners[0].arm(DUE);
        owners[0].wait(1);
        Loom::join(other);
        end(&timer);
        owners.iter().for_each(Owner::check);
    });
}

#[test]
fn the_end_while_owners_arm_and_disarm() {
    model(2, || {
        let timer = timer();
        let owners = [Owner::new(&timer), Owner::new(&timer)];
        owners[0].arm(FAR);
        let other = {
            let owners = owners.clone();
            spawn(move || {
                owners[0].arm(DUE);
                owners[1].arm(FAR);
                owners[0].disarm();
            })
        };
        end(&timer);
        Loom::join(other);
        // A thread that came too late has released the nodes by itself; it may have been started after the join.
        while owners.iter().any(Owner::is_held) {
            Loom::yield_now();
        }
        end(&timer);
        owners.iter().for_each(Owner::check);
    });
}

#[test]
fn the_end_while_the_thread_is_started() {
    model(3, || {
        let timer = timer();
        let owner = Owner::new(&timer);
        let other = {
            let timer = Arc::clone(&timer);
            spawn(move || timer.stop())
        };
        let armed = owner.arm(FAR);
        Loom::join(other);
        while owner.is_held() {
            owner.0.parker.park(None);
        }
        assert!(armed.hold != Hold::Kept);
        timer.join();
        owner.check();
    });
}

/// A timer whose thread is the test: the test sets the time.
fn by_hand() -> (Arc<Timer<Loom>>, ThreadState<Loom>) {
    let timer = timer();
    timer.shared.thread.do_without();
    timer.shared.thread.begun();
    (timer, ThreadState::new(0))
}

const fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// A node on the wheel at 5, wanted at 20: at 10 it is taken off and put back, while `meanwhile` happens.
fn runs_beside_expiry(meanwhile: fn(&Owner<Loom>), afterwards: fn(&Owner<Loom>)) {
    model(4, move || {
        let (timer, mut state) = by_hand();
        let owner = Owner::new(&timer);
        owner.arm(at(5));
        state.attend(&timer.shared, 0);
        assert!(owner.arm(at(20)).prevented);
        assert!(timer.shared.requests.inbox.is_empty(), "a later deadline needs no request");
        // In the model it is 0, so whatever is delivered is too early by the clock.
        owner.0.floor.store(0, Ordering::SeqCst);
        let other = {
            let owner = owner.clone();
            spawn(move || {
                meanwhile(&owner);
                owner.0.floor.store(0, Ordering::SeqCst);
            })
        };
        state.expire(10);
        state.attend(&timer.shared, 10);
        state.expire(10);
        Loom::join(other);
        state.attend(&timer.shared, 10);
        state.expire(10);
        afterwards(&owner);
        state.end(&timer.shared);
        owner.check();
    });
}

/// As [`Owner::arm`], if the clock does not matter.
fn arm_unwatched(owner: &Owner<Loom>, nanos: u64) -> bool {
    owner.0.floor.store(0, Ordering::SeqCst);
    let prevented = owner.0.prevented.load(Ordering::Relaxed);
    // SAFETY: our reference keeps it alive; it is held, and armed or being released, so no hold is taken.
    let armed = unsafe { owner.0.timer.arm(owner.node(), at(nanos)) };
    assert_eq!(armed.hold, Hold::Kept);
    owner.0.prevented.store(prevented + u32::from(armed.prevented), Ordering::Relaxed);
    let accepted = owner.0.accepted.load(Ordering::Relaxed);
    owner.0.accepted.store(accepted + 1, Ordering::Relaxed);
    armed.prevented
}

#[test]
fn an_earlier_deadline_while_the_thread_puts_the_node_back() {
    runs_beside_expiry(
        |owner| assert!(arm_unwatched(owner, 7)),
        |owner| {
            assert_eq!(owner.expired(), 1, "at 10 the deadline at 7 has expired");
            assert!(!owner.is_held());
        },
    );
}

#[test]
fn a_later_deadline_while_the_thread_puts_the_node_back() {
    runs_beside_expiry(
        |owner| assert!(arm_unwatched(owner, 30)),
        |owner| {
            assert_eq!(owner.expired(), 0, "at 10 the deadline at 30 has not expired");
            assert!(owner.is_held());
        },
    );
}

#[test]
fn later_and_earlier_while_the_thread_puts_the_node_back() {
    runs_beside_expiry(
        |owner| {
            assert!(arm_unwatched(owner, 30));
            assert!(arm_unwatched(owner, 9));
        },
        |owner| assert_eq!(owner.expired(), 1),
    );
}

#[test]
fn disarmed_while_the_thread_puts_the_node_back() {
    runs_beside_expiry(
        |owner| assert!(owner.disarm()),
        |owner| {
            assert_eq!(owner.expired(), 0);
            assert!(!owner.is_held(), "the request makes the timer release the node");
        },
    );
}

#[test]
fn non_urgent_requests_wake_the_thread_only_in_large_numbers() {
    model(1, || {
        let (timer, mut state) = by_hand();
        let shared = &timer.shared;
        let owner = Owner::new(&timer);
        owner.arm(at(1000));
        state.attend(shared, 0);
        let sleep = || shared.sleep.load(Ordering::SeqCst);
        shared.sleep.store(state.next().expect("armed"), Ordering::SeqCst);
        owner.arm(at(2000));
        owner.disarm();
        owner.arm(at(1500));
        assert_eq!(sleep(), 1000, "nothing is urgent");
        owner.arm(at(999));
        assert_eq!(
            sleep(),
            super::super::AWAKE,
            "the request waited in the inbox, and became urgent"
        );
        state.attend(shared, 0);
        assert_eq!(state.next(), Some(999));
        shared.sleep.store(999, Ordering::SeqCst);
        shared.requests.waiting.store(super::super::CROWD - 1, Ordering::Relaxed);
        owner.disarm();
        assert_eq!(sleep(), super::super::AWAKE, "enough requests wait");
        state.attend(shared, 0);
        assert!(!owner.is_held());
        assert_eq!(state.next(), None);
        shared.sleep.store(5000, Ordering::SeqCst);
        owner.arm(at(6000));
        assert_eq!(sleep(), 5000, "the count starts again");
        owner.disarm();
        owner.arm(at(NONE + 5));
        state.attend(shared, 0);
        assert_eq!(state.next(), Some(NONE - 1), "as far as the word shows");
        state.end(shared);
        owner.check();
    });
}

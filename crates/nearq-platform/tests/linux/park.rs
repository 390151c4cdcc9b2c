//! The parker: a permit is never lost, never doubled, and brings what was written before it.
//!
//! These also run under Miri, which explores other interleavings and weaker memory than the processor shows.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

use crate::common::in_thread;
use nearq_platform::{Linux, LockPlatform, Parker, ThreadSpec, Threads};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Fewer under Miri, which is ten thousand times slower.
const ROUNDS: u32 = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn an_existing_permit_is_consumed() {
    let parker = Parker::<Linux>::new();
    parker.unpark();
    assert!(parker.park(None));
    assert!(!parker.park(Some(Linux::now())), "the permit was consumed");
}

#[test]
fn several_permits_merge_into_one() {
    let parker = Parker::<Linux>::new();
    for _ in 0..3 {
        parker.unpark();
    }
    assert!(parker.park(None));
    assert!(!parker.park(Some(Linux::now())));
}

#[test]
fn without_a_permit_parking_ends_at_the_deadline() {
    let parker = Parker::<Linux>::new();
    for wait in [Duration::ZERO, MILLISECOND, 7 * MILLISECOND] {
        let deadline = Linux::now() + wait;
        assert!(!parker.park(Some(deadline)));
        assert!(Linux::now() >= deadline, "{wait:?}");
    }
}

#[test]
fn a_permit_after_a_deadline_is_kept() {
    let parker = Parker::<Linux>::new();
    assert!(!parker.park(Some(Linux::now() + MILLISECOND)));
    parker.unpark();
    assert!(parker.park(None));
}

/// Two threads hand a plain counter to and fro: each loses its wake-up, or races on the counter, if the parker
/// is wrong.
struct PingPong {
    turns: [Parker<Linux>; 2],
    count: UnsafeCell<u32>,
}

// SAFETY: `count` is written only by the thread that holds the permit of the round, which the parkers pass on.
unsafe impl Sync for PingPong {}

impl PingPong {
    fn play(&self, me: usize) {
        for _ in 0..ROUNDS {
            assert!(self.turns[me].park(None));
            // SAFETY: validity: the cell lives as long as `self`. Aliasing and thread: the other thread does
            // not touch it until it has the permit that is given below.
            unsafe { *self.count.get() += 1 };
            self.turns[1 - me].unpark();
        }
    }
}

#[test]
fn no_wake_up_is_lost_and_earlier_writes_are_visible() {
    let game =
        Arc::new(PingPong { turns: [Parker::new(), Parker::new()], count: UnsafeCell::new(0) });
    let players = [0, 1].map(|me| {
        let game = Arc::clone(&game);
        Linux::spawn(ThreadSpec::default(), move || game.play(me)).unwrap()
    });
    game.turns[0].unpark();
    players.into_iter().for_each(Linux::join);
    // SAFETY: validity: `game` lives. Aliasing and thread: both threads have ended.
    assert_eq!(unsafe { *game.count.get() }, 2 * ROUNDS);
}

/// The owner parks with deadlines so short that they race with the permits.
#[test]
fn a_permit_that_races_with_the_deadline_is_not_lost() {
    let ask = Arc::new(Parker::<Linux>::new());
    let answer = Arc::new(Parker::<Linux>::new());
    let (asked, answered) = (Arc::clone(&ask), Arc::clone(&answer));
    let helper = Linux::spawn(ThreadSpec::default(), move || {
        for _ in 0..ROUNDS {
            assert!(asked.park(None));
            answered.unpark();
        }
    })
    .unwrap();
    for round in 0..ROUNDS {
        ask.unpark();
        let mut wait = Duration::from_nanos(u64::from(round % 64) * 500);
        while !answer.park(Some(Linux::now() + wait)) {
            // A deadline that came first leaves the permit for the next call.
            wait = (wait + Duration::from_micros(1)) * 2;
        }
    }
    Linux::join(helper);
    assert!(!answer.park(Some(Linux::now())), "one permit a round");
}

/// Every message is followed by a permit. Permits may merge, but after the last one everything is visible.
#[test]
fn merged_permits_publish_the_writes_of_each_giver() {
    const GIVERS: usize = 3;
    struct Shared {
        parker: Parker<Linux>,
        letters: [<Linux as LockPlatform>::AtomicU32; GIVERS],
    }
    use nearq_platform::{Atomic, Ordering};

    let shared = Arc::new(Shared {
        parker: Parker::new(),
        letters: std::array::from_fn(|_| Atomic::new(0)),
    });
    let givers = (0..GIVERS).map(|me| {
        let shared = Arc::clone(&shared);
        Linux::spawn(ThreadSpec::default(), move || {
            for letter in 1..=ROUNDS {
                // Relaxed: the permit alone makes it visible.
                shared.letters[me].store(letter, Ordering::Relaxed);
                shared.parker.unpark();
            }
        })
        .unwrap()
    });
    let givers: Vec<_> = givers.collect();
    while shared.letters.iter().any(|letter| letter.load(Ordering::Relaxed) != ROUNDS) {
        // A permit that was taken without its letter would leave us asleep for good.
        assert!(shared.parker.park(None));
    }
    givers.into_iter().for_each(Linux::join);
}

/// A permit may come while the owner takes another one: what was written before it must be visible too, or the permit must stay.
#[test]
fn a_permit_given_while_another_is_taken_is_not_lost() {
    use nearq_platform::{Atomic, Ordering};
    struct Shared {
        parker: Parker<Linux>,
        letters: [<Linux as LockPlatform>::AtomicU32; 2],
    }
    for _ in 0..if cfg!(miri) { 4 } else { 500 } {
        let shared =
            Arc::new(Shared { parker: Parker::new(), letters: [Atomic::new(0), Atomic::new(0)] });
        let givers = [0, 1].map(|me| {
            let shared = Arc::clone(&shared);
            Linux::spawn(ThreadSpec::default(), move || {
                shared.letters[me].store(1, Ordering::Relaxed);
                shared.parker.unpark();
            })
            .unwrap()
        });
        while shared.letters.iter().any(|letter| letter.load(Ordering::Relaxed) == 0) {
            assert!(shared.parker.park(None));
        }
        givers.into_iter().for_each(Linux::join);
    }
}

#[test]
fn writes_of_a_joined_thread_are_visible() {
    for _ in 0..=ROUNDS / 200 {
        let cell =
            Arc::new(PingPong { turns: [Parker::new(), Parker::new()], count: UnsafeCell::new(0) });
        let cell_clone = Arc::clone(&cell);
        let handle = Linux::spawn(ThreadSpec::default(), move || {
            // SAFETY: validity: the cell lives. Aliasing and thread: the other thread waits for our end.
            unsafe { *cell_clone.count.get() = 7 };
        })
        .unwrap();
        Linux::join(handle);
        // SAFETY: validity: the cell lives. Aliasing and thread: the writer has ended.
        assert_eq!(unsafe { *cell.count.get() }, 7);
    }
}

#[test]
fn each_thread_has_its_own_slot() {
    static MARK: u8 = 0;
    assert!(Linux::slot().is_null());
    Linux::set_slot((&raw const MARK).cast());
    assert!(in_thread(ThreadSpec::default(), || Linux::slot().is_null()));
    assert_eq!(Linux::slot(), (&raw const MARK).cast());
    Linux::set_slot(std::ptr::null());
}

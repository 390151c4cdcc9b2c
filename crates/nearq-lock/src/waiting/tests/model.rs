//! Under the model checker: the word and sleeping on it, queueing up and handing the turn on, the change to queues by domain and back while
//! other threads queue up, a slot that is used again, by two and three threads.
//!
//! The value is a watched cell: an access that is not ordered after the previous holder's is reported as a race, and a thread that is never
//! woken as a deadlock. Deadlines never come in a model, so they cannot hide a lost wake-up.

use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{Ordering, PlatformCell, ThreadSpec, Threads};

use crate::modelled::{self, Count};
use crate::process_state::ProcessState;
use crate::settings::{Mode, Settings};
use crate::statistics::Event;
use crate::word::RESERVED;
use crate::{Mutex, MutexGuard};

type Watched = <Loom as Threads>::Cell<u32>;
type Shared = Arc<Mutex<Watched, Loom>>;

fn check(
    preemptions: usize,
    mode: Mode,
    reaches: &[Event],
    model: impl Fn() + Send + Sync + 'static,
) {
    modelled::check(preemptions, reaches, move || {
        // Done first, so that making `ProcessState` is not part of what is explored. One round of quiet is enough to go back. There are no
        // yields, because after one, loom runs the other threads until they cannot go on.
        Settings { mode, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        let process = ProcessState::<Loom>::get();
        assert_eq!(process.domains.len(), 2);
        // Two slots: a thread that binds one leaves one, so that no thread makes more of them.
        assert!(process.make_slots() && process.make_slots());
        model();
    });
}

fn new() -> Shared {
    Arc::new(Mutex::new_in(Watched::new(0)))
}

fn add(guard: &MutexGuard<'_, Watched, Loom>) {
    // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
    guard.with_mut(|count| unsafe { *count += 1 });
}

fn increment(mutex: &Shared) {
    add(&mutex.lock());
}

fn on_cpu(
    cpu: usize,
    mutex: &Shared,
    body: impl FnOnce(&Shared) + Send + 'static,
) -> <Loom as Threads>::JoinHandle {
    let mutex = Arc::clone(mutex);
    let main = move || {
        Loom::set_current_cpu(cpu);
        body(&mutex);
    };
    Loom::spawn(ThreadSpec::default(), main).expect("the model spawns")
}

/// Checks the count, and that everything is as it was at the start: no slot is bound except those that the mode keeps, and no record is
/// lost.
fn end(mutex: Shared, count: u32, records: usize, slots: usize) {
    let guard = mutex.lock();
    // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
    assert_eq!(guard.with(|count| unsafe { *count }), count);
    drop(guard);
    let process = ProcessState::<Loom>::get();
    assert!(process.waiters.count() <= records, "{} records in use", process.waiters.count());
    assert!(process.slots.count() <= slots, "{} slots in use", process.slots.count());
    drop(mutex);
    assert_eq!(process.slots.count(), 0, "a slot is released with its mutex");
}

#[test]
fn two_threads_in_the_plain_queue() {
    check(4, Mode::Plain, &[Event::Turn, Event::SleptInTurn], || {
        let mutex = new();
        let other = on_cpu(0, &mutex, increment);
        increment(&mutex);
        Loom::join(other);
        end(mutex, 2, 2, 0);
    });
}

#[test]
fn three_threads_in_the_plain_queue() {
    check(
        2,
        Mode::Plain,
        &[Event::Turn, Event::SleptInTurn, Event::SleptInQueue, Event::NotLinked],
        || {
            let mutex = new();
            let others = [on_cpu(0, &mutex, increment), on_cpu(2, &mutex, increment)];
            increment(&mutex);
            others.into_iter().for_each(Loom::join);
            end(mutex, 3, 3, 0);
        },
    );
}

#[test]
fn two_threads_without_a_queue() {
    check(4, Mode::Off, &[Event::Unqueued], || {
        let mutex = new();
        let other = on_cpu(0, &mutex, increment);
        increment(&mutex);
        Loom::join(other);
        end(mutex, 2, 0, 0);
    });
}

#[test]
fn three_threads_without_a_queue() {
    check(bound(1, 2), Mode::Off, &[Event::Unqueued], || {
        let mutex = new();
        let others = [on_cpu(0, &mutex, increment), on_cpu(2, &mutex, increment)];
        increment(&mutex);
        others.into_iter().for_each(Loom::join);
        end(mutex, 3, 0, 0);
    });
}

/// The queues by domain are there from the start: two threads of two domains stand up, hand the turn to the other domain and give it back.
#[test]
fn two_domains() {
    check(3, Mode::Numa, &[Event::Across, Event::SleptInTurn, Event::SleptInQueue], || {
        let mutex = new();
        mutex.raw().bind_for_test();
        let other = on_cpu(2, &mutex, increment);
        increment(&mutex);
        Loom::join(other);
        end(mutex, 2, 2, 1);
    });
}

#[test]
fn two_of_one_domain() {
    check(3, Mode::Numa, &[Event::Within, Event::SleptInTurn, Event::SleptInQueue], || {
        let mutex = new();
        mutex.raw().bind_for_test();
        let other = on_cpu(1, &mutex, increment);
        increment(&mutex);
        Loom::join(other);
        end(mutex, 2, 2, 1);
    });
}

fn three_in_two_domains(preemptions: usize) {
    check(preemptions, Mode::Numa, &[Event::Within, Event::Across, Event::SleptInQueue], || {
        let mutex = new();
        mutex.raw().bind_for_test();
        let others = [on_cpu(1, &mutex, increment), on_cpu(2, &mutex, increment)];
        increment(&mutex);
        others.into_iter().for_each(Loom::join);
        end(mutex, 3, 3, 1);
    });
}

#[test]
#[ignore = "takes half a minute: .ci/long"]
fn three_threads_in_two_domains() {
    three_in_two_domains(1);
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn three_threads_in_two_domains_long() {
    three_in_two_domains(2);
}

/// While one thread has the mutex and changes to queues by domain, another one queues up: in the plain queue or in its domain's.
#[test]
fn changing_to_domain_queues_while_another_thread_queues_up() {
    let long = [Event::Bound, Event::Across, Event::NotLinked];
    check(bound(1, 3), Mode::Numa, bound(&long[..2], &long), || {
        let mutex = new();
        let other = on_cpu(2, &mutex, increment);
        let guard = mutex.lock();
        add(&guard);
        mutex.raw().bind_for_test_while_held();
        drop(guard);
        Loom::join(other);
        end(mutex, 2, 2, 1);
    });
}

/// A thread that has waited in the plain queue changes to queues by domain, with another one behind it there, while a third one queues up
/// in whichever queue it is sent to.
#[test]
#[ignore = "takes minutes: .ci/long"]
fn changing_to_domain_queues_by_the_thread_in_turn() {
    check(2, Mode::Numa, &[Event::Bound, Event::Turn, Event::SleptInQueue], || {
        let mutex = new();
        let guard = mutex.lock();
        let others = [on_cpu(0, &mutex, increment), on_cpu(2, &mutex, increment)];
        add(&guard);
        drop(guard);
        increment(&mutex);
        others.into_iter().for_each(Loom::join);
        end(mutex, 4, 3, 1);
    });
}

/// While one thread gives the slot up, another one queues up there: it starts over, or keeps the slot.
#[test]
fn changing_to_the_plain_queue_while_another_thread_queues_up() {
    check(3, Mode::Auto, &[Event::Unbound, Event::Anew, Event::Across], || {
        let mutex = new();
        mutex.raw().bind_for_test();
        let other = on_cpu(2, &mutex, increment);
        increment(&mutex);
        Loom::join(other);
        end(mutex, 2, 2, 1);
    });
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn changing_to_the_plain_queue_while_two_threads_queue_up() {
    check(1, Mode::Auto, &[Event::Unbound, Event::Anew], || {
        let mutex = new();
        mutex.raw().bind_for_test();
        let others = [on_cpu(2, &mutex, increment), on_cpu(3, &mutex, increment)];
        increment(&mutex);
        others.into_iter().for_each(Loom::join);
        end(mutex, 3, 3, 1);
    });
}

/// The settings no longer allow queues by domain: the first thread that has the turn gives the slot up, although another one waits behind
/// it in its domain, or in another domain, and starts over.
fn switched_off(preemptions: usize, cpus: &'static [usize]) {
    check(
        preemptions,
        Mode::Plain,
        &[Event::Unbound, Event::Anew, Event::SleptInQueue],
        move || {
            let mutex = new();
            mutex.raw().bind_for_test();
            let others = cpus.iter().map(|&cpu| on_cpu(cpu, &mutex, increment)).collect::<Vec<_>>();
            increment(&mutex);
            let threads = others.len() + 1;
            others.into_iter().for_each(Loom::join);
            end(mutex, threads as u32, threads, 0);
        },
    );
}

#[test]
fn switched_off_while_one_thread_waits() {
    switched_off(bound(2, 3), &[1]);
    switched_off(bound(2, 3), &[2]);
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn switched_off_while_two_threads_wait() {
    switched_off(1, &[1, 2]);
    switched_off(1, &[2, 3]);
}

/// A slot goes from one mutex to another while a thread still believes that it is the first one's.
#[test]
fn a_slot_is_reused() {
    check(bound(2, 3), Mode::Auto, &[Event::Bound, Event::Unbound, Event::Anew], || {
        let (first, second) = (new(), new());
        first.raw().bind_for_test();
        let other = on_cpu(2, &first, increment);
        // Leaves the first mutex's slot if no other thread is there, and takes one for the second.
        increment(&first);
        second.raw().bind_for_test();
        increment(&second);
        Loom::join(other);
        end(second, 1, 2, 2);
        end(first, 2, 2, 1);
    });
}

/// A fair unlock: the thread that waits is next, and the mutex is not lost if no thread waits any more.
#[test]
fn fair_unlocks() {
    for mode in [Mode::Plain, Mode::Numa] {
        check(bound(2, 3), mode, &[Event::Turn], move || {
            let mutex = new();
            if mode == Mode::Numa {
                mutex.raw().bind_for_test();
            }
            let other = on_cpu(2, &mutex, increment);
            let guard = mutex.lock();
            add(&guard);
            MutexGuard::unlock_fair(guard);
            let tried = mutex.try_lock().map(|guard| add(&guard)).is_some();
            Loom::join(other);
            end(mutex, 2 + u32::from(tried), 2, 1);
        });
    }
}

/// A thread tries a mutex that is reserved for no thread, while another one may get the slot's turn: it gets the mutex at once or not at
/// all.
#[test]
fn a_reserved_mutex_is_tried_while_another_thread_queues_up() {
    let outcomes = Arc::new([Count::new(0), Count::new(0)]);
    let outcomes_clone = Arc::clone(&outcomes);
    check(3, Mode::Numa, &[Event::Turn, Event::Across], move || {
        let mutex = new();
        mutex.raw().bind_for_test();
        mutex.raw().change_word(|word| word | RESERVED);
        let other = on_cpu(2, &mutex, increment);
        let tried = mutex.try_lock().map(|guard| add(&guard)).is_some();
        Loom::join(other);
        outcomes_clone[usize::from(tried)].fetch_add(1, Ordering::Relaxed);
        end(mutex, 1 + u32::from(tried), 2, 1);
    });
    for count in &*outcomes {
        assert!(count.load(Ordering::Relaxed) > 0, "{outcomes:?}");
    }
}

/// The next holder may free the mutex: nothing that an unlock or a hand-over does afterwards may touch it.
#[test]
fn the_next_holder_may_free_the_mutex() {
    struct Last(*const Mutex<(), Loom>);
    // SAFETY: the pointer goes to one thread, which uses it only while the mutex is allocated.
    unsafe impl Send for Last {}

    for mode in [Mode::Plain, Mode::Numa, Mode::Off] {
        check(3, mode, &[Event::Contended], move || {
            let mutex = Box::into_raw(Box::new(Mutex::<(), Loom>::new_in(())));
            // SAFETY: just allocated, freed below by the thread that takes the lock second.
            let shared = unsafe { &*mutex };
            if mode == Mode::Numa {
                shared.raw().bind_for_test();
            }
            let guard = shared.lock();
            let last = Last(mutex);
            let main = move || {
                let Last(mutex) = { last };
                // SAFETY: only we free it.
                core::mem::forget(unsafe { &*mutex }.lock());
                // SAFETY: allocated as a box; the other thread's last use is the step that let us take the lock. If there were a later one,
                // the model would see an access to a freed atomic.
                drop(unsafe { Box::from_raw(mutex.cast_mut()) });
            };
            let other = Loom::spawn(ThreadSpec::default(), main).expect("the model spawns");
            drop(guard);
            Loom::join(other);
            assert_eq!(ProcessState::<Loom>::get().slots.count(), 0);
        });
    }
}

//! Under the model checker: readers and writers exclude each other, no wake-up is lost, and threads that give up leave no trace.
//!
//! The value is a watched cell: an access that is not ordered after a conflicting one is reported as a race. A lost wake-up shows as a
//! deadlock; models in which a deadline comes say so.

use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{Instant, PlatformCell, ThreadSpec, Threads};

use crate::modelled;
use crate::raw::RawRwLock;
use crate::settings::{Mode, Settings};
use crate::statistics::Event;
use crate::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};

/// A value whose accesses the model checks.
pub(super) struct Watched(pub(super) <Loom as Threads>::Cell<u32>);

// SAFETY: the model reports conflicting accesses, in place of the compiler.
unsafe impl Sync for Watched {}

pub(super) type Lock = RwLock<Watched, Loom>;
pub(super) type JoinHandle = <Loom as Threads>::JoinHandle;

pub(super) const SOON: Instant = Instant::from_nanos(0);

pub(super) fn get(guard: &Watched) -> u32 {
    // SAFETY: the cell lives as long as the guard that the caller passes, which excludes writers; that is tested.
    guard.0.with(|value| unsafe { *value })
}

pub(super) fn add(guard: &Watched) {
    // SAFETY: the cell lives as long as the guard that the caller passes, which excludes all other threads; that is tested.
    guard.0.with_mut(|value| unsafe { *value += 1 });
}

pub(super) fn read(lock: &Lock) {
    get(&lock.read());
}

pub(super) fn write(lock: &Lock) {
    add(&lock.write());
}

pub(super) fn spawn(lock: &Arc<Lock>, body: impl FnOnce(&Lock) + Send + 'static) -> JoinHandle {
    let lock = Arc::clone(lock);
    Loom::spawn(ThreadSpec::default(), move || body(&lock)).expect("the model spawns")
}

/// Explores a model; at its end the lock is free, and the value is `writes`.
fn check(
    preemptions: usize,
    reaches: &[Event],
    writes: u32,
    model: impl Fn(&Arc<Lock>) + Send + Sync + 'static,
) {
    modelled::check(preemptions, reaches, move || {
        Settings { mode: Mode::Plain, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        let lock = Arc::new(Lock::new_in(Watched(PlatformCell::new(0))));
        model(&lock);
        assert!(!lock.is_locked());
        assert_eq!(get(&lock.try_write().expect("it is free")), writes);
    });
}

#[test]
fn a_reader_and_a_writer() {
    check(3, &[Event::ReaderSlept, Event::WriterSlept], 2, |lock| {
        let reader = spawn(lock, |lock| {
            read(lock);
            read(lock);
        });
        write(lock);
        write(lock);
        Loom::join(reader);
    });
}

#[test]
fn two_readers_and_a_writer() {
    check(2, &[Event::ReaderSlept, Event::WriterSlept], 1, |lock| {
        let readers = [spawn(lock, read), spawn(lock, read)];
        write(lock);
        readers.into_iter().for_each(Loom::join);
    });
}

#[test]
fn a_reader_and_two_writers() {
    check(bound(1, 2), &[Event::Turn, Event::WriterSlept], 2, |lock| {
        let writers = [spawn(lock, write), spawn(lock, write)];
        read(lock);
        writers.into_iter().for_each(Loom::join);
    });
}

#[test]
fn a_reader_that_waits_is_let_in_before_the_next_writer() {
    check(2, &[Event::ReaderSlept], 2, |lock| {
        let guard = lock.write();
        let reader = spawn(lock, |lock| assert!(get(&lock.read()) <= 2));
        add(&guard);
        drop(guard);
        write(lock);
        Loom::join(reader);
    });
}

#[test]
fn an_upgrade_lets_no_writer_in_between() {
    check(bound(1, 2), &[Event::WriterSlept], 2, |lock| {
        let others = [spawn(lock, write), spawn(lock, read)];
        let guard = lock.upgradable_read();
        let seen = get(&guard);
        let guard = RwLockUpgradableReadGuard::upgrade(guard);
        assert_eq!(get(&guard), seen);
        add(&guard);
        drop(guard);
        others.into_iter().for_each(Loom::join);
    });
}

#[test]
fn a_downgrade_lets_no_writer_in_between() {
    check(bound(2, 3), &[Event::WriterSlept], 2, |lock| {
        let other = spawn(lock, write);
        let guard = lock.write();
        add(&guard);
        let seen = get(&guard);
        let guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
        let guard = RwLockUpgradableReadGuard::upgrade(guard);
        let guard = RwLockWriteGuard::downgrade(guard);
        assert_eq!(get(&guard), seen);
        drop(guard);
        Loom::join(other);
    });
}

#[test]
fn upgradable_readers_exclude_each_other() {
    check(bound(2, 3), &[Event::WriterSlept], 2, |lock| {
        let rise = |lock: &Lock| {
            let guard = lock.upgradable_read();
            let seen = get(&guard);
            let guard = RwLockUpgradableReadGuard::try_upgrade(guard);
            let guard = guard.ok().expect("no one else reads");
            assert_eq!(get(&guard), seen);
            add(&guard);
        };
        let other = spawn(lock, rise);
        rise(lock);
        Loom::join(other);
    });
}

/// Either the deadline comes, and the readers go on as if the writer had never come; or it gets the lock.
#[test]
fn a_writer_that_gives_up_lets_readers_go_on() {
    check(bound(1, 2), &[Event::ReaderSlept, Event::WriterSlept], 0, |lock| {
        let reader = spawn(lock, |lock| {
            read(lock);
            read(lock);
        });
        let writer = spawn(lock, |lock| {
            Loom::set_deadlines_come(true);
            if let Some(guard) = lock.try_write_until_in(SOON) {
                get(&guard);
            }
        });
        read(lock);
        [reader, writer].into_iter().for_each(Loom::join);
    });
}

#[test]
fn a_reader_that_was_let_in_by_one_writer_is_not_shut_out_by_the_next_one_that_gives_up() {
    check(bound(3, 4), &[Event::ReaderSlept, Event::WriterSlept], 1, |lock| {
        let guard = lock.write();
        let reader = spawn(lock, read);
        add(&guard);
        drop(guard);
        Loom::set_deadlines_come(true);
        drop(lock.try_write_until_in(SOON));
        Loom::join(reader);
    });
}

#[test]
fn an_upgrade_that_is_given_up_lets_readers_go_on() {
    check(bound(2, 3), &[Event::ReaderSlept, Event::WriterSlept], 0, |lock| {
        let reader = spawn(lock, |lock| {
            read(lock);
            read(lock);
        });
        Loom::set_deadlines_come(true);
        let guard = lock.upgradable_read();
        let raw = RwLockUpgradableReadGuard::raw(&guard);
        // SAFETY: the guard exists.
        if unsafe { raw.try_upgrade_until_in(SOON) } {
            // SAFETY: upgraded.
            unsafe { raw.downgrade_to_upgradable() };
        }
        get(&guard);
        drop(guard);
        Loom::join(reader);
    });
}

#[test]
fn a_reader_that_gives_up_is_not_counted() {
    check(3, &[Event::LetInLate], 2, |lock| {
        let reader = spawn(lock, |lock| {
            Loom::set_deadlines_come(true);
            if let Some(guard) = lock.try_read_until_in(SOON) {
                get(&guard);
            }
        });
        write(lock);
        write(lock);
        Loom::join(reader);
    });
}

/// The next holder may free the lock: leaving it must not touch it after the step that lets the next one in.
fn next_owner_frees(first: fn(&RawRwLock<Loom>), leave: unsafe fn(&RawRwLock<Loom>)) {
    struct Last(*const RawRwLock<Loom>);
    // SAFETY: the pointer goes to one thread, which uses it only while the lock is allocated.
    unsafe impl Send for Last {}

    modelled::check(3, &[Event::WriterSlept], move || {
        Settings::default().eager().set_for_process_in::<Loom>();
        let lock = Box::into_raw(Box::new(RawRwLock::<Loom>::new_in()));
        // SAFETY: just allocated, freed below by the thread that takes the lock second.
        first(unsafe { &*lock });
        let last = Last(lock);
        let other = Loom::spawn(ThreadSpec::default(), move || {
            let Last(lock) = { last };
            // SAFETY: only we free it.
            unsafe { &*lock }.write();
            // SAFETY: allocated as a box; the other thread's last use is the step that let us in. If there were a later one, the model
            // would see an access to a freed atomic.
            drop(unsafe { Box::from_raw(lock.cast_mut()) });
        })
        .expect("the model spawns");
        // SAFETY: we have the lock, so the other thread has not freed it.
        unsafe { leave(&*lock) };
        Loom::join(other);
    });
}

#[test]
fn the_next_owner_may_free_the_lock() {
    next_owner_frees(RawRwLock::read, RawRwLock::unlock_read);
    next_owner_frees(RawRwLock::write, RawRwLock::unlock_write);
    next_owner_frees(RawRwLock::upgradable_read, RawRwLock::unlock_upgradable);
}

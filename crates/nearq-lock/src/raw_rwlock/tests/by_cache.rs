//! Under the model checker: readers that count themselves by cache, and writers that take the row away or leave it.

use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{PlatformCell, ThreadSpec, Threads};

use super::model::{JoinHandle, Lock, SOON, Watched, add, get, read, write};
use crate::modelled;
use crate::process_state::ProcessState;
use crate::settings::{Mode, Settings};
use crate::statistics::Event;
use crate::{RwLockUpgradableReadGuard, RwLockWriteGuard, Snapshot};

fn spawn(cpu: usize, lock: &Arc<Lock>, body: impl FnOnce(&Lock) + Send + 'static) -> JoinHandle {
    let lock = Arc::clone(lock);
    let main = move || {
        Loom::set_current_cpu(cpu);
        body(&lock);
    };
    Loom::spawn(ThreadSpec::default(), main).expect("the model spawns")
}

/// Explores a model twice: the first writer takes the row away, or leaves it. At the end the lock is free, the value is `writes`, and no row
/// is lost.
fn check(
    preemptions: usize,
    reaches: &'static [Event],
    writes: u32,
    model: impl Fn(&Arc<Lock>) + Send + Sync + Copy + 'static,
) {
    for takes_away in [false, true] {
        modelled::check(preemptions, reaches, move || {
            Settings { mode: Mode::Auto, ..Settings::default() }
                .eager()
                .set_for_process_in::<Loom>();
            let lock = Arc::new(Lock::new_in(Watched(PlatformCell::new(0))));
            lock.raw().lend_row_for_test(takes_away);
            model(&lock);
            assert!(!lock.is_locked());
            assert_eq!(get(&lock.try_write().expect("it is free")), writes);
            assert!(Arc::into_inner(lock).is_some(), "the only one");
            assert_eq!(ProcessState::<Loom>::get().readers.lent(), 0);
        });
    }
}

/// Another thread makes a row and lends it to a lock that a thread has already: that thread finds it made.
fn finds_the_new_row(uses: impl Fn(&Lock) + Send + Sync + Copy + 'static) {
    modelled::check(4, &[], move || {
        Settings { mode: Mode::Auto, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        let lock = Arc::new(Lock::new_in(Watched(PlatformCell::new(0))));
        let lender = spawn(2, &lock, |lock| lock.raw().lend_row());
        uses(&lock);
        Loom::join(lender);
        assert!(!lock.is_locked());
    });
}

#[test]
fn a_reader_leaves_by_a_row_that_was_made_since() {
    finds_the_new_row(|lock| _ = get(&lock.read()));
}

#[test]
fn a_writer_leaves_by_a_row_that_was_made_since() {
    finds_the_new_row(|lock| add(&lock.write()));
}

#[test]
fn an_upgradable_reader_becomes_a_reader_by_a_row_that_was_made_since() {
    finds_the_new_row(|lock| {
        _ = get(&RwLockUpgradableReadGuard::downgrade(lock.upgradable_read()));
    });
}

/// A reader waits in the row for a writer that gives up. The next writer would take the row away, and another one has the lock while the same
/// row is lent again: the reader must not take that for its phase.
#[test]
fn a_reader_that_waits_in_the_row_does_not_enter_beside_a_writer_that_came_without_it() {
    modelled::check(bound(2, 3), &[], move || {
        Settings { mode: Mode::Auto, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        let lock = Arc::new(Lock::new_in(Watched(PlatformCell::new(0))));
        lock.raw().lend_row_for_test(false);
        let guard = lock.read();
        let reader = spawn(2, &lock, |lock| _ = get(&lock.read()));
        Loom::set_deadlines_come(true);
        assert!(lock.try_write_until_in(SOON).is_none(), "there is a reader");
        drop(guard);
        lock.raw().make_row_idle();
        write(&lock);
        let guard = lock.write();
        lock.raw().lend_row();
        add(&guard);
        drop(guard);
        Loom::join(reader);
        assert!(!lock.is_locked());
    });
}

#[test]
fn a_reader_by_cache_and_a_writer() {
    check(3, &[Event::ReaderSlept, Event::WriterSlept], 1, |lock| {
        let reader = spawn(2, lock, read);
        write(lock);
        Loom::join(reader);
    });
}

#[test]
fn readers_of_two_caches_and_a_writer() {
    check(bound(1, 2), &[Event::ReaderSlept], 1, |lock| {
        let readers = [spawn(0, lock, read), spawn(2, lock, read)];
        write(lock);
        readers.into_iter().for_each(Loom::join);
    });
}

#[test]
fn a_reader_that_waits_is_let_in_before_the_next_writer() {
    check(bound(2, 3), &[Event::ReaderSlept], 2, |lock| {
        let guard = lock.write();
        let reader = spawn(2, lock, read);
        add(&guard);
        drop(guard);
        write(lock);
        Loom::join(reader);
    });
}

/// A reader enters at one cache and leaves at another one; a second reader was there before there was a row.
#[test]
fn readers_leave_where_they_have_not_entered() {
    modelled::check(bound(2, 3), &[Event::WriterSlept], || {
        Settings { mode: Mode::Auto, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        let lock = Arc::new(Lock::new_in(Watched(PlatformCell::new(0))));
        let before = lock.read();
        lock.raw().lend_row_for_test(false);
        let within = lock.read();
        let writer = spawn(2, &lock, |lock| {
            write(lock);
            write(lock);
        });
        Loom::set_current_cpu(2);
        get(&within);
        drop(within);
        get(&before);
        drop(before);
        Loom::join(writer);
        assert!(!lock.is_locked());
        drop(lock);
        assert_eq!(ProcessState::<Loom>::get().readers.lent(), 0);
    });
}

/// A row is lent while a writer waits for a reader that leaves there then, or while it has the lock.
#[test]
fn a_row_is_lent_beside_a_writer() {
    modelled::check(bound(2, 3), &[Event::WriterSlept], || {
        Settings { mode: Mode::Auto, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        let lock = Arc::new(Lock::new_in(Watched(PlatformCell::new(0))));
        let before = lock.read();
        let writer = spawn(2, &lock, write);
        lock.raw().lend_row();
        get(&before);
        drop(before);
        read(&lock);
        Loom::join(writer);
        assert!(!lock.is_locked());
        drop(lock);
        assert_eq!(ProcessState::<Loom>::get().readers.lent(), 0);
    });
}

#[test]
fn a_late_reader_of_the_rows_previous_lock_does_no_harm() {
    modelled::check(bound(2, 3), &[Event::WriterSlept], || {
        Settings { mode: Mode::Auto, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        let new = || Arc::new(Lock::new_in(Watched(PlatformCell::new(0))));
        let (first, second) = (new(), new());
        first.raw().lend_row_for_test(true);
        let reader = spawn(2, &first, read);
        write(&first);
        second.raw().lend_row_for_test(false);
        write(&second);
        Loom::join(reader);
        assert!(!first.is_locked() && !second.is_locked());
        drop((first, second));
        assert_eq!(ProcessState::<Loom>::get().readers.lent(), 0);
    });
}

#[test]
fn a_writer_that_gives_up_lets_readers_go_on() {
    check(bound(2, 3), &[Event::ReaderSlept, Event::WriterSlept], 0, |lock| {
        let reader = spawn(2, lock, |lock| {
            read(lock);
            read(lock);
        });
        Loom::set_deadlines_come(true);
        drop(lock.try_write_until_in(SOON));
        drop(lock.try_write());
        Loom::join(reader);
    });
}

#[test]
fn a_reader_that_gives_up_is_not_counted() {
    check(bound(2, 3), &[Event::ReaderSlept, Event::LetInLate], 2, |lock| {
        let reader = spawn(2, lock, |lock| {
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

#[test]
fn an_upgrade_waits_for_readers_by_cache() {
    check(bound(2, 3), &[Event::WriterSlept], 1, |lock| {
        let reader = spawn(2, lock, read);
        let guard = lock.upgradable_read();
        let seen = get(&guard);
        let guard = RwLockUpgradableReadGuard::upgrade(guard);
        add(&guard);
        let guard = RwLockWriteGuard::downgrade(guard);
        assert_eq!(get(&guard), seen + 1);
        drop(guard);
        Loom::join(reader);
    });
}

#[test]
fn a_snapshot_shows_how_many_readers_a_row_counts() {
    check(0, &[], 0, |lock| {
        let seen = || {
            let rows = Snapshot::of_process_in::<Loom>().rwlocks;
            rows.iter().map(|lock| lock.readers).collect::<Vec<_>>()
        };
        // The reader to which the row was lent was counted in the state, and left in the row.
        assert_eq!(seen(), [0]);
        let guards = [lock.read(), lock.read()];
        assert_eq!(seen(), [1]);
        drop(guards);
        // The next writer puts that right.
        drop(lock.write());
        let guards = [lock.read(), lock.read()];
        assert!(seen().is_empty() || seen() == [2], "{:?}", seen());
        drop(guards);
    });
}

//! Readers that ask under the model checker: a reader that would wait for a writer that waits for it gets the lock. If it did not, the model
//! would end in a deadlock.

use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{PlatformCell, ThreadSpec, Threads};

use super::model::{SOON, Watched, add, get};
use crate::modelled;
use crate::raw::{RawRwLock, Requests};
use crate::settings::{Mode, Settings};
use crate::statistics::Event;

/// A lock, its requests, and a value whose accesses the model checks.
struct Shared {
    lock: RawRwLock<Loom>,
    requests: Requests<Loom>,
    value: Watched,
}

impl Shared {
    fn write(&self) {
        assert!(self.lock.write_giving_way(&self.requests, None));
        self.change();
    }

    /// Changes the value as a writer, and leaves.
    fn change(&self) {
        add(&self.value);
        // SAFETY: the caller has the lock as a writer.
        unsafe { self.lock.leave_write() };
    }

    fn read(&self) {
        assert!(self.lock.read_disowned(None));
        get(&self.value);
    }

    fn read_asking(&self) {
        assert!(self.lock.read_asking(&self.requests, None));
        get(&self.value);
    }

    fn leave(&self) {
        // SAFETY: the caller has the lock as a reader.
        unsafe { self.lock.leave_read() };
    }
}

fn spawn(
    shared: &Arc<Shared>,
    body: impl FnOnce(&Shared) + Send + 'static,
) -> <Loom as Threads>::JoinHandle {
    let shared = Arc::clone(shared);
    Loom::spawn(ThreadSpec::default(), move || body(&shared)).expect("the model spawns")
}

fn check(
    preemptions: usize,
    lends_row: bool,
    model: impl Fn(&Arc<Shared>) + Send + Sync + 'static,
) {
    modelled::check(preemptions, &[Event::WriterSlept], move || {
        let mode = if lends_row { Mode::Numa } else { Mode::Plain };
        Settings { mode, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        let shared = Arc::new(Shared {
            lock: RawRwLock::new_in(),
            requests: Requests::new_in(),
            value: Watched(PlatformCell::new(0)),
        });
        if lends_row {
            shared.lock.lend_row_for_test(false);
        }
        model(&shared);
        assert!(!shared.lock.is_locked() && shared.lock.try_write_disowned());
        shared.change();
    });
}

fn reads_again(shared: &Arc<Shared>) {
    shared.read();
    let writer = spawn(shared, Shared::write);
    shared.read_asking();
    shared.leave();
    shared.leave();
    Loom::join(writer);
}

#[test]
fn a_thread_that_reads_may_read_again_while_a_writer_waits() {
    check(bound(2, 3), false, reads_again);
}

/// The writer may be anywhere on its way, and need not run: the reader gets the lock by its own step.
#[test]
fn a_thread_that_reads_joins_itself_whatever_the_writer_does() {
    check(bound(2, 3), false, |shared| {
        shared.read();
        let writer = spawn(shared, Shared::write);
        assert!(shared.lock.join_readers());
        shared.leave();
        get(&shared.value);
        shared.leave();
        Loom::join(writer);
    });
}

/// While the readers leave, a thread that joins them either is too late or is a reader that the writer waits for.
#[test]
fn no_reader_joins_a_writer() {
    check(bound(2, 3), false, |shared| {
        shared.read();
        let writer = spawn(shared, Shared::write);
        let joining = spawn(shared, |shared| {
            if shared.lock.join_readers() {
                get(&shared.value);
                shared.leave();
            }
        });
        shared.leave();
        Loom::join(joining);
        Loom::join(writer);
    });
}

#[test]
fn a_thread_that_reads_in_a_row_may_read_again() {
    check(bound(2, 3), true, reads_again);
}

#[test]
fn a_thread_that_reads_may_wait_for_one_that_wants_to_read() {
    check(bound(1, 2), false, |shared| {
        shared.read();
        let writer = spawn(shared, Shared::write);
        let reader = spawn(shared, |shared| {
            shared.read_asking();
            shared.leave();
        });
        Loom::join(reader);
        shared.leave();
        Loom::join(writer);
    });
}

#[test]
fn a_writer_that_gives_way_may_give_up() {
    check(bound(2, 3), false, |shared| {
        shared.read();
        let writer = spawn(shared, |shared| {
            Loom::set_deadlines_come(true);
            if shared.lock.write_giving_way(&shared.requests, Some(SOON)) {
                shared.change();
            }
        });
        shared.read_asking();
        shared.leave();
        shared.leave();
        Loom::join(writer);
    });
}

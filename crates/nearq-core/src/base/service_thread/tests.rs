//! Start and end of a service thread, and a need that arises while a start fails, through every interleaving.

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, OsError, ThreadSpec, Threads};

use super::{STARTED, ServiceThread, Start};
use crate::item::tests::{model, spawn};

type Word = <Loom as LockPlatform>::AtomicU32;

fn refuse() -> Result<<Loom as Threads>::JoinHandle, OsError> {
    Err(OsError::new("a thread", 11, "wait"))
}

/// Represents the work that is left at the end: it is done once, by the service thread or by the thread that must do it instead.
struct Service {
    thread: ServiceThread<Loom>,
    ends: Word,
    spawned: Word,
}

impl Service {
    fn new() -> Arc<Self> {
        let thread = ServiceThread::new();
        // One try, so that the model stays small.
        thread.try_once();
        Arc::new(Service { thread, ends: Word::new(0), spawned: Word::new(0) })
    }

    fn end(&self) {
        self.ends.fetch_add(1, Ordering::SeqCst);
    }

    fn start(self: &Arc<Self>, refused: bool) {
        let start = self.thread.start(|| {
            self.spawned.fetch_add(1, Ordering::SeqCst);
            let service = Arc::clone(self);
            let main = move || {
                service.thread.begun();
                while !service.thread.is_stopped() {
                    service.thread.sleep(None);
                }
                service.end();
                service.thread.ended();
            };
            if refused { refuse() } else { Loom::spawn(ThreadSpec::default(), main) }
        });
        self.settle(&start);
    }

    fn start_refused(&self) {
        self.settle(&self.thread.start(refuse));
    }

    fn settle(&self, start: &Start) {
        if matches!(start, Start::Ended) {
            self.end();
        }
    }

    fn stop(&self) {
        self.settle(&self.thread.stop());
    }
}

fn ends_once(refused: bool) {
    model(3, move || {
        let service = Service::new();
        let other = {
            let service = Arc::clone(&service);
            spawn(move || service.stop())
        };
        service.start(refused);
        Loom::join(other);
        service.thread.join();
        assert_eq!(service.ends.load(Ordering::SeqCst), 1);
        assert!(!service.thread.is_alive());
        // Too late: nothing is started any more.
        service.start(refused);
        assert_eq!(service.ends.load(Ordering::SeqCst), 1);
    });
}

#[test]
#[cfg(not(miri))]
fn a_service_thread_ends_once_while_it_is_started() {
    ends_once(false);
}

#[test]
#[cfg(not(miri))]
fn a_service_thread_ends_once_while_its_start_is_refused() {
    ends_once(true);
}

/// The runtime ends once no service thread is alive: none is started after that.
#[test]
#[cfg(not(miri))]
fn no_service_thread_is_started_after_a_stop() {
    model(3, || {
        let service = Service::new();
        let found = Arc::new(Word::new(u32::MAX));
        let other = {
            let (service, found) = (Arc::clone(&service), Arc::clone(&found));
            spawn(move || {
                service.stop();
                if !service.thread.is_alive() {
                    found.store(service.spawned.load(Ordering::SeqCst), Ordering::SeqCst);
                }
            })
        };
        service.start(false);
        Loom::join(other);
        service.thread.join();
        let (found, spawned) =
            (found.load(Ordering::SeqCst), service.spawned.load(Ordering::SeqCst));
        assert!(found == u32::MAX || found == spawned, "one is started after that");
    });
}

#[test]
#[cfg(not(miri))]
fn a_need_announced_while_a_start_fails_is_seen() {
    model(3, || {
        let thread = Arc::new(ServiceThread::<Loom>::new());
        thread.try_once();
        let needs = Arc::new([Word::new(0), Word::new(0)]);
        let seen = Arc::new([Word::new(0), Word::new(0)]);
        let need = |own: usize| {
            let (thread, needs, seen) =
                (Arc::clone(&thread), Arc::clone(&needs), Arc::clone(&seen));
            move || {
                needs[own].store(1, Ordering::SeqCst);
                if let Start::Refused(_) = thread.start(refuse) {
                    Loom::fence(Ordering::SeqCst);
                    for (need, seen) in needs.iter().zip(seen.iter()) {
                        seen.fetch_add(need.load(Ordering::SeqCst), Ordering::SeqCst);
                    }
                }
            }
        };
        let other = spawn(need(1));
        need(0)();
        Loom::join(other);
        assert!(seen.iter().all(|seen| seen.load(Ordering::SeqCst) > 0), "a need is lost");
    });
}

#[test]
#[cfg(not(miri))]
fn a_reserved_service_thread_is_started() {
    model(3, || {
        let thread = Arc::new(ServiceThread::<Loom>::new());
        thread.try_once();
        let other = {
            let thread = Arc::clone(&thread);
            spawn(move || {
                let _ = thread.start(refuse);
            })
        };
        let start = thread.reserve(|| {
            let thread = Arc::clone(&thread);
            Loom::spawn(ThreadSpec::default(), move || {
                thread.begun();
                thread.ended();
            })
        });
        assert!(matches!(start, Start::Done));
        assert_eq!(thread.state.load(Ordering::SeqCst), STARTED);
        Loom::join(other);
        thread.join();
    });
}

#[test]
#[cfg(not(miri))]
fn a_service_thread_ends_once_while_two_threads_start_it() {
    for refused in [false, true] {
        model(2, move || {
            let service = Service::new();
            let others =
                [Service::stop as fn(&Service), |service| service.start_refused()].map(|part| {
                    let service = Arc::clone(&service);
                    spawn(move || part(&service))
                });
            service.start(refused);
            others.into_iter().for_each(Loom::join);
            service.thread.join();
            assert_eq!(service.ends.load(Ordering::SeqCst), 1);
            assert!(!service.thread.is_alive());
        });
    }
}

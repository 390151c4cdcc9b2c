//! The owner and thieves through every interleaving: each job is run once, by one of them, and the owner sees what it did.

#![cfg_attr(miri, allow(dead_code, unused_imports, reason = "the model checker is not for Miri"))]

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{Atomic, Linux, LockPlatform, Ordering, Platform, PlatformCell, Threads};

use super::job::{Job, Progress};
use super::{CAPACITY, Deque, Popped, Requests, Steal};
use crate::item::tests::{model, spawn};

/// A job that counts its runs. The count is plain memory: the model checker notices if two threads use it at once.
#[repr(C)]
struct Counted<P: Platform> {
    job: Job<P>,
    runs: P::Cell<u32>,
}

// SAFETY: the count belongs to the thread that has the job.
unsafe impl<P: Platform> Sync for Counted<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Send for Counted<P> {}

impl<P: Platform> Counted<P> {
    fn new() -> Self {
        Counted { job: Job::on_stack(Self::run), runs: P::Cell::new(0) }
    }

    /// The pointer of the whole, by which a thief reaches the count.
    fn whole(&self) -> *const Job<P> {
        core::ptr::from_ref(self).cast()
    }

    unsafe fn run(job: NonNull<Job<P>>, victim: Option<&Deque<P>>) -> bool {
        // SAFETY: the job is the first field of a `Counted`.
        let this = unsafe { job.cast::<Self>().as_ref() };
        let victim = victim.expect("the owner does not run it by this function");
        this.count();
        // SAFETY: stolen by the caller.
        unsafe { Progress::end(&raw const this.job.progress, victim) };
        true
    }

    fn count(&self) {
        // SAFETY: the caller has the job.
        self.runs.with_mut(|runs| unsafe { *runs += 1 });
    }

    fn runs(&self) -> u32 {
        // SAFETY: the job has ended.
        self.runs.with(|runs| unsafe { *runs })
    }
}

struct Scene<P: Platform> {
    deque: Deque<P>,
    jobs: [Counted<P>; 4],
    /// What a thief has found.
    found: P::AtomicU32,
}

impl<P: Platform> Scene<P> {
    fn new() -> Arc<Self> {
        Arc::new(Scene {
            deque: Deque::new(),
            jobs: core::array::from_fn(|_| Counted::new()),
            found: P::AtomicU32::new(0),
        })
    }

    fn push(&self, job: usize) {
        assert!(self.deque.push(self.jobs[job].whole()).is_some());
        if self.deque.has_request() && self.deque.take_requests().contains(Requests::SHARE) {
            self.deque.share();
        }
    }

    /// Pops the newest job.
    fn pop(&self) -> Popped {
        self.deque.pop(self.deque.len() - 1)
    }

    /// Pops a job, and runs it or waits for it.
    fn end(&self, job: usize) {
        let counted = &self.jobs[job];
        match self.pop() {
            Popped::Own => counted.count(),
            Popped::Stolen => self.wait_for(counted),
        }
        assert_eq!(counted.runs(), 1, "job {job}");
    }

    fn wait_for(&self, counted: &Counted<P>) {
        while !counted.job.progress.is_done() {
            self.deque.bell.sleep_unless(|| counted.job.progress.is_done());
        }
    }

    /// One attempt to steal something. True if there was something.
    fn steal(&self, thief: u32) -> bool {
        match self.deque.steal(|| true) {
            Steal::Job(job) => {
                // SAFETY: stolen just now.
                unsafe {
                    job.as_ref().progress.begin(thief);
                    Job::execute(job, Some(&self.deque));
                };
                true
            }
            Steal::Private => {
                self.deque.claim(|| true);
                false
            }
            Steal::Empty => false,
        }
    }
}

type Modelled = Scene<Loom>;

fn thief(scene: &Arc<Modelled>, number: u32, attempts: usize) -> <Loom as Threads>::JoinHandle {
    let scene = Arc::clone(scene);
    spawn(move || {
        for _ in 0..attempts {
            scene.steal(number);
        }
    })
}

#[test]
#[cfg(not(miri))]
fn each_job_is_run_once_whether_it_is_claimed_or_popped() {
    model(3, || {
        let scene = Modelled::new();
        scene.push(0);
        scene.push(1);
        let thief = thief(&scene, 0, 2);
        scene.end(1);
        scene.end(0);
        Loom::join(thief);
        assert!(scene.deque.is_empty() && !scene.deque.has_jobs());
    });
}

/// The owner uses a position again while a thief has claimed it.
#[test]
#[cfg(not(miri))]
fn a_claim_that_comes_too_late_for_a_pop_takes_the_next_job_or_nothing() {
    model(3, || {
        let scene = Modelled::new();
        scene.push(0);
        let thief = thief(&scene, 0, 2);
        scene.end(0);
        scene.push(1);
        scene.end(1);
        Loom::join(thief);
    });
}

/// The owner makes jobs public when there are fewer than a thief has claimed.
#[test]
#[cfg(not(miri))]
fn a_claim_that_comes_too_late_for_several_pops_makes_no_old_job_public() {
    model(3, || {
        let scene = Modelled::new();
        (0..3).for_each(|job| scene.push(job));
        let owner = {
            let scene = Arc::clone(&scene);
            spawn(move || {
                (0..3).rev().for_each(|job| scene.end(job));
                scene.deque.request(Requests::SHARE);
                scene.push(3);
            })
        };
        for _ in 0..3 {
            scene.steal(0);
        }
        Loom::join(owner);
        scene.end(3);
        for (number, job) in scene.jobs.iter().enumerate() {
            assert_eq!(job.runs(), 1, "job {number}");
        }
    });
}

/// The owner makes jobs public while one thief claims them.
#[test]
#[cfg(not(miri))]
fn a_request_is_answered_while_a_thief_claims() {
    model(3, || {
        let scene = Modelled::new();
        scene.push(0);
        scene.deque.request(Requests::SHARE);
        let thief = thief(&scene, 0, 2);
        scene.push(1);
        scene.end(1);
        scene.end(0);
        Loom::join(thief);
    });
}

/// One thief finds what the other has claimed and not confirmed.
#[test]
#[cfg(not(miri))]
fn two_thieves_and_the_owner_share_two_jobs() {
    model(bound(1, 2), || {
        let scene = Modelled::new();
        scene.push(0);
        scene.push(1);
        let thieves = [thief(&scene, 0, 2), thief(&scene, 1, 2)];
        scene.end(1);
        scene.end(0);
        thieves.into_iter().for_each(Loom::join);
    });
}

/// The last thief leaves while the owner offers a job (`fork_join`): the thief sees the job, or the owner sees the request.
#[test]
#[cfg(not(miri))]
fn a_thief_that_leaves_sees_the_job_or_is_called() {
    model(3, || {
        let scene = Modelled::new();
        let thief = {
            let scene = Arc::clone(&scene);
            spawn(move || {
                scene.deque.request(Requests::CALL);
                if Loom::heavy_fence() && scene.deque.has_jobs() {
                    scene.steal(0);
                }
                // The thief never comes back.
                scene.found.store(u32::from(scene.deque.has_jobs()), Ordering::Relaxed);
            })
        };
        assert!(scene.deque.push(scene.jobs[0].whole()).is_some());
        let called = scene.deque.has_request();
        Loom::join(thief);
        let found =
            scene.found.load(Ordering::Relaxed) != 0 || scene.jobs[0].job.progress.is_done();
        assert!(called || found, "the job is forgotten");
        scene.end(0);
    });
}

/// A join that waits asks for jobs although it is no thief, and so while the last thief leaves.
#[test]
#[cfg(not(miri))]
fn the_request_to_call_a_thief_is_not_replaced_by_another_one() {
    model(3, || {
        let scene = Modelled::new();
        let helper = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.deque.request(Requests::SHARE))
        };
        scene.deque.request(Requests::CALL);
        Loom::join(helper);
        assert!(scene.deque.take_requests().contains(Requests::CALL));
    });
}

/// A worker that helps with a scope is stopped while the thief that it helps ends the scope's closure and begins something else.
#[test]
#[cfg(not(miri))]
fn a_helper_gets_no_job_of_what_the_thief_runs_later() {
    model(3, || {
        let scene = Modelled::new();
        let scope = core::ptr::from_ref(&*scene).cast::<()>();
        scene.deque.set_running(scope);
        let helper = {
            let scene = Arc::clone(&scene);
            spawn(move || {
                let scope = core::ptr::from_ref(&*scene).cast::<()>();
                let may = || scene.deque.running() == scope;
                for _ in 0..2 {
                    scene.deque.claim(may);
                    if let Steal::Job(job) = scene.deque.steal(may) {
                        let is_part = core::ptr::eq(job.as_ptr(), scene.jobs[0].whole());
                        assert!(is_part, "a job of something else");
                        // SAFETY: stolen just now.
                        unsafe {
                            job.as_ref().progress.begin(0);
                            Job::execute(job, Some(&scene.deque));
                        };
                    }
                }
            })
        };
        scene.push(0);
        scene.end(0);
        scene.deque.set_running(core::ptr::null());
        scene.push(1);
        scene.end(1);
        Loom::join(helper);
    });
}

/// A worker is about to sleep until a part of what it waits for is done, while the thief that runs the part offers a job.
#[test]
#[cfg(not(miri))]
fn a_waiter_that_sleeps_is_woken_when_there_are_jobs() {
    model(3, || {
        let scene = Modelled::new();
        let bell = Arc::new(super::Bell::<Loom>::new());
        let waiter = {
            let (scene, bell) = (Arc::clone(&scene), Arc::clone(&bell));
            spawn(move || {
                scene.deque.request_ring(&bell);
                if !(Loom::heavy_fence() && scene.deque.has_jobs()) {
                    // The model checker reports a sleep without an end.
                    bell.sleep_unless(|| scene.deque.has_jobs());
                }
            })
        };
        assert!(scene.deque.push(scene.jobs[0].whole()).is_some());
        if scene.deque.has_request() {
            let requests = scene.deque.take_requests();
            scene.deque.share();
            scene.deque.ring_for(requests);
        }
        Loom::join(waiter);
        scene.end(0);
    });
}

/// Thieves take the jobs of an owner that never does anything again.
#[test]
fn jobs_of_an_owner_that_does_not_answer_are_stolen_oldest_first() {
    let scene = Scene::<Linux>::new();
    (0..3).for_each(|job| scene.push(job));
    let order: Vec<usize> = core::iter::from_fn(|| {
        for _ in 0..2 {
            match scene.deque.steal(|| true) {
                Steal::Job(job) => {
                    let number = scene
                        .jobs
                        .iter()
                        .position(|own| core::ptr::eq(&raw const own.job, job.as_ptr()));
                    // SAFETY: stolen just now.
                    unsafe {
                        job.as_ref().progress.begin(7);
                        Job::execute(job, Some(&scene.deque));
                    };
                    return number;
                }
                Steal::Private => scene.deque.claim(|| true),
                Steal::Empty => return None,
            }
        }
        None
    })
    .collect();
    assert_eq!(order, [0, 1, 2]);
    assert!(!scene.deque.has_jobs() && !scene.deque.is_empty());
    assert_eq!(scene.jobs[0].job.progress.thief(), None, "it is done");
    (0..3).rev().for_each(|job| scene.end(job));
    assert!(scene.deque.is_empty());
}

#[test]
fn a_full_deque_refuses_a_job() {
    let scene = Scene::<Linux>::new();
    let jobs: [_; CAPACITY] = core::array::from_fn(|_| Counted::<Linux>::new());
    for counted in &jobs {
        assert!(scene.deque.push(counted.whole()).is_some());
    }
    assert!(scene.deque.push(scene.jobs[0].whole()).is_none());
    for _ in &jobs {
        assert_eq!(scene.pop(), Popped::Own);
    }
    assert!(scene.deque.push(scene.jobs[0].whole()).is_some());
    assert_eq!(scene.pop(), Popped::Own);
}

/// What a thief read before the deque was used for another group does not let it steal anything.
#[test]
fn a_thief_that_was_stopped_gets_no_job_of_another_kind() {
    let scene = Scene::<Linux>::new();
    scene.push(0);
    let before = scene.deque.load(Ordering::Acquire);
    scene.end(0);
    scene.deque.begin(core::ptr::null());
    assert!(scene.deque.load(Ordering::Acquire).epoch() > before.epoch());
    scene.push(1);
    assert!(!scene.deque.change(before, before.shared(1)));
    scene.end(1);
}

/// Real threads: the owner forks and joins all the time, and two thieves steal what they can.
#[test]
fn real_thieves_lose_and_double_nothing() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };
    let scene = Scene::<Linux>::new();
    let over = Arc::new(<Linux as LockPlatform>::AtomicU32::new(0));
    let thieves: Vec<_> = (0..2)
        .map(|number| {
            let (scene, over) = (Arc::clone(&scene), Arc::clone(&over));
            let main = move || {
                let mut stolen = 0;
                while over.load(Ordering::Acquire) == 0 {
                    stolen += usize::from(scene.steal(number));
                }
                println!("thief {number} stole {stolen}");
            };
            Linux::spawn(nearq_platform::ThreadSpec::default(), main).unwrap()
        })
        .collect();
    for _ in 0..ROUNDS {
        let jobs: [_; 2] = core::array::from_fn(|_| Counted::<Linux>::new());
        for counted in &jobs {
            assert!(scene.deque.push(counted.whole()).is_some());
            if scene.deque.has_request() {
                scene.deque.take_requests();
                scene.deque.share();
            }
        }
        for counted in jobs.iter().rev() {
            match scene.pop() {
                Popped::Own => counted.count(),
                Popped::Stolen => scene.wait_for(counted),
            }
            assert_eq!(counted.runs(), 1);
        }
    }
    over.store(1, Ordering::Release);
    thieves.into_iter().for_each(Linux::join);
}

//! A plain pool that steals at random, for simulated machines: a thread for each CPU, each with a deque (D. Chase and Y. Lev, "Dynamic
//! Circular Work-Stealing Deque", SPAA 2005). A thread takes its newest job first; a thread that has none takes the oldest job of another
//! one, which it finds by going round from a random one; on large machines it gives up after some. A join whose second job is stolen runs any other job meanwhile. How many threads
//! are awake follows rayon's rules: an offer wakes a thread if none searches or the deque had jobs already, and a thread that finds work
//! wakes up to two others.
//!
//! # No wake-up is lost
//! A thread that offers a job writes the deque's `bottom`, then reads `counters`. One that goes to sleep writes `asleep` and `counters`, then
//! reads all deques and the word whose change it waits for. All are `SeqCst` (Dekker's pattern), so one of the two sees the other. The ends
//! of jobs and of the work are announced in the same way: the word is written, then `asleep` is read.

use super::simulated::{Forks, Origin, Program, Task};
use crate::Error;
use crate::harness::failed;
use nearq_platform::{Atomic as _, AtomicInt as _, LockPlatform as _, ThreadSpec, Threads as _};
use nearq_sim::{AtomicU32, AtomicU64, Sim};
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Searches that find nothing before a thread sleeps: as many as rayon's.
const ROUNDS: u32 = 32;
/// How many threads a search looks at.
const VICTIMS: usize = 32;
/// Threads that rayon wakes, at most, when one finds work.
const WOKEN: u32 = 2;
/// Jobs that a deque has room for. What is forked beyond that is not offered.
const ROOM: u64 = 256;

/// A job that a thread offers.
#[derive(Clone)]
struct Job {
    task: Task,
    at: Origin,
    /// The number of the thread.
    owner: usize,
    /// 1 when it is done.
    done: Arc<AtomicU32>,
}

/// What others see of a thread: its jobs, and whether it sleeps. In lines of its own.
#[repr(align(128))]
struct Deque {
    /// Where the oldest job is: thieves, and the owner for its last job, take one by a compare-exchange.
    top: AtomicU64,
    /// Where the next job will be. Written by the owner.
    bottom: AtomicU64,
    /// The jobs, by their position modulo the room. No thread is switched while it holds one.
    jobs: Vec<Mutex<Option<Job>>>,
    /// 1 while the thread sleeps, or is about to. The thread that clears it counts it as awake.
    asleep: AtomicU32,
}

impl Deque {
    fn new() -> Self {
        Self {
            top: AtomicU64::new(0),
            bottom: AtomicU64::new(0),
            jobs: (0..ROOM).map(|_| Mutex::default()).collect(),
            asleep: AtomicU32::new(0),
        }
    }

    fn job(&self, at: u64) -> Option<Job> {
        self.slot(at).clone()
    }

    fn slot(&self, at: u64) -> std::sync::MutexGuard<'_, Option<Job>> {
        self.jobs[(at % ROOM) as usize].lock().expect("no thread panics while holding it")
    }

    /// Offers a job, unless there is no room. Returns whether there was one before. By the owner.
    fn push(&self, job: Job) -> Option<bool> {
        let (top, bottom) = (self.top.load(Ordering::Acquire), self.bottom.load(Ordering::Relaxed));
        if bottom - top >= ROOM {
            return None;
        }
        *self.slot(bottom) = Some(job);
        // SeqCst: see the head of the file. Also pairs with the loads in `steal`.
        self.bottom.store(bottom + 1, Ordering::SeqCst);
        Some(bottom > top)
    }

    /// Takes the newest job. By the owner.
    fn pop(&self) -> Option<Job> {
        let bottom = self.bottom.load(Ordering::Relaxed);
        if self.top.load(Ordering::Relaxed) >= bottom {
            return None;
        }
        let bottom = bottom - 1;
        // SeqCst: pairs with `steal`, which reads `bottom` after `top`: one of the two sees the other.
        self.bottom.store(bottom, Ordering::SeqCst);
        let top = self.top.load(Ordering::SeqCst);
        let job = if top < bottom {
            return self.job(bottom);
        } else if top == bottom && self.take(top) {
            self.job(bottom)
        } else {
            None
        };
        self.bottom.store(bottom + 1, Ordering::Relaxed);
        job
    }

    /// Takes the oldest job. None also if another thread was faster.
    fn steal(&self) -> Option<Job> {
        // SeqCst: pairs with `pop`.
        let top = self.top.load(Ordering::SeqCst);
        if top >= self.bottom.load(Ordering::SeqCst) {
            return None;
        }
        let job = self.job(top);
        self.take(top).then_some(job)?
    }

    /// Takes the job at that position, if it is still the oldest.
    fn take(&self, top: u64) -> bool {
        self.top.compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    fn has_jobs(&self) -> bool {
        self.top.load(Ordering::SeqCst) < self.bottom.load(Ordering::SeqCst)
    }
}

/// The pool.
pub(super) struct Stealing {
    program: Arc<Program>,
    deques: Vec<Deque>,
    /// `idle:16 | sleeping:16`. A thread is idle while it searches or sleeps.
    counters: AtomicU32,
    /// 1 after all the work.
    over: AtomicU32,
}

const ONE_SLEEPING: u32 = 1;
const ONE_IDLE: u32 = 1 << 16;

impl Stealing {
    /// Does the work with that many threads.
    pub(super) fn run(program: &Arc<Program>, threads: usize) -> Result<(), Error> {
        let pool = Arc::new(Self {
            program: Arc::clone(program),
            deques: (0..threads).map(|_| Deque::new()).collect(),
            counters: AtomicU32::new(0),
            over: AtomicU32::new(0),
        });
        let mut started = Vec::new();
        for number in 0..threads {
            let pool = Arc::clone(&pool);
            let main = move || {
                let random = RefCell::new(fastrand::Rng::with_seed(number as u64));
                let worker = Worker { pool: &pool, number, random };
                if number > 0 {
                    return worker.work_until(&pool.over);
                }
                pool.program.all(&worker);
                pool.over.store(1, Ordering::SeqCst);
                for number in 0..pool.deques.len() {
                    pool.wake(number);
                }
            };
            let spec = ThreadSpec { name: format!("stealing{number}"), ..ThreadSpec::default() };
            started.push(Sim::spawn(spec, main).map_err(failed)?);
        }
        started.into_iter().for_each(Sim::join);
        Ok(())
    }

    /// Wakes a thread if it sleeps. True if it did.
    fn wake(&self, number: usize) -> bool {
        let asleep = &self.deques[number].asleep;
        // SeqCst: see the head of the file.
        let slept = asleep.load(Ordering::SeqCst) == 1 && asleep.swap(0, Ordering::SeqCst) == 1;
        if slept {
            self.counters.fetch_sub(ONE_SLEEPING, Ordering::SeqCst);
            Sim::wake(asleep, 1);
        }
        slept
    }

    /// Wakes that many threads, if so many sleep.
    fn wake_any(&self, count: u32) {
        let sleeping = (0..self.deques.len()).filter(|number| count > 0 && self.wake(*number));
        sleeping.take(count as usize).for_each(drop);
    }
}

/// A thread of the pool.
struct Worker<'p> {
    pool: &'p Stealing,
    number: usize,
    random: RefCell<fastrand::Rng>,
}

impl Worker<'_> {
    /// Runs jobs until the word is not 0 any more.
    fn work_until(&self, over: &AtomicU32) {
        while over.load(Ordering::SeqCst) == 0 {
            let Some(job) = self.deque().pop().or_else(|| self.search(over)) else { continue };
            self.pool.program.second(job.task, job.at, self);
            // SeqCst: see the head of the file.
            job.done.store(1, Ordering::SeqCst);
            self.pool.wake(job.owner);
        }
    }

    /// Searches for a job of another thread until the word is not 0 any more.
    fn search(&self, over: &AtomicU32) -> Option<Job> {
        let pool = self.pool;
        pool.counters.fetch_add(ONE_IDLE, Ordering::SeqCst);
        let (mut rounds, mut found) = (0, None);
        while found.is_none() && over.load(Ordering::SeqCst) == 0 {
            found = self.steal();
            if found.is_some() {
                break;
            }
            if rounds < ROUNDS {
                rounds += 1;
                Sim::yield_now();
            } else {
                rounds = 0;
                self.sleep(over);
            }
        }
        let before = pool.counters.fetch_sub(ONE_IDLE, Ordering::SeqCst);
        pool.wake_any((before % ONE_IDLE).min(WOKEN));
        found
    }

    fn steal(&self) -> Option<Job> {
        let count = self.pool.deques.len();
        let first = self.random.borrow_mut().usize(0..count);
        let others = (first..first + count.min(VICTIMS)).map(|at| at % count);
        others.filter(|at| *at != self.number).find_map(|at| self.pool.deques[at].steal())
    }

    fn sleep(&self, over: &AtomicU32) {
        let (pool, asleep) = (self.pool, &self.deque().asleep);
        // SeqCst: see the head of the file.
        asleep.store(1, Ordering::SeqCst);
        pool.counters.fetch_add(ONE_SLEEPING, Ordering::SeqCst);
        if over.load(Ordering::SeqCst) == 0 && !pool.deques.iter().any(Deque::has_jobs) {
            Sim::wait(asleep, 1, None);
        }
        if asleep.swap(0, Ordering::SeqCst) == 1 {
            pool.counters.fetch_sub(ONE_SLEEPING, Ordering::SeqCst);
        }
    }

    fn deque(&self) -> &Deque {
        &self.pool.deques[self.number]
    }
}

impl Forks for Worker<'_> {
    fn both(&self, program: &Program, first: Task, second: Task, at: Origin) {
        let done = Arc::new(AtomicU32::new(0));
        let job = Job { task: second, at, owner: self.number, done: Arc::clone(&done) };
        let Some(had_jobs) = self.deque().push(job) else {
            program.run(first, self);
            return program.second(second, at, self);
        };
        // SeqCst: see the head of the file.
        let counters = self.pool.counters.load(Ordering::SeqCst);
        let (idle, sleeping) = (counters / ONE_IDLE, counters % ONE_IDLE);
        if sleeping > 0 && (had_jobs || idle == sleeping) {
            self.pool.wake_any(1);
        }
        program.run(first, self);
        // The newest of the thread's own jobs is this one, unless it was stolen: then `done` will be set.
        self.work_until(&done);
    }
}

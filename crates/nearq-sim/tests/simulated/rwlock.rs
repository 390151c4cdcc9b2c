//! The reader-writer lock on simulated machines: exclusion and progress with any schedule, while threads are preempted; readers of several
//! caches do not hold each other up; neither readers nor writers starve.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Mode, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard, Settings};
use nearq_model::bound;
use nearq_platform::{LockPlatform, ThreadSpec, Threads};
use nearq_sim::{Costs, Faults, Machine, Sim, Simulation, compute};

use crate::common::{machine, run, schedule_of, spawn, spawn_on, took};

/// On a cache line of its own.
#[repr(align(64))]
struct OnALine<T>(T);

/// Two numbers that are equal unless a writer changes them, and the number of changes that threads have made.
struct Seen(RwLock<(), Sim>, UnsafeCell<(u32, u32)>, UnsafeCell<u32>);
// SAFETY: the first cell is used under the lock, and simulated threads share one real thread, which changes the second one in one step.
unsafe impl Sync for Seen {}

impl Seen {
    fn look(&self) {
        // SAFETY: valid for as long as `self`; the caller has the lock, and the reference is gone at the end of the line.
        let (before, after) = unsafe { *self.1.get() };
        assert_eq!(before, after, "a reader met a writer");
    }

    fn change(&self, time: u64) {
        // SAFETY: valid for as long as `self`; the caller has the lock for writing, and the reference is gone at the end of the line.
        unsafe { (*self.1.get()).0 += 1 };
        compute(Duration::from_nanos(time));
        // SAFETY: as above.
        let (before, after) = unsafe { &mut *self.1.get() };
        *after += 1;
        assert_eq!(before, after, "two threads held the lock");
        // SAFETY: see `Sync`.
        unsafe { *self.2.get() += 1 };
    }

    /// One use of the lock, of the kind that `round` selects: seven of eight read.
    fn round(&self, round: u32) {
        let time = Duration::from_micros(u64::from(round % 30));
        let cost = u64::from(round % 7) * 40;
        let reads = || {
            self.look();
            compute(Duration::from_nanos(cost));
            self.look();
        };
        match round % 32 {
            0..=19 => drop((self.0.read(), reads())),
            20..=24 => _ = self.0.try_read_for(time).map(|_guard| reads()),
            25 => _ = self.0.try_read().map(|_guard| reads()),
            26 => {
                let guard = self.0.upgradable_read();
                reads();
                match RwLockUpgradableReadGuard::try_upgrade_for(guard, time) {
                    Ok(guard) => {
                        self.change(cost);
                        drop((RwLockWriteGuard::downgrade(guard), reads()));
                    }
                    Err(guard) => drop((RwLockUpgradableReadGuard::downgrade(guard), reads())),
                }
            }
            27 => drop((
                RwLockUpgradableReadGuard::upgrade(self.0.upgradable_read()),
                self.change(cost),
            )),
            28 => _ = self.0.try_write_for(time).map(|_guard| self.change(cost)),
            29 => _ = self.0.try_write().map(|_guard| self.change(cost)),
            _ => drop((self.0.write(), self.change(cost))),
        }
        compute(Duration::from_nanos(u64::from(round % 5) * 100));
    }
}

/// Uses the lock in every possible way. Returns how often it was changed, and how often that must have been at least.
fn hammer(threads: u32, rounds: u32, mode: Mode) -> (u32, u32) {
    let mut settings = Settings::default();
    settings.mode = mode;
    settings.set_for_process_in::<Sim>();
    let seen = Arc::new(Seen(RwLock::new_in(()), UnsafeCell::new((0, 0)), UnsafeCell::new(0)));
    let all: Vec<_> = (0..threads)
        .map(|index| {
            let seen = Arc::clone(&seen);
            let main = move || (0..rounds).for_each(|round| seen.round(index * 5 + round));
            Sim::spawn(ThreadSpec::default(), main).expect("a free slot")
        })
        .collect();
    all.into_iter().for_each(Sim::join);
    assert!(!seen.0.is_locked());
    // SAFETY: all other threads have ended.
    let (changed, made) = unsafe { (*seen.1.get(), *seen.2.get()) };
    assert_eq!(changed, (made, made));
    (made, threads * rounds / 16)
}

#[test]
fn two_to_384_threads_exclude_each_other_and_all_finish() {
    for (shape, threads, rounds) in [
        ("core:1", 6, 64),
        ("l3:2 core:4", 2, 96),
        ("numa:2 l3:2 core:4", 16, 96),
        ("numa:2 l3:4 core:4 pu:2", 64, 64),
        ("numa:8 l3:4 core:6 pu:2", 384, 32),
        ("l3:40 core:1", 80, 32),
    ] {
        for mode in [Mode::Off, Mode::Plain, Mode::Auto, Mode::Numa] {
            let outcome =
                Simulation::new(machine(shape), 1).run(move || hammer(threads, rounds, mode));
            let (made, least) = outcome.expect();
            assert!(made >= least, "{shape} {mode:?}: {made} of {least}");
        }
    }
}

#[test]
fn the_lock_survives_any_schedule_and_long_preemptions() {
    for seed in 0..bound(48, 480) {
        let schedule = schedule_of(seed);
        let mut faults = Faults::ALL;
        faults.spawn_refused_one_in = 0;
        let outcome = Simulation::new(machine("numa:2 l3:2 core:2"), seed)
            .schedule(schedule)
            .faults(faults)
            .run(move || hammer(20, 64, Mode::Auto));
        let (made, least) = outcome.expect();
        assert!(made >= least, "seed {seed}: {made} of {least}");
    }
}

/// What threads got of a lock, all of them together.
#[derive(Clone, Copy, Debug, Default)]
struct Got {
    reads: u64,
    writes: u64,
    longest_read: Duration,
    longest_write: Duration,
}

/// `threads` threads, evenly spread over the 64 cores of two EPYC 7551, use a lock for some milliseconds; `writes` of 1000 uses are writes.
fn use_lock(threads: usize, writes: u64, mode: Mode, milliseconds: u64) -> Got {
    let machine = Machine::named("epyc-7551-2s").expect("built in");
    let outcome = Simulation::on(&machine, 3).run(move || {
        let mut settings = Settings::default();
        settings.mode = mode;
        settings.set_for_process_in::<Sim>();
        let lock = Arc::new(OnALine(RwLock::<u64, Sim>::new_in(0)));
        let total = Arc::new(nearq_lock::Mutex::<Got, Sim>::new_in(Got::default()));
        let end = Sim::now() + Duration::from_millis(milliseconds);
        let all: Vec<_> = (0..threads)
            .map(|index| {
                let (lock, total) = (Arc::clone(&lock), Arc::clone(&total));
                spawn_on(index * (64 / threads.min(64)) % 128, move || {
                    let mut got = Got::default();
                    // Any sequence will do; this one has been used for long (Park, Miller, 1988).
                    let mut random = index as u64 + 1;
                    while Sim::now() < end {
                        random = random * 48271 % 0x7fff_ffff;
                        let began = Sim::now();
                        if random % 1000 < writes {
                            let mut guard = lock.0.write();
                            got.longest_write = got.longest_write.max(Sim::now() - began);
                            *guard += 1;
                            compute(Duration::from_nanos(50));
                            got.writes += 1;
                        } else {
                            let _guard = lock.0.read();
                            got.longest_read = got.longest_read.max(Sim::now() - began);
                            compute(Duration::from_nanos(50));
                            got.reads += 1;
                        }
                        compute(Duration::from_nanos(50));
                    }
                    let mut total = total.lock();
                    total.reads += got.reads;
                    total.writes += got.writes;
                    total.longest_read = total.longest_read.max(got.longest_read);
                    total.longest_write = total.longest_write.max(got.longest_write);
                })
            })
            .collect();
        all.into_iter().for_each(Sim::join);
        *total.lock()
    });
    outcome.expect()
}

/// Readers of several caches count themselves by cache, so they do not hold each other up, as they do at one word.
#[test]
fn readers_of_sixteen_caches_scale() {
    let one = use_lock(1, 0, Mode::Auto, 2);
    let many = use_lock(64, 0, Mode::Auto, 2);
    assert!(many.reads >= one.reads * 24, "{one:?}, with 64 threads {many:?}");
    let at_one_word = use_lock(64, 0, Mode::Plain, 2);
    assert!(many.reads >= at_one_word.reads * 50, "{many:?}, at one word {at_one_word:?}");
}

/// A reader that loses one race for the word lends the row: two readers never lose two in a row.
#[test]
fn two_readers_of_two_sockets_scale() {
    let (one, two) = (use_lock(1, 0, Mode::Auto, 1), use_lock(2, 0, Mode::Auto, 1));
    assert!(two.reads * 10 >= one.reads * 18, "{one:?}, two: {two:?}");
}

/// However many readers come at once, the row is lent soon: its lender needs one step that cannot fail.
#[test]
fn no_reader_waits_for_long_until_a_row_is_lent() {
    let got = use_lock(128, 0, Mode::Auto, 1);
    assert!(got.longest_read < Duration::from_micros(150), "{got:?}");
}

/// Writers queue up in the mutex until the one that has the lock leaves, and do not contend for its cache line.
#[test]
fn writers_that_queue_up_leave_the_lock_alone() {
    // Of a millisecond; with a head that waits for the state there were 730 to 780.
    let got = use_lock(32, 1000, Mode::Auto, 4);
    assert!(got.writes > 4 * 1100, "{got:?}");
}

/// While readers count themselves by cache, an upgradable reader that becomes a reader is counted there, too: the count in the lock's word
/// has an end.
#[test]
fn upgradable_readers_become_readers_as_often_as_they_like() {
    let machine = Machine::named("epyc-7551-2s").expect("built in");
    let outcome = Simulation::on(&machine, 1).time_limit(Duration::from_secs(1)).run(|| {
        let lock = Arc::new(OnALine(RwLock::<(), Sim>::new_in(())));
        let read = |index: usize| {
            let lock = Arc::clone(&lock);
            spawn_on(index * 4, move || {
                for _ in 0..200 {
                    let guard = lock.0.read();
                    compute(Duration::from_nanos(50));
                    drop(guard);
                    compute(Duration::from_nanos(50));
                }
            })
        };
        let readers: Vec<_> = (0..16).map(read).collect();
        readers.into_iter().for_each(Sim::join);
        for _ in 0..3000 {
            drop(RwLockUpgradableReadGuard::downgrade(lock.0.upgradable_read()));
        }
        drop(lock.0.write());
        lock.0.is_locked()
    });
    assert!(!outcome.expect());
}

/// A few writers do not end that, and gain from it themselves.
#[test]
fn readers_and_a_few_writers_both_gain_from_readers_by_cache() {
    for writes in [1, 10] {
        let by_cache = use_lock(16, writes, Mode::Auto, 4);
        let at_one_word = use_lock(16, writes, Mode::Plain, 4);
        assert!(
            by_cache.reads >= at_one_word.reads * 4 && by_cache.writes >= at_one_word.writes * 4,
            "{writes} of 1000: {by_cache:?}, at one word {at_one_word:?}"
        );
    }
}

/// No thread waits for long, however many of them read or write, and both classes get what they ask for.
#[test]
fn neither_readers_nor_writers_starve() {
    // Where one use in a hundred is a write, a short run has too few of them to tell their share.
    for (writes, milliseconds) in [(10, 32), (100, 8), (500, 8), (900, 8)] {
        for threads in [4, 16] {
            for mode in [Mode::Plain, Mode::Auto] {
                let got = use_lock(threads, writes, mode, milliseconds);
                let share = got.writes * 1000 / (got.reads + got.writes);
                assert!(
                    (writes * 3 / 4..=writes * 3 / 2).contains(&share)
                        && got.longest_read < Duration::from_millis(1)
                        && got.longest_write < Duration::from_millis(4),
                    "{writes} of 1000, {threads} threads, {mode}: {got:?}"
                );
            }
        }
    }
}

/// Each time that the reader runs, the writer has the lock and is about to run on. To sleep and to be woken takes longer than to let it run.
#[test]
fn a_reader_lets_the_preempted_writer_run_before_it_sleeps() {
    const ROUNDS: u32 = 100;
    let mut costs = Costs::DEFAULT;
    costs.wake_up = 1_000_000;
    let took = run("core:1", &costs, || {
        let lock = Arc::new(RwLock::<u32, Sim>::new_in(0));
        let of_writer = Arc::clone(&lock);
        let writer = spawn(move || {
            for _ in 0..ROUNDS {
                let mut rounds = of_writer.write();
                Sim::yield_now();
                *rounds += 1;
            }
        });
        let reader = spawn(move || while *lock.read() < ROUNDS {});
        took(|| [writer, reader].into_iter().for_each(Sim::join))
    });
    assert!(took < u64::from(ROUNDS) * 1_000_000 / 4, "{took} ns: the reader slept");
}

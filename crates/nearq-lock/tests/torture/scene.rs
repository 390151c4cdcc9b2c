//! What the workers do, and the checks of what must be true afterwards.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Condvar, Mode, Mutex, MutexGuard, Settings};
use nearq_platform::{Instant, Linux, LockPlatform, Ordering};

use crate::chance::{Chance, Pair};
use crate::short_lived::Place;
use crate::system::{_exit, alarm, fork};
use crate::{BOUND, HOT, Word, Worker};

#[derive(Default)]
pub(crate) struct Tokens {
    there: u64,
    given: u64,
    pub(crate) taken: u64,
    /// How many threads wait for a token.
    waiting: u64,
}

/// A worker, as the main thread sees it.
#[derive(Default)]
pub(crate) struct Watched {
    /// When it began something that must come to an end, or 0.
    since: Word,
    /// The longest time that this took.
    pub(crate) longest: Word,
    /// Its thread's number, while it may be interrupted.
    pub(crate) number: Word,
    /// 1 when it has done all its rounds, 2 when it failed.
    pub(crate) done: Word,
}

impl Watched {
    // Relaxed for all: the main thread reads them now and then.

    fn begins(&self) {
        self.since.store(Linux::now().as_nanos(), Ordering::Relaxed);
    }

    fn ends(&self) {
        let since = self.since.load(Ordering::Relaxed);
        if since > 0 {
            let took = Linux::now().as_nanos() - since;
            let longest = self.longest.load(Ordering::Relaxed).max(took);
            self.longest.store(longest, Ordering::Relaxed);
            self.since.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn check(&self) {
        let since = self.since.load(Ordering::Relaxed);
        if since > 0 {
            let waited = Linux::now() - Instant::from_nanos(since);
            assert!(waited < BOUND, "a worker has waited for {waited:?}");
        }
    }
}

pub(crate) struct Scene {
    hot: [Mutex<Pair>; HOT],
    /// How many times each was taken, by threads that have ended.
    pub(crate) taken: [Word; HOT],
    pub(crate) tokens: Mutex<Tokens>,
    more: Condvar,
    places: Mutex<Vec<Place>>,
    pub(crate) destroyed: Word,
    /// The workers that may be interrupted.
    pub(crate) watched: Mutex<Vec<Arc<Watched>>>,
    /// 1 when no thread may be interrupted any more.
    pub(crate) enough: Word,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Scene {
            hot: [const { Mutex::new(Pair(0, 0)) }; HOT],
            taken: Default::default(),
            tokens: Mutex::default(),
            more: Condvar::new(),
            places: Mutex::default(),
            destroyed: Word::default(),
            watched: Mutex::default(),
            enough: Word::default(),
        }
    }

    pub(crate) fn work(&self, watched: &Watched, rounds: u64, chance: &mut Chance) {
        let mut taken = [0; HOT];
        let destroyer = chance.one_in(3);
        for _ in 0..rounds {
            watched.begins();
            match chance.below(32) {
                _ if destroyer => self.use_places(true, chance),
                0..=1 => self.take_token(watched, chance),
                2..=3 => self.give_tokens(chance),
                4 => self.use_places(false, chance),
                _ => self.use_hot(&mut taken, chance),
            }
            watched.ends();
            if !destroyer && chance.one_in(3) {
                chance.dwell();
            }
        }
        // Relaxed: read after the thread was joined.
        for (all, taken) in self.taken.iter().zip(taken) {
            all.fetch_add(taken, Ordering::Relaxed);
        }
    }

    /// Uses one of the mutexes, and sometimes another one while it is held.
    fn use_hot(&self, taken: &mut [u64; HOT], chance: &mut Chance) {
        let which = chance.below(HOT as u64) as usize;
        let Some(mut pair) = Self::take(&self.hot[which], chance) else { return };
        taken[which] += 1;
        pair.use_it(chance);
        if which + 1 < HOT && chance.one_in(8) {
            // Always in this order, so that no threads wait in a circle.
            if let Some(mut second) = Self::take(&self.hot[which + 1], chance) {
                taken[which + 1] += 1;
                second.use_it(chance);
            }
        }
        match chance.below(8) {
            0 => MutexGuard::unlock_fair(pair),
            1 => {
                MutexGuard::bump(&mut pair);
                taken[which] += 1;
                pair.use_it(chance);
            }
            _ => drop(pair),
        }
    }

    fn take<'a>(mutex: &'a Mutex<Pair>, chance: &mut Chance) -> Option<MutexGuard<'a, Pair>> {
        match chance.below(16) {
            0..=2 => mutex.try_lock(),
            3..=5 => mutex.try_lock_for(chance.micros(100)),
            6 => mutex.try_lock_for(Duration::ZERO),
            7 => mutex.try_lock_until_in(Instant::from_nanos(1)),
            8 => mutex.try_lock_for(Duration::from_millis(chance.below(20))),
            _ => Some(mutex.lock()),
        }
    }

    pub(crate) fn give_tokens(&self, chance: &mut Chance) {
        let count = 1 + chance.below(4);
        let mut tokens = self.tokens.lock();
        tokens.there += count;
        tokens.given += count;
        let under_the_mutex = chance.one_in(2);
        if !under_the_mutex {
            drop(tokens);
        }
        if chance.one_in(4) {
            self.more.notify_all();
        } else {
            for _ in 0..count {
                self.more.notify_one();
            }
        }
    }

    fn take_token(&self, watched: &Watched, chance: &mut Chance) {
        let mut tokens = self.tokens.lock();
        let nothing = |tokens: &mut Tokens| tokens.there == 0;
        let deadline = match chance.below(4) {
            0 => None,
            1 => Some(Linux::now()),
            _ => Some(Linux::now() + chance.micros(400)),
        };
        // There may be no token for a long time.
        watched.ends();
        tokens.waiting += 1;
        match deadline {
            None => self.more.wait_while(&mut tokens, nothing),
            Some(deadline) => {
                let in_time = self.more.wait_while_until_in(&mut tokens, nothing, deadline);
                assert!(in_time || Linux::now() >= deadline, "the deadline was early");
            }
        }
        tokens.waiting -= 1;
        if tokens.there > 0 {
            tokens.there -= 1;
            tokens.taken += 1;
        }
    }

    /// Makes one for several users, or uses one as one of them.
    fn use_places(&self, hurry: bool, chance: &mut Chance) {
        if chance.one_in(3) {
            let users = 2 + chance.below(if hurry { 2 } else { 4 });
            let place = Place::new(users);
            self.places.lock().extend((0..users).map(|_| place));
        }
        while let Some(place) = self.a_place(chance) {
            place.use_it(hurry, chance);
            // Relaxed: a count.
            self.destroyed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn a_place(&self, chance: &mut Chance) -> Option<Place> {
        let mut places = self.places.lock();
        let count = places.len() as u64;
        // Usually the last one that was put there, so that several users choose the same one; sometimes any.
        let at = if chance.one_in(4) { chance.below(count.max(1)) } else { count.max(1) - 1 };
        (count > 0).then(|| places.swap_remove(at as usize))
    }

    /// Changes how threads wait, for all mutexes.
    pub(crate) fn change_settings(chance: &mut Chance) {
        let mut settings = Settings::default();
        settings.mode = [Mode::Off, Mode::Plain, Mode::Auto, Mode::Numa][chance.below(4) as usize];
        settings.hand_overs = 16 + chance.below(64) as u32;
        settings.remote_percent = 1 + chance.below(100) as u32;
        settings.batch = 5 + chance.below(300) as u32;
        settings.patience = Duration::from_micros(10 + chance.below(2000));
        settings.quiet = 1 + chance.below(10) as u32;
        settings.yields = chance.below(8) as u32;
        settings.count = chance.one_in(2);
        settings.set_for_process();
    }

    /// Forks while one of the mutexes is held. In the child all are reset except that one, which its thread still holds, and new threads
    /// use them. Returns the child's number.
    pub(crate) fn fork(scene: &Arc<Self>, seed: u64, chance: &mut Chance) -> i32 {
        let held = chance.below(HOT as u64) as usize;
        let guard = scene.hot[held].lock();
        // SAFETY: the child uses nothing that a thread of the parent may have been changing, except what it resets, and ends by `_exit`.
        let child = unsafe { fork() };
        if child == 0 {
            // SAFETY: it ends the child if it hangs.
            unsafe { alarm(BOUND.as_secs() as u32) };
            let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                scene.begin_anew(held);
                let before = guard.0;
                drop(guard);
                let start = |index| Worker::start(scene, 100, Chance::new(seed, u64::MAX - index));
                scene.end((0..3).map(start).collect());
                scene.check(|which| if which == held { before } else { 0 });
            }));
            // SAFETY: ends the child without running what the parent registered.
            unsafe { _exit(i32::from(right.is_err())) };
        }
        assert!(child > 0, "the test can fork");
        child
    }

    fn begin_anew(&self, held: usize) {
        for (which, mutex) in self.hot.iter().enumerate() {
            self.taken[which].store(0, Ordering::Relaxed);
            if which != held {
                // SAFETY: the caller is the only thread, and has no guard of this one.
                unsafe { mutex.renew(Pair::default()) };
            }
        }
        // SAFETY: the caller is the only thread, and has no guard of these three; the parent's mutexes on its pages do not matter.
        unsafe {
            self.tokens.renew(Tokens::default());
            self.places.renew(Vec::new());
            self.watched.renew(Vec::new());
        }
    }

    /// Waits until all have ended, and uses up what they have left. Gives tokens to the threads that wait for some, one by one: each token
    /// must reach a thread.
    pub(crate) fn end(&self, mut workers: Vec<Worker>) {
        let mut given = Linux::now();
        while !workers.is_empty() {
            workers = Worker::join_ended(workers);
            let mut tokens = self.tokens.lock();
            if tokens.there == 0 || tokens.waiting == 0 {
                given = Linux::now();
            }
            assert!(Linux::now() - given < BOUND, "a notification did not arrive");
            if tokens.there == 0 && tokens.waiting > 0 {
                tokens.there += 1;
                tokens.given += 1;
                // All may have been notified before, without having returned yet.
                self.more.notify_one();
            }
            drop(tokens);
            Linux::sleep(Duration::from_micros(100));
        }
        let mut chance = Chance::new(0, 0);
        while let Some(place) = self.a_place(&mut chance) {
            place.use_it(true, &mut chance);
            // Relaxed: a count.
            self.destroyed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether all the counts add up.
    pub(crate) fn check(&self, before: impl Fn(usize) -> u64) {
        for (which, (mutex, taken)) in self.hot.iter().zip(&self.taken).enumerate() {
            let pair = mutex.try_lock().expect("no thread uses it any more");
            let expected = before(which) + taken.load(Ordering::Relaxed);
            assert_eq!((pair.0, pair.1), (expected, expected), "mutex {which}");
        }
        let tokens = self.tokens.try_lock().expect("no thread uses it any more");
        assert_eq!(tokens.given, tokens.taken + tokens.there);
        assert!(!self.more.notify_one(), "a thread still waits");
    }
}

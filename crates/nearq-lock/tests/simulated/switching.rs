//! When a mutex has queues by cache, which cache has the turn, and what that gains or costs, on simulated machines.
//!
//! Threads take a mutex again and again, each pinned to a CPU; between two times they compute for a while. Throughput is compared with that
//! of one queue in the same load.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Mode, Mutex, Settings, Statistics};
use nearq_platform::{Atomic, LockPlatform, Ordering, ThreadSpec, Threads};
use nearq_sim::{AtomicU64, Machine, Sim, Simulation};
use nearq_topology::CpuSet;

/// A counter on a line of its own. A mutex protects two of them.
#[repr(align(128))]
struct Line(AtomicU64);

/// A load: the CPUs of the threads, how long they compute between two times, and how long all of it takes.
#[derive(Clone)]
struct Load {
    machine: &'static str,
    cpus: Vec<usize>,
    outside: Duration,
    duration: Duration,
}

/// What the threads did: how often each took the mutex, the longest wait, and the mutex's own counts.
struct Done {
    taken: Vec<u64>,
    longest: Duration,
    counts: Statistics,
}

impl Done {
    fn all(&self) -> f64 {
        self.taken.iter().sum::<u64>() as f64
    }
}

impl Load {
    fn new(machine: &'static str, cpus: impl IntoIterator<Item = usize>, outside_ns: u64) -> Self {
        let (cpus, duration) = (cpus.into_iter().collect(), Duration::from_millis(4));
        Load { machine, cpus, outside: Duration::from_nanos(outside_ns), duration }
    }

    /// Runs it, with settings that `change` makes from the usual ones.
    fn run(&self, change: impl FnOnce(&mut Settings) + 'static) -> Done {
        self.run_with(1, change)
    }

    /// How much more often the mutex is taken in mode `auto` than with one queue: the median and the largest ratio of five seeds, and both
    /// runs of the median. In a single run it depends on the order in which the threads begin whether the mutex has queues by cache early.
    fn compared(&self) -> ([f64; 2], [Done; 2]) {
        let ratio = |seed: &u64| {
            let done = [Mode::Plain, Mode::Auto]
                .map(|mode| self.run_with(*seed, move |settings| settings.mode = mode));
            (done[1].all() / done[0].all(), done)
        };
        let mut all: Vec<_> = [1, 2, 3, 4, 5].iter().map(ratio).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let best = all[4].0;
        let (median, done) = all.swap_remove(2);
        ([median, best], done)
    }

    fn run_with(&self, seed: u64, change: impl FnOnce(&mut Settings) + 'static) -> Done {
        let load = self.clone();
        let machine = Machine::described(self.machine).expect("there is such a machine");
        let main = move || {
            let mut settings = Settings::default();
            settings.count = true;
            change(&mut settings);
            settings.set_for_process_in::<Sim>();
            load.threads()
        };
        Simulation::on(&machine, seed).run(main).expect()
    }

    fn threads(&self) -> Done {
        let mutex =
            Arc::new(Mutex::<_, Sim>::new_in([0; 2].map(|count| Line(AtomicU64::new(count)))));
        let each = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
        let end = Sim::now() + self.duration;
        let outside = self.outside;
        let spawn = |&cpu: &usize| {
            let (mutex, each) = (Arc::clone(&mutex), Arc::clone(&each));
            let spec = ThreadSpec { affinity: Some(CpuSet::single(cpu)), ..ThreadSpec::default() };
            let main = move || {
                let (mut taken, mut longest) = (0, Duration::ZERO);
                while Sim::now() < end {
                    let before = Sim::now();
                    let guard = mutex.lock();
                    longest = longest.max(Sim::now() - before);
                    for Line(count) in &*guard {
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                    drop(guard);
                    taken += 1;
                    nearq_sim::compute(outside);
                }
                each.lock().push((taken, longest));
            };
            Sim::spawn(spec, main).expect("the simulator has threads left")
        };
        let threads: Vec<_> = self.cpus.iter().map(spawn).collect();
        threads.into_iter().for_each(Sim::join);
        let each = each.lock();
        let taken: Vec<u64> = each.iter().map(|(taken, _)| *taken).collect();
        assert_eq!(
            taken.iter().sum::<u64>(),
            mutex.lock()[1].0.load(Ordering::Relaxed),
            "it excludes other threads"
        );
        let longest = each.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
        Done { taken, longest, counts: Statistics::of_process_in::<Sim>() }
    }
}

/// The CPUs of the first cores, cache by cache, and a core of each cache in turn, of two EPYC 9654: 24 caches of 8 cores.
fn compact(threads: usize) -> impl Iterator<Item = usize> {
    0..threads
}

fn spread(threads: usize) -> impl Iterator<Item = usize> {
    (0..threads).map(|thread| thread % 24 * 8 + thread / 24)
}

const EPYC: &str = "epyc-9654-2s";

#[test]
fn loads_around_the_limit_of_one_queue_are_not_much_slower() {
    // Around the point at which one queue is just able to do what the threads want, and beyond it.
    for (threads, outside_ns, least) in [
        // It was at least 0.93 before batches became shorter where few threads of a cache wait.
        (12, 3000, 0.92),
        (16, 4000, 0.94),
        // A single run has 0.64 to 1.06: here one queue is just fast enough that hardly any thread waits, and a mutex that has queues by cache
        // may keep them.
        (16, 5000, 0.8),
        (24, 8000, 0.94),
        (32, 8000, 0.94),
    ] {
        let load = Load::new(EPYC, compact(threads), outside_ns);
        let ([ratio, _], _) = load.compared();
        assert!(ratio > least, "{threads} threads, {outside_ns} ns: {ratio:.3}");
    }
    // Single runs have 0.64 to 1.17, medians of five 0.88 to 1.07.
    let ([ratio, best], _) = Load::new(EPYC, spread(32), 2000).compared();
    assert!(ratio > 0.75 && best > 0.94, "spread: {ratio:.3}, {best:.3}");
}

#[test]
fn queues_by_cache_are_faster_and_no_thread_waits_much_longer() {
    // The first row has two outcomes, by seed and by where the allocator puts things: 1.1 and 1.8 to 2.0.
    for (threads, outside_ns, gain, best_gain) in
        [(16, 0, 1.03, 1.5), (16, 1000, 1.4, 1.4), (32, 3000, 1.2, 1.2)]
    {
        let load = Load::new(EPYC, compact(threads), outside_ns);
        let ([ratio, best], [plain, auto]) = load.compared();
        let what = format!("{threads} threads, {outside_ns} ns");
        assert!(auto.counts.bound > 0, "{what}");
        assert!(ratio > gain && best > best_gain, "{what}: {ratio:.3}, {best:.3}");
        assert!(auto.longest < 4 * plain.longest, "{what}: {:?}", [plain.longest, auto.longest]);
    }
}

#[test]
fn threads_that_wait_for_long_are_awake_when_the_turn_comes() {
    // In each of 4 caches, 8 threads wait for some 30 us: longer than they would spin if the turn did not come back soon.
    let auto = Load::new(EPYC, compact(32), 4000).run(|_| {});
    let asleep = auto.counts.slept_in_queue as f64 / auto.counts.in_turn as f64;
    assert!(asleep < 0.5, "{asleep:.3} of the turns were waited for asleep");
}

#[test]
fn the_turn_goes_to_every_cache_in_a_round_however_long_the_patience() {
    // Two nodes of two caches: the caches of the other node must not wait until the patience is over.
    let load = Load::new("numa:2 l3:2 core:4", 0..16, 0);
    let done = load.run(|settings| {
        (settings.mode, settings.patience) = (Mode::Numa, Duration::from_secs(1));
    });
    let (least, most) = (done.taken.iter().min().unwrap(), done.taken.iter().max().unwrap());
    assert!(least * 3 > *most, "{:?}", done.taken);
}

#[test]
fn a_mutex_keeps_one_queue_if_few_threads_of_a_cache_wait_together() {
    // 24 caches; in 8 of them a second thread: fewer than three threads for two caches.
    let done = Load::new(EPYC, spread(32), 1000).run(|_| {});
    assert!(done.counts.across > 1000, "{:?}", done.counts);
    assert_eq!(done.counts.bound, 0, "{:?}", done.counts);
    // Two in each.
    let done = Load::new(EPYC, spread(48), 1000).run(|_| {});
    assert!(done.counts.bound > 0, "{:?}", done.counts);
}

#[test]
fn a_mutex_whose_batches_run_dry_tries_one_queue_again() {
    // No cache has a thread left after 8 turns, long before its batch is over.
    let done = Load::new(EPYC, compact(16), 3000).run(|_| {});
    assert!(done.counts.unbound > 0 && done.counts.bound > 1, "{:?}", done.counts);
    // Threads that come back at once keep their queues.
    let done = Load::new(EPYC, compact(16), 100).run(|_| {});
    assert_eq!((done.counts.bound, done.counts.unbound), (1, 0), "{:?}", done.counts);
}

/// With four threads in each of two caches, a batch is over after a fifth of 100 turns of each that waits; with eight, after the whole batch.
#[test]
fn batches_are_shorter_where_few_threads_wait() {
    let batch = |cpus: Vec<usize>| {
        let done = Load::new(EPYC, cpus, 300).run(|settings| {
            settings.mode = Mode::Numa;
            settings.batch = 100;
        });
        done.all() / done.counts.across as f64
    };
    let (few, many) = (batch(vec![0, 1, 2, 3, 8, 9, 10, 11]), batch(compact(16).collect()));
    assert!(few < 60.0 && many > 120.0, "{few:.1}, {many:.1}");
}

/// While the turn is on its way to another cache, the thread that had the mutex last takes it several times more: not always the same one.
#[test]
fn threads_of_a_cache_have_about_the_same_share() {
    let done = Load::new("epyc-7551-2s", 0..32, 100).run(|settings| settings.mode = Mode::Numa);
    for cache in done.taken.chunks(4) {
        let (least, most) = (cache.iter().min().unwrap(), cache.iter().max().unwrap());
        assert!(*most < 4 * least, "{:?}", done.taken);
    }
}

/// With a depth, a mutex has queues by cache if so many threads wait, and only then: also if all of them are in one cache.
#[test]
fn a_depth_decides_in_place_of_hand_overs_across() {
    let bound = |cpus: &mut dyn Iterator<Item = usize>, depth| {
        let done = Load::new(EPYC, cpus, 0).run(move |settings| settings.depth = depth);
        done.counts.bound > 0
    };
    assert_eq!([0, 4, 7].map(|depth| bound(&mut compact(8), depth)), [false, true, false]);
    assert_eq!([0, 8, 20].map(|depth| bound(&mut spread(20), depth)), [false, true, false]);
}

/// One queue has two speeds here: by chance its waiters sleep when their turn comes, and then the thread that has released the mutex takes it
/// several times more. Queues by cache have one.
#[test]
fn queues_by_cache_have_one_speed_where_one_queue_has_two() {
    let load = Load { duration: Duration::from_millis(2), ..Load::new(EPYC, compact(16), 0) };
    let run = |mode, seed| load.run_with(seed, move |settings| settings.mode = mode);
    let by_cache: Vec<f64> = (1..=6).map(|seed| run(Mode::Auto, seed).all()).collect();
    let least = by_cache.iter().copied().fold(f64::INFINITY, f64::min);
    let most = by_cache.iter().copied().fold(0.0, f64::max);
    assert!(least > 0.9 * most, "{by_cache:?}");
    for seed in 1..=6 {
        let one = run(Mode::Plain, seed);
        let asleep = one.counts.slept_in_queue as f64 / one.counts.in_turn as f64;
        let part = one.all() / least;
        assert!(
            (asleep < 0.2 && part < 0.7) || (asleep > 0.6 && part > 0.7),
            "seed {seed}: {part:.2} of queues by cache, {asleep:.2} of the waiters slept"
        );
    }
}

//! Work gets started whatever the items do (sleep, block, fill every thread). If no item sleeps, there are never more running items than
//! CPUs.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use nearq_core::{AffinityScope, CpuSet, JoinHandle, Runtime, Work, Workqueue};
use nearq_platform::{Linux, Placement, Threads};

use crate::common::{self, Gate, PATIENCE, alone, watch};

/// Spawns that many items, which sleep until the gate opens, and waits until all of them have started.
fn fill(queue: &Workqueue, count: usize, gate: &Gate) -> Vec<JoinHandle<()>> {
    let (sender, receiver) = mpsc::channel();
    let handles = (0..count)
        .map(|_| {
            let (gate, sender) = (gate.clone(), sender.clone());
            queue.spawn(move || {
                sender.send(()).unwrap();
                gate.wait();
            })
        })
        .collect();
    (0..count).for_each(|_| receiver.recv_timeout(PATIENCE).unwrap());
    handles
}

#[test]
fn an_item_starts_although_every_worker_sleeps_in_another_item() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("asleep").build().unwrap();
    let gate = Gate::default();
    // More items than CPUs: the monitor had to notice each sleeping item beyond that number.
    let sleepers = fill(&queue, runtime.parallelism() + 3, &gate);
    let mut times = Vec::new();
    for _ in 0..11 {
        let begin = Instant::now();
        queue.spawn(|| {}).join().unwrap();
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    println!("another item was started and had ended after {times:?}");
    assert!(times[5] < Duration::from_millis(100), "{times:?}");
    gate.open();
    for handle in sleepers {
        handle.join().unwrap();
    }
}

#[test]
fn each_of_many_sleepers_starts_in_turn() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    for scope in [AffinityScope::Cpu, AffinityScope::System] {
        let queue = runtime.workqueue_builder("sleepers").affinity_scope(scope).build().unwrap();
        let gate = Gate::default();
        let begin = Instant::now();
        let sleepers = fill(&queue, 20, &gate);
        println!("{scope}: 20 sleepers had started after {:?}", begin.elapsed());
        gate.open();
        for handle in sleepers {
            handle.join().unwrap();
        }
    }
}

#[test]
fn the_limit_of_threads_holds() {
    let _alone = alone();
    const LIMIT: u32 = 4;
    let runtime = Runtime::builder().thread_limit(LIMIT).build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("limited").build().unwrap();
    let (gate, started) = (Gate::default(), Arc::new(AtomicU32::new(0)));
    let handles: Vec<_> = (0..10)
        .map(|_| {
            let (gate, started) = (gate.clone(), Arc::clone(&started));
            queue.spawn(move || {
                started.fetch_add(1, Ordering::SeqCst);
                gate.wait();
            })
        })
        .collect();
    common::eventually("every thread has an item", || started.load(Ordering::SeqCst) == LIMIT);
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        assert!(runtime.thread_count() <= LIMIT as usize);
        let workers = common::threads().into_values().filter(|name| name != "nq/monitor").count();
        assert!(workers <= LIMIT as usize, "{:?}", common::threads());
        assert_eq!(started.load(Ordering::SeqCst), LIMIT);
        std::thread::yield_now();
    }
    gate.open();
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(started.load(Ordering::SeqCst), 10);
}

/// Runs items so short and so many that workers take them in large batches.
fn warm_up(queue: &Workqueue) {
    let short: Vec<_> = (0..2000).map(|_| queue.spawn(|| {})).collect();
    for handle in short {
        handle.join().unwrap();
    }
}

#[test]
fn a_batch_whose_first_item_blocks_does_not_delay_the_others() {
    let _alone = alone();
    let runtime = Runtime::builder().spin(0).build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let cpu = runtime.allowed_cpus().first().unwrap();
    let before = Linux::affinity(Linux::current_thread()).unwrap();
    for (what, scope, strict) in [
        ("one CPU, strict", AffinityScope::Cpu, true),
        ("one CPU, helped", AffinityScope::Cpu, false),
        ("all CPUs", AffinityScope::System, false),
    ] {
        let queue = runtime
            .workqueue_builder(what)
            .affinity_scope(scope)
            .affinity_strict(strict)
            .build()
            .unwrap();
        for round in 0..5 {
            warm_up(&queue);
            // The monitor and the workers go to sleep.
            common::eventually("all are asleep", || {
                runtime.workers().iter().all(|worker| worker.sleeping)
            });
            std::thread::sleep(Duration::from_millis(40));
            // On the worker's CPU: the worker does not run before everything is queued, and then takes all of it at once.
            Linux::set_affinity(Linux::current_thread(), &CpuSet::single(cpu)).unwrap();
            let gate = Gate::default();
            let gate_clone = gate.clone();
            let blocker = queue.spawn(move || gate_clone.wait());
            let begin = Instant::now();
            let others: Vec<_> = (0..8).map(|_| queue.spawn(move || begin.elapsed())).collect();
            let late = loop {
                if others.iter().all(JoinHandle::is_finished) {
                    break None;
                }
                // The tests on simulated machines show how soon the rule starts the items. Without the rule, the items wait until the gate
                // is open.
                if begin.elapsed() > PATIENCE {
                    break Some(others.iter().filter(|other| !other.is_finished()).count());
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            Linux::set_affinity(Linux::current_thread(), &before).unwrap();
            gate.open();
            blocker.join().unwrap();
            assert_eq!(late, None, "{what}, round {round}: items wait behind one that blocks");
        }
    }
}

#[test]
fn items_behind_a_blocker_that_follows_short_items_are_not_delayed() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    for scope in [AffinityScope::Cpu, AffinityScope::System] {
        let queue = runtime.workqueue_builder("mixed").affinity_scope(scope).build().unwrap();
        for round in 0..20 {
            let gate = Gate::default();
            let mut handles = Vec::new();
            let begin = Instant::now();
            for number in 0..400 {
                let gate_clone = gate.clone();
                handles.push(queue.spawn(move || {
                    if number % 133 == 100 {
                        gate_clone.wait();
                    }
                }));
            }
            let blocked = |handles: &[JoinHandle<()>]| {
                handles.iter().filter(|handle| !handle.is_finished()).count()
            };
            while blocked(&handles) > 3 && begin.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            let left = blocked(&handles);
            gate.open();
            for handle in handles {
                handle.join().unwrap();
            }
            assert_eq!(left, 3, "{scope}, round {round}: only the blockers are left");
        }
    }
}

/// Counts the items inside, and remembers the maximum.
#[derive(Default)]
struct Crowd {
    inside: AtomicUsize,
    most: AtomicUsize,
    /// The number of visits during which there was at least one item more than there are CPUs.
    crowded: AtomicUsize,
}

impl Crowd {
    fn visit(&self, time: Duration, places: usize) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        if inside > places {
            self.crowded.fetch_add(1, Ordering::SeqCst);
        }
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn no_more_items_run_at_once_than_there_are_cpus() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let places = runtime.parallelism();
    let _watchdog = watch(Some(&runtime));
    let queues = [AffinityScope::Cpu, AffinityScope::System, AffinityScope::Cache]
        .map(|scope| runtime.workqueue_builder("crowd").affinity_scope(scope).build().unwrap());
    // Every item has a worker, and no item is stuck because it has none.
    for queue in &queues {
        queue.spawn(|| {}).join().unwrap();
    }
    // If other programs take the CPUs, a worker that waits for a CPU for 10 ms is replaced, and there is one worker too many when it comes
    // back. That is not a fault, and it does not last; without a limit every round has far too many. The tests on simulated machines check
    // the exact number, without other programs.
    let mut seen = Vec::new();
    while seen.len() < 20 {
        let (most, crowded) = crowd_of(&queues, places);
        println!("{most} at once on {places} CPUs; {crowded} visits with more than one for each");
        // Without a limit there would always be one worker for each CPU of each queue, and helpers in addition.
        if most <= places + 1 && crowded <= 300 {
            return;
        }
        seen.push((most, crowded));
    }
    panic!(
        "on {places} CPUs, the most at once and how many of 3000 visits found too many: {seen:?}"
    );
}

/// Runs 3000 items; returns the most that ran at once, and how many of them found more than `places` running.
fn crowd_of(queues: &[Workqueue], places: usize) -> (usize, usize) {
    let crowd = Arc::new(Crowd::default());
    // The items exist beforehand. Workers that free memory wait for the allocator's lock, whose holder may not get a CPU on a busy machine;
    // then another worker may take their place.
    let done = Arc::new(AtomicUsize::new(0));
    let works: Vec<_> = (0..3000)
        .map(|_| {
            let (crowd, done) = (Arc::clone(&crowd), Arc::clone(&done));
            Work::new(move |_: &Work| {
                crowd.visit(Duration::from_micros(100), places);
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    for (number, work) in works.iter().enumerate() {
        queues[number % 3].queue(work);
    }
    common::eventually("all have run", || done.load(Ordering::SeqCst) == works.len());
    (crowd.most.load(Ordering::SeqCst), crowd.crowded.load(Ordering::SeqCst))
}

#[test]
fn every_queue_makes_progress_beside_an_endless_one() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let places = runtime.parallelism();
    let greedy =
        runtime.workqueue_builder("greedy").affinity_scope(AffinityScope::System).build().unwrap();
    let modest =
        runtime.workqueue_builder("modest").affinity_scope(AffinityScope::Cpu).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let crowd = Arc::new(Crowd::default());
    // Items that are always followed by further items.
    let works: Vec<_> = (0..4 * runtime.parallelism())
        .map(|_| {
            let crowd = Arc::clone(&crowd);
            Work::new(move |_: &Work| crowd.visit(Duration::from_micros(50), places))
        })
        .collect();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for work in &works {
                    greedy.queue(work);
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let mut times: Vec<_> = (0..50)
            .map(|_| {
                let begin = Instant::now();
                modest.spawn(|| {}).join().unwrap();
                begin.elapsed()
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        times.sort_unstable();
        println!("beside a greedy queue: median {:?}, worst {:?}", times[25], times[49]);
        assert!(times[25] < Duration::from_millis(100), "{times:?}");
    });
}

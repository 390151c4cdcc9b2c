//! What a snapshot shows of a mutex that has queues by cache, on simulated machines with several caches.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Mode, Mutex, Settings, Snapshot};
use nearq_platform::{LockPlatform, ThreadSpec, Threads};
use nearq_sim::{Outcome, Sim, Simulation};
use nearq_topology::{CpuSet, Topology};

fn on<R: 'static>(machine: &str, main: impl FnOnce() -> R + 'static) -> Outcome<R> {
    let machine = Topology::from_synthetic(machine).expect("the description is well formed");
    Simulation::new(machine, 1).jitter(false).run(main)
}

/// Threads on these CPUs that want the mutex once each.
fn wanted_on(
    cpus: impl IntoIterator<Item = usize>,
    mutex: &Arc<Mutex<u32, Sim>>,
) -> Vec<<Sim as Threads>::JoinHandle> {
    let spawn = |cpu| {
        let mutex = Arc::clone(mutex);
        let spec = ThreadSpec { affinity: Some(CpuSet::single(cpu)), ..ThreadSpec::default() };
        Sim::spawn(spec, move || *mutex.lock() += 1).expect("the simulator has threads left")
    };
    let threads = cpus.into_iter().map(spawn).collect();
    // By then all threads have found it held, and have queued up.
    Sim::sleep(Duration::from_millis(1));
    threads
}

/// What a snapshot shows for each mutex: whether it is held, and in how many caches threads wait.
fn seen() -> Vec<(bool, u32)> {
    let seen = Snapshot::of_process_in::<Sim>();
    seen.mutexes.iter().map(|seen| (seen.held, seen.caches)).collect()
}

/// Sets the mode of the process. Waiters queue up at once; one hand-over to another cache is enough for a change, and one quiet moment for
/// the way back.
fn set_mode(mode: Mode) {
    let mut settings = Settings::default();
    (settings.mode, settings.yields, settings.quiet) = (mode, 0, 1);
    (settings.hand_overs, settings.remote_percent) = (16, 1);
    settings.set_for_process_in::<Sim>();
}

#[test]
fn a_snapshot_shows_the_caches_of_a_mutex_until_it_changes_back() {
    // Four caches of four CPUs; 40 caches of two, which share 32 domains.
    for (machine, cpus_of_a_cache, most) in
        [("numa:2 l3:2 core:4", 4, 4), ("numa:4 l3:10 core:2", 2, 32)]
    {
        let outcome = on(machine, move || {
            assert_eq!(
                Snapshot::of_process_in::<Sim>(),
                Snapshot::default(),
                "no thread has waited yet"
            );
            assert!(Sim::shared().is_null(), "a snapshot allocates nothing");
            set_mode(Mode::Numa);
            let mutex = Arc::new(Mutex::<u32, Sim>::new_in(0));
            let mut count = 0;
            for caches in 1..=most {
                // The caches in order, except where two share a domain: of these the first.
                let of_caches = (0..most).map(|domain| match most {
                    32 => usize::div_ceil(domain * 40, 32),
                    _ => domain,
                });
                let cpus: Vec<_> = of_caches
                    .take(caches)
                    .flat_map(|cache| (0..2).map(move |cpu| cache * cpus_of_a_cache + cpu))
                    .collect();
                let guard = mutex.lock();
                let threads = wanted_on(cpus.iter().copied(), &mutex);
                if caches == 1 {
                    assert_eq!(seen(), [], "there is one queue");
                } else {
                    assert_eq!(seen(), [(true, caches as u32)]);
                }
                drop(guard);
                count += threads.len() as u32;
                threads.into_iter().for_each(Sim::join);
                assert_eq!(*mutex.lock(), count);
                assert_eq!(seen(), [(false, 0)], "no thread wants it, and it keeps its queues");
            }
            // Back to one queue, by the next thread that takes it.
            set_mode(Mode::Auto);
            drop(mutex.lock());
            assert_eq!(seen(), []);
            assert!(Snapshot::of_process_in::<Sim>().slots > 0, "slots stay when they are made");
        });
        outcome.expect();
    }
}

#[test]
fn a_snapshot_shows_a_mutex_that_becomes_adaptive() {
    let outcome = on("numa:2 l3:2 core:4", || {
        set_mode(Mode::Auto);
        let mutex = Arc::new(Mutex::<u32, Sim>::new_in(0));
        let end = Sim::now() + Duration::from_millis(5);
        let threads: Vec<_> = (0..16)
            .map(|cpu| {
                let mutex = Arc::clone(&mutex);
                let spec =
                    ThreadSpec { affinity: Some(CpuSet::single(cpu)), ..ThreadSpec::default() };
                let main = move || {
                    while Sim::now() < end {
                        *mutex.lock() += 1;
                    }
                };
                Sim::spawn(spec, main).expect("the simulator has threads left")
            })
            .collect();
        let mut most = 0;
        while Sim::now() < end {
            if let [(_, caches)] = seen()[..] {
                assert!(caches <= 4);
                most = most.max(caches);
            }
            Sim::sleep(Duration::from_micros(50));
        }
        threads.into_iter().for_each(Sim::join);
        drop(mutex.lock());
        (most, seen())
    });
    assert_eq!(outcome.expect(), (4, vec![]));
}

//! Processes: what a forked process inherits, what exec resets, and how a process waits for another.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{
    Atomic, AtomicInt, LockPlatform, MemoryPolicy, Ordering, Parker, Placement, SchedPolicy,
    ThreadSpec, Threads,
};
use nearq_sim::{
    Activity, AtomicU64, Costs, Ending, Outcome, ProcessInfo, Sim, Simulation, Thread, compute,
};
use nearq_topology::{CpuSet, Topology};

const PAGE: usize = 4096;
const MILLISECOND: Duration = Duration::from_millis(1);

fn try_run<R: 'static>(main: impl FnOnce() -> R + 'static) -> Outcome<R> {
    let machine = Topology::from_synthetic("numa:2 l3:2 core:2").expect("well formed");
    let mut costs = Costs::DEFAULT;
    costs.clock = 0;
    Simulation::new(machine, 3).costs(costs).jitter(false).run(main)
}

fn run<R: 'static>(main: impl FnOnce() -> R + 'static) -> R {
    try_run(main).expect()
}

fn me() -> ProcessInfo {
    Sim::process(Sim::current_thread()).expect("the calling thread is alive")
}

fn block(pages: usize) -> Box<[u8]> {
    vec![0; pages * PAGE].into()
}

#[test]
fn the_first_process_owns_the_threads_that_it_starts() {
    run(|| {
        let first = me();
        assert_eq!((first.id, first.name.as_str(), first.threads), (1, "main", 1));
        let thread = Sim::spawn(ThreadSpec::default(), || {
            let inside = me();
            assert_eq!((inside.id, inside.threads), (1, 2));
        });
        Sim::join(thread.expect("a free slot"));
        assert_eq!(me().threads, 1);
    });
}

#[test]
fn a_forked_process_inherits_settings_and_is_independent() {
    run(|| {
        let cpus: CpuSet = "4-6".parse().expect("a CPU list");
        Sim::set_affinity(Sim::current_thread(), &cpus).expect("they exist");
        Sim::set_scheduling(Sim::current_thread(), SchedPolicy::Normal, 7, None).expect("allowed");
        Sim::set_memory_policy(&MemoryPolicy::Preferred(0)).expect("exists");
        let info = Arc::new(Mutex::<Option<ProcessInfo>, Sim>::new_in(None));
        let shared_info = Arc::clone(&info);
        let start = Sim::now();
        let child = Sim::fork("child-of-the-first", move || {
            let thread = Sim::current_thread();
            assert_eq!(Sim::affinity(thread), Ok("4-6".parse().expect("a CPU list")));
            assert_eq!(Sim::nice(thread), Ok(7));
            let mut child_block = block(3);
            Sim::write(&mut child_block);
            let helper = Sim::spawn(ThreadSpec::default(), || {
                let mut more = block(2);
                Sim::write(&mut more);
                compute(MILLISECOND);
            });
            compute(MILLISECOND / 2);
            *shared_info.lock() = Some(me());
            drop(child_block);
            Sim::join(helper.expect("a free slot"));
            assert_eq!(me().resident, [0, 0]);
        })
        .expect("a free slot");
        assert_eq!(Sim::now() - start, Duration::from_nanos(Costs::DEFAULT.fork));
        assert_eq!(child.id(), 2);
        assert_eq!(me().threads, 1, "threads of the child do not count here");
        Sim::wait_process(child);
        assert!(Sim::now() - start > MILLISECOND, "both threads have ended");
        let info = info.lock().take().expect("the child has run");
        assert_eq!((info.id, info.name.as_str(), info.threads), (2, "child-of-the-first", 2));
        assert_eq!(info.resident, [5, 0], "by the policy that both inherited");
        assert_eq!(me().resident, [0, 0]);
        // A process that is gone is not waited for, and its number is not reused.
        let start = Sim::now();
        Sim::wait_process(child);
        assert_eq!(Sim::now() - start, Duration::from_nanos(Costs::DEFAULT.system_call));
        let next = Sim::fork("next", || ()).expect("a free slot");
        assert_eq!(next.id(), 3);
        Sim::wait_process(next);
    });
}

#[test]
fn the_scheduling_class_is_inherited_by_a_fork() {
    run(|| {
        let one: CpuSet = "0".parse().expect("a CPU list");
        Sim::set_affinity(Sim::current_thread(), &one).expect("it exists");
        let ended = Arc::new(Mutex::<Vec<&str>, Sim>::new_in(Vec::new()));
        let fork = |name| {
            let ended = Arc::clone(&ended);
            Sim::fork(name, move || {
                compute(20 * MILLISECOND);
                ended.lock().push(name);
            })
            .expect("a free slot")
        };
        let set = |policy| {
            Sim::set_scheduling(Sim::current_thread(), policy, 0, None).expect("allowed");
        };
        set(SchedPolicy::Idle);
        let idle = fork("idle");
        set(SchedPolicy::Normal);
        let normal = fork("normal");
        Sim::wait_process(idle);
        Sim::wait_process(normal);
        assert_eq!(*ended.lock(), ["normal", "idle"], "the earlier thread waited");
    });
}

#[test]
fn exec_discards_the_state_of_the_program() {
    run(|| {
        let child = Sim::fork("shell", || {
            let thread = Sim::current_thread();
            Sim::set_scheduling(thread, SchedPolicy::Normal, 5, None).expect("allowed");
            Sim::set_memory_policy(&MemoryPolicy::Preferred(1)).expect("exists");
            Sim::set_slot(core::ptr::dangling());
            let mut old = block(4);
            Sim::write(&mut old);
            Sim::bind_memory(&old[..2 * PAGE], &MemoryPolicy::Preferred(0), true).expect("exists");
            assert_eq!(me().resident, [2, 2]);
            let start = Sim::now();
            Sim::exec("compiler").expect("the process has one thread");
            let took = Sim::now() - start;
            assert!(took >= Duration::from_nanos(Costs::DEFAULT.exec), "{took:?}");
            let now = me();
            assert_eq!((now.id, now.name.as_str(), now.threads), (2, "compiler", 1));
            assert_eq!(now.resident, [0, 0]);
            assert!(Sim::slot().is_null());
            assert_eq!(Sim::nice(thread), Ok(5), "this stays");
            // Its ranges are forgotten like its pages; the policy of the thread stays.
            Sim::read(&old);
            assert_eq!(me().resident, [0, 4]);
        })
        .expect("a free slot");
        Sim::wait_process(child);
    });
}

#[test]
fn exec_is_refused_beside_other_threads() {
    run(|| {
        let parker = Arc::new(Parker::<Sim>::new());
        let other = {
            let parker = Arc::clone(&parker);
            Sim::spawn(ThreadSpec::default(), move || {
                parker.park(None);
            })
            .expect("a free slot")
        };
        let refused = Sim::exec("other").expect_err("one thread is left");
        assert_eq!(refused.errno(), 16);
        assert!(refused.to_string().contains("1 other thread"), "{refused}");
        assert_eq!(me().name, "main");
        parker.unpark();
        Sim::join(other);
        Sim::exec("other").expect("alone now");
        assert_eq!((me().id, me().name.as_str()), (1, "other"));
    });
}

#[test]
fn exec_moves_off_a_crowded_cpu() {
    run(|| {
        let start = Sim::now();
        let all = Sim::affinity(Sim::current_thread()).expect("the calling thread is alive");
        let one: CpuSet = "0".parse().expect("a CPU list");
        Sim::set_affinity(Sim::current_thread(), &one).expect("it exists");
        let children: Vec<_> = (0..4)
            .map(|_| {
                let all = all.clone();
                Sim::fork("job", move || {
                    Sim::set_affinity(Sim::current_thread(), &all).expect("all");
                    Sim::exec("job").expect("the process has one thread");
                    compute(20 * MILLISECOND);
                })
                .expect("a free slot")
            })
            .collect();
        children.into_iter().for_each(Sim::wait_process);
        let took = Sim::now() - start;
        assert!(took < 26 * MILLISECOND, "each process runs on its own CPU: {took:?}");
    });
}

#[test]
fn the_pages_of_a_process_are_freed_with_it_and_can_be_moved() {
    run(|| {
        let shared = Arc::new(block(8));
        let child = {
            let shared = Arc::clone(&shared);
            Sim::fork("child", move || {
                Sim::set_memory_policy(&MemoryPolicy::Preferred(1)).expect("exists");
                Sim::read(&shared[..6 * PAGE]);
                assert_eq!(me().resident, [0, 6]);
                Sim::bind_memory(&shared[..PAGE], &MemoryPolicy::Preferred(0), true)
                    .expect("exists");
                assert_eq!(me().resident, [1, 5]);
            })
            .expect("a free slot")
        };
        Sim::wait_process(child);
        assert_eq!(me().resident, [0, 0], "the pages counted for the child");
        Sim::read(&shared);
        assert_eq!(me().resident.iter().sum::<usize>(), 8);
    });
}

#[test]
fn a_process_ends_when_its_first_function_returns() {
    let forever = || {
        Sim::fork("daemon", || Sim::sleep(Duration::from_hours(1))).expect("a free slot");
        compute(MILLISECOND);
    };
    let outcome = try_run(forever);
    assert_eq!(outcome.ending, Ending::Returned);
    assert_eq!(outcome.unfinished.len(), 1);
    // A thread that waits for a process waits for the process's threads, and is reported as doing
    // so.
    let outcome = try_run(|| {
        let child = Sim::fork("stuck", || {
            Parker::<Sim>::new().park(None);
        })
        .expect("a free slot");
        Sim::wait_process(child);
    });
    assert_eq!(outcome.ending, Ending::Deadlock);
    assert!(matches!(outcome.unfinished[0].activity, Activity::Joining { thread: 2, .. }));
}

#[test]
fn an_ended_thread_has_no_process() {
    run(|| {
        let gone = Arc::new(Mutex::<Option<Thread>, Sim>::new_in(None));
        let place = Arc::clone(&gone);
        let thread =
            Sim::spawn(ThreadSpec::default(), move || *place.lock() = Some(Sim::current_thread()));
        Sim::join(thread.expect("a free slot"));
        let gone = gone.lock().take().expect("it has run");
        assert_eq!(Sim::process(gone).map_err(|refused| refused.errno()), Err(3));
    });
}

#[test]
fn many_processes_run_in_sequence_and_in_parallel() {
    let go = || {
        run(|| {
            let done = Arc::new(AtomicU64::new(0));
            for _ in 0..20 {
                let children: Vec<_> = (0..10)
                    .map(|_| {
                        let done = Arc::clone(&done);
                        Sim::fork("job", move || {
                            Sim::exec("cc").expect("the process has one thread");
                            let mut object = block(20);
                            Sim::write(&mut object);
                            compute(MILLISECOND / 10);
                            done.fetch_add(1, Ordering::Relaxed);
                        })
                        .expect("a free slot")
                    })
                    .collect();
                children.into_iter().for_each(Sim::wait_process);
            }
            assert_eq!(me().resident, [0, 0]);
            (done.load(Ordering::Relaxed), Sim::now())
        })
    };
    let (done, end) = go();
    assert_eq!(done, 200);
    assert_eq!((done, end), go());
}

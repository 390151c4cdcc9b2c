//! Rescuers on Linux, where threads really cannot be started: by the runtime's limit, the user's, the control group's.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nearq_core::{Error, JoinHandle, Runtime, Workqueue, inspect::PoolStatistics};

use crate::common::{
    self, Gate, alone, command, eventually, output_text, part, pass_on_skipped, skipped, threads,
    watch,
};

/// What is not tested (the name of the limit follows), and how to run it if control groups are refused.
const RESCUERS: &str = "rescuers under the limit";
const AS_ROOT: &str = "run the tests as root, with a cgroup file system that can be written to";

fn join_all(handles: Vec<JoinHandle<()>>) {
    for handle in handles {
        handle.join().unwrap();
    }
}

fn rescued(queue: &Workqueue) -> u64 {
    queue.statistics().iter().map(|pwq| pwq.rescued).sum()
}

fn has_thread(name: &str) -> bool {
    threads().into_values().any(|other| other == name)
}

/// Queues items that sleep until the gate opens, so many that every worker that may exist has one and nothing more starts; and items that
/// wait behind them.
fn put_to_sleep(
    queue: &Workqueue,
    gate: &Gate,
    count: u32,
    full: impl Fn() -> bool,
) -> Vec<JoinHandle<()>> {
    let handles = (0..count)
        .map(|_| {
            let gate = gate.clone();
            queue.spawn(move || gate.wait())
        })
        .collect();
    eventually("every worker sleeps", full);
    handles
}

/// All workers are asleep and none can be started: items of the queue with a rescuer still run, and all others wait.
fn check_progress(
    runtime: &Runtime,
    queue: &Workqueue,
    others: &Workqueue,
    gate: &Gate,
    asleep: Vec<JoinHandle<()>>,
) {
    let began = Arc::new(AtomicBool::new(false));
    let began_clone = Arc::clone(&began);
    let other = others.spawn(move || began_clone.store(true, Ordering::SeqCst));
    for round in 0..5 {
        let begin = Instant::now();
        let handles: Vec<_> =
            (0..50).map(|number| queue.spawn(move || (number, begin.elapsed()))).collect();
        let times: Vec<_> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
        println!("round {round}: first after {:?}, last after {:?}", times[0].1, times[49].1);
        assert!(times.iter().enumerate().all(|(at, (number, _))| at == *number));
        // 10 ms by the rule, and another 10 ms if the rescuer has just been called without need; the rest is for a busy machine.
        assert!(times[49].1 < Duration::from_secs(1), "{times:?}");
    }
    assert_eq!(rescued(queue), 250);
    assert!(
        !began.load(Ordering::SeqCst),
        "only the queue that has a rescuer goes on: {}",
        common::state(runtime)
    );
    // A drain and a flush end as well.
    queue.flush().unwrap();
    queue.drain().unwrap();
    gate.open();
    join_all(asleep);
    other.join().unwrap();
}

#[test]
fn the_runtimes_limit_is_reached() {
    let _alone = alone();
    let runtime = Runtime::builder().thread_limit(3).build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("saved").rescuer().build().unwrap();
    assert!(queue.has_rescuer());
    eventually("both are there", || has_thread("nq/R-saved") && has_thread("nq/monitor"));
    let others = runtime.workqueue_builder("others").build().unwrap();
    assert!(!others.has_rescuer());
    let gate = Gate::default();
    let asleep = put_to_sleep(&others, &gate, 6, || runtime.thread_count() == 3);
    std::thread::sleep(Duration::from_millis(50));
    check_progress(&runtime, &queue, &others, &gate, asleep);
    drop((queue, others));
    eventually("its rescuer ended with it", || !has_thread("nq/R-saved"));
}

/// A test that ran in a process of its own prints `ends well`, or what it has skipped.
#[track_caller]
fn has_ended_well(output: &Output) {
    let text = output_text(output);
    print!("{text}");
    pass_on_skipped(&text);
    let ended = text.contains("ends well") || text.contains("skipped: ");
    assert!(output.status.success() && ended, "{text}");
}

/// Runs the part of a test in a process of its own.
fn apart(test: impl Fn()) {
    let output = command(test, "alone").output().unwrap();
    has_ended_well(&output);
}

/// Whether the system starts one more thread.
fn can_start_threads() -> bool {
    std::thread::Builder::new().spawn(|| {}).map(|thread| thread.join().unwrap()).is_ok()
}

/// The whole test in a process that can start no thread once `exhaust` has returned.
fn without_threads(limit: &str, exhaust: impl FnOnce()) {
    let runtime = Runtime::builder().build().unwrap();
    // This process also ends if the test that started it was killed.
    let _watchdog = watch(None);
    let queue = runtime.workqueue_builder("saved").rescuer().build().unwrap();
    let others = runtime.workqueue_builder("others").build().unwrap();
    let gate = Gate::default();
    let workers = runtime.parallelism() + 1;
    let asleep = put_to_sleep(&others, &gate, 40, || runtime.thread_count() > workers);
    exhaust();
    if can_start_threads() {
        let why = "threads can be started in spite of it";
        skipped(&format!("{RESCUERS} {limit}"), why, "run the tests where it is heeded");
        gate.open();
        return;
    }
    // Gives the threads time that were being started.
    std::thread::sleep(Duration::from_millis(50));
    let Err(error) = runtime.workqueue_builder("refused").rescuer().build() else {
        panic!("a rescuer was started");
    };
    let text = error.to_string();
    assert!(matches!(&error, Error::NoRescuer { queue, .. } if queue == "refused"), "{error:?}");
    assert!(text.contains(limit) && text.contains("`refused` cannot have a rescuer"), "{text}");
    println!("{text}");
    check_progress(&runtime, &queue, &others, &gate, asleep);
    drop((queue, others, runtime));
    eventually("no thread is left", || threads().is_empty());
    println!("ends well");
}

#[test]
fn the_users_limit_is_reached() {
    /// A user ID that has no other processes.
    const NOBODY_ELSE: u32 = 54_321;
    if part().is_none() {
        return apart(the_users_limit_is_reached);
    }
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } == 0 {
        // Root is exempt from the limit.
        // SAFETY: numbers only; the process is this test's own.
        let outcome = unsafe { (libc::setgid(NOBODY_ELSE), libc::setuid(NOBODY_ELSE)) };
        if outcome != (0, 0) {
            let what = format!("{RESCUERS} RLIMIT_NPROC");
            return skipped(&what, "root may not become another user", "run the tests as a user");
        }
    }
    without_threads("RLIMIT_NPROC", || {
        // Fewer threads than there are; the existing ones stay.
        let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        // SAFETY: the limit is read during the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
    });
}

/// A control group that can limit threads; removed at the end.
struct Group(PathBuf);

impl Group {
    /// Below a control group of this process, or else below any existing one.
    fn make() -> Result<Self, String> {
        let groups =
            std::fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut tried = Vec::new();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
            let path = path.trim_start_matches('/');
            let roots: &[&str] = match kinds {
                "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
                kinds if kinds.split(',').any(|kind| kind == "pids") => &["/sys/fs/cgroup/pids"],
                _ => continue,
            };
            for root in roots {
                for parent in [Path::new(root).join(path), Path::new(root).to_owned()] {
                    let group = parent.join(format!("nearq-test-pids-{}", std::process::id()));
                    match std::fs::create_dir(&group) {
                        Ok(()) if group.join("pids.max").exists() => return Ok(Group(group)),
                        Ok(()) => {
                            let _ = std::fs::remove_dir(&group);
                            tried.push(format!("{}: no pids.max", group.display()));
                        }
                        Err(error) => tried.push(format!("{}: {error}", group.display())),
                    }
                }
            }
        }
        Err(tried.join("; "))
    }

    fn write(&self, file: &str, value: &str) -> std::io::Result<()> {
        std::fs::write(self.0.join(file), value)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The processes in it have ended; the system may take a moment to see that.
        let begin = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_control_groups_limit_is_reached() {
    const GROUP: &str = "NEARQ_TEST_GROUP";
    if part().is_none() {
        let group = match Group::make() {
            Ok(group) => group,
            Err(why) => {
                let why = format!("no control group can be made: {why}");
                return skipped(&format!("{RESCUERS} pids.max"), why, AS_ROOT);
            }
        };
        let output = command(the_control_groups_limit_is_reached, "alone")
            .env(GROUP, &group.0)
            .output()
            .unwrap();
        return has_ended_well(&output);
    }
    let group = std::mem::ManuallyDrop::new(Group(std::env::var_os(GROUP).unwrap().into()));
    if let Err(error) = group.write("cgroup.procs", &std::process::id().to_string()) {
        let why = format!("a process may not enter a control group of its own: {error}");
        return skipped(&format!("{RESCUERS} pids.max"), why, AS_ROOT);
    }
    without_threads("pids.max", || group.write("pids.max", "1").unwrap());
}

#[test]
fn the_rescuers_thread_has_high_priority_and_runs_the_hooks() {
    let _alone = alone();
    let _watchdog = watch(None);
    let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let hook = |at: usize| {
        let counts = Arc::clone(&counts);
        move |info: &nearq_core::inspect::WorkerInfo| {
            if info.name == "nq/R-a rather long name" {
                assert!(!info.pod.is_empty());
                counts[at].fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let builder = Runtime::builder().on_worker_start(hook(0)).on_worker_stop(hook(1));
    let runtime = builder.build().unwrap();
    let queue = runtime.workqueue_builder("a rather long name").rescuer().build().unwrap();
    let cut = "nq/R-a rather l";
    eventually("it has a name of 15 bytes", || has_thread(cut));
    let (id, _) = threads().into_iter().find(|(_, name)| name == cut).unwrap();
    // SAFETY: no memory is involved.
    let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, id as u32) };
    // SAFETY: no arguments; it changes nothing.
    let may = unsafe { libc::geteuid() } == 0;
    if may {
        eventually("the thread has high priority", || nice() == -20);
    } else {
        println!("without the privilege: nice {}", nice());
    }
    eventually("its hook has run", || counts[0].load(Ordering::SeqCst) == 1);
    assert_eq!(runtime.thread_count(), 0, "the thread is no worker");
    assert!(runtime.workers().is_empty());
    drop(queue);
    let both = [&counts[0], &counts[1]].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(both, [1, 1], "the drop waits for its end");
}

#[test]
fn idle_rescuers_cause_no_wake_ups() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queues: Vec<_> = (0..3)
        .map(|number| runtime.workqueue_builder(format!("{number}")).rescuer().build().unwrap())
        .collect();
    join_all(queues.iter().map(|queue| queue.spawn(|| {})).collect());
    // After the monitor's last checks.
    let before = common::all_asleep();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(common::switches(), before);
    assert_eq!(queues.iter().map(rescued).sum::<u64>(), 0);
}

#[test]
fn queues_with_rescuers_come_and_go() {
    let _alone = alone();
    let runtime = Runtime::builder().thread_limit(2).build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let others = runtime.workqueue_builder("others").build().unwrap();
    let gate = Gate::default();
    let asleep = put_to_sleep(&others, &gate, 4, || runtime.thread_count() == 2);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..20 {
                    let queue = runtime.workqueue_builder("passing").rescuer().build().unwrap();
                    let handles: Vec<_> = (0..round).map(|_| queue.spawn(|| {})).collect();
                    drop(queue);
                    assert!(handles.iter().all(JoinHandle::is_finished));
                }
            });
        }
    });
    gate.open();
    join_all(asleep);
    eventually("none of them is left", || !has_thread("nq/R-passing"));
    let rows: Vec<PoolStatistics> = others.statistics();
    assert!(rows.iter().all(|row| row.mayday == 0 && row.rescued == 0), "{rows:?}");
    runtime.shutdown(common::PATIENCE).unwrap();
    eventually("no thread is left", || threads().is_empty());
}

#[test]
fn a_shutdown_ends_the_rescuer() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("shut").rescuer().build().unwrap();
    queue.spawn(|| {}).join().unwrap();
    runtime.shutdown(common::PATIENCE).unwrap();
    eventually("no thread is left", || threads().is_empty());
    assert_eq!(runtime.workqueue_builder("late").rescuer().build().unwrap_err(), Error::ShutDown);
    drop(queue);
}

#[cfg(not(tsan))]
mod forks {
    use super::*;
    use crate::common::child::{Child, child, drop_in_child};

    #[test]
    fn a_forked_child_has_a_rescuer_with_its_first_worker() {
        let _alone = alone();
        let runtime = Runtime::builder().thread_limit(2).build().unwrap();
        // That would keep a handle of the runtime in the child.
        let _watchdog = watch(None);
        let queue = runtime.workqueue_builder("forked").rescuer().build().unwrap();
        queue.spawn(|| {}).join().unwrap();
        child(|| {
            assert!(threads().is_empty(), "nothing was started");
            queue.spawn(|| {}).join().unwrap();
            eventually("the rescuer is there", || has_thread("nq/R-forked"));
            // And the rescuer runs the queue's items.
            let others = runtime.workqueue_builder("others").build().unwrap();
            let gate = Gate::default();
            let asleep = put_to_sleep(&others, &gate, 4, || runtime.thread_count() == 2);
            std::thread::sleep(Duration::from_millis(20));
            join_all((0..20).map(|_| queue.spawn(|| {})).collect());
            assert_eq!(rescued(&queue), 20);
            gate.open();
            join_all(asleep);
            drop(others);
            drop_in_child(&queue);
            drop_in_child(&runtime);
            eventually("no thread is left", || threads().is_empty());
            true
        });
        // The parent is not affected.
        assert!(has_thread("nq/R-forked"));
        assert_eq!(rescued(&queue), 0);
    }

    #[test]
    fn an_item_forks_in_the_rescuer() {
        let _alone = alone();
        let runtime = Runtime::builder().thread_limit(1).build().unwrap();
        let _watchdog = watch(Some(&runtime));
        let queue = Arc::new(runtime.workqueue_builder("forks").rescuer().build().unwrap());
        let others = runtime.workqueue_builder("others").build().unwrap();
        let gate = Gate::default();
        let asleep = put_to_sleep(&others, &gate, 3, || runtime.thread_count() == 1);
        let queue_clone = Arc::clone(&queue);
        let forked = queue.spawn(move || {
            Child::start(|| {
                // An ordinary thread, and an ordinary runtime.
                queue_clone.spawn(|| 7).join().unwrap() == 7 && queue_clone.flush().is_ok()
            })
        });
        forked.join().unwrap().fares_well();
        assert_eq!(rescued(&queue), 1);
        queue.spawn(|| {}).join().unwrap();
        gate.open();
        join_all(asleep);
    }
}

//! High and low priority on Linux: what the kernel reports about the workers, the timer and the monitor; and what happens if a nice value
//! is refused.
//!
//! Tests that need the privilege to be favoured say so, and end if it is missing. Tests in which a priority is refused give up the
//! privilege in a process of their own.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use nearq_core::inspect::QueueKind;
use nearq_core::{Error, Runtime, Work, Workqueue, WorkqueueBuilder, system};
use nearq_platform::{Linux, SchedPolicy, Scheduling, Threads};

use crate::common::{
    self, command, eventually, output_text, part, pass_on_skipped, skipped, threads, watch,
};

/// The shortest slice, which favoured workers have.
const SHORT: Duration = Duration::from_micros(100);

/// What `/proc` and the kernel report about a thread: its nice value according to each, whether it is of the idle class, and its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Priority {
    nice: i32,
    idle: bool,
    slice: Duration,
}

/// The priority of a thread of this process.
fn priority_of(thread: u64) -> Option<Priority> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name may contain any character. It is followed by numbers, the first of which is field 3.
    let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
    let nice: i32 = fields[19 - 3].parse().ok()?;
    let policy: i32 = fields[41 - 3].parse().ok()?;
    // SAFETY: validity: all zero is a value of every field. Aliasing and thread: a local value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: validity: `attributes` is `size` bytes that the kernel may write. Aliasing: the only reference is the one passed. Thread: any
    // thread may ask about any other.
    let returned =
        unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, size, 0) };
    if returned != 0 {
        return None;
    }
    if (attributes.sched_nice, attributes.sched_policy) != (nice, policy.unsigned_abs()) {
        // The priority has changed between the two reads: the next two agree, or this loop never ends.
        return priority_of(thread);
    }
    let slice = Duration::from_nanos(attributes.sched_runtime);
    Some(Priority { nice, idle: policy == libc::SCHED_IDLE, slice })
}

/// The priority of the caller.
fn own_priority() -> Priority {
    priority_of(Linux::thread_id(Linux::current_thread())).expect("the caller is alive")
}

/// The priority of a worker of the queue.
fn worker_of(queue: &Workqueue) -> Priority {
    queue.spawn(own_priority).join().expect("no panic")
}

/// The priority of the first worker of `second`, which is started by an item of `first`.
fn started_by(first: &Workqueue, second: &Workqueue) -> Priority {
    let (sender, receiver) = mpsc::channel();
    first.scope(|scope| {
        scope.spawn(|| drop(second.spawn(move || sender.send(own_priority()).unwrap())));
    });
    receiver.recv().expect("the item runs")
}

/// What a thread has that is like the caller, except for that nice value and slice. Before 6.12, the kernel has no slices for each thread.
fn like_caller(nice: i32, slice: Option<Duration>) -> Priority {
    let own_priority = own_priority();
    let slice = slice.filter(|_| !own_priority.slice.is_zero()).unwrap_or(own_priority.slice);
    Priority { nice, idle: own_priority.idle, slice }
}

fn may_be_favoured() -> bool {
    let may = Linux::attainable_nice(-20) == -20;
    if !may {
        let how = "run the tests as root, or with RLIMIT_NICE of 40";
        skipped("workers of nice values below 0", "there is no CAP_SYS_NICE", how);
    }
    may
}

fn runtime() -> Runtime {
    Runtime::builder().build().expect("the machine is known")
}

fn build(settings: WorkqueueBuilder) -> Workqueue {
    settings.build().expect("the call succeeds")
}

// ---- with the privilege, or without need for it --------------------------------------------------------------------

#[test]
fn workers_have_the_class_nice_value_and_slice_of_their_queue() {
    let runtime = runtime();
    let _watchdog = watch(Some(&runtime));
    let ordinary = own_priority();
    let plain = build(runtime.workqueue_builder("plain"));
    assert_eq!(worker_of(&plain), ordinary);
    assert_eq!(plain.effective_nice(), ordinary.nice);

    let less = build(runtime.workqueue_builder("less").nice(7));
    assert_eq!(less.effective_nice(), 7, "known before there is a worker");
    assert_eq!(worker_of(&less), like_caller(7, None));

    let slice = Duration::from_millis(5);
    let long = build(runtime.workqueue_builder("long").time_slice(slice));
    assert_eq!(worker_of(&long), like_caller(ordinary.nice, Some(slice)));

    let idle = build(runtime.workqueue_builder("idle").nice(3).time_slice(slice).sched_idle());
    assert_eq!(idle.effective_nice(), 19);
    let seen = worker_of(&idle);
    assert!(seen.idle && seen.nice == 19, "{seen:?}");
}

#[test]
fn high_priority_is_nice_minus_20() {
    if !may_be_favoured() {
        return;
    }
    let before = own_priority();
    for per_cpu in [false, true] {
        let runtime = runtime();
        let _watchdog = watch(Some(&runtime));
        let kind = if per_cpu { QueueKind::PerCpu } else { QueueKind::Unbound };
        let queue = build(runtime.workqueue_builder("urgent").kind(kind).highpri());
        assert_eq!((queue.attributes().nice, queue.attributes().time_slice), (-20, None));
        assert_eq!(queue.effective_nice(), -20, "an attempt shows it");
        assert_eq!(own_priority(), before, "the caller's priority is unchanged");
        assert_eq!(worker_of(&queue), like_caller(-20, None));
        assert_eq!(queue.effective_nice(), -20);
    }
}

#[test]
fn each_scheduling_attribute_can_be_changed_live() {
    let runtime = runtime();
    let _watchdog = watch(Some(&runtime));
    for kind in 0..3 {
        let settings = runtime.workqueue_builder("live");
        let queue =
            build(settings.kind([QueueKind::Unbound, QueueKind::PerCpu, QueueKind::Ordered][kind]));
        let slice = Duration::from_millis(2);
        for _ in 0..3 {
            queue.set_nice(4).unwrap();
            assert_eq!(worker_of(&queue), like_caller(4, None));
            queue.set_time_slice(slice).unwrap();
            assert_eq!(worker_of(&queue), like_caller(4, Some(slice)));
            queue.set_sched_idle(true).unwrap();
            assert!(worker_of(&queue).idle);
            assert_eq!((queue.attributes().nice, queue.attributes().time_slice), (4, Some(slice)));
            queue.set_sched_idle(false).unwrap();
            assert_eq!(worker_of(&queue), like_caller(4, Some(slice)), "as before");
            queue.set_time_slice(None).unwrap();
            queue.set_nice(0).unwrap();
            assert_eq!(worker_of(&queue), own_priority());
        }
    }
}

#[test]
fn only_queues_of_equal_priority_share_pools() {
    let runtime = runtime();
    let slice = Duration::from_millis(1);
    let of = |settings: WorkqueueBuilder| {
        let before = runtime.pools().len();
        let queue =
            build(settings.affinity_strict(true).affinity_scope(nearq_core::AffinityScope::System));
        (queue, runtime.pools().len() - before)
    };
    let name = |name| runtime.workqueue_builder(name);
    let steps = [
        (of(name("plain")), 1),
        (of(name("sliced").time_slice(slice)), 1),
        (of(name("other").time_slice(2 * slice)), 1),
        (of(name("same").time_slice(slice)), 0),
        (of(name("less").nice(2).time_slice(slice)), 1),
        (of(name("idle").sched_idle()), 1),
        (of(name("idle with nice").nice(2).time_slice(slice).sched_idle()), 0),
        (of(name("least").nice(19)), 1),
    ];
    for ((queue, made), pools) in &steps {
        assert_eq!(made, pools, "{queue:?}");
    }
    let pools = runtime.pools();
    let rows: Vec<_> = pools.iter().map(|pool| (pool.nice, pool.idle_class, pool.slice)).collect();
    let (one, two) = (Some(slice), Some(2 * slice));
    let wanted = [
        (0, false, None),
        (0, false, one),
        (0, false, two),
        (2, false, one),
        (19, true, None),
        (19, false, None),
    ];
    assert_eq!(rows, wanted);
}

/// An item of one queue starts the workers of another queue: these are not favoured as the item is.
#[test]
fn workers_do_not_inherit_the_priority_of_the_worker_that_starts_them() {
    if !may_be_favoured() {
        return;
    }
    let ordinary = own_priority();
    let kinds: [fn(WorkqueueBuilder) -> WorkqueueBuilder; 4] = [
        WorkqueueBuilder::highpri,
        WorkqueueBuilder::sched_idle,
        |queue| queue.nice(19),
        |queue| queue.time_slice(Duration::from_millis(50)),
    ];
    for kind in kinds {
        let runtime = runtime();
        let _watchdog = watch(Some(&runtime));
        let first = build(kind(runtime.workqueue_builder("first")));
        let second = build(runtime.workqueue_builder("second"));
        assert_eq!(started_by(&first, &second), ordinary, "{:?}", first.attributes());
    }
}

/// The number of this process's only thread of that name.
fn named(name: &str) -> Option<u64> {
    threads().into_iter().find(|(_, its)| its == name).map(|(id, _)| id)
}

#[test]
fn the_timer_and_the_monitor_have_the_highest_priority_of_all_queues() {
    if !may_be_favoured() {
        return;
    }
    // This runs in a process of its own, in which no other test has a timer or a monitor.
    if part().is_none() {
        let output =
            command(the_timer_and_the_monitor_have_the_highest_priority_of_all_queues, "it")
                .output()
                .unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        return;
    }
    let ordinary = own_priority();
    let _watchdog = watch(None);
    let runtime = runtime();
    let cpu = runtime.allowed_cpus().first().expect("there is one");
    let plain = build(runtime.workqueue_builder("plain").per_cpu());
    // Its worker sleeps in an item while another one waits: the monitor is needed.
    let nap = || Work::new(|_: &Work| std::thread::sleep(Duration::from_millis(50)));
    let naps = [nap(), nap(), nap()];
    for nap in &naps {
        assert!(plain.queue_on(cpu, nap).unwrap());
    }
    eventually("there is a monitor", || named("nq/monitor").is_some());
    let monitor = named("nq/monitor").unwrap();
    eventually("it is an ordinary thread", || priority_of(monitor) == Some(ordinary));
    let later = Work::new(|_: &Work| {});
    assert!(plain.queue_delayed(&later, Duration::from_millis(1)));
    eventually("there is a timer", || named("nq/timer").is_some());
    let timer = named("nq/timer").unwrap();
    eventually("it has run", || !later.is_pending());
    assert_eq!(priority_of(timer), Some(ordinary));

    let urgent = build(runtime.workqueue_builder("urgent").highpri());
    let favoured = like_caller(-20, None);
    assert_eq!(priority_of(monitor), Some(favoured), "when the queue was made");
    assert_eq!(priority_of(timer), Some(ordinary), "nothing urgent is delayed");
    assert!(urgent.queue_delayed(&later, Duration::from_millis(1)));
    eventually("the timer follows", || priority_of(timer) == Some(favoured));
    drop((plain, urgent));
    drop(runtime);

    // A monitor that is started after the queue was made.
    let runtime = self::runtime();
    let plain = build(runtime.workqueue_builder("plain").per_cpu());
    let urgent = build(runtime.workqueue_builder("urgent").nice(-7));
    for nap in &naps {
        assert!(plain.queue_on(cpu, nap).unwrap());
    }
    let favoured = like_caller(-7, None);
    eventually("it begins so", || {
        named("nq/monitor").is_some_and(|monitor| priority_of(monitor) == Some(favoured))
    });
    drop((plain, urgent));
}

#[test]
fn the_system_queue_has_no_threads_before_it_is_used() {
    if part().is_none() {
        let output =
            command(the_system_queue_has_no_threads_before_it_is_used, "it").output().unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        return;
    }
    let queue = system::highpri();
    assert_eq!((queue.name(), queue.is_per_cpu()), ("events_highpri", true));
    assert_eq!((queue.attributes().nice, queue.max_active()), (-20, 1024));
    // Creating, reading and changing a queue starts no thread.
    let _ = queue.effective_nice();
    let other = Workqueue::builder("other").per_cpu().build().unwrap();
    other.spawn(|| ()).join().unwrap();
    assert!(threads().into_values().all(|name| !name.ends_with('H')), "{:?}", threads());
    let cpu = queue.runtime().allowed_cpus().first().expect("there is one");
    let (sender, receiver) = mpsc::channel();
    let work = Work::new(move |_| {
        let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        sender.send(comm.trim_end().to_owned()).unwrap();
    });
    assert!(queue.queue_on(cpu, &work).unwrap());
    let name = receiver.recv().unwrap();
    assert!(name.starts_with(&format!("nq/{cpu}:")) && name.ends_with('H'), "{name}");
}

#[test]
fn a_slice_out_of_range() {
    let runtime = runtime();
    let queue = build(runtime.workqueue_builder("sliced").time_slice(SHORT));
    let least = Duration::from_nanos(99_999);
    for slice in [Duration::ZERO, least, Duration::from_millis(101), Duration::MAX] {
        assert_eq!(queue.set_time_slice(slice), Err(Error::TimeSliceOutOfRange(slice)));
        assert!(runtime.workqueue_builder("refused").time_slice(slice).build().is_err());
    }
    assert_eq!(queue.attributes().time_slice, Some(SHORT), "nothing was changed");
    let text = Error::TimeSliceOutOfRange(least).to_string();
    assert!(text.contains("99.999µs") && text.contains("100 µs") && text.contains("100 ms"));
}

// ---- without the privilege -----------------------------------------------------------------------------------------

/// Gives up the privilege to be favoured, except for what an `RLIMIT_NICE` of `limit` allows. False if that is not possible.
fn give_up(limit: u64) -> bool {
    let wanted = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: validity: a limit that is read. Thread and aliasing: no further conditions.
    if unsafe { libc::setrlimit(libc::RLIMIT_NICE, &raw const wanted) } != 0 {
        let why = format!("RLIMIT_NICE may not be set to {limit}");
        let how = format!("run the tests with RLIMIT_NICE of {limit} or more");
        skipped("the warning of refused nice values", why, &how);
        return false;
    }
    // SAFETY: no arguments; it changes nothing.
    let root = unsafe { libc::geteuid() } == 0;
    // SAFETY: a number; it changes the user of this process, which nothing here relies on.
    let given_up = !root || unsafe { libc::setuid(65_534) } == 0;
    assert!(given_up, "{}", std::io::Error::last_os_error());
    assert_eq!(Linux::attainable_nice(-20), (20 - limit as i32).min(own_priority().nice));
    true
}

/// Runs `part` of `test` in a process of its own; returns its warnings.
fn warnings(test: impl Fn(), part: &str) -> Vec<String> {
    let output = command(test, part).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    let lines = String::from_utf8(output.stderr).unwrap();
    println!("{lines}");
    pass_on_skipped(&lines);
    lines.lines().filter(|line| line.starts_with("nearq: ")).map(str::to_owned).collect()
}

#[test]
fn refused_priorities_leave_a_short_slice_and_warn_once() {
    if part().is_some() {
        if !give_up(0) {
            return;
        }
        let runtime = runtime();
        let ordinary = own_priority();
        let urgent = build(runtime.workqueue_builder("urgent").highpri());
        let favoured = build(runtime.workqueue_builder("favoured").nice(-5));
        assert_eq!([urgent.effective_nice(), favoured.effective_nice()], [ordinary.nice; 2]);
        let slow = like_caller(ordinary.nice, Some(SHORT));
        for _ in 0..3 {
            // Several workers of each queue; and the timer, whose nice value is refused, too.
            let handles: Vec<_> = (0..8)
                .map(|_| {
                    urgent.spawn(|| {
                        std::thread::sleep(Duration::from_millis(2));
                        own_priority()
                    })
                })
                .collect();
            assert!(handles.into_iter().all(|handle| handle.join().unwrap() == slow));
            assert_eq!(worker_of(&favoured), slow);
            let later = Work::new(|_: &Work| {});
            assert!(urgent.queue_delayed(&later, Duration::from_millis(1)));
            eventually("it has run", || !later.is_pending());
        }
        assert_eq!([urgent.effective_nice(), favoured.effective_nice()], [ordinary.nice; 2]);
        eventually("the timer has the permitted priority", || {
            named("nq/timer").is_some_and(|timer| priority_of(timer) == Some(slow))
        });
        assert_eq!(own_priority(), ordinary);
        println!("tried");
        return;
    }
    let lines = warnings(refused_priorities_leave_a_short_slice_and_warn_once, "refused");
    if lines.is_empty() {
        return;
    }
    assert_eq!(lines.len(), 2, "one for each nice value: {lines:?}");
    for (nice, needs) in [(-20, 40), (-5, 25)] {
        let parts = [
            format!("nice {nice}:"),
            "Permission denied".into(),
            format!("needs CAP_SYS_NICE, or RLIMIT_NICE of at least {needs}"),
            format!("its workers have nice {} and slices of 100µs instead", own_priority().nice),
        ];
        assert!(
            lines.iter().any(|line| parts.iter().all(|part| line.contains(part))),
            "{parts:?} in {lines:?}"
        );
    }
}

#[test]
fn workers_get_the_permitted_part_of_a_priority() {
    if part().is_some() {
        // Nice -5.
        if !give_up(25) {
            return;
        }
        let runtime = runtime();
        let urgent = build(runtime.workqueue_builder("urgent").highpri());
        let allowed = build(runtime.workqueue_builder("allowed").nice(-4));
        assert_eq!([urgent.effective_nice(), allowed.effective_nice()], [-5, -4]);
        assert_eq!(worker_of(&urgent), like_caller(-5, Some(SHORT)));
        assert_eq!(worker_of(&allowed), like_caller(-4, None));
        assert_eq!([urgent.effective_nice(), allowed.effective_nice()], [-5, -4]);
        // An ordinary worker stays ordinary even if a worker of the idle class starts it.
        let idle = build(runtime.workqueue_builder("idle").sched_idle());
        let plain = build(runtime.workqueue_builder("plain"));
        assert_eq!(started_by(&idle, &plain), own_priority());
        return;
    }
    let lines = warnings(workers_get_the_permitted_part_of_a_priority, "part");
    assert!(lines.len() <= 1 && lines.iter().all(|line| line.contains("nice -20:")), "{lines:?}");
}

#[test]
fn no_warning_is_given_if_nothing_is_refused() {
    if part().is_some() {
        if !give_up(0) {
            return;
        }
        let runtime = runtime();
        for settings in [
            // Less favoured than this process; or equally, if this process already has the lowest priority.
            runtime.workqueue_builder("less").nice(own_priority().nice.max(5)),
            runtime.workqueue_builder("idle").sched_idle(),
            runtime.workqueue_builder("sliced").time_slice(Duration::from_millis(1)),
        ] {
            let queue = build(settings);
            let begin = Instant::now();
            assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
            assert!(begin.elapsed() < common::PATIENCE);
        }
        return;
    }
    assert_eq!(warnings(no_warning_is_given_if_nothing_is_refused, "quiet"), Vec::<String>::new());
}

#[test]
fn the_platform_reports_the_same_priorities_as_proc() {
    let Scheduling { policy, nice, slice } = Linux::scheduling(Linux::current_thread()).unwrap();
    let own_priority = own_priority();
    assert_eq!((policy == SchedPolicy::Idle, nice), (own_priority.idle, own_priority.nice));
    assert_eq!(slice.unwrap_or_default(), own_priority.slice);
}

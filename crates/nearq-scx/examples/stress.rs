//! Loads that test a machine's scheduler, whichever it is. Each prints lines `WHAT NUMBER`.
//!
//! - `stress hard SECONDS [hotplug]`: processes are forked and begin programs, threads sleep and wake each other, some are bound to CPUs,
//!   some change where they may run or are real-time tasks for a moment, some are nice, and CPUs go offline and come back. Every process
//!   and thread must make progress.
//! - `stress overload MILLISECONDS CPUS`: twice as many tasks as the given CPUs begin there and may run anywhere from then on; half of them
//!   end when two thirds of the time are over. Prints which part of the possible CPU time they got.
//! - `stress wakes`: a fixed number of messages between many processes, and between few. Prints how long that takes, and how often CPUs
//!   changed their task. On an emulated machine that counts instructions, the time is the number of instructions.
//! - `stress class NUMBER real-time|ordinary`: moves a task to another scheduler.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nearq_topology::CpuSet;

/// With this argument a started process ends after a little work.
const CHILD: &str = "child";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let program = std::env::current_exe().expect("a program knows its file");
    let done = match *words.as_slice() {
        [CHILD] => {
            compute(20);
            Ok(())
        }
        ["task", millis] => {
            task(Duration::from_millis(number(millis)));
            Ok(())
        }
        ["hard", seconds, ref rest @ ..] => {
            let hotplug = rest.contains(&"hotplug");
            let time = Duration::from_secs(number(seconds));
            hard(&Hard { time, hotplug, program })
        }
        ["overload", millis, cpus] => overload(&program, number(millis), cpus),
        ["wakes"] => wakes(),
        ["class", task, "real-time"] => set_class(number(task), libc::SCHED_FIFO),
        ["class", task, "ordinary"] => set_class(number(task), libc::SCHED_OTHER),
        _ => Err("give one of: hard SECONDS [hotplug]; overload MILLISECONDS CPUS; wakes; \
                 class NUMBER real-time|ordinary"
            .to_owned()),
    };
    if let Err(why) = done {
        eprintln!("stress: {why}");
        std::process::exit(1);
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

// ---- a hard load ----------------------------------------------------------------------------------------------------------

/// The options of a hard load.
#[derive(Clone, Debug)]
struct Hard {
    /// How long the load lasts.
    time: Duration,
    /// Whether CPUs go offline and come back: needs root.
    hotplug: bool,
    /// The program that processes execute: this one.
    program: PathBuf,
}

/// The nice value of one of two threads that compete for a CPU; the kernel's weights give the other one 9.3 times as much.
const NICE: i32 = 10;

/// What all threads share: whether the time is over, and what they have done.
#[derive(Debug, Default)]
struct Shared {
    begun: AtomicBool,
    over: AtomicBool,
    forks: AtomicU64,
    execs: AtomicU64,
    exchanges: AtomicU64,
    sleeps: AtomicU64,
    masks: AtomicU64,
    hotplugs: AtomicU64,
    classes: AtomicU64,
    gap: AtomicU64,
}

/// The work of one of the threads; returns what went wrong.
type Work = Box<dyn FnOnce(&Shared) -> Result<(), String> + Send>;

impl Shared {
    // Relaxed: a flag and counts, on which nothing else depends; the threads are joined before the counts are read.
    /// The threads begin together, because the thread that starts them must not compete with threads that have begun.
    fn wait_for_all(&self) {
        while !self.begun.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

fn hard(load: &Hard) -> Result<(), String> {
    let cpus: Vec<usize> = allowed().iter().collect();
    let shared = Arc::new(Shared::default());
    let mut threads: Vec<JoinHandle<Result<(), String>>> = Vec::new();
    let mut start = |work: Work| {
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || {
            shared.wait_for_all();
            work(&shared)
        }));
    };
    for _ in 0..cpus.len().div_ceil(2) {
        start(Box::new(fork_all_the_time));
    }
    let program = load.program.clone();
    start(Box::new(move |shared| exec_all_the_time(shared, &program)));
    for number in 0..4 * cpus.len() as u64 {
        start(Box::new(move |shared| {
            sleep_and_wake(shared, number);
            Ok(())
        }));
    }
    for _ in 0..cpus.len() {
        let (here, there) = UnixStream::pair().expect("two descriptors");
        start(Box::new(move |shared| answer(shared, here)));
        start(Box::new(move |shared| ask(shared, there)));
    }
    // For each CPU a thread that always wants a CPU; half of these threads are bound.
    for (number, cpu) in cpus.iter().copied().enumerate() {
        let bound = (number % 2 == 0).then_some(cpu);
        start(Box::new(move |shared| {
            want_a_cpu(shared, bound);
            Ok(())
        }));
    }
    let all_cpus = cpus.clone();
    start(Box::new(move |shared| {
        go_about(shared, &all_cpus);
        Ok(())
    }));
    if load.hotplug {
        let others = cpus[1..].to_vec();
        start(Box::new(move |shared| plug(shared, &others)));
        start(Box::new(change_class));
    }
    // Bound to the CPU that never goes offline.
    let (even, nice) = (compete(&shared, cpus[0], 0), compete(&shared, cpus[0], NICE));

    let begin = Instant::now();
    shared.begun.store(true, Ordering::Relaxed);
    thread::sleep(load.time);
    shared.over.store(true, Ordering::Relaxed);
    let took = begin.elapsed();
    let mut failures: Vec<String> = Vec::new();
    for thread in threads {
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => failures.push(failure),
            Err(_) => failures.push("a thread panicked".to_owned()),
        }
    }
    let (even, nice) = (even.join().unwrap_or_default(), nice.join().unwrap_or_default());
    println!("took_ms {}", took.as_millis());
    let counts = [
        ("forks", &shared.forks),
        ("execs", &shared.execs),
        ("exchanges", &shared.exchanges),
        ("sleeps", &shared.sleeps),
        ("masks", &shared.masks),
        ("hotplugs", &shared.hotplugs),
        ("classes", &shared.classes),
    ];
    for (what, count) in counts {
        println!("{what} {}", count.load(Ordering::Relaxed));
    }
    println!("longest_gap_ms {}", shared.gap.load(Ordering::Relaxed) / 1_000_000);
    println!("nice_ratio {:.2}", even.as_secs_f64() / nice.as_secs_f64().max(1e-9));
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// A little work: some microseconds.
fn compute(rounds: u64) {
    for round in 0..rounds * 1000 {
        std::hint::black_box(round);
    }
}

fn fork_all_the_time(shared: &Shared) -> Result<(), String> {
    while !shared.is_over() {
        // SAFETY: the child calls only `_exit`, which is safe whatever the other threads of this process hold.
        match unsafe { libc::fork() } {
            -1 => return Err(format!("fork: {}", std::io::Error::last_os_error())),
            0 => {
                compute(50);
                // SAFETY: numbers only.
                unsafe { libc::_exit(0) }
            }
            child => {
                // SAFETY: no status is asked for; the child is this thread's to wait for.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
                shared.forks.fetch_add(1, Ordering::Relaxed);
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn exec_all_the_time(shared: &Shared, program: &PathBuf) -> Result<(), String> {
    while !shared.is_over() {
        let status = Command::new(program).arg(CHILD).status();
        match status {
            Ok(status) if status.success() => shared.execs.fetch_add(1, Ordering::Relaxed),
            other => return Err(format!("{}: {other:?}", program.display())),
        };
    }
    Ok(())
}

fn sleep_and_wake(shared: &Shared, number: u64) {
    while !shared.is_over() {
        thread::sleep(Duration::from_micros(500 + 700 * (number % 13)));
        compute(number % 20);
        shared.sleeps.fetch_add(1, Ordering::Relaxed);
    }
}

fn ask(shared: &Shared, mut stream: UnixStream) -> Result<(), String> {
    let mut byte = [1];
    while !shared.is_over() {
        stream
            .write_all(&byte)
            .and_then(|()| stream.read_exact(&mut byte))
            .map_err(|e| format!("asking: {e}"))?;
        shared.exchanges.fetch_add(1, Ordering::Relaxed);
    }
    // The other side reads the end.
    Ok(())
}

fn answer(_: &Shared, mut stream: UnixStream) -> Result<(), String> {
    let mut byte = [0];
    while stream.read(&mut byte).map_err(|e| format!("answering: {e}"))? == 1 {
        if stream.write_all(&byte).is_err() {
            break;
        }
    }
    Ok(())
}

/// Reads the clock all the time: if the clock jumps, the thread had no CPU.
fn want_a_cpu(shared: &Shared, bound: Option<usize>) {
    if let Some(cpu) = bound {
        set_allowed(&CpuSet::single(cpu));
    }
    let mut last = Instant::now();
    while !shared.is_over() {
        compute(1);
        let now = Instant::now();
        let gap = (now - last).as_nanos() as u64;
        shared.gap.fetch_max(gap, Ordering::Relaxed);
        last = now;
    }
}

fn go_about(shared: &Shared, cpus: &[usize]) {
    let mut turn = 0;
    while !shared.is_over() {
        turn += 1;
        let some: CpuSet = cpus.iter().copied().filter(|cpu| (cpu * 7 + turn) % 3 != 0).collect();
        set_allowed(&some);
        compute(300);
        shared.masks.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

fn plug(shared: &Shared, cpus: &[usize]) -> Result<(), String> {
    let mut turn = 0;
    while !shared.is_over() {
        let file = format!("/sys/devices/system/cpu/cpu{}/online", cpus[turn % cpus.len()]);
        turn += 1;
        fs::write(&file, "0").map_err(|e| format!("{file}: {e}"))?;
        thread::sleep(Duration::from_millis(150));
        fs::write(&file, "1").map_err(|e| format!("{file}: {e}"))?;
        thread::sleep(Duration::from_millis(100));
        shared.hotplugs.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Makes another thread a real-time task again and again, whether it waits, runs or sleeps at that moment.
fn change_class(shared: &Shared) -> Result<(), String> {
    let number = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the call returns a number.
            number.store(u64::from(unsafe { libc::gettid() }.cast_unsigned()), Ordering::Relaxed);
            while !shared.is_over() {
                compute(100);
                thread::sleep(Duration::from_micros(100));
            }
        });
        while !shared.is_over() {
            thread::sleep(Duration::from_millis(3));
            let task = number.load(Ordering::Relaxed);
            if task != 0 {
                let changed = set_class(task, libc::SCHED_FIFO)
                    .and_then(|()| set_class(task, libc::SCHED_OTHER));
                // The other thread ends when the time is over, and has no class then.
                if changed.is_err() && shared.is_over() {
                    break;
                }
                changed?;
                shared.classes.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    })
}

/// Moves a task to another scheduler, which needs root.
fn set_class(task: u64, class: libc::c_int) -> Result<(), String> {
    let priority = libc::c_int::from(class == libc::SCHED_FIFO);
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters are read by the call.
    if unsafe { libc::sched_setscheduler(task as libc::pid_t, class, &raw const parameters) } == 0 {
        return Ok(());
    }
    Err(format!("the class of {task}: {}", std::io::Error::last_os_error()))
}

/// Starts a thread that always wants that CPU. The thread returns its CPU time.
fn compete(shared: &Arc<Shared>, cpu: usize, nice: i32) -> JoinHandle<Duration> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        set_allowed(&CpuSet::single(cpu));
        // SAFETY: numbers only; 0 means the calling thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
        shared.wait_for_all();
        while !shared.is_over() {
            compute(10);
        }
        cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
    })
}

/// Reads a CPU clock.
fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills it in.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// The CPUs that the calling thread may use.
fn allowed() -> CpuSet {
    let mut words = [0_u64; 16];
    // SAFETY: the mask has the given length, and the call fills it in.
    unsafe { libc::sched_getaffinity(0, size_of_val(&words), words.as_mut_ptr().cast()) };
    CpuSet::from_words(&words)
}

/// A mask whose CPUs are all offline at the moment is refused: then the thread's mask stays as it was.
fn set_allowed(cpus: &CpuSet) {
    let mut words = [0_u64; 16];
    for cpu in cpus {
        words[cpu / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the mask has the given length.
    unsafe { libc::sched_setaffinity(0, size_of_val(&words), words.as_ptr().cast()) };
}

// ---- an overloaded home ---------------------------------------------------------------------------------------------------

fn overload(program: &PathBuf, millis: u64, cpus: &str) -> Result<(), String> {
    let home: CpuSet = cpus.parse().map_err(|error| format!("{cpus}: {error}"))?;
    let before = allowed();
    set_allowed(&home);
    let count = 2 * home.len() as u64;
    let times: Vec<u64> =
        (0..count).map(|task| if task % 2 == 0 { millis } else { millis * 2 / 3 }).collect();
    let begin = |time: &u64| Command::new(program).args(["task", &time.to_string()]).spawn();
    let tasks = times.iter().map(begin).collect::<Result<Vec<_>, _>>();
    set_allowed(&before);
    for mut task in tasks.map_err(|error| error.to_string())? {
        task.wait().map_err(|error| error.to_string())?;
    }
    println!("could_ms {}", times.iter().sum::<u64>());
    Ok(())
}

/// Wants a CPU for this long, on any CPU that it may use.
fn task(time: Duration) {
    set_allowed(&(0..512).collect());
    let begin = Instant::now();
    while begin.elapsed() < time {
        compute(20);
    }
    println!("had_ms {}", cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID).as_millis());
}

// ---- messages -------------------------------------------------------------------------------------------------------------

/// Pairs of processes, and messages of each pair: many pairs that want a CPU at once, and few that mostly sleep.
const CROWD: [u64; 2] = [40, 200];
const FEW: [u64; 2] = [2, 4000];

fn wakes() -> Result<(), String> {
    for (name, [pairs, messages]) in [("crowd", CROWD), ("few", FEW)] {
        let (switches, begin) = (context_switches()?, Instant::now());
        let threads: Vec<JoinHandle<std::io::Result<()>>> = (0..pairs)
            .flat_map(|_| {
                let (here, there) = UnixStream::pair().expect("two descriptors");
                [
                    thread::spawn(move || exchange(here, messages, true)),
                    thread::spawn(move || exchange(there, messages, false)),
                ]
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic").map_err(|error| error.to_string())?;
        }
        println!("{name}_us {}", begin.elapsed().as_micros());
        println!("{name}_switches {}", context_switches()? - switches);
    }
    Ok(())
}

fn exchange(mut stream: UnixStream, messages: u64, first: bool) -> std::io::Result<()> {
    let mut message = [0; 100];
    for _ in 0..messages {
        if first {
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
        } else {
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
        }
    }
    Ok(())
}

/// The context switches of all CPUs since the machine started.
fn context_switches() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/stat").map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("ctxt "));
    line.and_then(|number| number.trim().parse().ok()).ok_or("/proc/stat has no ctxt".to_owned())
}

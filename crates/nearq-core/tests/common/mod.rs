//! What the tests share: waiting with a watchdog, the threads of this process, and tests that run in a process of their own.

#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

#[cfg(not(any(miri, tsan)))]
pub mod child;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nearq_core::{JoinHandle, Runtime, Workqueue};

pub(crate) use skipped::skipped;

/// A step that takes longer than this counts as hanging. This is only for the watchdog: on a machine that is busy with other programs, a
/// test may get little CPU time.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// If it is not dropped in time, it prints the runtime's state and aborts the process.
pub struct Watchdog {
    shared: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Watches over the rest of a test. The state of `runtime` is printed if the test hangs; the runtime is kept alive meanwhile.
pub fn watch(runtime: Option<&Runtime>) -> Watchdog {
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let runtime = runtime.cloned();
    let (shared_clone, test) =
        (Arc::clone(&shared), std::thread::current().name().map(str::to_owned));
    let thread = std::thread::spawn(move || {
        let (done, changed) = &*shared_clone;
        let guard = done.lock().unwrap();
        let (guard, _) = changed.wait_timeout_while(guard, PATIENCE, |done| !*done).unwrap();
        if !*guard {
            let state = runtime.as_ref().map(state).unwrap_or_default();
            let text =
                format!("{test:?} takes longer than {PATIENCE:?}\n{state}{}\n", threads_in_words());
            // Not by `eprintln!`: the test harness would keep it, and what it keeps is lost when the process aborts.
            let _ = std::io::stderr().write_all(text.as_bytes());
            std::process::abort();
        }
    });
    Watchdog { shared, thread: Some(thread) }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let (done, changed) = &*self.shared;
        *done.lock().unwrap() = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Closed at first; once opened, it stays open.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Sleeps until it is open.
    pub fn wait(&self) {
        let (open, changed) = &*self.0;
        drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
    }

    /// Opens it for good.
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// A runtime in words.
pub fn state(runtime: &Runtime) -> String {
    let mut text = format!("{runtime:?}\n");
    for pool in runtime.pools() {
        let _ = writeln!(text, "{pool:?}");
    }
    for worker in runtime.workers() {
        let _ = writeln!(text, "{worker:?}");
    }
    text
}

/// Checks again and again until `holds` returns true.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    within(PATIENCE, what, &mut holds);
}

/// As [`eventually`], with a shorter limit; returns how long it took.
#[track_caller]
pub fn within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    loop {
        if holds() {
            return begin.elapsed();
        }
        assert!(begin.elapsed() < patience, "not within {patience:?}: {what}");
        // So that the thread that will make the condition true gets a CPU.
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// One test at a time, for tests that examine the whole process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`alone`], with a runtime and a watchdog for it.
pub fn alone_with_runtime() -> (MutexGuard<'static, ()>, Runtime, Watchdog) {
    let alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let watchdog = watch(Some(&runtime));
    (alone, runtime, watchdog)
}

/// Runs four threads that each call `part` that many times, with random numbers from a generator of their own.
pub fn from_all_sides(times: usize, part: impl Fn(u64) + Sync) {
    std::thread::scope(|threads| {
        for seed in 0..4_u64 {
            let part = &part;
            threads.spawn(move || {
                let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
                for _ in 0..times {
                    dice ^= dice << 13;
                    dice ^= dice >> 7;
                    dice ^= dice << 17;
                    part(dice);
                }
            });
        }
    });
}

/// A gate at which items wait until it is opened. The test's own handle, which is not a clone, opens the gate when it is dropped. So a test
/// that fails while items wait at the gate still ends, although the drop of their queue waits for them.
#[derive(Default)]
pub struct Barrier {
    open: Arc<AtomicBool>,
    is_clone: bool,
}

impl Clone for Barrier {
    fn clone(&self) -> Self {
        Barrier { open: Arc::clone(&self.open), is_clone: true }
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        if !self.is_clone {
            self.open();
        }
    }
}

impl Barrier {
    pub fn wait(&self) {
        while !self.open.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub fn open(&self) {
        self.open.store(true, Ordering::Relaxed);
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// A closure that waits at the gate.
    pub fn hold(&self, queue: &Workqueue) -> JoinHandle<()> {
        let this = self.clone();
        queue.spawn(move || this.wait())
    }
}

/// This process's threads of the runtime: names by thread id.
pub fn threads() -> BTreeMap<u64, String> {
    let entries = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            let id = entry.file_name().to_str()?.parse().ok()?;
            Some((id, name.trim_end().to_owned()))
        })
        .filter(|(_, name)| name.starts_with("nq/"))
        .collect()
}

fn threads_in_words() -> String {
    format!("{:?}", threads())
}

/// Whether a thread of this process sleeps, as the kernel sees it. A thread that only waits for a CPU does not sleep.
pub fn sleeps(thread: u64) -> bool {
    // The name, in parentheses, may contain any character; the state is the letter after it.
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')))
}

/// Waits until all threads of the runtime sleep and none has run for a tenth of a second; returns their context switches at that time.
#[track_caller]
pub fn all_asleep() -> BTreeMap<u64, u64> {
    let mut before = BTreeMap::new();
    eventually("all workers sleep", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = switches();
        let sleep = now.keys().all(|thread| sleeps(*thread));
        core::mem::replace(&mut before, now.clone()) == now && sleep
    });
    before
}

/// Context switches of all the runtime's threads so far, by thread id.
pub fn switches() -> BTreeMap<u64, u64> {
    threads()
        .into_keys()
        .filter_map(|id| {
            let status = std::fs::read_to_string(format!("/proc/self/task/{id}/status")).ok()?;
            let sum = status
                .lines()
                .filter(|line| line.contains("ctxt_switches"))
                .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok())
                .sum();
            Some((id, sum))
        })
        .collect()
}

/// Executions that have ended.
pub fn completed(queue: &Workqueue) -> u64 {
    queue.statistics().iter().map(|pwq| pwq.completed).sum()
}

/// Whether this process had that many CPUs when it started. If not, prints a line which says that `what` is not tested.
pub fn has_cpus(what: &str, count: usize) -> bool {
    let cpus = Runtime::builder().build().unwrap().allowed_cpus().len();
    if cpus < count {
        skipped(what, format_args!("{cpus} CPUs may be used"), &format!("allow {count}"));
    }
    cpus >= count
}

/// The environment variable that tells a test which of its parts to run.
const PART: &str = "NEARQ_TEST_PART";

/// The part of a test that this process runs; `None` if it runs the test itself.
pub fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Runs a part of `test`, a test function of this program, in a process of its own.
pub fn command(test: impl Fn(), part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    let name = name_of(&test);
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]).env(PART, part);
    command
}

/// The name by which the harness knows a test: the function's path without the crate.
pub fn name_of<F: Fn()>(_: &F) -> &'static str {
    std::any::type_name::<F>().split_once("::").expect("a function has a path").1
}

/// Prints again what a test in a process of its own has skipped, because its output goes to its parent, whose output the harness captures.
pub fn pass_on_skipped(output_text: &str) {
    let skips = output_text.lines().filter_map(|line| line.strip_prefix("skipped: "));
    for (what, rest) in skips.filter_map(|line| line.split_once(": ")) {
        let (why, how) = rest.split_once("; to have it: ").unwrap_or((rest, ""));
        skipped(what, why, how);
    }
}

/// Standard output and error, for a message.
pub fn output_text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}\n{}\n{}", output.status, String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future in this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = core::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

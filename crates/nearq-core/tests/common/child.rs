//! Child processes of a test, made by the C library's `fork`. Their exit status says whether they succeeded. If a child does not end in
//! time, it is killed, and the test fails. This file also has what every child must be able to do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nearq_core::{AffinityScope, Runtime, Work, Workqueue};

use super::eventually;

/// The time within which a child must end; children take milliseconds. Less than [`PATIENCE`](super::PATIENCE), so that a child that hangs
/// is reported as such.
pub const CHILD_PATIENCE: Duration = Duration::from_mins(1);

/// The C library's `fork`: 0 in the child, which must [`end`] before it returns into the test harness.
pub fn fork() -> libc::pid_t {
    // SAFETY: the child ends as described above; until then it does only what the runtime allows in a child.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    pid
}

/// Ends the child at once; the argument says whether it succeeded.
pub fn end(well: bool) -> ! {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(i32::from(!well)) }
}

/// Runs `part` and ends the child; a panic, or `false`, is a failure.
pub fn end_as(part: impl FnOnce() -> bool) -> ! {
    end(catch_unwind(AssertUnwindSafe(part)).is_ok_and(|well| well))
}

/// A child process.
pub struct Child(pub libc::pid_t);

impl Child {
    /// Forks. The child runs `part` and ends; a panic, or `false`, is a failure.
    pub fn start(part: impl FnOnce() -> bool) -> Self {
        match fork() {
            0 => end_as(part),
            pid => Child(pid),
        }
    }

    /// The exit status; `None` while it runs.
    pub fn status(&self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: a child of ours that was not waited for, and a place for its status.
        let ended = unsafe { libc::waitpid(self.0, &raw mut status, libc::WNOHANG) };
        assert!(ended >= 0, "{}", std::io::Error::last_os_error());
        (ended != 0).then_some(status)
    }

    /// Waits until the child has ended successfully.
    #[track_caller]
    pub fn fares_well(self) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.status() {
                assert_eq!(status, 0, "the child failed");
                return;
            }
            if begin.elapsed() > CHILD_PATIENCE {
                let threads = child_in_words(self.0);
                // SAFETY: our own child, which still runs.
                unsafe { libc::kill(self.0, libc::SIGKILL) };
                panic!("the child hangs\n{threads}");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// The threads of a child that hangs, and what they wait for.
fn child_in_words(pid: libc::pid_t) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let line = |task: std::fs::DirEntry| {
        let at = task.path();
        format!(
            "{} {} {}\n",
            read(at.join("comm")).trim(),
            read(at.join("wchan")),
            read(at.join("syscall")).trim()
        )
    };
    tasks.map(line).collect()
}

#[track_caller]
pub fn child(part: impl FnOnce() -> bool) {
    Child::start(part).fares_well();
}

/// Drops, in a child, a copy of a value that the parent still has; the child ends without dropping that copy again.
pub fn drop_in_child<T>(value: &T) {
    // SAFETY: the child is a copy, and `Child::start` ends it without running any destructor of what is outside its part.
    unsafe { drop(core::ptr::read(value)) };
}

/// Everything that can be done with a queue, tried on an inherited queue.
pub fn uses(queue: &Workqueue) {
    let (sender, receiver) = mpsc::channel();
    let work = Work::new(move |work: &Work| {
        assert!(work.is_running());
        sender.send(std::process::id()).unwrap();
    });
    for _ in 0..3 {
        assert!(queue.queue(&work));
        assert_eq!(receiver.recv_timeout(CHILD_PATIENCE), Ok(std::process::id()));
        eventually("it has ended", || !work.is_running());
    }
    assert!(queue.queue_on(0, &work).unwrap());
    receiver.recv_timeout(CHILD_PATIENCE).unwrap();
    let handles: Vec<_> = (0..200).map(|number| queue.spawn(move || number)).collect();
    let sum: u32 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
    assert_eq!(sum, 199 * 200 / 2);
    let mut halves = [0, 0];
    queue.scope(|scope| {
        for half in &mut halves {
            scope.spawn(move || *half = 1);
        }
    });
    assert_eq!(halves, [1, 1]);
    for scope in [AffinityScope::Cpu, AffinityScope::System, AffinityScope::Cache] {
        queue.set_affinity_scope(scope).unwrap();
        assert_eq!(queue.spawn(move || scope).join().unwrap(), scope);
    }
    let limit = queue.max_active();
    queue.set_max_active(1).unwrap();
    let handles: Vec<_> = (0..50).map(|number| queue.spawn(move || number)).collect();
    queue.set_max_active(limit).unwrap();
    assert!(handles.into_iter().enumerate().all(|(at, handle)| handle.join().unwrap() == at));
    assert_eq!(queue.inactive(), 0);
    queue.flush().unwrap();
    queue.drain().unwrap();
}

/// Builds, uses and drops a queue on `runtime`.
pub fn builds_another(runtime: &Runtime) {
    let other = runtime.workqueue_builder("child's").max_active(2).build().unwrap();
    uses(&other);
    drop(other);
}

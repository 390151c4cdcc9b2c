//! Children of a test: made by the C library's `fork`; they say how they fared by their exit status. One that does not end in
//! time is killed, and the test fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// What a child has to end within; they take milliseconds.
pub const CHILD_PATIENCE: Duration = Duration::from_secs(20);

/// A child process.
pub struct Child(pub libc::pid_t);

impl Child {
    /// Forks. The child runs `part` and ends; a panic, or `false`, is a failure.
    pub fn start(part: impl FnOnce() -> bool) -> Self {
        // SAFETY: the child runs what follows and ends without returning into the test's harness.
        match unsafe { libc::fork() } {
            0 => {
                let outcome = catch_unwind(AssertUnwindSafe(part));
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(!outcome.is_ok_and(|held| held))) }
            }
            pid => {
                assert!(pid > 0, "{}", std::io::Error::last_os_error());
                Child(pid)
            }
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

    /// Waits for a good end.
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

/// Drops in a child what the parent still has: the child ends without dropping it again.
pub fn drop_in_child<T>(value: &T) {
    // SAFETY: the child is a copy, and `Child::start` ends it without running any destructor of what is outside its part.
    unsafe { drop(core::ptr::read(value)) };
}

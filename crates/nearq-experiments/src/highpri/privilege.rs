//! What the kernel allows and reports: favoured threads, and the time that the host takes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::unix::fs::FileExt as _;

// What the experiment does to its own threads on Linux: it favours the thread that queues, takes the privilege to be favoured from a
// thread, and makes a thread a real-time thread.
//
// A thread's privileges are its own, and the threads that it starts inherit them. So a row without the privilege is a row
// whose issuer has given it up before the runtime starts its first thread; the rest of the process keeps it.

fn check(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The limit on nice values as it was, which is restored when this is dropped.
#[derive(Debug)]
pub(crate) struct NiceLimit(Rlimit);

impl Drop for NiceLimit {
    fn drop(&mut self) {
        // The value was in effect before, so it is not above the hard limit.
        let _ = setrlimit(Resource::Nice, self.0);
    }
}

/// Takes the privilege to be favoured from the caller and from the threads that it starts from now on: `CAP_SYS_NICE` for good and,
/// while the returned value lives, what `RLIMIT_NICE` allows all threads of the process.
pub(crate) fn give_up() -> io::Result<NiceLimit> {
    let mut sets = capabilities(None)?;
    sets.effective.remove(CapabilitySet::SYS_NICE);
    sets.permitted.remove(CapabilitySet::SYS_NICE);
    // For the calling thread alone.
    set_capabilities(None, sets)?;
    let limit = getrlimit(Resource::Nice);
    // Lowering the soft limit needs no privilege.
    setrlimit(Resource::Nice, Rlimit { current: Some(0), ..limit })?;
    Ok(NiceLimit(limit))
}

/// Sets the caller's class, nice value and slice (zero is the system's own). With `alone`, threads that it starts do not inherit these, but
/// are ordinary threads.
fn schedule(policy: i32, nice: i32, priority: u32, slice_ns: u64, alone: bool) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy.unsigned_abs(),
        sched_flags: if alone { libc::SCHED_FLAG_RESET_ON_FORK as u64 } else { 0 },
        sched_nice: nice,
        sched_priority: priority,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: live attributes of the size that they name; thread zero is the caller.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0_u32) })
}

/// Favours the caller as much as possible, but not the threads that it starts.
pub(crate) fn favour_alone() -> io::Result<()> {
    schedule(libc::SCHED_OTHER, MOST_FAVOURED, 0, 0, true)
}

/// Gives the caller, and the threads that it starts, a nice value and the system's own slice.
pub(crate) fn favour(nice: i32) -> io::Result<()> {
    schedule(libc::SCHED_OTHER, nice, 0, 0, false)
}

/// Makes the caller a real-time thread of the lowest priority, which runs before all ordinary threads.
pub(crate) fn real_time() -> io::Result<()> {
    schedule(libc::SCHED_FIFO, 0, 1, 0, true)
}

/// Whether a thread of this process may do that; tries it on a thread that ends at once.
pub(crate) fn may(attempt: fn() -> io::Result<()>) -> io::Result<()> {
    let tried = std::thread::Builder::new().spawn(attempt)?;
    tried.join().unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked")))
}

/// The most favoured nice value.
pub(crate) const MOST_FAVOURED: i32 = -20;

// How much time the host took from one CPU: the eighth number of its line in `/proc/stat`.
//
// It counts in hundredths of a second. A sample is marked if the count grew between a reading before it and one after it:
// the host took time then, although part of that hundredth may have been taken before.

/// Space for the lines of some CPUs; the buffer grows for a longer file.
const FIRST_BYTES: usize = 4096;

/// Reads one CPU's stolen time.
#[derive(Debug)]
pub struct StealClock {
    file: Option<File>,
    line: String,
    buffer: Vec<u8>,
}

impl StealClock {
    /// A reader for that CPU. Without `/proc`, it never reports stolen time.
    pub(crate) fn of(cpu: usize) -> Self {
        Self {
            file: File::open("/proc/stat").ok(),
            line: format!("cpu{cpu} "),
            buffer: vec![0; FIRST_BYTES],
        }
    }

    /// Hundredths of a second so far.
    pub(crate) fn read(&mut self) -> u64 {
        let Some(file) = &self.file else { return 0 };
        loop {
            let Ok(length) = file.read_at(&mut self.buffer, 0) else { return 0 };
            // The CPUs' lines come first; the text after them is cut off, and the last of their lines may be cut off too.
            let whole = length < self.buffer.len();
            let text = String::from_utf8_lossy(&self.buffer[..length]);
            if let Some(steal) = steal_of(&text, &self.line, whole) {
                return steal;
            }
            if whole {
                return 0;
            }
            let longer = self.buffer.len() * 2;
            self.buffer.resize(longer, 0);
        }
    }
}

/// The stolen time of the CPU whose line begins with `line`; none if there is no such line, or it is incomplete.
fn steal_of(text: &str, line: &str, whole: bool) -> Option<u64> {
    // user nice system idle iowait irq softirq steal
    const STEAL: usize = 7;
    let mut lines = text.split_inclusive('\n');
    let found = lines
        .find_map(|found| found.strip_prefix(line).filter(|rest| whole || rest.ends_with('\n')))?;
    found.split_whitespace().nth(STEAL)?.parse().ok()
}

#[cfg(test)]
#[path = "tests/privilege.rs"]
mod privilege_tests;

#[cfg(test)]
#[path = "tests/steal.rs"]
mod steal_tests;

//! How many threads the process has at most while something runs: a look every few milliseconds.
//!
//! The folder of a process's threads has a link for each of them (and two of its own), so one `stat` counts them: a few
//! microseconds with the wake-up, a thousandth of one CPU.

use crate::Error;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(3);

/// Threads of this process now.
pub(super) fn now() -> u64 {
    // Without /proc nobody counts.
    fs::metadata("/proc/self/task").map_or(0, |data| data.nlink().saturating_sub(2))
}

/// The thread that looks.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    most: AtomicU64,
    stop: AtomicBool,
}

impl Sampler {
    /// Begins to look.
    pub fn start() -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let body = move || {
            while !own.stop.load(Ordering::Relaxed) {
                own.most.fetch_max(now(), Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
        };
        let thread = thread::Builder::new()
            .name("sampler".into())
            .spawn(body)
            .map_err(|error| Error::run(format!("no thread to count threads: {error}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Threads at most so far, this one included.
    pub fn most(&self) -> u64 {
        self.shared.most.fetch_max(now(), Ordering::Relaxed);
        self.shared.most.load(Ordering::Relaxed)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn threads_that_were_there_are_counted_although_they_are_gone() {
        let sampler = Sampler::start().unwrap();
        let barrier = Barrier::new(6);
        // Ours, the sampler's, and five more. It looks by itself when it is asked, however busy the machine is.
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| barrier.wait());
            }
            assert!(sampler.most() >= 7);
            barrier.wait();
        });
        assert!(sampler.most() >= 7);
    }
}

//! Threads of other processes: where they may run. This is for code that keeps whole programs near their memory.

use nearq_topology::CpuSet;

use super::refusal::{self, refused};
use crate::sys::{self, Errno, Tid};
use crate::{Linux, OsError};

impl Linux {
    /// The CPUs on which a thread of any process may run, by its number. Numbers are reused: the caller must know which thread it
    /// is.
    ///
    /// # Errors
    /// There is no such thread.
    pub fn affinity_of(thread: u32) -> Result<CpuSet, OsError> {
        let what = || format!("read the CPUs of thread {thread}");
        let words = tid(thread).and_then(sys::affinity);
        words
            .map(|words| CpuSet::from_words(&words))
            .map_err(|error| refused(what(), error, "".into()))
    }

    /// Restricts a thread of any process to `cpus`, by its number. The thread leaves other CPUs at once.
    ///
    /// # Errors
    /// There is no such thread, it belongs to another user, or it may not use any of `cpus`.
    pub fn set_affinity_of(thread: u32, cpus: &CpuSet) -> Result<(), OsError> {
        tid(thread).and_then(|tid| sys::set_affinity(tid, cpus.as_words())).map_err(|error| {
            let what = format!("restrict thread {thread} to CPUs {cpus}");
            // A process may always change its own threads; only a filter or a security policy refuses that.
            let is_own = tid(thread).is_ok_and(sys::is_thread_of_this_process);
            let remedy = if is_own { refusal::affinity } else { refusal::affinity_of_others };
            refused(what, error, remedy(error))
        })
    }
}

fn tid(thread: u32) -> sys::Result<Tid> {
    i32::try_from(thread).ok().and_then(Tid::from_raw).ok_or(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Placement as _, Threads as _};

    #[test]
    fn the_affinity_of_another_processs_thread_can_be_set() {
        if cfg!(miri) {
            return;
        }
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let all = Linux::affinity_of(child.id()).unwrap();
        let one = CpuSet::single(all.last().unwrap());
        Linux::set_affinity_of(child.id(), &one).unwrap();
        assert_eq!(Linux::affinity_of(child.id()), Ok(one));
        let none = Linux::set_affinity_of(child.id(), &CpuSet::new()).unwrap_err();
        assert!(none.to_string().contains("restrict thread"), "{none}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Linux::affinity_of(child.id()).is_err() && Linux::affinity_of(0).is_err());
        assert_eq!(Linux::affinity(Linux::current_thread()), Ok(all));
    }
}

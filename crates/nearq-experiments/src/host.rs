//! What experiments ask of a platform beyond the trait: something that wakes an issuer, and the CPU time of the program.

use crate::Error;
use nearq_platform::{Linux, Parker, Platform};
use nearq_sim::Sim;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A platform that experiments run on.
pub trait Host: Platform {
    /// What wakes an issuer here.
    type Bell: Bell;

    /// CPU time of the whole program so far, of which `threads` are the ones that work.
    fn used_by(threads: &[Self::Thread]) -> Duration;
}

/// What wakes a thread that waits: rung before the wait, it ends the wait at once.
pub trait Bell: Clone + Send + Sync + Sized + 'static {
    /// A bell that nobody has rung.
    fn new() -> Result<Self, Error>;

    /// Rings it.
    fn ring(&self);

    /// Waits until somebody rings, or did since the last wait; false when nobody did within `longest`.
    fn wait(&self, longest: Duration) -> bool;
}

/// A bell of Linux: an eventfd, which the kernel rings as well when a transfer ends.
#[derive(Clone, Debug)]
pub struct EventBell(Arc<File>);

impl Bell for EventBell {
    fn new() -> Result<Self, Error> {
        // SAFETY: the call takes two integers and returns a new descriptor or -1.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(Error::run(format!("eventfd: {}", io::Error::last_os_error())));
        }
        // SAFETY: the descriptor is new and ours alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self(Arc::new(File::from(descriptor))))
    }

    fn ring(&self) {
        // An eventfd that refuses to count means that the counter is full: the one who waits will wake.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }

    fn wait(&self, longest: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one live pollfd, and the count says one.
        let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        if ready <= 0 {
            return ready < 0; // Interrupted by a signal: look again.
        }
        let _ = (&*self.0).read(&mut [0; 8]);
        true
    }
}

impl AsRawFd for EventBell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Host for Linux {
    type Bell = EventBell;

    fn used_by(_threads: &[Self::Thread]) -> Duration {
        nearq_report::usage::cpu_time()
    }
}

/// A bell of the simulated machine.
#[derive(Clone)]
pub struct ParkBell(Arc<Parker<Sim>>);

impl Bell for ParkBell {
    fn new() -> Result<Self, Error> {
        Ok(Self(Arc::new(Parker::new())))
    }

    fn ring(&self) {
        self.0.unpark();
    }

    fn wait(&self, longest: Duration) -> bool {
        self.0.park(Some(Sim::now() + longest))
    }
}

impl Host for Sim {
    type Bell = ParkBell;

    fn used_by(threads: &[Self::Thread]) -> Duration {
        // A thread that is gone has no time that could be asked for; workers and issuers outlive the run.
        threads.iter().filter_map(|thread| Sim::cpu_time(*thread).ok()).sum()
    }
}

/// What a thread of a run is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It makes blocks and verifies them.
    Issuer,
    /// It runs items.
    Worker,
}

/// A thread, and what it is there for.
type Member<H> = (Role, <H as Platform>::Thread);

/// The threads of a run that work.
#[derive(Clone, Debug)]
pub struct Census<H: Host>(Arc<Mutex<Vec<Member<H>>>>);

impl<H: Host> Census<H> {
    /// Adds the caller.
    pub fn enter(&self, role: Role) {
        let caller = H::current_thread();
        self.list().push((role, caller));
    }

    /// CPU time of the program so far.
    pub fn cpu_time(&self) -> Duration {
        let threads: Vec<_> = self.list().iter().map(|(_, thread)| *thread).collect();
        H::used_by(&threads)
    }

    /// CPU time of the issuers so far.
    pub fn issuers_cpu_time(&self) -> Duration {
        let list = self.list().clone();
        let issuers = list.into_iter().filter(|(role, _)| *role == Role::Issuer);
        issuers.filter_map(|(_, thread)| <H as Platform>::cpu_time(thread).ok()).sum()
    }

    /// The list; nobody calls the platform while holding it, so that on the simulated machine nobody waits for it.
    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Member<H>>> {
        self.0.lock().expect("nobody panics while holding the list")
    }
}

impl<H: Host> Default for Census<H> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }
}

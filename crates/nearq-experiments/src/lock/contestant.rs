//! The locks that take part, all behind one trait, and what a run of one of them is.
//!
//! Every lock is used through its own interface as its users would, in code that is compiled for it alone: no virtual call
//! stands between a thread and its lock.

use super::epoll::Epoll;
use super::file::File;
use super::load::{Load, Plan};
use super::pthread::Pthread;
use super::run::measure;
use super::sample::Sample;
use super::torture::Torture;
use super::tree::{Renames, Unlinks};
use crate::Error;
use crate::harness::Host;
use nearq_lock::{Mode, Mutex, OsqLock, Settings};
use nearq_platform::{Linux, Platform};
use nearq_sim::Sim;

/// A lock for one thread at a time.
pub trait Exclusive: Send + Sync + 'static {
    /// One that nobody holds.
    fn free() -> Self;

    /// Does something while holding it. The lock is given back however that ends, or never if it panics and the lock cannot
    /// do better.
    fn with<R>(&self, section: impl FnOnce() -> R) -> R;
}

impl<P: Platform> Exclusive for Mutex<(), P> {
    fn free() -> Self {
        Self::new_in(())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        let _guard = self.lock();
        section()
    }
}

impl<P: Platform> Exclusive for OsqLock<(), P> {
    fn free() -> Self {
        Self::new_in(())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        let _guard = self.lock();
        section()
    }
}

impl Exclusive for std::sync::Mutex<()> {
    fn free() -> Self {
        Self::new(())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        let _guard = self.lock().expect("no section panics");
        section()
    }
}

impl Exclusive for parking_lot::Mutex<()> {
    fn free() -> Self {
        Self::new(())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        let _guard = self.lock();
        section()
    }
}

/// The queue lock that spins, and lets others run between two looks: without that it stands still for a time slice at each
/// hand-over to a thread that has no CPU.
type Mcs = mcslock::raw::yields::Mutex<()>;

impl Exclusive for Mcs {
    fn free() -> Self {
        Self::new(())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        self.lock_then(|()| section())
    }
}

/// Our mutex with one queue.
pub const PLAIN: &str = "nearq plain";
/// Our mutex with a queue for each cache all the time.
pub const NUMA: &str = "nearq always-NUMA";
/// Our mutex as it comes.
pub const AUTO: &str = "nearq auto";
/// Our optimistic spin queue.
pub const OSQ: &str = "OsqLock";
/// The standard library's mutex.
pub const STD: &str = "std";
/// That of the crate `parking_lot`.
pub const PARKING_LOT: &str = "parking_lot";
/// The C library's ordinary mutex.
pub const PTHREAD: &str = "pthread normal";
/// The C library's mutex that looks for a while before it sleeps.
pub const PTHREAD_ADAPTIVE: &str = "pthread adaptive";
/// The MCS lock of the crate `mcslock`.
pub const MCS: &str = "mcslock";

/// One who takes part.
#[derive(Clone, Copy, Debug)]
pub struct Contestant {
    /// Its row in the tables.
    pub row: &'static str,
    /// The mode of our mutexes for it.
    mode: Option<Mode>,
    run: fn(&Plan) -> Result<Sample, Error>,
}

impl Contestant {
    /// One run, on the platform that the contestant is for.
    pub(super) fn measure<P: Host>(&self, plan: &Plan) -> Result<Sample, Error> {
        if let Some(mode) = self.mode {
            let mut settings = Settings::of_process::<P>();
            settings.mode = mode;
            settings.set_for_process::<P>();
        }
        (self.run)(plan)
    }
}

/// A run of the plan's load with locks of one kind.
pub(super) fn shaped<P: Host, L: Exclusive>(plan: &Plan) -> Result<Sample, Error> {
    match plan.load {
        Load::Short | Load::Long => measure::<P, Torture<P, L>>(plan),
        Load::Epoll => measure::<P, Epoll<P, L>>(plan),
        Load::Dwom => measure::<P, File<P, L>>(plan),
        Load::Mwrm => measure::<P, Renames<P, L>>(plan),
        Load::Mwum => measure::<P, Unlinks<P, L>>(plan),
    }
}

/// Ours, which run on any platform.
fn ours<P: Host>() -> Vec<Contestant> {
    let adaptive = |row, mode| Contestant { row, mode: Some(mode), run: shaped::<P, Mutex<(), P>> };
    vec![
        adaptive(PLAIN, Mode::Plain),
        adaptive(NUMA, Mode::Numa),
        adaptive(AUTO, Mode::Auto),
        Contestant { row: OSQ, mode: None, run: shaped::<P, OsqLock<(), P>> },
    ]
}

/// Everybody on the real machine.
pub fn here() -> Vec<Contestant> {
    fn other<L: Exclusive>(row: &'static str) -> Contestant {
        Contestant { row, mode: None, run: shaped::<Linux, L> }
    }
    let mut all = ours::<Linux>();
    all.push(other::<std::sync::Mutex<()>>(STD));
    all.push(other::<parking_lot::Mutex<()>>(PARKING_LOT));
    all.push(other::<Pthread<false>>(PTHREAD));
    if cfg!(target_env = "gnu") {
        all.push(other::<Pthread<true>>(PTHREAD_ADAPTIVE));
    }
    all.push(other::<Mcs>(MCS));
    all
}

/// Everybody on a simulated machine.
pub fn simulated() -> Vec<Contestant> {
    ours::<Sim>()
}

//! The locks that take part, all behind one trait, and what a run of one of them is.
//!
//! Every lock is used through its own interface as its users would, in code that is compiled for it alone: no virtual call
//! stands between a thread and its lock.

use super::super::load::{Load, Plan, Sample, measure};
use super::super::shapes::{Epoll, File, Renames, Torture, Unlinks};
use super::cna::Cna;
use super::hq::Hq;
use super::osq::{Dynamic, KernelMutex, Osq, Tail2, Tail4};
use super::qspinlock::QSpinLock;
use super::roster::{ByL3, ByPackage, Roster};
use super::trigger::{ByDepth, ByHandOvers};
use crate::Error;
use crate::harness::Host;
use core::cell::UnsafeCell;
use libc::{PTHREAD_MUTEX_INITIALIZER, pthread_mutex_t};
use nearq_lock::raw::OsqLock;
use nearq_lock::{Mode, Mutex, Settings};
use nearq_platform::{Linux, Platform};
use nearq_sim::Sim;
use std::sync::Arc;

/// A lock for one thread at a time.
pub trait Exclusive: Send + Sync + 'static {
    /// A lock that is not held, for these writers.
    fn free(roster: &Arc<Roster>) -> Self;

    /// Does something while holding it, as that writer. The lock is given back however the action ends. If the action panics, a lock that
    /// cannot handle a panic is never given back.
    fn with<R>(&self, writer: usize, section: impl FnOnce() -> R) -> R;
}

/// Implements [`Exclusive`] for a lock that has a guard.
macro_rules! exclusive {
    ($lock:ty, $new:expr, |$of:ident| $guard:expr $(, $platform:ident)?) => {
        impl$(<$platform: Platform>)? Exclusive for $lock {
            fn free(_: &Arc<Roster>) -> Self {
                $new(())
            }

            #[inline]
            fn with<R>(&self, _: usize, section: impl FnOnce() -> R) -> R {
                let $of = self;
                let _guard = $guard;
                section()
            }
        }
    };
}

exclusive!(Mutex<(), P>, Self::new_in, |lock| lock.lock(), P);
exclusive!(OsqLock<(), P>, Self::new_in, |lock| lock.lock(), P);
exclusive!(std::sync::Mutex<()>, Self::new, |lock| lock.lock().expect("no section panics"));
exclusive!(parking_lot::Mutex<()>, Self::new, |lock| lock.lock());

/// The queue lock that spins, and yields between two checks: without the yield it stands still for a time slice at each hand-over to a
/// thread that has no CPU.
type Mcs = mcslock::raw::yields::Mutex<()>;

impl Exclusive for Mcs {
    fn free(_: &Arc<Roster>) -> Self {
        Self::new(())
    }

    #[inline]
    fn with<R>(&self, _: usize, section: impl FnOnce() -> R) -> R {
        self.lock_then(|()| section())
    }
}

/// Our mutex with one queue.
pub const PLAIN: &str = "nearq plain";
/// Our mutex that always has a queue for each cache.
pub const NUMA: &str = "nearq always-NUMA";
/// Our mutex with its default settings.
pub const AUTO: &str = "nearq auto";
/// Our optimistic spin queue.
pub const OSQ: &str = "OsqLock";
/// The kernel's queued spinlock.
pub const QSPINLOCK: &str = "qspinlock";
/// The compact NUMA-aware lock.
pub const CNA: &str = "CNA";
/// The spinlock that changes to queues by socket, by its authors' rule.
pub const HQ_SOCKETS: &str = "HQ sockets";
/// The same with queues by last-level cache.
pub const HQ_CACHES: &str = "HQ caches";
/// The same, by the document's rule: the length of the queue.
pub const HQ_DEPTH: &str = "HQ caches by depth";
/// The kernel's mutex over its optimistic spin queue.
pub const KERNEL_OSQ: &str = "kernel osq";
/// The same with the document's tail of two bytes.
pub const KERNEL_OSQ_2: &str = "kernel osq 2 bytes";
/// The same with the document's change to queues by cluster.
pub const KERNEL_OSQ_DYNAMIC: &str = "kernel osq dynamic";
/// The standard library's mutex.
pub const STD: &str = "std";
/// The mutex of the crate `parking_lot`.
pub const PARKING_LOT: &str = "parking_lot";
/// The C library's ordinary mutex.
pub const PTHREAD: &str = "pthread normal";
/// The C library's mutex that spins for a while before it sleeps.
pub const PTHREAD_ADAPTIVE: &str = "pthread adaptive";
/// The MCS lock of the crate `mcslock`.
pub const MCS: &str = "mcslock";

/// A contestant.
#[derive(Clone, Copy, Debug)]
pub struct Contestant {
    /// Its row in the tables.
    pub row: &'static str,
    /// The mode of our mutexes for it.
    mode: Option<Mode>,
    run: fn(&Plan) -> Result<Sample, Error>,
}

impl Contestant {
    /// Runs it once, on the platform that the contestant is for.
    pub(in super::super) fn measure<P: Host>(&self, plan: &Plan) -> Result<Sample, Error> {
        if let Some(mode) = self.mode {
            let mut settings = Settings::of_process_in::<P>();
            settings.mode = mode;
            settings.set_for_process_in::<P>();
        }
        (self.run)(plan)
    }
}

/// A run of the plan's load with locks of one kind.
pub(in super::super) fn shaped<P: Host, L: Exclusive>(plan: &Plan) -> Result<Sample, Error> {
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
        other::<P, OsqLock<(), P>>(OSQ),
    ]
}

/// The kernel's, and those of its mailing list.
fn kernels<P: Host>() -> Vec<Contestant> {
    vec![
        other::<P, QSpinLock<P>>(QSPINLOCK),
        other::<P, QSpinLock<P, Cna>>(CNA),
        other::<P, Hq<P, ByPackage, ByHandOvers>>(HQ_SOCKETS),
        other::<P, Hq<P, ByL3, ByHandOvers>>(HQ_CACHES),
        other::<P, Hq<P, ByL3, ByDepth>>(HQ_DEPTH),
        other::<P, KernelMutex<P, Osq<P, Tail4<P>>>>(KERNEL_OSQ),
        other::<P, KernelMutex<P, Osq<P, Tail2<P>>>>(KERNEL_OSQ_2),
        other::<P, KernelMutex<P, Dynamic<P>>>(KERNEL_OSQ_DYNAMIC),
    ]
}

fn other<P: Host, L: Exclusive>(row: &'static str) -> Contestant {
    Contestant { row, mode: None, run: shaped::<P, L> }
}

/// All contestants on the real machine.
pub fn here() -> Vec<Contestant> {
    let mut all = ours::<Linux>();
    all.push(other::<Linux, std::sync::Mutex<()>>(STD));
    all.push(other::<Linux, parking_lot::Mutex<()>>(PARKING_LOT));
    all.push(other::<Linux, Pthread<false>>(PTHREAD));
    if cfg!(target_env = "gnu") {
        all.push(other::<Linux, Pthread<true>>(PTHREAD_ADAPTIVE));
    }
    all.push(other::<Linux, Mcs>(MCS));
    all.extend(kernels::<Linux>());
    all
}

/// All contestants on a simulated machine.
pub fn simulated() -> Vec<Contestant> {
    let mut all = ours::<Sim>();
    all.extend(kernels::<Sim>());
    all
}

// The C library's mutex, of the kinds that do not check which thread holds them.

/// A mutex of the C library: the ordinary kind, or the one that spins for a while before it sleeps.
///
/// It has the value of the static initialiser until it is first locked, does not contain its own address, and is not moved from the first
/// locking on.
pub(super) struct Pthread<const ADAPTIVE: bool>(UnsafeCell<pthread_mutex_t>);

// SAFETY: a mutex is meant for use by several threads; no thread locks it before it is shared, so it may be sent to another thread.
unsafe impl<const ADAPTIVE: bool> Send for Pthread<ADAPTIVE> {}
// SAFETY: a mutex is meant for use by several threads at once.
unsafe impl<const ADAPTIVE: bool> Sync for Pthread<ADAPTIVE> {}

#[cfg(target_env = "gnu")]
const ADAPTIVE_INITIALIZER: pthread_mutex_t = libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
/// Other C libraries have only the ordinary kind.
#[cfg(not(target_env = "gnu"))]
const ADAPTIVE_INITIALIZER: pthread_mutex_t = PTHREAD_MUTEX_INITIALIZER;

impl<const ADAPTIVE: bool> Exclusive for Pthread<ADAPTIVE> {
    fn free(_: &Arc<Roster>) -> Self {
        let initial = if ADAPTIVE { ADAPTIVE_INITIALIZER } else { PTHREAD_MUTEX_INITIALIZER };
        Self(UnsafeCell::new(initial))
    }

    #[inline]
    fn with<R>(&self, _: usize, section: impl FnOnce() -> R) -> R {
        // SAFETY: the mutex was initialised, is borrowed and so lives, and the cell allows the C library to change it.
        let taken = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        assert_eq!(taken, 0, "this kind refuses nothing");
        let result = section();
        // SAFETY: the mutex is borrowed, so it lives and is not moved; the caller has locked it just now, in this thread.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
        result
    }
}

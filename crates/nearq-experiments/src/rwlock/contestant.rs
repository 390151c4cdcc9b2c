//! The locks that take part, all behind one trait: for readers and writers, and one mutex that serves both.

use super::load::{Plan, Sample, measure};
use super::peers::{Bravo, Rwsem};
use crate::Error;
use crate::harness::Host;
use core::cell::UnsafeCell;
use crossbeam_utils::sync::ShardedLock;
use nearq_lock::{Mode, Mutex, RwLock, Settings};
use nearq_platform::{Linux, Platform};
use nearq_sim::Sim;

/// A lock for many readers or one writer.
pub(super) trait Shared: Send + Sync + 'static {
    /// A lock that no thread has.
    fn free() -> Self;

    /// Does something as a reader. `thread` is the caller's number.
    fn read<R>(&self, thread: usize, section: impl FnOnce() -> R) -> R;

    /// Does something as a writer.
    fn write<R>(&self, section: impl FnOnce() -> R) -> R;
}

/// Implements [`Shared`] for a lock that has guards.
macro_rules! shared {
    ($lock:ty, $new:expr, $read:ident, $write:ident $(, $unwrap:ident)? $(; $platform:ident)?) => {
        impl$(<$platform: Platform>)? Shared for $lock {
            fn free() -> Self {
                $new(())
            }

            #[inline]
            fn read<R>(&self, _thread: usize, section: impl FnOnce() -> R) -> R {
                let _guard = self.$read()$(.$unwrap())?;
                section()
            }

            #[inline]
            fn write<R>(&self, section: impl FnOnce() -> R) -> R {
                let _guard = self.$write()$(.$unwrap())?;
                section()
            }
        }
    };
}

shared!(RwLock<(), P>, Self::new_in, read, write; P);
shared!(Mutex<(), P>, Self::new_in, lock, lock; P);
shared!(std::sync::RwLock<()>, Self::new, read, write, unwrap);
shared!(parking_lot::RwLock<()>, Self::new, read, write);
shared!(ShardedLock<()>, Self::new, read, write, unwrap);

/// Our lock with its default settings.
pub const AUTO: &str = "nearq";
/// Our lock, whose readers never count themselves by cache.
pub const PLAIN: &str = "nearq, one word";
/// Our mutex, which readers take too.
pub const MUTEX: &str = "nearq mutex";
/// The standard library's lock.
pub const STD: &str = "std";
/// The lock of the crate `parking_lot`.
pub const PARKING_LOT: &str = "parking_lot";
/// The C library's usual lock, which prefers readers.
pub const PTHREAD_READERS: &str = "pthread, readers";
/// The C library's lock that prefers writers.
pub const PTHREAD_WRITERS: &str = "pthread, writers";
/// The sharded lock of crossbeam.
pub const SHARDED: &str = "ShardedLock";
/// The kernel's way, on a simulated machine.
pub const RWSEM: &str = "rwsem";
/// BRAVO over that.
pub const BRAVO: &str = "BRAVO rwsem";

/// The locks of others on this machine.
pub(super) const PEERS: [&str; 5] = [STD, PARKING_LOT, PTHREAD_READERS, PTHREAD_WRITERS, SHARDED];
/// The locks of others' designs on a simulated one.
pub(super) const SIMULATED_PEERS: [&str; 3] = [MUTEX, RWSEM, BRAVO];

/// A contestant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    /// Its row in the tables.
    pub(super) row: &'static str,
    /// The mode of our locks for it.
    mode: Option<Mode>,
    run: fn(&Plan) -> Result<Sample, Error>,
}

impl Contestant {
    /// Runs it once, on the platform that the contestant is for.
    pub(super) fn measure<P: Host>(&self, plan: &Plan) -> Result<Sample, Error> {
        if let Some(mode) = self.mode {
            let mut settings = Settings::of_process_in::<P>();
            settings.mode = mode;
            settings.set_for_process_in::<P>();
        }
        (self.run)(plan)
    }
}

/// Ours, which run on any platform.
fn ours<P: Host>() -> Vec<Contestant> {
    let lock = |row, mode| Contestant { row, mode: Some(mode), run: measure::<P, RwLock<(), P>> };
    vec![
        lock(AUTO, Mode::Auto),
        lock(PLAIN, Mode::Plain),
        Contestant { row: MUTEX, mode: Some(Mode::Auto), run: measure::<P, Mutex<(), P>> },
    ]
}

/// All contestants on the real machine.
pub(super) fn here() -> Vec<Contestant> {
    fn other<L: Shared>(row: &'static str) -> Contestant {
        Contestant { row, mode: None, run: measure::<Linux, L> }
    }
    let mut all = ours::<Linux>();
    all.push(other::<std::sync::RwLock<()>>(STD));
    all.push(other::<parking_lot::RwLock<()>>(PARKING_LOT));
    all.push(other::<Pthread<false>>(PTHREAD_READERS));
    if cfg!(target_env = "gnu") {
        all.push(other::<Pthread<true>>(PTHREAD_WRITERS));
    }
    all.push(other::<ShardedLock<()>>(SHARDED));
    all
}

/// All contestants on a simulated machine.
pub(super) fn simulated() -> Vec<Contestant> {
    let mut all = ours::<Sim>();
    all.push(Contestant { row: RWSEM, mode: Some(Mode::Plain), run: measure::<Sim, Rwsem<Sim>> });
    all.push(Contestant { row: BRAVO, mode: Some(Mode::Plain), run: measure::<Sim, Bravo<Sim>> });
    all
}

/// A lock of the C library: the usual kind, which prefers readers, or the one that prefers writers. It does not contain its own address, and
/// is not moved from its first use on.
pub(super) struct Pthread<const WRITERS: bool>(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: the lock is meant for use by several threads; no thread uses it before it is shared, so it may be sent to another thread.
unsafe impl<const WRITERS: bool> Send for Pthread<WRITERS> {}
// SAFETY: the lock is meant for use by several threads at once.
unsafe impl<const WRITERS: bool> Sync for Pthread<WRITERS> {}

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`.
#[cfg(target_env = "gnu")]
const PREFER_WRITERS: libc::c_int = 2;

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn pthread_rwlockattr_setkind_np(
        attributes: *mut libc::pthread_rwlockattr_t,
        kind: libc::c_int,
    ) -> libc::c_int;
}

impl<const WRITERS: bool> Shared for Pthread<WRITERS> {
    fn free() -> Self {
        let lock = UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER);
        #[cfg(target_env = "gnu")]
        if WRITERS {
            let mut attributes = core::mem::MaybeUninit::uninit();
            // SAFETY: the attributes are initialised by the first call, and the lock by the third one, before any thread uses it; the
            // attributes are ours to destroy.
            let refused = unsafe {
                libc::pthread_rwlockattr_init(attributes.as_mut_ptr())
                    | pthread_rwlockattr_setkind_np(attributes.as_mut_ptr(), PREFER_WRITERS)
                    | libc::pthread_rwlock_init(lock.get(), attributes.as_ptr())
                    | libc::pthread_rwlockattr_destroy(attributes.as_mut_ptr())
            };
            assert_eq!(refused, 0, "these attributes are valid");
        }
        Self(lock)
    }

    #[inline]
    fn read<R>(&self, _thread: usize, section: impl FnOnce() -> R) -> R {
        // SAFETY: the lock was initialised, is borrowed and so lives, and the cell allows the C library to change it.
        let taken = unsafe { libc::pthread_rwlock_rdlock(self.0.get()) };
        assert_eq!(taken, 0, "few threads read it");
        let result = section();
        // SAFETY: as above; the caller has it as a reader.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
        result
    }

    #[inline]
    fn write<R>(&self, section: impl FnOnce() -> R) -> R {
        // SAFETY: the lock was initialised, is borrowed and so lives, and the cell allows the C library to change it.
        let taken = unsafe { libc::pthread_rwlock_wrlock(self.0.get()) };
        assert_eq!(taken, 0, "the caller does not have it");
        let result = section();
        // SAFETY: as above; the caller has it as a writer.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
        result
    }
}

//! Which signals a thread takes.
//!
//! A thread that runs only the runtime's own code must not run the program's signal handlers: they would see a stack, a nice value and
//! thread-locals that the program knows nothing about. A new thread inherits the mask of its creator, so the creator blocks everything
//! while it creates ([`BlockedSignals`]): the new thread has no instruction at which a handler could run. Faults are different: a thread
//! that faults while the signal is blocked is killed silently, so the new thread lets those through ([`unblock_synchronous_signals`]).
//!
//! A thread that runs the program's code, and a program that is started as a process of its own, must find what the program's own threads
//! find ([`SignalMask`]): a child inherits the mask however it is started, and a profiler's signal is meant for the thread that computes.

#[cfg(not(miri))]
pub(crate) use real::{BlockedSignals, SignalMask, unblock_synchronous_signals};
#[cfg(miri)]
pub(crate) use stub::{BlockedSignals, SignalMask, unblock_synchronous_signals};

#[cfg(not(miri))]
mod real {
    use core::marker::PhantomData;
    use core::mem::MaybeUninit;
    use core::ptr;

    use libc::{c_int, sigset_t};

    /// The signals that an instruction of the thread itself raises.
    const SYNCHRONOUS: [c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

    /// The largest number of a signal.
    const MOST: c_int = 64;

    /// While it lives, the calling thread has all signals blocked; when it is dropped, the thread gets back the mask that it had before.
    #[must_use]
    pub(crate) struct BlockedSignals {
        before: sigset_t,
        /// The mask is the calling thread's: the value must be dropped on it.
        not_send: PhantomData<*const ()>,
    }

    impl BlockedSignals {
        /// Blocks all signals of the caller. Those that the C library keeps for itself stay unblocked.
        pub(crate) fn block() -> Self {
            BlockedSignals { before: change(libc::SIG_SETMASK, &full()), not_send: PhantomData }
        }
    }

    impl Drop for BlockedSignals {
        fn drop(&mut self) {
            change(libc::SIG_SETMASK, &self.before);
        }
    }

    /// The signals that a thread has blocked.
    #[derive(Clone)]
    pub(crate) struct SignalMask(sigset_t);

    impl SignalMask {
        /// The signals that the caller has blocked.
        pub(crate) fn of_caller() -> Self {
            SignalMask(change(libc::SIG_BLOCK, &empty()))
        }

        /// The same, a bit for each: bit `n - 1` is signal `n`.
        pub(crate) fn bits(&self) -> u64 {
            // SAFETY: validity: the set is initialised; a number that is no signal of a program's gives -1. Aliasing: a shared reference.
            // Thread: the set is local.
            let has = |signal| unsafe { libc::sigismember(&raw const self.0, signal) } == 1;
            (1..=MOST)
                .filter(|&signal| has(signal))
                .fold(0, |bits, signal| bits | 1 << (signal - 1))
        }

        pub(crate) fn of_bits(bits: u64) -> Self {
            let mut set = empty();
            for signal in (1..=MOST).filter(|signal| bits >> (signal - 1) & 1 == 1) {
                // SAFETY: validity: the set is initialised. Aliasing: the only reference is the one passed. Thread: the set is local.
                unsafe { libc::sigaddset(&raw mut set, signal) };
            }
            SignalMask(set)
        }

        /// Makes the caller block exactly these signals. This is one system call, which a child that borrows its parent's memory may make.
        pub(crate) fn apply(&self) {
            change(libc::SIG_SETMASK, &self.0);
        }
    }

    /// Lets the caller's own faults through.
    pub(crate) fn unblock_synchronous_signals() {
        let mut set = empty();
        for signal in SYNCHRONOUS {
            // SAFETY: validity: the set is initialised, the signal exists. Aliasing: the only reference is
            // the one passed. Thread: the set is local.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        change(libc::SIG_UNBLOCK, &set);
    }

    fn empty() -> sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: validity: the call initialises the whole set that it is given. Aliasing: the only reference
        // is the one passed. Thread: the set is local.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: validity: initialised above. Aliasing: moved out of a local. Thread: local.
        unsafe { set.assume_init() }
    }

    fn full() -> sigset_t {
        let mut set = empty();
        // SAFETY: validity: the set is initialised. Aliasing: the only reference is the one passed.
        // Thread: the set is local.
        unsafe { libc::sigfillset(&raw mut set) };
        set
    }

    /// Changes the caller's mask and returns the one before. Cannot fail: `how` is one of the three.
    fn change(how: c_int, set: &sigset_t) -> sigset_t {
        let mut before = empty();
        // SAFETY: validity: both sets are initialised and live for the whole call. Aliasing: they are two
        // sets. Thread: changes the calling thread's mask alone.
        unsafe { libc::pthread_sigmask(how, ptr::from_ref(set), &raw mut before) };
        before
    }
}

/// Miri delivers no signals: nothing to do.
#[cfg(miri)]
mod stub {
    #[must_use]
    pub(crate) struct BlockedSignals;

    impl BlockedSignals {
        pub(crate) fn block() -> Self {
            BlockedSignals
        }
    }

    #[derive(Clone)]
    pub(crate) struct SignalMask;

    impl SignalMask {
        pub(crate) fn of_caller() -> Self {
            SignalMask
        }

        pub(crate) fn bits(&self) -> u64 {
            0
        }

        pub(crate) fn of_bits(_: u64) -> Self {
            SignalMask
        }

        pub(crate) fn apply(&self) {}
    }

    pub(crate) fn unblock_synchronous_signals() {}
}

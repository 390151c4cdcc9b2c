//! The functions that programs call in place of the C library's. Each first checks whether the program is ours.
//!
//! A thread may be cancelled in any of them, if it is of the asynchronous type. So they are `extern "C-unwind"`: the thread unwinds through
//! their frames, which have nothing to drop. Functions that may panic are called by `extern "C"` functions in between, so that a panic ends
//! there, and while the thread is of the deferred type (`cancel.rs`).
//!
//! # All or none
//! The functions of a list that has a name here, and all of `c11.rs`, must be ours for all of the program, or nothing is replaced
//! (`real::first_of_others`). With another object's function, threads would wait for ever: for a mutex that is the C library's to some of
//! its users; for a cancellation about which no thread wakes them; behind a thread that has jumped out of its wait; in the child of a fork,
//! for threads of the parent, if a library registers for forks before us.
//!
//! The functions in the list without a name may be another object's. If a thread is created without us, threads wait without a place in a
//! queue until one waits for a condition, and the control socket is opened only when the next thread is created. If a class is set without
//! us, it is noticed when the thread finds a mutex held.

use core::ffi::{CStr, c_int, c_void};

use libc::{
    clockid_t, pid_t, pthread_attr_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t,
    pthread_mutexattr_t, pthread_rwlock_t, pthread_rwlockattr_t, pthread_t, sched_param, timespec,
};

use nearq_platform::Instant;

use crate::condvar::{Ended, For, Route};
use crate::leaving::Before;
use crate::process::{is_ours, was_ours};
use crate::rwlock::As;
use crate::{cancel, clock, condvar, layout, leaving, mixed, mutex, process, real, rwlock};

/// Exports functions under the C library's names. All are unsafe as the C library's are, and call what is unsafe in the same way.
macro_rules! export {
    ($list:ident: $($name:ident($($arg:ident: $type:ty),*), ours: $ours:expr, theirs: $theirs:expr;)*) => {
        pub(crate) const $list: &[&CStr] = &[$(real::symbol(concat!(stringify!($name), "\0"))),*];
        export! { $($name($($arg: $type),*), ours: $ours, theirs: $theirs;)* }
    };
    ($($name:ident($($arg:ident: $type:ty),*), ours: $ours:expr, theirs: $theirs:expr;)*) => {$(
        // SAFETY: the name and type of the C library's function, which it does the work of.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            /// Used if the decision has not been made, or if the program is not ours: a separate function, so that the common path needs no
            /// frame.
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn otherwise($($arg: $type),*) -> c_int {
                if is_ours() {
                    // SAFETY: as the caller promises.
                    #[allow(clippy::macro_metavars_in_unsafe, reason = "only used below")]
                    unsafe { $ours }
                } else {
                    // SAFETY: as the caller promises, which calls the C library's function.
                    unsafe { $theirs }
                }
            }
            if was_ours() {
                // SAFETY: as the caller promises.
                unsafe { $ours }
            } else {
                // SAFETY: as the caller promises.
                unsafe { otherwise($($arg),*) }
            }
        }
    )*};
}

// ---- mutexes --------------------------------------------------------------------------------------------------------------

export! {
    MUTEXES:
    pthread_mutex_init(mutex: *mut pthread_mutex_t, attributes: *const pthread_mutexattr_t),
        // Everything except the kind is zero then, as needed.
        ours: real::mutex_init::call(mutex, attributes),
        theirs: real::mutex_init::call(mutex, attributes);
    pthread_mutex_destroy(mutex: *mut pthread_mutex_t),
        ours: mutex::destroy(mutex),
        theirs: real::mutex_destroy::call(mutex);
    pthread_mutex_lock(mutex: *mut pthread_mutex_t),
        ours: mutex::lock(mutex),
        theirs: real::mutex_lock::call(mutex);
    pthread_mutex_trylock(mutex: *mut pthread_mutex_t),
        ours: mutex::trylock(mutex),
        theirs: real::mutex_trylock::call(mutex);
    pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec),
        ours: mutex::clocklock(mutex, libc::CLOCK_REALTIME, until),
        theirs: real::mutex_timedlock::call(mutex, until);
    pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec),
        ours: if clock::is_known(clock) { mutex::clocklock(mutex, clock, until) } else { libc::EINVAL },
        theirs: real::mutex_clocklock::call(mutex, clock, until);
    pthread_mutex_unlock(mutex: *mut pthread_mutex_t),
        ours: mutex::unlock(mutex),
        theirs: real::mutex_unlock::call(mutex);
    // The C library's own libraries and old programs use these names for the same functions.
    __pthread_mutex_init(mutex: *mut pthread_mutex_t, attributes: *const pthread_mutexattr_t),
        ours: pthread_mutex_init(mutex, attributes),
        theirs: pthread_mutex_init(mutex, attributes);
    __pthread_mutex_destroy(mutex: *mut pthread_mutex_t),
        ours: pthread_mutex_destroy(mutex),
        theirs: pthread_mutex_destroy(mutex);
    __pthread_mutex_lock(mutex: *mut pthread_mutex_t),
        ours: pthread_mutex_lock(mutex),
        theirs: pthread_mutex_lock(mutex);
    __pthread_mutex_trylock(mutex: *mut pthread_mutex_t),
        ours: pthread_mutex_trylock(mutex),
        theirs: pthread_mutex_trylock(mutex);
    __pthread_mutex_unlock(mutex: *mut pthread_mutex_t),
        ours: pthread_mutex_unlock(mutex),
        theirs: pthread_mutex_unlock(mutex);
}

// ---- condition variables --------------------------------------------------------------------------------------------------

export! {
    CONDVARS:
    pthread_cond_init(condvar: *mut pthread_cond_t, attributes: *const pthread_condattr_t),
        ours: condvar::init(condvar, attributes),
        theirs: real::cond_init::call(condvar, attributes);
    pthread_cond_destroy(condvar: *mut pthread_cond_t),
        ours: condvar::destroy(condvar),
        theirs: real::cond_destroy::call(condvar);
    pthread_cond_signal(condvar: *mut pthread_cond_t),
        ours: condvar::notify(condvar, For::One),
        theirs: real::cond_signal::call(condvar);
    pthread_cond_broadcast(condvar: *mut pthread_cond_t),
        ours: condvar::notify(condvar, For::All),
        theirs: real::cond_broadcast::call(condvar);
    pthread_cond_wait(condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t),
        ours: match condvar::route(condvar, mutex) {
            Route::Ours => wait(condvar, mutex, None),
            Route::Theirs(condvar) => real::cond_wait::call(condvar, mutex),
            Route::Mixed => wait_mixed(condvar, mutex, None),
        },
        theirs: real::cond_wait::call(condvar, mutex);
    pthread_cond_timedwait(condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec),
        ours: match condvar::route(condvar, mutex) {
            Route::Ours => match clock::deadline(condvar::clock_of(condvar), *until) {
                Ok(deadline) => wait(condvar, mutex, Some(&deadline)),
                Err(error) => error,
            },
            Route::Theirs(condvar) => real::cond_timedwait::call(condvar, mutex, until),
            Route::Mixed => match clock::deadline(layout::shared_clock(condvar), *until) {
                Ok(deadline) => wait_mixed(condvar, mutex, Some(&deadline)),
                Err(error) => error,
            },
        },
        theirs: real::cond_timedwait::call(condvar, mutex, until);
    pthread_cond_clockwait(condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec),
        ours: match condvar::route(condvar, mutex) {
            Route::Ours => match clock::deadline(clock, *until) {
                Ok(deadline) => wait(condvar, mutex, Some(&deadline)),
                Err(error) => error,
            },
            Route::Theirs(condvar) => real::cond_clockwait::call(condvar, mutex, clock, until),
            Route::Mixed => match clock::deadline(clock, *until) {
                Ok(deadline) => wait_mixed(condvar, mutex, Some(&deadline)),
                Err(error) => error,
            },
        },
        theirs: real::cond_clockwait::call(condvar, mutex, clock, until);
}

/// A wait that we handle. The caller may end here, if it is cancelled.
unsafe extern "C-unwind" fn wait(
    condvar: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: Option<&Instant>,
) -> c_int {
    // SAFETY: for all of them, as the caller promises; there is nothing to drop in this frame.
    unsafe {
        cancel::test();
        let before = cancel::forbid();
        let wait = leaving::begin(Before::State(before.state));
        let heed = before.state == cancel::ENABLED;
        let ended = condvar::wait(condvar, mutex, deadline, heed, &wait);
        leaving::end(&wait);
        cancel::allow(before);
        match ended {
            Ended::Notified => 0,
            Ended::TimedOut => libc::ETIMEDOUT,
            Ended::NotHeld => libc::EPERM,
            Ended::Called => {
                cancel::test();
                // The C library may not know of the cancellation yet: the program checks, and waits again.
                0
            }
        }
    }
}

/// A wait with a mutex of ours at a condition variable of the C library's. The caller may end here, if it is cancelled.
unsafe extern "C-unwind" fn wait_mixed(
    condvar: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: Option<&Instant>,
) -> c_int {
    // SAFETY: for all of them, as the caller promises; there is nothing to drop in this frame.
    unsafe {
        cancel::test();
        let before = cancel::forbid();
        let wait = leaving::begin(Before::State(before.state));
        let outcome = mixed::wait(condvar, mutex, deadline);
        leaving::end(&wait);
        cancel::allow(before);
        if outcome == mixed::FOR_NO_REASON {
            cancel::test();
            return 0;
        }
        outcome
    }
}

// ---- reader-writer locks --------------------------------------------------------------------------------------------------

export! {
    RWLOCKS:
    pthread_rwlock_init(lock: *mut pthread_rwlock_t, attributes: *const pthread_rwlockattr_t),
        // Everything except the kind is zero then, as needed.
        ours: real::rwlock_init::call(lock, attributes),
        theirs: real::rwlock_init::call(lock, attributes);
    pthread_rwlock_destroy(lock: *mut pthread_rwlock_t),
        ours: rwlock::destroy(lock),
        theirs: real::rwlock_destroy::call(lock);
    pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t),
        ours: rwlock::lock(lock, As::Reader),
        theirs: real::rwlock_rdlock::call(lock);
    pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t),
        ours: rwlock::lock(lock, As::Writer),
        theirs: real::rwlock_wrlock::call(lock);
    pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t),
        ours: rwlock::trylock(lock, As::Reader),
        theirs: real::rwlock_tryrdlock::call(lock);
    pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t),
        ours: rwlock::trylock(lock, As::Writer),
        theirs: real::rwlock_trywrlock::call(lock);
    pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, until: *const timespec),
        ours: rwlock::clocklock(lock, As::Reader, libc::CLOCK_REALTIME, until),
        theirs: real::rwlock_timedrdlock::call(lock, until);
    pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, until: *const timespec),
        ours: rwlock::clocklock(lock, As::Writer, libc::CLOCK_REALTIME, until),
        theirs: real::rwlock_timedwrlock::call(lock, until);
    pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec),
        ours: rwlock::clocklock(lock, As::Reader, clock, until),
        theirs: real::rwlock_clockrdlock::call(lock, clock, until);
    pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec),
        ours: rwlock::clocklock(lock, As::Writer, clock, until),
        theirs: real::rwlock_clockwrlock::call(lock, clock, until);
    pthread_rwlock_unlock(lock: *mut pthread_rwlock_t),
        ours: rwlock::unlock(lock),
        theirs: real::rwlock_unlock::call(lock);
    // As for mutexes.
    __pthread_rwlock_init(lock: *mut pthread_rwlock_t, attributes: *const pthread_rwlockattr_t),
        ours: pthread_rwlock_init(lock, attributes),
        theirs: pthread_rwlock_init(lock, attributes);
    __pthread_rwlock_destroy(lock: *mut pthread_rwlock_t),
        ours: pthread_rwlock_destroy(lock),
        theirs: pthread_rwlock_destroy(lock);
    __pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t),
        ours: pthread_rwlock_rdlock(lock),
        theirs: pthread_rwlock_rdlock(lock);
    __pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t),
        ours: pthread_rwlock_wrlock(lock),
        theirs: pthread_rwlock_wrlock(lock);
    __pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t),
        ours: pthread_rwlock_tryrdlock(lock),
        theirs: pthread_rwlock_tryrdlock(lock);
    __pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t),
        ours: pthread_rwlock_trywrlock(lock),
        theirs: pthread_rwlock_trywrlock(lock);
    __pthread_rwlock_unlock(lock: *mut pthread_rwlock_t),
        ours: pthread_rwlock_unlock(lock),
        theirs: pthread_rwlock_unlock(lock);
}

// ---- what is seen on its way ----------------------------------------------------------------------------------------------

export! {
    pthread_create(thread: *mut pthread_t, attributes: *const pthread_attr_t, main: *mut c_void, argument: *mut c_void),
        ours: {
            process::creates_thread();
            real::create::call(thread, attributes, main, argument)
        },
        theirs: real::create::call(thread, attributes, main, argument);
    thrd_create(thread: *mut pthread_t, main: *mut c_void, argument: *mut c_void),
        ours: {
            process::creates_thread();
            real::thrd_create::call(thread, main, argument)
        },
        theirs: real::thrd_create::call(thread, main, argument);
    // The new class may be one that the thread did not have when it first waited.
    pthread_setschedparam(thread: pthread_t, policy: c_int, parameter: *const sched_param),
        ours: {
            process::changes_class(policy);
            real::set_sched_param::call(thread, policy, parameter)
        },
        theirs: real::set_sched_param::call(thread, policy, parameter);
    sched_setscheduler(thread: pid_t, policy: c_int, parameter: *const sched_param),
        ours: {
            process::changes_class(policy);
            real::set_scheduler::call(thread, policy, parameter)
        },
        theirs: real::set_scheduler::call(thread, policy, parameter);
}

export! {
    WATCHED:
    pthread_cancel(thread: pthread_t),
        ours: cancel::cancel(thread),
        theirs: real::cancel::call(thread);
    // Only to make the decision and to register for forks ourselves.
    __register_atfork(prepare: *mut c_void, parent: *mut c_void, child: *mut c_void, object: *mut c_void),
        ours: real::register_atfork::call(prepare, parent, child, object),
        theirs: real::register_atfork::call(prepare, parent, child, object);
}

/// Exports functions that jump. A thread that waits leaves its wait first (`leaving.rs`).
macro_rules! export_jump {
    ($($name:ident = $real:ident;)*) => {
        pub(crate) const JUMPS: &[&CStr] = &[$(real::symbol(concat!(stringify!($name), "\0"))),*];
        $(
        // SAFETY: the name and type of the C library's function, which it does the work of.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name(buffer: *mut c_void, value: c_int) -> ! {
            // SAFETY: as the caller promises; there is nothing to drop in this frame.
            unsafe {
                if is_ours() {
                    leaving::jumps(buffer);
                }
                real::$real::call(buffer, value)
            }
        }
        )*
    };
}

export_jump! {
    longjmp = longjmp;
    _longjmp = bsd_longjmp;
    siglongjmp = siglongjmp;
    __longjmp_chk = longjmp_chk;
}

//! The C library's own functions, or those of the next library that was loaded to replace them.
//!
//! They are looked up once, by the first thread that comes, before the decision whether anything is replaced (`process.rs`); several
//! threads that look them up at the same time find the same. Nothing is allocated, as all of them exist in every C library that has the
//! symbols of `thrd_create` (2.28), except those that take a clock (2.30).
//!
//! All are `extern "C-unwind"`, as a thread may be cancelled in any of them (`cancel.rs`).

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute_copy;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    clockid_t, pid_t, pthread_attr_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t,
    pthread_mutexattr_t, pthread_rwlock_t, pthread_rwlockattr_t, pthread_t, sched_param, timespec,
};

use crate::{c11, exports};

/// The version of `pthread_cond_*` that programs of this century use, if there are two.
#[cfg(target_arch = "x86_64")]
const CONDVAR: Option<&CStr> = Some(c"GLIBC_2.3.2");
#[cfg(not(target_arch = "x86_64"))]
const CONDVAR: Option<&CStr> = None;

/// Declares a callable function for each name, and [`find_all`].
macro_rules! real {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal, $version:expr,
        ($($arg:ident: $type:ty),*) -> $out:ty, $missing:expr;)*) => {
        /// Looks up all of them.
        pub(crate) fn find_all() {
            $($name::find();)*
        }

        $(
            $(#[$doc])*
            pub(crate) mod $name {
                use super::*;

                static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

                pub(super) fn find() {
                    // Relaxed: published by the decision that comes after (`process.rs`).
                    FOUND.store(super::find($symbol, $version), Ordering::Relaxed);
                }

                /// As the C library's function of that name.
                #[inline]
                pub(crate) unsafe extern "C-unwind" fn call($($arg: $type),*) -> $out {
                    // Relaxed: the caller has seen the decision.
                    let found = FOUND.load(Ordering::Relaxed);
                    if found.is_null() {
                        $missing
                    } else {
                        type Function = unsafe extern "C-unwind" fn($($type),*) -> $out;
                        // SAFETY: the symbol is a function of that type in every C library of this processor.
                        let function = unsafe { transmute_copy::<_, Function>(&found) };
                        // SAFETY: as the caller promises.
                        unsafe { function($($arg),*) }
                    }
                }
            }
        )*
    };
}

real! {
    mutex_init = c"pthread_mutex_init", None, (mutex: *mut pthread_mutex_t, attributes: *const pthread_mutexattr_t) -> c_int, libc::ENOSYS;
    mutex_destroy = c"pthread_mutex_destroy", None, (mutex: *mut pthread_mutex_t) -> c_int, libc::ENOSYS;
    mutex_lock = c"pthread_mutex_lock", None, (mutex: *mut pthread_mutex_t) -> c_int, libc::ENOSYS;
    mutex_trylock = c"pthread_mutex_trylock", None, (mutex: *mut pthread_mutex_t) -> c_int, libc::ENOSYS;
    mutex_timedlock = c"pthread_mutex_timedlock", None, (mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int, libc::ENOSYS;
    mutex_clocklock = c"pthread_mutex_clocklock", None, (mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int, libc::ENOSYS;
    mutex_unlock = c"pthread_mutex_unlock", None, (mutex: *mut pthread_mutex_t) -> c_int, libc::ENOSYS;
    cond_init = c"pthread_cond_init", CONDVAR, (condvar: *mut pthread_cond_t, attributes: *const pthread_condattr_t) -> c_int, libc::ENOSYS;
    cond_destroy = c"pthread_cond_destroy", CONDVAR, (condvar: *mut pthread_cond_t) -> c_int, libc::ENOSYS;
    cond_signal = c"pthread_cond_signal", CONDVAR, (condvar: *mut pthread_cond_t) -> c_int, libc::ENOSYS;
    cond_broadcast = c"pthread_cond_broadcast", CONDVAR, (condvar: *mut pthread_cond_t) -> c_int, libc::ENOSYS;
    cond_wait = c"pthread_cond_wait", CONDVAR, (condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int, libc::ENOSYS;
    cond_timedwait = c"pthread_cond_timedwait", CONDVAR, (condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int, libc::ENOSYS;
    cond_clockwait = c"pthread_cond_clockwait", None, (condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int, libc::ENOSYS;
    rwlock_init = c"pthread_rwlock_init", None, (lock: *mut pthread_rwlock_t, attributes: *const pthread_rwlockattr_t) -> c_int, libc::ENOSYS;
    rwlock_destroy = c"pthread_rwlock_destroy", None, (lock: *mut pthread_rwlock_t) -> c_int, libc::ENOSYS;
    rwlock_rdlock = c"pthread_rwlock_rdlock", None, (lock: *mut pthread_rwlock_t) -> c_int, libc::ENOSYS;
    rwlock_wrlock = c"pthread_rwlock_wrlock", None, (lock: *mut pthread_rwlock_t) -> c_int, libc::ENOSYS;
    rwlock_tryrdlock = c"pthread_rwlock_tryrdlock", None, (lock: *mut pthread_rwlock_t) -> c_int, libc::ENOSYS;
    rwlock_trywrlock = c"pthread_rwlock_trywrlock", None, (lock: *mut pthread_rwlock_t) -> c_int, libc::ENOSYS;
    rwlock_timedrdlock = c"pthread_rwlock_timedrdlock", None, (lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int, libc::ENOSYS;
    rwlock_timedwrlock = c"pthread_rwlock_timedwrlock", None, (lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int, libc::ENOSYS;
    rwlock_clockrdlock = c"pthread_rwlock_clockrdlock", None, (lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int, libc::ENOSYS;
    rwlock_clockwrlock = c"pthread_rwlock_clockwrlock", None, (lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int, libc::ENOSYS;
    rwlock_unlock = c"pthread_rwlock_unlock", None, (lock: *mut pthread_rwlock_t) -> c_int, libc::ENOSYS;
    create = c"pthread_create", None, (thread: *mut pthread_t, attributes: *const pthread_attr_t, main: *mut c_void, argument: *mut c_void) -> c_int, libc::ENOSYS;
    thrd_create = c"thrd_create", None, (thread: *mut pthread_t, main: *mut c_void, argument: *mut c_void) -> c_int, crate::c11::ERROR;
    set_sched_param = c"pthread_setschedparam", None, (thread: pthread_t, policy: c_int, parameter: *const sched_param) -> c_int, libc::ENOSYS;
    set_scheduler = c"sched_setscheduler", None, (thread: pid_t, policy: c_int, parameter: *const sched_param) -> c_int, -1;
    cancel = c"pthread_cancel", None, (thread: pthread_t) -> c_int, libc::ENOSYS;
    longjmp = c"longjmp", None, (buffer: *mut c_void, value: c_int) -> !, abort();
    bsd_longjmp = c"_longjmp", None, (buffer: *mut c_void, value: c_int) -> !, abort();
    siglongjmp = c"siglongjmp", None, (buffer: *mut c_void, value: c_int) -> !, abort();
    longjmp_chk = c"__longjmp_chk", None, (buffer: *mut c_void, value: c_int) -> !, abort();
    register_atfork = c"__register_atfork", None, (prepare: *mut c_void, parent: *mut c_void, child: *mut c_void, object: *mut c_void) -> c_int, libc::ENOSYS;
}

/// A function that every C library of this processor has is missing.
fn abort() -> ! {
    // SAFETY: no arguments.
    unsafe { libc::abort() }
}

/// The next function of that name after our own; null if there is none.
fn find(name: &CStr, version: Option<&CStr>) -> *mut c_void {
    if let Some(version) = version {
        // SAFETY: both are text that ends in a zero byte.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            return found;
        }
    }
    // SAFETY: the name is text that ends in a zero byte.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The functions that must be ours for all of the program, or for none of it (`exports.rs`).
const ALL_OR_NONE: [&[&CStr]; 6] = [
    exports::MUTEXES,
    exports::CONDVARS,
    exports::RWLOCKS,
    c11::ALL,
    exports::WATCHED,
    exports::JUMPS,
];

/// A function's name, from a text that ends in a zero byte.
pub(crate) const fn symbol(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends in its only zero byte"),
    }
}

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// A flag of `dladdr1`, which requests the symbol's entry.
const RTLD_DL_SYMENT: c_int = 1;

/// The object that contains an address, and whether that object defines the symbol there. It may only name the symbol, like a program that
/// takes the address of a function: that leads to the object that defines it.
fn object_of(address: *const c_void) -> Option<(libc::Dl_info, bool)> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let mut entry = ptr::null_mut();
    // SAFETY: the memory is ours; an address may be arbitrary.
    if unsafe { dladdr1(address, info.as_mut_ptr(), &raw mut entry, RTLD_DL_SYMENT) } == 0 {
        return None;
    }
    // SAFETY: filled in. The entry, if there is one, is a symbol of a loaded object, which stays.
    let (info, entry) = unsafe { (info.assume_init(), entry.cast::<libc::Elf64_Sym>().as_ref()) };
    Some((info, entry.is_none_or(|entry| entry.st_shndx != 0)))
}

/// The first of the functions that the program would find in an object other than this library, and that object's name.
pub(crate) fn first_of_others() -> Option<(&'static CStr, &'static CStr)> {
    let (library, _) = object_of(find as *const c_void)?;
    ALL_OR_NONE.into_iter().flatten().copied().find_map(|name| {
        // SAFETY: text that ends in a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let (info, defined) = object_of(found)?;
        if info.dli_fbase == library.dli_fbase || !defined {
            return None;
        }
        // SAFETY: the loader's text, which stays as long as the object, which is not unloaded now.
        let object = unsafe { CStr::from_ptr(info.dli_fname) };
        Some((name, object))
    })
}

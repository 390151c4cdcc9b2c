//! The few numbers of the system and functions of the C library that the library needs. The crate `libc` has them too, but the library is
//! compiled without any other crate (`build.rs`). A test compares the numbers with those of `libc`.

#![allow(non_upper_case_globals, reason = "the names are those of libc")]

use core::ffi::{c_int, c_long, c_ulong};

unsafe extern "C" {
    pub(crate) fn syscall(number: c_long, ...) -> c_long;
    pub(crate) fn getauxval(kind: c_ulong) -> c_ulong;
    pub(crate) fn __errno_location() -> *mut c_int;
    pub(crate) fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

macro_rules! numbers {
    ($($name:ident: $kind:ty = $value:expr;)*) => {
        $(pub(crate) const $name: $kind = $value;)*

        #[cfg(test)]
        #[test]
        fn the_numbers_are_those_of_libc() {
            $(assert_eq!($name, <$kind>::try_from(libc::$name).unwrap(), stringify!($name));)*
        }
    };
}

#[cfg(target_arch = "x86_64")]
numbers! {
    SYS_openat: c_long = 257;
    SYS_close: c_long = 3;
    SYS_lseek: c_long = 8;
    SYS_mmap: c_long = 9;
    SYS_fcntl: c_long = 72;
    SYS_readlinkat: c_long = 267;
    SYS_getpid: c_long = 39;
    SYS_getcpu: c_long = 309;
    SYS_clock_gettime: c_long = 228;
    SYS_sched_getaffinity: c_long = 204;
    SYS_sched_setaffinity: c_long = 203;
    SYS_get_mempolicy: c_long = 239;
    SYS_set_mempolicy: c_long = 238;
    SYS_bpf: c_long = 321;
}

// The table that all newer processors share.
#[cfg(not(target_arch = "x86_64"))]
numbers! {
    SYS_openat: c_long = 56;
    SYS_close: c_long = 57;
    SYS_lseek: c_long = 62;
    SYS_mmap: c_long = 222;
    SYS_fcntl: c_long = 25;
    SYS_readlinkat: c_long = 78;
    SYS_getpid: c_long = 172;
    SYS_getcpu: c_long = 168;
    SYS_clock_gettime: c_long = 113;
    SYS_sched_getaffinity: c_long = 123;
    SYS_sched_setaffinity: c_long = 122;
    SYS_get_mempolicy: c_long = 236;
    SYS_set_mempolicy: c_long = 237;
    SYS_bpf: c_long = 280;
}

/// Numbers that are the same on all of these processors.
pub(crate) mod common {
    use super::{c_int, c_long, c_ulong};

    numbers! {
        AT_FDCWD: c_int = -100;
        AT_SECURE: c_ulong = 23;
        AT_EXECFN: c_ulong = 31;
        CLOCK_BOOTTIME: c_int = 7;
        O_RDWR: c_int = 2;
        O_NOCTTY: c_int = 0o400;
        O_NONBLOCK: c_int = 0o4000;
        O_CLOEXEC: c_int = 0o2000000;
        F_GET_SEALS: c_int = 1034;
        F_SEAL_SHRINK: c_int = 2;
        F_SEAL_GROW: c_int = 4;
        SEEK_END: c_int = 2;
        PROT_READ: c_int = 1;
        PROT_WRITE: c_int = 2;
        MAP_SHARED: c_int = 1;
        MPOL_DEFAULT: c_long = 0;
        MPOL_PREFERRED: c_long = 1;
    }
}

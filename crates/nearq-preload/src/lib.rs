//! `libnearq_preload.so`: unmodified programs get the locks of `nearq-lock` in place of the C library's.
//!
//! ```text
//! LD_PRELOAD=/path/to/libnearq_preload.so NEARQ_PRELOAD_ONLY=redis-server redis-server
//! ```
//!
//! | environment | meaning |
//! |---|---|
//! | `NEARQ_PRELOAD_ONLY=name,name` | nothing is replaced in programs of other names |
//! | `NEARQ_PRELOAD_NOT=name,name` | nothing is replaced in programs of these names |
//! | `NEARQ_PRELOAD_STATISTICS=1` | a line on standard error when the program exits: how often threads had to wait, and how |
//! | `NEARQ_CONTROL=read\|full` | the program's mutexes can be inspected (`nearq dump PID --locks`) and, with `full`, tuned (`nearq set PID lock_mode=numa`) while it runs; not set, or `off`: there is no socket and no thread for it |
//! | `NEARQ_LOCK=off\|auto\|plain\|numa` | how threads that find a mutex held wait (`nearq_lock::Mode`) |
//! | `NEARQ_LOCK_DOMAINS=cache\|node\|package` | for which groups of CPUs mutexes have queues |
//!
//! A program's name is the last part of the path of its file, or of the path by which it was started: for a script, the
//! interpreter's or the script's. In programs that run with more rights than their caller (set-user-ID, capabilities) nothing is
//! replaced and no variable is read.
//!
//! # What is replaced
//! `pthread_mutex_*` and `pthread_cond_*`, `mtx_*` and `cnd_*`, for mutexes of the types normal, error-checking, recursive and adaptive,
//! however they were initialised. Robust, priority-inheriting, priority-protecting and process-shared ones, and all of a kind that is not
//! known here, stay the C library's from their first use to their last; so do process-shared condition variables. `pthread_rwlock_*`, for
//! reader-writer locks of all kinds but process-shared ones. `pthread_create`,
//! `thrd_create`, `pthread_setschedparam`, `sched_setscheduler`, `pthread_cancel` and `__register_atfork` pass through us: to prepare what
//! the first wait needs, to notice threads of real-time classes, to wake a thread that is cancelled, and to be notified of a fork before
//! all other handlers. So do `longjmp` and its relatives, for threads that jump out of a wait (`leaving.rs`).
//!
//! # How symbols are found
//! *Ours, by the program.* Our symbols carry no version, which by the loader's rule (`do_lookup` in glibc's `elf/dl-lookup.c`) satisfies a
//! reference to any version. That is right for the only functions of which glibc has two kinds on these processors: `pthread_cond_*` of
//! `GLIBC_2.2.5` take, on 64-bit machines, the same 48 bytes, all-zero when new, as those of `GLIBC_2.3.2`, and what we keep in them is our
//! own. Versions of our own would need a version script, but the Rust compiler already passes the linker one that names no version, and no
//! linker takes both. The cost: code that asks `dlvsym` for a version, as some sanitizers do, finds the C library's function, not ours.
//! Such libraries and this one do not work together.
//!
//! *The C library's, by us.* `dlvsym(RTLD_NEXT, ..., "GLIBC_2.3.2")` for condition variables on x86-64, where the plain name could mean the
//! older kind; `dlsym` for what has one kind (`real.rs`).
//!
//! # What it relies on
//! - The layouts of three objects: a word at 0 and the kind at 16 of a mutex, and the places where a condition variable and a reader-writer
//!   lock say that they are shared, and the latter its kind. They are verified before anything is replaced (`layout.rs`); if they differ, nothing is.
//! - **No `malloc`.** The code that takes a mutex may be the allocator. Rust's allocations here come from an arena of our own (`arena.rs`),
//!   thread-local values have no destructors, and files are read when the first thread is created.
//! - **No panic escapes**: it ends the process at an `extern "C"` function.
//! - **A cancelled thread can be unwound.** Exported functions are `extern "C-unwind"`: a thread that is cancelled in one of them unwinds
//!   through its frame, which has nothing to drop (`cancel.rs`).
//!
//! # The modules
//! `exports` and `c11` have the functions that programs call, `mutex`, `condvar` and `rwlock` what these functions do. `cancel` handles threads that
//! are cancelled, and `leaving` threads that jump out of a wait. `process` decides whether this is a program for us, and handles its forks.
//! `control` lets tools inspect it from outside.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a library for Linux programs, between them and the C library"
)]
#![cfg_attr(test, allow(dead_code, reason = "what is exported is not called by the tests in here"))]
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

mod arena;
mod c11;
mod cancel;
mod clock;
mod condvar;
mod control;
mod epoch;
mod exports;
mod groups;
mod layout;
mod leaving;
mod mixed;
mod mutex;
mod names;
mod process;
mod real;
mod report;
mod rwlock;
mod stand_in;
mod thread;

/// Nothing that Rust allocates here comes from `malloc`.
#[cfg(not(test))]
#[global_allocator]
static ARENA: arena::Arena = arena::Arena::new();

/// In the child of a fork.
fn forked() {
    #[cfg(not(test))]
    ARENA.forked();
}

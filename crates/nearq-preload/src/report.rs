//! If requested, prints a line on standard error when the program exits, which says what happened.
//!
//! Some programs close their standard error before that. So it is duplicated at the start, if a report is requested, and the copy is used
//! only if it still is the same file: programs also close descriptors that they do not know, and open others in their place.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use nearq_lock::Statistics;
use nearq_platform::{Linux, LockPlatform, SWITCH, parse_switch};

use crate::{cancel, names, process};

/// 1 if a report is requested.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// The descriptor, and its file's device and number.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(libc::STDERR_FILENO);
static FILE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Remembers whether a report is requested. Relaxed throughout: long before it is read.
pub(crate) fn ask(value: Option<&[u8]>) {
    let Some(value) = value.map(<[u8]>::trim_ascii).filter(|value| !value.is_empty()) else {
        return;
    };
    match core::str::from_utf8(value).ok().and_then(parse_switch) {
        Some(true) => {}
        Some(false) => return,
        None => {
            let name = "NEARQ_PRELOAD_STATISTICS";
            Linux::warn(&format!("the value of {name} is invalid; it must be {SWITCH}. Using 0"));
            return;
        }
    }
    ASKED.store(1, Ordering::Relaxed);
    // SAFETY: descriptors only.
    let copy = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, 100) };
    if let Some([device, number]) = file(copy) {
        FILE[0].store(device, Ordering::Relaxed);
        FILE[1].store(number, Ordering::Relaxed);
        DESCRIPTOR.store(copy, Ordering::Relaxed);
    }
}

pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed) == 1
}

/// The device and number of the file that is open there.
fn file(descriptor: c_int) -> Option<[u64; 2]> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the memory is ours.
    if unsafe { libc::fstat(descriptor, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled in.
    let found = unsafe { found.assume_init() };
    Some([found.st_dev, found.st_ino])
}

#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static AT_EXIT: extern "C-unwind" fn() = at_exit;

/// The program exits, or ends by returning from `main`. The caller may end here, if it is of the asynchronous cancellation type.
extern "C-unwind" fn at_exit() {
    if !process::was_ours() || !is_asked() {
        return;
    }
    let before = cancel::defer();
    report();
    // SAFETY: nothing in this frame needs to be cleaned up.
    unsafe { cancel::undo(before) };
}

#[inline(never)]
extern "C" fn report() {
    let mut path = [0; libc::PATH_MAX as usize];
    // When the first thread has ended, the system no longer reports the file.
    let program = match process::own_file(&mut path) {
        [] => process::started_as(),
        program => program,
    };
    let name = String::from_utf8_lossy(names::base(program)).into_owned();
    let line = format!("nearq: {name}, process {}: {}\n", std::process::id(), what_happened());
    let copy = DESCRIPTOR.load(Ordering::Relaxed);
    let chosen = [0, 1].map(|at| FILE[at].load(Ordering::Relaxed));
    let descriptor = if file(copy) == Some(chosen) { copy } else { libc::STDERR_FILENO };
    // SAFETY: the line is as long as said. If no process reads it, nothing is lost.
    unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) };
}

fn what_happened() -> String {
    if !process::is_ready() {
        return "no thread was created".into();
    }
    let now = Statistics::of_process();
    let counts = [
        ("contended", now.contended),
        ("in turn", now.in_turn),
        ("within a cache", now.within),
        ("across caches", now.across),
        ("reserved", now.reserved),
        ("slept in turn", now.slept_in_turn),
        ("slept in the queue", now.slept_in_queue),
        ("gave up", now.gave_up),
        ("without a queue", now.unqueued),
        ("changes to queues by cache", now.bound),
        ("and back", now.unbound),
    ];
    counts.map(|(what, count)| format!("{what} {count}")).join(", ")
}

//! Whether this program's mutexes are replaced, and what happens once in its life: the first thread, forks.
//!
//! # The decision
//! `STATE` goes from `UNKNOWN` to `OURS` or `THEIRS`, and stays there. It is made by the first call of any of our functions, which may
//! come from the constructor of some library, before `main`, before our own; so there is no constructor that it would have to wait
//! for. Threads that decide at the same time decide the same: by the program's name, its environment and the C library. Release: what
//! was found out before (`real.rs`, `layout.rs`) is there for whoever sees the decision, by acquire.
//!
//! # The first thread
//! What mutexes share (`nearq_lock::start`) is made when the program creates a thread: before, nobody can wait. It reads what machine
//! this is, and may allocate with the program's `malloc` while reading a folder, as creating a thread does too. Should somebody
//! have to wait before, as a thread that the C library created for itself may, it waits without a place in a queue. That is also when
//! the control socket is opened, if the program has one (`control.rs`).
//!
//! # Forks
//! We ask to be told of forks before anybody else in the program can, because whoever asks passes by here (`__register_atfork`).
//! So in a child our part is done before that of others, who may take and give back mutexes: those who waited are known to be gone.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use nearq_lock::Settings;
use nearq_platform::{ForkHooks, Linux, Platform, SavedErrno};

use crate::{cancel, control, layout, names, real, report, thread};

const UNKNOWN: u32 = 0;
const THEIRS: u32 = 1;
const OURS: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Whether the program's mutexes are replaced.
#[inline]
pub(crate) fn is_ours() -> bool {
    // Acquire: pairs with the release in `decide`.
    match STATE.load(Ordering::Acquire) {
        OURS => true,
        THEIRS => false,
        _ => decide(),
    }
}

/// Likewise, where it may not have been decided.
pub(crate) fn was_ours() -> bool {
    // Acquire: as above.
    STATE.load(Ordering::Acquire) == OURS
}

#[cold]
fn decide() -> bool {
    let _saved = SavedErrno::new();
    real::find_all();
    let ours = is_chosen() && layout::is_known();
    let decision = if ours { OURS } else { THEIRS };
    // Release: what was found is there.
    let first =
        STATE.compare_exchange(UNKNOWN, decision, Ordering::Release, Ordering::Relaxed).is_ok();
    if first && ours {
        report::ask(variable(c"NEARQ_PRELOAD_STATISTICS"));
        control::ask(variable(c"NEARQ_CONTROL"));
        // SAFETY: the hooks make nothing of the subject, and live as long as the program.
        unsafe { Linux::follow_forks(ptr::from_ref(&STATE).cast(), &HOOKS) };
    }
    ours
}

static HOOKS: ForkHooks = ForkHooks { prepare: nothing, parent: nothing, child: in_child };

unsafe fn nothing(_subject: *const ()) {}

unsafe fn in_child(_subject: *const ()) {
    thread::forked();
    crate::forked();
}

fn is_chosen() -> bool {
    // Who started it must not be able to tell it anything then.
    if Linux::has_more_rights() {
        return false;
    }
    let mut path = [0; libc::PATH_MAX as usize];
    let names = [own_file(&mut path), started_as()];
    names::chosen(&names, variable(c"NEARQ_PRELOAD_ONLY"), variable(c"NEARQ_PRELOAD_NOT"))
}

/// A variable of the environment.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends in a zero byte.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: text that ends in a zero byte, and stays at least until the program changes its environment; it is looked at now.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// The path of the program's file.
pub(crate) fn own_file(path: &mut [u8]) -> &[u8] {
    // SAFETY: the name ends in a zero byte, and no more is written than there is room for.
    let length =
        unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    path.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default()
}

/// The path by which the program was started.
pub(crate) fn started_as() -> &'static [u8] {
    // SAFETY: no pointers.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) };
    if path == 0 {
        return &[];
    }
    // SAFETY: the kernel's text above the stack, which ends in a zero byte and stays.
    unsafe { CStr::from_ptr(ptr::with_exposed_provenance(path as usize)) }.to_bytes()
}

/// The program is about to create a thread, and is ours.
pub(crate) fn creates_thread() {
    threads_begin();
    if control::is_asked() {
        let _saved = SavedErrno::new();
        // Creating a thread is no point where threads are cancelled, but what is called here may be.
        let cancelling = cancel::forbid();
        control::start();
        cancel::allow(cancelling);
    }
}

/// Somebody may have to wait from now on, in a program that is ours.
pub(crate) fn threads_begin() {
    if !is_ready() {
        make_ready();
    }
}

/// Whether those who wait can queue up.
#[inline]
pub(crate) fn is_ready() -> bool {
    !Linux::shared().is_null()
}

#[cold]
fn make_ready() {
    let _saved = SavedErrno::new();
    // As above: it reads files.
    let cancelling = cancel::forbid();
    nearq_lock::start::<Linux>();
    cancel::allow(cancelling);
    if report::is_asked() {
        let mut settings = Settings::of_process::<Linux>();
        settings.count = true;
        settings.set_for_process::<Linux>();
    }
}

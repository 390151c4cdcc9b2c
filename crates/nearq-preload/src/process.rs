//! Whether this program's mutexes are replaced, and what happens once or rarely in its life: the first thread, forks.
//!
//! # The decision
//! `STATE` goes from `UNKNOWN` to `OURS` or `THEIRS`, and stays there. The decision is made by the first call of any of our functions. That
//! call may come from the constructor of another library, before `main` and before our own constructor, so it cannot wait for anything. Our
//! constructor only asks for the decision, so that it is made before a program limits its memory. Threads that decide at the same time
//! decide the same, by the program's name, its environment and the C library. Release: a thread that sees the decision, by acquire, also
//! sees what was found out before it (`real.rs`, `layout.rs`).
//!
//! # Whose functions the program calls
//! Nothing is replaced if the program, or another library that comes before us, has one of the functions itself: then some of a mutex's
//! callers would use its function, and some ours. A sanitizer that is linked into the program is such a case; it also finds the other
//! functions by their versions, which leads to the C library's. The same holds for functions that we only watch, if a thread would wait for
//! ever without them (`exports.rs`). This is checked once, with the decision, by what `dlsym(RTLD_DEFAULT, ...)` returns for each function,
//! and it is reported. What the program resolves in another way afterwards (`RTLD_DEEPBIND`, the C library's own handle) cannot be seen,
//! and such programs must not be run with this library (docs/locks.md).
//!
//! # The first thread
//! What mutexes share (`nearq_lock::start`) is made when the program creates a thread: before that, no thread can wait. This reads the
//! machine's description, and may allocate with the program's `malloc` while reading a directory, as creating a thread does too. If a
//! thread has to wait earlier, as a thread that the C library created for itself may, it waits without a place in a queue. So do all
//! threads if there is no memory for this, until a thread is created at a time when there is. At the same point the control socket is
//! opened, if the program has one (`control.rs`).
//!
//! # Forks
//! We register for forks before any other code in the program can, because every registration passes through us (`__register_atfork`). So
//! in a child our handlers run before all others, which may take and release mutexes: by then the waiting threads of the parent are known
//! to be gone. A thread of the asynchronous cancellation type is of the deferred type from before our part until after it. If it is
//! cancelled in between, its copy in the child is cancelled too, as is every thread that was cancelled before it forks.

use core::cell::Cell;
use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use nearq_lock::Settings;
use nearq_platform::{ForkHooks, Linux, LockPlatform, SavedErrno};

use crate::{
    arena, cancel, control, layout, leaving, mixed, names, real, report, stand_in, thread,
};

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

/// Likewise, if the decision may not have been made yet.
#[inline]
pub(crate) fn was_ours() -> bool {
    // Acquire: pairs with the release in `decide`.
    STATE.load(Ordering::Acquire) == OURS
}

/// The caller may end here, if it is of the asynchronous cancellation type.
#[cold]
extern "C-unwind" fn decide() -> bool {
    let before = cancel::defer();
    let replace = decide_deferred();
    // SAFETY: nothing in this frame, or in the callers' frames, needs to be cleaned up.
    unsafe { cancel::undo(before) };
    replace
}

#[inline(never)]
extern "C" fn decide_deferred() -> bool {
    let _saved = SavedErrno::new();
    real::find_all();
    leaving::prepare();
    let chosen = is_chosen() && layout::is_known();
    let others = if chosen { real::first_of_others() } else { None };
    let replace = chosen && others.is_none();
    let decision = if replace { OURS } else { THEIRS };
    // Release: what was found out is visible.
    let first =
        STATE.compare_exchange(UNKNOWN, decision, Ordering::Release, Ordering::Relaxed).is_ok();
    if let Some((name, object)) = others.filter(|_| first) {
        Linux::warn(&format!(
            "the preload replaces nothing in this program: {} comes from {}",
            name.to_string_lossy(),
            object.to_string_lossy()
        ));
    }
    if first && replace {
        report::ask(variable(c"NEARQ_PRELOAD_STATISTICS"));
        control::ask(variable(c"NEARQ_CONTROL"));
        // SAFETY: the hooks do not use the subject, and live as long as the program.
        unsafe { Linux::follow_forks(ptr::from_ref(&STATE).cast(), &HOOKS) };
        // Registered after those, so that they are called around them.
        let [before, after] = [before_fork, after_fork].map(|hook| hook as *mut c_void);
        // SAFETY: functions without arguments, which live as long as the program. If there is no memory to register them, only threads that
        // are cancelled while they fork are affected.
        unsafe { real::register_atfork::call(before, after, after, ptr::null_mut()) };
    }
    replace
}

/// Called when the library is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        is_ours();
    }
    at_load
};

thread_local! {
    /// The type of the caller before it forked. Without a destructor.
    static BEFORE_FORK: Cell<c_int> = const { Cell::new(0) };
}

/// A thread of the asynchronous cancellation type is of the deferred type during our part of a fork.
extern "C-unwind" fn before_fork() {
    BEFORE_FORK.set(cancel::defer());
}

/// The caller may end here, if it is of the asynchronous type.
extern "C-unwind" fn after_fork() {
    // SAFETY: nothing in this frame needs to be cleaned up.
    unsafe { cancel::undo(BEFORE_FORK.get()) };
}

static HOOKS: ForkHooks = ForkHooks { prepare: nothing, parent: nothing, child: in_child };

unsafe fn nothing(_subject: *const ()) {}

unsafe fn in_child(_subject: *const ()) {
    thread::forked();
    cancel::forked();
    leaving::forked();
    mixed::forked();
    stand_in::forked();
    crate::forked();
}

fn is_chosen() -> bool {
    // In such a program, the user that started it must not be able to influence it.
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
    // SAFETY: text that ends in a zero byte, and stays at least until the program changes its environment; it is read now.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// The path of the program's file.
pub(crate) fn own_file(path: &mut [u8]) -> &[u8] {
    // SAFETY: the name ends in a zero byte, and no more is written than fits.
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

/// The program, which is ours, is about to create a thread. Creating a thread is not a cancellation point, but functions called here may
/// be. The caller may end here, if it is of the asynchronous type.
pub(crate) unsafe extern "C-unwind" fn creates_thread() {
    if is_ready() && !control::is_asked() {
        return;
    }
    let before = cancel::forbid();
    threads_begin();
    start_control();
    // SAFETY: nothing in this frame, or in the caller's, needs to be cleaned up.
    unsafe { cancel::allow(before) };
}

#[inline(never)]
extern "C" fn start_control() {
    if control::is_asked() {
        let _saved = SavedErrno::new();
        if !arena::is_there(NEEDED) {
            return;
        }
        control::start();
    }
}

/// From now on threads may have to wait, in a program that is ours. The caller must not be cancellable, as files are read. Does nothing if
/// there is no memory.
pub(crate) fn threads_begin() {
    if !is_ready() {
        make_ready();
    }
}

/// A thread of a program that is ours is about to get a scheduling class. While there is only one thread, nothing is noted: a thread
/// determines its class when it first waits. The caller may end here, if it is of the asynchronous type.
pub(crate) unsafe extern "C-unwind" fn changes_class(policy: c_int) {
    let ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
    if is_ready() && !ordinary.contains(&(policy & !libc::SCHED_RESET_ON_FORK)) {
        let before = cancel::defer();
        expect_urgent();
        // SAFETY: nothing in this frame, or in the caller's, needs to be cleaned up.
        unsafe { cancel::undo(before) };
    }
}

#[inline(never)]
extern "C" fn expect_urgent() {
    nearq_lock::expect_urgent();
}

/// Whether waiting threads can queue up.
#[inline]
pub(crate) fn is_ready() -> bool {
    !Linux::shared().is_null()
}

/// How much memory must be available to make what mutexes share, or to open the socket: more than that takes, on a machine of hundreds of
/// CPUs. What is made only once is made completely, or later.
const NEEDED: usize = 1 << 20;

#[cold]
#[inline(never)]
extern "C" fn make_ready() {
    let _saved = SavedErrno::new();
    if !arena::is_there(NEEDED) {
        return;
    }
    nearq_lock::start();
    if report::is_asked() {
        let mut settings = Settings::of_process();
        settings.count = true;
        settings.set_for_process();
    }
}

//! Threads that leave a wait by a jump: a signal handler interrupts the wait and ends with `siglongjmp`. Programs use that as a timeout if
//! they have no other. POSIX leaves undefined what becomes of the mutex or the condition variable; with the C library's mutex it works.
//!
//! # Protocol
//! Each thread has a row of *entries*, one for each wait that it is in: the outermost wait, the wait of a handler that has interrupted that
//! one, and so on. An entry has the address of the wait on the stack, a `Stay` (`nearq_lock`), and the thread's cancellation state or type
//! from before the wait.
//!
//! - *wait*: take the next entry ([`begin`]), wait by its stay, give it back ([`end`]).
//! - *jump*: the functions that jump are replaced by ours. They leave each wait whose stack address is below the stack pointer that the
//!   jump goes to, the innermost first: give its entry back, clean up what the wait leaves behind (`Stay::leave`), and restore the
//!   cancellation state or type. Then they call the C library's function, which jumps. A thread that has left a wait for a condition stays
//!   of the deferred type: the frames of the wait, which cannot be unwound (`cancel.rs`), are on its stack until it has jumped.
//!
//! Invariants:
//! 1. **A wait to which the thread returns is not left.** A handler may jump within itself. What counts is the stack pointer in the jump's
//!    buffer. If the handler runs on a stack of its own (`sigaltstack`), a jump within that stack leaves no wait on another stack, and a
//!    jump out of it leaves all waits that are on it.
//! 2. **A wait is left by its own thread, before any of its frames is overwritten.** Entries are not on the stack.
//! 3. Nothing here allocates, takes a mutex, or changes `errno`. For a thread that does not wait, a jump costs one more read of a
//!    thread-local value.
//!
//! # Where the stack pointer is
//! The C library mangles the stack pointer and the return address in the buffer with a secret of the process. [`prepare`] determines the
//! secret when the library is first used, by filling a buffer at a point where both values are known. If the two values do not give the
//! same secret, the layout of the buffer is not the one that we know, and no wait is left. On other processors, no wait is left either.
//!
//! # What is not seen
//! Other ways to leave a wait from a handler are not seen: `setcontext` and the code of `__builtin_longjmp`, which leave the record behind;
//! an exception and `pthread_exit`, which end the process, because our frames cannot be unwound; and a handler that switches to coroutines
//! on other stacks and comes back later. A fifth wait, nested within four others, is not left either.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

use nearq_lock::raw::{Stay, Summons, WaitsBy};
use nearq_platform::SavedErrno;

use crate::cancel;

/// How many nested waits are followed.
const ENTRIES: usize = 4;

/// How a thread could be cancelled before it waited.
#[derive(Clone, Copy)]
pub(crate) enum Before {
    /// The thread's state before cancellation was disabled ([`cancel::forbid`]).
    State(c_int),
    /// The thread's type before it was changed by [`cancel::defer`].
    Type(c_int),
}

/// How a thread that has left its waits can be cancelled.
#[derive(Clone, Copy)]
struct After {
    /// None if the way in which it can be cancelled stays as it is.
    state: Option<c_int>,
    kind: c_int,
}

/// What is noted about a wait.
struct WaitEntry {
    stay: Stay,
    index: usize,
    /// An address in the stack, below the frame of the function that the program has called.
    top: Cell<usize>,
    before: Cell<Before>,
    /// The record by which the thread waited before this wait, as threads that cancel it know it.
    waits_by: Cell<Option<WaitsBy>>,
}

/// What a thread needs for itself while it waits.
struct ThreadWaits {
    /// The summons by which the thread is called away (`cancel.rs`).
    summons: Summons,
    /// How many of the entries are in use, by waits that the thread is in.
    depth: AtomicUsize,
    entries: [WaitEntry; ENTRIES],
}

/// A wait that the caller is in.
pub(crate) struct InWait<'a> {
    waits: &'a ThreadWaits,
    /// None if the thread is in too many waits.
    entry: Option<&'a WaitEntry>,
}

impl<'a> InWait<'a> {
    /// The stay by which it may be left.
    pub(crate) fn stay(&self) -> Option<&'a Stay> {
        self.entry.map(|entry| &entry.stay)
    }

    /// The summons by which the caller may be called away.
    pub(crate) fn summons(&self) -> &'a Summons {
        &self.waits.summons
    }
}

impl WaitEntry {
    const fn new(index: usize) -> Self {
        WaitEntry {
            stay: Stay::new(),
            index,
            top: Cell::new(0),
            before: Cell::new(Before::State(cancel::ENABLED)),
            waits_by: Cell::new(None),
        }
    }
}

thread_local! {
    /// Without a destructor, so that it exists at any time of the thread's life.
    static THREAD_WAITS: ThreadWaits = const {
        ThreadWaits {
            summons: Summons::new(),
            depth: AtomicUsize::new(0),
            entries: [WaitEntry::new(0), WaitEntry::new(1), WaitEntry::new(2), WaitEntry::new(3)],
        }
    };
}

fn thread_waits<'a>() -> &'a ThreadWaits {
    // SAFETY: it exists as long as the thread, without a destructor; only that thread uses the reference.
    unsafe { &*THREAD_WAITS.with(ptr::from_ref) }
}

/// The caller's summons, at a fixed place in each thread.
pub(crate) fn summons<'a>() -> &'a Summons {
    &thread_waits().summons
}

/// The caller, which could be cancelled as `before` says, is about to wait.
#[inline]
pub(crate) fn begin<'a>(before: Before) -> InWait<'a> {
    let waits = thread_waits();
    // Relaxed, here and below: only the thread and its signal handlers access it.
    let entry = waits.entries.get(waits.depth.load(Ordering::Relaxed));
    if let Some(entry) = entry {
        let (top, waits_by) = (ptr::from_ref(&before).addr(), waits.summons.waits_by());
        let fill_in = || {
            entry.top.set(top);
            entry.before.set(before);
            entry.waits_by.set(Some(waits_by));
        };
        fill_in();
        // A handler that finds the entry must find it filled in.
        compiler_fence(Ordering::Release);
        waits.depth.store(entry.index + 1, Ordering::Relaxed);
        compiler_fence(Ordering::Release);
        // Before the entry was taken, a handler that waited may have used it.
        fill_in();
    }
    InWait { waits, entry }
}

/// The caller is no longer in that wait.
#[inline]
pub(crate) fn end(wait: &InWait<'_>) {
    if let Some(entry) = wait.entry {
        // Relaxed: only the thread and its signal handlers access it.
        wait.waits.depth.store(entry.index, Ordering::Relaxed);
    }
}

/// In the child of a fork, whose only thread is the caller: its waits for conditions end for no reason, if it returns to them.
pub(crate) fn forked() {
    let waits = thread_waits();
    // Relaxed: only the thread and its signal handlers access it.
    let depth = waits.depth.load(Ordering::Relaxed);
    waits.entries.iter().take(depth).for_each(|entry| entry.stay.forked());
}

/// The caller, in a program that is ours, is about to jump to where the buffer says. It may end here, if it is of the asynchronous type.
///
/// # Safety
/// The C library has filled the buffer, in a frame that still exists.
#[inline]
pub(crate) unsafe extern "C-unwind" fn jumps(buffer: *const c_void) {
    // Relaxed: only the thread and its signal handlers access it.
    if thread_waits().depth.load(Ordering::Relaxed) != 0 {
        // SAFETY: as the caller promises.
        unsafe { leave(buffer) };
    }
}

#[cold]
unsafe extern "C-unwind" fn leave(buffer: *const c_void) {
    // SAFETY: as the caller promises.
    let Some(to) = (unsafe { stack_pointer(buffer.cast()) }) else { return };
    let mut after = After { state: None, kind: cancel::defer() };
    while leave_one(to, &mut after) {}
    if let Some(state) = after.state {
        // The thread stays of the deferred type: see the head of the file.
        cancel::set_state(state);
        return;
    }
    // SAFETY: the caller is about to jump; there is nothing to drop in these frames, or in those of a wait for a mutex of a thread that was
    // of the asynchronous type before.
    unsafe { cancel::undo(after.kind) };
}

/// Leaves the innermost wait, if a jump to the stack pointer `to` leaves it, and stores in `after` how the thread can be cancelled
/// then. False if the jump does not leave it.
#[inline(never)]
extern "C" fn leave_one(to: usize, after: &mut After) -> bool {
    let waits = thread_waits();
    // Relaxed for both: only the thread and its signal handlers access it.
    let Some(index) = waits.depth.load(Ordering::Relaxed).checked_sub(1) else { return false };
    let entry = &waits.entries[index];
    let _saved = SavedErrno::new();
    let here = ptr::from_ref(&index).addr();
    if !is_left(entry.top.get(), to, here, own_stack().as_ref()) {
        return false;
    }
    waits.depth.store(index, Ordering::Relaxed);
    // SAFETY: the caller is about to jump out of it. It waits for a mutex or a condition, which the program must not have destroyed.
    unsafe { entry.stay.leave() };
    if let Some(by) = entry.waits_by.get() {
        waits.summons.waits_again(by);
    }
    match entry.before.get() {
        Before::State(state) => after.state = Some(state),
        Before::Type(kind) => after.kind = kind,
    }
    true
}

/// Whether a jump from `here` to the stack pointer `to` leaves the wait whose stack address is `top`. `signal_stack` is the alternate
/// signal stack if the caller runs on it.
fn is_left(top: usize, to: usize, here: usize, signal_stack: Option<&Range<usize>>) -> bool {
    let is_there =
        |address| signal_stack.is_some_and(|signal_stack| signal_stack.contains(&address));
    match (is_there(top), is_there(to)) {
        (true, false) => true,
        (false, true) => false,
        // If the caller is above both, it is on a stack that the system does not report (`SS_AUTODISARM`), and may jump within that.
        _ => top < to && (here < top || to < here),
    }
}

/// The alternate signal stack, if the handler that is running is on it.
fn own_stack() -> Option<Range<usize>> {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: the memory is ours, and nothing is changed.
    if unsafe { libc::sigaltstack(ptr::null(), stack.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled in.
    let stack = unsafe { stack.assume_init() };
    let begins = stack.ss_sp.addr();
    (stack.ss_flags & libc::SS_ONSTACK != 0).then(|| begins..begins + stack.ss_size)
}

// ---- the C library's buffer -----------------------------------------------------------------------------------------------

/// Which words of a buffer are the stack pointer and the return address.
#[cfg(target_arch = "x86_64")]
const WORDS: (usize, usize) = (6, 7);
#[cfg(target_arch = "aarch64")]
const WORDS: (usize, usize) = (13, 11);

/// At least as many words as a buffer has.
const LENGTH: usize = 64;

/// The secret that is mixed in; 0 if it is not known.
static SECRET: AtomicUsize = AtomicUsize::new(0);

/// Takes the secret out of a word of a buffer. With the word's plain value in place of the secret, the result is the secret.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const fn mix(word: usize, secret: usize) -> usize {
    let word = if cfg!(target_arch = "x86_64") { word.rotate_right(17) } else { word };
    word ^ secret
}

/// The stack pointer to which a jump goes, if it can be read.
unsafe fn stack_pointer(buffer: *const usize) -> Option<usize> {
    // Relaxed: published by the decision, which the caller has seen (`process.rs`).
    let secret = SECRET.load(Ordering::Relaxed);
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if secret != 0 {
        // SAFETY: a word of the buffer, as the caller promises.
        return Some(mix(unsafe { buffer.add(WORDS.0).read() }, secret));
    }
    let _ = (buffer, secret);
    None
}

/// Determines the secret.
#[inline(never)]
pub(crate) fn prepare() {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        unsafe extern "C" {
            fn _setjmp(buffer: *mut usize) -> c_int;
        }
        let mut buffer = [0; LENGTH];
        let there: usize;
        let fill = _setjmp as unsafe extern "C" fn(*mut usize) -> c_int;
        // SAFETY: a call of a function that fills the buffer in, with the stack as it is before the call, which is noted. It returns once:
        // no code jumps back there.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!("mov r12, rsp", "call r13", out("r12") there, in("r13") fill, in("rdi") buffer.as_mut_ptr(),
                clobber_abi("C"));
        }
        // SAFETY: a call of a function that fills the buffer in, with the stack as it is before the call, which is noted. It returns
        // once: no code jumps back there.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!("mov x20, sp", "blr x21", out("x20") there, in("x21") fill, in("x0") buffer.as_mut_ptr(),
                clobber_abi("C"));
        }
        let secret = mix(buffer[WORDS.0], there);
        let returns = mix(buffer[WORDS.1], secret);
        // The return address lies within this function, which is shorter than that.
        let known = returns.abs_diff(prepare as *const () as usize) < 1 << 14;
        // Relaxed: published by the decision that comes after.
        SECRET.store(if known { secret } else { 0 }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_below_the_stack_pointer_of_the_jump_are_abandoned() {
        let signal_stack = 1000..2000;
        for (top, to, here, on_own, left) in [
            (500, 600, 450, false, true),
            (500, 480, 450, false, false),
            (500, 600, 1100, true, true),
            (2500, 2400, 1100, true, false),
            (1500, 1600, 1100, true, true),
            (1500, 1400, 1100, true, false),
            (1500, 500, 1100, true, true),
            (1500, 2500, 1100, true, true),
            (500, 1500, 1100, true, false),
            (2500, 1500, 1100, true, false),
            // On a stack that the system does not report, above and below.
            (500, 1500, 1100, false, false),
            (500, 600, 1100, false, true),
            (2500, 1500, 1100, false, false),
            (2500, 2600, 1100, false, true),
        ] {
            let signal_stack = on_own.then_some(&signal_stack);
            assert_eq!(
                is_left(top, to, here, signal_stack),
                left,
                "{top} {to} {here} {signal_stack:?}"
            );
        }
    }

    #[test]
    fn the_stack_pointer_is_found_in_a_buffer() {
        prepare();
        assert_ne!(SECRET.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn entries_are_released() {
        let depth = || thread_waits().depth.load(Ordering::Relaxed);
        let waits: Vec<_> = (0..=ENTRIES).map(|_| begin(Before::State(0))).collect();
        assert_eq!(depth(), ENTRIES);
        assert!(waits[ENTRIES].stay().is_none() && waits[ENTRIES - 1].stay().is_some());
        end(&waits[ENTRIES]);
        assert_eq!(depth(), ENTRIES);
        // The outer wait ends, and the inner ones were not ended before.
        end(&waits[1]);
        assert_eq!(depth(), 1);
        end(&waits[0]);
        assert_eq!(depth(), 0);
    }
}

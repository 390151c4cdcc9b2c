//! The start of a program in the tree: decides whether it takes a home, and which one, and gives the home back at the end.
//!
//! ```text
//! the CPUs were chosen explicitly ──────────────────────────────► left alone, and so is what it starts
//! lazy choice requested, no table any more, or the table full ─► what was inherited of a home is undone
//! else ────────────────────────────────────────────────────────► the least loaded home: its CPUs, its memory
//! ```
//!
//! *The origin of the inherited CPUs* is in the environment (`variable`): a home, or no choice at all. The CPUs also count as those of a
//! home if they consist of whole homes and nearq lets processes out of their homes. Programs whose task is to choose CPUs or memory for the
//! programs that they execute are known by name; their choice is left alone from then on.
//!
//! *Entry and process.* There is one entry per process. Only the process writes it, with two exceptions: nearq changes its state, and
//! removes the entry if the process did not. `PID` and `SLOT` identify the entry. In the child of a fork they still identify the parent's
//! entry, so a process that removes its entry checks that the number is its own.

use core::ffi::CStr;
use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::environment::Environment;
use super::system::{SavedErrno, has_usual_memory};
use super::{home_hint, system};
use crate::layout::{FILE, How, MAX_MASK_WORDS};
use crate::member::{self, Event};
use crate::variable::{self, Inherited, Mask, TreeVariable};
use crate::view::View;

/// Programs that choose CPUs or memory for other programs.
const CHOOSERS: [&[u8]; 4] = [b"taskset", b"numactl", b"hwloc-bind", b"nearq"];

/// When a program chooses its home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choose {
    Exec,
    Fork,
    Lazy,
}

// The home of the process: the table, the entry and its process, and the variable's value, which children overwrite as well. All accesses
// are relaxed: these values are written before the program begins or in the only thread of a child, and read by threads that began later.
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static WORDS: AtomicUsize = AtomicUsize::new(0);
static SLOT: AtomicUsize = AtomicUsize::new(0);
static PID: AtomicU32 = AtomicU32::new(0);
static VALUE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// The program begins.
pub(crate) fn arrive(mut environment: Environment) {
    let choose = match environment.get(variable::CHOOSE).as_deref() {
        Some(b"fork") => Choose::Fork,
        Some(b"lazy") => Choose::Lazy,
        _ => Choose::Exec,
    };
    let Some(value) = environment.get(variable::VARIABLE) else { return };
    let Some(variable) = TreeVariable::of(value) else { return };
    if CHOOSERS.contains(&base(system::started_as())) {
        if undo(&variable) {
            variable::rewrite(value, Inherited::Own, &[]);
        }
        return;
    }
    let Some(current) = system::affinity() else { return };
    let is_free =
        variable.inherited == Inherited::Nothing && variable.widest().as_ref() == Some(&current);
    if choose == Choose::Lazy && (is_free || variable.inherited == Inherited::Own) {
        return;
    }
    let Some(view) = open(&variable) else {
        stay_out(value);
        return;
    };
    if !is_ours(&view, &variable, &current) {
        variable::rewrite(value, Inherited::Own, &[]);
        member::report(&view, Event::LeftAlone);
        return;
    }
    if choose == Choose::Lazy {
        begin_again(&view, &variable);
        variable::rewrite(value, Inherited::Nothing, &[]);
        return;
    }
    VALUE.store(value.as_mut_ptr(), Ordering::Relaxed);
    LENGTH.store(value.len(), Ordering::Relaxed);
    settle(&view, How::Exec, value);
    if choose == Choose::Fork {
        system::follow_forks(in_child);
    }
}

/// The last part of a path.
fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Whether the inherited CPUs are no program's own choice.
fn is_ours(view: &View<'_>, variable: &TreeVariable<'_>, current: &Mask) -> bool {
    let is_widest = variable.widest().as_ref() == Some(current);
    if variable.inherited == Inherited::Own {
        // A program that could have chosen may have chosen all.
        return is_widest && has_usual_memory();
    }
    is_widest
        || variable.inherited == Inherited::Home && variable.narrow().as_ref() == Some(current)
        || member::may_be_moved(view) && member::is_of_whole_homes(view, current)
        || is_of_own_entry(view, current)
}

/// Whether the process has that home already. Shells pass on the environment that they began with, not what was written into it in a child
/// that they forked.
fn is_of_own_entry(view: &View<'_>, current: &Mask) -> bool {
    own_number()
        .and_then(|pid| member::entry_of(view, pid))
        .is_some_and(|(_, entry)| member::is_mask_of(view, entry.home, current))
}

/// The process keeps all CPUs and gets no entry, so that nearq may give it a home when it has run for some time.
fn begin_again(view: &View<'_>, variable: &TreeVariable<'_>) {
    if let Some(pid) = own_number()
        && let Some((slot, _)) = member::entry_of(view, pid)
    {
        member::release(view, slot, pid);
    }
    if variable.inherited == Inherited::Home {
        system::set_memory(None);
    }
    if let Some(widest) = variable.widest() {
        system::set_affinity(&widest);
    }
}

/// Undoes what was inherited from a home; returns false if that is not possible, or the CPUs are a program's own choice.
fn undo(variable: &TreeVariable<'_>) -> bool {
    if variable.inherited != Inherited::Home {
        return variable.inherited == Inherited::Nothing;
    }
    let (current, widest) = (system::affinity(), variable.widest());
    if current != widest && current != variable.narrow() {
        return false;
    }
    system::set_memory(None);
    current == widest || widest.is_some_and(|widest| system::set_affinity(&widest))
}

/// The process has no home, not even that of its parent.
fn stay_out(value: &mut [u8]) {
    if TreeVariable::of(value)
        .is_some_and(|variable| variable.inherited == Inherited::Home && undo(&variable))
    {
        variable::rewrite(value, Inherited::Nothing, &[]);
    }
}

/// The table, if it still exists.
fn open(variable: &TreeVariable<'_>) -> Option<View<'static>> {
    let mut path = [0; 64];
    let path = table_path(&mut path, variable)?;
    let mut buffer = [0; 64];
    // Opening an arbitrary file of another process with that number could have side effects.
    if !system::read_link(path, &mut buffer).starts_with(FILE) {
        return None;
    }
    let words = system::map(path)?;
    let view = View::of(words, Some(variable.token))?;
    TABLE.store(words.as_ptr().cast_mut(), Ordering::Relaxed);
    WORDS.store(words.len(), Ordering::Relaxed);
    Some(view)
}

/// `/proc/PID/fd/N`.
fn table_path<'a>(buffer: &'a mut [u8; 64], variable: &TreeVariable<'_>) -> Option<&'a CStr> {
    let mut at = 0;
    let mut put = |text: &[u8]| {
        for byte in text {
            *buffer.get_mut(at)? = *byte;
            at += 1;
        }
        Some(())
    };
    let mut digits = [0; 10];
    put(b"/proc/")?;
    put(decimal(variable.supervisor, &mut digits))?;
    put(b"/fd/")?;
    put(decimal(variable.descriptor, &mut digits))?;
    put(b"\0")?;
    // SAFETY: a zero byte was put at the end.
    Some(unsafe { CStr::from_ptr(buffer.as_ptr().cast()) })
}

fn decimal(mut number: u32, buffer: &mut [u8; 10]) -> &[u8] {
    let mut first = buffer.len();
    for (at, digit) in buffer.iter_mut().enumerate().rev() {
        *digit = b'0' + (number % 10) as u8;
        first = at;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    buffer.get(first..).unwrap_or_default()
}

/// The process's number as `/proc` has it, where nearq finds it too.
fn own_number() -> Option<u32> {
    let mut buffer = [0; 16];
    variable::decimal(system::read_link(c"/proc/self", &mut buffer))
}

/// Takes a home and moves in.
fn settle(view: &View<'_>, how: How, value: &mut [u8]) {
    let Some(pid) = own_number() else { return };
    let from = system::cpu().and_then(|cpu| member::home_of_cpu(view, cpu));
    let Some(claim) = member::choose(view, pid, how, system::now(), from) else {
        stay_out(value);
        return;
    };
    let mask = mask_of(view, claim.home);
    if !system::set_affinity(&mask) {
        member::release(view, claim.slot, pid);
        member::report(view, Event::AffinityRefused);
        stay_out(value);
        return;
    }
    if member::sets_memory(view) && !system::set_memory(Some(view.memory(claim.home))) {
        member::report(view, Event::MemoryRefused);
    }
    variable::rewrite(value, Inherited::Home, &mask);
    // Reports the home to the scheduler of the whole machine, if that is the node affine scheduler, which uses it when nearq lets the
    // program out.
    home_hint::send(pid, view.memory(claim.home));
    SLOT.store(claim.slot, Ordering::Relaxed);
    PID.store(pid, Ordering::Relaxed);
    member::report(view, Event::Placed(claim.home));
}

fn mask_of(view: &View<'_>, home: usize) -> Mask {
    let mut mask = [0; MAX_MASK_WORDS];
    for (at, word) in mask.iter_mut().enumerate().take(view.layout().mask_words()) {
        *word = view.mask_word(home, at);
    }
    mask
}

/// The table that was found when the program began.
fn table() -> Option<View<'static>> {
    let words = TABLE.load(Ordering::Relaxed);
    if words.is_null() {
        return None;
    }
    // SAFETY: validity: mapped when the program began, and never unmapped; forks share it. Aliasing: all of it is atomic.
    let words = unsafe { slice::from_raw_parts(words, WORDS.load(Ordering::Relaxed)) };
    View::of(words, None)
}

/// Runs in the child of a fork, before the program continues there.
unsafe extern "C" fn in_child() {
    let _saved = SavedErrno::new();
    let (Some(view), value) = (table(), VALUE.load(Ordering::Relaxed)) else { return };
    if value.is_null() {
        return;
    }
    // SAFETY: validity: above the stack, where the kernel put it, for as long as the program runs. Aliasing and thread: the child has
    // one thread, which is here and not in a function that reads the environment.
    let value = unsafe { slice::from_raw_parts_mut(value, LENGTH.load(Ordering::Relaxed)) };
    let Some(current) = system::affinity() else { return };
    if TreeVariable::of(value).is_some_and(|variable| is_ours(&view, &variable, &current)) {
        settle(&view, How::Fork, value);
    }
}

/// Called when the program exits: frees the home at once, not only at nearq's next check.
pub(crate) fn leave() {
    let pid = PID.load(Ordering::Relaxed);
    // In the child of a fork the entry belongs to the parent.
    if pid == 0 || system::pid() != i64::from(pid) {
        return;
    }
    if let Some(view) = table() {
        member::release(&view, SLOT.load(Ordering::Relaxed), pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_table_is_built() {
        for (supervisor, descriptor, path) in
            [(4711, 30, c"/proc/4711/fd/30"), (u32::MAX, 0, c"/proc/4294967295/fd/0")]
        {
            let text = variable::value(supervisor, descriptor, 5, &[0xf]);
            let variable = TreeVariable::of(text.as_bytes()).unwrap();
            assert_eq!(table_path(&mut [0; 64], &variable), Some(path));
        }
    }

    #[test]
    fn programs_that_choose_cpus_are_known_by_name() {
        assert!(CHOOSERS.contains(&base(b"/usr/bin/taskset")));
        assert!(CHOOSERS.contains(&base(b"numactl")));
        assert!(!CHOOSERS.contains(&base(b"/opt/taskset/make")));
    }
}

//! The operations of a member on the table: it takes a home, and gives it back.
//!
//! This code runs in a program before its `main`, and in a child just forked. So it allocates nothing, does not panic, and ends after a
//! bounded number of steps whatever the table contains.

use core::sync::atomic::Ordering;

use crate::layout::{Entry, How, State, WINDOW, header};
use crate::least_loaded::least_loaded;
use crate::view::View;

/// How often the choice is repeated because another process was faster.
const TRIES: usize = 8;

/// A home that was taken, and its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The index of the entry.
    pub slot: usize,
    /// The index of the home.
    pub home: usize,
}

/// Gives the process `pid` the least loaded home (of several, the nearest to `from`), or the home that is fixed for all; `None` if the
/// table is full.
///
/// `now` is the clock that also counts while the machine sleeps, in nanoseconds. An entry that the process already has is reused:
/// a program that another one executes in its place gets a home again.
#[inline]
pub fn choose(view: &View<'_>, pid: u32, how: How, now: u64, from: Option<usize>) -> Option<Claim> {
    match view.count(header::FIXED) {
        0 => settle(view, pid, how, now, |view| count_in(view, from)),
        fixed => settle_at(view, pid, how, now, fixed as usize - 1),
    }
}

/// The same with the given home.
#[inline]
pub fn settle_at(view: &View<'_>, pid: u32, how: How, now: u64, home: usize) -> Option<Claim> {
    if home >= view.layout().homes() {
        return None;
    }
    settle(view, pid, how, now, |view| {
        view.correct(home, 1);
        home
    })
}

#[inline]
fn settle(
    view: &View<'_>,
    pid: u32,
    how: How,
    now: u64,
    home: impl Fn(&View<'_>) -> usize,
) -> Option<Claim> {
    if pid == 0 {
        return None;
    }
    let entries = view.layout().entries();
    let first = pid as usize & (entries - 1);
    for at in first..first + WINDOW.min(entries) {
        let at = at & (entries - 1);
        let (word, since) = view.slot(at)?;
        // Acquire: pairs with the release that freed the entry, after its time was set to zero.
        let mut found = word.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let before = Entry::of_word(found);
            if found != 0 && before.is_none_or(|before| before.pid != pid) {
                break;
            }
            if let Some(before) = before {
                // The process leaves its home before it chooses another, so that it does not avoid its own load.
                view.correct(before.home, -1);
            }
            let home = home(view);
            let entry = Entry { pid, home, how, state: State::Home }.to_word();
            // Acquire: pairs with the release that freed it, whose zero is then not written over the time below. Release: nothing
            // was written before; it keeps entries in the order in which they are counted.
            match word.compare_exchange(found, entry, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    since.store(now, Ordering::Relaxed);
                    return Some(Claim { slot: at, home });
                }
                Err(now_there) => {
                    view.correct(home, -1);
                    if let Some(before) = before {
                        view.correct(before.home, 1);
                    }
                    found = now_there;
                }
            }
        }
    }
    view.count_up(header::FULL);
    None
}

/// Chooses a home, and adds the choice to the count of that home: if two processes choose at once, the second sees the choice of the first.
#[inline]
fn count_in(view: &View<'_>, from: Option<usize>) -> usize {
    let pick = || {
        least_loaded(
            view.layout().homes(),
            |home| view.load(home),
            |home| view.capacity(home),
            |home| from.map_or(0, |from| view.distance(from, home)),
        )
    };
    for _ in 0..TRIES {
        let seen = pick();
        let given = view.given(seen);
        if pick() == seen && view.give(seen, given) {
            return seen;
        }
    }
    let home = pick();
    view.correct(home, 1);
    home
}

/// The process leaves its home, if the entry is still its own.
#[inline]
pub fn release(view: &View<'_>, slot: usize, pid: u32) -> bool {
    let Some((word, since)) = view.slot(slot) else { return false };
    // Relaxed: only the word itself matters.
    let mut found = word.load(Ordering::Relaxed);
    while let Some(entry) = Entry::of_word(found).filter(|entry| entry.pid == pid) {
        since.store(0, Ordering::Relaxed);
        // Release: the time is zero before any other process has the entry.
        match word.compare_exchange(found, 0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                view.correct(entry.home, -1);
                return true;
            }
            Err(now_there) => found = now_there,
        }
    }
    false
}

/// The home whose mask contains the CPU.
#[inline]
pub fn home_of_cpu(view: &View<'_>, cpu: usize) -> Option<usize> {
    let (word, bit) = (cpu / 64, cpu % 64);
    (0..view.layout().homes()).find(|home| view.mask_word(*home, word) >> bit & 1 == 1)
}

/// Whether a mask consists of whole homes: it contains at least one home, and each home either completely or not at all.
#[inline]
pub fn is_of_whole_homes(view: &View<'_>, mask: &[u64]) -> bool {
    let layout = view.layout();
    let word_of = |at: usize| mask.get(at).copied().unwrap_or(0);
    let mut any = false;
    for home in 0..layout.homes() {
        let (mut some, mut all) = (false, true);
        for at in 0..layout.mask_words() {
            let its = view.mask_word(home, at);
            some |= its & word_of(at) != 0;
            all &= its & word_of(at) == its;
        }
        if some && !all {
            return false;
        }
        any |= some;
    }
    any
}

/// Whether nearq may change from outside on which CPUs a process may run.
#[inline]
pub fn may_be_moved(view: &View<'_>) -> bool {
    view.count(header::FLAGS) & MOVES != 0
}

/// The entry of a process, by its index, if it has one.
#[inline]
pub fn entry_of(view: &View<'_>, pid: u32) -> Option<(usize, Entry)> {
    let entries = view.layout().entries();
    let first = pid as usize & (entries - 1);
    let slots = (first..first + WINDOW.min(entries)).map(|at| at & (entries - 1));
    slots.filter_map(|slot| Some((slot, view.entry(slot)?.0))).find(|(_, entry)| entry.pid == pid)
}

/// Whether a mask is that of a home.
#[inline]
pub fn is_mask_of(view: &View<'_>, home: usize, mask: &[u64]) -> bool {
    let words = view.layout().mask_words();
    mask.iter()
        .enumerate()
        .all(|(at, word)| *word == if at < words { view.mask_word(home, at) } else { 0 })
}

/// Events of members that nearq counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The member has the home of this index, and its CPUs.
    Placed(usize),
    /// The CPUs were refused; the member has no home.
    AffinityRefused,
    /// The memory policy was refused; the member has the CPUs of its home.
    MemoryRefused,
    /// The member chose its CPUs itself.
    LeftAlone,
}

/// Counts an event.
#[inline]
pub fn report(view: &View<'_>, event: Event) {
    view.count_up(match event {
        Event::Placed(home) => return view.count_chosen(home),
        Event::AffinityRefused => header::AFFINITY_REFUSED,
        Event::MemoryRefused => header::MEMORY_REFUSED,
        Event::LeftAlone => header::LEFT_ALONE,
    });
}

/// Whether members set a memory policy: not if the user has set one for the whole tree.
#[inline]
pub fn sets_memory(view: &View<'_>) -> bool {
    view.count(header::FLAGS) & MEMORY != 0
}

/// The flag for it.
pub const MEMORY: u64 = 1;
/// The flag for [`may_be_moved`].
pub const MOVES: u64 = 2;

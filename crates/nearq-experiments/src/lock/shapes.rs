//! What threads do under a lock: the patterns of locks of locktorture, of `perf bench epoll`, and of three loads of fxmark, over structures
//! in memory that are changed under the locks and checked at the end.

use super::contestants::Exclusive;
use super::load::Shape;
use super::load::{Load, Plan};
use super::{Line, bump};
use crate::harness::Host;
use nearq_platform::{Atomic as _, Ordering};

// The load of the kernel's locktorture: all threads want one lock and change two shared cache lines under it.

/// How often a long section changes both lines.
pub(super) const LONG_SECTION: u64 = 100;

/// A lock, and what it protects.
pub(super) struct Torture<P: Host, L> {
    lock: Line<L>,
    /// Counters that are changed in two steps, so that one change of two at the same time is lost.
    lines: [Line<P::AtomicU64>; 2],
    changes: u64,
}

impl<P: Host, L: Exclusive> Shape<P> for Torture<P, L> {
    fn new(plan: &Plan) -> Self {
        let line = || Line(P::AtomicU64::new(0));
        let changes = if plan.load == Load::Long { LONG_SECTION } else { 1 };
        Self { lock: Line(L::free(&plan.roster)), lines: [line(), line()], changes }
    }

    #[inline]
    fn step(&self, writer: usize, _turn: u64, acquired: impl FnOnce()) {
        self.lock.0.with(writer, || {
            acquired();
            P::fetch_ahead(&self.lines[1].0);
            for _ in 0..self.changes {
                bump::<P>(&self.lines[0].0);
                bump::<P>(&self.lines[1].0);
            }
        });
    }

    fn verify(&self, entered: &[u64]) -> Result<(), String> {
        let expected = entered.iter().sum::<u64>() * self.changes;
        // Relaxed: all threads have ended.
        let found = [0, 1].map(|line| self.lines[line].0.load(Ordering::Relaxed));
        if found == [expected; 2] {
            return Ok(());
        }
        Err(format!("the counters stand at {found:?}, and {expected} changes were made of each"))
    }
}

// The lock of an epoll instance, as `perf bench epoll` uses it: some threads put their own items on one ready list, others
// take what is on it, all under one lock.
//
// Even writers add items, odd writers wait; a single writer alternates between the two. An item that is already on the list is only noted,
// like an event that comes again before the first was fetched.
//
// All data except the lock itself is protected by the lock. Items and list are made of the platform's atomics, so that a simulated machine
// charges for their lines, and are read and written in separate steps, so that two threads inside would break them.

/// Items of each thread, as many as `perf bench epoll` has descriptors for each.
const ITEMS: usize = 64;

/// An item is named by its index plus one; 0 is none.
struct Item<P: Host> {
    next: P::AtomicU32,
    ready: P::AtomicU32,
    /// Events that came while it was ready.
    again: P::AtomicU64,
}

struct List<P: Host> {
    first: P::AtomicU32,
    last: P::AtomicU32,
    added: P::AtomicU64,
    taken: P::AtomicU64,
    calls: P::AtomicU64,
}

/// The instance.
pub(super) struct Epoll<P: Host, L> {
    lock: Line<L>,
    list: Line<List<P>>,
    items: Vec<Line<Item<P>>>,
    writers: usize,
}

impl<P: Host, L: Exclusive> Epoll<P, L> {
    fn item(&self, name: u32) -> &Item<P> {
        &self.items[name as usize - 1].0
    }

    /// Under the lock: an event of that item.
    fn add(&self, name: u32) {
        let (list, item) = (&self.list.0, self.item(name));
        if item.ready.load(Ordering::Relaxed) != 0 {
            bump::<P>(&item.again);
            return;
        }
        item.ready.store(1, Ordering::Relaxed);
        item.next.store(0, Ordering::Relaxed);
        match list.last.load(Ordering::Relaxed) {
            0 => list.first.store(name, Ordering::Relaxed),
            last => self.item(last).next.store(name, Ordering::Relaxed),
        }
        list.last.store(name, Ordering::Relaxed);
        bump::<P>(&list.added);
    }

    /// Under the lock: the next event, if there is one.
    fn take(&self) {
        let list = &self.list.0;
        let first = list.first.load(Ordering::Relaxed);
        if first == 0 {
            return;
        }
        let item = self.item(first);
        let next = item.next.load(Ordering::Relaxed);
        list.first.store(next, Ordering::Relaxed);
        if next == 0 {
            list.last.store(0, Ordering::Relaxed);
        }
        item.ready.store(0, Ordering::Relaxed);
        bump::<P>(&list.taken);
    }
}

impl<P: Host, L: Exclusive> Shape<P> for Epoll<P, L> {
    fn new(plan: &Plan) -> Self {
        let item = |_| {
            Line(Item {
                next: P::AtomicU32::new(0),
                ready: P::AtomicU32::new(0),
                again: P::AtomicU64::new(0),
            })
        };
        let count = || P::AtomicU64::new(0);
        let list = List {
            first: P::AtomicU32::new(0),
            last: P::AtomicU32::new(0),
            added: count(),
            taken: count(),
            calls: count(),
        };
        Self {
            lock: Line(L::free(&plan.roster)),
            list: Line(list),
            items: (0..plan.writers * ITEMS).map(item).collect(),
            writers: plan.writers,
        }
    }

    #[inline]
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce()) {
        let waits = if self.writers == 1 { turn % 2 == 1 } else { writer % 2 == 1 };
        let item = writer * ITEMS + turn as usize % ITEMS + 1;
        self.lock.0.with(writer, || {
            acquired();
            bump::<P>(&self.list.0.calls);
            if waits { self.take() } else { self.add(item as u32) }
        });
    }

    fn verify(&self, entered: &[u64]) -> Result<(), String> {
        let list = &self.list.0;
        // Relaxed, all: all threads have ended.
        let [added, taken, calls] =
            [&list.added, &list.taken, &list.calls].map(|count| count.load(Ordering::Relaxed));
        let expected: u64 = entered.iter().sum();
        if calls != expected {
            return Err(format!("{expected} calls were made and {calls} are known"));
        }
        let (mut left, mut name) = (0, list.first.load(Ordering::Relaxed));
        while name != 0 && left <= self.items.len() as u64 {
            if self.item(name).ready.load(Ordering::Relaxed) == 0 {
                return Err(format!("item {name} is on the list and not ready"));
            }
            left += 1;
            name = self.item(name).next.load(Ordering::Relaxed);
        }
        let ready =
            self.items.iter().filter(|item| item.0.ready.load(Ordering::Relaxed) != 0).count()
                as u64;
        if added.wrapping_sub(taken) != left || ready != left {
            return Err(format!(
                "{added} items were added and {taken} taken, {left} are on the list and {ready} say so"
            ));
        }
        Ok(())
    }
}

// A file that all threads write to, as in fxmark's DWOM: each overwrites a block of its own, all under the lock of the one inode.

/// Cache lines of a block of 4 KiB.
const LINES: usize = 64;

/// A cache line of a block; one word of it is written: the whole line moves with it.
#[repr(align(64))]
struct Part<A>(A);

/// What an inode knows about its file, on one line.
struct Inode<P: Host> {
    version: P::AtomicU64,
    last_writer: P::AtomicU64,
}

/// The file.
pub(super) struct File<P: Host, L> {
    lock: Line<L>,
    head: Line<Inode<P>>,
    blocks: Vec<[Part<P::AtomicU64>; LINES]>,
}

impl<P: Host, L: Exclusive> Shape<P> for File<P, L> {
    fn new(plan: &Plan) -> Self {
        let zero = || P::AtomicU64::new(0);
        let block = |_| core::array::from_fn(|_| Part(zero()));
        Self {
            lock: Line(L::free(&plan.roster)),
            head: Line(Inode { version: zero(), last_writer: zero() }),
            blocks: (0..plan.writers).map(block).collect(),
        }
    }

    #[inline]
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce()) {
        self.lock.0.with(writer, || {
            acquired();
            for part in &self.blocks[writer] {
                part.0.store(turn + 1, Ordering::Relaxed);
            }
            bump::<P>(&self.head.0.version);
            self.head.0.last_writer.store(writer as u64, Ordering::Relaxed);
        });
    }

    fn verify(&self, entered: &[u64]) -> Result<(), String> {
        // Relaxed, both: all threads have ended.
        let version = self.head.0.version.load(Ordering::Relaxed);
        let expected: u64 = entered.iter().sum();
        if version != expected {
            return Err(format!("{expected} writes were made, and the inode knows of {version}"));
        }
        for (writer, (block, turns)) in self.blocks.iter().zip(entered).enumerate() {
            if block.iter().any(|part| part.0.load(Ordering::Relaxed) != *turns) {
                return Err(format!("the block of writer {writer} is not what it wrote last"));
            }
        }
        Ok(())
    }
}

// A tree of directories in memory, and what fxmark's MWRM and MWUM do with it: renames into one shared directory, and unlinks
// in one shared directory.
//
// # Locks
// Each directory has a lock. A rename takes the lock of all renames first, and then those of the two directories in the order of their
// numbers; an unlink, and the link before it, takes the lock of its directory. A file is touched under the lock of the directory that it is
// in; a file that is in no directory belongs to its writer.
//
// Fxmark makes its files before the clock runs and ends when all are gone. Here the run has a fixed time: files are renamed
// there and back, and an unlinked one is linked again by another turn, under the same lock.
//
// Everything but the locks is made of the platform's atomics, read and written in separate steps, as in `epoll`. If a lock does not
// exclude, a chain may become a circle; such a chain is walked once, and `verify` reports it.

/// Files of each writer.
const FILES: usize = 4;
/// Chains of a directory; names are spread over them.
const CHAINS: usize = 64;
/// The shared directory; each writer's own comes after it.
const SHARED: usize = 0;
/// A file that is in no directory.
const NOWHERE: u32 = u32::MAX;

/// In a chain, a file is named by its index plus one; 0 is the end.
struct Entry<P: Host> {
    next: P::AtomicU32,
    home: P::AtomicU32,
    /// Its name in the directory, different from all other names.
    name: P::AtomicU64,
}

struct Head<P: Host> {
    entries: P::AtomicU64,
    version: P::AtomicU64,
}

struct Directory<P: Host, L> {
    lock: Line<L>,
    head: Line<Head<P>>,
    chains: Vec<P::AtomicU32>,
}

/// The directories and the files.
struct Tree<P: Host, L> {
    renames: Line<L>,
    directories: Vec<Directory<P, L>>,
    files: Vec<Line<Entry<P>>>,
}

/// The chain of a name (Fibonacci hashing).
fn chain_of(name: u64) -> usize {
    (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CHAINS.ilog2())) as usize
}

/// The name of a file from that turn on: no other file has it, and this one never had it.
fn name_of(file: usize, turn: u64) -> u64 {
    (file as u64) << 40 | (turn + 1)
}

/// How often a writer that made that many turns touched its file `file`; it uses its files in rotation.
fn touches(turns: u64, file: usize) -> u64 {
    (turns + (FILES - 1 - file) as u64) / FILES as u64
}

impl<P: Host, L: Exclusive> Tree<P, L> {
    fn new(plan: &Plan) -> Self {
        let writers = plan.writers;
        let directory = |_| Directory {
            lock: Line(L::free(&plan.roster)),
            head: Line(Head { entries: P::AtomicU64::new(0), version: P::AtomicU64::new(0) }),
            chains: (0..CHAINS).map(|_| P::AtomicU32::new(0)).collect(),
        };
        let entry = |_| {
            Line(Entry {
                next: P::AtomicU32::new(0),
                home: P::AtomicU32::new(NOWHERE),
                name: P::AtomicU64::new(0),
            })
        };
        Self {
            renames: Line(L::free(&plan.roster)),
            directories: (0..=writers).map(directory).collect(),
            files: (0..writers * FILES).map(entry).collect(),
        }
    }

    /// Under the directory's lock: puts a file that is in no directory into it. Any file that already has that name there is
    /// left alone; the names of [`name_of`] are unique.
    fn link(&self, directory: usize, file: usize, name: u64) {
        let (to, entry) = (&self.directories[directory], &self.files[file].0);
        let chain = &to.chains[chain_of(name)];
        let mut at = chain.load(Ordering::Relaxed);
        for _ in 0..self.files.len() {
            if at == 0 {
                break;
            }
            let other = &self.files[at as usize - 1].0;
            if other.name.load(Ordering::Relaxed) == name {
                return;
            }
            at = other.next.load(Ordering::Relaxed);
        }
        entry.name.store(name, Ordering::Relaxed);
        entry.home.store(directory as u32, Ordering::Relaxed);
        entry.next.store(chain.load(Ordering::Relaxed), Ordering::Relaxed);
        chain.store(file as u32 + 1, Ordering::Relaxed);
        bump::<P>(&to.head.0.entries);
        bump::<P>(&to.head.0.version);
    }

    /// Under the directory's lock: takes a file out of it.
    fn unlink(&self, directory: usize, file: usize) {
        let (from, entry) = (&self.directories[directory], &self.files[file].0);
        let name = entry.name.load(Ordering::Relaxed);
        let mut link = &from.chains[chain_of(name)];
        let mut found = false;
        for _ in 0..self.files.len() {
            match link.load(Ordering::Relaxed) {
                0 => break,
                at if at as usize - 1 == file => {
                    found = true;
                    break;
                }
                at => link = &self.files[at as usize - 1].0.next,
            }
        }
        if !found {
            return; // `verify` will miss it.
        }
        link.store(entry.next.load(Ordering::Relaxed), Ordering::Relaxed);
        entry.home.store(NOWHERE, Ordering::Relaxed);
        let entries = from.head.0.entries.load(Ordering::Relaxed);
        from.head.0.entries.store(entries.wrapping_sub(1), Ordering::Relaxed);
        bump::<P>(&from.head.0.version);
    }

    /// How often directories were changed, by their own count.
    fn changes(&self) -> u64 {
        // Relaxed here and below: all threads have ended.
        self.directories.iter().map(|of| of.head.0.version.load(Ordering::Relaxed)).sum()
    }

    /// Checks that each file is where it should be, in the chain of its name and nowhere else, and that the counts of the directories are
    /// right.
    fn verify(&self, expected: impl Fn(usize) -> u32) -> Result<(), String> {
        let mut found = vec![NOWHERE; self.files.len()];
        for (number, directory) in self.directories.iter().enumerate() {
            let mut entries = 0;
            for (chain, first) in directory.chains.iter().enumerate() {
                let mut at = first.load(Ordering::Relaxed);
                while at != 0 {
                    let (file, entry) = (at as usize - 1, &self.files[at as usize - 1].0);
                    if chain_of(entry.name.load(Ordering::Relaxed)) != chain
                        || core::mem::replace(&mut found[file], number as u32) != NOWHERE
                    {
                        return Err(format!("file {file} is in a chain that is not its own"));
                    }
                    entries += 1;
                    at = entry.next.load(Ordering::Relaxed);
                }
            }
            let known = directory.head.0.entries.load(Ordering::Relaxed);
            if known != entries {
                return Err(format!(
                    "directory {number} has {entries} files, and knows of {known}"
                ));
            }
        }
        for (file, found) in found.into_iter().enumerate() {
            let says = self.files[file].0.home.load(Ordering::Relaxed);
            if found != expected(file) || says != found {
                return Err(format!(
                    "file {file} is in directory {found} and says {says}; it was put into {}",
                    expected(file)
                ));
            }
        }
        Ok(())
    }
}

/// A writer's file for a turn, and whether the turn brings it into the shared directory.
fn file_of(writer: usize, turn: u64) -> (usize, bool) {
    let files = FILES as u64;
    (writer * FILES + (turn % files) as usize, (turn / files).is_multiple_of(2))
}

/// Whether a file is in the shared directory after that many turns of each writer.
fn is_shared(file: usize, entered: &[u64]) -> bool {
    touches(entered[file / FILES], file % FILES) % 2 == 1
}

/// Fxmark's MWRM: files go from their writer's own directory into the shared one, and back.
pub(super) struct Renames<P: Host, L>(Tree<P, L>);

impl<P: Host, L: Exclusive> Shape<P> for Renames<P, L> {
    fn new(plan: &Plan) -> Self {
        let tree = Tree::new(plan);
        for file in 0..plan.writers * FILES {
            tree.link(file / FILES + 1, file, name_of(file, u64::from(u32::MAX)));
        }
        Self(tree)
    }

    #[inline]
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce()) {
        let (tree, own_directory) = (&self.0, writer + 1);
        let (file, in_shared) = file_of(writer, turn);
        let (from, to) = if in_shared { (own_directory, SHARED) } else { (SHARED, own_directory) };
        let [first, second] =
            [SHARED, own_directory].map(|number| &tree.directories[number].lock.0);
        tree.renames.0.with(writer, || {
            first.with(writer, || {
                second.with(writer, || {
                    acquired();
                    tree.unlink(from, file);
                    tree.link(to, file, name_of(file, turn));
                });
            });
        });
    }

    fn verify(&self, entered: &[u64]) -> Result<(), String> {
        let made = self.0.files.len() as u64 + 2 * entered.iter().sum::<u64>();
        if self.0.changes() != made {
            return Err(format!(
                "directories were changed {made} times and know of {}",
                self.0.changes()
            ));
        }
        self.0.verify(|file| {
            let home = if is_shared(file, entered) { SHARED } else { file / FILES + 1 };
            home as u32
        })
    }
}

/// Fxmark's MWUM: each writer links and unlinks files of its own in the shared directory.
pub(super) struct Unlinks<P: Host, L>(Tree<P, L>);

impl<P: Host, L: Exclusive> Shape<P> for Unlinks<P, L> {
    fn new(plan: &Plan) -> Self {
        Self(Tree::new(plan))
    }

    #[inline]
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce()) {
        let tree = &self.0;
        let (file, in_shared) = file_of(writer, turn);
        tree.directories[SHARED].lock.0.with(writer, || {
            acquired();
            if in_shared {
                tree.link(SHARED, file, name_of(file, turn));
            } else {
                tree.unlink(SHARED, file);
            }
        });
    }

    fn verify(&self, entered: &[u64]) -> Result<(), String> {
        let (made, known) = (entered.iter().sum::<u64>(), self.0.changes());
        if known != made {
            return Err(format!("the directory was changed {made} times and knows of {known}"));
        }
        self.0.verify(|file| if is_shared(file, entered) { SHARED as u32 } else { NOWHERE })
    }
}

#[cfg(test)]
#[path = "tests/tree.rs"]
mod tree_tests;

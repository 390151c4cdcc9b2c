//! A tree of directories in memory, and what fxmark's MWRM and MWUM do with it: renames into one shared directory, and unlinks
//! in one shared directory.
//!
//! # Locks
//! Each directory has a lock. A rename takes the lock of all renames first, and then those of the two directories in the order
//! of their numbers; an unlink, and the link before it, takes the lock of its directory. A file is touched under the lock of the
//! directory that it is in; one that is in none is its writer's.
//!
//! Fxmark makes its files before the clock runs and ends when all are gone. Here the run has a fixed time: files are renamed
//! there and back, and an unlinked one is linked again by another turn, under the same lock.
//!
//! Everything but the locks is made of the platform's atomics, read and written in separate steps, as in `epoll`. A chain that a
//! lock which does not exclude has closed to a circle is walked once: `verify` tells.

use super::contestant::Exclusive;
use super::load::Plan;
use super::run::Shape;
use super::{Line, bump};
use crate::harness::Host;
use nearq_platform::{Atomic as _, Ordering};

/// Files of each writer.
const FILES: usize = 4;
/// Chains of a directory; names are spread over them.
const CHAINS: usize = 64;
/// The directory of everybody; each writer's own comes after.
const SHARED: usize = 0;
/// A file that is in no directory.
const NOWHERE: u32 = u32::MAX;

/// A file is named by its index plus one where it is in a chain; 0 is the end.
struct Entry<P: Host> {
    next: P::AtomicU32,
    home: P::AtomicU32,
    /// Its name there, different from that of all others.
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

/// The name of a file from some turn on: no other file has it, and this one never had it.
fn name_of(file: usize, turn: u64) -> u64 {
    (file as u64) << 40 | (turn + 1)
}

/// How often a writer that made so many turns touched its file `file`: they go in circles.
fn touches(turns: u64, file: usize) -> u64 {
    (turns + (FILES - 1 - file) as u64) / FILES as u64
}

impl<P: Host, L: Exclusive> Tree<P, L> {
    fn new(writers: usize) -> Self {
        let directory = |_| Directory {
            lock: Line(L::free()),
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
            renames: Line(L::free()),
            directories: (0..=writers).map(directory).collect(),
            files: (0..writers * FILES).map(entry).collect(),
        }
    }

    /// Under the directory's lock: puts a file that is nowhere into it. What has that name there already is left alone; the
    /// names of [`name_of`] are there once.
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

    /// How often directories were changed, by their own account.
    fn changes(&self) -> u64 {
        // Relaxed here and below: everybody has ended.
        self.directories.iter().map(|of| of.head.0.version.load(Ordering::Relaxed)).sum()
    }

    /// Whether each file is where it should be, in the chain of its name and nowhere else, and the directories know how many
    /// they have.
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

/// Whether a file is in the shared directory after so many turns of each writer.
fn is_shared(file: usize, entered: &[u64]) -> bool {
    touches(entered[file / FILES], file % FILES) % 2 == 1
}

/// Fxmark's MWRM: files go from their writer's own directory into the shared one, and back.
pub(super) struct Renames<P: Host, L>(Tree<P, L>);

impl<P: Host, L: Exclusive> Shape<P> for Renames<P, L> {
    fn new(plan: &Plan) -> Self {
        let tree = Tree::new(plan.writers);
        for file in 0..plan.writers * FILES {
            tree.link(file / FILES + 1, file, name_of(file, u64::from(u32::MAX)));
        }
        Self(tree)
    }

    #[inline]
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce()) {
        let (tree, own) = (&self.0, writer + 1);
        let (file, in_shared) = file_of(writer, turn);
        let (from, to) = if in_shared { (own, SHARED) } else { (SHARED, own) };
        let [first, second] = [SHARED, own].map(|number| &tree.directories[number].lock.0);
        tree.renames.0.with(|| {
            first.with(|| {
                second.with(|| {
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

/// Fxmark's MWUM: everybody links and unlinks files of its own in the shared directory.
pub(super) struct Unlinks<P: Host, L>(Tree<P, L>);

impl<P: Host, L: Exclusive> Shape<P> for Unlinks<P, L> {
    fn new(plan: &Plan) -> Self {
        Self(Tree::new(plan.writers))
    }

    #[inline]
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce()) {
        let tree = &self.0;
        let (file, in_shared) = file_of(writer, turn);
        tree.directories[SHARED].lock.0.with(|| {
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
mod tests {
    use super::*;
    use nearq_lock::Mutex;
    use nearq_platform::Linux;

    type Lock = Mutex<(), Linux>;

    /// Makes turns of two writers, and says how many of each.
    fn turns(step: impl Fn(usize, u64), turns: [u64; 2]) -> Vec<u64> {
        for turn in 0..turns[0].max(turns[1]) {
            for writer in [0, 1] {
                if turn < turns[writer] {
                    step(writer, turn);
                }
            }
        }
        turns.to_vec()
    }

    #[test]
    fn files_are_where_their_writers_put_them() {
        for made in [[1, 1], [3, 4], [5, 9], [103, 64]] {
            let renames = Renames::<Linux, Lock>::new(&Plan::for_test(2));
            let entered = turns(|writer, turn| renames.step(writer, turn, || ()), made);
            assert_eq!(renames.verify(&entered), Ok(()), "{made:?}");
            let unlinks = Unlinks::<Linux, Lock>::new(&Plan::for_test(2));
            let entered = turns(|writer, turn| unlinks.step(writer, turn, || ()), made);
            assert_eq!(unlinks.verify(&entered), Ok(()), "{made:?}");
        }
    }

    #[test]
    fn a_change_that_was_lost_is_found() {
        let renames = Renames::<Linux, Lock>::new(&Plan::for_test(2));
        let entered = turns(|writer, turn| renames.step(writer, turn, || ()), [6, 6]);
        assert!(renames.verify(&[7, 6]).unwrap_err().contains("and know of"));
        let moved = &renames.0.files[0].0;
        moved.home.store(2, Ordering::Relaxed);
        assert!(renames.verify(&entered).unwrap_err().contains("file 0 is in directory"));
        moved.next.store(1, Ordering::Relaxed);
        assert!(renames.verify(&entered).unwrap_err().contains("file 0 is in a chain"));

        let unlinks = Unlinks::<Linux, Lock>::new(&Plan::for_test(2));
        let entered = turns(|writer, turn| unlinks.step(writer, turn, || ()), [3, 0]);
        bump::<Linux>(&unlinks.0.directories[SHARED].head.0.entries);
        assert!(unlinks.verify(&entered).unwrap_err().contains("knows of"));
    }

    #[test]
    fn names_are_spread_and_touches_counted() {
        let chains: std::collections::BTreeSet<usize> =
            (0..256).map(|file| chain_of(name_of(file, 7))).collect();
        assert!(chains.len() > CHAINS / 2, "{}", chains.len());
        assert_eq!([0, 1, 2, 3].map(|file| touches(6, file)), [2, 2, 1, 1]);
    }
}

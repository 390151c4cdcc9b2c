//! nearq's side of a table: made in memory that has no name anywhere, read, and corrected.
//!
//! The file is a `memfd` of which nearq has the only descriptor; members find it as `/proc/PID/fd/N` and keep a mapping. So it no longer
//! exists when nearq and the last member have ended. Its length is sealed, so that no process can truncate a part that others have mapped.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use nearq_home::{Load, Nodes};
use nearq_topology::CpuSet;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::rand::GetRandomFlags;
use rustix::time::{ClockId, clock_gettime};

use super::layout::{
    Entry, How, Layout, MAX_HOMES, MAX_MASK_WORDS, State, USUAL_ENTRIES, header, home,
};
use super::view::View;
use super::{member, variable};

const NAME: &CStr = c"nearq-tree";
/// With a distance of 255 the firmware says that a node cannot be reached.
const FARTHEST: u32 = 254;

/// A file of words, mapped as long as this value lives.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: all of it is atomic, and no thread is special to a mapping.
unsafe impl Send for Mapping {}
// SAFETY: all of it is atomic, and shared references are all that is given out.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn of(file: &File, words: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let length = words * size_of::<AtomicU64>();
        // SAFETY: a new mapping, at an address that the system chooses.
        let address =
            unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, file, 0)? };
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, words })
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: validity: mapped, page-aligned and of that length as long as `self` lives; the length of the file is sealed. Aliasing:
        // other processes write it too, so all of it is atomic.
        unsafe { slice::from_raw_parts(self.address.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`; references to it borrow `self`.
        let _ =
            unsafe { munmap(self.address.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

/// The counts that members have made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often each home was chosen, at exec or at fork.
    pub chosen: Vec<u64>,
    /// Processes that found no free entry, and have no home.
    pub full: u64,
    /// Processes whose CPUs were refused, and have no home.
    pub affinity_refused: u64,
    /// Processes whose memory policy was refused; they have their CPUs.
    pub memory_refused: u64,
    /// Programs with CPUs of their own choice.
    pub left_alone: u64,
}

/// The table of a tree of processes, or of jobs, of which this process keeps the only descriptor.
///
/// ```
/// use nearq_home::Nodes;
/// use nearq_processes::tree::Table;
/// use nearq_topology::Topology;
///
/// let machine = Topology::from_synthetic("numa:2 core:2")?;
/// let nodes = Nodes::of(&machine, machine.online());
/// let table = Table::create(&nodes, &nodes.cpus(), true)?;
/// assert!(table.claim_for(std::process::id(), 1));
/// assert_eq!(table.view().given(1), 1);
/// assert!(table.release(std::process::id()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Table {
    file: OwnedFd,
    mapping: Mapping,
    layout: Layout,
    token: u64,
}

impl Table {
    /// Makes a table for these homes. `widest` is the set of CPUs that the tree may have at most; with `sets_memory` members take their
    /// memory from their home's node.
    ///
    /// # Errors
    /// The system refuses memory or a file for the table, or there are more than [`MAX_HOMES`] homes.
    pub fn create(nodes: &Nodes, widest: &CpuSet, sets_memory: bool) -> io::Result<Self> {
        Self::with_entries(nodes, widest, sets_memory, USUAL_ENTRIES)
    }

    /// The same with space for that many processes: a power of two.
    ///
    /// # Errors
    /// The same as of [`create`](Self::create); or `entries` is not a power of two, or is more than [`super::MAX_ENTRIES`].
    pub fn with_entries(
        nodes: &Nodes,
        widest: &CpuSet,
        sets_memory: bool,
        entries: usize,
    ) -> io::Result<Self> {
        let all = nodes.cpus().union(widest);
        let layout = Layout::new(nodes.len(), all.as_words().len().max(1), entries);
        let layout = layout.ok_or_else(|| {
            let text = format!(
                "a tree can have at most {MAX_HOMES} homes and {} CPUs, and its number of entries must be a power of two; there are {} homes and {entries} entries",
                MAX_MASK_WORDS * 64,
                nodes.len()
            );
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let file = sealed_file(layout.words() * size_of::<AtomicU64>())?;
        let mapping = Mapping::of(&file, layout.words())?;
        let token = random()?;
        let view = View::make(mapping.words(), layout, token);
        let view = view.expect("the mapping is as long as the layout says");
        for (index, node) in nodes.iter().enumerate() {
            view.set_home_word(index, home::CAPACITY, node.capacity.into());
            view.set_home_word(index, home::MEMORY, node.memory as u64);
            view.set_home_word(index, home::ID, node.id as u64);
            for (at, word) in node.cpus.as_words().iter().enumerate() {
                view.set_mask_word(index, at, *word);
            }
            for to in 0..nodes.len() {
                view.set_distance(index, to, nodes.distance(index, to).min(FARTHEST) as u8);
            }
        }
        for (at, word) in widest.as_words().iter().enumerate() {
            view.set_mask_word(nodes.len(), at, *word);
        }
        view.set_count(header::FLAGS, if sets_memory { member::MEMORY } else { 0 });
        Ok(Table { file: file.into(), mapping, layout, token })
    }

    /// Makes this the home of all members from now on: they do not choose.
    ///
    /// # Panics
    /// If the home does not exist.
    #[must_use]
    pub fn with_fixed(self, home: usize) -> Self {
        assert!(home < self.layout.homes());
        self.view().set_count(header::FIXED, home as u64 + 1);
        self
    }

    /// Notes that from now on the CPUs of a process can be changed from outside, so the processes that it starts may inherit CPUs of homes
    /// that neither of them chose.
    #[must_use]
    pub fn with_moves(self) -> Self {
        let view = self.view();
        view.set_count(header::FLAGS, view.count(header::FLAGS) | member::MOVES);
        self
    }

    /// The value of [`variable::VARIABLE`] for members: this process keeps the table.
    pub fn value(&self, widest: &CpuSet) -> String {
        let descriptor = u32::try_from(self.file.as_raw_fd()).unwrap_or(u32::MAX);
        variable::value(std::process::id(), descriptor, self.token, widest.as_words())
    }

    /// The token that members repeat in their environment.
    pub fn token(&self) -> u64 {
        self.token
    }

    #[cfg(test)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    /// The table for reading. Its layout is the one with which it was made, whatever members have overwritten since then.
    pub fn view(&self) -> View<'_> {
        View::known(self.mapping.words(), self.layout)
    }

    /// Gives a process that home; returns false if the table is full. `pid` is its number in this PID namespace.
    pub fn claim_for(&self, pid: u32, home: usize) -> bool {
        self.claim(pid, home, How::Given)
    }

    pub(crate) fn claim(&self, pid: u32, home: usize, how: How) -> bool {
        member::settle_at(&self.view(), pid, how, now(), home).is_some()
    }

    /// Removes the home of a process; returns false if it had none.
    pub fn release(&self, pid: u32) -> bool {
        let view = self.view();
        let mut any = false;
        // A process may have two, if it found a nearer place free when it executed another program.
        while let Some((slot, _)) = member::entry_of(&view, pid) {
            if !member::release(&view, slot, pid) {
                break;
            }
            any = true;
        }
        any
    }

    /// Notes how a process relates to its home; returns false if it has none.
    pub fn note(&self, pid: u32, state: State) -> bool {
        let entry = member::entry_of(&self.view(), pid);
        entry.is_some_and(|(slot, entry)| self.set_state(slot, entry, state))
    }

    /// Notes how a process relates to its home, unless it has another one by now.
    pub(crate) fn set_state(&self, slot: usize, seen: Entry, state: State) -> bool {
        self.view().replace(slot, seen, Entry { state, ..seen })
    }

    /// Publishes the load of each home, so that members choose by it: the running work of tasks that are not at home there. Also counts
    /// again how many homes are assigned, because members may have died while they counted.
    pub fn publish(&self, loads: &[Load]) {
        let view = self.view();
        let before: Vec<u32> = (0..self.layout.homes()).map(|home| view.given(home)).collect();
        let mut found = vec![0_i64; self.layout.homes()];
        for (_, entry, _) in view.entries() {
            found[entry.home] += 1;
        }
        for (index, load) in loads.iter().enumerate().take(self.layout.homes()) {
            view.set_home_word(index, home::OTHERS, load.others.into());
        }
        // The recount is added to what members count meanwhile, so their changes are not overwritten.
        for (index, found) in found.into_iter().enumerate() {
            let by = found - i64::from(before[index]);
            if by != 0 {
                view.correct(index, by);
            }
        }
    }

    /// The counts that members have made.
    pub fn counts(&self) -> Counts {
        let view = self.view();
        Counts {
            chosen: (0..self.layout.homes()).map(|home| view.chosen(home)).collect(),
            full: view.count(header::FULL),
            affinity_refused: view.count(header::AFFINITY_REFUSED),
            memory_refused: view.count(header::MEMORY_REFUSED),
            left_alone: view.count(header::LEFT_ALONE),
        }
    }
}

/// A copy of another process's table, as of the time when it was read.
#[derive(Debug)]
pub struct TableCopy {
    words: Box<[AtomicU64]>,
}

impl TableCopy {
    /// The table that is open at the path (`/proc/PID/fd/N`), if the file is a table and may be read.
    ///
    /// Any process may give a pipe or a device the name of a table. So a file is checked before it is opened, and is opened for reading
    /// only if it is a file in memory, as a table is. The table is copied, never mapped.
    pub fn of(path: &Path) -> Option<Self> {
        let found =
            File::from(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?);
        let metadata = found.metadata().ok()?;
        let of_memory = sealed_file(0).ok()?.metadata().ok()?.dev();
        if metadata.dev() != of_memory || !metadata.is_file() || metadata.nlink() != 0 {
            return None;
        }
        let again = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(again, flags, Mode::empty()).ok()?);
        let seals = rustix::fs::fcntl_get_seals(&file).ok()?;
        let length = usize::try_from(metadata.len()).ok()?;
        if !seals.contains(SEALS) || length > MOST_WORDS * size_of::<AtomicU64>() {
            return None;
        }
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let (words, _) = bytes.as_chunks::<{ size_of::<AtomicU64>() }>();
        let words: Box<[AtomicU64]> =
            words.iter().map(|word| AtomicU64::new(u64::from_ne_bytes(*word))).collect();
        View::of(&words, None)?;
        Some(Self { words })
    }

    /// The table for reading.
    pub fn view(&self) -> Option<View<'_>> {
        View::of(&self.words, None)
    }
}

/// The largest layout.
const MOST_WORDS: usize = match Layout::new(MAX_HOMES, MAX_MASK_WORDS, super::MAX_ENTRIES) {
    Some(layout) => layout.words(),
    None => 0,
};
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A file in memory whose length cannot be changed.
fn sealed_file(length: usize) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create(NAME, flags)?);
    file.set_len(length as u64)?;
    rustix::fs::fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
    Ok(file)
}

fn random() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    // So few bytes are read in one call.
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

/// The clock of entries: nanoseconds since the machine's start, including the time that it slept.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::path::PathBuf;

    fn path(file: &impl AsFd) -> PathBuf {
        format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
    }

    fn table() -> Table {
        let nodes = Nodes::pretended(&[(0, "0-1".parse().unwrap())], &[vec![10]]);
        Table::with_entries(&nodes, &nodes.cpus(), false, 8).unwrap()
    }

    #[test]
    fn a_table_looks_the_same_to_other_processes() {
        let table = table();
        assert!(table.claim_for(4711, 0));
        let copy = TableCopy::of(&path(&table.file)).unwrap();
        assert_eq!(
            copy.view().unwrap().entries().map(|(_, entry, _)| entry.pid).next(),
            Some(4711)
        );
    }

    #[test]
    fn a_file_with_only_the_name_of_a_table_is_not_opened() {
        let folder = std::env::temp_dir().join(format!("nearq-table-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let name = folder.join("memfd:nearq-tree");
        // Opening a pipe without a writer would wait.
        let (found, reader) = std::sync::mpsc::channel();
        rustix::fs::mknodat(rustix::fs::CWD, &name, rustix::fs::FileType::Fifo, Mode::RWXU, 0)
            .unwrap();
        let held = rustix::fs::open(&name, OFlags::PATH, Mode::empty()).unwrap();
        let pipe = path(&held);
        std::thread::spawn(move || found.send(TableCopy::of(&pipe).is_none()));
        let is_none = reader.recv_timeout(std::time::Duration::from_secs(20));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(is_none, Ok(true), "a pipe was opened");
        assert!(TableCopy::of(Path::new("/proc/self/exe")).is_none());
    }

    #[test]
    fn a_device_is_not_opened() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};

        // A terminal whose other side notices if the terminal is opened and closed.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let other_side = openpt(flags).unwrap();
        unlockpt(&other_side).unwrap();
        let name = ptsname(&other_side, Vec::new()).unwrap().into_string().unwrap();
        let was_opened = || {
            let mut polled = [PollFd::new(&other_side, PollFlags::empty())];
            poll(&mut polled, Some(&Timespec::default())).unwrap();
            polled[0].revents().contains(PollFlags::HUP)
        };
        assert!(TableCopy::of(Path::new(&name)).is_none());
        assert!(!was_opened(), "a terminal was opened");
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        drop(rustix::fs::open(&name, flags, Mode::empty()).unwrap());
        assert!(was_opened(), "the other side has not noticed the opened terminal");
    }

    #[test]
    fn other_memory_files_are_not_tables() {
        let words = table()
            .words()
            .iter()
            .map(|word| word.load(std::sync::atomic::Ordering::Relaxed))
            .collect::<Vec<_>>();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let open =
            || File::from(rustix::fs::memfd_create(NAME, MemfdFlags::ALLOW_SEALING).unwrap());
        let unsealed = open();
        unsealed.write_all_at(&bytes, 0).unwrap();
        assert!(TableCopy::of(&path(&unsealed)).is_none());
        rustix::fs::fcntl_add_seals(&unsealed, SEALS).unwrap();
        assert!(TableCopy::of(&path(&unsealed)).is_some());
        // The file is extended to terabytes without contents.
        let huge = open();
        huge.write_all_at(&bytes, 0).unwrap();
        huge.set_len(1 << 40).unwrap();
        rustix::fs::fcntl_add_seals(&huge, SEALS).unwrap();
        assert!(TableCopy::of(&path(&huge)).is_none());
        let short = open();
        short.write_all_at(&bytes[..bytes.len() - 8], 0).unwrap();
        rustix::fs::fcntl_add_seals(&short, SEALS).unwrap();
        assert!(TableCopy::of(&path(&short)).is_none());
    }
}

//! Home hints to the machine's scheduler, if the node affine scheduler is loaded: they say on which node a thread or a process is at home.
//!
//! The scheduler puts a map into the BPF file system. Its keys are the numbers of threads, or of processes by their first thread, and the
//! scheduler treats each entry as a hint. If there is no map, nothing is done, and the path is not looked up again for a second: until
//! then, a hint costs one load and a reading of the clock.
//!
//! **The map is opened for each report** and closed again, which takes some microseconds. Homes change seldom. This way nothing is
//! written into the map of a scheduler that has gone, and no descriptor is kept that a program could close or reuse. A scheduler's
//! entries are lost when it goes; a process that outlives it reports to the next one, which is recognised by the map's inode.
//!
//! **Numbers** in the map are those of the first namespace of processes. In any other namespace the caller does not know its own number
//! there, and nothing is reported. The namespace is recognised by its inode, which the kernel guarantees for the first one. `NSpid` of
//! `/proc/self/status` would not do: it lists the numbers from the namespace of the mounted `/proc` on, and in a container there is only
//! one.
//!
//! **A number that is a process's stands for all its threads.** A home of its first thread alone is reported under that number with a bit
//! that no number of a thread contains ([`ALONE`]).
//!
//! The scheduler's kernel part removes the entries of threads and processes that end. A caller that reports about another thread or process
//! must ensure that it lives: otherwise the number could belong to a different one.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::thread::Thread;
use super::wake_hint;
use crate::Linux;
use crate::sys::{self, Errno, NumberMap};

/// Where the scheduler has its map.
const PATH: &CStr = c"/sys/fs/bpf/nearq/told";

/// How long to remember that there is no map to write to. An attempt takes a microsecond or two.
const REMEMBERED: Duration = Duration::from_secs(1);

/// What is reported besides the node: that the home was reported, `NQ_WHY_TOLD` of the scheduler's policy.
const REQUESTED: u32 = 4;

/// In the key of a home that is the first thread's alone: `NQ_ALONE` of the scheduler's policy.
const ALONE: u32 = 1 << 31;

/// The inode of the first namespace of processes, `PROC_PID_INIT_INO` of the kernel's `include/linux/proc_ns.h`: since 3.8.
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// Sends home hints through a map at a path.
#[derive(Debug)]
struct HintSender<'a> {
    path: &'a CStr,
    /// Until when there is no map, on the monotonic clock; 0 at first. Relaxed everywhere: a thread that reads an old value looks up the
    /// path once more, or a little later.
    absent_until: AtomicU64,
}

static SENDER: HintSender<'_> = HintSender::new(PATH);

impl<'a> HintSender<'a> {
    const fn new(path: &'a CStr) -> Self {
        HintSender { path, absent_until: AtomicU64::new(0) }
    }

    /// Sends a hint for a number, or takes it back; returns whether a scheduler received it. `now` is nanoseconds on the monotonic clock.
    fn send(&self, number: u32, node: Option<usize>, now: u64) -> bool {
        if now < self.absent_until.load(Ordering::Relaxed) {
            return false;
        }
        let Some(map) = NumberMap::open(self.path).ok().filter(|_| is_in_first_namespace()) else {
            self.absent_until.store(now + REMEMBERED.as_nanos() as u64, Ordering::Relaxed);
            return false;
        };
        match node.map(u32::try_from) {
            Some(Ok(node)) => map.set(number, [node, REQUESTED]).is_ok(),
            Some(Err(_)) => false,
            // If nothing was reported about the number before, that is no failure.
            None => matches!(map.remove(number), Ok(()) | Err(Errno::NOENT)),
        }
    }
}

/// What distinguishes one map at a path from the next one; 0 if there is nothing, or nothing that the caller may see. An inode's number
/// could be reused; its time is different then.
fn identity(path: &CStr) -> u64 {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    fs::metadata(path).map_or(0, |found| {
        let time = found.ctime().wrapping_mul(1_000_000_000).wrapping_add(found.ctime_nsec());
        (found.ino().rotate_left(32) ^ time as u64).max(1)
    })
}

/// As the trait's method says.
pub(super) fn hint_receiver() -> u64 {
    // In most processes there is no scheduler, and the namespace need not be looked up.
    let receiver = Some(identity(PATH)).filter(|found| *found != 0 && is_in_first_namespace());
    wake_hint::follow(receiver.unwrap_or(0));
    receiver.unwrap_or(0)
}

/// Whether the caller's numbers of threads are the kernel's own.
fn is_in_first_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|found| found.ino() == FIRST_NAMESPACE)
}

/// As the trait's method says.
pub(super) fn set_home_hint(thread: Thread, node: Option<usize>) {
    let Some(number) = number_of(thread) else { return };
    let received = SENDER.send(number, node, sys::monotonic());
    if received && node.is_some() && thread.alive().is_none() {
        // The thread has ended, perhaps before the report: then nothing else removes the entry.
        SENDER.send(number, None, sys::monotonic());
    }
}

/// The key under which a thread's own home is reported.
fn number_of(thread: Thread) -> Option<u32> {
    let number = u32::try_from(thread.id()).ok()?;
    Some(if thread == Thread::first() { number | ALONE } else { number })
}

impl Linux {
    /// Reports to the machine's scheduler that a process and all its threads are at home on a node, as the system numbers nodes, or takes
    /// that back; its children inherit it. This has an effect only if the node affine scheduler is loaded and allows this user to report
    /// homes. It is a hint: it does not change where a thread may run.
    ///
    /// Numbers are reused: the caller must know that the process is the one it means, and lives. Allocates nothing and takes no lock.
    /// Returns whether a scheduler received it.
    pub fn set_home_hint_of(process: u32, node: Option<usize>) -> bool {
        SENDER.send(process, node, sys::monotonic())
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::super::bpf_folder::{Folder, in_bpf_file_system};
    use super::*;
    use crate::sys::made::Made;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_missing_map_is_remembered_for_a_second() {
        let folder = Folder::new("absent");
        let path = folder.file("told");
        let sender = HintSender::new(&path);
        let until = || sender.absent_until.load(Ordering::Relaxed);
        assert!(!sender.send(1, Some(0), 5));
        assert_eq!(until(), SECOND + 5);
        assert!(!sender.send(1, Some(0), SECOND + 4));
        assert_eq!(until(), SECOND + 5, "the path is not looked up again");
        assert!(!sender.send(1, None, SECOND + 5));
        assert_eq!(until(), 2 * SECOND + 5, "the path is looked up again");
    }

    #[test]
    fn a_file_that_is_not_a_map_is_left_alone() {
        let folder = Folder::new("other");
        let path = folder.file("told");
        fs::write(folder.0.join("told"), "mine").unwrap();
        assert!(NumberMap::open(&path).is_err());
        assert!(!HintSender::new(&path).send(1, Some(0), 5));
        assert_eq!(fs::read(folder.0.join("told")).unwrap(), b"mine");
    }

    #[test]
    fn the_first_threads_own_home_is_not_its_processs() {
        let process = std::process::id();
        assert_eq!(number_of(Thread::first()), Some(process | ALONE));
        let other = std::thread::spawn(|| number_of(Thread::current())).join().unwrap();
        assert!(other.is_some_and(|other| other & ALONE == 0 && other != process));
        set_home_hint(Thread::first(), None);
        // Works whether or not there is a scheduler; without one the report is not received.
        let received = Linux::set_home_hint_of(std::process::id(), None);
        assert!(!received || Path::new(PATH.to_str().unwrap()).exists());
    }

    #[test]
    fn hints_go_through_a_real_map_and_its_replacement() {
        in_bpf_file_system("real", "a real map of homes", in_file_system);
    }

    fn in_file_system(folder: &Folder) {
        let path = folder.file("told");
        let sender = HintSender::new(&path);
        assert!(!sender.send(7, Some(1), 5), "there is none yet");
        assert_eq!(identity(&path), 0);
        let first = Made::new(8).unwrap();
        first.pin(&path).unwrap();
        let of_first = identity(&path);
        assert!(of_first != 0 && of_first == identity(&path));
        assert!(!sender.send(7, Some(1), 6), "that is remembered");
        let later = 5 + SECOND;
        let received = sender.send(7, Some(1), later);
        if !is_in_first_namespace() {
            assert!(!received && first.get(7).is_none(), "its numbers are not the kernel's");
            return;
        }
        assert!(received);
        assert_eq!(first.get(7), Some([1, REQUESTED]));
        // This takes effect at once: only the absence of a map is remembered.
        fs::remove_file(folder.0.join("told")).unwrap();
        let second = Made::new(8).unwrap();
        second.pin(&path).unwrap();
        assert_ne!(identity(&path), of_first);
        assert!(sender.send(8, Some(0), later));
        assert_eq!((first.get(8), second.get(8)), (None, Some([0, REQUESTED])));
        assert!(sender.send(8, Some(1), later) && second.get(8) == Some([1, REQUESTED]));
        assert!(sender.send(8, None, later) && second.get(8).is_none());
        assert!(sender.send(8, None, later), "removing a hint that was not sent does not fail");
        // A map of another kind.
        fs::remove_file(folder.0.join("told")).unwrap();
        Made::new(16).unwrap().pin(&path).unwrap();
        assert_eq!(NumberMap::open(&path).map(drop), Err(Errno::PROTO));
        assert!(!sender.send(8, Some(0), later));
    }
}

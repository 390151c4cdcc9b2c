//! What a thread is doing, from `/proc/self/task/ID/stat`.
//!
//! | letter | the kernel's word | here |
//! |---|---|---|
//! | `R` | running or on a run queue | `Runnable` |
//! | `S` | interruptible sleep: an event, a lock, a timer | `Blocked` |
//! | `D` | uninterruptible sleep: a device, a page | `Blocked` |
//! | `I` | idle kernel thread (never one of ours) | `Blocked` |
//! | `T`, `t` | stopped by a signal, by a debugger | `Blocked` |
//! | `P`, `K`, `W` | parked, killable sleep, paging (older kernels) | `Blocked` |
//! | `Z`, `X`, `x` | ended, not gone yet | `Ended` |
//! | anything else | unknown to us | `Runnable`: no other worker is started on a guess |

use core::fmt::Write as _;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::refusal::refused;
use super::thread::Thread;
use crate::sys::Errno;
use crate::{OsError, RunState};

/// The state of a thread of this process. About 8 µs, most of it for opening the file.
pub(super) fn of(thread: Thread) -> Result<RunState, OsError> {
    match read(thread) {
        Ok(state) => Ok(state),
        // No such folder, or the thread ended while we read.
        Err(Errno::NOENT | Errno::SRCH) if has_proc() => Ok(RunState::Ended),
        Err(error) => {
            let remedy = if has_proc() { "" } else { "needs /proc (mount -t proc proc /proc)" };
            Err(refused(format!("read what {thread} does"), error, remedy.into()))
        }
    }
}

/// Where a thread sleeps: the kernel's function if that is shown to this process, otherwise the number of the system call.
pub(super) fn sleeps_in(thread: Thread) -> Option<String> {
    let read = |file| std::fs::read_to_string(format!("/proc/self/task/{}/{file}", thread.id()));
    place(read("wchan").ok().as_deref(), read("syscall").ok().as_deref())
}

/// Where a thread sleeps, from the contents of the two files; `0` and `running` mean that they do not say.
fn place(function: Option<&str>, call: Option<&str>) -> Option<String> {
    let function = function.map(str::trim).filter(|name| !matches!(*name, "" | "0"));
    function.map(str::to_owned).or_else(|| {
        // The text begins with the call's number, or -1 if the thread sleeps outside of system calls.
        let number: u32 = call?.split_whitespace().next()?.parse().ok()?;
        Some(format!("system call {number}"))
    })
}

/// A thread whose state is read often: its file stays open.
///
/// Programs close files that they do not know (`close_range`), and the number may be that of another file afterwards. So before
/// the file is read or closed, its device and inode are checked. If it is no longer ours, it is left alone, and ours is opened
/// again.
pub struct Watch {
    thread: Thread,
    file: Option<WatchedFile>,
}

/// The maximum number of such files that a process keeps open: a program may have few descriptors, and needs them itself.
const MOST_OPEN: usize = 64;
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A file that is open, unless the program closed it.
struct WatchedFile {
    file: ManuallyDrop<File>,
    identity: (u64, u64),
}

fn identity(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl WatchedFile {
    /// Keeps the file open if not too many are open.
    fn keep(file: File) -> Option<Self> {
        let identity = identity(&file)?;
        // Relaxed, here and below: a number; nothing depends on it.
        let counted = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < MOST_OPEN).then_some(open + 1)
        });
        counted.ok().map(|_| WatchedFile { file: ManuallyDrop::new(file), identity })
    }

    /// The file, if it is still ours.
    fn file(&self) -> Option<&File> {
        (identity(&self.file) == Some(self.identity)).then_some(&*self.file)
    }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
        if self.file().is_some() {
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

impl Watch {
    pub(super) fn new(thread: Thread) -> Self {
        Watch { thread, file: None }
    }

    pub(super) fn state(&mut self) -> Result<RunState, OsError> {
        let mut line = [0; START_OF_LINE];
        let file = self.file.as_ref().and_then(WatchedFile::file);
        let read = file.and_then(|file| file.read_at(&mut line, 0).ok());
        if let Some(state) = read.and_then(|length| parse(&line[..length])) {
            return Ok(state);
        }
        // The file was not opened yet or was closed by the program, or the thread has ended.
        self.file = None;
        let state = of(self.thread);
        if matches!(state, Ok(RunState::Runnable | RunState::Blocked)) {
            self.file = File::open(Path::of(self.thread).as_str()).ok().and_then(WatchedFile::keep);
        }
        state
    }
}

fn has_proc() -> bool {
    std::fs::exists("/proc/self/task").unwrap_or(false)
}

/// Space for the number, the name (15 bytes) and the letter; the rest of the line is not needed.
const START_OF_LINE: usize = 128;

fn read(thread: Thread) -> Result<RunState, Errno> {
    let path = Path::of(thread);
    let mut line = [0; START_OF_LINE];
    let length = File::open(path.as_str())
        .and_then(|mut file| file.read(&mut line))
        .map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))?;
    parse(&line[..length]).ok_or(Errno::ILSEQ)
}

/// The path of a thread's line, on the stack, because it is needed about a thousand times a second.
struct Path {
    text: [u8; Path::LONGEST],
    length: usize,
}

impl Path {
    const LONGEST: usize = "/proc/self/task/2147483647/stat".len();

    fn of(thread: Thread) -> Self {
        let mut path = Path { text: [0; Path::LONGEST], length: 0 };
        write!(path, "/proc/self/task/{}/stat", thread.id()).expect("thread ids have 31 bits");
        path
    }

    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text[..self.length]).expect("ASCII was written")
    }
}

impl core::fmt::Write for Path {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let end = self.length + part.len();
        let space = self.text.get_mut(self.length..end).ok_or(core::fmt::Error)?;
        space.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// The state in a line such as `17 (a (name) ) S 1 17 ...`; none if it is no such line.
///
/// The name is what the thread calls itself, blanks and parentheses included; it ends at the last `)`, because
/// after it there are only numbers.
fn parse(line: &[u8]) -> Option<RunState> {
    let end_of_name = line.iter().rposition(|&byte| byte == b')')?;
    match line.get(end_of_name + 1..)? {
        [b' ', letter, b' ', ..] => Some(state(*letter)),
        _ => None,
    }
}

fn state(letter: u8) -> RunState {
    match letter {
        b'S' | b'D' | b'I' | b'T' | b't' | b'P' | b'K' | b'W' => RunState::Blocked,
        b'Z' | b'X' | b'x' => RunState::Ended,
        _ => RunState::Runnable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_letter_follows_the_name() {
        assert_eq!(parse(b"17 (cat) R 1 17"), Some(RunState::Runnable));
        assert_eq!(parse(b"17 (cat) S 1 17"), Some(RunState::Blocked));
        assert_eq!(parse(b"17 (cat) Z 1 17"), Some(RunState::Ended));
    }

    #[test]
    fn a_name_may_resemble_the_rest_of_the_line() {
        assert_eq!(parse(b"17 () R 1 () S 1) D 1 17"), Some(RunState::Blocked));
        assert_eq!(parse(b"17 (a ) Z ) R 1 17"), Some(RunState::Runnable));
        assert_eq!(parse(b"17 (\n) R 1 17"), Some(RunState::Runnable));
        assert_eq!(parse(b"17 () R 1 17"), Some(RunState::Runnable));
    }

    #[test]
    fn every_letter_has_its_meaning() {
        for letter in *b"SDITtPKW" {
            assert_eq!(state(letter), RunState::Blocked, "{}", letter as char);
        }
        for letter in *b"ZXx" {
            assert_eq!(state(letter), RunState::Ended, "{}", letter as char);
        }
        for letter in *b"R?" {
            assert_eq!(state(letter), RunState::Runnable, "{}", letter as char);
        }
    }

    #[test]
    fn a_sleep_location_is_a_function_or_a_system_call_number() {
        let call = Some("202 0x7f 0x89\n");
        for (function, call, wanted) in [
            (Some("futex_do_wait"), call, Some("futex_do_wait")),
            (Some("0"), call, Some("system call 202")),
            (Some(""), call, Some("system call 202")),
            (None, call, Some("system call 202")),
            (Some("0\n"), Some("running\n"), None),
            (Some("0"), Some("-1 0x7f 0x7e\n"), None),
            (Some("0"), Some(""), None),
            (None, None, None),
        ] {
            assert_eq!(place(function, call).as_deref(), wanted, "{function:?} {call:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no /proc")]
    fn a_sleeping_thread_shows_where_it_sleeps() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (begin, end) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            sender.send(Thread::current()).unwrap();
            let _ = end.recv();
        });
        let thread = receiver.recv().unwrap();
        while of(thread) != Ok(RunState::Blocked) {
            std::thread::yield_now();
        }
        // A container may hide both files.
        println!("{:?}", sleeps_in(thread));
        drop(begin);
        sleeper.join().unwrap();
        assert_eq!(sleeps_in(Thread::from_raw(i32::MAX)), None);
        assert_ne!(sleeps_in(Thread::current()), Some(String::new()));
    }

    #[test]
    fn malformed_lines_have_no_state() {
        for line in ["", "17", "17 (cat", "17 (cat)", "17 (cat) ", "17 (cat) R", "17 (cat)R 1"] {
            assert_eq!(parse(line.as_bytes()), None, "{line:?}");
        }
    }

    /// What `Watch` returns for a thread that sleeps, and for the caller.
    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn a_watched_thread_is_observed_whatever_happens_to_the_file() {
        use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            sender.send(Thread::current()).unwrap();
            let _ = ended.recv();
        });
        let thread = receiver.recv().unwrap();
        let mut watch = Watch::new(thread);
        while watch.state().unwrap() != RunState::Blocked {
            std::thread::yield_now();
        }
        let mut own_watch = Watch::new(Thread::current());
        assert_eq!(own_watch.state().unwrap(), RunState::Runnable);
        assert_eq!(own_watch.state().unwrap(), RunState::Runnable);
        assert_eq!(watch.state().unwrap(), RunState::Blocked);
        // The file is closed from outside, and another file gets its number.
        let number = watch.file.as_ref().expect("the file stays open").file.as_raw_fd();
        let mut other = File::open("/proc/self/comm").unwrap();
        // SAFETY: both numbers are open files.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        assert_eq!(watch.state().unwrap(), RunState::Blocked);
        assert_ne!(watch.file.as_ref().unwrap().file.as_raw_fd(), number, "opened anew");
        // SAFETY: the number is ours since `dup2`, and nothing else closes it.
        let mut dup = File::from(unsafe { OwnedFd::from_raw_fd(number) });
        let (mut from_other, mut from_dup) = (String::new(), String::new());
        dup.read_to_string(&mut from_dup).expect("it was not closed");
        other.read_to_string(&mut from_other).unwrap();
        drop(end);
        sleeper.join().unwrap();
        while watch.state().unwrap() != RunState::Ended {
            std::thread::yield_now();
        }
        assert!(watch.file.is_none());
    }

    #[test]
    fn the_largest_number_fits_the_path() {
        let path = Path::of(Thread::from_raw(i32::MAX));
        assert_eq!(path.as_str(), "/proc/self/task/2147483647/stat");
    }
}

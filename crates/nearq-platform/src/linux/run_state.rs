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
//! | anything else | unknown to us | `Runnable`: nobody starts another worker on a guess |

use core::fmt::Write as _;
use std::fs::File;
use std::io::Read;

use super::refusal::refused;
use super::thread::Thread;
use crate::sys::Errno;
use crate::{Refused, RunState};

/// The state of a thread of this process. About 8 µs: the kernel writes the whole line to answer for one letter.
///
/// To keep the file open would more than halve that, and would have us read from whatever got its number after
/// a program that closes all files it does not know.
pub(super) fn of(thread: Thread) -> Result<RunState, Refused> {
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

fn has_proc() -> bool {
    std::fs::exists("/proc/self/task").unwrap_or(false)
}

fn read(thread: Thread) -> Result<RunState, Errno> {
    /// Room for the number, the name (15 bytes) and the letter; the rest of the line is not wanted.
    const START_OF_LINE: usize = 128;

    let path = Path::of(thread);
    let mut line = [0; START_OF_LINE];
    let length = File::open(path.as_str())
        .and_then(|mut file| file.read(&mut line))
        .map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))?;
    parse(&line[..length]).ok_or(Errno::ILSEQ)
}

/// The path of a thread's line, on the stack: this is asked about a thousand times a second.
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
        let room = self.text.get_mut(self.length..end).ok_or(core::fmt::Error)?;
        room.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// The state in a line such as `17 (a (name) ) S 1 17 ...`; none where it is no such line.
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
    fn the_letter_is_the_one_after_the_name() {
        assert_eq!(parse(b"17 (cat) R 1 17"), Some(RunState::Runnable));
        assert_eq!(parse(b"17 (cat) S 1 17"), Some(RunState::Blocked));
        assert_eq!(parse(b"17 (cat) Z 1 17"), Some(RunState::Ended));
    }

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
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
    fn what_is_no_line_has_no_state() {
        for line in ["", "17", "17 (cat", "17 (cat)", "17 (cat) ", "17 (cat) R", "17 (cat)R 1"] {
            assert_eq!(parse(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn the_largest_number_fits_the_path() {
        let path = Path::of(Thread::from_raw(i32::MAX));
        assert_eq!(path.as_str(), "/proc/self/task/2147483647/stat");
    }
}

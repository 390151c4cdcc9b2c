//! The parts of a machine that exist and could not be read: by error number, with the first path for each.
//!
//! A file that does not exist says something: the machine does not have the part, or the kernel does not report it. A file that exists and
//! cannot be opened says nothing, and everything that is assembled without it is a guess. So the two cases are distinguished, and a reading
//! that lacks something does not replace a reading that has it ([`is_as_whole`]).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Files and folders that exist and could not be read, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    path: PathBuf,
    errno: i32,
    /// The text of the first error.
    reason: String,
    count: usize,
}

/// The errors that may soon pass; a device may disappear while it is read. Other errors last: a missing permission, a filter.
const PASSING: [i32; 9] = [
    libc::EINTR,
    libc::EIO,
    libc::EAGAIN,
    libc::ENOMEM,
    libc::EBUSY,
    libc::ENODEV,
    libc::ENFILE,
    libc::EMFILE,
    libc::ESTALE,
];

/// The number of an error.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::FileTooLarge => libc::EFBIG,
        _ => libc::EIO,
    })
}

/// Whether an error says that there is no such file, and not that it cannot be read.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl Unread {
    pub(crate) fn new(path: &Path, error: &io::Error) -> Self {
        Self { path: path.into(), errno: errno(error), reason: error.to_string(), count: 1 }
    }

    /// The first error.
    pub(crate) fn error(&self) -> io::Error {
        let plain = io::Error::from_raw_os_error(self.errno);
        if plain.to_string() == self.reason {
            return plain;
        }
        io::Error::new(plain.kind(), self.reason.clone())
    }

    /// The path of the first of them.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error number, as in `errno.h`.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// How many files and folders there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether the reason may soon pass, for example if a process has no more descriptors; a missing permission lasts.
    pub fn may_pass(&self) -> bool {
        PASSING.contains(&self.errno)
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)?;
        if self.count > 1 {
            write!(f, " (and {} more)", self.count - 1)?;
        }
        Ok(())
    }
}

/// Notes one more failed reading.
pub(crate) fn add(all: &mut Vec<Unread>, path: &Path, error: &io::Error) {
    match all.iter_mut().find(|known| known.errno == errno(error)) {
        Some(known) => known.count += 1,
        None => all.push(Unread::new(path, error)),
    }
}

/// All entries, in one line.
pub(crate) fn list(all: &[Unread]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Whether a reading that lacks `new` has everything that a reading that lacks `known` has: it lacks no more files, and for no other
/// reason.
pub(crate) fn is_as_whole(new: &[Unread], known: &[Unread]) -> bool {
    new.iter()
        .all(|new| known.iter().any(|known| known.errno == new.errno && known.count >= new.count))
}

//! What the kernel says about a process that is searched for: its user, its number in its container, its variables. A hostile program may
//! control all of this text, so it is read only up to a limit.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Bytes that are read of `status`: with all groups that a process can have it is three quarters of that.
const LONGEST_STATUS: u64 = 1 << 20;
/// Bytes that are read of `environ`, of each process: a program can have any part of its memory shown there.
const LONGEST_ENVIRONMENT: u64 = 256 << 10;
/// Bytes that are read of other files.
const LONGEST: u64 = 64 << 10;
/// The most bytes that a path can have.
const LONGEST_PATH: usize = 4096;

/// An existing process.
#[derive(Debug)]
pub(super) struct Process {
    folder: PathBuf,
    /// Its effective user.
    pub(super) user: u32,
    /// Its number in the innermost container.
    pub(super) inner: String,
    /// Its command.
    pub(super) name: String,
}

impl Process {
    /// The process with that number; `None` if there is none.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let status = read(&folder.join("status"), LONGEST_STATUS).ok()?;
        let status = String::from_utf8_lossy(&status);
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.strip_prefix(':')).unwrap_or_default().trim()
        };
        // The user as we see it. As the process itself sees it, it may differ: it is 0 for root of a container that runs as an
        // ordinary user.
        let user = field("Uid").split_whitespace().nth(1)?.parse().ok()?;
        let inner = field("NSpid").split_whitespace().last().map_or(pid.to_string(), str::to_owned);
        let name = field("Name").to_owned();
        Some(Process { folder, user, inner, name })
    }

    /// Its root directory.
    pub(super) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// The environment variables that it was started with, by name; values that are not paths are left out.
    pub(super) fn variables<const COUNT: usize>(
        &self,
        names: [&str; COUNT],
    ) -> [Option<PathBuf>; COUNT] {
        let environment =
            read(&self.folder.join("environ"), LONGEST_ENVIRONMENT).unwrap_or_default();
        names.map(|name| {
            let mut lines = environment.split(|&byte| byte == 0);
            let value =
                lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            let fits = value.len() <= LONGEST_PATH;
            fits.then(|| PathBuf::from(OsString::from_vec(value.to_vec())))
        })
    }

    /// The number of its user inside a container with its own numbering of users; `None` if the number is the same there.
    pub(super) fn inner_user(&self) -> Option<u32> {
        let map = read(&self.folder.join("uid_map"), LONGEST).ok()?;
        String::from_utf8_lossy(&map).lines().find_map(|line| {
            let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().ok());
            let (inside, outside, count) = (fields.next()??, fields.next()??, fields.next()??);
            let offset = u64::from(self.user).checked_sub(outside)?;
            let inside = inside.checked_add(offset).filter(|_| offset < count)?;
            u32::try_from(inside).ok().filter(|&inside| inside != self.user)
        })
    }

    /// When it began, in hundredths of a second after the machine did.
    pub(super) fn started(&self) -> Option<u64> {
        let stat = read(&self.folder.join("stat"), LONGEST).ok()?;
        // The name before this field may contain anything.
        let rest = stat.rsplit(|&byte| byte == b')').next()?;
        String::from_utf8_lossy(rest).split_ascii_whitespace().nth(19)?.parse().ok()
    }
}

/// The beginning of a file, at most `most` bytes.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described_from_proc() {
        let this_process = Process::of(std::process::id()).unwrap();
        assert_eq!(this_process.user, rustix::process::geteuid().as_raw());
        assert!(this_process.started().is_some_and(|ticks| ticks > 0));
        assert_eq!(this_process.variables(["NO_SUCH_VARIABLE", "PATH"])[0], None);
        // Numbers of processes end at 2^22.
        assert!(Process::of(4_194_305).is_none());
    }

    #[test]
    fn reads_stop_at_the_limit() {
        assert_eq!(read(Path::new("/dev/zero"), 100_000).unwrap().len(), 100_000);
    }
}

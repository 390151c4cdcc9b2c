//! Where sockets are, and how they are made.
//!
//! A process listens on `DIRECTORY/PID`. The directory is the first of these that is the user's own:
//!
//! * `$XDG_RUNTIME_DIR/nearq`, where that variable names a directory that belongs to the user;
//! * `$TMPDIR/nearq-UID`, or `/tmp/nearq-UID` where that is not set.
//!
//! # Why nobody else gets in between
//! Names under `/tmp` are anybody's to take. So a name is resolved once: the directory is made (`mkdirat`), opened without following a
//! link, and what was opened is looked at, not what the name leads to later: it must be a directory, belong to the effective user, and be
//! closed to all others. The socket is bound through that descriptor (`/proc/self/fd/N/PID`), which also spares it the limit of 107 bytes
//! that the path of a socket has.
//!
//! # Stale sockets
//! A process that is killed leaves its socket behind. A socket listens before it gets its name: it is bound under another one (`.PID`)
//! and moved. So one that refuses a connection belongs to nobody, ever, and is removed by who finds it, under a lock of the directory
//! that keeps others from moving a new one there between the two steps. A socket that somebody listens on is never removed, and never
//! replaced; but for one case.
//!
//! # Two in one process
//! A program that uses nearq may run under the preload library as well, and then has two servers and one number. The one with a runtime
//! behind it has the name, whichever comes first: the program has made it to be looked into. It asks the other one, and where that
//! has none, moves its own socket over it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;

/// For how long it is tried to connect to a socket whose queue is full.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait between two trials.
const PAUSE: Duration = Duration::from_millis(10);
/// For how long the lock of a directory is waited for. Who has it does a handful of system calls; one that was stopped meanwhile holds
/// nobody up.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 64;

/// The directories in which the caller's sockets may be, best first.
pub(crate) fn directories() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    candidates(variable("XDG_RUNTIME_DIR"), variable("TMPDIR"), geteuid().as_raw())
}

/// The directories of a user with these variables.
pub(crate) fn candidates(
    runtime: Option<PathBuf>,
    tmp: Option<PathBuf>,
    user: u32,
) -> Vec<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let runtime = runtime.filter(absolute).map(|path| path.join("nearq"));
    let tmp = tmp.filter(absolute).unwrap_or_else(|| PathBuf::from("/tmp"));
    runtime.into_iter().chain([tmp.join(format!("nearq-{user}"))]).collect()
}

/// Who listens on a socket.
#[derive(Debug)]
enum Whose {
    /// Another copy of the library; a connection to it.
    ThisProcess(OwnedFd),
    /// A process.
    Process(u32),
    /// One that has no number here.
    Elsewhere,
    /// One that does not answer.
    Silent,
}

impl std::fmt::Display for Whose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Whose::ThisProcess(_) => f.write_str("another copy of the library in this process"),
            Whose::Process(pid) => write!(f, "process {pid}"),
            Whose::Elsewhere => f.write_str("a process of another container"),
            Whose::Silent => f.write_str("somebody who does not answer"),
        }
    }
}

/// A directory of the user's own, open.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Makes the first of the caller's directories that can be had.
    pub(crate) fn own() -> Result<Self, String> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let mut why = String::new();
        for path in directories() {
            // Under `sudo` it may still be somebody else's.
            let inside = path.parent().map(Path::to_owned);
            if inside.is_some() && inside == runtime && !is_mine(inside.as_deref()) {
                why = format!(
                    "{} does not belong to this user",
                    path.parent().unwrap_or(&path).display()
                );
                continue;
            }
            match Self::make(&path) {
                Ok(directory) => return Ok(directory),
                Err(refusal) if why.is_empty() => why = refusal,
                Err(refusal) => why = format!("{why}; {refusal}"),
            }
        }
        Err(why)
    }

    /// Makes a directory where there is none, and opens it.
    pub(crate) fn make(path: &Path) -> Result<Self, String> {
        Self::open_or_make(path, true)
    }

    /// Opens a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        Self::open_or_make(path, false)
    }

    fn open_or_make(path: &Path, make: bool) -> Result<Self, String> {
        let told = |what: &str, error: Errno| format!("{what} {}: {error}", path.display());
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(format!("{} names no directory", path.display()));
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags | OFlags::PATH, Mode::empty())
            .map_err(|error| format!("cannot open {}: {error}", parent.display()))?;
        if make {
            match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(told("cannot make the directory", error)),
            }
        }
        let fd = rustix::fs::openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|error| match error {
                Errno::LOOP | Errno::NOTDIR => {
                    format!("{} is no directory, or a link; remove it", path.display())
                }
                _ => told("cannot open the directory", error),
            })?;
        let found = rustix::fs::fstat(&fd).map_err(|error| told("cannot look at", error))?;
        check(path, &found)?;
        Ok(Directory { fd, path: path.to_owned() })
    }

    /// Has a [new](new_socket) socket listen under that name. Where another copy of the library in this process does, `gives_way`
    /// says, over a connection to it, whether its name is to be taken over.
    pub(crate) fn listen(
        &self,
        name: &str,
        socket: &impl AsFd,
        gives_way: impl FnOnce(UnixStream) -> bool,
    ) -> Result<(), String> {
        let _lock = self.lock(LOCK_PATIENCE);
        if let Some(whose) = self.whose(name) {
            let taken_over = match &whose {
                // It goes on listening, and is not found any more.
                Whose::ThisProcess(other) => {
                    other.try_clone().and_then(blocking).is_ok_and(gives_way)
                }
                _ => false,
            };
            if !taken_over {
                return Err(format!("{} belongs to {whose}", self.path.join(name).display()));
            }
        }
        let raw = format!(".{name}");
        self.remove(&raw);
        let done = self.bind(&raw, socket).and_then(|()| {
            // Listening before it has its name: who finds it can connect.
            rustix::net::listen(socket, BACKLOG)?;
            rustix::fs::renameat(&self.fd, raw.as_str(), &self.fd, name)
        });
        done.map_err(|error| {
            self.remove(&raw);
            format!("cannot listen on {}: {error}", self.path.join(name).display())
        })
    }

    fn bind(&self, name: &str, socket: &impl AsFd) -> rustix::io::Result<()> {
        // What the file will have, whatever the process's mask says.
        rustix::fs::fchmod(socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(socket, &self.address(name)?)
    }

    /// The address of a socket in the directory.
    fn address(&self, name: impl AsRef<OsStr>) -> rustix::io::Result<SocketAddrUnix> {
        let through = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        if rustix::fs::stat(&through).is_ok_and(|found| self.is(&found)) {
            SocketAddrUnix::new(through.join(name.as_ref()))
        } else {
            // No `/proc`.
            SocketAddrUnix::new(self.path.join(name.as_ref()))
        }
    }

    fn is(&self, found: &Stat) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|own| same(&own, found))
    }

    /// Who listens on the socket of that name; none where nobody does.
    fn whose(&self, name: &str) -> Option<Whose> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match self.try_connect(name) {
            Ok(stream) => Some(match nearq_platform::Linux::peer(&stream) {
                Ok(peer) if peer.pid == std::process::id() => Whose::ThisProcess(stream),
                Ok(peer) if peer.pid != 0 => Whose::Process(peer.pid),
                _ => Whose::Elsewhere,
            }),
            Err(Errno::CONNREFUSED | Errno::NOENT) => None,
            Err(_) => Some(Whose::Silent),
        }
    }

    fn try_connect(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        try_connect(&self.address(name)?)
    }

    /// Removes what no process listens on any more.
    pub(crate) fn clean(&self) {
        let Some(_lock) = self.lock(Duration::ZERO) else { return };
        for name in self.names() {
            let pid = name.trim_start_matches('.').parse::<u32>();
            let Ok(pid) = pid else { continue };
            let stale = if name.starts_with('.') {
                // It is moved under the lock that we have: its maker died on the way, or works without the lock.
                !Path::new("/proc").join(pid.to_string()).exists()
            } else {
                matches!(self.try_connect(&name), Err(Errno::CONNREFUSED))
            };
            if stale {
                self.remove(&name);
            }
        }
    }

    /// The names in the directory.
    pub(crate) fn names(&self) -> Vec<String> {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.fd) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    }

    /// Where the directory is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn stat(&self, name: &str) -> Option<Stat> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Removes a socket; nothing else.
    pub(crate) fn remove(&self, name: &str) {
        if self.stat(name).is_some_and(|found| FileType::from_raw_mode(found.st_mode).is_socket()) {
            let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
        }
    }

    /// The directory to ourselves, if it can be had soon. Belongs to a description of its own, which the end of this process closes.
    fn lock(&self, patience: Duration) -> Option<File> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&self.fd, ".", flags, Mode::empty()).ok()?;
        let begin = Instant::now();
        loop {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(File::from(lock)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if begin.elapsed() < patience => {
                    std::thread::sleep(PAUSE);
                }
                Err(_) => return None,
            }
        }
    }
}

/// Whether two descriptions are of one file.
pub(crate) fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether what was opened is a directory of the caller's own.
fn check(path: &Path, found: &Stat) -> Result<(), String> {
    let path = path.display();
    if !FileType::from_raw_mode(found.st_mode).is_dir() {
        return Err(format!("{path} is no directory; remove it"));
    }
    let own = geteuid().as_raw();
    if found.st_uid != own {
        return Err(format!("{path} belongs to user {}, not to {own}; remove it", found.st_uid));
    }
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.intersects(Mode::RWXG | Mode::RWXO) {
        return Err(format!("{path} is open to others; `chmod 700 {path}` closes it"));
    }
    if !mode.contains(Mode::RWXU) {
        return Err(format!("{path} is closed to its owner; `chmod 700 {path}` opens it"));
    }
    Ok(())
}

fn is_mine(path: Option<&Path>) -> bool {
    let found = path.and_then(|path| rustix::fs::stat(path).ok());
    found.is_some_and(|found| found.st_uid == geteuid().as_raw())
}

/// A socket that does not block, without a name.
pub(crate) fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn try_connect(address: &SocketAddrUnix) -> rustix::io::Result<OwnedFd> {
    let socket = new_socket()?;
    rustix::net::connect(&socket, address)?;
    Ok(socket)
}

/// Connects to a socket, whose path may be long. The stream blocks.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let begin = Instant::now();
    loop {
        match connect_once(path) {
            // Its queue is full: it is busy, or stopped.
            Err(Errno::AGAIN) if begin.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
            }
            Err(error) => return Err(error.into()),
            Ok(socket) => return blocking(socket),
        }
    }
}

fn blocking(socket: OwnedFd) -> io::Result<UnixStream> {
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects without waiting; the stream does not block.
pub(crate) fn connect_once(path: &Path) -> rustix::io::Result<OwnedFd> {
    match SocketAddrUnix::new(path) {
        Ok(address) => try_connect(&address),
        Err(error) => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
            let parent = rustix::fs::open(parent, flags, Mode::empty())?;
            let through = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd()));
            try_connect(&SocketAddrUnix::new(through.join(name))?)
        }
    }
}

//! Where sockets are, and how they are made.
//!
//! A process listens on `DIRECTORY/PID`. The directory is the first of these that belongs to the user:
//!
//! * `$XDG_RUNTIME_DIR/nearq`, if that variable names a directory that belongs to the user;
//! * `$TMPDIR/nearq-UID`, or `/tmp/nearq-UID` if that is not set.
//!
//! # Why no other user can interfere
//! Any user can take a name under `/tmp`. So a name is resolved once: the directory is made (`mkdirat`) and opened without following a
//! link. The open file is checked, not what the name leads to later: it must be a directory, belong to the effective user, and be closed to
//! all other users. The socket is bound through that descriptor (`/proc/self/fd/N/PID`), which also avoids the limit of 107 bytes on the
//! path of a socket.
//!
//! # Stale sockets
//! A process that is killed leaves its socket behind. A socket listens before it gets its name: it is bound under another name (`.PID`) and
//! then renamed. So a socket that refuses a connection belongs to no process, and never will. A process that finds such a socket removes
//! it, under a lock of the directory that keeps other processes from moving a new socket there between the check and the removal. A socket
//! that a process listens on is never removed, and never replaced, except in one case.
//!
//! # Two in one process
//! A program that uses nearq may also run under the preload library, and then has two servers but one process number. The server with a
//! runtime behind it gets the name, whichever starts first, because that runtime is what users want to inspect. It asks the other server,
//! and if that server has no runtime, moves its own socket over the other socket.

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

/// How long to wait before a lock is tried again.
const PAUSE: Duration = Duration::from_millis(10);
/// How long to wait for the lock of a directory. The process that holds the lock makes only a handful of system calls. A process that is
/// stopped meanwhile must not delay the others.
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

/// What listens on a socket.
#[derive(Debug)]
enum ListenerKind {
    /// Another copy of the library; a connection to it.
    ThisProcess(OwnedFd),
    /// A process.
    Process(u32),
    /// A process that has no number in this PID namespace.
    Elsewhere,
    /// A server that does not answer.
    Silent,
}

impl std::fmt::Display for ListenerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListenerKind::ThisProcess(_) => {
                f.write_str("another copy of the library in this process")
            }
            ListenerKind::Process(pid) => write!(f, "process {pid}"),
            ListenerKind::Elsewhere => f.write_str("a process of another container"),
            ListenerKind::Silent => f.write_str("a process that does not answer"),
        }
    }
}

/// An open directory that belongs to the user.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Makes the first of the caller's directories that can be made.
    pub(crate) fn of_this_user() -> Result<Self, String> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let mut why = String::new();
        for path in directories() {
            // Under `sudo` the directory may still belong to another user.
            let inside = path.parent().map(Path::to_owned);
            if inside.is_some() && inside == runtime && !belongs_to_this_user(inside.as_deref()) {
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

    /// Makes a directory if there is none, and opens it.
    pub(crate) fn make(path: &Path) -> Result<Self, String> {
        Self::open_or_make(path, true)
    }

    /// Opens a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        Self::open_or_make(path, false)
    }

    fn open_or_make(path: &Path, make: bool) -> Result<Self, String> {
        let failure = |what: &str, error: Errno| format!("{what} {}: {error}", path.display());
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(format!("{} is not the path of a directory", path.display()));
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags | OFlags::PATH, Mode::empty())
            .map_err(|error| format!("cannot open {}: {error}", parent.display()))?;
        if make {
            match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failure("cannot create the directory", error)),
            }
        }
        let fd = rustix::fs::openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|error| match error {
                Errno::LOOP | Errno::NOTDIR => {
                    format!("{} is not a directory, or is a link; remove it", path.display())
                }
                _ => failure("cannot open the directory", error),
            })?;
        let found = rustix::fs::fstat(&fd).map_err(|error| failure("cannot look at", error))?;
        check(path, &found)?;
        Ok(Directory { fd, path: path.to_owned() })
    }

    /// Has a [new](new_socket) socket listen under that name. If another copy of the library in this process already listens there,
    /// `gives_way` says, over a connection to it, whether to take over its name.
    pub(crate) fn listen(
        &self,
        name: &str,
        socket: &impl AsFd,
        gives_way: impl FnOnce(UnixStream) -> bool,
    ) -> Result<(), String> {
        let _lock = self.lock(LOCK_PATIENCE);
        if let Some(listener) = self.listener_of(name) {
            let taken_over = match &listener {
                // The other copy continues to listen, but can no longer be found.
                ListenerKind::ThisProcess(other) => {
                    other.try_clone().and_then(blocking).is_ok_and(gives_way)
                }
                _ => false,
            };
            if !taken_over {
                return Err(format!("{} belongs to {listener}", self.path.join(name).display()));
            }
        }
        let raw = format!(".{name}");
        self.remove(&raw);
        let done = self.bind(&raw, socket).and_then(|()| {
            // The socket listens before it gets its name, so a process that finds it can connect.
            rustix::net::listen(socket, BACKLOG)?;
            rustix::fs::renameat(&self.fd, raw.as_str(), &self.fd, name)
        });
        done.map_err(|error| {
            self.remove(&raw);
            format!("cannot listen on {}: {error}", self.path.join(name).display())
        })
    }

    fn bind(&self, name: &str, socket: &impl AsFd) -> rustix::io::Result<()> {
        // The mode that the file will have, whatever the process's mask says.
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
        rustix::fs::fstat(&self.fd).is_ok_and(|this| same(&this, found))
    }

    /// What listens on the socket of that name; `None` if nothing does.
    fn listener_of(&self, name: &str) -> Option<ListenerKind> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match self.try_connect(name) {
            Ok(stream) => Some(match nearq_platform::Linux::peer(&stream) {
                Ok(peer) if peer.pid == std::process::id() => ListenerKind::ThisProcess(stream),
                Ok(peer) if peer.pid != 0 => ListenerKind::Process(peer.pid),
                _ => ListenerKind::Elsewhere,
            }),
            Err(Errno::CONNREFUSED | Errno::NOENT) => None,
            Err(_) => Some(ListenerKind::Silent),
        }
    }

    fn try_connect(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        try_connect(&self.address(name)?)
    }

    /// Removes sockets on which no process listens any more.
    pub(crate) fn clean(&self) {
        let Some(_lock) = self.lock(Duration::ZERO) else { return };
        for name in self.names() {
            let pid = name.trim_start_matches('.').parse::<u32>();
            let Ok(pid) = pid else { continue };
            let stale = if name.starts_with('.') {
                // Sockets are renamed under the lock that we hold, so the process that made this one died before that, or works without the
                // lock.
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

    /// Removes a file if it is a socket.
    pub(crate) fn remove(&self, name: &str) {
        if self.stat(name).is_some_and(|found| FileType::from_raw_mode(found.st_mode).is_socket()) {
            let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
        }
    }

    /// Locks the directory, unless that takes too long. The lock belongs to an open file description of its own, which is closed when this
    /// process ends.
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

/// Whether two descriptions are of the same file.
pub(crate) fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether the open file is a directory that belongs to the caller.
fn check(path: &Path, found: &Stat) -> Result<(), String> {
    let path = path.display();
    if !FileType::from_raw_mode(found.st_mode).is_dir() {
        return Err(format!("{path} is not a directory; remove it"));
    }
    let user = geteuid().as_raw();
    if found.st_uid != user {
        return Err(format!("{path} belongs to user {}, not to {user}; remove it", found.st_uid));
    }
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.intersects(Mode::RWXG | Mode::RWXO) {
        return Err(format!("{path} is accessible to other users; run `chmod 700 {path}`"));
    }
    if !mode.contains(Mode::RWXU) {
        return Err(format!("{path} is not accessible to its owner; run `chmod 700 {path}`"));
    }
    Ok(())
}

fn belongs_to_this_user(path: Option<&Path>) -> bool {
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

fn blocking(socket: OwnedFd) -> io::Result<UnixStream> {
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::reach;
    use crate::skipped::skipped;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    /// A temporary folder for one test, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let name = format!("nearq-socket-{}-{test}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn connect(path: &Path) -> io::Result<UnixStream> {
        reach::connect_to(path, Instant::now() + Duration::from_secs(60))
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(path: &Path) -> String {
        Directory::make(path).unwrap_err()
    }

    #[test]
    fn the_users_runtime_directory_comes_first() {
        let paths = |runtime: Option<&str>, tmp: Option<&str>| {
            let paths = candidates(runtime.map(PathBuf::from), tmp.map(PathBuf::from), 7);
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(paths(Some("/run/user/7"), None), "/run/user/7/nearq /tmp/nearq-7");
        assert_eq!(paths(None, Some("/var/tmp")), "/var/tmp/nearq-7");
        // The path of a program makes no difference.
        assert_eq!(paths(Some("run"), Some("tmp")), "/tmp/nearq-7");
        assert_eq!(paths(Some(""), Some("")), "/tmp/nearq-7");
    }

    #[test]
    fn the_directory_and_the_socket_are_private() {
        let folder = Folder::new("modes");
        let path = folder.0.join("nearq");
        let directory = Directory::make(&path).unwrap();
        let socket = new_socket().unwrap();
        directory.listen("1", &socket, |_| false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::metadata(path.join("1")).unwrap().mode() & 0o077, 0);
        assert_eq!(directory.names().iter().filter(|name| *name == "1").count(), 1);
        connect(&path.join("1")).unwrap();
        // Again, as every process after the first does.
        Directory::make(&path).unwrap();
    }

    #[test]
    fn a_path_that_is_not_a_private_directory_is_refused() {
        let folder = Folder::new("tricks");
        let path = folder.0.join("nearq");
        fs::create_dir(&path).unwrap();
        for open in [0o755, 0o710, 0o701, 0o770, 0o777, 0o1777] {
            mode(&path, open);
            assert!(refusal(&path).contains("chmod 700"), "{open:o}");
        }
        mode(&path, 0o300);
        assert!(refusal(&path).contains("nearq"));
        mode(&path, 0o700);
        let link = folder.0.join("link");
        symlink(&path, &link).unwrap();
        assert!(refusal(&link).contains("a link"), "{}", refusal(&link));
        let nowhere = folder.0.join("nowhere");
        symlink(folder.0.join("not there"), &nowhere).unwrap();
        assert!(refusal(&nowhere).contains("a link"), "{}", refusal(&nowhere));
        let file = folder.0.join("file");
        fs::write(&file, "").unwrap();
        assert!(refusal(&file).contains("not a directory"), "{}", refusal(&file));
        assert!(refusal(&folder.0.join("a/b")).contains("cannot open"));
        assert!(refusal(Path::new("/")).contains("not the path of a directory"));
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let folder = Folder::new("owner");
        let path = folder.0.join("nearq");
        fs::create_dir(&path).unwrap();
        mode(&path, 0o700);
        if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
            let why = "only root can give it one";
            return skipped("another owner of the directory", why, "run the tests as root");
        }
        assert!(refusal(&path).contains("belongs to user 65534"), "{}", refusal(&path));
    }

    #[test]
    fn replacing_the_open_directory_has_no_effect() {
        let folder = Folder::new("swap");
        let (path, moved) = (folder.0.join("nearq"), folder.0.join("moved"));
        let directory = Directory::make(&path).unwrap();
        fs::rename(&path, &moved).unwrap();
        let trap = folder.0.join("trap");
        fs::create_dir(&trap).unwrap();
        symlink(&trap, &path).unwrap();
        let socket = new_socket().unwrap();
        directory.listen("1", &socket, |_| false).unwrap();
        assert!(moved.join("1").exists());
        assert_eq!(fs::read_dir(&trap).unwrap().count(), 0);
    }

    #[test]
    fn paths_can_be_longer_than_a_socket_address() {
        let folder = Folder::new("long");
        let deep = folder.0.join("d".repeat(100)).join("e".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let path = deep.join("nearq");
        let directory = Directory::make(&path).unwrap();
        let socket = new_socket().unwrap();
        directory.listen("1", &socket, |_| false).unwrap();
        connect(&path.join("1")).unwrap();
    }

    #[test]
    fn stale_sockets_are_removed_and_live_ones_stay() {
        let folder = Folder::new("stale");
        let path = folder.0.join("nearq");
        let directory = Directory::make(&path).unwrap();
        let live = new_socket().unwrap();
        directory.listen("10", &live, |_| false).unwrap();
        for name in ["11", "12"] {
            directory.listen(name, &new_socket().unwrap(), |_| false).unwrap();
        }
        fs::write(path.join("13"), "a file").unwrap();
        fs::write(path.join("notes"), "a file").unwrap();
        // From a process that died before it had named its socket.
        directory.bind(".4294967295", &new_socket().unwrap()).unwrap();
        // The number was given to another process.
        let reused = new_socket().unwrap();
        directory.listen("11", &reused, |_| false).unwrap();
        let again = directory.listen("10", &new_socket().unwrap(), |_| false).unwrap_err();
        assert!(again.contains("another copy of the library in this process"), "{again}");
        directory.clean();
        let mut names = directory.names();
        names.sort();
        assert_eq!(names, [".", "..", "10", "11", "13", "notes"]);
        connect(&path.join("10")).unwrap();
        connect(&path.join("11")).unwrap();
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_not_replaced() {
        let folder = Folder::new("file");
        let path = folder.0.join("nearq");
        let directory = Directory::make(&path).unwrap();
        fs::create_dir(path.join("1")).unwrap();
        let refused = directory.listen("1", &new_socket().unwrap(), |_| false).unwrap_err();
        assert!(refused.contains("cannot listen on"), "{refused}");
        assert!(path.join("1").is_dir());
        // Nothing is left of the trial.
        assert!(directory.stat(".1").is_none());
    }
}

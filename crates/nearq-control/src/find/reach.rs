//! Connects to a socket that any user may have made, without being redirected elsewhere.
//!
//! The directory is opened without following a link at its end, and the open directory is checked: its owner, and that no other user can
//! write there. The socket is opened in it, again without following a link, and checked. The connection goes to the opened file
//! (`/proc/self/fd/N`), whatever the name leads to by then. Below another process's root, its own links are followed within that root
//! alone. The kernel says which process listens ([`Socket::listener`]).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nearq_platform::{Linux, Peer};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::{ClockId, clock_gettime};

use super::process::Process;

/// A socket's file may seem older than its process by this much: both times are rounded, and the clock may be set a little.
const SLACK: Duration = Duration::from_secs(2);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::PATH).union(OFlags::CLOEXEC);

/// An open directory of sockets.
#[derive(Debug)]
pub(super) struct SocketDirectory {
    fd: OwnedFd,
    /// The user that owns it.
    pub(super) owner: u32,
}

impl SocketDirectory {
    /// Opens a directory, as the caller sees it or below a root. It must be one that only its owner can write.
    pub(super) fn open(root: Option<&Path>, path: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::NOENT.into());
        };
        let parent = match root {
            None => rustix::fs::open(parent, DIRECTORY, Mode::empty())?,
            Some(root) => below(root, parent)?,
        };
        let fd = rustix::fs::openat(&parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        let found = rustix::fs::fstat(&fd)?;
        if Mode::from_raw_mode(found.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
            return Err(io::Error::other("users other than its owner can write to that directory"));
        }
        Ok(SocketDirectory { fd, owner: found.st_uid })
    }

    /// Returns at most `most` of the names in the directory.
    pub(super) fn names(&self, most: usize) -> Vec<String> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.fd, ".", flags, Mode::empty());
        let Ok(entries) = opened.and_then(rustix::fs::Dir::new) else { return Vec::new() };
        let entries = entries.flatten().take(most);
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Opens a socket of the directory's owner.
    pub(super) fn socket(&self, name: &str) -> io::Result<Socket> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&fd)?;
        let is_socket = FileType::from_raw_mode(found.st_mode).is_socket();
        if !is_socket || found.st_uid != self.owner {
            return Err(io::Error::other(
                "it is a link, or not a socket that belongs to its directory's owner",
            ));
        }
        Ok(Socket { fd, made: made(&found) })
    }
}

/// Opens a directory below a root: what links and `..` lead to lies there too. `EPERM` if the root itself may not be accessed;
/// `EACCES` if something below it may not, which then also holds for a process of the same user.
fn below(root: &Path, path: &Path) -> rustix::io::Result<OwnedFd> {
    let root = rustix::fs::open(root, DIRECTORY, Mode::empty()).map_err(|error| match error {
        Errno::ACCESS => Errno::PERM,
        error => error,
    })?;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(&root, path, DIRECTORY, Mode::empty(), within) {
        // Older than Linux 5.6, or a sandbox that does not know it.
        Err(Errno::NOSYS | Errno::PERM) => {
            let path = path.strip_prefix("/").unwrap_or(path);
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            rustix::fs::openat(&root, path, DIRECTORY, Mode::empty())
        }
        done => done,
    }
}

/// The open file of a socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// When the file was made or last changed, since 1970.
    made: Duration,
}

impl Socket {
    /// Connects; the stream blocks. This waits in the kernel instead of retrying, because the kernel accepts waiting clients in the order
    /// in which they came.
    pub(super) fn connect(&self, deadline: Instant) -> rustix::io::Result<UnixStream> {
        connect(&self.address()?, deadline)
    }

    /// Connects without waiting.
    pub(super) fn connect_once(&self) -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &self.address()?)?;
        Ok(socket)
    }

    fn address(&self) -> rustix::io::Result<SocketAddrUnix> {
        SocketAddrUnix::new(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// The process that listens at the other end of a connection to this socket, if that is certain.
    ///
    /// The kernel says which process listened first: its number, and its user. Another process may have that number by now, while a child
    /// of the first process still answers. So the process must be alive, and its user must be the user that listened, unless root listened,
    /// which may become any user. If the kernel does not say whether the process is alive (before Linux 6.5), the process with that number
    /// is accepted if it began before the socket was made.
    pub(super) fn listener(&self, stream: &impl AsFd) -> Option<(Peer, Process)> {
        let peer = Linux::peer(stream).ok().filter(|peer| peer.pid != 0)?;
        let process = Process::of(peer.pid)?;
        let is_its_user = peer.user == process.user || peer.user == 0;
        let lives = Linux::peer_lives(stream).unwrap_or_else(|_| {
            process.started().is_some_and(|ticks| began_before(ticks, self.made))
        });
        (is_its_user && lives).then_some((peer, process))
    }
}

/// When a file was made or its status last changed; unlike the time of its contents, this time cannot be set at will.
fn made(found: &Stat) -> Duration {
    let seconds = u64::try_from(found.st_ctime).unwrap_or(0);
    Duration::new(seconds, u32::try_from(found.st_ctime_nsec).unwrap_or(0))
}

/// Whether a process that began that many hundredths of a second after the machine existed, or may have existed, before a time given
/// since 1970.
fn began_before(ticks: u64, time: Duration) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let up = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    let began = now.saturating_sub(up) + Duration::from_millis(ticks.saturating_mul(10));
    began <= time + SLACK
}

fn connect(address: &SocketAddrUnix, deadline: Instant) -> rustix::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(left))?;
        match rustix::net::connect(&socket, address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            Err(Errno::INTR) => {}
            // The socket's queue stays full: the process is very busy, or stopped.
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
            Err(error) => return Err(error),
        }
    }
}

/// Connects to the socket at a path that the caller gives, which may be long. The stream blocks.
pub(crate) fn connect_to(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    match SocketAddrUnix::new(path) {
        Ok(address) => Ok(connect(&address, deadline)?),
        Err(error) => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error.into());
            };
            let parent = rustix::fs::open(parent, DIRECTORY, Mode::empty())?;
            let through = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd()));
            Ok(connect(&SocketAddrUnix::new(through.join(name))?, deadline)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::UnixListener;

    use rustix::fs::CWD;

    use super::*;
    use crate::filter::forget_option;
    use crate::skipped::skipped;

    /// A temporary folder for one test.
    fn folder(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("nearq-reach-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn now() -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
    }

    #[test]
    fn a_process_is_older_than_its_files() {
        let this_process = Process::of(std::process::id()).unwrap().started().unwrap();
        assert!(began_before(this_process, now()));
        assert!(!began_before(this_process, now().saturating_sub(Duration::from_secs(1 << 30))));
    }

    #[test]
    fn without_peer_pidfd_the_listener_must_be_older_than_the_socket() {
        let folder = folder("listener");
        let name = folder.join("s");
        let _listener = UnixListener::bind(&name).unwrap();
        let stream = UnixStream::connect(&name).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let check = move || {
            let listens = |made| {
                let fd = rustix::fs::open("/", OFlags::PATH, Mode::empty()).unwrap();
                Socket { fd, made }.listener(&stream).is_some()
            };
            let long_ago = Duration::from_secs(1);
            if Linux::peer_lives(&stream).is_ok() {
                assert!(listens(long_ago), "the kernel reports it as alive");
            }
            if !forget_option(libc::SO_PEERPIDFD) {
                let why = "the kernel has no filters on system calls";
                return skipped("an older kernel", why, "a kernel with CONFIG_SECCOMP_FILTER");
            }
            Linux::peer_lives(&stream).expect_err("the filter refuses it");
            assert!(listens(now()) && !listens(long_ago));
        };
        std::thread::spawn(check).join().unwrap();
    }

    #[test]
    fn links_below_a_root_do_not_lead_outside() {
        let folder = folder("root");
        let root = folder.join("root");
        for path in ["root/run/user", "root/etc", "outside/user"] {
            fs::create_dir_all(folder.join(path)).unwrap();
        }
        let outside = folder.join("outside");
        for (to, name) in [
            (Path::new("/run"), "absolute"),
            (Path::new("etc/../run"), "relative"),
            (Path::new("../../../../../../../../run"), "up"),
            (&*outside, "away"),
            (Path::new("../outside"), "beside"),
        ] {
            symlink(to, root.join(name)).unwrap();
        }
        let opened = |path: &str| {
            let found = below(&root, Path::new(path)).and_then(|fd| rustix::fs::fstat(&fd));
            found.map(|found| found.st_ino)
        };
        let user = fs::metadata(root.join("run/user")).unwrap().ino();
        assert_eq!(opened("/run/user"), Ok(user));
        let known = rustix::fs::openat2(CWD, "/", DIRECTORY, Mode::empty(), ResolveFlags::IN_ROOT);
        if let Err(error) = known {
            skipped("links below a root", error, "Linux 5.6, without a filter on openat2");
        } else {
            for way in
                ["absolute", "relative", "up", "run/..//run", "../../run", "etc/../../../run"]
            {
                assert_eq!(opened(&format!("/{way}/user")), Ok(user), "{way}");
            }
            for way in ["away/user", "beside/user", "../outside/user"] {
                assert_eq!(opened(&format!("/{way}")), Err(Errno::NOENT), "{way}");
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}

//! Finding the processes that can be inspected, and connecting to one.
//!
//! A socket's name is the number by which its process knows itself. The kernel is asked which process really listens there. So the
//! requested process is never confused with a file that a killed process left, a process whose number was reused, or a process of a
//! container that shares our directory.
//!
//! A process may have other environment variables than the caller, or run in a container with directories of its own. So its directories
//! are searched as the process itself sees them: according to the variables that it was started with, below its own root
//! (`/proc/PID/root`).

mod process;
pub(crate) mod reach;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::geteuid;

use crate::socket::{self, Directory};
use process::Process;
use reach::SocketDirectory;

/// The most names that are read in one directory.
const MOST_NAMES: usize = 1 << 16;

/// A process that can be inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Its number, as the caller sees it.
    pub pid: u32,
    /// Its user.
    pub user: u32,
    /// Where it listens, as the caller reaches it.
    pub socket: PathBuf,
}

/// Why there is no connection to a process.
#[non_exhaustive]
pub enum ConnectError {
    /// There is no such process.
    NoSuchProcess {
        /// The number that was asked for.
        pid: u32,
    },
    /// The process belongs to another user.
    NotYours {
        /// The process.
        pid: u32,
        /// The user that it belongs to.
        user: u32,
    },
    /// The process has no socket.
    NoSocket {
        /// The process.
        pid: u32,
        /// Its command.
        command: String,
        /// Where a socket would be.
        tried: Vec<PathBuf>,
    },
    /// The caller has too few file descriptors left to find out.
    NoDescriptors {
        /// The process.
        pid: u32,
        /// The system's error.
        error: std::io::Error,
    },
    /// The process has a socket, but cannot be reached.
    Unreachable {
        /// The process.
        pid: u32,
        /// The socket.
        socket: PathBuf,
        /// Why it cannot be reached.
        error: std::io::Error,
    },
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectError::NoSuchProcess { pid } => {
                write!(f, "there is no process {pid}; `nearq ps` lists those that can be inspected")
            }
            ConnectError::NotYours { pid, user } => write!(
                f,
                "process {pid} belongs to user {user}; only that user and root may inspect it: run the command as one of them"
            ),
            ConnectError::NoDescriptors { pid, error } => {
                write!(
                    f,
                    "cannot find out whether process {pid} listens: {error}; close files, or raise `ulimit -n`"
                )
            }
            ConnectError::NoSocket { pid, command, tried } => {
                let tried: Vec<_> = tried.iter().map(|path| path.display().to_string()).collect();
                write!(
                    f,
                    "process {pid} ({command}) does not listen: it does not use nearq, has not used it yet, or runs with NEARQ_CONTROL=off; searched for {}; `nearq ps` lists those that can be inspected",
                    tried.join(", ")
                )
            }
            ConnectError::Unreachable { pid, socket, error } => {
                let socket = socket.display();
                match error.kind() {
                    io::ErrorKind::TimedOut => write!(
                        f,
                        "process {pid} listens on {socket} but accepts no connection; it may be stopped or overloaded: try again"
                    ),
                    io::ErrorKind::PermissionDenied => write!(
                        f,
                        "cannot find out whether process {pid} listens: {socket}: permission denied; it has more privileges than you, \
                     or is in another container: try again as root of the whole machine"
                    ),
                    _ => write!(f, "cannot connect to process {pid} on {socket}: {error}"),
                }
            }
        }
    }
}

nearq_topology::debug_as_display!(ConnectError);

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Unreachable { error, .. } | ConnectError::NoDescriptors { error, .. } => {
                Some(error)
            }
            _ => None,
        }
    }
}

/// A place where a process's socket may be.
#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    /// The root below which the path lies; without one, the path is as the caller sees it.
    root: Option<PathBuf>,
    directory: PathBuf,
    name: String,
}

impl Candidate {
    /// The path, as the caller reaches it.
    fn path(&self) -> PathBuf {
        let path = match &self.root {
            None => self.directory.clone(),
            Some(root) => root.join(self.directory.strip_prefix("/").unwrap_or(&self.directory)),
        };
        path.join(&self.name)
    }

    /// Opens the directory if it belongs to that user or to root, which may become any user.
    fn open(&self, user: u32) -> io::Result<SocketDirectory> {
        let directory =
            SocketDirectory::open(self.root.as_deref(), &self.directory).and_then(|directory| {
                if directory.owner == user || directory.owner == 0 {
                    return Ok(directory);
                }
                Err(io::Error::other(format!(
                    "its directory belongs to user {}, and the process to user {user}",
                    directory.owner
                )))
            });
        // The caller's directory need not be the process's: so an error of it need not be reported.
        if self.root.is_none() { directory.map_err(|_| Errno::NOENT.into()) } else { directory }
    }
}

/// The processes that can be inspected: the caller's own, or, if the caller is root, those of all users; ordered by number. Removes sockets
/// of processes that are gone from the caller's directories.
///
/// # Errors
/// The caller has too few file descriptors left to search.
pub fn processes() -> io::Result<Vec<Found>> {
    can_open()?;
    let caller = geteuid();
    let may_ask = |user: u32| caller.is_root() || user == caller.as_raw();
    let mut found = BTreeMap::new();
    for (path, owner) in directories() {
        let is_wanted = |directory: &SocketDirectory| {
            may_ask(directory.owner) && owner.is_none_or(|owner| owner == directory.owner)
        };
        let directory = SocketDirectory::open(None, &path).ok().filter(is_wanted);
        let Some(directory) = directory else { continue };
        for name in names(&directory, &path) {
            if let Some(one) = listening(&directory, &name, path.join(&name), None) {
                found.entry(one.pid).or_insert(one);
            }
        }
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for pid in numbers {
        if found.contains_key(&pid) {
            continue;
        }
        let process = Process::of(pid).filter(|process| may_ask(process.user));
        let Some(process) = process else { continue };
        let one = elsewhere(&process).into_iter().find_map(|candidate| {
            let directory = candidate.open(process.user).ok()?;
            listening(&directory, &candidate.name, candidate.path(), Some(pid))
        });
        found.extend(one.map(|one| (pid, one)));
    }
    Ok(found.into_values().collect())
}

/// Whether enough descriptors are left for a search. Without them, each process would seem not to exist, or not to listen.
fn can_open() -> io::Result<()> {
    const NEEDED: usize = 12;
    let mut open = Vec::with_capacity(NEEDED);
    for _ in 0..NEEDED {
        open.push(fs::File::open("/proc")?);
    }
    Ok(())
}

/// The process that listens on a socket, if it is the wanted process.
fn listening(
    directory: &SocketDirectory,
    name: &str,
    path: PathBuf,
    wanted: Option<u32>,
) -> Option<Found> {
    let socket = directory.socket(name).ok()?;
    let (pid, user) = match socket.connect_once() {
        Ok(stream) => {
            let (peer, process) = socket.listener(&stream)?;
            (peer.pid, process.user)
        }
        // A process listens, but is too busy to identify itself. It is the process that the name says if the directory belongs to its user.
        Err(Errno::AGAIN) => {
            let pid = wanted.or_else(|| name.parse().ok())?;
            (pid, Process::of(pid)?.user)
        }
        Err(_) => return None,
    };
    let is_wanted = wanted.is_none_or(|wanted| wanted == pid);
    let is_its_own = directory.owner == user || directory.owner == 0;
    (is_wanted && is_its_own).then_some(Found { pid, user, socket: path })
}

/// Connects to a process, and returns where it listens.
pub(crate) fn connect(pid: u32, deadline: Instant) -> Result<(UnixStream, PathBuf), ConnectError> {
    // Checked only before a negative answer: only a negative answer must be certain.
    let unless_blind = |answer| match can_open() {
        Ok(()) => answer,
        Err(error) => ConnectError::NoDescriptors { pid, error },
    };
    let Some(process) = Process::of(pid) else {
        return Err(unless_blind(ConnectError::NoSuchProcess { pid }));
    };
    let user = process.user;
    if !geteuid().is_root() && user != geteuid().as_raw() {
        return Err(ConnectError::NotYours { pid, user });
    }
    let mut tried: Vec<PathBuf> = Vec::new();
    let mut refused = None;
    let usual = socket::directories().into_iter();
    let usual = usual.map(|directory| Candidate { root: None, directory, name: pid.to_string() });
    for candidate in usual.chain(elsewhere(&process)) {
        let path = candidate.path();
        match reached(&candidate, pid, user, deadline) {
            Ok(Some(stream)) => return Ok((stream, path)),
            Ok(None) => {}
            Err(error) => {
                let absent = [Errno::NOENT, Errno::CONNREFUSED, Errno::NOTDIR, Errno::ACCESS];
                if !is_one_of(&error, &absent) {
                    refused.get_or_insert((path.clone(), error));
                }
            }
        }
        tried.push(path);
    }
    Err(match refused {
        Some((_, error)) if is_one_of(&error, &[Errno::MFILE, Errno::NFILE]) => {
            ConnectError::NoDescriptors { pid, error }
        }
        Some((socket, error)) => ConnectError::Unreachable { pid, socket, error },
        None => unless_blind(ConnectError::NoSocket { pid, command: process.name, tried }),
    })
}

fn is_one_of(error: &io::Error, numbers: &[Errno]) -> bool {
    numbers.iter().any(|number| Some(number.raw_os_error()) == error.raw_os_error())
}

/// A connection to a process, if it listens there.
fn reached(
    candidate: &Candidate,
    pid: u32,
    user: u32,
    deadline: Instant,
) -> io::Result<Option<UnixStream>> {
    let socket = candidate.open(user)?.socket(&candidate.name)?;
    let stream = socket.connect(deadline)?;
    let is_it = socket.listener(&stream).is_some_and(|(peer, _)| peer.pid == pid);
    Ok(is_it.then_some(stream))
}

/// The directories to list: the caller's, and all users' if the caller is root; each with the user that must have made it, if its name
/// says so.
fn directories() -> BTreeMap<PathBuf, Option<u32>> {
    let mut directories: BTreeMap<_, _> =
        socket::directories().into_iter().map(|path| (path, None)).collect();
    if geteuid().is_root() {
        let user = |path: &Path, before: &str| -> Option<u32> {
            path.file_name()?.to_str()?.strip_prefix(before)?.parse().ok()
        };
        let runtime = children("/run/user").into_iter().filter_map(|path| {
            let user = user(&path, "")?;
            Some((path.join("nearq"), Some(user)))
        });
        let tmp = children("/tmp").into_iter().filter_map(|path| {
            let user = user(&path, "nearq-")?;
            Some((path, Some(user)))
        });
        directories.extend(runtime.chain(tmp));
    }
    directories
}

fn children(path: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.take(MOST_NAMES).map(|entry| entry.path()).collect()
}

/// The numbers that name something in a directory. If it is the caller's, sockets of processes that are gone are removed first. Another
/// user's directory is read only if the caller is root or the directory is open to all.
fn names(directory: &SocketDirectory, path: &Path) -> Vec<String> {
    if directory.owner == geteuid().as_raw() {
        if let Ok(directory) = Directory::open(path) {
            directory.clean();
        }
    }
    directory.names(MOST_NAMES).into_iter().filter(|name| name.parse::<u32>().is_ok()).collect()
}

/// The places in which a process may have its socket, according to its own variables and below its own root.
fn elsewhere(process: &Process) -> Vec<Candidate> {
    let [runtime, tmp] = process.variables(["XDG_RUNTIME_DIR", "TMPDIR"]);
    let mut candidates = Vec::new();
    for user in [Some(process.user), process.inner_user()].into_iter().flatten() {
        let run = Some(PathBuf::from(format!("/run/user/{user}")));
        let directories = socket::candidates(runtime.clone(), tmp.clone(), user);
        for directory in directories.into_iter().chain(socket::candidates(run, None, user)) {
            let name = process.inner.clone();
            let candidate = Candidate { root: Some(process.root()), directory, name };
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_state_what_failed() {
        let message = |error: io::Error| {
            ConnectError::Unreachable { pid: 1, socket: "/proc/1/root/s".into(), error }.to_string()
        };
        let refused = message(Errno::PERM.into());
        assert!(
            refused.contains("permission denied") && refused.contains("try again as root"),
            "{refused}"
        );
        assert!(!refused.contains("overloaded"), "{refused}");
        let late = message(Errno::TIMEDOUT.into());
        assert!(late.contains("accepts no connection") && late.contains("try again"), "{late}");
        let other = message(io::Error::other("it is a link"));
        assert!(other.ends_with("/proc/1/root/s: it is a link"), "{other}");
    }

    #[test]
    fn a_socket_path_is_below_its_root() {
        let below = |root: Option<&str>, directory: &str| {
            let root = root.map(PathBuf::from);
            Candidate { root, directory: directory.into(), name: "7".into() }.path()
        };
        assert_eq!(below(None, "/tmp/nearq-1"), Path::new("/tmp/nearq-1/7"));
        assert_eq!(
            below(Some("/proc/9/root"), "/tmp/nearq-1"),
            Path::new("/proc/9/root/tmp/nearq-1/7")
        );
    }
}

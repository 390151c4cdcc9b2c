//! Finding the processes that can be looked into, and connecting to one.
//!
//! A socket's name is the number that its process has for itself. Where it really leads is asked of the kernel, which says who listens
//! there: so a file that a killed process left, a number that was given to another process since, and a process of a container that
//! shares our directory are never taken for the process that was asked for.
//!
//! A process may have other variables than the caller, or live in a container with directories of its own. So its directories are looked
//! for as it sees them: by the variables that it was started with, below its own root (`/proc/PID/root`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nearq_platform::Linux;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::socket::{self, Directory};

/// A process that can be looked into.
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
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no such process.
    NoSuchProcess {
        /// The number that was asked for.
        pid: u32,
    },
    /// It is another user's.
    NotYours {
        /// The process.
        pid: u32,
        /// Whose it is.
        user: u32,
    },
    /// It has no socket.
    NoSocket {
        /// The process.
        pid: u32,
        /// Its command.
        command: String,
        /// Where a socket would be.
        tried: Vec<PathBuf>,
    },
    /// It has one, and cannot be reached.
    Unreachable {
        /// The process.
        pid: u32,
        /// The socket.
        socket: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectError::NoSuchProcess { pid } => {
                write!(
                    f,
                    "there is no process {pid}; `nearq ps` lists those that can be looked into"
                )
            }
            ConnectError::NotYours { pid, user } => write!(
                f,
                "process {pid} belongs to user {user}; only that user and root may look into it"
            ),
            ConnectError::NoSocket { pid, command, tried } => {
                let tried: Vec<_> = tried.iter().map(|path| path.display().to_string()).collect();
                write!(
                    f,
                    "process {pid} ({command}) does not listen: it does not use nearq, has not used it yet, \
                     or NEARQ_CONTROL=off; looked for {}",
                    tried.join(", ")
                )
            }
            ConnectError::Unreachable { pid, socket, error } => write!(
                f,
                "cannot connect to process {pid} on {}: {error}; it may be stopped or overloaded: try again",
                socket.display()
            ),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Unreachable { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// The processes that can be looked into: the caller's own, or, if the caller is root, everybody's; by number. Removes sockets of processes
/// that are gone from the caller's directories.
pub fn processes() -> Vec<Found> {
    let mut found = BTreeMap::new();
    for path in directories() {
        for socket in sockets(&path) {
            note(&mut found, socket);
        }
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for pid in numbers {
        if !found.contains_key(&pid) {
            let candidates = elsewhere(pid).into_iter().filter(|path| path.exists());
            candidates.for_each(|socket| note(&mut found, socket));
        }
    }
    found.into_values().collect()
}

/// Connects to a process.
pub(crate) fn connect(pid: u32) -> Result<UnixStream, ConnectError> {
    let mut tried = Vec::new();
    let mut refused = None;
    let own = socket::directories().into_iter().map(|directory| directory.join(pid.to_string()));
    for socket in own.chain(elsewhere(pid)) {
        if tried.contains(&socket) {
            continue;
        }
        match socket::connect(&socket) {
            Ok(stream) if listens(&stream, pid) => return Ok(stream),
            Ok(_) => {}
            Err(error) => {
                let absent = [Errno::NOENT, Errno::CONNREFUSED, Errno::NOTDIR];
                if !absent.iter().any(|errno| Some(errno.raw_os_error()) == error.raw_os_error()) {
                    refused = Some((socket.clone(), error));
                }
            }
        }
        tried.push(socket);
    }
    Err(why(pid, tried, refused))
}

fn why(pid: u32, tried: Vec<PathBuf>, refused: Option<(PathBuf, std::io::Error)>) -> ConnectError {
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else {
        return ConnectError::NoSuchProcess { pid };
    };
    let own = geteuid().as_raw();
    if own != 0 && process.uid() != own {
        return ConnectError::NotYours { pid, user: process.uid() };
    }
    match refused {
        Some((socket, error)) => ConnectError::Unreachable { pid, socket, error },
        None => {
            let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            ConnectError::NoSocket { pid, command: command.trim_end().to_owned(), tried }
        }
    }
}

/// Whether the process of that number listens at the other end. Anybody can make a socket of any name in a directory of their own.
fn listens(stream: &UnixStream, pid: u32) -> bool {
    Linux::peer(stream).is_ok_and(|peer| peer.pid == pid)
}

/// Adds the process that listens on a socket.
fn note(found: &mut BTreeMap<u32, Found>, socket: PathBuf) {
    let process = match socket::connect_once(&socket) {
        Ok(stream) => Linux::peer(&stream).map(|peer| (peer.pid, peer.user)),
        // Somebody is there and too busy to say who.
        Err(Errno::AGAIN) => fs::metadata(&socket).map(|file| (number(&socket), file.uid())),
        Err(error) => Err(error.into()),
    };
    if let Ok((pid, user)) = process
        && pid != 0
    {
        found.entry(pid).or_insert(Found { pid, user, socket });
    }
}

fn number(socket: &Path) -> u32 {
    let name = socket.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}

/// The directories to list: the caller's, and everybody's if the caller is root.
fn directories() -> Vec<PathBuf> {
    let mut directories = socket::directories();
    if geteuid().is_root() {
        let runtime = children("/run/user").into_iter().map(|user| user.join("nearq"));
        let tmp = children("/tmp").into_iter().filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix("nearq-").is_some_and(|user| user.parse::<u32>().is_ok())
        });
        directories.extend(runtime.chain(tmp));
        directories.sort();
        directories.dedup();
    }
    directories
}

fn children(path: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The sockets in a directory, after those of processes that are gone were removed, if it is the caller's.
fn sockets(path: &Path) -> Vec<PathBuf> {
    let names = match Directory::open(path) {
        Ok(directory) => {
            directory.clean();
            directory.names()
        }
        // Another user's.
        Err(_) if geteuid().is_root() => {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        }
        Err(_) => Vec::new(),
    };
    let numbers = names.into_iter().filter(|name| name.parse::<u32>().is_ok());
    numbers.map(|name| path.join(name)).collect()
}

/// Where a process has its socket by its own variables and below its own root.
fn elsewhere(pid: u32) -> Vec<PathBuf> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let Ok(status) = fs::read_to_string(folder.join("status")) else { return Vec::new() };
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.strip_prefix(':')).unwrap_or_default()
    };
    // Its effective user; its number in the innermost container. The user is ours to see: what it is for the process itself may differ,
    // and is 0 for root of a container that runs as an ordinary user.
    let user = field("Uid").split_whitespace().nth(1).and_then(|user| user.parse().ok());
    let inner = field("NSpid").split_whitespace().last().map_or(pid.to_string(), str::to_owned);
    let Some(user) = user else { return Vec::new() };
    let environment = fs::read(folder.join("environ")).unwrap_or_default();
    let variable = |name: &[u8]| {
        let mut lines = environment.split(|&byte| byte == 0);
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(b"="));
        value.map(|value| PathBuf::from(std::ffi::OsString::from_vec(value.to_vec())))
    };
    let root = folder.join("root");
    let mut paths = Vec::new();
    for user in [Some(user), inner_user(&folder, user)].into_iter().flatten() {
        let run = Some(PathBuf::from(format!("/run/user/{user}")));
        let own = socket::candidates(variable(b"XDG_RUNTIME_DIR"), variable(b"TMPDIR"), user);
        paths.extend(own.into_iter().chain(socket::candidates(run, None, user)));
    }
    let mut sockets = Vec::new();
    for path in paths {
        let below = path.strip_prefix("/").unwrap_or(&path);
        let socket = root.join(below).join(&inner);
        if !sockets.contains(&socket) {
            sockets.push(socket);
        }
    }
    sockets
}

/// The number that a user has for a process in a container which numbers users its own way; none where it is the same.
fn inner_user(folder: &Path, user: u32) -> Option<u32> {
    let map = fs::read_to_string(folder.join("uid_map")).ok()?;
    map.lines().find_map(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().ok());
        let (inside, outside, count) = (fields.next()??, fields.next()??, fields.next()??);
        let offset = u64::from(user).checked_sub(outside).filter(|&offset| offset < count)?;
        u32::try_from(inside + offset).ok().filter(|&inside| inside != user)
    })
}

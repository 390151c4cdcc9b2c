//! The maps of the loaded scheduler in the BPF file system, where other processes find them, and the permissions of each.
//!
//! | pin | holds | permissions |
//! |---|---|---|
//! | `state` | the machine, what is counted, the weights | all users read, root sets |
//! | `tasks` | each task's home and times | all users read: `/proc` shows as much about every user's CPU time |
//! | `processes` | the same by process | all users read |
//! | `told` | homes that were told | users that may tell homes write: see [`Tellers`] |
//! | `near` | near which CPU threads should wake up the next time | as `told` |
//!
//! The pins stay when the process that pinned them is killed, and are then useless: the lock that this process held shows whether it is
//! alive.

use std::ffi::CString;
use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nearq_scx_policy::layout::{HomeHint, Nq, Process, Task};
use rustix::fs::{AtFlags, FlockOperation, Gid, flock, statfs};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use crate::load;
use crate::output::Failure;
use crate::private;

/// Where BPF file systems are mounted.
const MOUNT: &str = "/sys/fs/bpf";
/// The type that `statfs` returns for such a file system.
const MAGIC: rustix::fs::FsWord = 0xcafe_4a11;
const FOLDER: &str = "/sys/fs/bpf/nearq";
/// Where the running scheduler keeps its lock and its decisions.
pub(crate) const RUN: &str = "/run/nearq-scx";

pub(crate) const STATE: &str = "state";
pub(crate) const TASKS: &str = "tasks";
pub(crate) const PROCESSES: &str = "processes";
pub(crate) const TOLD: &str = "told";
pub(crate) const NEAR: &str = "near";

/// Makes the kernel look up a thread and not a process; it exists since Linux 6.9.
const PIDFD_THREAD: u32 = libc::O_EXCL.cast_unsigned();

/// The group that may tell homes by default, if the system has it.
const GROUP: &str = "nearq";

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Which users may tell homes, and near which CPU a thread should wake up. A map knows no owners: a user that may tell homes may tell them
/// of every user's tasks, and may fill the map. A home is only a preference: at worst it makes other users' tasks slower, and it never
/// takes a CPU from them that they may use. Still, not every user of a shared machine should be able to set one. So only root may, unless
/// the administrator has made a group for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tellers {
    Root,
    Group(u32),
    Everybody,
}

impl Tellers {
    /// The users that an option names; without the option, the group `nearq` if it exists, and otherwise root.
    pub(crate) fn parse(named: Option<&str>, groups: &str) -> Result<Self, Failure> {
        match named {
            Some("root") => Ok(Tellers::Root),
            Some("everybody") => Ok(Tellers::Everybody),
            Some(name) => group(groups, name).map(Tellers::Group).ok_or_else(|| {
                Failure::input(format!(
                    "--tellers {name}: there is no such group; give root, everybody, or the name of a group"
                ))
            }),
            None => Ok(group(groups, GROUP).map_or(Tellers::Root, Tellers::Group)),
        }
    }

    fn mode(&self) -> u32 {
        match self {
            Tellers::Root => 0o600,
            Tellers::Group(_) => 0o660,
            Tellers::Everybody => 0o666,
        }
    }
}

impl fmt::Display for Tellers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tellers::Root => f.write_str("root only"),
            Tellers::Group(number) => write!(f, "root and group {number}"),
            Tellers::Everybody => f.write_str("everybody"),
        }
    }
}

/// The number of a group in the text of `/etc/group`.
fn group(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// Mounts a BPF file system if none is mounted.
pub(crate) fn mount() -> Result<(), Failure> {
    if is_mounted() {
        return Ok(());
    }
    let how = format!("mount it: mount -t bpf bpf {MOUNT}");
    let options = CString::new("mode=0755").expect("no zero in it");
    rustix::mount::mount("bpf", MOUNT, "bpf", rustix::mount::MountFlags::empty(), Some(&*options))
        .map_err(|error| {
            Failure::input(format!(
                "{MOUNT}: no BPF file system is mounted there, and mounting one failed: {error}; {how}"
            ))
        })
}

/// Whether a BPF file system is mounted at the place of the pins.
pub(crate) fn is_mounted() -> bool {
    statfs(MOUNT).is_ok_and(|found| found.f_type == MAGIC)
}

/// Whether all users may look up the pins: most systems mount the file system for root alone.
pub(crate) fn is_open() -> bool {
    fs::metadata(MOUNT).is_ok_and(|found| found.mode() & 0o001 != 0)
}

/// Makes the folder for the pins.
pub(crate) fn folder() -> Result<(), Failure> {
    private::make_folder(Path::new(FOLDER)).map(drop)
}

/// Sets the permissions of the pins.
pub(crate) fn open_to(tellers: &Tellers) -> Result<(), Failure> {
    let told = tellers.mode();
    let modes = [(STATE, 0o644), (TASKS, 0o644), (PROCESSES, 0o644), (NEAR, told), (TOLD, told)];
    for (name, mode) in modes {
        let path = path(name);
        let mut set = fs::set_permissions(&path, Permissions::from_mode(mode));
        if let (TOLD | NEAR, Tellers::Group(number)) = (name, tellers) {
            let group = Some(Gid::from_raw(*number));
            set = set.and_then(|()| Ok(rustix::fs::chown(&path, None, group)?));
        }
        set.map_err(|error| {
            Failure::run(format!("{}: its mode cannot be set: {error}", path.display()))
        })?;
    }
    Ok(())
}

/// Removes the pins, also those of a scheduler that was killed. The contents of another user's folder stay.
pub(crate) fn remove() {
    let Ok(folder) = private::folder(Path::new(FOLDER), geteuid().as_raw()) else { return };
    for name in [STATE, TASKS, PROCESSES, NEAR, TOLD] {
        // A pin that does not exist need not be removed.
        let _ = rustix::fs::unlinkat(&folder, name, AtFlags::empty());
    }
    let _ = fs::remove_dir(FOLDER);
}

/// Whether there are any pins.
pub(crate) fn exist() -> bool {
    path(STATE).exists()
}

/// Bytes of a process's number in the lock's file.
const LONGEST_NUMBER: u64 = 32;

/// A lock, held by the process that has the scheduler loaded. The kernel releases it however that process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock.
    pub(crate) fn take() -> Result<Self, Failure> {
        Self::take_in(Path::new(RUN))
    }

    fn take_in(run: &Path) -> Result<Self, Failure> {
        let path = run.join("lock");
        let refused = |error: std::io::Error| {
            Failure::run(format!("{}: cannot be written: {error}", path.display()))
        };
        let folder = private::make_folder(run)?;
        let mut file = private::file(&folder, "lock").map_err(refused)?;
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        if let Err(error) = locked {
            if error != Errno::WOULDBLOCK {
                let path = path.display();
                return Err(Failure::run(format!("{path}: cannot be locked: {error}")));
            }
            let mut holder = String::new();
            // The holder's PID helps the reader of the error; it may not have been written yet.
            let _ = (&mut file).take(LONGEST_NUMBER).read_to_string(&mut holder);
            return Err(Failure::input(format!(
                "the scheduler is loaded already, by process {}; `nearq-scx status` shows it; end that process to unload it",
                holder.trim()
            )));
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(refused)?;
        Ok(Lock { _file: file })
    }
}

/// What a pin is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// For root, or users that may tell homes.
    Write,
}

/// Opens a pin. If the scheduler is not loaded, the error says how to load it.
pub(crate) fn open(name: &str, access: Access) -> Result<MapHandle, Failure> {
    let path = path(name);
    // If all users may make files in that file system, another user could have made the pin.
    if fs::symlink_metadata(FOLDER).is_ok() {
        private::folder(Path::new(FOLDER), 0)?;
    }
    let flags = match access {
        Access::Read => libbpf_rs::libbpf_sys::BPF_F_RDONLY,
        Access::Write => 0,
    };
    let map = MapHandle::from_pinned_path_with_file_flags(&path, flags).map_err(|error| {
        let path = path.display();
        match error.kind() {
            libbpf_rs::ErrorKind::NotFound => Failure::input(
                "the scheduler is not loaded; run `nearq-scx start` as root to load it",
            ),
            libbpf_rs::ErrorKind::PermissionDenied if !is_open() => Failure::input(format!(
                "{path}: only root may enter {MOUNT}; run it as root, or allow others: chmod 0755 {MOUNT}"
            )),
            libbpf_rs::ErrorKind::PermissionDenied => Failure::input(format!(
                "{path}: permission denied; run it as root, or see `--tellers` in `nearq-scx start --help`"
            )),
            _ => Failure::run(format!("{path}: cannot be opened: {error}")),
        }
    })?;
    let expected = match name {
        STATE => load::SHARED,
        TASKS => size_of::<Task>(),
        PROCESSES => size_of::<Process>(),
        _ => size_of::<HomeHint>(),
    };
    if map.value_size() as usize != expected {
        return Err(Failure::input(format!(
            "{}: the loaded scheduler has another version than this command; use the nearq-scx that loaded it",
            path.display()
        )));
    }
    Ok(map)
}

/// The machine as the loaded scheduler knows it now.
pub(crate) fn machine(state: &MapHandle) -> Result<Box<Nq>, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::run(format!("{}: cannot be read: {error}", path(STATE).display()))
    };
    let bytes = state
        .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| unreadable(&error))?
        .ok_or_else(|| unreadable(&"it is empty"))?;
    let part = bytes.get(load::NQ_AT..load::NQ_AT + size_of::<Nq>());
    Nq::from_bytes(part.unwrap_or_default())
        .map_err(|expected| unreadable(&format!("{expected} bytes were expected")))
}

/// The entries of a map that are found while other threads may change it.
fn all(map: &impl MapCore) -> Vec<(Vec<u8>, Vec<u8>)> {
    const AT_ONCE: u32 = 256;
    let found = map.lookup_batch(AT_ONCE, MapFlags::ANY, MapFlags::ANY);
    found.map(Iterator::collect).unwrap_or_default()
}

/// All processes that the scheduler knows, by number.
pub(crate) fn processes(map: &impl MapCore) -> Vec<(u32, Process)> {
    numbered(map)
}

/// What the scheduler knows about one process. `None` if the process is gone.
pub(crate) fn process(map: &impl MapCore, pid: u32) -> Option<Process> {
    one(map, pid)
}

/// All homes that were told, by the number of the process or thread.
pub(crate) fn all_home_hints(map: &impl MapCore) -> Vec<(u32, HomeHint)> {
    numbered(map)
}

fn numbered<T: Plain>(map: &impl MapCore) -> Vec<(u32, T)> {
    let read = |(key, value): (Vec<u8>, Vec<u8>)| {
        Some((u32::from_ne_bytes(key.try_into().ok()?), plain(&value)?))
    };
    all(map).into_iter().filter_map(read).collect()
}

fn one<T: Plain>(map: &impl MapCore, pid: u32) -> Option<T> {
    plain(&map.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok()??)
}

/// What the scheduler knows about a task; about a thread that does not lead its process if `is_thread`. `None` if the task is gone or the
/// scheduler does not have it.
pub(crate) fn task(map: &impl MapCore, pid: u32, is_thread: bool) -> Option<Task> {
    let flags =
        if is_thread { PidfdFlags::from_bits_retain(PIDFD_THREAD) } else { PidfdFlags::empty() };
    let fd = pidfd_open(Pid::from_raw(pid.cast_signed())?, flags).ok()?;
    let value = map.lookup(&fd.as_raw_fd().to_ne_bytes(), MapFlags::ANY).ok()??;
    plain(&value)
}

/// The home that was told for a process or a thread.
pub(crate) fn home_hint(map: &impl MapCore, pid: u32) -> Option<HomeHint> {
    one(map, pid)
}

/// Sets a home; with `NO_EXIST` only if none is set.
pub(crate) fn set_home_hint(
    map: &impl MapCore,
    pid: u32,
    hint: HomeHint,
    flags: MapFlags,
) -> libbpf_rs::Result<()> {
    let mut value = [0; size_of::<HomeHint>()];
    value[..4].copy_from_slice(&hint.node.to_ne_bytes());
    value[4..].copy_from_slice(&hint.why.to_ne_bytes());
    map.update(&pid.to_ne_bytes(), &value, flags)
}

/// The structures that are in the maps: plain numbers, for which any bytes are a valid value.
trait Plain: Copy {}
impl Plain for Process {}
impl Plain for Task {}
impl Plain for HomeHint {}

/// The value of these bytes; `None` if they are too few or too many.
fn plain<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are as many bytes as the type has, and any bytes are a valid value of it; the read needs no alignment.
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;

    const GROUPS: &str = "root:x:0:\nadm:x:4:syslog,me\nnearq:x:997:me\nbroken\n";

    #[test]
    fn the_right_to_tell_goes_to_a_named_group_the_default_group_or_root() {
        let parse = |named| Tellers::parse(named, GROUPS);
        assert_eq!(parse(None), Ok(Tellers::Group(997)));
        assert_eq!(Tellers::parse(None, "root:x:0:\n"), Ok(Tellers::Root));
        assert_eq!(parse(Some("adm")), Ok(Tellers::Group(4)));
        assert_eq!(parse(Some("root")), Ok(Tellers::Root));
        assert_eq!(parse(Some("everybody")).map(|tellers| tellers.mode()), Ok(0o666));
        let refused = parse(Some("wheel")).unwrap_err().to_string();
        assert!(refused.contains("no such group; give root, everybody"), "{refused}");
        assert!(parse(Some("broken")).is_err());
    }

    #[test]
    fn the_lock_is_exclusive_and_other_users_cannot_hold_it() {
        let files = Files::new("lock", &[]);
        let run = files.0.join("run");
        let lock = Lock::take_in(&run).unwrap();
        let refused = Lock::take_in(&run).unwrap_err().to_string();
        assert!(refused.contains(&format!("by process {}", std::process::id())), "{refused}");
        drop(lock);
        // The file was left behind by a version whose file all users could open, and therefore lock.
        let path = run.join("lock");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let others = File::open(&path).unwrap();
        flock(&others, FlockOperation::LockExclusive).unwrap();
        Lock::take_in(&run).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0);
    }

    #[test]
    fn pins_are_in_one_folder_of_the_file_system() {
        assert!(path(STATE).starts_with(MOUNT));
        assert_eq!(path(TOLD), Path::new("/sys/fs/bpf/nearq/told"));
    }
}

//! The file of the library that programs are loaded with. The library is inside this program (`nearq_tree::LIBRARY`), but a loader needs a
//! path, so the library is written to a file, once for each user and each version.
//!
//! **Why a file, and not memory without a name.** A path such as `/proc/PID/fd/N` ends with the process PID. But the tree may outlive
//! nearq: a daemon that the command has started executes programs for days. Each of them would print that the library cannot be loaded, and
//! would not undo the home that it has inherited; and if another process got that number, the loader would open whatever that process has
//! open. Programs also close descriptors that they do not know, and in other namespaces `/proc` has other processes. So the file stays. It
//! may be removed when no tree runs.
//!
//! **The protocol.** The name contains a hash of the contents, so versions do not disturb each other. A file that exists is used if it is ours
//! or root's, if nobody else may write to it, and if its bytes are the right ones; all of them are compared. Otherwise the bytes are written
//! to a file with a name of its own, which then replaces the other in one step. So two processes at once do no harm, and no loader ever sees
//! half a library.
//!
//! **Who may change it.** A program that loads the file runs its code. So each folder on the way to it belongs to this user, to root, or to
//! the owner of `/`, and nobody else may write to it; in a folder as `/tmp`, where the sticky bit is set, others cannot replace what is
//! ours. If the folders of a user are in doubt (`sudo` that keeps `HOME`), the next place is tried.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{env, process};

use rustix::fs::StatVfsMountFlags;

/// Where a system keeps the library for all users.
const FOR_ALL: &str = "/var/cache/nearq";
/// Bits of a file's mode: others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// The bit of a folder's mode by which only owners can rename or remove what is in it.
const STICKY: u32 = 0o1000;

/// Why there is no file that programs can be loaded with.
pub enum Error {
    /// The library was not built for this processor, or not with this program.
    NotBuilt,
    /// Each folder that was tried, and why it does not do.
    NoFolder(Vec<(PathBuf, String)>),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotBuilt => {
                write!(out, "this program was built without the library for {}", env::consts::ARCH)
            }
            Error::NoFolder(tried) => {
                out.write_str(
                    "the library cannot be put into a folder from which programs load it",
                )?;
                for (folder, why) in tried {
                    write!(out, "; {}: {why}", folder.display())?;
                }
                Ok(())
            }
        }
    }
}

nearq_topology::debug_as_display!(Error);

impl std::error::Error for Error {}

/// The file of the library, which is written if it is not there yet.
///
/// # Errors
/// There is no library in this program, or no folder for it.
pub fn file() -> Result<PathBuf, Error> {
    let bytes = nearq_tree::LIBRARY.ok_or(Error::NotBuilt)?;
    let mut tried = Vec::new();
    for folder in
        folders(rustix::process::geteuid().as_raw(), |name| env::var_os(name).map(PathBuf::from))
    {
        match file_in(&folder, bytes) {
            Ok(file) => return Ok(file),
            Err(why) => tried.push((folder, why)),
        }
    }
    Err(Error::NoFolder(tried))
}

/// The folders to try, in order. Programs that root starts may run as other users, so root's are for all.
fn folders(user: u32, variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let variable = |name: &str| variable(name).filter(|path| path.is_absolute());
    let mut folders = Vec::new();
    if user == 0 {
        folders.push(FOR_ALL.into());
    } else {
        let cache = variable("XDG_CACHE_HOME");
        let cache = cache.or_else(|| variable("HOME").map(|home| home.join(".cache")));
        folders.extend(cache.map(|cache| cache.join("nearq")));
        folders.extend(variable("XDG_RUNTIME_DIR").map(|folder| folder.join("nearq")));
    }
    let temporary = variable("TMPDIR").unwrap_or_else(|| "/tmp".into());
    folders.push(temporary.join(format!("nearq-{user}")));
    folders
}

/// The library's file in that folder, or why it cannot be there.
fn file_in(folder: &Path, bytes: &[u8]) -> Result<PathBuf, String> {
    let is_root = rustix::process::geteuid().is_root();
    let text = |error: io::Error| error.to_string();
    let mode = if is_root { 0o755 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(folder).map_err(text)?;
    let folder = fs::canonicalize(folder).map_err(text)?;
    if folder.to_str().is_none_or(|path| path.contains([' ', ':'])) {
        return Err(
            "its path contains a blank or a colon, or is not UTF-8: the loader cannot load it"
                .into(),
        );
    }
    is_private(&folder)?;
    let mounted = rustix::fs::statvfs(&folder).map_err(|error| text(error.into()))?;
    if mounted.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err("it is mounted noexec".into());
    }
    let file = folder.join(format!("libnearq_tree-{:016x}.so", hash(bytes)));
    if !is_as_written(&file, bytes) {
        write(&folder, &file, bytes).map_err(text)?;
    }
    Ok(file)
}

/// Whether no other user can replace what is in the folder.
fn is_private(folder: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let root = fs::metadata("/").map_err(text)?.uid();
    for part in folder.ancestors() {
        let found = fs::symlink_metadata(part).map_err(text)?;
        let in_doubt = |why: &str| Err(format!("{}: {why}", part.display()));
        if !is_trusted(found.uid(), root) {
            return in_doubt("it belongs to another user");
        }
        if found.mode() & OTHERS_WRITE != 0 && (part == folder || found.mode() & STICKY == 0) {
            return in_doubt("other users may write to it");
        }
    }
    Ok(())
}

fn is_trusted(owner: u32, root: u32) -> bool {
    owner == 0 || owner == root || owner == rustix::process::geteuid().as_raw()
}

/// Whether the file has these bytes, and only this user and root can change them.
fn is_as_written(file: &Path, bytes: &[u8]) -> bool {
    let read = || -> io::Result<bool> {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let file =
            OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(file)?;
        let found = file.metadata()?;
        let is_ours = is_trusted(found.uid(), 0) && found.mode() & OTHERS_WRITE == 0;
        if !found.is_file() || !is_ours || found.len() != bytes.len() as u64 {
            return Ok(false);
        }
        let mut there = Vec::with_capacity(bytes.len());
        file.take(bytes.len() as u64 + 1).read_to_end(&mut there)?;
        Ok(there == bytes)
    };
    read().unwrap_or(false)
}

/// Writes the file under a name of its own, then gives it its name.
fn write(folder: &Path, file: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!(".new-{}-{:?}", process::id(), std::thread::current().id()));
    // What a process with that number has left there.
    let _ = fs::remove_file(&new);
    let put = || {
        let mut out: File =
            OpenOptions::new().write(true).create_new(true).mode(0o444).open(&new)?;
        out.write_all(bytes)?;
        fs::rename(&new, file)
    };
    put().inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

/// FNV-1a: only a name. Whether a file is the right one is seen by its bytes.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A private folder that is removed with the value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("nearq-library-{name}-{}", process::id()));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Folder(fs::canonicalize(path).unwrap())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_file_is_written_once_and_then_used() {
        let folder = Folder::new("once");
        let place = folder.0.join("cache/nearq");
        let file = file_in(&place, b"library").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"library");
        let inode = fs::metadata(&file).unwrap().ino();
        assert_eq!(file_in(&place, b"library").unwrap(), file);
        assert_eq!(fs::metadata(&file).unwrap().ino(), inode, "it is not written again");
        assert_ne!(file_in(&place, b"another version").unwrap(), file);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 2, "no file is left over");
    }

    #[test]
    fn a_damaged_or_foreign_file_is_replaced() {
        let folder = Folder::new("damaged");
        let file = file_in(&folder.0, b"library").unwrap();
        set_mode(&file, 0o644);
        fs::write(&file, b"librarx").unwrap();
        assert_eq!(fs::read(file_in(&folder.0, b"library").unwrap()).unwrap(), b"library");
        set_mode(&file, 0o666);
        file_in(&folder.0, b"library").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o444, "others could write to it");
        let other = folder.0.join("other");
        fs::write(&other, b"library").unwrap();
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        file_in(&folder.0, b"library").unwrap();
        assert!(fs::symlink_metadata(&file).unwrap().is_file(), "a link could be redirected");
    }

    #[test]
    fn processes_that_write_at_once_do_not_disturb_each_other() {
        let folder = Folder::new("at-once");
        let bytes = vec![7; 100_000];
        fn is_gone<T>(result: &io::Result<T>) -> bool {
            result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        }
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let file = file_in(&folder.0, &bytes).unwrap();
                        // Another one may have removed it. It is never there with other bytes.
                        let read = fs::read(&file);
                        assert!(is_gone(&read) || read.unwrap() == bytes);
                        let removed = fs::remove_file(&file);
                        assert!(is_gone(&removed) || removed.is_ok(), "{removed:?}");
                    }
                });
            }
        });
    }

    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        let folder = Folder::new("open");
        let place = folder.0.join("nearq");
        fs::create_dir(&place).unwrap();
        for (mode, above) in [(0o777, 0o700), (0o1777, 0o700), (0o770, 0o700), (0o700, 0o777)] {
            set_mode(&place, mode);
            set_mode(&folder.0, above);
            let why = file_in(&place, b"library").unwrap_err();
            assert!(why.contains("other users may write"), "{mode:o} {above:o}: {why}");
        }
        set_mode(&place, 0o700);
        set_mode(&folder.0, 0o1777);
        file_in(&place, b"library").unwrap();
        let blank = folder.0.join("a b");
        assert!(file_in(&blank, b"library").unwrap_err().contains("blank"));
        assert!(file_in(Path::new("/proc/nearq"), b"library").is_err());
    }

    #[test]
    fn users_have_their_own_folders_and_root_has_one_for_all() {
        let variable = |name: &str| {
            Some(PathBuf::from(match name {
                "HOME" => "/home/u",
                "XDG_RUNTIME_DIR" => "/run/user/7",
                "TMPDIR" => "relative",
                _ => return None,
            }))
        };
        let names = |user| -> Vec<String> {
            folders(user, variable).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names(7), ["/home/u/.cache/nearq", "/run/user/7/nearq", "/tmp/nearq-7"]);
        assert_eq!(names(0), ["/var/cache/nearq", "/tmp/nearq-0"]);
        assert_eq!(folders(7, |_| None), [PathBuf::from("/tmp/nearq-7")]);
        let cache = |name: &str| (name == "XDG_CACHE_HOME").then(|| "/c".into());
        assert_eq!(folders(7, cache)[0], PathBuf::from("/c/nearq"));
    }
}

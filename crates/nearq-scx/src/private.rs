//! Folders and files that belong to this user alone (root, for the loaded scheduler): no other user has created them, can hold them, or can
//! change them.
//!
//! Each is opened without following a link, and then checked. Any user that can open a file can lock it, so only the owner can open a file
//! that is used as a lock.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::output::Failure;

/// Other users may read a private folder.
const OPEN: Mode = Mode::from_raw_mode(0o755);
/// Other users may not open a private file.
const CLOSED: Mode = Mode::from_raw_mode(0o600);
/// The bits of a mode that let other users write.
const WRITABLE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Opens a folder of this user's own, and makes it if it does not exist.
pub(crate) fn make_folder(path: &Path) -> Result<File, Failure> {
    let describe = |error: io::Error| {
        Failure::run(format!("{}: the folder cannot be created: {error}", path.display()))
    };
    let made = rustix::fs::mkdir(path, OPEN);
    match made {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(describe(error.into())),
    }
    let folder = folder(path, geteuid().as_raw())?;
    if made.is_ok() {
        // This does not depend on the process's file mode mask.
        folder.set_permissions(Permissions::from_mode(OPEN.as_raw_mode())).map_err(describe)?;
    }
    Ok(folder)
}

/// Opens a folder of that user, in which no other user can write, and which no other user can replace.
pub(crate) fn folder(path: &Path, owner: u32) -> Result<File, Failure> {
    let refused = |why: &str| {
        Failure::input(format!(
            "{}: {why}; find out which user made it, and remove it",
            path.display()
        ))
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => refused("it is a link, or not a folder"),
        error => refused(&format!("the folder cannot be opened: {error}")),
    })?;
    let folder = File::from(opened);
    let found = folder.metadata().map_err(|error| refused(&error.to_string()))?;
    if found.uid() != owner {
        return Err(refused(&format!(
            "the folder belongs to user {}, not to {owner}",
            found.uid()
        )));
    }
    if found.mode() & WRITABLE != 0 {
        return Err(refused("users other than its owner can write to the folder"));
    }
    let above = path.parent().map(std::fs::metadata);
    let is_safe = |above: Metadata| {
        above.uid() == 0 && (above.mode() & WRITABLE == 0 || above.mode() & STICKY != 0)
    };
    if owner == 0 && !above.is_some_and(|above| above.is_ok_and(is_safe)) {
        return Err(refused("users other than root can replace the folder"));
    }
    Ok(folder)
}

/// Opens a file in a folder of this user's own for writing, and makes it if it does not exist. A file that other users can open, or that is
/// not a plain file, is replaced by a new one, because other users may hold it.
pub(crate) fn file(folder: &File, name: &str) -> io::Result<File> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(folder, name, flags, CLOSED).map(File::from);
    let is_closed = |found: Metadata| {
        let others = Mode::from_raw_mode(found.mode()) & (Mode::RWXG | Mode::RWXO);
        found.is_file() && found.uid() == geteuid().as_raw() && others.is_empty()
    };
    match opened {
        Ok(file) if file.metadata().is_ok_and(is_closed) => Ok(file),
        Ok(_) | Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
            rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
            Ok(File::from(rustix::fs::openat(folder, name, flags | OFlags::EXCL, CLOSED)?))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use std::os::unix::fs::{chown, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(path: &Path) -> String {
        make_folder(path).unwrap_err().to_string()
    }

    #[test]
    fn a_folder_is_created_readable_for_all() {
        let files = Files::new("own-folder", &[]);
        let path = files.0.join("nearq");
        for _ in 0..2 {
            let folder = make_folder(&path).unwrap();
            assert_eq!(folder.metadata().unwrap().mode() & 0o7777, 0o755);
        }
    }

    #[test]
    fn links_and_folders_of_other_users_are_refused() {
        let files = Files::new("other-folders", &[("other/x", ""), ("file", "")]);
        let link = files.0.join("link");
        symlink(files.0.join("other"), &link).unwrap();
        for path in [&link, &files.0.join("file")] {
            assert!(refusal(path).contains("a link, or not a folder"), "{}", refusal(path));
        }
        let folder = files.0.join("other");
        for open in [0o775, 0o757, 0o1777] {
            mode(&folder, open);
            assert!(refusal(&folder).contains("can write to"), "{open:o}");
        }
        mode(&folder, 0o755);
        mode(&files.0, 0o777);
        if geteuid().is_root() {
            assert!(refusal(&folder).contains("can replace"), "{}", refusal(&folder));
            mode(&files.0, 0o755);
            chown(&folder, Some(65534), None).unwrap();
            assert!(refusal(&folder).contains("belongs to user 65534"), "{}", refusal(&folder));
        }
    }

    #[test]
    fn a_file_that_others_can_open_is_recreated() {
        let files = Files::new("own-file", &[("secret", "before")]);
        let path = files.0.join("lock");
        let folder = make_folder(&files.0).unwrap();
        let inode = |file: &File| file.metadata().unwrap().ino();
        let first = file(&folder, "lock").unwrap();
        assert_eq!(first.metadata().unwrap().mode() & 0o7777, 0o600);
        assert_eq!(inode(&file(&folder, "lock").unwrap()), inode(&first));
        mode(&path, 0o644);
        assert_ne!(inode(&file(&folder, "lock").unwrap()), inode(&first));
        std::fs::remove_file(&path).unwrap();
        symlink(files.0.join("secret"), &path).unwrap();
        file(&folder, "lock").unwrap().set_len(0).unwrap();
        assert_eq!(std::fs::read_to_string(files.0.join("secret")).unwrap(), "before");
    }
}

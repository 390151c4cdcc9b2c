//! Writes files either completely or not at all.
//!
//! The text is written to a file of another name in the same folder, which is then renamed. Anything but an ordinary file (a device, a
//! pipe) is written directly. An open descriptor of this process (`/dev/stdout`, `/dev/fd/3`) is written directly too, whatever it leads
//! to: a replacement of that file would not be seen by the shell that opened it, or by other output to it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The message about a file, named by an option, that cannot be written.
pub fn refusal(option: &str, path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!(
        "{option} {path}: cannot be written: {error}; give a file in a folder that you may write to"
    )
}

/// Checks whether the file could be written, without changing anything. For anything but an ordinary file, an error shows only when the
/// file is written: if a pipe were opened and closed for the check, its reader would see the end of the pipe.
///
/// # Errors
/// The file could not be written.
pub fn probe(path: &Path) -> io::Result<()> {
    match Destination::of(path)? {
        Destination::Itself | Destination::Descriptor(_) => Ok(()),
        Destination::Name { name, .. } => draft_beside(&name).map(drop),
    }
}

/// Whether the path leads to an ordinary file, or will lead to one, so that seeking is possible.
///
/// # Errors
/// The file could not be written.
pub fn is_ordinary(path: &Path) -> io::Result<bool> {
    Ok(matches!(Destination::of(path)?, Destination::Name { .. }))
}

/// The message if two of these files, each given with the option that names it, are the same file.
pub fn named_twice(files: &[(&str, &Path)]) -> Option<String> {
    let destination = |path: &Path| match Destination::of(path) {
        Ok(Destination::Name { name, .. }) => Some(name),
        // Files that are written directly may be written twice.
        _ => None,
    };
    let destinations: Vec<_> =
        files.iter().map(|(option, path)| (option, path, destination(path))).collect();
    destinations.iter().enumerate().find_map(|(index, (option, path, destination))| {
        let earlier = destinations[..index]
            .iter()
            .find(|earlier| destination.is_some() && earlier.2 == *destination)?;
        let path = path.display();
        Some(format!("{option} {path}: {} writes this file; give another one", earlier.0))
    })
}

/// Writes the file.
///
/// # Errors
/// The file cannot be written. An ordinary file is then unchanged, or still does not exist; any other file may have received a part of the
/// text.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    begin(path, text).map(drop)
}

/// Writes the file as [`write()`] does, and returns it, so that the caller can append to it.
///
/// # Errors
/// The same as of [`write()`].
pub fn begin(path: &Path, text: &[u8]) -> io::Result<File> {
    begin_if(path, text, |_| Ok(()))
}

/// Begins the file as [`begin()`] does, unless `accept` refuses the new file. If it is an ordinary file, `accept` is called right before it
/// gets its name, which nobody else knows it by until then.
///
/// # Errors
/// The same as of [`write()`], and that of `accept`.
pub fn begin_if(
    path: &Path,
    text: &[u8],
    accept: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<File> {
    let written_on = |mut file: File| file.write_all(text).map(|()| file);
    match Destination::of(path)? {
        Destination::Itself => written_on(OpenOptions::new().write(true).open(path)?),
        Destination::Descriptor(number) => {
            // SAFETY: a file was found at this number. If the number belongs to another file by now, that file is written instead, as a
            // shell would do.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            written_on(descriptor.try_clone_to_owned()?.into())
        }
        Destination::Name { name, before } => {
            let mut draft = draft_beside(&name)?;
            // The file itself: an error of the draft would name it, which means nothing to a user.
            draft.as_file_mut().write_all(text)?;
            if let Some((permissions, user, group)) = before {
                // The file keeps its owner, if the caller is allowed to set that.
                let _ = fchown(draft.as_file(), Some(user), Some(group));
                draft.as_file().set_permissions(permissions)?;
            }
            // A full disk may be reported only now.
            draft.as_file().sync_all()?;
            accept(draft.as_file())?;
            draft.persist(name).map_err(|refused| refused.error)
        }
    }
}

/// Where a text is written.
enum Destination {
    /// To the existing file.
    Itself,
    /// To this open descriptor.
    Descriptor(RawFd),
    /// To a draft, which is renamed to `name`; the previous file of that name, if any, had these permissions, user and group.
    Name { name: PathBuf, before: Option<(Permissions, u32, u32)> },
}

impl Destination {
    fn of(path: &Path) -> io::Result<Self> {
        let (name, before) = match fs::metadata(path) {
            Ok(data) if data.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(_) if let Some(number) = descriptor(path) => return Ok(Self::Descriptor(number)),
            Ok(data) if !data.is_file() => return Ok(Self::Itself),
            Ok(data) => {
                // A file that the caller may not write is not replaced either.
                OpenOptions::new().write(true).open(path)?;
                (fs::canonicalize(path)?, Some((data.permissions(), data.uid(), data.gid())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (absolute(path)?, None),
            Err(error) => return Err(error),
        };
        Ok(Self::Name { name, before })
    }
}

/// The number of this process's descriptor to which a path leads, directly or by links.
fn descriptor(path: &Path) -> Option<RawFd> {
    let descriptors = fs::canonicalize("/proc/self/fd").ok()?;
    let mut path = path.to_owned();
    // As many links as the kernel follows.
    for _ in 0..40 {
        let (folder, name) = (folder_of(&path), path.file_name()?);
        let folder = fs::canonicalize(folder).ok()?;
        if folder == descriptors {
            return name.to_str()?.parse().ok();
        }
        let link = folder.join(name);
        path = folder.join(fs::read_link(&link).ok()?);
    }
    None
}

/// The path of a file that does not exist yet, with its folder resolved. A dangling link is followed.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..40 {
        let Some(name) = path.file_name() else { break };
        let folder = fs::canonicalize(folder_of(&path))?;
        let whole = folder.join(name);
        match fs::read_link(&whole) {
            Ok(target) => path = folder.join(target),
            Err(_) => return Ok(whole),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A file with a unique name in the folder of another file; removed unless it is renamed to that file.
fn draft_beside(name: &Path) -> io::Result<NamedTempFile<File>> {
    let open = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    tempfile::Builder::new().prefix(".nearq-").suffix(".new").make_in(folder_of(name), open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process;
    use std::thread;

    /// An empty folder, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("nearq-file-{name}-{}", process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap().flatten();
            let mut names: Vec<String> =
                entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions_even_behind_a_link() {
        let folder = Folder::new("replaced");
        let (file, link) = (folder.0.join("file"), folder.0.join("link"));
        fs::write(&file, "a longer text").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        probe(&link).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a longer text");
        write(&link, b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink());
        assert_eq!(folder.names(), ["file", "link"]);
    }

    #[test]
    fn an_open_descriptor_is_written_to_and_not_replaced() {
        use std::os::fd::AsRawFd as _;
        let folder = Folder::new("descriptor");
        let (file, link) = (folder.0.join("file"), folder.0.join("link"));
        fs::write(&file, "kept ").unwrap();
        let open = OpenOptions::new().append(true).open(&file).unwrap();
        let number = open.as_raw_fd();
        let ways = [format!("/proc/self/fd/{number}"), format!("/dev/fd/{number}")];
        symlink(&ways[1], &link).unwrap();
        for path in [Path::new(&ways[0]), Path::new(&ways[1]), &link] {
            assert!(!is_ordinary(path).unwrap());
            probe(path).unwrap();
            write(path, b"more ").unwrap();
        }
        (&open).write_all(b"last").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept more more more last");
        assert_eq!(folder.names(), ["file", "link"]);
    }

    #[test]
    fn two_names_of_one_file_are_recognized() {
        let folder = Folder::new("twice");
        let (file, link, none) =
            (folder.0.join("file"), folder.0.join("link"), folder.0.join("none"));
        symlink("file", &link).unwrap();
        for there_is_one in [false, true] {
            if there_is_one {
                fs::write(&file, "").unwrap();
            }
            let found = named_twice(&[("--a", &file), ("--b", &none), ("--c", &link)]).unwrap();
            assert!(found.starts_with("--c ") && found.contains(": --a writes this"), "{found}");
            assert_eq!(named_twice(&[("--a", &file), ("--b", &none)]), None);
        }
        let null = Path::new("/dev/null");
        assert_eq!(named_twice(&[("--a", null), ("--b", null)]), None);
    }

    #[test]
    fn writing_to_a_dangling_link_creates_its_target() {
        let folder = Folder::new("dangling");
        let link = folder.0.join("link");
        symlink("file", &link).unwrap();
        write(&link, b"text").unwrap();
        assert_eq!(fs::read_to_string(folder.0.join("file")).unwrap(), "text");
        assert_eq!(folder.names(), ["file", "link"]);
    }

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let folder = Folder::new("probe");
        probe(&folder.0.join("file")).unwrap();
        assert_eq!(folder.names(), [""; 0]);
        assert!(probe(&folder.0).is_err(), "a folder is no file");
        assert!(probe(&folder.0.join("none/file")).is_err());
    }

    #[test]
    fn a_file_that_is_not_accepted_keeps_its_contents() {
        let folder = Folder::new("accepted");
        let path = folder.0.join("file");
        let refuse = |_: &File| Err(io::Error::other("not now"));
        assert_eq!(begin_if(&path, b"new", refuse).unwrap_err().to_string(), "not now");
        assert_eq!(folder.names(), [""; 0]);
        fs::write(&path, "old").unwrap();
        begin_if(&path, b"new", refuse).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(folder.names(), ["file"]);
    }

    #[test]
    fn a_leftover_draft_of_the_same_process_number_does_no_harm() {
        let folder = Folder::new("left");
        // In a container, each run may have the process number 1.
        let left = folder.0.join(format!(".nearq-{}.new", process::id()));
        fs::write(&left, "a part").unwrap();
        write(&folder.0.join("file"), b"new").unwrap();
        assert_eq!(fs::read_to_string(folder.0.join("file")).unwrap(), "new");
        assert_eq!(fs::read_to_string(left).unwrap(), "a part");
    }

    #[test]
    fn threads_can_write_files_in_one_folder_at_once() {
        let folder = Folder::new("at-once");
        thread::scope(|scope| {
            for thread in 0..4 {
                let path = folder.0.join(thread.to_string());
                scope.spawn(move || {
                    for round in 0..50 {
                        probe(&path).unwrap();
                        write(&path, round.to_string().as_bytes()).unwrap();
                        assert_eq!(fs::read_to_string(&path).unwrap(), round.to_string());
                    }
                });
            }
        });
        assert_eq!(folder.names(), ["0", "1", "2", "3"]);
    }

    #[test]
    fn special_files_are_written_to_and_not_replaced() {
        write(Path::new("/dev/null"), b"text").unwrap();
        let error = write(Path::new("/dev/full"), b"text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
    }
}

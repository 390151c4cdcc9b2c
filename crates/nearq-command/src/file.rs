//! Files that a command writes: whole, or as they were before.
//!
//! The text goes into a file of another name in the same folder, which then takes the name. What is no ordinary file (a device, a
//! pipe) is written as it is.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// What is said of a file, named by an option, that cannot be written.
pub fn refusal(option: &str, path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!(
        "{option} {path}: cannot be written: {error}; give a file in a folder that you may write"
    )
}

/// Whether the file could be written; nothing is changed. Of what is no ordinary file that shows only when it is written: a pipe that is
/// opened and closed has had its text.
///
/// # Errors
/// It could not.
pub fn probe(path: &Path) -> io::Result<()> {
    match Place::of(path)? {
        Place::Itself => Ok(()),
        Place::Name { name, .. } => draft_beside(&name).map(drop),
    }
}

/// Writes the file.
///
/// # Errors
/// It cannot be written; then it is as it was before, or there is none. What is no ordinary file may have got a part.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    match Place::of(path)? {
        Place::Itself => OpenOptions::new().write(true).open(path)?.write_all(text),
        Place::Name { name, before } => {
            let mut draft = draft_beside(&name)?;
            draft.write_all(text)?;
            if let Some((permissions, user, group)) = before {
                // Another user's file stays that user's, where the caller may leave it so.
                let _ = fchown(draft.as_file(), Some(user), Some(group));
                draft.as_file().set_permissions(permissions)?;
            }
            // A disk may be full only now.
            draft.as_file().sync_all()?;
            draft.persist(name).map(drop).map_err(|refused| refused.error)
        }
    }
}

/// Where a text is written.
enum Place {
    /// Into what is there.
    Itself,
    /// Into a draft, which becomes `name`; there was a file of that name with these permissions, user and group.
    Name { name: PathBuf, before: Option<(Permissions, u32, u32)> },
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let (name, before) = match fs::metadata(path) {
            Ok(data) if data.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(data) if !data.is_file() => return Ok(Self::Itself),
            Ok(data) => {
                // A file that may not be written is not replaced either.
                OpenOptions::new().write(true).open(path)?;
                (fs::canonicalize(path)?, Some((data.permissions(), data.uid(), data.gid())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (path.to_owned(), None),
            Err(error) => return Err(error),
        };
        Ok(Self::Name { name, before })
    }
}

/// A file in the folder of another, of a name that no other has; removed unless it gets that one's name.
fn draft_beside(name: &Path) -> io::Result<NamedTempFile<File>> {
    let folder = match name.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let open = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    tempfile::Builder::new().prefix(".nearq-").suffix(".new").make_in(folder, open)
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
    fn a_file_is_replaced_with_its_permissions_also_where_a_link_leads_to_it() {
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
    fn a_probe_leaves_nothing_behind() {
        let folder = Folder::new("probe");
        probe(&folder.0.join("file")).unwrap();
        assert_eq!(folder.names(), [""; 0]);
        assert!(probe(&folder.0).is_err(), "a folder is no file");
        assert!(probe(&folder.0.join("none/file")).is_err());
    }

    #[test]
    fn what_a_killed_process_of_the_same_number_has_left_is_in_no_way() {
        let folder = Folder::new("left");
        // In a container, each run may have the number 1.
        let left = folder.0.join(format!(".nearq-{}.new", process::id()));
        fs::write(&left, "a part").unwrap();
        write(&folder.0.join("file"), b"new").unwrap();
        assert_eq!(fs::read_to_string(folder.0.join("file")).unwrap(), "new");
        assert_eq!(fs::read_to_string(left).unwrap(), "a part");
    }

    #[test]
    fn threads_write_files_of_one_folder_at_once() {
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
    fn what_is_no_ordinary_file_is_written_and_stays_what_it_is() {
        write(Path::new("/dev/null"), b"text").unwrap();
        let error = write(Path::new("/dev/full"), b"text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
    }
}

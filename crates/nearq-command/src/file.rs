//! Files that a command writes: whole, or as they were before.
//!
//! The text goes into a file of another name in the same folder, which then takes the name. What is no ordinary file (a device, a
//! pipe) is written as it is.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::process;

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
        Place::Name { new, .. } => Draft::new(&new).map(drop),
    }
}

/// Writes the file.
///
/// # Errors
/// It cannot be written; then it is as it was before, or there is none. What is no ordinary file may have got a part.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    match Place::of(path)? {
        Place::Itself => OpenOptions::new().write(true).open(path)?.write_all(text),
        Place::Name { name, new, before } => {
            let draft = Draft::new(&new)?;
            (&draft.file).write_all(text)?;
            if let Some((permissions, user, group)) = before {
                // Another user's file stays that user's, where the caller may leave it so.
                let _ = fchown(&draft.file, Some(user), Some(group));
                draft.file.set_permissions(permissions)?;
            }
            // A disk may be full only now.
            draft.file.sync_all()?;
            fs::rename(&new, name)
        }
    }
}

/// Where a text is written.
enum Place {
    /// Into what is there.
    Itself,
    /// Into `new`, which becomes `name`; there was a file of that name with these permissions, user and group.
    Name { name: PathBuf, new: PathBuf, before: Option<(Permissions, u32, u32)> },
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
        let new = name.with_file_name(format!(".nearq-{}.new", process::id()));
        Ok(Self::Name { name, new, before })
    }
}

/// A file that is removed unless it got another name.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn new(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It is not there any more where all went well.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

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
    fn what_is_no_ordinary_file_is_written_and_stays_what_it_is() {
        write(Path::new("/dev/null"), b"text").unwrap();
        let error = write(Path::new("/dev/full"), b"text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
    }
}

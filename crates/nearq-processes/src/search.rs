//! Finds the file that a command's name means, as shells and `execvp` do.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{Access, access};

/// The result of the search for a name.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file that this process may execute.
    Program(PathBuf),
    /// No executable file was found. This entry exists, but may not be executed or is not a file. If there are several, it is the first
    /// file, or else the first entry.
    NotExecutable(PathBuf),
    /// The name is a path, and it cannot be determined whether anything is there.
    Unreadable(io::Error),
    /// Nothing has that name.
    Nothing,
}

/// Finds a command: the name itself if it has a slash, otherwise the first executable file of that name in the folders of `path`.
pub(crate) fn search(name: &OsStr, path: &OsStr) -> Found {
    if name.is_empty() {
        return Found::Nothing;
    }
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match is_program(&file) {
            Ok(true) => Found::Program(file),
            Ok(false) => Found::NotExecutable(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Nothing,
            Err(error) => Found::Unreadable(error),
        };
    }
    let mut refused: Option<PathBuf> = None;
    for folder in path.as_bytes().split(|&byte| byte == b':') {
        // An empty folder means the current one.
        let folder = if folder.is_empty() { b"." } else { folder };
        let file = Path::new(OsStr::from_bytes(folder)).join(name);
        match is_program(&file) {
            Ok(true) => return Found::Program(file),
            Ok(false) => {
                if refused.as_ref().is_none_or(|before| !before.is_file() && file.is_file()) {
                    refused = Some(file);
                }
            }
            // Treated as if nothing had that name.
            Err(_) => {}
        }
    }
    refused.map_or(Found::Nothing, Found::NotExecutable)
}

/// Whether the entry at a path can be executed.
fn is_program(file: &Path) -> io::Result<bool> {
    Ok(fs::metadata(file)?.is_file() && access(file, Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, path: &str) -> Found {
        search(name.as_ref(), path.as_ref())
    }

    #[test]
    fn the_first_executable_match_is_found() {
        for (name, path) in [("sh", "/etc:/nowhere:/bin:/usr/bin"), ("/bin/sh", "")] {
            let found = found(name, path);
            assert!(matches!(&found, Found::Program(file) if file == "/bin/sh"), "{found:?}");
        }
    }

    #[test]
    fn missing_and_non_executable_files_are_distinguished() {
        for (name, path) in [("/no/such/file", "/bin"), ("no-such-command", "/bin"), ("", "/bin")] {
            assert!(matches!(found(name, path), Found::Nothing), "{name}");
        }
        assert!(matches!(found("/etc/passwd/x", ""), Found::Unreadable(_)));
        for (name, path, is) in [
            ("/etc/passwd", "", "/etc/passwd"),
            ("/etc", "", "/etc"),
            ("passwd", "/etc", "/etc/passwd"),
            ("etc", "/", "/etc"),
        ] {
            let found = found(name, path);
            assert!(matches!(&found, Found::NotExecutable(file) if file == is), "{found:?}");
        }
    }
}

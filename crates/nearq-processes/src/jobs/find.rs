//! The program of a job's command, or why there is none, in words.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use crate::search::{Found, search};

/// Why there is no program of a name.
#[derive(Clone, PartialEq, Eq)]
pub enum NoProgram {
    /// There is no such file.
    NotFound(String),
    /// The file exists, but cannot be executed.
    NotExecutable(String),
}

impl NoProgram {
    /// The exit status that shells use: 127 for a file that is not found, 126 for one that cannot be executed.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(_) => 126,
        }
    }
}

impl std::fmt::Display for NoProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::NotFound(text) | Self::NotExecutable(text)) = self;
        f.write_str(text)
    }
}

nearq_topology::debug_as_display!(NoProgram);

impl std::error::Error for NoProgram {}

/// The folders that are searched if there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file of a command: the name itself if it has a slash, otherwise the first executable file of that name in the folders of `path`.
///
/// # Errors
/// There is no such file, or it cannot be executed; the error says so in words, with the name.
pub fn find(name: &[u8], path: Option<&OsStr>) -> Result<CString, NoProgram> {
    let shown = String::from_utf8_lossy(name);
    if name.is_empty() {
        return Err(NoProgram::NotFound(
            "the command is an empty word; give a program's name".into(),
        ));
    }
    let is_path = name.contains(&b'/');
    Err(match search(OsStr::from_bytes(name), path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        Found::Program(file) => {
            return CString::new(file.into_os_string().into_vec()).map_err(|_| {
                NoProgram::NotFound(format!("{shown}: a program's name cannot contain a zero byte"))
            });
        }
        Found::NotExecutable(file) => NoProgram::NotExecutable(format!(
            "{}: cannot be executed; if it is your program, run `chmod +x` on it",
            file.display()
        )),
        Found::Unreadable(_) | Found::Nothing if is_path => {
            NoProgram::NotFound(format!("{shown}: there is no such file"))
        }
        _ if name.starts_with(b"-") => NoProgram::NotFound(format!(
            "{shown}: there is no such command; write options of `nearq run` before the command, and before a `--`"
        )),
        _ if name.iter().any(u8::is_ascii_whitespace) => NoProgram::NotFound(format!(
            "{shown}: there is no such command; give its words as separate arguments, or add --shell to have a shell run the line"
        )),
        _ => NoProgram::NotFound(format!(
            "{shown}: there is no such command in the folders of PATH; give its path, or add --shell for a shell's built-in command"
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str, path: &str) -> u8 {
        find(name.as_bytes(), Some(OsStr::new(path))).unwrap_err().exit_status()
    }

    #[test]
    fn the_first_executable_match_is_found() {
        let found = find(b"sh", Some(OsStr::new("/etc:/nowhere:/bin:/usr/bin"))).unwrap();
        assert_eq!(found.as_bytes(), b"/bin/sh");
        assert_eq!(find(b"/bin/sh", None).unwrap().as_bytes(), b"/bin/sh");
        assert_eq!(find(b"sh", None).unwrap().as_bytes(), b"/bin/sh");
    }

    #[test]
    fn missing_and_non_executable_commands_have_different_statuses() {
        assert_eq!(status("no-such-command", "/bin"), 127);
        assert_eq!(status("/no/such/file", ""), 127);
        assert_eq!(status("passwd", "/etc"), 126);
        assert_eq!(status("/etc/passwd", ""), 126);
        assert_eq!(status("/etc", ""), 126);
        assert_eq!(status("", "/bin"), 127);
        let text = find(b"echo a", None).unwrap_err().to_string();
        assert!(text.contains("--shell"), "{text}");
        let text = find(b"-I{}", None).unwrap_err().to_string();
        assert!(text.contains("before a `--`"), "{text}");
    }
}

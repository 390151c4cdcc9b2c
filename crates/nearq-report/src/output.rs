//! Where a report goes. The files are opened before the experiment starts, so that a path that cannot be written
//! is refused at once and not after minutes; what they hold is replaced only when there is a result.

use crate::{Error, Report};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Where the JSON goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output (`-`); the tables then go to standard error.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl Target {
    /// Reads a command's argument: `-` is standard output.
    pub fn parse(argument: &str) -> Self {
        if argument == "-" { Self::Stdout } else { Self::File(argument.into()) }
    }
}

/// The files that a report is to be written to, opened.
#[derive(Debug)]
pub struct Outputs {
    json: Option<Sink>,
    svg: Option<Sink>,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    File(OpenFile),
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    file: File,
    /// Made by us and still empty: removed again when there is no result.
    remove: bool,
}

impl Outputs {
    /// Opens the files, and refuses what cannot be written.
    pub fn open(json: Option<&Target>, svg: Option<&Path>) -> Result<Self, Error> {
        let json = match json {
            None => None,
            Some(Target::Stdout) => Some(Sink::Stdout),
            Some(Target::File(path)) => Some(Sink::File(OpenFile::open(path, "--json")?)),
        };
        let svg = svg.map(|path| OpenFile::open(path, "--svg").map(Sink::File)).transpose()?;
        Ok(Self { json, svg })
    }

    /// Whether standard output is taken by the JSON.
    pub fn json_on_stdout(&self) -> bool {
        matches!(self.json, Some(Sink::Stdout))
    }

    /// Writes the JSON and the picture, and prints the tables.
    pub fn write(self, report: &Report) -> Result<(), Error> {
        if self.json_on_stdout() {
            eprint!("{}", report.text);
        } else {
            print(&report.text)?;
        }
        match self.json {
            None => {}
            Some(Sink::Stdout) => print(&(report.to_json() + "\n"))?,
            Some(Sink::File(file)) => file.replace(&(report.to_json() + "\n"))?,
        }
        if let Some(Sink::File(file)) = self.svg {
            file.replace(&report.svg)?;
        }
        Ok(())
    }
}

/// A reader that went away (`| head`) is no failure.
fn print(text: &str) -> Result<(), Error> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::run(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

impl OpenFile {
    fn open(path: &Path, option: &str) -> Result<Self, Error> {
        let refused = |error| {
            let path = path.display();
            Error::input(format!(
                "{option} {path}: cannot be written: {error}; give a file in a folder that you may write"
            ))
        };
        let existed = path.symlink_metadata().is_ok();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(refused)?;
        Ok(Self { path: path.into(), file, remove: !existed })
    }

    fn replace(mut self, text: &str) -> Result<(), Error> {
        let regular = self.file.metadata().is_ok_and(|data| data.is_file());
        let truncated = if regular { self.file.set_len(0) } else { Ok(()) };
        let written = truncated.and_then(|()| self.file.write_all(text.as_bytes()));
        self.remove = false;
        written.map_err(|error| {
            Error::run(format!("{}: cannot be written: {error}", self.path.display()))
        })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.remove {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Watch;

    fn report() -> Report {
        Report {
            experiment: "scopes",
            machine: "here".into(),
            environment: Watch::start(1).finish(),
            parameters: serde_json::Value::Null,
            rows: Vec::new(),
            text: String::new(),
            svg: "<svg>new</svg>".into(),
        }
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("nearq-output-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_path_that_cannot_be_written_is_refused_by_name_before_the_run() {
        let missing = Target::File("/no such folder/out.json".into());
        let error = Outputs::open(Some(&missing), None).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        assert!(error.to_string().contains("--json /no such folder/out.json"), "{error}");
        assert!(!error.to_string().contains('\n'));
    }

    #[test]
    fn a_file_keeps_its_contents_until_there_is_a_result() {
        let path = path("kept");
        fs::write(&path, "a much longer text than the new picture").unwrap();
        drop(Outputs::open(None, Some(&path)).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a much longer text than the new picture");
        Outputs::open(None, Some(&path)).unwrap().write(&report()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "<svg>new</svg>");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_new_file_is_removed_again_when_there_is_no_result() {
        let path = path("removed");
        let outputs = Outputs::open(Some(&Target::File(path.clone())), None).unwrap();
        assert!(path.exists());
        drop(outputs);
        assert!(!path.exists());
    }

    #[test]
    fn a_dash_is_standard_output() {
        assert_eq!(Target::parse("-"), Target::Stdout);
        assert_eq!(Target::parse("./-"), Target::File("./-".into()));
    }
}

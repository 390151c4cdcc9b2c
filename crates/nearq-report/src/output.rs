//! The destinations of a report. Whether the files can be written is checked before the experiment starts, so that a path that cannot be
//! written is refused at once and not after minutes. The files change only when there is a result.

use crate::{Error, Report};
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use nearq_command::{Failure, file, output};
use std::path::{Path, PathBuf};

/// Where the JSON goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output (`-`); the tables then go to standard error.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl From<PathBuf> for Target {
    /// A command's argument: `-` is standard output.
    fn from(argument: PathBuf) -> Self {
        if argument.as_os_str() == "-" { Self::Stdout } else { Self::File(argument) }
    }
}

/// Where a report will be written.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// Write the numbers as JSON to a file; `-` is standard output, and the table then goes to standard error
    #[arg(long, value_name = "FILE|-", value_parser = PathBufValueParser::new().map(Target::from))]
    pub json: Option<Target>,

    /// Draw a picture (SVG) to this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl Outputs {
    /// Refuses files that cannot be written.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(Target::File(path)) = &self.json {
            probe("--json", path)?;
        }
        self.svg.as_ref().map_or(Ok(()), |path| probe("--svg", path))
    }

    /// Writes the JSON and the picture, and prints the tables. If one of them cannot be written, the others are still written.
    pub fn write(&self, report: &Report) -> Result<(), Error> {
        self.write_texts(&report.text, || report.to_json() + "\n", &report.svg)
    }

    /// The same for a result of another kind: tables, JSON and a picture.
    pub fn write_texts(
        &self,
        text: &str,
        json: impl Fn() -> String,
        svg: &str,
    ) -> Result<(), Error> {
        let printed = if self.json == Some(Target::Stdout) {
            output::print_aside(text);
            Ok(())
        } else {
            output::print_text(text).map_err(failed)
        };
        let written = match &self.json {
            None => Ok(()),
            Some(Target::Stdout) => output::print_json(&json()).map_err(failed),
            Some(Target::File(path)) => replace(path, &output::escaped_json(&json())),
        };
        let drawn = self.svg.as_ref().map_or(Ok(()), |path| replace(path, &output::page(svg)));
        printed.and(written).and(drawn)
    }
}

fn failed(failure: Failure) -> Error {
    Error::run(failure.to_string())
}

fn probe(option: &str, path: &Path) -> Result<(), Error> {
    file::probe(path).map_err(|error| Error::input(file::refusal(option, path, &error)))
}

fn replace(path: &Path, text: &str) -> Result<(), Error> {
    file::write(path, text.as_bytes())
        .map_err(|error| Error::run(format!("{}: cannot be written: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Watch;
    use std::fs;

    fn report() -> Report {
        Report {
            experiment: "scopes",
            machine: "here".into(),
            environment: Watch::start(1).finish(),
            parameters: serde_json::Value::Null,
            rows: Vec::new(),
            quartiles: Vec::new(),
            text: String::new(),
            svg: "<svg>new</svg>".into(),
        }
    }

    fn outputs(json: Option<&str>, svg: Option<&Path>) -> Outputs {
        let json = json.map(|path| Target::from(PathBuf::from(path)));
        Outputs { json, svg: svg.map(PathBuf::from) }
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("nearq-output-{name}-{}", std::process::id()))
    }

    #[test]
    fn an_unwritable_path_is_refused_before_the_run() {
        let error = outputs(Some("/no such folder/out.json"), None).check().unwrap_err();
        assert_eq!(error.exit_status(), 2);
        assert!(error.to_string().contains("--json /no such folder/out.json"), "{error}");
        assert!(!error.to_string().contains('\n'));
    }

    #[test]
    fn a_file_keeps_its_contents_until_the_result_is_ready() {
        let path = path("kept");
        fs::write(&path, "a much longer text than the new picture").unwrap();
        outputs(None, Some(&path)).check().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a much longer text than the new picture");
        outputs(None, Some(&path)).write(&report()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "<svg>new</svg>");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_new_file_is_only_created_with_a_result() {
        let path = path("removed");
        outputs(path.to_str(), None).check().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_full_disk_is_reported_and_the_other_file_is_written() {
        let svg = path("other");
        let outputs = outputs(Some("/dev/full"), Some(&svg));
        outputs.check().unwrap();
        let error = outputs.write(&report()).unwrap_err();
        assert_eq!(error.exit_status(), 1);
        assert!(error.to_string().starts_with("/dev/full: cannot be written: "), "{error}");
        assert_eq!(fs::read_to_string(&svg).unwrap(), "<svg>new</svg>");
        fs::remove_file(&svg).unwrap();
    }

    #[test]
    fn foreign_text_is_escaped_for_the_terminal() {
        let (json, svg) = (path("json"), path("svg"));
        let report = Report {
            machine: "a\u{1b}[2J\u{9b}b\u{202e}".into(),
            svg: "<svg>\u{9b}31m</svg>".into(),
            ..report()
        };
        outputs(json.to_str(), Some(&svg)).write(&report).unwrap();
        let text = fs::read_to_string(&json).unwrap();
        assert!(text.contains(r"a\u001b[2J\u009bb\u202e"), "{text}");
        assert_eq!(fs::read_to_string(&svg).unwrap(), "<svg>\u{fffd}31m</svg>");
        fs::remove_file(&json).unwrap();
        fs::remove_file(&svg).unwrap();
    }

    #[test]
    fn a_dash_is_standard_output() {
        let target = |path: &str| Target::from(PathBuf::from(path));
        assert_eq!(target("-"), Target::Stdout);
        assert_eq!(target("./-"), Target::File("./-".into()));
    }
}

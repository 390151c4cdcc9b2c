//! Where jobs come from: a command and its inputs, or the job log of an earlier run; which of them run; where their outputs go.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nearq_processes::jobs::{
    Again, Each, Inputs, Results, Separator, Template, Text, foreign_placeholder,
};

use super::Options;
use super::arguments::{PLACEHOLDERS, Words};
use super::joblog::EarlierLog;
use super::near::Near;
use crate::output::Failure;

/// The jobs of a run.
pub(super) struct Jobs {
    pub(super) template: Template,
    pub(super) inputs: Inputs,
    /// How many inputs a full job has, and of how many lists they are.
    pub(super) count: usize,
    pub(super) lists: usize,
    /// The log of an earlier run, which is continued.
    pub(super) earlier: Option<EarlierLog>,
}

impl Options {
    /// The jobs that are run.
    pub(super) fn jobs(&self, near: Option<&Near>) -> Result<Jobs, Failure> {
        let earlier = self.earlier()?;
        if self.retry_failed {
            return self.failed_jobs(earlier);
        }
        if self.queue.from.is_some() && self.command.is_empty() {
            // Each message has its own command.
            let (template, inputs) = (Template::of_lines(), Inputs::list(Vec::new(), Each::of(1)));
            return Ok(Jobs { template, inputs, count: self.max_args, lists: 1, earlier });
        }
        let words = Words::of(&self.command).map_err(Failure::input)?;
        if let Some(near) = near.filter(|_| self.repeats()) {
            let template =
                Template::repeated(&words.command, self.shell).map_err(Failure::input)?;
            let each = Each { inputs: 1, space: template.space() };
            let mut inputs = Inputs::list(near.inputs(), each);
            if let Some(log) = &earlier {
                inputs = inputs.without(log.earlier.left_out.clone());
            }
            return Ok(Jobs { template, inputs, count: 1, lists: 1, earlier });
        }
        let count = words.inputs_of_each(self.max_args).map_err(Failure::input)?;
        let template = Template::new(&words.command, count, self.shell).map_err(Failure::input)?;
        if self.replace.is_some() && !Template::has_placeholder(&words.command) {
            return Err(Failure::input(
                "-I{}: there is no {} in the command; write {} where the input belongs, or leave out -I{}: then the input is appended",
            ));
        }
        let each = Each { inputs: self.max_args, space: template.space() };
        let lists = words.lists.len();
        let mut inputs = if self.queue.from.is_some() {
            Inputs::list(Vec::new(), each)
        } else {
            self.inputs(words, each)?
        };
        if let Some(log) = &earlier {
            inputs = inputs.without(log.earlier.left_out.clone());
        }
        Ok(Jobs { template, inputs, count, lists, earlier })
    }

    /// The log of the earlier run, if an option asks for it.
    fn earlier(&self) -> Result<Option<EarlierLog>, Failure> {
        let (option, again) = if self.retry_failed {
            ("--retry-failed", Again::Failed)
        } else if self.resume_failed {
            ("--resume-failed", Again::MissingAndFailed)
        } else if self.resume {
            ("--resume", Again::Missing)
        } else {
            return Ok(None);
        };
        let Some(path) = &self.joblog else {
            return Err(Failure::input(format!(
                "{option}: give the job log of the earlier run, as in {option} --joblog FILE"
            )));
        };
        EarlierLog::read(option, path, again)
    }

    /// The jobs that failed according to the log.
    fn failed_jobs(&self, earlier: Option<EarlierLog>) -> Result<Jobs, Failure> {
        if !self.command.is_empty() {
            return Err(Failure::input(
                "--retry-failed takes the commands from the job log: leave out the command, or give --resume-failed to run it again for \
                 the inputs that failed",
            ));
        }
        let failed = earlier.as_ref().map(|log| log.earlier.failed.clone()).unwrap_or_default();
        let inputs = Inputs::numbered(failed);
        Ok(Jobs { template: Template::of_lines(), inputs, count: 1, lists: 1, earlier })
    }

    /// What each line of a job's output begins with.
    pub(super) fn tag(&self, count: usize) -> Result<Option<Text>, Failure> {
        let (option, text) = match &self.tagstring {
            Some(text) => ("--tagstring", unescaped(text.as_bytes())),
            None if self.tag => ("--tag", b"{}".to_vec()),
            None => return Ok(None),
        };
        self.refuse_direct_output(option)?;
        checked(option, &text)?;
        if text.is_empty() {
            // As in GNU parallel.
            return Ok(None);
        }
        Text::new(&text, count).map(Some).map_err(|error| refused(option, error))
    }

    /// Where each job's output is stored in place of being printed.
    pub(super) fn results(&self, jobs: &Jobs) -> Result<Option<Results>, Failure> {
        let Some(name) = &self.results else { return Ok(None) };
        let option = "--results";
        self.refuse_direct_output(option)?;
        checked(option, name.as_bytes())?;
        let shown = name.display();
        if self.queue.from.is_some() && Text::has_input(name.as_bytes()) {
            return Err(Failure::input(format!(
                "--results {shown}: with --from, the name may not contain an input: those who submit jobs could choose which files are written; \
                 give a folder, or use {{#}}, the job's number"
            )));
        }
        if let Some(table) =
            [".csv", ".tsv", ".json"].iter().find(|end| name.as_bytes().ends_with(end.as_bytes()))
        {
            return Err(Failure::input(format!(
                "--results {shown}: no {table} file can be written; give a folder, which gets a file for each output, and --joblog FILE or \
                 --json FILE for the figures"
            )));
        }
        if name.is_empty() {
            return Err(Failure::input(
                "--results: give the name of a folder, as in --results out",
            ));
        }
        if Path::new(name).exists() && !Path::new(name).is_dir() {
            return Err(Failure::input(format!(
                "--results {shown}: it is a file; give the name of a folder, or of one that does not exist yet"
            )));
        }
        let results = Results::new(name.as_bytes(), jobs.count, jobs.lists);
        results.map(Some).map_err(|error| refused(option, error))
    }

    /// Jobs that print directly print past nearq.
    pub(super) fn refuse_direct_output(&self, option: &str) -> Result<(), Failure> {
        let direct = match (self.ungroup, self.tty) {
            (true, _) => "--ungroup",
            (_, true) => "--tty",
            _ => return Ok(()),
        };
        Err(Failure::input(format!(
            "{option} and {direct}: what jobs print directly does not pass through nearq; leave out one of the two"
        )))
    }

    fn inputs(&self, words: Words, each: Each) -> Result<Inputs, Failure> {
        let separator = match self.delimiter {
            Some(byte) => Separator { byte, keeps_empty: true },
            None if self.null => Separator::NULL,
            None => Separator::LINE,
        };
        if !words.lists.is_empty() {
            if let Some(input) = &self.input {
                return Err(Failure::input(format!(
                    "--input {} and `:::`: inputs can come from only one source; give one of the two",
                    input.display()
                )));
            }
            return Ok(words.inputs(each));
        }
        let path = match &self.input {
            Some(path) if path.as_os_str() != "-" => path,
            None if io::stdin().is_terminal() => {
                return Err(Failure::input(
                    "no inputs: give them after `:::`, in a file with --input FILE, or on standard input (--input - to type them)",
                ));
            }
            Some(_) | None => return standard_input(separator, each),
        };
        let refused = |error: io::Error| {
            Failure::input(format!(
                "--input {}: cannot be read: {error}; give a file with an input on each line",
                path.display()
            ))
        };
        let file = File::open(path).map_err(refused)?;
        if file.metadata().map_err(refused)?.is_dir() {
            return Err(refused(io::ErrorKind::IsADirectory.into()));
        }
        Ok(Inputs::stream(file, separator, each))
    }
}

fn refused(option: &str, error: impl std::fmt::Display) -> Failure {
    Failure::input(format!("{option}: {error}"))
}

/// A tag with the characters that GNU parallel reads in it: `\t`, `\n` and `\r`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = match rest {
            [b'\\', b't', ..] => Some(b'\t'),
            [b'\\', b'n', ..] => Some(b'\n'),
            [b'\\', b'r', ..] => Some(b'\r'),
            _ => None,
        };
        plain.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &behind[1..] } else { behind };
    }
    plain
}

/// Refuses a placeholder that only GNU parallel has.
fn checked(option: &str, text: &[u8]) -> Result<(), Failure> {
    match foreign_placeholder(text) {
        None => Ok(()),
        Some(foreign) => Err(Failure::input(format!(
            "{option}: `{}` is not supported here: {PLACEHOLDERS}",
            String::from_utf8_lossy(foreign)
        ))),
    }
}

fn standard_input(separator: Separator, each: Each) -> Result<Inputs, Failure> {
    let file = io::stdin().as_fd().try_clone_to_owned();
    let file = file.map_err(|error| {
        Failure::input(format!(
            "standard input is closed: {error}; give inputs after `:::` or with --input FILE"
        ))
    })?;
    Ok(Inputs::stream(file.into(), separator, each))
}

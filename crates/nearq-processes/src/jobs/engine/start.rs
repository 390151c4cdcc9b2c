//! Starting one job: its slot, its words, its program, its files, its process.

use std::ffi::{CString, OsString};
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Instant, SystemTime};

use nearq_platform::{NotSpawned, ProcessSpec, Spawned};

use super::{Engine, Pending};
use crate::jobs::argument_space;
use crate::jobs::find::{NoProgram, find};
use crate::jobs::orphan_reaper;
use crate::jobs::running::Running;
use crate::jobs::source::Job;
use crate::system::Child;

/// The outcome of an attempt.
pub(super) enum Attempt {
    Runs,
    Limited(Limit),
}

/// Why a job cannot be started now.
pub(super) struct Limit {
    /// In words, with the limit's name.
    pub(super) text: String,
    /// Whether only jobs of this run can free resources, by ending.
    pub(super) is_own_limit: bool,
}

/// Why a job does not run.
enum NotStarted {
    /// The start can be tried again.
    Limited(Limit),
    /// The job counts as failed, with this exit status.
    Failed(u8, String),
}

impl Engine<'_> {
    pub(super) fn start(&mut self, pending: &Pending) -> Attempt {
        let Pending { ref job, attempt, .. } = *pending;
        let Job { number, ref inputs, .. } = *job;
        let slot = self.take_slot(number);
        let template = job.template.as_ref().or(self.template.as_ref());
        let words = template.map(|it| it.expand(inputs, number, slot)).unwrap_or_default();
        let command = template.map(|it| it.show(inputs, number, slot)).unwrap_or_default();
        let home = self.placement.choose(slot);
        let opened = self.results.as_ref().map(|results| results.open(inputs, number, slot));
        let files = match opened.transpose() {
            Ok(files) => files,
            Err(error) => {
                self.free_slots.insert(slot);
                let text = format!("--results: the files of job {number} cannot be written");
                if is_limit(&error) {
                    return Attempt::Limited(Limit::of(&error, &text));
                }
                // The job would run in vain.
                self.errors.push(format!("{text}: {error}; no job runs without them"));
                self.end(None, libc::SIGTERM, false);
                return Attempt::Limited(Limit::of(&error, &text));
            }
        };
        let tag = self.tag.as_ref().map(|tag| tag.expand(inputs, number, slot));
        let pipes = match self.printer.open(number, tag, files) {
            Ok(pipes) => pipes,
            Err(error) => {
                self.free_slots.insert(slot);
                return Attempt::Limited(Limit::of(
                    &error,
                    "pipes for a job's output cannot be created",
                ));
            }
        };
        let started_at = SystemTime::now();
        let started = Instant::now();
        let spawned = self.spawn(job, &words, (home, slot), pipes.as_ref());
        // Now only the job has these descriptors.
        drop(pipes);
        let mut running = Running {
            number,
            slot,
            command,
            again: (self.retries != Some(1)).then(|| job.clone()),
            attempt,
            pid: 0,
            started,
            started_at,
            leads_group: !self.tty,
            home,
            stopped: false,
            timed_out: false,
            kill_at: None,
            wants_terminal: false,
        };
        match spawned {
            Ok(spawned) => {
                running.pid = spawned.pid;
                if let Some(refused) = self.placement.started(number, home, &spawned) {
                    self.audience.notice(&refused);
                }
                self.counts.running[home] += 1;
                self.audience.started(number, running.pid, &running.command, home);
                self.running.insert(spawned.pid, running);
                Attempt::Runs
            }
            Err(NotStarted::Limited(limit)) => {
                self.free_slots.insert(slot);
                self.printer.discard(number);
                Attempt::Limited(limit)
            }
            Err(NotStarted::Failed(status, why)) => {
                self.audience.notice(&why);
                self.counts.running[home] += 1;
                // SAFETY: validity: numbers, for which zeros are a value. Aliasing and thread: a local.
                let usage = unsafe { std::mem::zeroed() };
                self.job_ended(running, Child::Exited(status.into()), &usage);
                Attempt::Runs
            }
        }
    }

    fn spawn(
        &mut self,
        job: &Job,
        words: &[Vec<u8>],
        (home, slot): (usize, usize),
        pipes: Option<&[PipeWriter; 2]>,
    ) -> Result<Spawned, NotStarted> {
        let failed = |error: NoProgram| NotStarted::Failed(error.exit_status(), error.to_string());
        let found;
        let program = if let (Some(program), None) = (&self.program, &job.template) {
            program
        } else {
            found = find(words.first().map_or(b"", Vec::as_slice), self.path.as_deref());
            &found.map_err(failed)?
        };
        let arguments = words.iter().map(|word| CString::new(word.as_slice()));
        let arguments: Vec<CString> = arguments.collect::<Result<_, _>>().map_err(|_| {
            let text = "an input contains a zero byte, which an argument cannot have; use --null if inputs end with zero bytes";
            NotStarted::Failed(126, text.to_owned())
        })?;
        let files: [Option<BorrowedFd<'_>>; 2] = match pipes {
            Some(pipes) => [Some(pipes[0].as_fd()), Some(pipes[1].as_fd())],
            None => [self.error.as_ref().map(OwnedFd::as_fd), None],
        };
        let own_environment;
        let shared = &self.environments[(slot - 1) % self.environments.len()];
        let environment = if job.variables.is_empty() {
            shared
        } else {
            own_environment = with_variables(shared, &job.variables);
            &own_environment
        };
        let spec = ProcessSpec {
            program,
            arguments: &arguments,
            environment,
            files: [Some(self.input.as_fd()), files[0], files[1]],
            own_group: !self.tty,
            parent_death_signal: Some(libc::SIGKILL),
            affinity: self.placement.cpus(home),
            memory: self.placement.memory(home),
        };
        let result = match self.spawner.spawn(&spec) {
            // A script that does not name its interpreter: a shell runs it, as for `execvp`.
            Err(NotSpawned::NotExecuted(refused)) if refused.errno() == libc::ENOEXEC => {
                let begin = [c"sh".to_owned(), program.clone()];
                let arguments = begin.into_iter().chain(arguments.iter().skip(1).cloned());
                let arguments: Vec<CString> = arguments.collect();
                let shell = ProcessSpec { program: c"/bin/sh", arguments: &arguments, ..spec };
                self.spawner.spawn(&shell)
            }
            result => result,
        };
        result.map_err(|error| {
            let errno = error.refused().errno();
            let text = error.refused().to_string();
            match (error, errno) {
                (NotSpawned::NoProcess(_), libc::EAGAIN | libc::ENOMEM)
                | (NotSpawned::NotExecuted(_), libc::EAGAIN | libc::ENOMEM | libc::ENFILE) => {
                    NotStarted::Limited(Limit { text, is_own_limit: false })
                }
                (NotSpawned::NotExecuted(_), libc::ENOENT) => NotStarted::Failed(127, text),
                (NotSpawned::NotExecuted(_), libc::E2BIG) => NotStarted::Failed(
                    126,
                    format!(
                        "{text}; an argument may have at most {} bytes, all arguments together {} (ulimit -s)",
                        argument_space::longest(),
                        argument_space::for_arguments()
                    ),
                ),
                _ => NotStarted::Failed(126, text),
            }
        })
    }

    fn take_slot(&mut self, number: u64) -> usize {
        if self.own_slots {
            return number as usize;
        }
        self.free_slots.pop_first().unwrap_or_else(|| {
            self.highest_slot += 1;
            self.highest_slot
        })
    }
}

/// An environment with a job's own variables in place of those of the same names: a program finds the first of several.
fn with_variables(shared: &[CString], own: &[CString]) -> Vec<CString> {
    fn name(variable: &CString) -> Option<&[u8]> {
        variable.to_bytes().split(|&byte| byte == b'=').next()
    }
    let is_own = |variable: &&CString| own.iter().any(|other| name(other) == name(variable));
    shared.iter().filter(|variable| !is_own(variable)).chain(own).cloned().collect()
}

impl Limit {
    fn of(error: &io::Error, what: &str) -> Self {
        let is_own_limit = error.raw_os_error() == Some(libc::EMFILE);
        Self { text: format!("{what}: {}", named(error)), is_own_limit }
    }
}

/// Whether the error is that of a limit, under which the same call may succeed later.
fn is_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// The error, with the name of the limit that caused it.
pub(super) fn named(error: &io::Error) -> String {
    let limit = match error.raw_os_error() {
        Some(libc::EMFILE) => {
            "; each running job needs two, and two more while it starts: raise ulimit -n, or use --ungroup"
        }
        Some(libc::ENFILE) => "; the machine's limit is reached: see /proc/sys/fs/file-max",
        Some(libc::ENOMEM) => "; see memory.max of the control group, or the machine's memory",
        Some(libc::ENOSPC) => "; see /proc/sys/fs/epoll/max_user_watches",
        _ => "",
    };
    format!("{error}{limit}")
}

/// The environment of jobs in a slot: the caller's environment, the slot's own variables, and the mark of this run.
pub(super) fn environment(value: &str, own: &[(OsString, OsString)]) -> Vec<CString> {
    let entry = |name: &[u8], value: &[u8]| CString::new([name, b"=", value].concat()).ok();
    let is_own = |name: &OsString| {
        name == orphan_reaper::VARIABLE || own.iter().any(|(other, _)| other == name)
    };
    let inherited = std::env::vars_os().filter(|(name, _)| !is_own(name));
    let inherited = inherited.chain(own.iter().cloned());
    let inherited = inherited.filter_map(|(name, value)| entry(name.as_bytes(), value.as_bytes()));
    inherited.chain(entry(orphan_reaper::VARIABLE.as_bytes(), value.as_bytes())).collect()
}

//! Starting one job: its place, its words, its program, its files, its process.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Instant, SystemTime};

use libc::c_int;
use nearq_platform::{NotSpawned, ProcessSpec, Spawned};

use super::Engine;
use crate::jobs::find::{NoProgram, find};
use crate::jobs::guard;
use crate::jobs::input::Group;
use crate::jobs::output::{Kept, Order};
use crate::jobs::running::Running;

/// What became of an attempt.
pub(super) enum Attempt {
    Runs,
    /// There is a limit, in words.
    Limited(String),
}

/// Why a job does not run.
enum NotStarted {
    /// It can be tried again.
    Limited(String),
    /// It counts as failed, with this exit status.
    Failed(u8, String),
}

impl Engine<'_> {
    pub(super) fn start(&mut self, number: u64, inputs: &Group) -> Attempt {
        let place = self.take_place();
        let words = self.template.expand(inputs, number, place);
        let command = self.template.show(inputs, number, place);
        let home = self.placement.choose();
        let kept = match self.order {
            Order::None => None,
            _ => match Kept::new() {
                Ok(kept) => Some(kept),
                Err(error) => {
                    self.free_places.insert(place);
                    return Attempt::Limited(format!(
                        "no file for a job's output can be made: {error} (ulimit -n, or --ungroup)"
                    ));
                }
            },
        };
        let started_at = SystemTime::now();
        let started = Instant::now();
        let spawned = self.spawn(&words, home, kept.as_ref());
        let mut job = Running {
            number,
            place,
            command,
            pid: 0,
            started,
            started_at,
            kept,
            home,
            stopped: false,
            too_long: false,
        };
        match spawned {
            Ok(spawned) => {
                job.pid = spawned.pid;
                if let Some(refused) = self.placement.started(number, home, &spawned) {
                    self.audience.notice(&refused);
                }
                if job.kept.is_some() {
                    self.budget.started();
                }
                self.counts.running[home] += 1;
                self.audience.started(number, job.pid, &job.command, home);
                self.running.insert(spawned.pid, job);
                Attempt::Runs
            }
            Err(NotStarted::Limited(why)) => {
                self.free_places.insert(place);
                Attempt::Limited(why)
            }
            Err(NotStarted::Failed(status, why)) => {
                self.audience.notice(&why);
                self.counts.running[home] += 1;
                // SAFETY: validity: numbers, for which zeros are a value. Aliasing and thread: a local.
                let usage = unsafe { std::mem::zeroed() };
                self.job_ended(job, c_int::from(status) << 8, &usage);
                Attempt::Runs
            }
        }
    }

    fn spawn(
        &mut self,
        words: &[Vec<u8>],
        home: usize,
        kept: Option<&Kept>,
    ) -> Result<Spawned, NotStarted> {
        let failed = |error: NoProgram| NotStarted::Failed(error.exit_status(), error.to_string());
        let found;
        let program = if let Some(program) = &self.program {
            program
        } else {
            found = find(words.first().map_or(b"", Vec::as_slice), self.path.as_deref());
            &found.map_err(failed)?
        };
        let arguments = words.iter().map(|word| CString::new(word.as_slice()));
        let arguments: Vec<CString> = arguments.collect::<Result<_, _>>().map_err(|_| {
            let text = "an input has a zero byte in it, which no argument can have; --null ends inputs by it";
            NotStarted::Failed(126, text.to_owned())
        })?;
        let files: [Option<BorrowedFd<'_>>; 2] = match kept {
            Some(kept) => [Some(kept.files[0].as_fd()), Some(kept.files[1].as_fd())],
            None => [self.error.as_ref().map(OwnedFd::as_fd), None],
        };
        let spec = ProcessSpec {
            program,
            arguments: &arguments,
            environment: &self.environment,
            files: [Some(self.null.as_fd()), files[0], files[1]],
            own_group: true,
            parent_death_signal: Some(libc::SIGKILL),
            affinity: self.placement.cpus(home),
            memory: self.placement.memory(home),
        };
        let result = match self.spawner.spawn(&spec) {
            // A script that does not say what runs it: a shell does, as for `execvp`.
            Err(NotSpawned::NotExecuted(refused)) if refused.errno() == libc::ENOEXEC => {
                let begin = [c"sh".to_owned(), program.clone()];
                let arguments = begin.into_iter().chain(arguments.iter().skip(1).cloned());
                let arguments: Vec<CString> = arguments.collect();
                let shell = ProcessSpec { program: c"/bin/sh", arguments: &arguments, ..spec };
                self.spawner.spawn(&shell)
            }
            result => result,
        };
        result.map_err(|error| match error {
            NotSpawned::NoProcess(refused)
                if [libc::EAGAIN, libc::ENOMEM].contains(&refused.errno()) =>
            {
                NotStarted::Limited(refused.to_string())
            }
            NotSpawned::NotExecuted(refused) if refused.errno() == libc::ENOENT => {
                NotStarted::Failed(127, refused.to_string())
            }
            error => NotStarted::Failed(126, error.to_string()),
        })
    }

    fn take_place(&mut self) -> usize {
        self.free_places.pop_first().unwrap_or_else(|| {
            self.highest_place += 1;
            self.highest_place
        })
    }
}

/// What jobs find in their environment: the caller's, and the mark of this run.
pub(super) fn environment(value: &str) -> Vec<CString> {
    let entry = |name: &[u8], value: &[u8]| CString::new([name, b"=", value].concat()).ok();
    let own = std::env::vars_os().filter(|(name, _)| name != guard::VARIABLE);
    let own = own.filter_map(|(name, value)| entry(name.as_bytes(), value.as_bytes()));
    own.chain(entry(guard::VARIABLE.as_bytes(), value.as_bytes())).collect()
}

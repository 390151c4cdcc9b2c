//! Where jobs come from, and who is told what becomes of them: the two ends of the engine.
//!
//! The engine asks a source for the next job when it has a place for it, polls the source's descriptor while nothing else happens, and tells
//! the source how each job ends. [`Inputs`](super::Inputs), the jobs of a command line, is a source that need not be told anything. A
//! queue on another machine is one that must be: it gives a job to somebody else unless it hears in time that the job is alive, and
//! forgets it only when it has heard that it is done.
//!
//! What holds for every job that [`Source::take`] has returned: the engine calls exactly one of [`Source::ended`] and
//! [`Source::give_back`] for it, in the end: when the job has ended and what it printed is printed here. Between the two, the job's number
//! is in every call of [`Source::alive`], except while its first process is stopped.

use std::ffi::CString;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::input::Group;
use super::report::Report;
use super::template::Template;

/// A job that can be started.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its number, from 1; no other job of the run has it.
    pub number: u64,
    /// Its inputs.
    pub inputs: Group,
    /// Its own command; if it has none, it has that of the run.
    pub template: Option<Template>,
    /// `NAME=VALUE`: what it has in its environment besides what all jobs have.
    pub variables: Vec<CString>,
}

impl Job {
    /// A job of the run's command.
    pub fn of(number: u64, inputs: Group) -> Self {
        Self { number, inputs, template: None, variables: Vec::new() }
    }
}

/// What a source asks of the engine besides starting its jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// How often [`Source::alive`] is called.
    pub beat: Option<Duration>,
    /// How many bytes of the end of a job's standard output and standard error are kept for [`Source::ended`].
    pub ends: [usize; 2],
    /// Whether the first signal that ends a run lets running jobs finish, and only the second one ends them.
    pub drains: bool,
}

/// Gives the engine jobs, and is told about them.
pub trait Source {
    /// Called once, before anything else, when signals belong to the engine: threads that the source starts now have them blocked. A source
    /// that takes long must ask [`is_asked_to_end`](super::is_asked_to_end).
    ///
    /// # Errors
    /// There is no source, in words. Nothing has run.
    fn begin(&mut self) -> Result<Needs, String> {
        Ok(Needs::default())
    }

    /// The next job, if there is one now. The engine has `places` places in which jobs could start, so the source need not have more jobs
    /// than that at hand.
    fn take(&mut self, places: usize) -> Option<Job>;

    /// How many jobs are left as far as is known, and whether that number is final.
    fn left(&self) -> (u64, bool);

    /// Whether no job is left and none can come any more. After a [`take`](Self::take) that returned nothing, the answer is exact.
    fn is_over(&self) -> bool;

    /// The descriptor to poll, if [`fill`](Self::fill) has something to do when it is readable. `jobs`: whether more jobs are wanted.
    fn wanted(&self, jobs: bool) -> Option<BorrowedFd<'_>>;

    /// Takes in what has arrived. Called only when the descriptor is readable; otherwise it may block.
    ///
    /// # Errors
    /// Why no more jobs come, in words.
    fn fill(&mut self) -> Result<(), String>;

    /// A job has ended, and does not run again here. `ends`: the end of what it has printed, as [`Needs::ends`] asks. If the report says
    /// that it was stopped, it has neither succeeded nor failed.
    fn ended(&mut self, _report: &Report, _ends: [Vec<u8>; 2]) {}

    /// A job that was taken does not run, because the run ends; or it has run, and its output cannot be printed or stored.
    fn give_back(&mut self, _number: u64) {}

    /// These jobs have been taken, have not ended, and are not stopped.
    fn alive(&mut self, _numbers: &[u64]) {}

    /// No job is taken any more.
    fn stop(&mut self) {}

    /// How many jobs have been taken whose end is not known yet to everybody who must know it. The run does not end before.
    fn unsettled(&self) -> usize {
        0
    }

    /// Lines for the user; asked for after [`begin`](Self::begin) and [`fill`](Self::fill).
    fn notices(&mut self) -> Vec<String> {
        Vec::new()
    }
}

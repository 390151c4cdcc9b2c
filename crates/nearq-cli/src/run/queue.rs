//! `--from`: jobs from a queue on a server in place of those of the command line.

#[cfg(feature = "fleet")]
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use clap::Args;
use nearq_processes::jobs::Source;
#[cfg(feature = "fleet")]
use nearq_processes::jobs::Template;

use super::Options;
use crate::fleet::{Connection, time};
use crate::output::Failure;

/// Where jobs come from, and what is done with those that fail.
#[derive(Args, Debug)]
#[command(next_help_heading = "Jobs from a queue (docs/fleet.md)")]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "they are parsed, and then refused"))]
pub(super) struct QueueOptions {
    /// Take jobs from a stream of NATS JetStream, such as nats://host:4222, until a signal comes; each runs at least once, on any machine
    #[arg(long, value_name = "URL", requires_all = ["stream", "consumer"], conflicts_with_all = ["tree", "input", "null", "delimiter", "no_run_if_empty", "replace", "tty", "keep_order", "resume", "resume_failed", "retry_failed", "retries", "dry_run"])]
    pub(super) from: Option<String>,

    /// The stream that keeps the jobs
    #[arg(long, value_name = "NAME", requires = "from")]
    stream: Option<String>,

    /// The consumer by which workers share the jobs: those with the same name do the same work. It is made if there is none
    #[arg(long, value_name = "NAME", requires = "from")]
    consumer: Option<String>,

    /// End when the stream has no jobs left, rather than wait for more
    #[arg(long, requires = "from")]
    until_empty: bool,

    /// Give up a job that fails after N deliveries or more, or that is delivered again after 2N deliveries whose outcome was never reported;
    /// needs --dead. By default jobs are tried for ever
    #[arg(long, value_name = "N", requires_all = ["from", "dead"], value_parser = clap::value_parser!(u64).range(1..))]
    tries: Option<u64>,

    /// Publish jobs that are given up, and messages that are no jobs, to this subject, with the reason and the end of standard error
    #[arg(long, value_name = "SUBJECT", requires = "from")]
    dead: Option<String>,

    /// Give up a job at once if it exits with this status; several with commas between them. Needs --dead
    #[arg(long, value_name = "STATUS", requires_all = ["from", "dead"], value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..))]
    dead_on: Vec<u8>,

    /// How long until a job that has failed is tried again; twice as long each time, and ten minutes at most
    #[arg(long, value_name = "TIME", requires = "from", default_value = "1s", value_parser = time)]
    backoff: Duration,

    /// Publish the standard output of each job that succeeds to this subject, at most its last 256 KiB
    #[arg(long, value_name = "SUBJECT", requires = "from")]
    publish: Option<String>,

    /// How long a worker may be silent until its jobs are given to others, if the consumer is made now
    #[arg(long, value_name = "TIME", requires = "from", default_value = "30s", value_parser = time)]
    ack_wait: Duration,

    #[command(flatten)]
    connection: Connection,
}

/// A queue, ready for the engine.
pub(super) struct Queue {
    pub(super) source: Box<dyn Source>,
    /// How many jobs were given up; counted until the run is over.
    pub(super) dead: Box<dyn Fn() -> u64>,
}

impl Options {
    /// The queue, if jobs come from one; `width` of them run at a time.
    pub(super) fn queue(&self, width: usize) -> Result<Option<Queue>, Failure> {
        let Some(from) = &self.queue.from else { return Ok(None) };
        if self.command.iter().any(|word| word == ":::") {
            return Err(Failure::input(
                "--from and `:::`: the inputs come from the queue; leave out one of the two",
            ));
        }
        if width == usize::MAX {
            return Err(Failure::input(
                "--from and --jobs 0: this worker would take all jobs of the queue; give a number, or a share of the CPUs such as 100%",
            ));
        }
        for (option, given) in
            [("--publish", self.queue.publish.is_some()), ("--dead", self.queue.dead.is_some())]
        {
            if given {
                self.refuse_direct_output(option)?;
            }
        }
        self.open_queue(from, width).map(Some)
    }

    #[cfg(not(feature = "fleet"))]
    #[allow(clippy::unnecessary_wraps, reason = "the other one succeeds")]
    fn open_queue(&self, _from: &str, _width: usize) -> Result<Queue, Failure> {
        Err(crate::fleet::missing("--from", &self.queue))
    }

    #[cfg(feature = "fleet")]
    #[allow(clippy::unnecessary_wraps, reason = "the other one fails")]
    fn open_queue(&self, from: &str, places: usize) -> Result<Queue, Failure> {
        let queue = &self.queue;
        let words: Vec<_> = self.command.iter().map(|word| word.as_bytes()).collect();
        let fleet = nearq_fleet::Fleet::new(nearq_fleet::Plan {
            server: queue.connection.server(from),
            stream: queue.stream.clone().unwrap_or_default(),
            consumer: queue.consumer.clone().unwrap_or_default(),
            ack_wait: queue.ack_wait,
            tries: queue.tries,
            backoff: queue.backoff,
            dead: queue.dead.clone(),
            dead_on: queue.dead_on.clone(),
            results: queue.publish.clone(),
            until_empty: queue.until_empty,
            inputs: (!self.command.is_empty()).then(|| Template::named_inputs(&words)),
            places,
        });
        let tally = fleet.tally();
        Ok(Queue { source: Box::new(fleet), dead: Box::new(move || tally.dead()) })
    }
}

//! Jobs on other machines, by NATS JetStream: `nearq submit` puts jobs into a stream, `nearq jobs` says how many are where; `nearq run
//! --from` runs them (`run/queue`).
//!
//! `nearq-fleet` does the work. It is behind the feature `fleet`; without it, these commands say how to get it.

#![allow(clippy::disallowed_types, reason = "a Linux program")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::output::Failure;

#[cfg(feature = "fleet")]
mod board;
#[cfg(feature = "fleet")]
mod submit;

/// How to connect.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Credentials for the server, as `nsc generate creds` writes them; a user and password can be in the address
    #[arg(long, value_name = "FILE")]
    creds: Option<PathBuf>,

    /// Certificates of the authorities to trust, besides those of the system; the connection then has TLS, as with tls:// in the address
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// The certificate to show to the server
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

#[cfg(feature = "fleet")]
impl Connection {
    pub(crate) fn server(&self, url: &str) -> nearq_fleet::Server {
        nearq_fleet::Server {
            url: url.to_owned(),
            credentials: self.creds.clone(),
            authorities: self.ca.clone(),
            certificate: self.cert.clone().zip(self.key.clone()),
        }
    }
}

const SUBMIT_MORE: &str = "\
Each line is the input of a job, as for `nearq run`. With --objects each line is a JSON
object: `input`, a text or a list of texts; and, if they are wanted, `command`, a list of
words with placeholders; `priority`, which is high, normal or low; and `deadline`, a time
such as 2030-01-01T00:00:00Z or seconds since 1970, after which the job does not start.

The jobs are in the stream when this command has ended with 0. If it could not submit all
of them, it says how many. With --id they can all be submitted again, also with lines added
or left out: within its duplicate window (an hour if --create made it), a stream keeps each
once. While the server is away, this command waits for up to ten minutes.

--create makes the stream of jobs, with a subject for each priority, and the streams
NAME-dead and NAME-results with the subjects NAME.dead and NAME.results, on one server and
in files. `nats stream edit` changes them.

Examples:
  ls | nearq submit --to nats://q:4222 --stream JOBS --create
  nearq submit --to nats://q:4222 --stream JOBS --input files --id monday
  nearq submit --to tls://q:4222 --creds me.creds --stream JOBS --objects --input jobs.jsonl";

/// The arguments of `nearq submit`.
#[derive(Args, Debug)]
#[command(after_help = SUBMIT_MORE)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "they are parsed, and then refused"))]
pub(crate) struct SubmitOptions {
    /// The server, such as nats://host:4222; several with commas between them
    #[arg(long, value_name = "URL")]
    to: String,

    /// The stream that keeps the jobs
    #[arg(long, value_name = "NAME")]
    stream: String,

    /// Make the stream, and those of its dead letters and results, if they do not exist
    #[arg(long)]
    create: bool,

    /// Where inputs come from: a file, or - for standard input
    #[arg(short = 'a', long, value_name = "FILE|-", default_value = "-")]
    input: PathBuf,

    /// Inputs end with a zero byte instead of a newline
    #[arg(short = '0', long, conflicts_with = "objects")]
    null: bool,

    /// Each line is a JSON object with the fields input, command, priority and deadline
    #[arg(long)]
    objects: bool,

    /// The priority of jobs that do not have their own: high, normal or low
    #[arg(long, value_name = "PRIORITY", value_parser = ["high", "normal", "low"], hide_possible_values = true)]
    priority: Option<String>,

    /// The subject to publish to, if the stream keeps several
    #[arg(long, value_name = "SUBJECT", conflicts_with = "priority")]
    subject: Option<String>,

    /// A name for these jobs: submitted again with the same name, each is kept once
    #[arg(long, value_name = "NAME")]
    id: Option<String>,

    #[command(flatten)]
    connection: Connection,
}

const JOBS_MORE: &str = "\
First line: the jobs that are left in the stream; `ended`, those that are done, dead or
removed; `dead`, the dead letters, or `-` (in --json null) if no stream keeps them.
Columns of consumers, and their names in the objects `queues` of --json:
  CONSUMER  consumer  its name; with priorities there is one for each
  WAITING   waiting   jobs that were not delivered to any worker
  OUT       out       jobs that a worker has, or that have failed and wait for their next try
  AGAIN     again     of those, the ones that were delivered more than once
Columns of workers, and their names in the objects `workers` of --json:
  HOST      host      the machine
  PID       pid       the process of its `nearq run`
  CONSUMER  consumer  the consumer that it was started with
  SLOTS     slots     how many jobs it runs at a time
  JOBS      running   how many it has now; in the JSON each with its sequence in the stream
  OLDEST              how long it has had the oldest of them, in seconds; in the JSON each
                      job has its `seconds`
  STATE     drains    `takes`, or `drains` if it takes no more jobs; in the JSON true then

Workers are asked. Answers are awaited until none has come for a quarter of a second, 1.5 s
at most; workers that answer later are not listed.

Examples:
  nearq jobs --of nats://q:4222 --stream JOBS --watch
  nearq jobs --of nats://q:4222 --stream JOBS --json | jq '.workers[].host'";

/// The arguments of `nearq jobs`.
#[derive(Args, Debug)]
#[command(after_help = JOBS_MORE)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "they are parsed, and then refused"))]
pub(crate) struct BoardOptions {
    /// The server, such as nats://host:4222; several with commas between them
    #[arg(long, value_name = "URL")]
    of: String,

    /// The stream that keeps the jobs
    #[arg(long, value_name = "NAME")]
    stream: String,

    /// The subject of dead letters [default: NAME.dead]
    #[arg(long, value_name = "SUBJECT")]
    dead: Option<String>,

    /// Repeat every two seconds
    #[arg(long)]
    watch: bool,

    /// Print an object; with --watch, one for each repetition
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

/// Runs `nearq submit`.
pub(crate) fn submit(options: &SubmitOptions) -> Result<(), Failure> {
    #[cfg(feature = "fleet")]
    return submit::run(options);
    #[cfg(not(feature = "fleet"))]
    Err(missing("nearq submit", options))
}

/// Runs `nearq jobs`.
pub(crate) fn board(options: &BoardOptions) -> Result<(), Failure> {
    #[cfg(feature = "fleet")]
    return board::run(options);
    #[cfg(not(feature = "fleet"))]
    Err(missing("nearq jobs", options))
}

/// The refusal of a program without queues.
#[cfg(not(feature = "fleet"))]
pub(crate) fn missing(command: &str, _options: &impl std::fmt::Debug) -> Failure {
    Failure::input(format!(
        "{command}: this nearq was built without queues of NATS; install a package of nearq, or build it with a C compiler: in a checkout, `cargo install --locked --path crates/nearq-cli --features fleet`"
    ))
}

/// How long a job may be silent, and the like: a time that is not zero.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = crate::run::delay(text)?;
    if time.is_zero() { Err("give a time longer than zero".into()) } else { Ok(time) }
}

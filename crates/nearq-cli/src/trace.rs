//! `nearq trace`: what happens to the items of a process, as it happens; on the terminal, as JSON, or into a file that Perfetto
//! opens.
//!
//! ```text
//!   the process ──► reader (a thread) ──► messages, at most MOST_UNREAD ──► session: names, lines or file, counts
//!   a signal    ──► signals (a thread) ──────┘
//! ```
//! Who waits for messages also knows the time limit. Where the session is too slow, the reader waits, then the process's buffer is
//! full, and it is the process that leaves events out and counts them: nothing grows here.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

mod chrome;
mod file;
mod lines;
mod names;
mod objects;
mod session;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use clap::Args;
use nearq_command::{arguments, signals, threads};
use nearq_control::client::{ClientError, Replies};
use nearq_control::protocol::{self, GetProcess, TraceBatch};

use crate::attach;
use crate::output::Failure;
use file::TraceFile;
use session::{Ended, Output, Session};

/// Batches that wait for being shown, at most: half a second of as many events as a process tells, in some ten megabytes.
const MOST_UNREAD: usize = 32;

const LEGEND: &str = "\
Columns:
  time      seconds since the first event that is shown
  CPU       of a queueing, the CPU that queued the item; else the one that runs it
  thread    the worker; none of a queueing
  queue     the queue's name
  event     queue: the item was queued; start: its function begins; end: its function has ended
  took      wait: from queueing to start; run: from start to end
  function  the item's function; of a long name, the end

A line that begins with `--` says that events were lost, or what share of the items is reported. The process reports some
20,000 items a second at most, to all its observers together; which ones is decided when they are queued. With
--every N it is at most one item in N.

--json prints an object a line: at_ns (of CLOCK_MONOTONIC), event, queue, queue_id, item (a number that the events of an item
share), function, cpu, thread, thread_name, pool, wait_ns of a start, run_ns of an end; and {\"event\":\"share\"} with dropped (events
lost so far) and every (one item of so many is told), where that changes.

--output writes a file in the Trace Event Format, for https://ui.perfetto.dev and chrome://tracing: a track a worker, with an item's
function as a slice; a track a queue, with the waits from queueing to start; and counters for what was lost. The file is whole at any
time, so the trace may be ended in any way.

The trace ends with Ctrl-C, SIGTERM, --seconds, --items, or the process.

Examples:
  nearq trace 4711
  nearq trace 4711 crypt --items 20
  nearq trace 4711 --seconds 5 --output trace.json
  nearq trace 4711 --json | jq 'select(.wait_ns > 1000000)'

Exit status: 0; 1 if the process ended the trace; 2 for invalid input.";

/// The arguments of `nearq trace`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The process; `nearq ps` lists those that there are
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: u32,

    /// Only this queue: its name, or # and its number; all queues if not given
    #[arg(value_name = "QUEUE")]
    queue: Option<String>,

    /// Report at most one item in N, a power of two: 1, 2, 4, ...
    #[arg(long, value_name = "N", value_parser = power, allow_negative_numbers = true)]
    every: Option<u32>,

    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,

    /// End when so many items have ended
    #[arg(long, value_name = "N", value_parser = some, allow_negative_numbers = true)]
    items: Option<u64>,

    /// Write a file for Perfetto, instead of lines
    #[arg(long, value_name = "FILE.json")]
    output: Option<PathBuf>,

    /// Print JSON, one object a line
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// What the session is told.
enum Message {
    Batch(TraceBatch),
    /// The trace has come to an end at the other side, or failed.
    Over(Option<ClientError>),
    /// Somebody wants it to end.
    Signal,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut client = attach::connect(options.pid)?;
    let process = client.call(&GetProcess {}).map_err(attach::failure)?.process;
    let output = match &options.output {
        Some(path) => Output::file(TraceFile::open(path, options.pid, &process.command)?),
        None if options.json => Output::Objects,
        None => Output::lines(),
    };
    let mut session = Session::new(options.pid, output, options.items);
    let (sender, messages) = sync_channel(MOST_UNREAD);
    let interrupts = sender.clone();
    let asked = Arc::new(AtomicBool::new(false));
    let by_signal = Arc::clone(&asked);
    signals::on_first(move |_, _| {
        // Before all batches that wait. Relaxed: a flag by itself.
        by_signal.store(true, Ordering::Relaxed);
        // It wakes a thread that waits for a batch; where there are some, that one need not be woken.
        let _ = interrupts.try_send(Message::Signal);
    })?;
    let wanted = protocol::Trace { queue: options.queue.clone(), every: options.every };
    read(client.stream(&wanted).map_err(attach::failure)?, sender)?;
    let deadline = options.seconds.map(|seconds| Instant::now() + seconds);
    let ended = loop {
        let message = next(&messages, deadline);
        // Relaxed: a flag by itself.
        if asked.load(Ordering::Relaxed) {
            break Ended::Asked;
        }
        match message {
            None | Some(Message::Signal) => break Ended::Asked,
            Some(Message::Batch(batch)) => {
                if let Some(ended) = session.batch(batch)? {
                    break ended;
                }
            }
            Some(Message::Over(Some(error @ ClientError::Refused(_)))) => {
                return Err(attach::failure(error));
            }
            Some(Message::Over(error)) => break Ended::Lost(error),
        }
    };
    session.finish(ended)
}

/// Reads batches on a thread of its own, as a read cannot be told to look at the clock or at signals.
fn read(replies: Replies<protocol::Trace>, sender: SyncSender<Message>) -> Result<(), Failure> {
    let read = move || {
        for reply in replies {
            let (message, over) = match reply {
                Ok(batch) => (Message::Batch(batch), false),
                Err(error) => (Message::Over(Some(error)), true),
            };
            if sender.send(message).is_err() || over {
                return;
            }
        }
        // Where nobody listens any more, nobody misses it.
        let _ = sender.send(Message::Over(None));
    };
    threads::start("reader", read)
}

/// The next message; none when the time is over.
fn next(messages: &Receiver<Message>, deadline: Option<Instant>) -> Option<Message> {
    let received = match deadline {
        None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
        Some(deadline) => match deadline.saturating_duration_since(Instant::now()) {
            // Also where there are messages all the time.
            Duration::ZERO => return None,
            left => messages.recv_timeout(left),
        },
    };
    match received {
        Ok(message) => Some(message),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Message::Over(None)),
    }
}

fn power(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number: &u32| number.is_power_of_two());
    number.ok_or_else(|| "give a power of two: 1, 2, 4, ...".into())
}

fn some(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "give a whole number, 1 or more".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    arguments::seconds(text, [0.01, 1e6])
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::MOST_SAMPLES_PER_SECOND;

    #[test]
    fn the_time_is_over_however_many_messages_there_are() {
        let (sender, messages) = sync_channel(1);
        sender.send(Message::Batch(TraceBatch::default())).unwrap();
        assert!(next(&messages, Some(Instant::now())).is_none());
        assert!(next(&messages, None).is_some());
    }

    #[test]
    fn the_help_says_how_many_are_told() {
        assert_eq!(MOST_SAMPLES_PER_SECOND, 20_000);
        assert!(LEGEND.contains("20,000 items a second"));
    }
}

//! `nearq trace`: prints what happens to the items of a process, as it happens: on the terminal, as JSON, or to a file for Perfetto.
//!
//! ```text
//!   the process ──► reader (a thread) ──► messages, at most MOST_UNREAD ──► session: names, lines or file, counts
//!   a signal    ──► signals (a thread) ──────┘
//! ```
//! The thread that waits for messages also enforces the time limit. If the session is too slow, the reader waits. Then the process's buffer
//! fills up, and the process drops events and counts them. So memory use does not grow here.

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

/// How many batches may wait to be shown: half a second of events at the highest rate of a process, in some ten megabytes.
const MOST_UNREAD: usize = 32;

const LEGEND: &str = "\
Columns:
  time      seconds since the first event shown
  CPU       the CPU that runs the item; for a queue event, the CPU that queued it
  thread    the worker; none for a queue event
  queue     the queue's name
  event     queue: the item was queued; start: its function starts; end: its function has returned
  took      wait: from queueing to start; run: from start to end
  function  the item's function; a long name is cut at its beginning

A line that begins with `--` says that events were lost, or what share of the items is reported. A process reports at most some
20,000 items a second, to all its observers together; it chooses them when they are queued. With --every N it reports at most
one item in N.

--json prints one object a line: at_ns (of CLOCK_MONOTONIC), event, queue, queue_id, item (a number that the events of an item
share), function, cpu, thread, thread_name, pool, wait_ns for a start, run_ns for an end. {\"event\":\"share\"}
comes whenever the share changes, with dropped (events lost so far) and every (one item of so many is reported).

--output writes a file in the Trace Event Format, for https://ui.perfetto.dev and chrome://tracing: a track for each worker, with
the items' functions as slices; a track for each queue, with the waits from queueing to start; and counters of lost events. The file
is complete at any time, so you may end the trace in any way.

The trace ends with Ctrl-C, SIGTERM, --seconds, --items, or when the process ends.

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
    /// The process; `nearq ps` lists processes
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: u32,

    /// Trace only this queue: its name, or # and its number; all queues if not given
    #[arg(value_name = "QUEUE")]
    queue: Option<String>,

    /// Report at most one item in N, a power of two: 1, 2, 4, ...
    #[arg(long, value_name = "N", value_parser = power, allow_negative_numbers = true)]
    every: Option<u32>,

    /// End after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,

    /// End when this many items have ended
    #[arg(long, value_name = "N", value_parser = positive, allow_negative_numbers = true)]
    items: Option<u64>,

    /// Write a file for Perfetto instead of printing lines
    #[arg(long, value_name = "FILE.json")]
    output: Option<PathBuf>,

    /// Print JSON, one object per line
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// A message to the session.
enum Message {
    Batch(TraceBatch),
    /// The other side has ended the trace, or reading failed.
    Over(Option<ClientError>),
    /// A signal asks the trace to end.
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
        // This takes effect before the batches that wait. Relaxed: nothing else is published with this flag.
        by_signal.store(true, Ordering::Relaxed);
        // The message wakes a thread that waits for a batch; if batches are there, it need not be woken.
        let _ = interrupts.try_send(Message::Signal);
    })?;
    let wanted = protocol::Trace { queue: options.queue.clone(), every: options.every };
    read(client.stream(&wanted).map_err(attach::failure)?, sender)?;
    let deadline = options.seconds.map(|seconds| Instant::now() + seconds);
    let ended = loop {
        let message = next(&messages, deadline);
        // Relaxed: nothing else is published with this flag.
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

/// Reads batches on a thread of its own, because a read ends neither at a time limit nor at a signal that another thread handles.
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
        // If the receiver is gone, the message is not needed.
        let _ = sender.send(Message::Over(None));
    };
    threads::start("reader", read)
}

/// The next message; none when the time is up.
fn next(messages: &Receiver<Message>, deadline: Option<Instant>) -> Option<Message> {
    let received = match deadline {
        None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
        Some(deadline) => match deadline.saturating_duration_since(Instant::now()) {
            // Checked even if messages arrive all the time.
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

fn positive(text: &str) -> Result<u64, String> {
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
    fn pending_messages_do_not_extend_the_time_limit() {
        let (sender, messages) = sync_channel(1);
        sender.send(Message::Batch(TraceBatch::default())).unwrap();
        assert!(next(&messages, Some(Instant::now())).is_none());
        assert!(next(&messages, None).is_some());
    }

    #[test]
    fn the_help_states_the_sampling_limit() {
        assert_eq!(MOST_SAMPLES_PER_SECOND, 20_000);
        assert!(LEGEND.contains("20,000 items a second"));
    }
}

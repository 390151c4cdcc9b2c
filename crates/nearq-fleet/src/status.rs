//! How many jobs are where: what the server counts, and what the workers say they run.

use std::time::Duration;

use async_nats::Client;
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, timeout_at};

use crate::api::{self, ApiError};
use crate::presence::{self, Worker};
use crate::server::{Server, with_refusals};
use crate::streams;

/// How long answers of workers are waited for, in all, and after the last one.
const GATHER: [Duration; 2] = [Duration::from_millis(1500), Duration::from_millis(250)];

/// The state of a stream of jobs.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its name.
    pub stream: String,
    /// The jobs that have not ended.
    pub jobs: u64,
    /// The jobs that are not there any more: done, dead, or removed.
    pub ended: u64,
    /// The dead letters; nothing if no stream keeps them.
    pub dead: Option<u64>,
    /// Its consumers.
    pub queues: Vec<Queue>,
    /// The workers that have answered.
    pub workers: Vec<Worker>,
}

/// A consumer.
#[derive(Clone, Debug, Serialize)]
pub struct Queue {
    /// Its name.
    pub consumer: String,
    /// Jobs that nobody has got.
    pub waiting: u64,
    /// Jobs that a worker has got, or that wait because they have failed.
    pub out: u64,
    /// Of those, the ones that were delivered more than once.
    pub again: u64,
}

/// Why there is no answer.
struct Unanswered {
    why: String,
    /// Whether there may be one later.
    is_passing: bool,
}

impl From<ApiError> for Unanswered {
    fn from(error: ApiError) -> Self {
        Self { why: error.to_string(), is_passing: error.is_passing() }
    }
}

impl From<String> for Unanswered {
    fn from(why: String) -> Self {
        Self { why, is_passing: false }
    }
}

/// Asks for the state of `stream`, whose dead letters go to the subject `dead`, again and again: `show` is called with each answer, and
/// says when to ask next. After the first answer it is also called with the reason, in words, when there is none for now.
///
/// # Errors
/// There is no such stream, or the server does not answer the first time.
pub fn status<E>(
    server: &Server,
    stream: &str,
    dead: &str,
    mut show: impl FnMut(Result<&Status, &str>) -> Result<Option<Duration>, E>,
) -> Result<Result<(), E>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no asynchronous runtime: {error}"))?;
    runtime.block_on(async {
        let (events_to, mut events) = unbounded_channel();
        let client = server.connect(move |event| drop(events_to.send(event))).await?;
        let mut has_answered = false;
        loop {
            let shown = match ask(&client, stream, dead).await {
                Ok(status) => {
                    // Without an answer for want of a permission, something would be missing.
                    let said = with_refusals(String::new(), &mut events);
                    if !said.is_empty() {
                        return Err(format!("{}: not all could be asked{said}", server.shown()));
                    }
                    has_answered = true;
                    show(Ok(&status))
                }
                Err(Unanswered { why, is_passing }) => {
                    let why = with_refusals(format!("{}: {why}", server.shown()), &mut events);
                    if !(has_answered && is_passing) {
                        return Err(why);
                    }
                    show(Err(&why))
                }
            };
            match shown {
                Ok(Some(pause)) => tokio::time::sleep(pause).await,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            }
        }
    })
}

async fn ask(client: &Client, stream: &str, dead: &str) -> Result<Status, Unanswered> {
    streams::check_name("--stream", stream)?;
    let info = api::stream(client, stream).await.map_err(|error| Unanswered {
        why: streams::not_found(stream, &error),
        is_passing: error.is_passing(),
    })?;
    let consumers = api::consumers(client, stream).await?;
    let queues = consumers.into_iter().map(|consumer| Queue {
        waiting: consumer.num_pending,
        out: consumer.num_ack_pending,
        again: consumer.num_redelivered,
        consumer: consumer.name,
    });
    let mut dead_letters = None;
    for name in api::streams_of(client, dead).await? {
        if let Ok(found) = api::stream(client, &name).await {
            dead_letters = Some(dead_letters.unwrap_or(0) + found.state.messages);
        }
    }
    Ok(Status {
        stream: stream.to_owned(),
        jobs: info.state.messages,
        ended: info.state.last_seq.saturating_sub(info.state.messages),
        dead: dead_letters,
        queues: queues.collect(),
        workers: workers(client, stream).await?,
    })
}

/// The workers that answer in time.
async fn workers(client: &Client, stream: &str) -> Result<Vec<Worker>, String> {
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| error.to_string())?;
    let asked = client.publish_with_reply(presence::subject(stream), inbox, "".into()).await;
    asked.map_err(|error| error.to_string())?;
    let mut workers = Vec::new();
    let last = Instant::now() + GATHER[0];
    let mut until = Instant::now() + GATHER[1];
    while let Ok(Some(answer)) = timeout_at(until.min(last), answers.next()).await {
        // The server itself answers if there are no workers.
        if answer.status.is_some() {
            break;
        }
        if let Ok(worker) = serde_json::from_slice::<Worker>(&answer.payload) {
            workers.push(worker);
        }
        until = Instant::now() + GATHER[1];
    }
    workers.sort_by(|a, b| (&a.host, a.pid).cmp(&(&b.host, b.pid)));
    Ok(workers)
}

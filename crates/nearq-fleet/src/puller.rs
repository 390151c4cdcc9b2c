//! Gets jobs: asks a consumer for as many as there are credits, one request at a time.
//!
//! If there is one consumer, a request waits at the server. If there are several consumers, one for each priority, each is asked what it has
//! now, the first one first; while all are empty, they are asked again after a time that grows to [`IDLE`]. The same holds if the run ends
//! with the last job, because then an empty queue must be noticed.
//!
//! A request ends when all of its jobs have come, when the server says so (a message with a status), or after a time of our own: requests
//! are lost with the server or the connection.

use std::time::Duration;

use async_nats::{Client, Message, StatusCode, Subscriber};
use futures_util::StreamExt as _;
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use crate::delivery::Place;
use crate::server::SEND;
use crate::streams::Lanes;

/// How long a request waits at the server.
const WAIT: Duration = Duration::from_secs(30);

/// How much longer than that an answer may take, and how long the next job of a request that does not wait.
const GRACE: Duration = Duration::from_secs(2);

/// How long until an empty queue is asked again, at first and at most.
const IDLE: [Duration; 2] = [Duration::from_millis(25), Duration::from_secs(1)];

/// What has come.
#[derive(Debug)]
pub(crate) enum Pulled {
    /// A job, perhaps.
    Message(Message),
    /// All consumers were empty.
    Empty,
    /// A consumer may be gone: it did not answer as it should. The caller looks. What the server says, if it says something.
    Doubt(String),
    /// A consumer is gone.
    Gone(String),
    /// What was asked for before [`Puller::stop`] has come.
    Stopped,
}

/// A request that has been sent.
#[derive(Debug)]
struct Pull {
    /// The end of the subject of its answers.
    id: u64,
    asked: usize,
    got: usize,
    /// When it is given up.
    until: Instant,
}

#[derive(Debug)]
pub(crate) struct Puller {
    client: Client,
    lanes: Lanes,
    /// Whether requests wait at the server.
    waits: bool,
    inbox: String,
    answers: Subscriber,
    /// The consumer that is asked now or next.
    lane: usize,
    pull: Option<Pull>,
    next_id: u64,
    /// Before that, nothing is asked.
    rest: Option<Instant>,
    idle: Duration,
    is_stopped: bool,
    is_connected: bool,
}

impl Puller {
    /// `until_empty`: whether an empty queue must be noticed.
    pub(crate) async fn new(
        client: &Client,
        lanes: Lanes,
        until_empty: bool,
    ) -> Result<Self, String> {
        let inbox = client.new_inbox();
        let answers = client.subscribe(format!("{inbox}.*")).await;
        Ok(Self {
            client: client.clone(),
            waits: lanes.consumers.len() == 1 && !until_empty,
            lanes,
            answers: answers.map_err(|error| error.to_string())?,
            inbox,
            lane: 0,
            pull: None,
            next_id: 0,
            rest: None,
            idle: IDLE[0],
            is_stopped: false,
            is_connected: true,
        })
    }

    /// The connection was lost, or is there again: requests are lost with it.
    pub(crate) fn connected(&mut self, is_connected: bool) {
        self.is_connected = is_connected;
        self.pull = None;
        self.lane = 0;
        self.rest = None;
    }

    /// Asks for nothing more. What has been asked for still comes, up to [`Pulled::Stopped`].
    pub(crate) async fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_stopped, true) {
            // If the connection is lost, nothing comes.
            let _ = timeout(SEND, self.answers.drain()).await;
        }
    }

    /// What comes next, if `wanted` jobs are wanted. Can be dropped at any time without losing anything.
    pub(crate) async fn next(&mut self, wanted: usize) -> Pulled {
        loop {
            if self.is_stopped {
                return match self.answers.next().await {
                    Some(message) if status_of(&message).is_none() => Pulled::Message(message),
                    Some(_) => continue,
                    None => Pulled::Stopped,
                };
            }
            let until = match &self.pull {
                Some(pull) => Some(pull.until),
                None if wanted == 0 || !self.is_connected => None,
                None => match self.rest {
                    Some(rest) if Instant::now() < rest => Some(rest),
                    _ => {
                        self.ask(wanted).await;
                        continue;
                    }
                },
            };
            let message = tokio::select! {
                message = self.answers.next() => message,
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    // A request that did not end in time; or the end of a rest.
                    if self.pull.take().is_some() {
                        self.lane = 0;
                        return Pulled::Doubt(String::new());
                    }
                    continue;
                }
            };
            let Some(message) = message else {
                return Pulled::Gone("the connection is closed".to_owned());
            };
            if let Some(pulled) = self.came(message) {
                return pulled;
            }
        }
    }

    async fn ask(&mut self, wanted: usize) {
        let wanted = wanted.min(self.lanes.most_jobs);
        let wait = WAIT.min(self.lanes.longest_wait);
        let (stream, consumer) = (&self.lanes.stream, &self.lanes.consumers[self.lane]);
        let request = if self.waits {
            json!({ "batch": wanted, "expires": wait.as_nanos() as u64 })
        } else {
            json!({ "batch": wanted, "no_wait": true })
        };
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        let reply = format!("{}.{}", self.inbox, self.next_id);
        let until = Instant::now() + if self.waits { wait + GRACE } else { GRACE };
        // A request that is not sent is given up like one that is lost.
        let _ = self.client.publish_with_reply(subject, reply, request.to_string().into()).await;
        self.pull = Some(Pull { id: self.next_id, asked: wanted, got: 0, until });
        self.next_id += 1;
    }

    fn came(&mut self, message: Message) -> Option<Pulled> {
        let Some(status) = status_of(&message) else {
            self.idle = IDLE[0];
            if let Some(pull) = &mut self.pull {
                pull.got += 1;
                let left = message.reply.as_ref().and_then(|reply| Place::parse(reply));
                // A request that does not wait ends without a word if there was less than it asked for.
                let is_last = !self.waits && left.is_some_and(|place| place.left == 0);
                if pull.got >= pull.asked || is_last {
                    self.pull = None;
                    self.lane = 0;
                } else if !self.waits {
                    pull.until = Instant::now() + GRACE;
                }
            }
            return Some(Pulled::Message(message));
        };
        let id = message.subject.rsplit('.').next().and_then(|id| id.parse::<u64>().ok());
        self.pull.take_if(|pull| Some(pull.id) == id)?;
        let why = message.description.unwrap_or_default();
        match status {
            StatusCode::NOT_FOUND | StatusCode::TIMEOUT => {
                self.lane += 1;
                if self.lane < self.lanes.consumers.len() {
                    return None;
                }
                self.lane = 0;
                if !self.waits {
                    self.rest();
                }
                Some(Pulled::Empty)
            }
            StatusCode::REQUEST_TERMINATED if why.contains("Deleted") => {
                Some(Pulled::Gone(self.lanes.gone(&self.lanes.consumers[self.lane])))
            }
            _ => {
                self.lane = 0;
                self.rest();
                Some(Pulled::Doubt(why))
            }
        }
    }

    fn rest(&mut self) {
        self.rest = Some(Instant::now() + self.idle);
        self.idle = (self.idle * 2).min(IDLE[1]);
    }
}

/// The server's own word about a request; none for a job, even if its publisher has given it a status: only jobs are to be answered.
fn status_of(message: &Message) -> Option<StatusCode> {
    message.status.filter(|_| message.reply.is_none())
}

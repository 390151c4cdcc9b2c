//! Puts jobs into a stream.
//!
//! Up to [`AT_ONCE`] messages are on their way at a time, each until the server has confirmed that the stream has it. A message that was
//! not confirmed is sent again with the same id, by which the stream keeps it once.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, BufRead, Read as _};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use async_nats::{Client, Event, HeaderMap};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};

use crate::api::{self, ApiError, StreamInfo};
use crate::presence::host;
use crate::server::{Link, Server, denied, with_refusals};
use crate::streams;
use crate::task::{self, Priority, Task};

/// How many messages are on their way at a time.
const AT_ONCE: usize = 256;

/// The longest name of a submission.
const LONGEST_ID: usize = 1000;

/// How many bytes more than a message may have are read of an input, to name its length.
const LONGEST_REFUSED: usize = 16 << 20;

/// How long a message is sent again and again while the server is away.
const PATIENCE: Duration = Duration::from_mins(10);

/// What a user is told besides, when the connection is lost.
const MEANWHILE: &str = "jobs wait here for up to ten minutes";

/// How long until a message is sent again.
const RETRY: Duration = Duration::from_millis(500);

/// What ends an input, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Each line that is not empty is an input.
    Lines,
    /// Each text before a zero byte is an input.
    Null,
    /// Each line that is not empty is a JSON object.
    Objects,
}

/// What is submitted, and where.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The server.
    pub server: Server,
    /// The stream.
    pub stream: String,
    /// The subject, if it is not to follow from the stream.
    pub subject: Option<String>,
    /// What the jobs are.
    pub kind: Kind,
    /// The priority of jobs that do not say another one.
    pub priority: Option<Priority>,
    /// A name for all of these jobs: if they are submitted again with that name, the stream keeps each once.
    pub id: Option<String>,
    /// Whether to make the streams that there are not.
    pub create: bool,
}

/// How many jobs were submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Submitted {
    /// Those that the stream has now.
    pub jobs: u64,
    /// Of those, the ones that it had before.
    pub known: u64,
}

/// What is told while jobs are submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// How many jobs the stream has by now.
    Submitted(u64),
    /// Something that a user should know, in words.
    Notice(String),
}

/// Submits the jobs that `input` has, and calls `tell` from time to time.
///
/// # Errors
/// Why not all were submitted, and which: in words.
pub fn submit(
    submission: &Submission,
    input: impl BufRead + Send + 'static,
    mut tell: impl FnMut(Progress),
) -> Result<Submitted, String> {
    check_id(submission.id.as_deref().unwrap_or_default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no asynchronous runtime: {error}"))?;
    runtime.block_on(async {
        let (events_to, mut events) = unbounded_channel();
        let client = submission.server.connect(move |event| drop(events_to.send(event))).await?;
        let shown = submission.server.shown();
        let named = |error| format!("{shown}: {error}");
        let found = find(&client, submission).await;
        let info = found.map_err(|error| with_refusals(named(error), &mut events))?;
        let id = submission.id.clone().unwrap_or_else(unique);
        let most = client.max_payload();
        let (notices, noticed) = unbounded_channel();
        let is_waiting = Cell::new(false);
        let sender = Sending { client, submission, info, id, notices, is_waiting };
        let records = records(input, submission.kind, most);
        sender.all(records, (events, noticed), &mut tell).await.map_err(named)
    })
}

/// The stream that gets the jobs.
async fn find(client: &Client, submission: &Submission) -> Result<StreamInfo, String> {
    let stream = &submission.stream;
    if submission.create {
        streams::make(client, stream).await?;
    }
    let info = streams::find(client, stream).await?;
    streams::check_keeps(stream, &info)?;
    if let Some(subject) = &submission.subject {
        streams::check_own(client, stream, &info, subject).await?;
    }
    Ok(info)
}

/// Checks the name of a submission, which is a part of a header.
fn check_id(id: &str) -> Result<(), String> {
    if id.len() > LONGEST_ID || id.contains(char::is_control) {
        return Err(format!(
            "--id: it is no name of a submission: give one line of at most {LONGEST_ID} bytes"
        ));
    }
    Ok(())
}

/// A name that no other submission has.
fn unique() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{}", host(), std::process::id(), now.as_nanos())
}

/// Reads inputs in a thread of their own, because that may block. One that has more than `most` bytes is the last one: it is refused. Only so
/// much of it is read that its length can be named, or that it is certain that nobody meant it.
fn records(
    mut input: impl BufRead + Send + 'static,
    kind: Kind,
    most: usize,
) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = channel(AT_ONCE);
    let end = if kind == Kind::Null { 0 } else { b'\n' };
    let (started, starts) = mpsc::channel();
    let failure = sender.clone();
    let longest = most + LONGEST_REFUSED;
    let thread = thread::Builder::new().name("inputs".into()).spawn(move || {
        let _ = started.send(());
        loop {
            let mut record = Vec::new();
            let read = match input.by_ref().take(longest as u64).read_until(end, &mut record) {
                Ok(0) => return,
                Ok(length) if length == longest && record.last() != Some(&end) => {
                    Err(io::Error::other(format!(
                        "it has a line or text of {longest} bytes or more, which is more than a message may have on this server; put the data into a file, and its name into the job"
                    )))
                }
                Ok(_) => {
                    record.pop_if(|last| *last == end);
                    if record.is_empty() && kind != Kind::Null {
                        continue;
                    }
                    Ok(record)
                }
                Err(error) => Err(error),
            };
            let is_last = read.as_ref().map_or(true, |record| record.len() > most);
            if sender.blocking_send(read).is_err() || is_last {
                return;
            }
        }
    });
    match thread {
        Ok(_) => drop(starts.recv()),
        Err(error) => drop(failure.try_send(Err(error))),
    }
    receiver
}

/// The ids of messages, by which their stream keeps one of several equal ones.
struct Ids {
    name: String,
    /// How many jobs have had each hash, if jobs may be submitted again.
    seen: Option<HashMap<u64, u32>>,
}

impl Ids {
    /// The id of a job. If jobs may be submitted again, it follows from what the job is, and how many equal ones came before it: so it does
    /// not matter if others are added, left out or moved.
    fn of(&mut self, number: u64, subject: &str, body: &[u8]) -> String {
        let name = &self.name;
        let Some(seen) = &mut self.seen else { return format!("{name}:{number}") };
        let hash = fnv(subject.as_bytes(), fnv(body, FNV_BASIS));
        let count = seen.entry(hash).or_default();
        *count += 1;
        format!("{name}:{hash:016x}:{count}")
    }
}

/// Fowler, Noll and Vo's hash FNV-1a, which is the same in every version of this program.
fn fnv(bytes: &[u8], basis: u64) -> u64 {
    bytes.iter().fold(basis, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

struct Sending<'a> {
    client: Client,
    submission: &'a Submission,
    info: StreamInfo,
    id: String,
    /// What a user should know, from the messages that are sent.
    notices: UnboundedSender<String>,
    /// Whether the last message that had an answer, or should have had one, is sent again.
    is_waiting: Cell<bool>,
}

impl Sending<'_> {
    async fn all(
        &self,
        mut records: Receiver<io::Result<Vec<u8>>>,
        (mut events, mut noticed): (UnboundedReceiver<Event>, UnboundedReceiver<String>),
        tell: &mut impl FnMut(Progress),
    ) -> Result<Submitted, String> {
        let mut sending = FuturesUnordered::new();
        let mut number = 0;
        let mut submitted = Submitted::default();
        // The job that comes first of those that were not submitted, and why.
        let mut refused: Option<(u64, String)> = None;
        let mut is_over = false;
        let mut link = Link::new(&self.submission.server, MEANWHILE);
        let mut ids =
            Ids { name: self.id.clone(), seen: self.submission.id.is_some().then(HashMap::new) };
        let again = match &self.submission.id {
            Some(_) => "submit all again with the same --id: none is kept twice",
            None => "with --id NAME all can be submitted again, and none is kept twice",
        };
        while !is_over || !sending.is_empty() {
            tokio::select! {
                record = records.recv(), if !is_over && sending.len() < AT_ONCE => {
                    number += 1;
                    let message = match record {
                        None => { is_over = true; continue; }
                        Some(Err(error)) => Err(format!("the input cannot be read: {error}")),
                        Some(Ok(record)) => self.message(record),
                    };
                    match message {
                        Ok((subject, headers, body)) => {
                            let id = ids.of(number, &subject, &body);
                            sending.push(self.one(number, id, subject, headers, body));
                        }
                        Err(why) => { refused = Some((number, why)); is_over = true; }
                    }
                }
                Some(event) = events.recv() => {
                    if let Some(subject) = denied(&event) {
                        let jobs = submitted.jobs;
                        return Err(format!(
                            "this user may not publish to {subject}; give it the permission; submitted: {jobs}; {again}"
                        ));
                    }
                    link.follow(&event).into_iter().for_each(|said| tell(Progress::Notice(said)));
                }
                // Why there is no answer is known if the connection is lost.
                Some(said) = noticed.recv() => if !link.is_lost() {
                    tell(Progress::Notice(said));
                },
                Some((number, result)) = sending.next() => match result {
                    Ok(duplicate) => {
                        submitted.jobs += 1;
                        submitted.known += u64::from(duplicate);
                        tell(Progress::Submitted(submitted.jobs));
                    }
                    Err(why) => {
                        is_over = true;
                        if refused.as_ref().is_none_or(|(other, _)| number < *other) {
                            refused = Some((number, why));
                        }
                    }
                }
            }
        }
        // A user who was told that the connection is lost is told that it is there again, even if the last answer came first.
        while let Ok(event) = events.try_recv() {
            link.follow(&event).into_iter().for_each(|said| tell(Progress::Notice(said)));
        }
        let Some((number, why)) = refused else { return Ok(submitted) };
        let jobs = submitted.jobs;
        let before =
            if jobs == number - 1 { "the ones before it" } else { "not all of them before it" };
        Err(format!("job {number}: {why}; submitted: {jobs}, {before}; {again}"))
    }

    /// The message of a job, and its subject.
    fn message(&self, body: Vec<u8>) -> Result<(String, HeaderMap, Bytes), String> {
        let is_object = self.submission.kind == Kind::Objects;
        let most = self.client.max_payload();
        let task = Task::parse(&body, is_object).map_err(|why| format!("it is no job: {why}"))?;
        let mut headers = HeaderMap::new();
        if is_object {
            headers.insert(task::HEADER.0, task::HEADER.1);
        }
        if body.len() + 256 > most {
            let length = body.len();
            return Err(format!(
                "it has {length} bytes, and a message has at most {most} on this server; put the data into a file, and its name into the job"
            ));
        }
        let priority = task.priority.or(self.submission.priority);
        let subject = match &self.submission.subject {
            Some(subject) => subject.clone(),
            None => streams::subject_of(&self.submission.stream, &self.info, priority)?,
        };
        Ok((subject, headers, body.into()))
    }

    /// Sends one job until the stream has it. Returns its number, and whether the stream had it before.
    async fn one(
        &self,
        number: u64,
        id: String,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> (u64, Result<bool, String>) {
        let begin = Instant::now();
        let mut sent_before = false;
        loop {
            match api::store(&self.client, &subject, &id, headers.clone(), body.clone()).await {
                // One that we have sent before was not there before.
                Ok(stored) => {
                    self.is_waiting.set(false);
                    return (number, Ok(stored.duplicate && !sent_before));
                }
                Err(error) if error.is_passing() && begin.elapsed() < PATIENCE => {
                    sent_before |= matches!(error, ApiError::Silent(_));
                    if !self.is_waiting.replace(true) {
                        let server = self.submission.server.shown();
                        let _ = self.notices.send(format!("{server}: {error}; {MEANWHILE}"));
                    }
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return (number, Err(error.to_string())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn a_name_that_would_be_more_than_a_header_is_refused() {
        assert!(check_id("monday 17").is_ok() && check_id(&"x".repeat(1000)).is_ok());
        for wrong in ["a\nb", "a\r\nX: 1", "\0", &"x".repeat(1001)] {
            assert!(check_id(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ids_follow_from_the_jobs_if_these_may_be_submitted_again() {
        let ids = |again: bool, jobs: &[&str]| {
            let mut ids = Ids { name: "monday".into(), seen: again.then(HashMap::new) };
            let of = |(number, job): (usize, &&str)| ids.of(number as u64, "JOBS", job.as_bytes());
            jobs.iter().enumerate().map(of).collect::<Vec<_>>()
        };
        let (before, after) = (ids(true, &["a", "b", "b"]), ids(true, &["new", "b", "a", "b"]));
        assert_eq!([&before[0], &before[1], &before[2]], [&after[2], &after[1], &after[3]]);
        assert!(!before.contains(&after[0]) && before[1] != before[2]);
        assert_eq!(ids(false, &["a", "a"]), ["monday:0", "monday:1"]);
        // Of version 1; another hash would let jobs in twice that an older program has submitted.
        assert_eq!(fnv(b"a", FNV_BASIS), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn an_input_without_an_end_is_refused_before_it_takes_all_memory() {
        let read = |text: &'static [u8], most| {
            let mut receiver = records(text, Kind::Lines, most);
            let mut all = Vec::new();
            while let Some(record) = receiver.blocking_recv() {
                all.push(record.map_err(|error| error.to_string()));
            }
            all
        };
        assert_eq!(read(b"abc\n\nd", 4), [Ok(b"abc".to_vec()), Ok(b"d".to_vec())]);
        let all = read(b"a\nbcdefgh\ni\n", 4);
        assert_eq!(all, [Ok(b"a".to_vec()), Ok(b"bcdefgh".to_vec())], "the rest is not read");
        let endless = BufReader::new(io::repeat(b'x'));
        let mut receiver = records(endless, Kind::Lines, 1 << 20);
        assert!(receiver.blocking_recv().unwrap().is_err());
    }
}

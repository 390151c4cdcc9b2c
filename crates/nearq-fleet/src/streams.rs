//! Streams and consumers: found, checked, made.
//!
//! A stream of jobs forgets a job when it is acknowledged (a work queue). If its subjects are `NAME.high`, `NAME.normal` and `NAME.low`, there
//! is a consumer for each, and workers ask the first one first; otherwise one consumer delivers all jobs in their order. JetStream itself has
//! no priorities.

use std::time::Duration;

use async_nats::Client;
use serde_json::json;

use crate::api::{self, ApiError, ConsumerConfig, ConsumerInfo, StreamInfo};
use crate::task::Priority;

/// How many messages a consumer may have delivered and not acknowledged: as many jobs may run at a time on all workers together. The
/// server's own limit, if none is set, is 1000.
const MOST_RUNNING: u64 = 1_000_000;

/// How many requests of workers for jobs may wait at a consumer. The server's own limit is 512.
const MOST_WAITING: u64 = 100_000;

/// The shortest time that a consumer may wait for a sign of life.
const LEAST_ACK_WAIT: Duration = Duration::from_millis(500);

/// How long a stream of results or of dead letters remembers the ids of messages, by which it keeps one of several equal ones.
const WINDOW: Duration = Duration::from_hours(1);

/// The consumers of a stream that a worker asks, the first one first.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    pub(crate) stream: String,
    pub(crate) consumers: Vec<String>,
    /// How long the server waits for a sign of life; the shortest of all.
    pub(crate) ack_wait: Duration,
    /// The most jobs that a request may ask for.
    pub(crate) most_jobs: usize,
    /// The longest time that a request may wait at the server.
    pub(crate) longest_wait: Duration,
}

impl Lanes {
    /// What a user is told when a consumer is gone.
    pub(crate) fn gone(&self, consumer: &str) -> String {
        let stream = &self.stream;
        format!(
            "consumer {consumer} of stream {stream} is gone; running jobs finish, and will run again; start the worker again, and it makes the consumer"
        )
    }

    /// Keeps to what one of the consumers allows.
    fn obey(&mut self, config: &ConsumerConfig) {
        self.ack_wait = self.ack_wait.min(config.ack_wait());
        if config.max_batch > 0 {
            self.most_jobs = self.most_jobs.min(config.max_batch.try_into().unwrap_or(usize::MAX));
        }
        if config.max_expires > 0 {
            self.longest_wait = self.longest_wait.min(Duration::from_nanos(config.max_expires));
        }
    }
}

/// Checks a name of a stream or a consumer, which is a part of a subject.
///
/// # Errors
/// It cannot be one.
pub(crate) fn check_name(option: &str, name: &str) -> Result<(), String> {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
    if name.is_empty() || name.contains(is_wrong) {
        return Err(format!(
            "{option} {name}: it is no name of a stream or a consumer: give one without blanks, dots, slashes, `*` and `>`"
        ));
    }
    Ok(())
}

/// Checks a subject to publish to.
///
/// # Errors
/// It cannot be one.
pub(crate) fn check_subject(option: &str, subject: &str) -> Result<(), String> {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || "*>".contains(c);
    if subject.split('.').any(str::is_empty) || subject.contains(is_wrong) {
        return Err(format!(
            "{option} {subject}: it is no subject to publish to: give words with dots between them, without `*` and `>`"
        ));
    }
    Ok(())
}

/// The stream of that name.
///
/// # Errors
/// There is none, with what to do.
pub(crate) async fn find(client: &Client, stream: &str) -> Result<StreamInfo, String> {
    check_name("--stream", stream)?;
    api::stream(client, stream).await.map_err(|error| not_found(stream, &error))
}

/// Says why a stream was not found, and what to do.
pub(crate) fn not_found(stream: &str, error: &ApiError) -> String {
    match error {
        ApiError::Absent => format!(
            "--stream {stream}: there is no such stream; make it with `nearq submit --create`, or with `nats stream add {stream} --retention work --discard new`"
        ),
        error => format!("--stream {stream}: {error}"),
    }
}

/// Checks that a stream keeps a job for which there is no consumer yet.
///
/// # Errors
/// It does not.
pub(crate) fn check_keeps(stream: &str, info: &StreamInfo) -> Result<(), String> {
    if info.config.retention == "interest" {
        return Err(format!(
            "--stream {stream}: it keeps no message that no consumer waits for (retention interest), so jobs would be lost; use one with `--retention work`"
        ));
    }
    Ok(())
}

/// Whether a stream of that name has a subject for each priority.
fn has_priorities(stream: &str, subjects: &[String]) -> bool {
    Priority::ALL.iter().all(|it| subjects.contains(&subject(stream, *it)))
}

/// The subjects of a stream with priorities that are none of them: no worker takes their jobs.
pub(crate) fn without_workers(stream: &str, subjects: &[String]) -> Vec<String> {
    if !has_priorities(stream, subjects) {
        return Vec::new();
    }
    let is_lane = |it: &&String| Priority::ALL.iter().any(|one| subject(stream, *one) == **it);
    subjects.iter().filter(|it| !is_lane(it)).cloned().collect()
}

/// The subject of the jobs of a priority.
fn subject(stream: &str, priority: Priority) -> String {
    format!("{stream}.{}", priority.name())
}

/// The subject to publish a job to.
///
/// # Errors
/// It cannot be told from the stream's subjects, or the stream has no priorities.
pub(crate) fn subject_of(
    stream: &str,
    info: &StreamInfo,
    priority: Option<Priority>,
) -> Result<String, String> {
    let subjects = &info.config.subjects;
    if has_priorities(stream, subjects) {
        return Ok(subject(stream, priority.unwrap_or_default()));
    }
    if let Some(priority) = priority {
        return Err(format!(
            "priority {}: stream {stream} has no priorities: its subjects are not {stream}.high, {stream}.normal and {stream}.low, as `nearq submit --create` makes them",
            priority.name()
        ));
    }
    match subjects.as_slice() {
        [one] if !one.contains(['*', '>']) => Ok(one.clone()),
        _ => Err(format!(
            "stream {stream} keeps several subjects ({}): say with --subject to which one jobs are published",
            subjects.join(", ")
        )),
    }
}

/// Makes a stream of jobs, with a subject for each priority, and the streams of its dead letters and results.
///
/// # Errors
/// The server refuses it.
pub(crate) async fn make(client: &Client, stream: &str) -> Result<(), String> {
    check_name("--stream", stream)?;
    let window = WINDOW.as_nanos() as u64;
    let subjects: Vec<String> = Priority::ALL.iter().map(|it| subject(stream, *it)).collect();
    let of = |name: &str, subjects: &[String], retention: &str| {
        json!({
            "name": name,
            "subjects": subjects,
            "retention": retention,
            "storage": "file",
            "discard": "new",
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "num_replicas": 1,
            "duplicate_window": window,
        })
    };
    let (dead, results) = (format!("{stream}-dead"), format!("{stream}-results"));
    let all = [
        (stream.to_owned(), of(stream, &subjects, "workqueue")),
        (dead.clone(), of(&dead, &[format!("{stream}.dead")], "limits")),
        (results.clone(), of(&results, &[format!("{stream}.results")], "limits")),
    ];
    for (name, config) in all {
        match api::stream(client, &name).await {
            Ok(_) => {}
            Err(ApiError::Absent) => {
                let made = api::make_stream(client, &name, &config).await;
                made.map_err(|error| format!("stream {name} cannot be made: {error}"))?;
            }
            Err(error) => return Err(format!("stream {name}: {error}")),
        }
    }
    Ok(())
}

/// The streams that keep what is published to a subject, for the option that names it.
///
/// # Errors
/// There is none.
async fn kept(client: &Client, option: &str, subject: &str) -> Result<Vec<String>, String> {
    check_subject(option, subject)?;
    let streams = api::streams_of(client, subject).await;
    let streams = streams.map_err(|error| format!("{option} {subject}: {error}"))?;
    if streams.is_empty() {
        return Err(format!(
            "{option} {subject}: no stream keeps that subject; `nearq submit --create` makes streams for NAME.dead and NAME.results, or give the subject of another stream"
        ));
    }
    Ok(streams)
}

/// Checks a subject that jobs of a stream are published to.
///
/// # Errors
/// That stream does not keep it.
pub(crate) async fn check_own(
    client: &Client,
    stream: &str,
    info: &StreamInfo,
    subject: &str,
) -> Result<(), String> {
    let kept = kept(client, "--subject", subject).await?;
    if kept.iter().all(|keeper| keeper != stream) {
        return Err(format!(
            "--subject {subject}: stream {stream} does not keep that subject, but {} does; give a subject of {stream}, or another --stream",
            kept.join(", ")
        ));
    }
    let subjects = &info.config.subjects;
    if has_priorities(stream, subjects)
        && Priority::ALL.iter().all(|it| self::subject(stream, *it) != subject)
    {
        return Err(format!(
            "--subject {subject}: workers of stream {stream}, which has priorities, take jobs from {stream}.high, {stream}.normal and {stream}.low only; give one of these"
        ));
    }
    Ok(())
}

/// Checks a subject that results or dead letters of a stream's jobs are published to.
///
/// # Errors
/// No stream keeps it, or that of the jobs does: each of them would be a job again.
pub(crate) async fn check_other(
    client: &Client,
    option: &str,
    stream: &str,
    subject: &str,
) -> Result<(), String> {
    if kept(client, option, subject).await?.iter().all(|keeper| keeper != stream) {
        return Ok(());
    }
    Err(format!(
        "{option} {subject}: stream {stream} keeps that subject, so what is published there would be a job again; give the subject of another stream"
    ))
}

/// Finds the consumers of a worker, and makes those that there are not, with `ack_wait`.
///
/// # Errors
/// One cannot be made, or would lose jobs.
pub(crate) async fn lanes(
    client: &Client,
    stream: &str,
    consumer: &str,
    ack_wait: Duration,
) -> Result<Lanes, String> {
    check_name("--consumer", consumer)?;
    let info = find(client, stream).await?;
    let mut lanes = Lanes {
        stream: stream.to_owned(),
        consumers: Vec::new(),
        ack_wait: Duration::MAX,
        most_jobs: usize::MAX,
        longest_wait: Duration::MAX,
    };
    let wanted: Vec<(String, Option<String>)> = if has_priorities(stream, &info.config.subjects) {
        let of = |it: &Priority| (format!("{consumer}-{}", it.name()), Some(subject(stream, *it)));
        Priority::ALL.iter().map(of).collect()
    } else {
        vec![(consumer.to_owned(), None)]
    };
    for (name, filter) in wanted {
        let found = match api::consumer(client, stream, &name).await {
            // A work queue has one consumer, so one that is refused afterwards would stand in the way of all others.
            Err(ApiError::Absent) if ack_wait < LEAST_ACK_WAIT => {
                return Err(format!(
                    "--ack-wait: less than half a second is too short to make consumer {name} with: running jobs would be delivered to a second worker; give 0.5s or more"
                ));
            }
            Err(ApiError::Absent) => {
                let mut config = json!({
                    "durable_name": name,
                    "deliver_policy": "all",
                    "ack_policy": "explicit",
                    // The server's number has a sign.
                    "ack_wait": i64::try_from(ack_wait.as_nanos()).unwrap_or(i64::MAX),
                    "max_deliver": -1,
                    "max_ack_pending": MOST_RUNNING,
                    "max_waiting": MOST_WAITING,
                    "replay_policy": "instant",
                });
                if let Some(filter) = filter {
                    config["filter_subject"] = filter.into();
                }
                api::make_consumer(client, stream, &name, &config).await
            }
            found => found,
        };
        let found = found.map_err(|error| {
            let only = if info.config.retention == "workqueue" && !error.is_passing() {
                "; a work queue gives each job to one consumer: `nearq jobs` lists those that there are"
            } else {
                ""
            };
            format!("--consumer {name}: stream {stream}: {error}{only}")
        })?;
        check(stream, &found)?;
        lanes.obey(&found.config);
        lanes.consumers.push(name);
    }
    Ok(lanes)
}

/// Refuses a consumer that would lose jobs, or that pushes them.
fn check(stream: &str, consumer: &ConsumerInfo) -> Result<(), String> {
    let config = &consumer.config;
    let why = if config.deliver_subject.is_some() {
        "it pushes messages; workers pull them"
    } else if config.ack_policy != "explicit" {
        "its acknowledgements are not explicit, so jobs would be lost with their worker"
    } else if config.headers_only {
        "it delivers messages without their bodies (headers_only), so jobs would run without their inputs"
    } else if config.max_deliver > 0 {
        "it forgets a job after max_deliver deliveries without a word; let nearq count them (--tries and --dead)"
    } else if config.inactive_threshold > 0 {
        "the server deletes it when no worker asks it for jobs for some time (inactive_threshold), as while all workers are busy"
    } else if config.ack_wait() < LEAST_ACK_WAIT {
        "its AckWait is shorter than half a second, so running jobs would be delivered to a second worker"
    } else {
        return Ok(());
    };
    let name = &consumer.name;
    Err(format!(
        "--consumer {name}: {why}; delete it (`nats consumer rm {stream} {name}`), and the worker makes it as it must be, or give the name of another one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(subjects: &[&str]) -> StreamInfo {
        let subjects: Vec<&str> = subjects.to_vec();
        let text =
            json!({"config": {"subjects": subjects}, "state": {"messages": 0, "last_seq": 0}});
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn the_subject_of_a_job_follows_from_those_of_its_stream() {
        let made = stream(&["J.high", "J.normal", "J.low"]);
        assert_eq!(subject_of("J", &made, None), Ok("J.normal".into()));
        assert_eq!(subject_of("J", &made, Some(Priority::High)), Ok("J.high".into()));
        assert_eq!(subject_of("J", &stream(&["jobs"]), None), Ok("jobs".into()));
        let refused = subject_of("J", &stream(&["jobs"]), Some(Priority::Low));
        assert!(refused.unwrap_err().contains("no priorities"));
        for several in [stream(&["J.>"]), stream(&["a", "b"])] {
            assert!(subject_of("J", &several, None).unwrap_err().contains("--subject"));
        }
    }

    #[test]
    fn subjects_beside_the_priorities_have_no_workers() {
        let of = |subjects: &[&str]| without_workers("J", &stream(subjects).config.subjects);
        assert!(of(&["J.high", "J.normal", "J.low"]).is_empty() && of(&["a", "b"]).is_empty());
        assert_eq!(of(&["J.high", "J.extra", "J.normal", "J.low"]), ["J.extra"]);
    }

    #[test]
    fn names_that_would_change_a_subject_are_refused() {
        for wrong in ["", "a.b", "a b", "*", "a>", "a\r\nPUB", "a/b"] {
            assert!(check_name("--stream", wrong).is_err(), "{wrong:?}");
        }
        assert!(check_name("--stream", "JOBS_1-x").is_ok());
        for wrong in ["", "a..b", "a.*", "a b", ".a", "a\n"] {
            assert!(check_subject("--dead", wrong).is_err(), "{wrong:?}");
        }
        assert!(check_subject("--dead", "JOBS.dead").is_ok());
    }

    #[test]
    fn requests_keep_to_what_the_consumer_allows() {
        let lanes = |config: serde_json::Value| {
            let (most_jobs, longest_wait) = (usize::MAX, Duration::MAX);
            let (stream, consumers) = (String::new(), Vec::new());
            let mut lanes =
                Lanes { stream, consumers, ack_wait: Duration::MAX, most_jobs, longest_wait };
            lanes.obey(&serde_json::from_value(config).unwrap());
            (lanes.most_jobs, lanes.longest_wait)
        };
        assert_eq!(lanes(json!({})), (usize::MAX, Duration::MAX));
        let config = json!({"max_batch": 2, "max_expires": 5_000_000_000_u64});
        assert_eq!(lanes(config), (2, Duration::from_secs(5)));
    }

    #[test]
    fn a_consumer_that_would_lose_jobs_is_refused() {
        let consumer = |config: serde_json::Value| {
            let text = json!({"name": "c", "config": config});
            check("JOBS", &serde_json::from_value(text).unwrap())
        };
        let right =
            json!({"ack_policy": "explicit", "ack_wait": 1_000_000_000_u64, "max_deliver": -1});
        assert_eq!(consumer(right.clone()), Ok(()));
        let changes = [
            ("max_deliver", json!(5), "forgets"),
            ("ack_policy", json!("none"), "lost"),
            ("deliver_subject", json!("x"), "pushes"),
            ("ack_wait", json!(1000), "AckWait"),
            ("headers_only", json!(true), "without their bodies"),
            ("inactive_threshold", json!(5_000_000_000_u64), "deletes it"),
        ];
        for (field, value, why) in changes {
            let mut wrong = right.clone();
            wrong[field] = value;
            assert!(consumer(wrong).unwrap_err().contains(why), "{field}");
        }
    }
}

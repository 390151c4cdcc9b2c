//! Makes the server know how a job has ended. The result or the dead letter is published first. When a stream has stored it, the job is
//! acknowledged, again and again until that is confirmed. So a worker that is killed between the two leaves a job that runs again, and
//! never one that is lost.
//!
//! Each step is repeated until it has succeeded, however long the server is away. That is safe: results and dead letters have an id of
//! the job, by which their stream keeps one of them, and that a job is done or dead stays true. That it is to run again does not: the
//! server may have noted that, and another worker may run it by now. So that is repeated only until another worker may have it.

use std::time::{Duration, Instant};

use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use nearq_processes::jobs::{End, Report};

use crate::api::{self, ApiError};
use crate::delivery::{Delivery, Reply};
use crate::presence::host;
use crate::source::{Outlet, Plan};
use crate::task;
use crate::verdict::{LONGEST_BACKOFF, Verdict};

/// How long until a step is tried again, at first and at most.
const RETRY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// What the headers of a message may take besides its body, so that a message fits that did fit before.
const HEADERS: usize = 8 << 10;

/// The most bytes that a stream keeps as the headers of a message: the server writes their length as 16 bits.
const MOST_HEADERS: usize = u16::MAX as usize;

/// A job whose end the server must know.
pub(crate) struct Settlement {
    pub(crate) client: Client,
    pub(crate) delivery: Delivery,
    pub(crate) verdict: Verdict,
    /// What is known of its end; nothing if it has not run.
    pub(crate) report: Option<Box<Report>>,
    pub(crate) ends: [Vec<u8>; 2],
    pub(crate) outlet: Outlet,
}

impl Settlement {
    /// Does all of it. Returns whether the job is dead.
    pub(crate) async fn run(self, plan: &Plan) -> bool {
        let reply = match &self.verdict {
            Verdict::Done => {
                if let Some(subject) = &plan.results {
                    self.store(subject, "result", self.headers(), self.output()).await;
                }
                Reply::Done
            }
            Verdict::Back => Reply::Again(Duration::ZERO),
            Verdict::Later(after) => Reply::Again(*after),
            Verdict::Dead(why) => match &plan.dead {
                Some(subject) if self.bury(subject, why).await => Reply::Never,
                Some(_) => Reply::Again(LONGEST_BACKOFF),
                None => {
                    let id = self.delivery.id();
                    self.outlet.notice(format!(
                        "job {id} stays in the queue: {why}; with --dead SUBJECT it would become a dead letter"
                    ));
                    Reply::Again(LONGEST_BACKOFF)
                }
            },
        };
        // Once another worker may have the job, "again" would take it away from that one. Then AckWait does what is to be done.
        let until = match reply {
            Reply::Again(delay) => Some(Instant::now() + delay),
            Reply::Done | Reply::Never => None,
        };
        let answer = async || self.delivery.answer(&self.client, reply).await;
        self.persist("acknowledgement", until, answer).await;
        reply == Reply::Never
    }

    /// Publishes a dead letter: the message as it came, without the orders to its stream, and with the reason. Returns false if the message
    /// is too large for that.
    async fn bury(&self, subject: &str, why: &str) -> bool {
        let mut headers = self.delivery.message.headers.as_ref().map(kept).unwrap_or_default();
        for (name, values) in self.headers().iter() {
            for value in values {
                headers.insert(name.clone(), value.clone());
            }
        }
        headers.insert("Nearq-Reason", line(why.as_bytes()));
        headers.insert("Nearq-Error-End", line(&self.ends[1]));
        let body = self.delivery.message.payload.clone();
        let most = self.client.max_payload();
        if !fits(&headers, body.len(), most) {
            // What is said of the standard error can be spared first.
            headers.insert("Nearq-Error-End", "");
        }
        if !fits(&headers, body.len(), most) {
            let (id, length, head) = (self.delivery.id(), body.len(), size(&headers));
            let place = &self.delivery.place;
            let (stream, sequence) = (&place.stream, place.sequence);
            self.outlet.notice(format!(
                "job {id} stays in the queue: {why}; its {length} bytes ({most} at most with all headers) and the {head} bytes of its headers and the reason ({MOST_HEADERS} at most) are more than a message may have; remove it with `nats stream rmm {stream} {sequence}`"
            ));
            return false;
        }
        self.store(subject, "dead letter", headers, body).await;
        true
    }

    /// The end of the standard output, as much as a message may have.
    fn output(&self) -> Bytes {
        let most = self.client.max_payload().saturating_sub(HEADERS);
        let output = &self.ends[0];
        output[output.len().saturating_sub(most)..].to_vec().into()
    }

    /// What is said of the job besides what it has printed.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let place = &self.delivery.place;
        headers.insert("Nearq-Stream", place.stream.as_str());
        headers.insert("Nearq-Sequence", place.sequence.to_string());
        headers.insert("Nearq-Tries", place.tries.to_string());
        headers.insert("Nearq-Host", line(host().as_bytes()));
        if let Some(report) = &self.report {
            let end = match report.end {
                End::Exit(status) => status.to_string(),
                End::Signal(signal) => format!("signal {signal}"),
            };
            headers.insert("Nearq-Exit", end);
            headers.insert("Nearq-Seconds", format!("{:.3}", report.elapsed.as_secs_f64()));
            headers.insert("Nearq-Printed", report.printed.to_string());
        }
        headers
    }

    async fn store(&self, subject: &str, what: &str, headers: HeaderMap, body: Bytes) {
        // Two kinds of messages about a job may go to the same stream.
        let id = self.delivery.id_of(what);
        self.persist(what, None, async || {
            api::store(&self.client, subject, &id, headers.clone(), body.clone()).await.map(drop)
        })
        .await;
    }

    /// Tries something until it succeeds or that time has come, and says once that it does not.
    async fn persist(
        &self,
        what: &str,
        until: Option<Instant>,
        step: impl AsyncFn() -> Result<(), ApiError>,
    ) {
        let mut delay = RETRY[0];
        let mut was_told = false;
        while let Err(error) = step().await {
            // A server that restarts is told of elsewhere.
            if !error.is_passing() && !std::mem::replace(&mut was_told, true) {
                let id = self.delivery.id();
                self.outlet.notice(format!(
                    "the {what} of job {id}: {error}; it is tried again until it succeeds"
                ));
            }
            if until.is_some_and(|until| Instant::now() + delay >= until) {
                return;
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(RETRY[1]);
        }
    }
}

/// A text as the value of a header, which is one line: the bytes that are none are written as in Rust.
fn line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let escaped = text.chars().flat_map(|c| {
        let plain = if c.is_control() { None } else { Some(c) };
        plain.into_iter().chain(c.escape_default().take(if plain.is_none() {
            usize::MAX
        } else {
            0
        }))
    });
    escaped.collect()
}

/// The headers of a message that its dead letter has too. Headers that a stream obeys, such as `Nats-Expected-Stream` or `Nats-TTL`, were for
/// the stream of the job: another one would refuse the message or drop it. What was said of an earlier death of a job that was published
/// again does not hold for this one; only the header that says what kind of message it is stays.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, values) in headers.iter() {
        let text: &str = name.as_ref();
        let begins = |with: &str| {
            text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
        };
        let is_dropped = begins("Nats-") || (begins("Nearq-") && text != task::HEADER.0);
        for value in values.iter().filter(|_| !is_dropped) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// About how many bytes headers take in a message, and no fewer.
fn size(headers: &HeaderMap) -> usize {
    let each = headers.iter().flat_map(|(name, values)| {
        values.iter().map(|value| <_ as AsRef<[u8]>>::as_ref(name).len() + value.as_str().len() + 4)
    });
    each.sum::<usize>() + 128
}

/// Whether a stream can keep a message with a body of this length, on a server where a message has at most `most` bytes.
fn fits(headers: &HeaderMap, body: usize, most: usize) -> bool {
    size(headers) <= MOST_HEADERS && body + size(headers) <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_header_is_one_line() {
        assert_eq!(
            line(b"a: b\r\nX: \x1b[31m\xff \xc3\xa4"),
            "a: b\\r\\nX: \\u{1b}[31m\u{fffd} \u{e4}"
        );
    }

    #[test]
    fn a_dead_letter_has_no_orders_to_the_stream_of_the_job_and_nothing_of_an_earlier_death() {
        let mut headers = HeaderMap::new();
        for name in [
            "Nats-Expected-Stream",
            "nats-ttl",
            "NATS-Rollup",
            "Nats",
            "Natsy",
            "Nearq-Job",
            "Nearq-Exit",
            "Nearq-Reason",
        ] {
            headers.append(name, "1");
        }
        headers.append("Nearq-Job", "2");
        let kept = kept(&headers);
        let mut names: Vec<&str> = kept.iter().map(|(name, _)| name.as_ref()).collect();
        names.sort_unstable();
        assert_eq!(names, ["Nats", "Natsy", "Nearq-Job"]);
        assert_eq!(kept.get_all("Nearq-Job").count(), 2);
    }

    #[test]
    fn a_message_fits_if_its_headers_do() {
        let headers = |length: usize| {
            let mut headers = HeaderMap::new();
            headers.insert("X", "x".repeat(length));
            headers
        };
        assert!(fits(&headers(60_000), 900_000, 1 << 20));
        assert!(!fits(&headers(60_000), 1_000_000, 1 << 20));
        assert!(
            !fits(&headers(70_000), 0, 1 << 20),
            "the server refuses it however small its body is"
        );
    }
}

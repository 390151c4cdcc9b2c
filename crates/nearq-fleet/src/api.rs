//! The requests of JetStream that are used here. Requests and answers are JSON; fields that nobody here reads are left out.

use std::fmt;
use std::time::Duration;

use async_nats::{Client, HeaderMap, RequestErrorKind};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::server::ANSWER;

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// What was asked for does not exist.
    Absent,
    /// The server has refused it, in its words.
    Refused(String),
    /// No server here has JetStream, or none is ready yet.
    Nobody,
    /// No answer came in time, or there is no connection.
    Silent(String),
}

impl ApiError {
    /// Whether the same request may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Nobody | Self::Silent(_))
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("it does not exist"),
            Self::Refused(text) => write!(f, "the server refuses: {text}"),
            Self::Nobody => f.write_str(
                "nothing answers there: the server has no JetStream (start it with -js), or it is not ready, or the account may not use it",
            ),
            Self::Silent(text) => write!(f, "the server does not answer: {text}"),
        }
    }
}

/// An answer that may be an error.
#[derive(Deserialize)]
struct Answer<T> {
    error: Option<Refusal>,
    #[serde(flatten)]
    value: Option<T>,
}

#[derive(Deserialize)]
struct Refusal {
    code: u16,
    #[serde(default)]
    err_code: u16,
    #[serde(default)]
    description: String,
}

/// The server's number for a message that a stream could not store: it is full, or its disk is.
const NOT_STORED: u16 = 10_077;

/// A stream.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StreamInfo {
    pub(crate) config: StreamConfig,
    pub(crate) state: StreamState,
}

/// The configuration of a stream, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StreamConfig {
    #[serde(default)]
    pub(crate) subjects: Vec<String>,
    #[serde(default)]
    pub(crate) retention: String,
}

/// What is in a stream.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StreamState {
    pub(crate) messages: u64,
    pub(crate) last_seq: u64,
}

/// A consumer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConsumerInfo {
    pub(crate) name: String,
    pub(crate) config: ConsumerConfig,
    /// Messages that have not been delivered to anybody.
    #[serde(default)]
    pub(crate) num_pending: u64,
    /// Messages that have been delivered and not acknowledged.
    #[serde(default)]
    pub(crate) num_ack_pending: u64,
    /// Of those, the ones that were delivered more than once.
    #[serde(default)]
    pub(crate) num_redelivered: u64,
}

/// The configuration of a consumer, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConsumerConfig {
    #[serde(default)]
    pub(crate) ack_policy: String,
    /// In nanoseconds.
    #[serde(default)]
    ack_wait: u64,
    #[serde(default)]
    pub(crate) max_deliver: i64,
    #[serde(default)]
    pub(crate) deliver_subject: Option<String>,
    /// The most messages that a request may ask for; 0 for any number.
    #[serde(default)]
    pub(crate) max_batch: u64,
    /// The longest time that a request may wait, in nanoseconds; 0 for any time.
    #[serde(default)]
    pub(crate) max_expires: u64,
    /// Whether messages come without their bodies.
    #[serde(default)]
    pub(crate) headers_only: bool,
    /// After how long without a request the server deletes the consumer, in nanoseconds; 0 for never.
    #[serde(default)]
    pub(crate) inactive_threshold: u64,
}

impl ConsumerConfig {
    pub(crate) fn ack_wait(&self) -> Duration {
        Duration::from_nanos(self.ack_wait)
    }
}

/// The server's confirmation that a stream has a message.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Stored {
    /// The stream that has it. An answer without this and the next one is not from a stream.
    #[allow(dead_code, reason = "that it is there is what matters")]
    stream: String,
    /// Its sequence there.
    #[allow(dead_code, reason = "that it is there is what matters")]
    seq: u64,
    /// Whether the stream had a message with that id already.
    #[serde(default)]
    pub(crate) duplicate: bool,
}

#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    streams: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Consumers {
    #[serde(default)]
    consumers: Option<Vec<ConsumerInfo>>,
    #[serde(default)]
    total: usize,
}

/// Asks for the state of a stream.
pub(crate) async fn stream(client: &Client, stream: &str) -> Result<StreamInfo, ApiError> {
    call(client, &format!("STREAM.INFO.{stream}"), &json!({})).await
}

/// The streams that keep what is published to a subject.
pub(crate) async fn streams_of(client: &Client, subject: &str) -> Result<Vec<String>, ApiError> {
    let names: Names = call(client, "STREAM.NAMES", &json!({ "subject": subject })).await?;
    Ok(names.streams.unwrap_or_default())
}

/// Makes a stream.
pub(crate) async fn make_stream(
    client: &Client,
    name: &str,
    config: &serde_json::Value,
) -> Result<StreamInfo, ApiError> {
    call(client, &format!("STREAM.CREATE.{name}"), config).await
}

/// Asks for the state of a consumer.
pub(crate) async fn consumer(
    client: &Client,
    stream: &str,
    consumer: &str,
) -> Result<ConsumerInfo, ApiError> {
    call(client, &format!("CONSUMER.INFO.{stream}.{consumer}"), &json!({})).await
}

/// Makes a consumer; one that exists with the same configuration is returned.
pub(crate) async fn make_consumer(
    client: &Client,
    stream: &str,
    name: &str,
    config: &serde_json::Value,
) -> Result<ConsumerInfo, ApiError> {
    let request = json!({ "stream_name": stream, "config": config });
    call(client, &format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), &request).await
}

/// All consumers of a stream.
pub(crate) async fn consumers(
    client: &Client,
    stream: &str,
) -> Result<Vec<ConsumerInfo>, ApiError> {
    let mut all: Vec<ConsumerInfo> = Vec::new();
    loop {
        let request = json!({ "offset": all.len() });
        let page: Consumers = call(client, &format!("CONSUMER.LIST.{stream}"), &request).await?;
        let found = page.consumers.unwrap_or_default();
        let is_last = found.is_empty();
        all.extend(found);
        if is_last || all.len() >= page.total {
            return Ok(all);
        }
    }
}

/// Publishes a message, and waits until a stream has it. A message with the same `id` within the stream's window is kept once.
pub(crate) async fn store(
    client: &Client,
    subject: &str,
    id: &str,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<Stored, ApiError> {
    headers.insert("Nats-Msg-Id", id);
    let answer = client.request_with_headers(subject.to_owned(), headers, body).await;
    read(answer)
}

/// A request to a subject of `$JS.API`.
async fn call<T: DeserializeOwned>(
    client: &Client,
    what: &str,
    request: &impl Serialize,
) -> Result<T, ApiError> {
    let request = serde_json::to_vec(request).expect("its keys are text");
    let answer = client.request(format!("$JS.API.{what}"), request.into());
    // The time of the client begins when its queue has taken the request.
    match tokio::time::timeout(ANSWER * 2, answer).await {
        Ok(answer) => read(answer),
        Err(_) => Err(ApiError::Silent("there is no connection".to_owned())),
    }
}

fn read<T: DeserializeOwned>(
    answer: Result<async_nats::Message, async_nats::RequestError>,
) -> Result<T, ApiError> {
    let message = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => ApiError::Nobody,
        RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
            ApiError::Refused(error.to_string())
        }
        RequestErrorKind::TimedOut | RequestErrorKind::Other => ApiError::Silent(error.to_string()),
    })?;
    let answer: Answer<T> = serde_json::from_slice(&message.payload)
        .map_err(|error| ApiError::Refused(format!("its answer is not understood: {error}")))?;
    match (answer.error, answer.value) {
        (Some(Refusal { code: 404, .. }), _) => Err(ApiError::Absent),
        // The same code says that the server is not ready.
        (Some(refusal), _) if refusal.code == 503 && refusal.err_code != NOT_STORED => {
            Err(ApiError::Silent(refusal.description))
        }
        (Some(refusal), _) => Err(ApiError::Refused(refusal.description)),
        (None, Some(value)) => Ok(value),
        (None, None) => Err(ApiError::Refused("its answer lacks what was asked for".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
        let message = async_nats::Message {
            subject: "x".into(),
            reply: None,
            payload: text.to_owned().into(),
            headers: None,
            status: None,
            description: None,
            length: 0,
        };
        read(Ok(message))
    }

    #[test]
    fn answers_and_refusals_are_told_apart() {
        let stored: Stored = answer(r#"{"stream":"A","seq":7,"duplicate":true}"#).unwrap();
        assert!(stored.duplicate);
        // Somebody else who listens there, and no stream.
        for other in ["{}", r#"{"ok":true}"#, r#"{"stream":"A"}"#] {
            assert!(answer::<Stored>(other).is_err(), "{other}");
        }
        let absent = answer::<Stored>(r#"{"error":{"code":404,"description":"stream not found"}}"#);
        assert!(matches!(absent, Err(ApiError::Absent)));
        let full =
            answer::<Stored>(r#"{"error":{"code":400,"description":"maximum messages exceeded"}}"#);
        assert!(full.unwrap_err().to_string().contains("maximum messages exceeded"));
        assert!(answer::<StreamInfo>("{}").is_err() && answer::<StreamInfo>("[").is_err());
        assert!(answer::<Stored>(r#"{"error":{"code":503}}"#).unwrap_err().is_passing());
        let full =
            r#"{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}"#;
        assert!(!answer::<Stored>(full).unwrap_err().is_passing());
    }

    #[test]
    fn a_consumer_is_read_as_the_server_writes_it() {
        let text = r#"{"type":"x","stream_name":"J","name":"e","config":{"ack_policy":"explicit",
            "ack_wait":30000000000,"max_deliver":-1},"num_ack_pending":2,"num_pending":5}"#;
        let info: ConsumerInfo = answer(text).unwrap();
        assert_eq!(info.config.ack_wait(), Duration::from_secs(30));
        assert_eq!((info.num_pending, info.num_ack_pending, info.num_redelivered), (5, 2, 0));
    }
}

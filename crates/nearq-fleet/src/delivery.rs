//! One delivery of a message, and what can be answered to it.
//!
//! The subject to answer to says which message it is and how often it has been delivered: `$JS.ACK.STREAM.CONSUMER.TRIES.SEQUENCE.` and
//! three more numbers, of which the second one is the time at which the stream stored the message, in nanoseconds, and the last one is how
//! many messages the consumer has left. Newer servers put the domain and the account before the stream, and may put more behind the numbers.
//! An answer to an earlier delivery counts as well: the server goes by the sequence.

use std::time::Duration;

use async_nats::{Client, Message, Subject};
use bytes::Bytes;

use crate::api::ApiError;

/// A delivered message.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Message,
    pub(crate) reply: Subject,
    pub(crate) place: Place,
}

/// Which message it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stream: String,
    pub(crate) consumer: String,
    pub(crate) sequence: u64,
    /// When the stream has got it, in nanoseconds: the same for each delivery.
    pub(crate) stored_at: u64,
    /// How many times it has been delivered, this time included.
    pub(crate) tries: u64,
    /// How many messages the consumer has not delivered to anybody.
    pub(crate) left: u64,
}

/// What can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It is done.
    Done,
    /// It can be delivered again, after that time.
    Again(Duration),
    /// It is not delivered again.
    Never,
}

/// What says that the job is alive; it is not confirmed.
pub(crate) const ALIVE: Bytes = Bytes::from_static(b"+WPI");

impl Reply {
    fn text(self) -> Bytes {
        match self {
            Self::Done => Bytes::from_static(b"+ACK"),
            Self::Never => Bytes::from_static(b"+TERM"),
            Self::Again(Duration::ZERO) => Bytes::from_static(b"-NAK"),
            Self::Again(after) => format!("-NAK {{\"delay\": {}}}", after.as_nanos()).into(),
        }
    }
}

impl Delivery {
    /// A message of a consumer; `None` for any other.
    pub(crate) fn of(message: Message) -> Option<Self> {
        let reply = message.reply.clone()?;
        let place = Place::parse(&reply)?;
        Some(Self { message, reply, place })
    }

    /// A header of the message.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        Some(self.message.headers.as_ref()?.get(name)?.as_str())
    }

    /// The name of the job, the same however often it is delivered.
    pub(crate) fn id(&self) -> String {
        format!("{}:{}", self.place.stream, self.place.sequence)
    }

    /// What no other job of the consumer has, the same however often it is delivered: a stream that was made again counts from 1 again.
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.place.sequence, self.place.stored_at)
    }

    /// The id of a message about the job. A job of another consumer, or of a stream that was made again with the same name, has another
    /// one.
    pub(crate) fn id_of(&self, what: &str) -> String {
        let Place { consumer, stored_at, .. } = &self.place;
        format!("{}:{consumer}:{stored_at}:{what}", self.id())
    }

    /// Answers, and waits until the server has confirmed it.
    pub(crate) async fn answer(&self, client: &Client, reply: Reply) -> Result<(), ApiError> {
        let answer = client.request(self.reply.clone(), reply.text()).await;
        answer.map(drop).map_err(|error| match error.kind() {
            async_nats::RequestErrorKind::NoResponders => ApiError::Nobody,
            _ => ApiError::Silent(error.to_string()),
        })
    }
}

impl Place {
    pub(crate) fn parse(reply: &str) -> Option<Self> {
        let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let own = match tokens.len() {
            7 => &tokens[..],
            9.. => &tokens[2..],
            _ => return None,
        };
        let number = |index: usize| own[index].parse().ok();
        Some(Self {
            stream: own[0].to_owned(),
            consumer: own[1].to_owned(),
            tries: number(2)?,
            sequence: number(3)?,
            stored_at: number(5)?,
            left: number(6)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_an_answer_says_which_message_it_is() {
        let place = |stream: &str| Place {
            stream: stream.into(),
            consumer: "encode".into(),
            sequence: 17,
            stored_at: 1_700_000_000_000,
            tries: 3,
            left: 8,
        };
        assert_eq!(
            Place::parse("$JS.ACK.JOBS.encode.3.17.20.1700000000000.8"),
            Some(place("JOBS"))
        );
        let newer = "$JS.ACK._.ACCHASH.JOBS.encode.3.17.20.1700000000000.8";
        assert_eq!(Place::parse(newer), Some(place("JOBS")));
        assert_eq!(Place::parse(&format!("{newer}.random")), Some(place("JOBS")));
        for other in ["_INBOX.1", "$JS.ACK.JOBS.encode.3", "$JS.ACK.a.b.c.d.e.f.g"] {
            assert_eq!(Place::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_message_about_a_job_has_the_same_id_for_each_delivery_and_for_no_other_job() {
        let of = |reply: &str| {
            let message = Message {
                subject: "JOBS".into(),
                reply: Some(reply.into()),
                payload: Bytes::new(),
                headers: None,
                status: None,
                description: None,
                length: 0,
            };
            Delivery::of(message).unwrap()
        };
        let id = |reply: &str| of(reply).id_of("result");
        let key = |reply: &str| of(reply).key();
        let first = id("$JS.ACK.JOBS.encode.1.17.20.1700000000000.8");
        assert_eq!(first, "JOBS:17:encode:1700000000000:result");
        assert_eq!(first, id("$JS.ACK.JOBS.encode.2.17.31.1700000000000.0"), "delivered again");
        assert_ne!(first, id("$JS.ACK.JOBS.check.1.17.20.1700000000000.8"), "another consumer");
        assert_ne!(first, id("$JS.ACK.JOBS.encode.1.17.20.1800000000000.8"), "made again");
        let first = key("$JS.ACK.JOBS.encode.1.17.20.1700000000000.8");
        assert_eq!(first, key("$JS.ACK.JOBS.encode.2.17.31.1700000000000.0"), "delivered again");
        assert_ne!(first, key("$JS.ACK.JOBS.encode.1.17.20.1800000000000.8"), "made again");
    }

    #[test]
    fn answers_are_what_the_server_reads() {
        assert_eq!(Reply::Done.text(), "+ACK");
        assert_eq!(Reply::Again(Duration::ZERO).text(), "-NAK");
        assert_eq!(
            Reply::Again(Duration::from_millis(1500)).text(),
            "-NAK {\"delay\": 1500000000}"
        );
        assert_eq!(Reply::Never.text(), "+TERM");
    }
}

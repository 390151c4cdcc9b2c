//! What a message says: a job's inputs, and perhaps its own command and a deadline.
//!
//! A message is one input, as it stands. If it has the header `Nearq-Job: json`, it is an object:
//!
//! ```json
//! {"command": ["encode", "{}"], "input": "a.wav", "priority": "high", "deadline": "2030-01-01T00:00:00Z"}
//! ```
//!
//! Every field may be left out except `input`, a text or a list of texts. The header tells both kinds apart, so an input may begin with a
//! brace.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nearq_processes::jobs::{self, Group, Template};
use serde::Deserialize;

/// The header that says that a message is an object, and its value.
pub(crate) const HEADER: (&str, &str) = ("Nearq-Job", "json");

/// How many characters of a reason are shown if it repeats a part of a message.
const LONGEST_REASON: usize = 500;

/// Which jobs come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Before all others.
    High,
    /// The usual one.
    #[default]
    Normal,
    /// When there are no others.
    Low,
}

impl Priority {
    /// All of them, the first ones first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Its name, which ends the subject of its jobs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|priority| priority.name() == text);
        found.ok_or_else(|| "give high, normal or low".into())
    }
}

/// A job, as a message describes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) inputs: Group,
    pub(crate) command: Option<Vec<Vec<u8>>>,
    pub(crate) priority: Option<Priority>,
    /// After that, it is not wanted any more.
    pub(crate) deadline: Option<SystemTime>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    command: Option<Vec<String>>,
    input: Texts,
    priority: Option<Priority>,
    deadline: Option<Deadline>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`input` must be a text or a list of texts")]
enum Texts {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Deadline {
    /// Seconds since 1970.
    Seconds(f64),
    Text(String),
}

impl Task {
    /// Reads a message.
    ///
    /// # Errors
    /// Why it is no job, in words.
    pub(crate) fn parse(body: &[u8], is_object: bool) -> Result<Self, String> {
        let task = if is_object {
            Self::object(body)?
        } else {
            let inputs = vec![body.to_vec()];
            Self { inputs, command: None, priority: None, deadline: None }
        };
        let longest = jobs::longest();
        let texts = task.inputs.iter().chain(task.command.iter().flatten());
        for text in texts {
            if text.len() > longest {
                let length = text.len();
                return Err(format!(
                    "it has a text of {length} bytes, and an argument has at most {longest}; put the data into a file, and its name into the job"
                ));
            }
            if text.contains(&0) {
                return Err("it contains a zero byte, which an argument cannot have".into());
            }
        }
        Ok(task)
    }

    fn object(body: &[u8]) -> Result<Self, String> {
        let object: Object = serde_json::from_slice(body).map_err(|error| {
            let error = short(&error.to_string());
            format!("it is not an object with command, input, priority and deadline: {error}")
        })?;
        let bytes = |texts: Vec<String>| texts.into_iter().map(String::into_bytes).collect();
        let command: Option<Vec<Vec<u8>>> = object.command.map(bytes);
        let inputs = match object.input {
            Texts::One(text) => vec![text.into_bytes()],
            Texts::Many(texts) if texts.is_empty() => return Err("it has no input".into()),
            Texts::Many(texts) => bytes(texts),
        };
        if let Some(words) = &command {
            if words.is_empty() {
                return Err("its command has no words".into());
            }
            let named = Template::named_inputs(words);
            if named > inputs.len() {
                return Err(format!(
                    "its command names {{{named}}}, and it has {}",
                    number(&inputs)
                ));
            }
        }
        let deadline = object.deadline.map(|deadline| match deadline {
            Deadline::Seconds(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Deadline::Text(text) => seconds_of(&text).map(Duration::from_secs),
        });
        let deadline = match deadline {
            None => None,
            Some(since) => Some(since.and_then(|since| UNIX_EPOCH.checked_add(since)).ok_or(
                "its deadline is neither a number of seconds since 1970 nor a time such as 2030-01-01T00:00:00Z",
            )?),
        };
        Ok(Self { inputs, command, priority: object.priority, deadline })
    }
}

/// How many inputs there are, in words.
pub(crate) fn number(inputs: &Group) -> String {
    match inputs.len() {
        1 => "one input".to_owned(),
        number => format!("{number} inputs"),
    }
}

/// The beginning of a text that may repeat a part of a message, which may be long: a reason is a line for a user, and a header.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The seconds since 1970 of a time in UTC, as RFC 3339 writes it: `2030-01-01T00:00:00Z`.
fn seconds_of(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator| -> Option<[u64; 3]> {
        let all = text.split(separator).map(|part| {
            let is_number = part.len() >= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse().ok()).flatten()
        });
        all.collect::<Option<Vec<u64>>>()?.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    let is_leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
    let days_of_month = match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_time = (1..=12).contains(&month)
        && (1..=days_of_month).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !(1970..10_000).contains(&year) || !is_time {
        return None;
    }
    // Days since 1970; years begin in March, so that the leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_the_header_is_one_input_as_it_stands() {
        let task = Task::parse(br#"{"input": 1"#, false).unwrap();
        assert_eq!(task.inputs, [br#"{"input": 1"#.to_vec()]);
        assert!(task.command.is_none() && task.deadline.is_none());
    }

    #[test]
    fn an_object_has_inputs_a_command_a_priority_and_a_deadline() {
        let text = br#"{"command": ["echo", "{}"], "input": ["a", "b"], "priority": "low", "deadline": 1.5}"#;
        let task = Task::parse(text, true).unwrap();
        assert_eq!(task.inputs, [b"a", b"b"]);
        assert_eq!(task.command, Some(vec![b"echo".to_vec(), b"{}".to_vec()]));
        assert_eq!(task.priority, Some(Priority::Low));
        assert_eq!(task.deadline, Some(UNIX_EPOCH + Duration::from_millis(1500)));
    }

    #[test]
    fn what_is_no_job_is_refused_with_the_reason() {
        let why = |text: &[u8]| Task::parse(text, true).unwrap_err();
        assert!(why(b"{").contains("not an object"));
        assert!(why(br#"{"inputs": "a"}"#).contains("unknown field `inputs`"));
        assert!(why(br#"{"command": [], "input": "a"}"#).contains("no words"));
        assert_eq!(why(br#"{"input": []}"#), "it has no input");
        assert!(why(br#"{"input": [1]}"#).contains("must be a text or a list of texts"));
        let unnamed = why(br#"{"command": ["a", "{2}"], "input": "b"}"#);
        assert_eq!(unnamed, "its command names {2}, and it has one input");
        assert!(why(br#"{"input": "a", "deadline": "tomorrow"}"#).contains("2030-01-01T00:00:00Z"));
        assert!(why(br#"{"input": "a", "deadline": -1}"#).contains("deadline"));
        assert!(why(br#"{"input": "a\u0000"}"#).contains("zero byte"));
        let name = "x".repeat(100_000);
        let unknown = why(format!(r#"{{"{name}": 1}}"#).as_bytes());
        assert!(unknown.len() < 1000 && unknown.contains("unknown field `xxx"), "{unknown}");
        let long = vec![b'x'; 10 << 20];
        assert!(Task::parse(&long, false).unwrap_err().contains("10485760 bytes"));
    }

    #[test]
    fn times_are_read_as_date_reads_them() {
        // `date -u -d TIME +%s`
        let known = [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-11-28T18:37:47Z", 1_795_891_067),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ];
        for (text, seconds) in known {
            assert_eq!(seconds_of(text), Some(seconds), "{text}");
        }
        for wrong in [
            "2030-02-29T00:00:00Z",
            "2030-04-31T00:00:00Z",
            "",
            "2026-11-28",
            "2026-13-01T00:00:00Z",
            "2026-11-28T24:00:00Z",
            "1960-01-01T00:00:00Z",
            "+026-11-28T00:00:00Z",
        ] {
            assert_eq!(seconds_of(wrong), None, "{wrong}");
        }
    }
}

//! What identifies a process.

use std::str::FromStr;

use nearq_platform::parse_switch;
use serde::{Deserialize, Serialize};

use super::bounds;

/// A process that can be inspected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number as it knows it: within its container.
    pub pid: u32,
    /// Its command line, cut to 256 bytes.
    #[serde(deserialize_with = "bounds::name")]
    pub command: String,
    /// The library's version.
    #[serde(deserialize_with = "bounds::name")]
    pub version: String,
    /// The access that its settings allow to users other than root.
    #[serde(with = "wire")]
    pub control: Access,
    /// What the caller may do.
    #[serde(with = "wire")]
    pub allowed: Access,
    /// The time since the server began to answer.
    pub since_ns: u64,
    /// Whether it has a runtime; if not, only its mutexes can be inspected.
    pub runtime: bool,
    /// Workqueues.
    pub queues: u64,
    /// Worker threads.
    pub workers: u64,
}

/// What a caller may do to a process over its control socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Access {
    /// Nothing: there is no socket, not even for root.
    Off,
    /// Inspect.
    #[default]
    Read,
    /// Inspect and change.
    Full,
}

mod wire {
    //! An access in messages: a word.

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Access;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(access: &Access, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(access.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Access, D::Error> {
        match std::borrow::Cow::<'de, str>::deserialize(from)?.as_ref() {
            "off" => Ok(Access::Off),
            "read" => Ok(Access::Read),
            "full" => Ok(Access::Full),
            other => Err(D::Error::unknown_variant(other, &["off", "read", "full"])),
        }
    }
}

impl Access {
    /// Its name: `off`, `read` or `full`.
    pub fn name(self) -> &'static str {
        match self {
            Access::Off => "off",
            Access::Read => "read",
            Access::Full => "full",
        }
    }

    /// What [`FromStr`] takes, in words.
    pub const NAMES: &str =
        "off, read or full; 0, no and false are off, and 1, on, yes and true are read";
}

/// Parses the name of an access, in capital or small letters, or a word of a switch. A switch that is on is [`Read`](Access::Read), one
/// that is off is [`Off`](Access::Off).
///
/// ```
/// # mod nearq { pub use nearq_control::protocol as control; }
/// use nearq::control::Access;
///
/// assert_eq!("full".parse(), Ok(Access::Full));
/// assert_eq!("NO".parse(), Ok(Access::Off));
/// assert!("all".parse::<Access>().is_err());
/// ```
impl FromStr for Access {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, &'static str> {
        let name = name.trim();
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match parse_switch(name) {
            Some(false) => Ok(Access::Off),
            Some(true) => Ok(Access::Read),
            None if is("read") => Ok(Access::Read),
            None if is("full") => Ok(Access::Full),
            None => Err(Self::NAMES),
        }
    }
}

//! The calls of the interface `nearq.control1` and their answers, as data: the content of the messages on the socket.
//!
//! The framing is that of varlink: each call and each answer is one JSON object, ended by a zero byte. A call is `{"method":
//! "nearq.control1.GetProcess", "parameters": {}}`, its answer `{"parameters": {"process": ...}}`, or `{"error":
//! "nearq.control1.NoSuchQueue", "parameters": {...}}`. A call with `"more": true` has several answers, all but the last of which say
//! `"continues": true`. Names of fields are the names in these types.
//!
//! **Versions.** Fields may be added to answers, and optional ones to calls, within `nearq.control1`; a client ignores fields that
//! it does not know. Any other change makes another interface, `nearq.control2`.
//!
//! Times are in nanoseconds, on the clock `CLOCK_MONOTONIC` if they are points in time. CPUs are lists (`0-3,8`). Counters count
//! since the process began, and never go back.

mod bounds;
mod dump;
mod locks;
mod process;
mod settings;
mod statistics;
mod trace;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use bounds::{LONGEST_LIST, LONGEST_NAME, LONGEST_TEXT, MOST_ROWS};
pub use dump::{
    Dump, HomeDump, MachineNode, NodeHomes, NodeLimit, PodDump, PoolDump, QueueDump, RescuerDump,
    RunningItem, ScopeDump, WaitingItems,
};
pub use locks::{AdaptiveLock, Locks, RowedLock};
pub use process::{Access, Process};
pub use settings::{ProcessSettings, QueueSettings, Setting, Settings};
pub use statistics::{Bucket, Histogram, PodStatistics, QueueStatistics, Statistics};
pub use trace::{TraceBatch, TraceEvent, TraceKind, TracedQueue};

/// The interface's name.
pub const INTERFACE: &str = "nearq.control1";
/// Bytes of a call at most, its zero byte included.
pub const LONGEST_CALL: usize = 64 * 1024;
/// Connections that a process has open at most.
pub const MOST_CONNECTIONS: usize = 16;
/// Items that a process times at most, for all clients together.
pub const MOST_SAMPLES_PER_SECOND: u32 = 20_000;

/// Bytes of a refusal that a client reads.
pub const LONGEST_REFUSAL: usize = 4 << 20;

/// Queues or keys that a refusal names: it is one line.
const MOST_NAMED: usize = 12;

/// A call, and the type of its answer.
pub trait Request: Serialize {
    /// The method's name, without the name of the interface.
    const METHOD: &'static str;
    /// The answer.
    type Reply: DeserializeOwned;
    /// Bytes of an answer that a client reads at most. A longer one is refused.
    const LONGEST_REPLY: usize;
}

macro_rules! requests {
    ($($name:ident -> $reply:ty, $longest:expr;)*) => {
        $(impl Request for $name {
            const METHOD: &'static str = stringify!($name);
            type Reply = $reply;
            const LONGEST_REPLY: usize = $longest;
        })*
    };
}

requests! {
    GetProcess -> ProcessReply, 64 << 10;
    // Ten thousand queues whose items are timed.
    GetStatistics -> StatisticsReply, 64 << 20;
    GetDump -> DumpReply, 64 << 20;
    GetSettings -> SettingsReply, 64 << 20;
    Set -> SettingsReply, 64 << 20;
    Keep -> KeepReply, 64 << 10;
    // A batch.
    Trace -> TraceBatch, 8 << 20;
}

/// Identifies the process, and reports what the caller may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetProcess {}

/// The answer to [`GetProcess`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessReply {
    /// The process.
    pub process: Process,
}

/// Reports what has happened on each queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetStatistics {
    /// Whether items must be timed from now on, until the connection is closed. If no client asks for this, no item reads a clock.
    #[serde(default)]
    pub timing: bool,
}

/// The answer to [`GetStatistics`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatisticsReply {
    /// The counts.
    pub statistics: Statistics,
}

/// A snapshot of everything that can be inspected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetDump {
    /// Whether to include the functions of the items that wait. Workers that look for their next item may have to wait for some
    /// microseconds.
    #[serde(default)]
    pub items: bool,
    /// Whether to include the mutexes.
    #[serde(default)]
    pub locks: bool,
}

/// The answer to [`GetDump`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DumpReply {
    /// The state of the process.
    pub dump: Dump,
}

/// Reports the settings as configured, and as they are in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetSettings {
    /// A queue's name, or `#` and its number; if missing, all queues and the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

/// The answer to [`GetSettings`] and [`Set`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsReply {
    /// The current settings.
    pub settings: Settings,
}

/// Changes settings of a queue or of the process. If one change is refused, none is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// A queue's name, or `#` and its number; if missing, the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Values by key, as the kernel's files have them.
    pub changes: BTreeMap<String, String>,
    /// Undoes the changes when the connection is closed, whichever side closes it, unless [`Keep`] was called. Refused ([`Refusal::Busy`])
    /// if another connection holds such a change of one of the keys. A change without this flag takes the key from that connection, and is
    /// permanent.
    #[serde(default)]
    pub until_closed: bool,
}

/// Makes permanent what was set until the connection is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {}

/// The answer to [`Keep`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepReply {}

/// Reports what happens to items, until the connection is closed. Must be called with `more`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// A queue's name, or `#` and its number; if missing, all queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Reports at most one item in this many; a power of two, 1 if not given. Further items are left out if there are more than
    /// [`MOST_SAMPLES_PER_SECOND`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
}

/// Why a call was refused. On the wire: `nearq.control1.` and the variant's name, with its fields as parameters.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "error", content = "parameters")]
pub enum Refusal {
    /// No queue has that name.
    NoSuchQueue {
        /// The name that was asked for.
        #[serde(deserialize_with = "bounds::text")]
        queue: String,
        /// The existing names.
        #[serde(deserialize_with = "bounds::names::<MOST_ROWS, _>")]
        queues: Vec<String>,
    },
    /// Several queues have that name.
    Ambiguous {
        /// The name that was asked for.
        #[serde(deserialize_with = "bounds::text")]
        queue: String,
        /// What to pass instead.
        #[serde(deserialize_with = "bounds::names::<MOST_ROWS, _>")]
        numbers: Vec<String>,
    },
    /// There is no such setting.
    NoSuchKey {
        /// The key that was asked for.
        #[serde(deserialize_with = "bounds::text")]
        key: String,
        /// The existing keys.
        #[serde(deserialize_with = "bounds::names::<MOST_ROWS, _>")]
        keys: Vec<String>,
    },
    /// A setting cannot have that value.
    BadValue {
        /// The key.
        #[serde(deserialize_with = "bounds::text")]
        key: String,
        /// The value that was asked for.
        #[serde(deserialize_with = "bounds::text")]
        value: String,
        /// Why not, and what is allowed, in words.
        #[serde(deserialize_with = "bounds::text")]
        why: String,
    },
    /// The caller may not do that.
    NotPermitted {
        /// What would allow it, in words.
        #[serde(deserialize_with = "bounds::text")]
        why: String,
    },
    /// The process does not have what the call needs, for example a runtime.
    NotHere {
        /// What is missing, in words.
        #[serde(deserialize_with = "bounds::text")]
        why: String,
    },
    /// Other clients use so much of the server's capacity that the call cannot be served now; it may be repeated later.
    Busy {
        /// What the server has no capacity for, in words.
        #[serde(deserialize_with = "bounds::text")]
        why: String,
    },
    /// The received message is not a valid call: it is not JSON, is too long, or was not complete in time. The connection is closed.
    BadCall {
        /// What is wrong with it, in words.
        #[serde(deserialize_with = "bounds::text")]
        why: String,
    },
    /// The process failed to answer: a bug in the library, or in a hook of the program.
    Failed {
        /// What happened, in words.
        #[serde(deserialize_with = "bounds::text")]
        why: String,
    },
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::NoSuchQueue { queue, queues } if queues.is_empty() => {
                write!(
                    f,
                    "there is no queue `{queue}`: the process has none now; `nearq ps` shows how many each process has"
                )
            }
            Refusal::NoSuchQueue { queue, queues } => {
                write!(f, "there is no queue `{queue}`; there are {}", some_of(queues))?;
                if queues.len() > MOST_NAMED {
                    f.write_str("; `nearq dump PID` lists them")
                } else {
                    Ok(())
                }
            }
            Refusal::Ambiguous { queue, numbers } => write!(
                f,
                "several queues have the name `{queue}`; give one by its number: {}",
                some_of(numbers)
            ),
            Refusal::NoSuchKey { key, keys } => {
                write!(f, "there is no setting `{key}` here; the settings are {}", some_of(keys))
            }
            Refusal::BadValue { key, value, why } => write!(f, "{key} cannot be `{value}`: {why}"),
            Refusal::NotPermitted { why }
            | Refusal::NotHere { why }
            | Refusal::Busy { why }
            | Refusal::BadCall { why }
            | Refusal::Failed { why } => f.write_str(why),
        }
    }
}

nearq_topology::debug_as_display!(Refusal);

impl std::error::Error for Refusal {}

/// Some of the names, and how many more there are.
pub fn some_of<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<&str> = names.iter().take(MOST_NAMED).map(AsRef::as_ref).collect();
    let others = match names.len() - shown.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    shown.join(", ") + &others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_only_a_few_of_many_queues() {
        let refusal = |count| {
            let queues = (1..=count).map(|number| format!("q{number}")).collect();
            Refusal::NoSuchQueue { queue: "x".into(), queues }.to_string()
        };
        assert_eq!(
            refusal(0),
            "there is no queue `x`: the process has none now; `nearq ps` shows how many each process has"
        );
        assert_eq!(refusal(2), "there is no queue `x`; there are q1, q2");
        assert!(refusal(12).ends_with("q11, q12"));
        assert!(refusal(200).ends_with("q12 and 188 more; `nearq dump PID` lists them"));
        let many = || vec!["#1".to_owned(); 1 << 17];
        let key = Refusal::NoSuchKey { key: "x".into(), keys: many() };
        let queue = Refusal::Ambiguous { queue: "x".into(), numbers: many() };
        for refusal in [key, queue].map(|refusal| refusal.to_string()) {
            assert!(refusal.ends_with("#1 and 131060 more") && refusal.len() < 200, "{refusal}");
        }
    }
}

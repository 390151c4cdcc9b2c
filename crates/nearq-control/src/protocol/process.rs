//! Who a process is.

use serde::{Deserialize, Serialize};

use super::bounds;

/// A process that can be looked into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, as it knows itself: within its container.
    pub pid: u32,
    /// Its command line, cut to 256 bytes.
    #[serde(deserialize_with = "bounds::name")]
    pub command: String,
    /// The library's version.
    #[serde(deserialize_with = "bounds::name")]
    pub version: String,
    /// What its settings allow to those who are not root.
    pub control: Access,
    /// What the caller may do.
    pub allowed: Access,
    /// How long the server has been there.
    pub since_ns: u64,
    /// Whether it has a runtime; else its mutexes are all that there is.
    pub runtime: bool,
    /// Workqueues.
    pub queues: u64,
    /// Worker threads.
    pub workers: u64,
}

/// What a caller may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Nothing: there is no socket.
    Off,
    /// Look.
    #[default]
    Read,
    /// Look and change.
    Full,
}

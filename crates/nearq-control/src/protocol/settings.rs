//! Settings as configured, and as they are in effect.

use serde::{Deserialize, Serialize};

use super::bounds::{self, MOST_FEW, MOST_ROWS};

/// Settings of the process, of queues, or of both, as they were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The settings of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessSettings>,
    /// The settings of queues, oldest first.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub queues: Vec<QueueSettings>,
}

/// Settings of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSettings {
    /// In the order of `nearq knobs`.
    #[serde(deserialize_with = "bounds::most::<MOST_FEW, _, _>")]
    pub settings: Vec<Setting>,
}

/// Settings of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSettings {
    /// Its number.
    pub id: u64,
    /// Its name.
    #[serde(deserialize_with = "bounds::name")]
    pub name: String,
    /// In the order of `nearq knobs`.
    #[serde(deserialize_with = "bounds::most::<MOST_FEW, _, _>")]
    pub settings: Vec<Setting>,
}

/// One setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its key.
    #[serde(deserialize_with = "bounds::name")]
    pub key: String,
    /// The configured value, as `Set` takes it; empty for a setting that cannot be set.
    #[serde(deserialize_with = "bounds::list")]
    pub configured: String,
    /// What is in effect: `default (cache_shard)` if it is inherited.
    #[serde(deserialize_with = "bounds::list")]
    pub effective: String,
    /// Whether it can be set here: an ordered queue's `max_active` cannot, for example.
    pub writable: bool,
}

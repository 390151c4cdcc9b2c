//! Everything that can be set: each setting with its name in the kernel, in the environment, in the API and for `set`, and with how it is
//! shown and set. The server, the command and `docs/knobs.md` are all based on this one table.

mod rows;

use crate::protocol::Setting;

pub(crate) use rows::{LOCKS, PROCESS, QUEUE};

/// What a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A queue.
    Queue,
    /// The process.
    Process,
}

/// The description of something that can be set, or read.
#[derive(Clone, Copy, Debug)]
pub struct SettingDesc {
    /// The key for `get` and `set`.
    pub key: &'static str,
    /// What it belongs to.
    pub owner: Owner,
    /// Whether it can be set while the process runs.
    pub writable: bool,
    /// The values it may have, in words.
    pub values: &'static str,
    /// What it does, in a sentence.
    pub what: &'static str,
    /// The kernel's file or parameter; empty if the kernel has none.
    pub kernel: &'static str,
    /// The variable of the environment; empty if there is none.
    pub environment: &'static str,
    /// The call of the API.
    pub api: &'static str,
}

impl SettingDesc {
    /// Its value in the process that is asked: what was set, and what is in effect.
    pub(crate) fn setting(
        &self,
        (configured, effective): (String, String),
        writable: bool,
    ) -> Setting {
        Setting { key: self.key.to_owned(), configured, effective, writable }
    }
}

/// The row with that key.
pub(crate) fn row<'a, W>(table: &'a [(SettingDesc, W)], key: &str) -> Option<&'a (SettingDesc, W)> {
    table.iter().find(|(desc, _)| desc.key == key)
}

/// All settings: those of a queue, then those of the process.
pub fn all() -> impl Iterator<Item = &'static SettingDesc> {
    let queue = QUEUE.iter().map(|(desc, _)| desc);
    let process = PROCESS.iter().map(|(desc, _)| desc);
    queue.chain(process).chain(LOCKS.iter().map(|(desc, _)| desc))
}

/// The settings of an owner, in the table's order.
pub fn of(owner: Owner) -> impl Iterator<Item = &'static SettingDesc> {
    all().filter(move |desc| desc.owner == owner)
}

/// The setting of an owner with that key.
pub fn named(owner: Owner, key: &str) -> Option<&'static SettingDesc> {
    of(owner).find(|desc| desc.key == key)
}

/// The key of the same owner whose value may change along with the value of this key: a lower limit lowers the minimum for each node.
pub fn taken_along(key: &str) -> Option<&'static str> {
    (key == "max_active").then_some("min_active")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_words_and_unique_for_each_owner() {
        for desc in all() {
            assert_eq!(of(desc.owner).filter(|other| other.key == desc.key).count(), 1);
            assert!(desc.key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert!(!desc.what.is_empty() && !desc.api.is_empty() && !desc.values.is_empty());
        }
    }
}

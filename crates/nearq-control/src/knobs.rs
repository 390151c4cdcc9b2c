//! Everything that can be set: each setting with its name in the kernel, in the environment, in the API and for `set`, and with how it is
//! shown and set. The server, the command and `docs/knobs.md` all take what they say and do from this one table.

mod table;

use crate::protocol::Setting;

pub(crate) use table::{LOCKS, PROCESS, QUEUE};

/// What a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// One queue's.
    Queue,
    /// The process's.
    Process,
}

/// Something that can be set, or read.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
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

impl Knob {
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
pub(crate) fn row<'a, W>(table: &'a [(Knob, W)], key: &str) -> Option<&'a (Knob, W)> {
    table.iter().find(|(knob, _)| knob.key == key)
}

/// All of them: what is one queue's, then what is the process's.
pub fn all() -> impl Iterator<Item = &'static Knob> {
    let queue = QUEUE.iter().map(|(knob, _)| knob);
    let process = PROCESS.iter().map(|(knob, _)| knob);
    queue.chain(process).chain(LOCKS.iter().map(|(knob, _)| knob))
}

/// The knobs of an owner, in the table's order.
pub fn of(owner: Owner) -> impl Iterator<Item = &'static Knob> {
    all().filter(move |knob| knob.owner == owner)
}

/// The knob of an owner with that key.
pub fn named(owner: Owner, key: &str) -> Option<&'static Knob> {
    of(owner).find(|knob| knob.key == key)
}

/// The key of the same owner whose value may change along with this one's: a lower limit lowers what each node has at least.
pub fn taken_along(key: &str) -> Option<&'static str> {
    (key == "max_active").then_some("min_active")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_words_and_stand_once_for_each_owner() {
        for knob in all() {
            assert_eq!(of(knob.owner).filter(|other| other.key == knob.key).count(), 1);
            assert!(knob.key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert!(!knob.what.is_empty() && !knob.api.is_empty() && !knob.values.is_empty());
        }
    }
}

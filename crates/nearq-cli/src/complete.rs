//! Candidates for arguments that only a look at this machine knows: processes, their queues, keys and values.
//!
//! A shell waits for the answer while a user types, so processes that do not answer soon are left out.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::time::{Duration, Instant};

use nearq_command::completion::{Asked, Candidate};
use nearq_command::screen;
use nearq_control::client::Client;
use nearq_control::protocol::{GetSettings, QueueSettings, SettingsReply};
use nearq_control::settings_table::{self, Owner, SettingDesc};

use crate::attach;

/// How long a shell waits for processes.
const PATIENCE: Duration = Duration::from_millis(500);

/// The candidates for an argument; `None` if clap knows them, if anything does.
pub(crate) fn values(asked: &Asked<'_>) -> Option<Vec<Candidate>> {
    match (asked.command, asked.argument) {
        (_, "pid") => Some(processes()),
        ("set", "words") => Some(changes(asked)),
        ("get", "queue") => Some([queues(pid_of(asked)?), keys(Owner::Process, "")].concat()),
        ("get", "key") => Some(keys(Owner::Queue, "")),
        (_, "queue") => Some(queues(pid_of(asked)?)),
        ("knobs", "key") => Some([keys(Owner::Queue, ""), keys(Owner::Process, "")].concat()),
        _ => None,
    }
}

fn pid_of(asked: &Asked<'_>) -> Option<u32> {
    asked.before.first()?.parse().ok()
}

/// The processes that `nearq ps` lists, and their command lines.
fn processes() -> Vec<Candidate> {
    let found = attach::processes().unwrap_or_default();
    let answers = attach::ask_all(&found, PATIENCE, Instant::now() + PATIENCE);
    let with_answers = found.iter().zip(answers);
    let known = with_answers.filter_map(|(found, answer)| Some((found.pid, answer.ok()?)));
    known.map(|(pid, process)| Candidate::new(pid.to_string(), process.command)).collect()
}

/// The queues of a process: by name, or by number if several have the same name or it means something else.
fn queues(pid: u32) -> Vec<Candidate> {
    let ask = || {
        let mut client = Client::connect_within(pid, PATIENCE).ok()?;
        client.set_patience(PATIENCE);
        let SettingsReply { settings } = client.call(&GetSettings { queue: None }).ok()?;
        Some(settings.queues)
    };
    named(&ask().unwrap_or_default())
}

fn named(queues: &[QueueSettings]) -> Vec<Candidate> {
    let of_one = |queue: &QueueSettings| {
        let is_same = |other: &&QueueSettings| other.name == queue.name;
        if !is_plain(&queue.name) || queues.iter().filter(is_same).count() > 1 {
            Candidate::new(format!("#{}", queue.id), format!("the queue {}", queue.name))
        } else {
            Candidate::new(queue.name.clone(), format!("the queue #{}", queue.id))
        }
    };
    queues.iter().map(of_one).collect()
}

/// Whether a queue's name, as a word of a command, means that queue and nothing else: no number, option, change or key of the process. Names
/// with control characters are printed in another way.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(['#', '-'])
        && !name.contains('=')
        && screen::plain(name) == name
        && settings_table::named(Owner::Process, name).is_none()
}

/// The next word of `nearq set`: a queue or a key of the process; then keys of the queue, and the values of a key.
fn changes(asked: &Asked<'_>) -> Vec<Candidate> {
    let words = asked.before.get(1..).unwrap_or_default();
    let of_queue = words.first().is_some_and(|word| !word.contains('='));
    let owner = if of_queue { Owner::Queue } else { Owner::Process };
    if let Some((key, _)) = asked.typed.split_once('=') {
        let desc = settings_table::named(owner, key);
        return desc.map(values_of).unwrap_or_default();
    }
    let mut found = Vec::new();
    if words.is_empty() {
        found = pid_of(asked).map(queues).unwrap_or_default();
    }
    let is_new = |key: &Candidate| !words.iter().any(|word| word.starts_with(&key.word));
    found.extend(keys(owner, "=").into_iter().filter(is_new));
    found
}

/// The keys; with `=` behind them, only those that can be set.
fn keys(owner: Owner, behind: &str) -> Vec<Candidate> {
    let listed = settings_table::of(owner).filter(|desc| behind.is_empty() || desc.writable);
    listed.map(|desc| Candidate::new(format!("{}{behind}", desc.key), desc.what)).collect()
}

/// `key=value` for the values that are words: `0 or 1`, or a list of names.
fn values_of(desc: &SettingDesc) -> Vec<Candidate> {
    let list = desc.values.split(';').next().unwrap_or_default();
    let words: Vec<&str> =
        list.split(", ").flat_map(|part| part.split(" or ")).map(str::trim).collect();
    let is_word = |word: &&str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if !words.iter().all(is_word) {
        return Vec::new();
    }
    words.iter().map(|word| Candidate::new(format!("{}={word}", desc.key), "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(found: &[Candidate]) -> Vec<&str> {
        found.iter().map(|one| one.word.as_str()).collect()
    }

    fn asked<'a>(before: &'a [String], typed: &'a str) -> Asked<'a> {
        Asked { command: "set", argument: "words", before, typed }
    }

    #[test]
    fn keys_come_after_the_queue_and_values_after_the_key() {
        let before = ["0", "crypt", "nice=3"].map(String::from);
        let found = changes(&asked(&before, ""));
        assert!(words(&found).contains(&"affinity_scope="), "{found:?}");
        assert!(!words(&found).contains(&"nice="), "each key once");
        assert!(!words(&found).contains(&"per_cpu="), "it cannot be set");
        let found = changes(&asked(&before, "affinity_strict="));
        assert_eq!(words(&found), ["affinity_strict=0", "affinity_strict=1"]);
        let found = changes(&asked(&before, "affinity_scope="));
        assert!(words(&found).contains(&"affinity_scope=cache"), "{found:?}");
        assert!(changes(&asked(&before, "cpumask=")).is_empty());
        // Without a queue: the process, which is not there.
        let found = changes(&asked(&before[..1], ""));
        assert!(words(&found).contains(&"default_affinity_scope="), "{found:?}");
    }

    #[test]
    fn queues_of_the_same_name_are_named_by_number() {
        let queue = |id, name: &str| QueueSettings { id, name: name.into(), settings: Vec::new() };
        let found = named(&[queue(1, "log"), queue(2, "crypt"), queue(3, "log")]);
        assert_eq!(words(&found), ["#1", "crypt", "#3"]);
        // As words these would be another queue, an option, a change, a key of the process, and nothing that exists.
        let names = ["#9", "-n", "nice=3", "k=v", "spin", "two\nlines", "tab\tstop", ""];
        let queues: Vec<_> = (1..).zip(names).map(|(id, name)| queue(id, name)).collect();
        let numbers: Vec<_> = (1..=names.len()).map(|id| format!("#{id}")).collect();
        assert_eq!(words(&named(&queues)), numbers);
        let names = ["a b", "it's", "$(x)", "\\", "ü", "~", "*"];
        let queues: Vec<_> = (1..).zip(names).map(|(id, name)| queue(id, name)).collect();
        assert_eq!(words(&named(&queues)), names);
    }
}

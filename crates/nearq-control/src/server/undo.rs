//! The changes that are undone when a connection ends.
//!
//! Before a change that lasts until the connection is closed, the old *configured* values of its keys are noted, and also the values of the
//! keys that change along with them (`settings_table::taken_along`). When the connection ends, for any reason, the old values are set
//! again, the last change first. If a key is changed several times, only the first value is noted. A queue is noted by its number, so that
//! another queue that has the same name by then is left alone.
//!
//! Only one connection at a time holds a key. A second connection that wants to change the key until its own end is refused, because it
//! would note the first connection's value, and later restore that. A permanent change takes the key from the connection that holds it:
//! then nothing is restored.

use std::collections::BTreeMap;

use crate::control_target::ControlTarget;
use crate::protocol::{Refusal, Set, Setting};
use crate::settings_table::taken_along;

/// Old values that connections hold.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// The noted values, oldest first, each with its connection.
    notes: Vec<(Holder, Note)>,
    connections: u64,
}

/// Identifies one of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder(u64);

/// Old values of one queue, or of the process.
#[derive(Debug)]
pub(super) struct Note {
    /// `#` and the queue's number; if missing, the process.
    queue: Option<String>,
    values: BTreeMap<String, String>,
}

impl Note {
    /// Reads the values that a change will overwrite.
    pub(super) fn of(target: &dyn ControlTarget, set: &Set) -> Result<Self, Refusal> {
        let settings = target.settings(set.queue.as_deref())?;
        let (queue, settings) = match settings.queues.into_iter().next() {
            Some(queue) if set.queue.is_some() => (Some(format!("#{}", queue.id)), queue.settings),
            _ => (None, settings.process.unwrap_or_default().settings),
        };
        let along: Vec<&str> = set.changes.keys().filter_map(|key| taken_along(key)).collect();
        let changed = |setting: &Setting| {
            let requested = set.changes.contains_key(&setting.key);
            requested || setting.writable && along.contains(&setting.key.as_str())
        };
        let old = settings.into_iter().filter(changed);
        let values = old.map(|setting| (setting.key, setting.configured)).collect();
        Ok(Note { queue, values })
    }

    fn restore(&self, target: &mut dyn ControlTarget) {
        let queue = self.queue.as_deref();
        if self.values.is_empty() || target.set(queue, &self.values).is_ok() {
            return;
        }
        // One of the values is no longer possible, or the queue is gone: restore each value that can be restored.
        for (key, value) in &self.values {
            let _ = target.set(queue, &BTreeMap::from([(key.clone(), value.clone())]));
        }
    }
}

impl Undo {
    /// Adds a connection, which holds nothing yet.
    pub(super) fn connection(&mut self) -> Holder {
        self.connections += 1;
        Holder(self.connections)
    }

    /// Refuses a change of a key that another connection holds.
    pub(super) fn may_hold(&self, holder: Holder, note: &Note) -> Result<(), Refusal> {
        let others =
            self.notes.iter().filter(|(of, held)| *of != holder && held.queue == note.queue);
        let mut keys = others.flat_map(|(_, held)| held.values.keys());
        let Some(key) = keys.find(|key| note.values.contains_key(*key)) else { return Ok(()) };
        let why = format!(
            "another connection has set {key} temporarily, as `nearq tune` does, and restores it when it closes; try again then, \
             or set it permanently"
        );
        Err(Refusal::Busy { why })
    }

    /// Notes that the change was made, until the connection ends.
    pub(super) fn add(&mut self, holder: Holder, mut note: Note) {
        let earlier =
            self.notes.iter().filter(|(of, earlier)| *of == holder && earlier.queue == note.queue);
        for (_, earlier) in earlier {
            note.values.retain(|key, _| !earlier.values.contains_key(key));
        }
        if !note.values.is_empty() {
            self.notes.push((holder, note));
        }
    }

    /// Notes that the change was made, permanently.
    pub(super) fn stays(&mut self, note: &Note) {
        for (_, held) in self.notes.iter_mut().filter(|(_, held)| held.queue == note.queue) {
            held.values.retain(|key, _| !note.values.contains_key(key));
        }
        self.notes.retain(|(_, held)| !held.values.is_empty());
    }

    /// Makes the changes of the connection permanent.
    pub(super) fn keep(&mut self, holder: Holder) {
        self.notes.retain(|(of, _)| *of != holder);
    }

    /// Undoes everything that the connection has changed.
    pub(super) fn restore(&mut self, holder: Holder, target: &mut dyn ControlTarget) {
        while let Some(index) = self.notes.iter().rposition(|(of, _)| *of == holder) {
            let (_, note) = self.notes.remove(index);
            note.restore(target);
        }
    }
}

//! What is taken back when a connection ends.
//!
//! Before a change that is to last until the connection is closed, the old *configured* values of the same keys are noted, and of those that
//! change along (`knobs::taken_along`); when it ends, for whatever reason, they are set again, the last change first. A key that is changed several times has the first note alone. A queue is
//! noted by its number, so that another one that has its name by then is left alone.
//!
//! Two connections that change the same key do not know of each other: each sets back what it found. If the one that came first ends
//! first, its note is overwritten by the second one's end, which sets back what the first had set.

use std::collections::BTreeMap;

use crate::knobs::taken_along;
use crate::protocol::{Refusal, Set, Setting};
use crate::subject::Subject;

/// Old values.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// What is noted, the oldest first.
    notes: Vec<Note>,
}

/// Old values of one queue, or of the process.
#[derive(Debug)]
pub(super) struct Note {
    /// `#` and the queue's number; the process without it.
    queue: Option<String>,
    values: BTreeMap<String, String>,
}

impl Note {
    /// What a change will overwrite.
    pub(super) fn look(subject: &dyn Subject, set: &Set) -> Result<Self, Refusal> {
        let settings = subject.settings(set.queue.as_deref())?;
        let (queue, settings) = match settings.queues.into_iter().next() {
            Some(queue) if set.queue.is_some() => (Some(format!("#{}", queue.id)), queue.settings),
            _ => (None, settings.process.unwrap_or_default().settings),
        };
        let along: Vec<&str> = set.changes.keys().filter_map(|key| taken_along(key)).collect();
        let changed = |setting: &Setting| {
            let own = set.changes.contains_key(&setting.key);
            own || setting.writable && along.contains(&setting.key.as_str())
        };
        let old = settings.into_iter().filter(changed);
        let values = old.map(|setting| (setting.key, setting.configured)).collect();
        Ok(Note { queue, values })
    }

    fn set_back(&self, subject: &mut dyn Subject) {
        let queue = self.queue.as_deref();
        if self.values.is_empty() || subject.set(queue, &self.values).is_ok() {
            return;
        }
        // One of them cannot be had any more, or the queue is gone: what can be set back is.
        for (key, value) in &self.values {
            let _ = subject.set(queue, &BTreeMap::from([(key.clone(), value.clone())]));
        }
    }
}

impl Undo {
    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// The change was made.
    pub(super) fn add(&mut self, mut note: Note) {
        for earlier in self.notes.iter().filter(|earlier| earlier.queue == note.queue) {
            note.values.retain(|key, _| !earlier.values.contains_key(key));
        }
        if !note.values.is_empty() {
            self.notes.push(note);
        }
    }

    /// What was changed stays.
    pub(super) fn keep(&mut self) {
        self.notes.clear();
    }

    /// Sets everything back.
    pub(super) fn set_back(&mut self, subject: &mut dyn Subject) {
        while let Some(note) = self.notes.pop() {
            note.set_back(subject);
        }
    }
}

//! The mutexes of this process: their state, and their settings.
//!
//! This module has parts for a target that also has a runtime ([`settings`], [`Changes`], [`dump`]), and [`LocksOnly`], the complete target
//! of a process without a runtime.
//!
//! Reading the state takes no lock and makes no thread wait (`nearq_lock::Snapshot`).

use std::collections::BTreeMap;

use nearq_lock::{Snapshot, Statistics, Threshold, UnknownMode};
use nearq_platform::{Instant, Linux, LockPlatform};

use crate::control_target::{ControlTarget, Tracing};
use crate::process::this_process;
use crate::protocol::{
    AdaptiveLock, Dump, GetDump, Locks, Process, ProcessSettings, Refusal, RowedLock, Setting,
    Settings, Trace,
};
use crate::settings_table::{self, LOCKS, SettingDesc};
use crate::values;

/// Which setting of the mutexes it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    Mode,
    Threshold(Threshold),
    Count,
}

impl Key {
    fn show(self, now: &nearq_lock::Settings) -> String {
        match self {
            Key::Mode => now.mode.to_string(),
            Key::Threshold(threshold) => threshold.get(now).to_string(),
            Key::Count => u8::from(now.count).to_string(),
        }
    }

    fn set(self, settings: &mut nearq_lock::Settings, value: &str) -> Result<(), String> {
        match self {
            Key::Mode => {
                settings.mode = value.parse().map_err(|error: UnknownMode| error.to_string())?;
            }
            Key::Threshold(threshold) => {
                let number = values::parse_number(value, threshold.bounds(), threshold.unit())?;
                threshold.set(settings, number).map_err(|error| error.to_string())?;
            }
            Key::Count => settings.count = values::parse_switch(value)?,
        }
        Ok(())
    }
}

/// The keys of the settings, in the order of [`settings_table`].
pub fn keys() -> impl Iterator<Item = &'static str> {
    LOCKS.iter().map(|(desc, _)| desc.key)
}

/// The settings of the mutexes of this process, in the order of [`settings_table`].
pub fn settings() -> Vec<Setting> {
    let now = nearq_lock::Settings::of_process();
    let setting = |(desc, key): &(SettingDesc, Key)| {
        let value = key.show(&now);
        desc.setting((value.clone(), value), desc.writable)
    };
    LOCKS.iter().map(setting).collect()
}

/// Changes of settings, collected before any is made, so that either all are made or none.
///
/// ```
/// use nearq_control::locks::{self, Changes};
///
/// let mut changes = Changes::default();
/// assert_eq!(changes.add("lock_batch", "512"), Some(Ok(())));
/// assert_eq!(changes.add("watchdog_thresh", "30"), None, "not a setting of mutexes");
/// assert!(changes.add("lock_quiet", "1000").is_some_and(|refused| refused.is_err()));
/// changes.apply();
/// let batch = locks::settings().into_iter().find(|setting| setting.key == "lock_batch");
/// assert_eq!(batch.map(|batch| batch.effective).as_deref(), Some("512"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Changes(Vec<(Key, String)>);

impl Changes {
    /// Adds a change; does nothing if the key is not a setting of mutexes. The last change of a key counts.
    ///
    /// # Errors
    /// The value is not possible. It is not added; the other changes stay.
    pub fn add(&mut self, key: &str, value: &str) -> Option<Result<(), Refusal>> {
        let (_, setting) = settings_table::row(LOCKS, key)?;
        let tried = setting.set(&mut nearq_lock::Settings::default(), value);
        let refuse = |why| Refusal::BadValue { key: key.to_owned(), value: value.to_owned(), why };
        Some(tried.map(|()| self.0.push((*setting, value.to_owned()))).map_err(refuse))
    }

    /// Makes all changes at once. Mutexes that threads wait for follow as soon as their present queues are empty.
    pub fn apply(self) {
        if self.0.is_empty() {
            return;
        }
        let mut settings = nearq_lock::Settings::of_process();
        for (key, value) in self.0 {
            let set = key.set(&mut settings, &value);
            debug_assert!(set.is_ok(), "it could be set when it was added");
        }
        settings.set_for_process();
    }
}

/// What is known about all mutexes of this process together, and about each mutex that has queues by cache now.
pub fn dump() -> Locks {
    let settings = nearq_lock::Settings::of_process();
    let counts = Statistics::of_process();
    let seen = Snapshot::of_process();
    let adaptive = seen.mutexes.iter().map(|mutex| AdaptiveLock {
        slot: mutex.slot.into(),
        held: mutex.held,
        caches: mutex.caches.into(),
    });
    let rwlocks = seen
        .rwlocks
        .iter()
        .map(|lock| RowedLock { row: lock.row.into(), readers: lock.readers.into() });
    Locks {
        mode: settings.mode.to_string(),
        counting: settings.count,
        slots_used: seen.mutexes.len() as u64,
        slots: seen.slots as u64,
        contended: counts.contended,
        in_turn: counts.in_turn,
        within: counts.within,
        across: counts.across,
        switched: counts.bound,
        switched_back: counts.unbound,
        slept_in_turn: counts.slept_in_turn,
        slept_in_queue: counts.slept_in_queue,
        gave_up: counts.gave_up,
        adaptive: adaptive.collect(),
        rwlocks: rwlocks.collect(),
    }
}

/// The target of a process without a runtime: only its mutexes can be inspected.
#[derive(Debug)]
pub struct LocksOnly {
    since: Instant,
}

impl LocksOnly {
    /// Makes a target for the mutexes of this process.
    pub fn new() -> Self {
        LocksOnly { since: Linux::now() }
    }
}

impl Default for LocksOnly {
    fn default() -> Self {
        Self::new()
    }
}

/// The refusal of a call about a queue, or about something that only queues have.
fn no_runtime() -> Refusal {
    Refusal::NotHere {
        why: "this process has no nearq runtime and therefore no workqueues: only its mutexes can be inspected (nearq dump PID --locks) \
     and set (lock_mode and the other lock_ keys)"
            .to_owned(),
    }
}

impl ControlTarget for LocksOnly {
    fn process(&self) -> Process {
        this_process(Linux::now() - self.since)
    }

    fn time_items(&mut self, _on: bool) -> Result<(), Refusal> {
        Err(no_runtime())
    }

    fn statistics(&self) -> Result<crate::protocol::Statistics, Refusal> {
        Err(no_runtime())
    }

    /// Only the mutexes, if they are asked for.
    fn dump(&self, wanted: &GetDump) -> Result<Dump, Refusal> {
        if !wanted.locks {
            return Err(no_runtime());
        }
        Ok(Dump { at_ns: Linux::now().as_nanos(), locks: Some(dump()), ..Dump::default() })
    }

    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal> {
        match queue {
            Some(_) => Err(no_runtime()),
            None => {
                let process = Some(ProcessSettings { settings: settings() });
                Ok(Settings { process, queues: Vec::new() })
            }
        }
    }

    fn set(
        &mut self,
        queue: Option<&str>,
        changes: &BTreeMap<String, String>,
    ) -> Result<Settings, Refusal> {
        if queue.is_some() {
            return Err(no_runtime());
        }
        let mut all = Changes::default();
        for (key, value) in changes {
            let no_such_key = || {
                let keys = keys().map(str::to_owned).collect();
                Err(Refusal::NoSuchKey { key: key.clone(), keys })
            };
            all.add(key, value).unwrap_or_else(no_such_key)?;
        }
        all.apply();
        self.settings(None)
    }

    fn trace(&mut self, _wanted: &Trace) -> Result<Box<dyn Tracing>, Refusal> {
        Err(no_runtime())
    }
}

#[cfg(test)]
mod tests;

//! Tries a configuration on the live queue: sets it until the connection closes, lets it settle, and measures.
//!
//! ***How everything is restored.** All changes are made with `until_closed`: the process itself undoes them when the connection is closed
//! for any reason, even by a SIGKILL of this command. So no code here has to run for that: this module only waits until the process has
//! undone the changes, and reports it.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nearq_command::screen::plain;
use nearq_control::client::Client;
use nearq_control::protocol::{
    GetProcess, GetSettings, GetStatistics, Keep, QueueSettings, QueueStatistics, Set, Settings,
    Statistics,
};

use super::plan::{Configuration, KEYS};
use super::verdict::Measurement;
use crate::attach;
use crate::output::Failure;

/// How long the process may take to restore the settings.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest pause without a request to the process.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// The pause between two checks whether the settings are restored.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a measurement has no result.
#[derive(Debug)]
pub(super) enum Stop {
    /// A signal asks the command to end.
    Signal(&'static str),
    /// Another process or thread has set these values, and they stay.
    Others(BTreeMap<String, String>),
    Failed(Failure),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stop::Signal(signal) => write!(f, "ended by {signal}"),
            Stop::Others(foreign_changes) => {
                let words = words(foreign_changes);
                write!(f, "something else has set {words} in the meantime; tuning stops")
            }
            Stop::Failed(failure) => failure.fmt(f),
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A queue, and the connection over which configurations are tried.
pub(super) struct Trial<'t> {
    pub(super) client: &'t mut Client,
    /// The queue's number.
    pub(super) id: u64,
    /// How long a configuration is in effect before it is measured: earlier items must be done, and workers must have moved.
    pub(super) settle: Duration,
    /// How long each configuration is measured.
    pub(super) measured: Duration,
    /// Signals.
    pub(super) signals: &'t Receiver<&'static str>,
    /// Whether anything has been set.
    pub(super) has_set: bool,
}

impl Trial<'_> {
    /// Sets a configuration and measures it.
    pub(super) fn measure(&mut self, tried: &Configuration) -> Result<Measurement, Stop> {
        let set = self.set(tried)?;
        self.wait(self.settle)?;
        let before = self.statistics()?;
        self.wait(self.measured)?;
        let after = self.statistics()?;
        let mut now = configured(&self.settings()?);
        now.retain(|key, value| set.get(key) != Some(value));
        if !now.is_empty() {
            return Err(Stop::Others(now));
        }
        measurement(self.id, &before, &after).ok_or_else(|| Stop::Failed(self.gone()))
    }

    /// Sets a configuration until the connection is closed; returns what is configured then.
    pub(super) fn set(
        &mut self,
        wanted: &Configuration,
    ) -> Result<BTreeMap<String, String>, Failure> {
        let set = Set {
            queue: Some(format!("#{}", self.id)),
            changes: wanted.changes.clone(),
            until_closed: true,
        };
        let settings = self.client.call(&set).map_err(attach::failure)?.settings;
        self.has_set = true;
        Ok(configured(&queue_of(settings, self.id).ok_or_else(|| self.gone())?))
    }

    /// Makes the current configuration permanent.
    pub(super) fn keep(&mut self) -> Result<(), Failure> {
        self.client.call(&Keep {}).map(drop).map_err(attach::failure)
    }

    fn settings(&mut self) -> Result<QueueSettings, Failure> {
        settings(self.client, self.id)
    }

    /// The counts; items are timed until the connection is closed.
    fn statistics(&mut self) -> Result<Statistics, Failure> {
        let asked = self.client.call(&GetStatistics { timing: true });
        Ok(asked.map_err(attach::failure)?.statistics)
    }

    /// Waits, and sends a request now and then, because the process may close an idle connection.
    fn wait(&mut self, time: Duration) -> Result<(), Stop> {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.signals.recv_timeout(left.min(SIGN_OF_LIFE)) {
                Ok(signal) => return Err(Stop::Signal(signal)),
                Err(RecvTimeoutError::Timeout) if left > SIGN_OF_LIFE => {
                    self.client.call(&GetProcess {}).map_err(attach::failure)?;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Stop::Failed(Failure::run("cannot wait for signals")));
                }
            }
        }
    }

    fn gone(&self) -> Failure {
        Failure::run(format!("the queue #{} no longer exists", self.id))
    }
}

/// The settings of a queue by its number.
pub(super) fn settings(client: &mut Client, id: u64) -> Result<QueueSettings, Failure> {
    let asked = client.call(&GetSettings { queue: Some(format!("#{id}")) });
    let settings = asked.map_err(attach::failure)?.settings;
    queue_of(settings, id).ok_or_else(|| Failure::run(format!("the queue #{id} no longer exists")))
}

fn queue_of(settings: Settings, id: u64) -> Option<QueueSettings> {
    settings.queues.into_iter().find(|queue| queue.id == id)
}

/// The configured values of a queue, for the settings that are tried.
pub(super) fn configured(queue: &QueueSettings) -> BTreeMap<String, String> {
    let tried = queue.settings.iter().filter(|setting| KEYS.contains(&setting.key.as_str()));
    tried.map(|setting| (setting.key.clone(), setting.configured.clone())).collect()
}

/// `affinity_scope=cache affinity_strict=1`: as `nearq set` takes it.
pub(super) fn words(changes: &BTreeMap<String, String>) -> String {
    let words: Vec<String> =
        changes.iter().map(|(key, value)| plain(&format!("{key}={value}"))).collect();
    words.join(" ")
}

/// Waits over a separate connection until the queue has the expected configuration; the error gives its actual configuration.
pub(super) fn await_configured(
    pid: u32,
    id: u64,
    wanted: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = attach::connect(pid)?;
        let now = configured(&settings(&mut client, id)?);
        if now == *wanted {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure::run(format!(
                "the queue has {} and not {}; another process or thread may have set that",
                words(&now),
                words(wanted)
            )));
        }
        thread::sleep(PAUSE);
    }
}

/// What happened on a queue between two samples; `None` if the queue no longer exists.
fn measurement(id: u64, before: &Statistics, after: &Statistics) -> Option<Measurement> {
    let of = |statistics: &Statistics| -> Option<QueueStatistics> {
        statistics.queues.iter().find(|queue| queue.id == id).cloned()
    };
    let (from, to) = (of(before)?, of(after)?);
    let ns = after.at_ns.saturating_sub(before.at_ns).max(1) as f64;
    let items = to.completed.saturating_sub(from.completed);
    let cpu_ns = to.cpu_ns.saturating_sub(from.cpu_ns) as f64;
    let wait = to.wait.unwrap_or_default().since(&from.wait.unwrap_or_default());
    let quantile = |part| wait.quantile(part).map(|ns| ns as f64 / 1e3);
    let parallel = after.parallelism.max(1) as f64;
    Some(Measurement {
        items,
        items_per_second: items as f64 / ns * 1e9,
        cpu_us_per_item: (items > 0).then(|| cpu_ns / items as f64 / 1e3),
        wait_us_p50: quantile(0.5),
        wait_us_p99: quantile(0.99),
        busy: cpu_ns / (ns * parallel),
        backlog: (to.running + to.waiting + to.inactive) as f64 / parallel,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::{Bucket, Histogram};

    fn statistics(at_ns: u64, completed: u64, wait: &[(u64, u64)]) -> Statistics {
        let buckets = wait.iter().map(|&(below_ns, count)| Bucket { below_ns, count }).collect();
        let queue = QueueStatistics {
            id: 7,
            completed,
            cpu_ns: completed * 2_000,
            running: 3,
            waiting: 5,
            wait: Some(Histogram { buckets, ..Histogram::default() }),
            ..QueueStatistics::default()
        };
        Statistics { at_ns, parallelism: 4, queues: vec![queue], ..Statistics::default() }
    }

    #[test]
    fn figures_cover_the_time_between_two_snapshots() {
        let before = statistics(1_000_000_000, 500, &[(1_000, 10)]);
        let after = statistics(3_000_000_000, 1_000_500, &[(1_000, 10), (3_000, 98), (9_000, 2)]);
        let measured = measurement(7, &before, &after).unwrap();
        assert_eq!((measured.items, measured.items_per_second), (1_000_000, 500_000.0));
        assert_eq!(measured.cpu_us_per_item, Some(2.0));
        assert_eq!((measured.wait_us_p50, measured.wait_us_p99), (Some(3.0), Some(9.0)));
        assert_eq!((measured.busy, measured.backlog), (0.25, 2.0));
        assert_eq!(measurement(8, &before, &after), None);
        let idle = measurement(7, &after, &after).unwrap();
        assert_eq!((idle.cpu_us_per_item, idle.wait_us_p99), (None, None));
    }
}

//! An invented process, and helpers with which tests serve and query it.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

pub(crate) mod answering;
pub(crate) mod speaking;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nearq_control::control_target::{ControlTarget, Tracing};
use nearq_control::protocol::{
    Access, Bucket, Dump, GetDump, Histogram, Process, ProcessSettings, QueueSettings,
    QueueStatistics, Refusal, Setting, Settings, Statistics, Trace, TraceBatch, TraceEvent,
};
use nearq_control::server::{Options, Server};

/// Longer than any step takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// The state of the invented process, for the test to check.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// Values by queue (empty for the process) and key.
    pub(crate) values: BTreeMap<(String, String), String>,
    /// What was set, in order, as `queue.key=value`.
    pub(crate) log: Vec<String>,
    /// Whether items are timed.
    pub(crate) timing: bool,
    /// How often timing was switched on or off.
    pub(crate) timing_changes: u32,
    /// Traces under way.
    pub(crate) traces: u32,
    /// The number of events that were read.
    pub(crate) taken: u64,
    /// How many events each read returns.
    pub(crate) events: usize,
    /// How many queues the statistics contain.
    pub(crate) queues: u64,
    /// How long an answer keeps the CPU busy.
    pub(crate) slow: Duration,
}

/// The world, shared with its target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn new() -> Self {
        let shared = Shared::default();
        let mut world = shared.world();
        for (queue, key, value) in [
            ("crypt", "nice", "0"),
            ("crypt", "max_active", "16"),
            ("crypt", "affinity_scope", "default"),
            ("", "watchdog_thresh", "30"),
            ("", "spin", "512"),
        ] {
            world.values.insert((queue.into(), key.into()), value.into());
        }
        world.queues = 2;
        world.events = 3;
        drop(world);
        shared
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn target(&self) -> Box<dyn ControlTarget> {
        Box::new(Invented(self.clone()))
    }

    pub(crate) fn value(&self, queue: &str, key: &str) -> String {
        self.world().values[&(queue.to_owned(), key.to_owned())].clone()
    }
}

struct Invented(Shared);

impl Invented {
    fn settings_of(&self, queue: &str) -> Vec<Setting> {
        let world = self.0.world();
        let of = world.values.iter().filter(|((name, _), _)| name == queue);
        of.map(|((_, key), value)| Setting {
            key: key.clone(),
            configured: value.clone(),
            effective: value.clone(),
            writable: true,
        })
        .collect()
    }
}

/// The queue that a call names.
fn queue_named(name: &str) -> Result<&'static str, Refusal> {
    match name {
        "crypt" | "#7" => Ok("crypt"),
        // A panic that bypasses the hook: the fuzzer's hook would report it as a finding.
        "panics" => std::panic::resume_unwind(Box::new("an invented mistake")),
        _ => Err(Refusal::NoSuchQueue { queue: name.into(), queues: vec!["crypt".into()] }),
    }
}

impl ControlTarget for Invented {
    fn process(&self) -> Process {
        Process {
            pid: std::process::id(),
            command: "invented".into(),
            version: "0".into(),
            control: Access::Off,
            allowed: Access::Off,
            since_ns: 0,
            runtime: true,
            queues: 1,
            workers: 2,
        }
    }

    fn time_items(&mut self, on: bool) -> Result<(), Refusal> {
        let mut world = self.0.world();
        world.timing = on;
        world.timing_changes += 1;
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, Refusal> {
        let world = self.0.world();
        let begin = Instant::now();
        while begin.elapsed() < world.slow {}
        let times = || {
            let buckets = (1..100).map(|at| Bucket { below_ns: at * 1000, count: at }).collect();
            Some(Histogram { samples: 5, sum_ns: 5, buckets })
        };
        let queues = (0..world.queues).map(|id| QueueStatistics {
            id,
            name: format!("queue {id}"),
            wait: times(),
            run: times(),
            ..QueueStatistics::default()
        });
        Ok(Statistics { timing: world.timing, queues: queues.collect(), ..Statistics::default() })
    }

    fn dump(&self, _wanted: &GetDump) -> Result<Dump, Refusal> {
        Ok(Dump { allowed: "0-3".into(), ..Dump::default() })
    }

    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal> {
        let process = || Some(ProcessSettings { settings: self.settings_of("") });
        let crypt = || {
            let settings = self.settings_of("crypt");
            vec![QueueSettings { id: 7, name: "crypt".into(), settings }]
        };
        match queue {
            None => Ok(Settings { process: process(), queues: crypt() }),
            Some(name) => {
                queue_named(name)?;
                Ok(Settings { process: None, queues: crypt() })
            }
        }
    }

    fn set(
        &mut self,
        queue: Option<&str>,
        changes: &BTreeMap<String, String>,
    ) -> Result<Settings, Refusal> {
        let name = queue.map_or(Ok(""), queue_named)?;
        let mut world = self.0.world();
        for (key, value) in changes {
            if !world.values.contains_key(&(name.to_owned(), key.clone())) {
                return Err(Refusal::NoSuchKey { key: key.clone(), keys: vec!["nice".into()] });
            }
            if value == "bad" {
                let (key, value) = (key.clone(), value.clone());
                return Err(Refusal::BadValue { key, value, why: "it is bad".into() });
            }
        }
        for (key, value) in changes {
            world.log.push(format!("{name}.{key}={value}"));
            world.values.insert((name.to_owned(), key.clone()), value.clone());
        }
        drop(world);
        self.settings(queue)
    }

    fn trace(&mut self, wanted: &Trace) -> Result<Box<dyn Tracing>, Refusal> {
        wanted.queue.as_deref().map_or(Ok(""), queue_named)?;
        self.0.world().traces += 1;
        Ok(Box::new(InventedTrace(self.0.clone())))
    }
}

struct InventedTrace(Shared);

impl Tracing for InventedTrace {
    fn take(&mut self, most: usize) -> TraceBatch {
        let mut world = self.0.world();
        let count = world.events.min(most);
        let first = world.taken;
        world.taken += count as u64;
        let event = |number| TraceEvent {
            at_ns: number,
            function: "invented::function".into(),
            ..TraceEvent::default()
        };
        let events = (first..first + count as u64).map(event).collect();
        TraceBatch { events, every: 1, ..TraceBatch::default() }
    }
}

impl Drop for InventedTrace {
    fn drop(&mut self) {
        self.0.world().traces -= 1;
    }
}

/// A temporary directory for one test, removed when dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        Self::at(std::env::temp_dir().join(format!("nearq-test-{}-{test}", std::process::id())))
    }

    pub(crate) fn at(path: PathBuf) -> Self {
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serves the world in a folder.
pub(crate) fn serve(folder: &Folder, shared: &Shared, access: Access) -> Server {
    Server::start(&folder.path().join("nearq"), shared.target(), Options { access }).unwrap()
}

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "for {PATIENCE:?}: not {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A client that may send anything.
pub(crate) struct Raw(pub(crate) UnixStream);

impl Raw {
    pub(crate) fn connect(server: &Server) -> Self {
        let stream = UnixStream::connect(server.path()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Raw(stream)
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
        self.0.write_all(&[0]).unwrap();
    }

    /// The next message; `None` if the connection was closed.
    pub(crate) fn receive(&mut self) -> Option<serde_json::Value> {
        let mut bytes = Vec::new();
        let mut byte = [0];
        loop {
            match self.0.read(&mut byte) {
                Ok(1) if byte[0] == 0 => break,
                Ok(1) => bytes.push(byte[0]),
                Ok(_) => return None,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
        Some(serde_json::from_slice(&bytes).unwrap())
    }

    pub(crate) fn ask(&mut self, text: &str) -> serde_json::Value {
        self.send(text);
        self.receive().expect("an answer")
    }
}

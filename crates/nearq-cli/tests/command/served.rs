//! An invented process, served over a socket in a separate folder, for the command to ask.

use crate::common::{Folder, errors, nearq};
use nearq_control::control_target::{ControlTarget, Tracing};
use nearq_control::protocol::{
    Access, Bucket, Dump, GetDump, Histogram, MachineNode, NodeLimit, PodDump, PoolDump, Process,
    ProcessSettings, QueueDump, QueueSettings, QueueStatistics, Refusal, RunningItem, ScopeDump,
    Setting, Settings, Statistics, Trace, WaitingItems,
};
use nearq_control::server::{Options, Server};
use nearq_control::settings_table::{self, Owner};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A name that would clear the screen and begin a new line.
pub(crate) const HOSTILE_NAME: &str = "cry\u{1b}[2Jpt\nx";

/// The state of the process.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// Configured values by queue (empty for the process) and key.
    pub(crate) values: BTreeMap<(String, String), String>,
    /// Whether items are timed, and how often timing was switched on.
    pub(crate) timing: bool,
    pub(crate) timed: u32,
    /// Whether it has no runtime.
    pub(crate) mutexes_only: bool,
}

/// The process that is being served.
pub(crate) struct Served {
    world: Arc<Mutex<World>>,
    folder: Folder,
    _server: Server,
}

impl Served {
    /// Serves it; only one test may use `name`.
    pub(crate) fn start(name: &str) -> Self {
        let world = World { values: defaults(), ..World::default() };
        let world = Arc::new(Mutex::new(world));
        let folder = Folder::new(name);
        let target = Box::new(Invented(Arc::clone(&world)));
        let server = Server::start(
            Path::new(&folder.path("nearq")),
            target,
            Options { access: Access::Full },
        )
        .expect("it is served");
        Served { world, folder, _server: server }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The command, which searches for sockets in this one's folder.
    pub(crate) fn nearq(&self) -> Command {
        let mut command = nearq();
        command.env("XDG_RUNTIME_DIR", self.folder.path(""));
        command
    }

    /// Runs a command with this process's number after its name.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let [name, rest @ ..] = arguments else { panic!("a command has a name") };
        let pid = std::process::id().to_string();
        self.nearq().arg(name).arg(pid).args(rest).output().expect("the command starts")
    }

    /// Runs a valid command, and returns its output.
    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "nearq {arguments:?}: {}", errors(&output));
        assert_eq!(errors(&output), "", "nearq {arguments:?}");
        String::from_utf8(output.stdout).expect("the command prints UTF-8")
    }

    /// Runs a command that is refused with this status, and returns the line.
    pub(crate) fn refuses(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let line = errors(&output);
        assert_eq!(output.status.code(), Some(status), "nearq {arguments:?}: {line}");
        assert!(output.stdout.is_empty() && line.lines().count() == 1, "{line}");
        line
    }
}

/// The queues: names and numbers.
const QUEUES: [(&str, u64); 5] =
    [("crypt", 1), ("spin", 2), ("twin", 3), ("twin", 4), (HOSTILE_NAME, 5)];

fn defaults() -> BTreeMap<(String, String), String> {
    let queue = [("affinity_scope", "default"), ("cpumask", ""), ("nice", "0")];
    let process = [("default_affinity_scope", "cache"), ("spin", "512")];
    let of = |owner: &str, values: &[(&str, &str)]| -> Vec<_> {
        let entry = |(key, value): &(&str, &str)| {
            ((owner.to_owned(), (*key).to_owned()), (*value).to_owned())
        };
        values.iter().map(entry).collect()
    };
    let queues = QUEUES.iter().flat_map(|(_, id)| of(&format!("#{id}"), &queue));
    queues.chain(of("", &process)).collect()
}

struct Invented(Arc<Mutex<World>>);

impl Invented {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings_of(&self, owner: &str) -> Vec<Setting> {
        let world = self.world();
        let default = world.values[&(String::new(), "default_affinity_scope".to_owned())].clone();
        let kind = if owner.is_empty() { Owner::Process } else { Owner::Queue };
        let setting = |key: &str| {
            let configured = world.values.get(&(owner.to_owned(), key.to_owned()))?.clone();
            let effective = match (key, configured.as_str()) {
                (_, "default") => format!("default ({default})"),
                ("cpumask", "") => "0-7 (000000ff)".to_owned(),
                _ => configured.clone(),
            };
            Some(Setting { key: key.to_owned(), configured, effective, writable: true })
        };
        settings_table::of(kind).filter_map(|desc| setting(desc.key)).collect()
    }
}

fn find(name: &str) -> Result<u64, Refusal> {
    let named = |(queue, id): &&(&str, u64)| *queue == name || format!("#{id}") == name;
    let found: Vec<u64> = QUEUES.iter().filter(named).map(|(_, id)| *id).collect();
    match found[..] {
        [id] => Ok(id),
        [] => Err(Refusal::NoSuchQueue {
            queue: name.to_owned(),
            queues: QUEUES.map(|(name, _)| name.to_owned()).to_vec(),
        }),
        _ => Err(Refusal::Ambiguous {
            queue: name.to_owned(),
            numbers: found.iter().map(|id| format!("#{id}")).collect(),
        }),
    }
}

fn no_runtime() -> Refusal {
    Refusal::NotHere { why: "this process has no runtime, only mutexes".into() }
}

impl ControlTarget for Invented {
    fn process(&self) -> Process {
        Process {
            pid: std::process::id(),
            command: "/usr/bin/invented --with\u{1b}[31m colour".into(),
            version: "0.1.0".into(),
            control: Access::Full,
            allowed: Access::Full,
            since_ns: 1,
            runtime: !self.world().mutexes_only,
            queues: QUEUES.len() as u64,
            workers: 12,
        }
    }

    fn time_items(&mut self, on: bool) -> Result<(), Refusal> {
        let mut world = self.world();
        world.timing = on;
        world.timed += u32::from(on);
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, Refusal> {
        let world = self.world();
        if world.mutexes_only { Err(no_runtime()) } else { Ok(statistics(world.timing)) }
    }

    fn dump(&self, wanted: &GetDump) -> Result<Dump, Refusal> {
        if self.world().mutexes_only { Err(no_runtime()) } else { Ok(dump(wanted)) }
    }

    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal> {
        if queue.is_some() && self.world().mutexes_only {
            return Err(no_runtime());
        }
        let wanted = queue.map(find).transpose()?;
        let queues = QUEUES.iter().filter(|(_, id)| wanted.is_none_or(|wanted| wanted == *id));
        let queues = queues.map(|(name, id)| QueueSettings {
            id: *id,
            name: (*name).to_owned(),
            settings: self.settings_of(&format!("#{id}")),
        });
        let process = || ProcessSettings { settings: self.settings_of("") };
        Ok(Settings { process: wanted.is_none().then(process), queues: queues.collect() })
    }

    fn set(
        &mut self,
        queue: Option<&str>,
        changes: &BTreeMap<String, String>,
    ) -> Result<Settings, Refusal> {
        let owner = queue.map(find).transpose()?.map_or(String::new(), |id| format!("#{id}"));
        for (key, value) in changes {
            let known = self.world().values.contains_key(&(owner.clone(), key.clone()));
            if value == "forbidden" {
                return Err(Refusal::NotPermitted {
                    why: "NEARQ_CONTROL=full would allow it".into(),
                });
            }
            if !known {
                let keys = vec!["nice".into()];
                return Err(Refusal::NoSuchKey { key: key.clone(), keys });
            }
            if value == "wrong" {
                let (key, value) = (key.clone(), value.clone());
                return Err(Refusal::BadValue { key, value, why: "give something right".into() });
            }
        }
        for (key, value) in changes {
            self.world().values.insert((owner.clone(), key.clone()), value.clone());
        }
        // A process may report more than it was asked for.
        self.settings(queue)
    }

    fn trace(&mut self, _: &Trace) -> Result<Box<dyn Tracing>, Refusal> {
        Err(no_runtime())
    }
}

/// Its counts.
pub(crate) fn statistics(timing: bool) -> Statistics {
    let buckets =
        vec![Bucket { below_ns: 1 << 14, count: 40 }, Bucket { below_ns: 1 << 20, count: 2 }];
    let times = Histogram { samples: 21, sum_ns: 1_000_000, buckets };
    let queue = |&(name, id): &(&str, u64)| QueueStatistics {
        id,
        name: name.to_owned(),
        kind: if id == 1 { "percpu" } else { "unbound" }.to_owned(),
        scope: "default (cache)".to_owned(),
        started: 1000 * id,
        completed: 1000 * id - 1,
        cpu_ns: 123_456_789 * id,
        rescuer: id == 2,
        wait: timing.then(|| times.clone()),
        run: timing.then(|| times.clone()),
        ..QueueStatistics::default()
    };
    Statistics {
        workers: 12,
        timing,
        queues: QUEUES.iter().map(queue).collect(),
        ..Statistics::default()
    }
}

/// Its whole state.
pub(crate) fn dump(wanted: &GetDump) -> Dump {
    let pool = |id, pod: &str| PoolDump {
        id,
        pod_cpus: pod.into(),
        cpus: "0-3".into(),
        ..PoolDump::default()
    };
    let queue = |&(name, id): &(&str, u64)| QueueDump {
        id,
        name: name.to_owned(),
        kind: "unbound".into(),
        cpu_pool: vec![7, 7, 8, 8],
        cpus: "0-3".into(),
        max_active: 16,
        min_active: 8,
        limits: vec![NodeLimit {
            domain: "node".into(),
            active: 3,
            limit: 16,
            ..NodeLimit::default()
        }],
        ..QueueDump::default()
    };
    let running = RunningItem {
        queue: "crypt".into(),
        queue_id: 1,
        function: "invented::encrypt".into(),
        worker: "nq/u7:1".into(),
        thread: 4242,
        pool: 7,
        at_most_ns: 1_500,
        ..RunningItem::default()
    };
    let waiting = WaitingItems {
        queue: "crypt".into(),
        queue_id: 1,
        pool: 8,
        function: "invented::store".into(),
        count: 31,
        ..WaitingItems::default()
    };
    let pods = ["0-1", "2-3"].map(|cpus| PodDump { cpus: cpus.into(), node: 0 });
    Dump {
        at_ns: 1,
        allowed: "0-3".into(),
        online: "0-3".into(),
        possible: "0-3".into(),
        scopes: vec![ScopeDump {
            name: "cache".into(),
            default: true,
            pods: pods.to_vec(),
            cpu_pod: vec![0, 0, 1, 1],
        }],
        pools: vec![pool(7, "0-1"), pool(8, "2-3")],
        queues: QUEUES.iter().map(queue).collect(),
        nodes: vec![MachineNode { id: 0, cpus: "0-3".into() }],
        running: vec![running],
        waiting: if wanted.items { vec![waiting] } else { Vec::new() },
        locks: wanted.locks.then(Default::default),
        ..Dump::default()
    }
}

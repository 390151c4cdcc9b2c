//! `nearq tune` against an invented process, served over a real socket, whose speed is a fixed function of its scope. The right scope must
//! be recommended, or none if the scopes do not differ. The previous settings must be restored, whatever ends the command.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use crate::common::errors;
use crate::invented::{self, Served, not_ignored, signal, until};
use nearq_control::control_target::{ControlTarget, Tracing};
use nearq_control::protocol::{
    Access, Bucket, Dump, GetDump, Histogram, PodDump, Process, QueueDump, QueueSettings,
    QueueStatistics, Refusal, ScopeDump, Setting, Settings, Statistics, Trace,
};
use serde_json::Value;

const ID: u64 = 7;
/// Of four CPUs: two caches, one node. With these scopes there are five configurations.
const SCOPES: [(&str, &[&str]); 4] = [
    ("cpu", &["0", "1", "2", "3"]),
    ("cache_shard", &["0-1", "2-3"]),
    ("cache", &["0-1", "2-3"]),
    ("system", &["0-3"]),
];
const CONFIGURATIONS: usize = 5;

/// The invented queue.
struct World {
    kind: &'static str,
    /// The CPUs that it may use.
    cpus: &'static str,
    /// Configured values, by key.
    values: BTreeMap<String, String>,
    /// Every pair of scope and strictness that was set, in order.
    log: Vec<String>,
    /// Items per second by configuration, for example `cpu+strict`.
    speed: fn(&str) -> f64,
    /// How much the speed varies around that figure: it changes each time that something is set.
    noise: f64,
    random: fastrand::Rng,
    now: f64,
    /// The time up to which the following is counted.
    counted: Instant,
    began: Instant,
    completed: f64,
    waited: BTreeMap<u64, u64>,
    timing: bool,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn new(speed: fn(&str) -> f64, noise: f64) -> Self {
        let values = [("affinity", "1"), ("affinity_scope", "default"), ("affinity_strict", "0")];
        let world = World {
            kind: "unbound",
            cpus: "0-3",
            values: values.map(|(key, value)| (key.into(), value.into())).into(),
            log: Vec::new(),
            speed,
            noise,
            random: fastrand::Rng::with_seed(4711),
            now: 0.0,
            counted: Instant::now(),
            began: Instant::now(),
            completed: 0.0,
            waited: BTreeMap::new(),
            timing: false,
        };
        let shared = Self(Arc::new(Mutex::new(world)));
        shared.world().change();
        shared
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn serve(&self, test: &str) -> Served {
        Served::start(test, Box::new(Invented(self.clone())), Access::Full)
    }

    /// `default 0`: the scope that is configured, and whether it is strict.
    fn configured(&self) -> String {
        self.world().configured()
    }
}

impl World {
    fn configured(&self) -> String {
        format!("{} {}", self.values["affinity_scope"], self.values["affinity_strict"])
    }

    fn effective(&self) -> &str {
        match self.values["affinity_scope"].as_str() {
            "default" => "cache_shard",
            scope => scope,
        }
    }

    /// Counts the work up to now.
    fn count(&mut self) {
        let now = Instant::now();
        let time = now.duration_since(self.counted).as_secs_f64();
        let before = self.completed as u64;
        self.completed += time * self.now;
        self.counted = now;
        if self.timing && self.now > 0.0 {
            // The faster items run, the shorter they wait; a tenth waits ten times as long.
            let items = self.completed as u64 - before;
            let wait = (1e10 / self.now) as u64 / 100 * 100;
            *self.waited.entry(wait.max(100)).or_default() += items - items / 10;
            *self.waited.entry(wait.max(100) * 10).or_default() += items / 10;
        }
    }

    /// Continues at the speed of the current configuration.
    fn change(&mut self) {
        self.count();
        let strict = if self.values["affinity_strict"] == "1" { "+strict" } else { "" };
        let speed = (self.speed)(&format!("{}{strict}", self.effective()));
        self.now = speed * (1.0 + self.noise * (2.0 * self.random.f64() - 1.0));
    }
}

struct Invented(Shared);

impl Invented {
    fn settings_now(&self) -> Settings {
        let world = self.0.world();
        let setting = |(key, value): (&String, &String)| Setting {
            key: key.clone(),
            configured: value.clone(),
            effective: match value.as_str() {
                "default" => "default (cache_shard)".into(),
                other => other.into(),
            },
            writable: world.kind == "unbound",
        };
        let settings = world.values.iter().map(setting).collect();
        Settings {
            process: None,
            queues: vec![QueueSettings { id: ID, name: "crypt".into(), settings }],
        }
    }
}

fn known(queue: Option<&str>) -> Result<(), Refusal> {
    match queue {
        Some("crypt" | "#7") => Ok(()),
        other => Err(Refusal::NoSuchQueue {
            queue: other.unwrap_or_default().into(),
            queues: vec!["crypt".into()],
        }),
    }
}

impl ControlTarget for Invented {
    fn process(&self) -> Process {
        invented::process("an invented program")
    }

    fn time_items(&mut self, on: bool) -> Result<(), Refusal> {
        let mut world = self.0.world();
        world.count();
        world.timing = on;
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, Refusal> {
        let mut world = self.0.world();
        world.count();
        let buckets = world.waited.iter().map(|(&below_ns, &count)| Bucket { below_ns, count });
        let queue = QueueStatistics {
            id: ID,
            name: "crypt".into(),
            completed: world.completed as u64,
            cpu_ns: (world.completed * 3_000.0) as u64,
            waiting: 40,
            wait: Some(Histogram { buckets: buckets.collect(), ..Histogram::default() }),
            ..QueueStatistics::default()
        };
        let at_ns = world.counted.duration_since(world.began).as_nanos() as u64;
        Ok(Statistics {
            at_ns,
            parallelism: 4,
            timing: world.timing,
            queues: vec![queue],
            ..Statistics::default()
        })
    }

    fn dump(&self, _wanted: &GetDump) -> Result<Dump, Refusal> {
        let world = self.0.world();
        let scopes = SCOPES.map(|(name, pods)| ScopeDump {
            name: name.into(),
            default: name == "cache_shard",
            pods: pods.iter().map(|cpus| PodDump { cpus: (*cpus).into(), node: 0 }).collect(),
            cpu_pod: Vec::new(),
        });
        let queue = QueueDump {
            id: ID,
            name: "crypt".into(),
            kind: world.kind.into(),
            cpus: world.cpus.into(),
            ..QueueDump::default()
        };
        Ok(Dump { scopes: scopes.into(), queues: vec![queue], ..Dump::default() })
    }

    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal> {
        known(queue)?;
        Ok(self.settings_now())
    }

    fn set(
        &mut self,
        queue: Option<&str>,
        changes: &BTreeMap<String, String>,
    ) -> Result<Settings, Refusal> {
        known(queue)?;
        {
            let mut world = self.0.world();
            world.values.extend(changes.clone());
            let configured = world.configured();
            world.log.push(configured);
            world.change();
        }
        Ok(self.settings_now())
    }

    fn trace(&mut self, _wanted: &Trace) -> Result<Box<dyn Tracing>, Refusal> {
        Err(Refusal::NotHere { why: "this process was invented for tuning".into() })
    }
}

/// Runs the command to its end, with JSON output.
fn tuned(served: &Served, arguments: &[&str]) -> Value {
    let pid = served.pid();
    let quick =
        ["tune", pid, "crypt", "--json", "--seconds", "0.05", "--settle", "0.01", "--seed", "1"];
    let output = served.nearq(&[&quick, arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(errors(&output), "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn median(json: &Value, row: &str, metric: &str) -> f64 {
    let rows = json["rows"].as_array().unwrap();
    let found = rows.iter().find(|found| found["row"] == row && found["metric"] == metric);
    found.unwrap_or_else(|| panic!("{row} {metric} in {json}"))["median"].as_f64().unwrap()
}

/// One configuration is best, some are worse, one is far worse.
fn cache_strict_is_best(configuration: &str) -> f64 {
    match configuration {
        "cache_shard+strict" => 1.3e6,
        "cpu" => 0.2e6,
        "system" => 0.9e6,
        _ => 1e6,
    }
}

#[test]
fn the_best_configuration_is_recommended_and_settings_are_restored() {
    let shared = Shared::new(cache_strict_is_best, 0.03);
    let served = shared.serve("tune-best");
    let json = tuned(&served, &["--rounds", "5"]);
    assert_eq!(json["experiment"], "tune");
    let verdict = &json["parameters"]["verdict"];
    assert_eq!(
        (&verdict["is"], &verdict["row"]),
        (&"better".into(), &"cache_shard+strict".into()),
        "{verdict}"
    );
    let words = verdict["words"].as_str().unwrap();
    let set = "crypt affinity=1 affinity_scope=cache_shard affinity_strict=1";
    assert!(words.contains(&format!("nearq set {} {set}", served.pid())), "{words}");
    assert_eq!(shared.configured(), "default 0");
    // The figures of the best configuration and of the one in effect are those of the invented queue.
    for (row, speed) in [("cache_shard+strict", 1.3e6), ("cache_shard", 1e6), ("cpu", 0.2e6)] {
        let found = median(&json, row, "items_per_second");
        assert!((found / speed - 1.0).abs() < 0.04, "{row}: {found}");
        assert!((median(&json, row, "cpu_us_per_item") - 3.0).abs() < 0.1);
    }
    let gain = &json["parameters"]["configurations"][3];
    assert_eq!(gain["row"], "cache_shard+strict", "{gain}");
    assert!((0.2..0.4).contains(&gain["gain"].as_f64().unwrap()), "{gain}");
    // Every round has each configuration once, and not all rounds have the same order.
    let log = shared.world().log.clone();
    let rounds: Vec<&[String]> = log[..5 * CONFIGURATIONS].chunks(CONFIGURATIONS).collect();
    let sorted = |round: &[String]| {
        let mut round = round.to_vec();
        round.sort();
        round
    };
    assert_eq!(sorted(rounds[0]), ["cache_shard 1", "cpu 0", "cpu 1", "default 0", "system 0"]);
    assert!(rounds.iter().all(|round| sorted(round) == sorted(rounds[0])));
    assert!(rounds.iter().any(|round| *round != rounds[0]));
}

#[test]
fn apply_sets_and_keeps_the_recommended_configuration() {
    let shared = Shared::new(cache_strict_is_best, 0.03);
    let served = shared.serve("tune-apply");
    let json = tuned(&served, &["--rounds", "5", "--goal", "latency", "--apply"]);
    let parameters = &json["parameters"];
    assert_eq!(
        (&parameters["verdict"]["row"], &parameters["applied"]),
        (&"cache_shard+strict".into(), &true.into()),
        "{parameters}"
    );
    assert!(
        median(&json, "cache_shard+strict", "start_latency_us_p99")
            < median(&json, "cache_shard", "start_latency_us_p99")
    );
    until("items are no longer timed", || !shared.world().timing);
    assert_eq!(shared.configured(), "cache_shard 1");
}

#[test]
fn equal_configurations_are_reported_as_equal() {
    let shared = Shared::new(|_| 1e6, 0.05);
    let served = shared.serve("tune-same");
    let pid = served.pid();
    let arguments = ["tune", pid, "#7", "--rounds", "5", "--seed", "5", "--apply"];
    let quick = ["--seconds", "0.05", "--settle", "0.01"];
    let output = served.nearq(&[&arguments[..], &quick].concat()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Keep cache_shard"), "{text}");
    assert!(text.contains("cache: the same pods as cache_shard"), "{text}");
    assert!(
        text.contains("Restored: affinity=1 affinity_scope=default affinity_strict=0"),
        "{text}"
    );
    assert!(
        text.lines().any(|line| line.starts_with("cache_shard (now)") && line.contains('±')),
        "{text}"
    );
    assert_eq!(shared.configured(), "default 0");
}

#[test]
fn too_little_data_gives_no_conclusion() {
    let shared = Shared::new(|_| 5.0, 0.0);
    let served = shared.serve("tune-idle");
    let idle = tuned(&served, &["--rounds", "2"]);
    let verdict = &idle["parameters"]["verdict"];
    assert_eq!((&verdict["is"], &verdict["row"]), (&"too_few_items".into(), &Value::Null));
    assert!(verdict["words"].as_str().unwrap().starts_with("No conclusion: "), "{verdict}");
    shared.world().speed = |_| 1e6;
    let few = tuned(&served, &["--rounds", "1"]);
    let verdict = &few["parameters"]["verdict"];
    assert_eq!(verdict["is"], "too_few_rounds");
    assert!(
        verdict["words"]
            .as_str()
            .unwrap()
            .ends_with("from 1 round: with so many configurations it takes 5.")
    );
}

/// Starts a long run, and waits until it has set another configuration.
fn start_and_wait(shared: &Shared, served: &Served) -> Child {
    let pid = served.pid();
    let mut command = served.nearq(&["tune", pid, "crypt", "--seconds", "60", "--seed", "3"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("something else is set", || shared.configured() != "default 0");
    child
}

fn first_stderr_line(child: &mut Child) -> String {
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    message
}

#[test]
fn an_interrupt_restores_the_settings_and_reports_it() {
    let shared = Shared::new(cache_strict_is_best, 0.0);
    let served = shared.serve("tune-interrupt");
    for name in not_ignored(&["INT", "TERM", "HUP"]) {
        let mut child = start_and_wait(&shared, &served);
        signal(name, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(1));
        let message = first_stderr_line(&mut child);
        let restored = "restored: affinity=1 affinity_scope=default affinity_strict=0\n";
        assert_eq!(message, format!("nearq: ended by SIG{name}; {restored}"));
        assert_eq!(shared.configured(), "default 0", "the settings are as reported");
    }
}

#[test]
fn a_killed_command_leaves_the_settings_restored() {
    let shared = Shared::new(cache_strict_is_best, 0.0);
    let served = shared.serve("tune-kill");
    let mut child = start_and_wait(&shared, &served);
    signal("KILL", child.id());
    assert!(!child.wait().unwrap().success());
    until("the settings are restored", || {
        shared.configured() == "default 0" && !shared.world().timing
    });
}

#[test]
fn a_process_that_goes_away_is_reported_as_the_reason() {
    let shared = Shared::new(cache_strict_is_best, 0.0);
    let served = shared.serve("tune-lost");
    let pid = served.pid();
    let arguments = ["tune", pid, "crypt", "--seconds", "0.05", "--rounds", "50"];
    let mut child = served.nearq(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    until("something else is set", || shared.configured() != "default 0");
    served.stop();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let message = first_stderr_line(&mut child);
    assert!(
        message.contains("the process closed the connection") && message.lines().count() == 1,
        "{message}"
    );
    assert_eq!(shared.configured(), "default 0", "the server undoes its changes");
}

#[test]
fn a_change_by_another_client_ends_the_tuning() {
    let shared = Shared::new(cache_strict_is_best, 0.0);
    let served = shared.serve("tune-others");
    let pid = served.pid();
    let arguments = ["tune", pid, "crypt", "--seconds", "0.05", "--rounds", "50"];
    let mut child = served.nearq(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    until("something else is set", || shared.configured() != "default 0");
    let mut status = None;
    until("the command has noticed", || {
        shared.world().values.insert("affinity_scope".into(), "numa".into());
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(1));
    let message = first_stderr_line(&mut child);
    assert!(
        message.contains("something else has set") && message.contains("affinity_scope=numa"),
        "{message}"
    );
}

#[test]
fn untunable_queues_are_refused_with_a_reason() {
    let shared = Shared::new(cache_strict_is_best, 0.0);
    let served = shared.serve("tune-refused");
    let refused = |queue: &str| {
        let output = served.nearq(&["tune", served.pid(), queue]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert_eq!(errors(&output).lines().count(), 1);
        errors(&output)
    };
    assert!(refused("nosuch").contains("there is no queue `nosuch`; there are crypt"));
    shared.world().cpus = "2";
    assert!(refused("crypt").contains("all scopes are the same on the CPUs that it may use (2)"));
    for (kind, why) in [("percpu", "per-CPU queue"), ("ordered", "ordered queue")] {
        shared.world().kind = kind;
        assert!(refused("crypt").contains(why));
    }
    assert!(shared.world().log.is_empty(), "nothing was tried");
    for (arguments, part) in [
        (["--seconds", "0.01"], "0.05 to 3600"),
        (["--settle", "-0.1"], "0 to 3600"),
        (["--rounds", "0"], "1 to 50"),
        (["--goal", "luck"], "throughput, latency"),
        (["--seed", "-1"], "whole number"),
    ] {
        let line = crate::common::refuses(&[&["tune", "1", "crypt"], &arguments[..]].concat());
        assert!(line.contains(part), "{line}");
    }
}

//! An invented process: its answers are a function of how often it was asked, so that screens are the same each time.

#![allow(dead_code, reason = "the tests of the command and those of its screens use their parts")]

use std::collections::BTreeMap;

use nearq_control::control_target::{ControlTarget, Tracing};
use nearq_control::protocol::{
    Access, Bucket, Dump, GetDump, Histogram, NodeLimit, PodStatistics, PoolDump, Process,
    ProcessSettings, QueueDump, QueueSettings, QueueStatistics, Refusal, Setting, Settings,
    Statistics, Trace, TraceBatch,
};

/// A queue: name, kind, scope, limit, items per second, nanoseconds of CPU time per item, typical wait in microseconds, whether it
/// has a rescuer.
type Plan = (&'static str, &'static str, &'static str, u64, u64, u64, u64, bool);

/// The queues, by number from 1 on.
const QUEUES: [Plan; 12] = [
    ("events", "percpu", "default (cache_shard)", 1024, 1_200, 30_000, 4, false),
    ("events_highpri", "percpu", "default (cache_shard)", 1024, 90, 20_000, 3, false),
    ("events_unbound", "unbound", "default (cache_shard)", 2048, 52_000, 9_000, 12, false),
    ("kcryptd/253:0", "unbound,S", "cache", 512, 238_000, 6_500, 85, true),
    ("kcryptd_io/253:0", "unbound", "default (cache_shard)", 512, 119_000, 700, 23, true),
    ("netns", "ordered", "default (cache_shard)", 1, 3, 900_000, 150, true),
    ("writeback", "unbound", "numa", 256, 640, 2_200_000, 2_100, true),
    ("thumbnails", "unbound", "cache", 64, 31, 41_000_000, 74_000, false),
    (
        "mail/indexing of the archive of letters",
        "unbound",
        "system",
        8,
        17,
        1_000_000,
        900_000,
        false,
    ),
    ("a queue that has never run", "unbound", "cpu", 1024, 0, 0, 0, false),
    ("requests", "unbound", "smt", 1024, 1_310_000, 310, 2, false),
    ("日本語の待ち行列", "unbound", "default (cache_shard)", 16, 250, 5_000, 40, false),
];
/// Pools, of four CPUs each.
const POOLS: u64 = 20;
const SECOND: u64 = 1_000_000_000;

/// A pseudo-random number less than `below`.
fn noise(call: u64, salt: u64, below: u64) -> u64 {
    let mut n = call.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xd1b5_4a32_d192_ed03);
    n = (n ^ (n >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ (n >> 29)) % below.max(1)
}

/// How many items a queue has ended by the `call`th sample: each second between half and one and a half times its plan.
fn ended(call: u64, queue: u64, each_second: u64) -> u64 {
    (0..call).map(|second| each_second / 2 + noise(second, queue, each_second + 1)).sum()
}

/// Its identity.
pub(crate) fn process(allowed: Access) -> Process {
    Process {
        pid: 4711,
        command: "/usr/bin/invented --as-if-it-were-there".into(),
        version: "0.1.0".into(),
        control: allowed,
        allowed,
        since_ns: 0,
        runtime: true,
        queues: QUEUES.len() as u64,
        workers: 52,
    }
}

/// The counts at the `call`th sample, starting from 1; samples are a second apart.
pub(crate) fn statistics(call: u64, timing: bool) -> Statistics {
    let queues: Vec<QueueStatistics> =
        (1..).zip(QUEUES).map(|(id, plan)| queue(call, id, plan, timing)).collect();
    Statistics {
        at_ns: 1_000 * SECOND + call * SECOND,
        cpu_ns: queues.iter().map(|queue| queue.cpu_ns).sum::<u64>() + call * 40_000_000,
        control_cpu_ns: call * 700_000,
        workers: 52,
        idle: 9 + noise(call, 99, 30),
        parallelism: 80,
        timing,
        samples: if timing { call * 19_800 } else { 0 },
        queues,
        pods: (0..POOLS).map(|pool| pod(call, pool)).collect(),
    }
}

fn queue(call: u64, id: u64, plan: Plan, timing: bool) -> QueueStatistics {
    let (name, kind, scope, max_active, each_second, cpu, wait, rescuer) = plan;
    let completed = ended(call, id, each_second);
    let running = (each_second * cpu / SECOND + 1).min(max_active).min(each_second);
    let waiting = noise(call, id + 100, each_second / 1_000 + 1);
    let times = |typical_us: u64| {
        let typical = typical_us * 1_000;
        let part = |percent: u64| completed * percent / 100;
        let buckets = [(typical, 60), (typical * 2, 32), (typical * 9, 7), (typical * 40, 1)];
        let buckets = buckets.map(|(below_ns, percent)| Bucket { below_ns, count: part(percent) });
        let samples = completed.min(call * 1_600);
        Histogram { samples, sum_ns: completed * typical, buckets: buckets.to_vec() }
    };
    let timed = timing && completed > 0;
    QueueStatistics {
        id,
        name: name.into(),
        kind: kind.into(),
        scope: scope.into(),
        started: completed + running,
        completed,
        panicked: if id == 8 { call / 2 } else { 0 },
        running,
        waiting,
        inactive: if running == max_active { 40 + call } else { 0 },
        cpu_ns: completed * cpu,
        cpu_intensive: if id == 1 { call * 3 } else { 0 },
        concurrency_wakeups: completed / 900,
        repatriated: completed / 7_000,
        helped: completed / 40,
        rescuer,
        mayday: if id == 7 { call } else { 0 },
        rescued: if id == 7 { call * 12 } else { 0 },
        at_home: 0,
        away: 0,
        thieves: 0,
        stolen: 0,
        max_active,
        wait: timed.then(|| times(wait)),
        run: timed.then(|| times(cpu / 1_000 + 1)),
    }
}

fn pod(call: u64, pool: u64) -> PodStatistics {
    // Each pool has a different load, from none to all of its four CPUs.
    let busy = pool * 4 * SECOND / (POOLS - 2);
    let idle = pool % 7 == 3;
    PodStatistics {
        pool,
        cpus: format!("{}-{}", pool * 4, pool * 4 + 3),
        nice: if pool >= 18 { -20 } else { 0 },
        workers: 4,
        idle: pool % 3,
        ready: noise(call, pool + 200, 40),
        completed: if idle { 0 } else { call * (pool + 1) * 4_500 },
        cpu_ns: if idle { 0 } else { call * busy },
    }
}

/// The dump. Queues of scope `system` have one pool, others one for each four CPUs.
pub(crate) fn dump() -> Dump {
    let pool = |id: u64| PoolDump {
        id,
        references: 3,
        nice: if id >= 18 { -20 } else { 0 },
        workers: 4,
        idle: id % 3,
        cpus: "0-79".into(),
        pod_cpus: format!("{}-{}", id * 4, id * 4 + 3),
        ready: id % 5,
        ..PoolDump::default()
    };
    let queue = |(id, plan): (u64, Plan)| QueueDump {
        id,
        name: plan.0.into(),
        kind: plan.1.into(),
        cpu_pool: (0..80).map(|cpu| if plan.2 == "system" { 5 } else { cpu / 4 }).collect(),
        cpus: "0-79".into(),
        max_active: plan.3,
        min_active: 8,
        limits: (0..2)
            .map(|number| NodeLimit {
                domain: "node".into(),
                number,
                active: if number == 0 { plan.4 % 97 } else { 0 },
                limit: plan.3,
                inactive: 0,
            })
            .collect(),
        ..QueueDump::default()
    };
    Dump {
        allowed: "0-79".into(),
        online: "0-79".into(),
        possible: "0-79".into(),
        pools: (0..POOLS).map(pool).collect(),
        queues: (1..).zip(QUEUES).map(queue).collect(),
        ..Dump::default()
    }
}

/// The settings of a queue and of the process, with their values: fewer than a real one has.
const SETTINGS: [&[(&str, &str)]; 2] = [
    &[
        ("per_cpu", "0"),
        ("affinity_scope", "default"),
        ("affinity_strict", "0"),
        ("cpumask", ""),
        ("nice", "0"),
        ("max_active", "512"),
        ("min_active", "8"),
    ],
    &[("default_affinity_scope", "cache_shard"), ("watchdog_thresh", "30")],
];

fn settings(of_queue: bool, values: &BTreeMap<String, String>) -> Vec<Setting> {
    let setting = |&(key, usual): &(&str, &str)| {
        let value = values.get(key).cloned().unwrap_or_else(|| usual.to_owned());
        let effective = match value.as_str() {
            "default" => "default (cache_shard)".into(),
            "" => "0-79".into(),
            value => value.to_owned(),
        };
        Setting { key: key.into(), configured: value, effective, writable: key != "per_cpu" }
    };
    SETTINGS[usize::from(!of_queue)].iter().map(setting).collect()
}

/// The settings of a queue with that limit.
pub(crate) fn queue_settings(id: u64, max_active: &str) -> Settings {
    let values = BTreeMap::from([("max_active".to_owned(), max_active.to_owned())]);
    let name = QUEUES[id as usize - 1].0.to_owned();
    let queue = QueueSettings { id, name, settings: settings(true, &values) };
    Settings { process: None, queues: vec![queue] }
}

/// The process, as a target for a server.
#[derive(Debug)]
pub(crate) struct Invented {
    calls: std::cell::Cell<u64>,
    timing: bool,
    changed: BTreeMap<(u64, String), String>,
}

impl Invented {
    /// A process that has not been asked yet.
    pub(crate) fn new() -> Self {
        Invented { calls: std::cell::Cell::new(0), timing: false, changed: BTreeMap::new() }
    }

    fn number(queue: Option<&str>) -> Result<u64, Refusal> {
        let Some(queue) = queue else { return Ok(0) };
        let place = match queue.strip_prefix('#') {
            Some(number) => number.parse().ok().filter(|id| (1..=QUEUES.len() as u64).contains(id)),
            None => (1..).zip(QUEUES).find(|(_, plan)| plan.0 == queue).map(|(id, _)| id),
        };
        let queues = || QUEUES.iter().map(|plan| plan.0.to_owned()).collect();
        place.ok_or_else(|| Refusal::NoSuchQueue { queue: queue.to_owned(), queues: queues() })
    }

    fn settings_of(&self, id: u64) -> Settings {
        let values: BTreeMap<String, String> = self
            .changed
            .iter()
            .filter(|((of, _), _)| *of == id)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        if id == 0 {
            let process = Some(ProcessSettings { settings: settings(false, &values) });
            return Settings { process, queues: Vec::new() };
        }
        let name = QUEUES[id as usize - 1].0.to_owned();
        let queue = QueueSettings { id, name, settings: settings(true, &values) };
        Settings { process: None, queues: vec![queue] }
    }
}

impl ControlTarget for Invented {
    fn process(&self) -> Process {
        process(Access::Full)
    }

    fn time_items(&mut self, on: bool) -> Result<(), Refusal> {
        self.timing = on;
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, Refusal> {
        self.calls.set(self.calls.get() + 1);
        let mut statistics = statistics(self.calls.get(), self.timing);
        for queue in &mut statistics.queues {
            let limit = self.changed.get(&(queue.id, "max_active".to_owned()));
            if let Some(Ok(limit)) = limit.map(|limit| limit.parse()) {
                queue.max_active = limit;
            }
        }
        Ok(statistics)
    }

    fn dump(&self, _wanted: &GetDump) -> Result<Dump, Refusal> {
        Ok(dump())
    }

    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal> {
        Ok(self.settings_of(Self::number(queue)?))
    }

    fn set(
        &mut self,
        queue: Option<&str>,
        changes: &BTreeMap<String, String>,
    ) -> Result<Settings, Refusal> {
        let id = Self::number(queue)?;
        for (key, value) in changes {
            let number = value.parse::<u64>();
            if key == "max_active" && !number.is_ok_and(|number| number <= 2048) {
                return Err(Refusal::BadValue {
                    key: key.clone(),
                    value: value.clone(),
                    why: "it must be a number from 1 to 2048, or 0 for 1024".into(),
                });
            }
        }
        for (key, value) in changes {
            self.changed.insert((id, key.clone()), value.clone());
        }
        Ok(self.settings_of(id))
    }

    fn trace(&mut self, _wanted: &Trace) -> Result<Box<dyn Tracing>, Refusal> {
        Ok(Box::new(Nothing))
    }
}

struct Nothing;

impl Tracing for Nothing {
    fn take(&mut self, _most: usize) -> TraceBatch {
        TraceBatch::default()
    }
}

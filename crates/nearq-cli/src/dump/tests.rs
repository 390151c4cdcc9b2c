//! Whole texts for invented machines: one of 2 nodes with every possible entry, and one of 512 CPUs.
//!
//! `NEARQ_TEST_BLESS=1` rewrites the expected texts; check the difference before you commit it.

use std::path::Path;

use nearq_control::protocol::{
    AdaptiveLock, HomeDump, Locks, MachineNode, NodeHomes, NodeLimit, PodDump, PoolDump, QueueDump,
    RescuerDump, RowedLock, RunningItem, ScopeDump, WaitingItems,
};

use nearq_platform::{Linux, Threads as _};

use super::*;

/// Compares with the file of that name beside this one.
fn expect(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dump/tests").join(name);
    if std::env::var_os("NEARQ_TEST_BLESS").is_some() {
        std::fs::write(&file, text).expect("the expected text can be written");
    }
    let expected = std::fs::read_to_string(&file).expect("the expected text can be read");
    assert!(text == expected, "{name} is now:\n{text}");
}

fn scope(name: &str, default: bool, pods: &[(&str, i64)], cpu_pod: &[i64]) -> ScopeDump {
    let pods = pods.iter().map(|&(cpus, node)| PodDump { cpus: cpus.into(), node }).collect();
    ScopeDump { name: name.into(), default, pods, cpu_pod: cpu_pod.to_vec() }
}

fn limit(domain: &str, number: i64, active: u64, limit: u64, inactive: u64) -> NodeLimit {
    NodeLimit { domain: domain.into(), number, active, limit, inactive }
}

fn queue(id: u64, name: &str, kind: &str, cpu_pool: &[i64], limits: Vec<NodeLimit>) -> QueueDump {
    QueueDump {
        id,
        name: name.into(),
        kind: kind.into(),
        cpu_pool: cpu_pool.to_vec(),
        cpus: "0-7".into(),
        max_active: limits.iter().map(|limit| limit.limit).max().unwrap_or(1024),
        min_active: 8,
        limits,
        memory: "home".into(),
        ..QueueDump::default()
    }
}

/// 8 CPUs in 2 nodes, each with one last-level cache; the numbers of the two CPUs of a core differ by 4.
fn two_nodes() -> Dump {
    let halves = [("0-1,4-5", 0), ("2-3,6-7", 1)];
    let half = [0, 0, 1, 1, 0, 0, 1, 1];
    let each: Vec<String> = (0..8).map(|cpu: u32| cpu.to_string()).collect();
    let each: Vec<(&str, i64)> =
        each.iter().zip(half).map(|(cpu, node)| (cpu.as_str(), node)).collect();
    let scopes = vec![
        scope("cpu", false, &each, &[0, 1, 2, 3, 4, 5, 6, 7]),
        scope(
            "smt",
            false,
            &[("0,4", 0), ("1,5", 0), ("2,6", 1), ("3,7", 1)],
            &[0, 1, 2, 3, 0, 1, 2, 3],
        ),
        scope("cache", false, &halves, &half),
        scope("cache_shard", true, &halves, &half),
        scope("numa", false, &halves, &half),
        scope("system", false, &[("0-7", -1)], &[0; 8]),
    ];
    let per_cpu = (0..8).map(|cpu| PoolDump {
        id: cpu,
        references: 3,
        workers: if cpu == 2 { 2 } else { 0 },
        idle: u64::from(cpu == 2),
        per_cpu: true,
        strict: true,
        cpus: cpu.to_string(),
        pod_cpus: cpu.to_string(),
        ..PoolDump::default()
    });
    let wide = |id, pod: &str| PoolDump {
        id,
        references: 28,
        workers: 3,
        idle: 2,
        cpus: "0-7".into(),
        pod_cpus: pod.into(),
        ..PoolDump::default()
    };
    let pools = per_cpu
        .chain([
            PoolDump { ready: 5, ..wide(8, "0-1,4-5") },
            wide(9, "2-3,6-7"),
            PoolDump { nice: -20, slice_ns: 100_000, strict: true, ..wide(10, "0-1,4-5") },
            PoolDump { idle_class: true, no_helping: true, ..wide(11, "2-3,6-7") },
            wide(12, "0-7"),
        ])
        .collect();
    let nodes = |active, most, inactive| {
        vec![
            limit("node", 0, active, most, 0),
            limit("node", 1, 1, most, inactive),
            limit("across", -1, 0, 2 * most, 0),
        ]
    };
    let crypt = queue(3, "crypt", "unbound,S", &[10, 10, 11, 11, 10, 10, 11, 11], nodes(3, 8, 4));
    let rescuer = |thread, cpus: &str| Some(RescuerDump { thread, cpus: cpus.into() });
    let queues = vec![
        queue(1, "events", "percpu", &[0, 1, 2, 3, 4, 5, 6, 7], vec![limit("cpu", 2, 1, 1024, 0)]),
        queue(2, "events_unbound", "unbound", &[8, 8, 9, 9, 8, 8, 9, 9], nodes(0, 1024, 0)),
        QueueDump {
            rescuer: rescuer(97, "0-7"),
            home: Some(HomeDump {
                node: 1,
                follows: true,
                why: "node 1: stays on node 1: 90 % of its memory on node 1, no other has more; it follows its memory".into(),
            }),
            at_home: 90_000,
            away: 12,
            ..crypt
        },
        QueueDump {
            rescuer: rescuer(0, ""),
            ..queue(4, "log", "ordered", &[12; 8], vec![limit("whole", -1, 1, 1, 12)])
        },
        queue(5, "crypt", "unbound", &[8, 8, 9, 9, 8, 8, 9, 9], nodes(0, 4, 0)),
        queue(
            6,
            "a name\u{1b}[31m that is longer than thirty-two columns",
            "unbound",
            &[8; 8],
            nodes(0, 4, 0),
        ),
    ];
    let running = |queue_id, function: &str, rescuer| RunningItem {
        queue: "crypt".into(),
        queue_id,
        function: function.into(),
        description: if rescuer { String::new() } else { "sector 5".into() },
        worker: if rescuer { "nq/R-crypt" } else { "nq/u10:3" }.into(),
        thread: 4242,
        pool: 10,
        rescuer,
        at_most_ns: 1_234_000,
    };
    let waiting = |function: &str, count, inactive, oldest_ns| WaitingItems {
        queue: "crypt".into(),
        queue_id: 3,
        pool: 11,
        function: function.into(),
        count,
        inactive,
        oldest_ns,
    };
    Dump {
        at_ns: 1,
        allowed: "0-7".into(),
        online: "0-7".into(),
        possible: "0-7".into(),
        scopes,
        pools,
        queues,
        nodes: vec![
            MachineNode { id: 0, cpus: "0-1,4-5".into() },
            MachineNode { id: 1, cpus: "2-3,6-7".into() },
        ],
        running: vec![running(3, "store::encrypt", false), running(3, "store::flush", true)],
        waiting: vec![
            waiting("store::encrypt", 2, false, 52_000),
            waiting("store::encrypt", 4, true, 0),
        ],
        more_waiting: true,
        homes: vec![
            NodeHomes { node: 0, cpus: "0-1,4-5".into(), homes: 3, others: 1 },
            NodeHomes { node: 1, cpus: "2-3,6-7".into(), homes: 4, others: 0 },
        ],
        home_weights: [("imbalance".to_owned(), 1000), ("imbalance_step".to_owned(), 500)].into(),
        locks: Some(Locks {
            mode: "auto".into(),
            counting: true,
            slots_used: 1,
            slots: 8,
            contended: 1000,
            in_turn: 900,
            within: 700,
            across: 200,
            switched: 2,
            switched_back: 1,
            slept_in_turn: 3,
            slept_in_queue: 44,
            gave_up: 5,
            adaptive: vec![AdaptiveLock { slot: 3, held: true, caches: 2 }],
            rwlocks: vec![RowedLock { row: 2, readers: 40 }],
        }),
    }
}

/// 512 CPUs: 4 nodes of 8 caches of 8 cores; the second CPU of a core has a number 256 higher.
fn large(queues: u64) -> Dump {
    let pods = |size: usize| -> Vec<(String, i64)> {
        let pod = |first: usize| {
            let cpus =
                format!("{first}-{},{}-{}", first + size - 1, first + 256, first + 255 + size);
            (cpus, (first / 64) as i64)
        };
        (0..256).step_by(size).map(pod).collect()
    };
    let of = |name: &str, pods: Vec<(String, i64)>, pod: &dyn Fn(usize) -> i64| {
        let pods: Vec<(&str, i64)> =
            pods.iter().map(|(cpus, node)| (cpus.as_str(), *node)).collect();
        scope(name, name == "cache_shard", &pods, &(0..512).map(pod).collect::<Vec<_>>())
    };
    let single = (0..512).map(|cpu: usize| (cpu.to_string(), (cpu % 256 / 64) as i64)).collect();
    let cores =
        (0..256_usize).map(|cpu| (format!("{cpu},{}", cpu + 256), (cpu / 64) as i64)).collect();
    let cache = |cpu: usize| (cpu % 256 / 8) as i64;
    let scopes = vec![
        of("cpu", single, &|cpu| cpu as i64),
        of("smt", cores, &|cpu| (cpu % 256) as i64),
        of("cache", pods(8), &cache),
        of("cache_shard", pods(8), &cache),
        of("numa", pods(64), &|cpu| (cpu % 256 / 64) as i64),
        of("system", vec![("0-511".into(), -1)], &|_| 0),
    ];
    let per_cpu = (0..512).map(|cpu: u64| PoolDump {
        id: cpu,
        references: 2,
        per_cpu: true,
        strict: true,
        cpus: cpu.to_string(),
        pod_cpus: cpu.to_string(),
        ..PoolDump::default()
    });
    let shards = pods(8).into_iter().zip(512..).map(|((cpus, _), id)| PoolDump {
        id,
        references: queues,
        workers: 16,
        idle: 16,
        cpus: "0-511".into(),
        pod_cpus: cpus,
        ..PoolDump::default()
    });
    let by_cpu: Vec<i64> = (0..512).collect();
    let by_shard: Vec<i64> = (0..512).map(|cpu| 512 + cache(cpu)).collect();
    let limits = || {
        let nodes = (0..4).map(|node| limit("node", node, 0, 256, 0));
        nodes.chain([limit("across", -1, 0, 1024, 0)]).collect::<Vec<_>>()
    };
    let unbound =
        (2..=queues).map(|id| queue(id, &format!("shop/{id}"), "unbound", &by_shard, limits()));
    Dump {
        allowed: "0-511".into(),
        online: "0-511".into(),
        possible: "0-511".into(),
        pools: per_cpu.chain(shards).collect(),
        queues: [queue(1, "events", "percpu", &by_cpu, Vec::new())]
            .into_iter()
            .chain(unbound)
            .collect(),
        nodes: (0..4)
            .map(|id| MachineNode { id, cpus: format!("{}-{}", id * 64, id * 64 + 63) })
            .collect(),
        scopes,
        ..Dump::default()
    }
}

#[test]
fn two_nodes_with_everything() {
    let view = View::new(100, false, true);
    expect("two_nodes.txt", &lay_out(&two_nodes(), &view));
}

#[test]
fn two_nodes_in_80_columns_with_masks() {
    let view = View::new(80, true, false);
    let dump = Dump { running: Vec::new(), locks: None, ..two_nodes() };
    expect("two_nodes_masks.txt", &lay_out(&dump, &view));
}

#[test]
fn many_cpus_stay_readable() {
    let view = View::new(100, false, false);
    let text = lay_out(&large(4), &view);
    expect("large.txt", &text);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?}");
    // Each further queue is one more line in each of the two sections that list queues.
    let more = lay_out(&large(5), &view);
    assert_eq!(more.lines().count(), text.lines().count() + 2);
}

#[test]
fn without_a_runtime_only_mutexes_are_shown() {
    let locks = Locks { mode: "plain".into(), ..Locks::default() };
    let dump = Dump { locks: Some(locks), ..Dump::default() };
    let view = View::new(100, false, false);
    assert_eq!(
        lay_out(&dump, &view),
        "no runtime in this process\n\n\
         Mutexes\n=======\nmode=plain slots_used/slots=0/0\nnot counted: lock_count is 0\n"
    );
}

/// A dump of as many queues as the client accepts. Many share a name, and each has as many details as possible.
fn largest_dump() -> Dump {
    let nodes = 2;
    let limits: Vec<NodeLimit> =
        (0..nodes).map(|node| limit("node", node, u64::MAX, 1, u64::MAX)).collect();
    let queue = |id: u64| QueueDump {
        at_home: u64::MAX,
        away: u64::MAX,
        rescuer: Some(RescuerDump { thread: 1, cpus: "0-7".into() }),
        ..queue(id, &format!("queue {}", id % 30_000), "unbound", &[0; 8], limits.clone())
    };
    Dump {
        scopes: vec![scope("cpu", true, &[("0-7", 0)], &[0; 8])],
        nodes: (0..nodes as u64).map(|id| MachineNode { id, cpus: "0-7".into() }).collect(),
        queues: (0..10_000).map(queue).collect(),
        pools: vec![
            PoolDump { cpus: "0-7".into(), pod_cpus: "0-7".into(), ..PoolDump::default() };
            60_000
        ],
        ..Dump::default()
    }
}

#[test]
fn time_is_linear_in_the_number_of_queues() {
    let dump = largest_dump();
    let used = || Linux::cpu_time(Linux::current_thread()).unwrap();
    let begin = used();
    for masks in [false, true] {
        let text = lay_out(&dump, &View::new(100, masks, true));
        assert!(text.lines().count() > 10_000);
    }
    // If the time grew with the square of their number, it would be ten times as long.
    let used = used().saturating_sub(begin);
    assert!(used.as_secs() < 6, "{used:?} of CPU time");
}

/// The answer of a hostile process is laid out in little time and memory, or refused.
#[test]
fn a_dump_that_is_too_long_is_refused_with_advice() {
    let refusal = |dump: &Dump, masks| show(dump, &View::new(100, masks, false)).unwrap_err();
    let mut dump = two_nodes();
    // A mask of 4 KiB for each.
    let pool = PoolDump { cpus: "16383".into(), pod_cpus: "16383".into(), ..dump.pools[0].clone() };
    dump.pools = vec![PoolDump { per_cpu: false, ..pool }; 1 << 14];
    let failure = refusal(&dump, true).to_string();
    assert!(failure.contains("64 MiB; leave out --masks"), "{failure}");
    let mut dump = two_nodes();
    dump.queues = vec![dump.queues[0].clone(); 1 << 15];
    dump.nodes = (0..1024).map(|id| MachineNode { id, cpus: String::new() }).collect();
    let failure = refusal(&dump, false).to_string();
    assert!(
        failure.contains("32768 queues and 1024 nodes") && failure.contains("--json"),
        "{failure}"
    );
}

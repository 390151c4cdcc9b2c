//! A program can be inspected and tuned if it uses nearq, without any further call.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearq::Workqueue;
use nearq_control::client::{Client, ClientError};
use nearq_control::protocol::{GetDump, GetProcess, GetSettings, GetStatistics, Refusal, Set};

use crate::skipped::skipped;

/// A connection to this process, which has a worker by then.
fn connect() -> Client {
    nearq::system::unbound().spawn(|| ()).join().unwrap();
    let status = nearq::control::status();
    assert!(matches!(status, nearq::control::Status::Listening { .. }), "{status}");
    Client::connect(std::process::id()).unwrap()
}

fn set(client: &mut Client, queue: &str, key: &str, value: &str) -> Result<(), ClientError> {
    let changes = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let request = Set { queue: Some(queue.to_owned()), changes, until_closed: false };
    client.call(&request).map(drop)
}

/// Whether this process may change settings; root may, whatever the process allows. If not, a line says that `what` is not tested.
fn may_change(what: &str) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let may = status
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    if !may {
        skipped(what, "only root may change settings of this process", "run the tests as root");
    }
    may
}

#[test]
fn the_dump_shows_the_process_and_its_queues() {
    let mut client = connect();
    let process = client.call(&GetProcess {}).unwrap().process;
    assert_eq!(process.pid, std::process::id());
    assert!(process.runtime && process.queues >= 1 && process.workers >= 1);
    let queue = Workqueue::builder("shown").build().unwrap();
    queue.spawn(|| ()).join().unwrap();
    let statistics = client.call(&GetStatistics { timing: false }).unwrap().statistics;
    let shown = statistics.queues.iter().find(|queue| queue.name == "shown").unwrap();
    assert!(shown.started >= 1);
    let dump = client.call(&GetDump { items: true, locks: true }).unwrap().dump;
    assert!(dump.queues.iter().any(|queue| queue.name == "shown"));
    let settings = client.call(&GetSettings { queue: Some("shown".into()) }).unwrap().settings;
    assert_eq!(settings.queues[0].name, "shown");
}

#[test]
fn settings_change_under_load_and_nothing_is_lost() {
    let mut client = connect();
    let queue = Arc::new(Workqueue::builder("loaded").build().unwrap());
    if !may_change("settings that change under load") {
        let refused = set(&mut client, "loaded", "nice", "1");
        let Err(ClientError::Refused(Refusal::NotPermitted { why })) = refused else {
            panic!("{refused:?}");
        };
        assert!(why.contains("NEARQ_CONTROL"), "{why}");
        return;
    }
    let (stop, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let issuer = {
        let (queue, stop, ran) = (Arc::clone(&queue), Arc::clone(&stop), Arc::clone(&ran));
        std::thread::spawn(move || {
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let ran = Arc::clone(&ran);
                let item = queue.spawn(move || ran.fetch_add(1, Ordering::Relaxed));
                sent += 1;
                if sent % 64 == 0 {
                    item.join().unwrap();
                }
            }
            sent
        })
    };
    let cpu = queue.effective_cpumask().first().unwrap().to_string();
    let changes = [
        ("affinity_scope", "cpu"),
        ("affinity_strict", "1"),
        ("localize", "1"),
        ("helping", "0"),
        ("affinity", "0"),
        ("affinity", "1"),
        ("cpumask", &cpu),
        ("cpumask", "all"),
        ("nice", "5"),
        ("sched_idle", "1"),
        ("sched_idle", "0"),
        ("time_slice_us", "200"),
        ("max_active", "2"),
        ("min_active", "1"),
        ("max_active", "0"),
        ("affinity_scope", "default"),
        ("affinity_strict", "0"),
    ];
    let mut last = 0;
    for (key, value) in changes.iter().cycle().take(3 * changes.len()) {
        set(&mut client, "loaded", key, value).unwrap_or_else(|error| panic!("{key}: {error}"));
        let statistics = client.call(&GetStatistics { timing: true }).unwrap().statistics;
        let row = statistics.queues.iter().find(|queue| queue.name == "loaded").unwrap();
        assert!(row.completed >= last, "a count decreased after {key}={value}");
        last = row.completed;
    }
    stop.store(true, Ordering::Relaxed);
    let sent = issuer.join().unwrap();
    queue.flush().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), sent);
}

#[test]
fn a_setting_applies_to_the_next_item() {
    if !may_change("a setting that is in effect at once") {
        return;
    }
    let mut client = connect();
    let queue = Workqueue::builder("next").build().unwrap();
    let cpus: Vec<usize> = queue.effective_cpumask().iter().collect();
    let mut took = Vec::new();
    for round in 0..50 {
        let cpu = cpus[round % cpus.len()];
        let begin = Instant::now();
        set(&mut client, "next", "cpumask", &cpu.to_string()).unwrap();
        took.push(begin.elapsed());
        // SAFETY: takes nothing, and cannot fail where the system is Linux.
        let ran_on = queue.spawn(|| unsafe { libc::sched_getcpu() }).join().unwrap();
        assert_eq!(ran_on as usize, cpu, "round {round}");
    }
    took.sort_unstable();
    println!("set: median {:?}, longest {:?}", took[25], took[49]);
    assert!(took[25] < Duration::from_millis(50), "{took:?}");
}

/// The thread of that name, and how often it went to sleep.
fn sleeps_of(name: &str) -> Option<u64> {
    fs::read_dir("/proc/self/task").unwrap().find_map(|task| {
        let task = task.unwrap().path();
        let comm = fs::read_to_string(task.join("comm")).ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        (comm.trim() == name).then(|| line.split_whitespace().nth(1).unwrap().parse().unwrap())
    })
}

#[test]
fn the_control_thread_sleeps_without_requests() {
    let client = connect();
    drop(client);
    // Other tests may send requests meanwhile: then another second will do as well.
    let quiet = (0..60).any(|_| {
        let before = sleeps_of("nq/control").expect("there is the thread");
        std::thread::sleep(Duration::from_secs(1));
        sleeps_of("nq/control") == Some(before)
    });
    assert!(quiet);
}

#[test]
fn min_active_is_restored_with_a_temporarily_lowered_max_active() {
    if !may_change("a limit that takes another along") {
        return;
    }
    let queue = Workqueue::builder("borrowed").build().unwrap();
    let before = (queue.max_active(), queue.min_active());
    let mut client = connect();
    let changes = BTreeMap::from([("max_active".to_owned(), "2".to_owned())]);
    let request = Set { queue: Some("borrowed".to_owned()), changes, until_closed: true };
    client.call(&request).unwrap();
    assert_eq!((queue.max_active(), queue.min_active()), (2, 2));
    drop(client);
    let end = Instant::now() + Duration::from_secs(60);
    while (queue.max_active(), queue.min_active()) != before {
        assert!(Instant::now() < end, "{} {}", queue.max_active(), queue.min_active());
        std::thread::sleep(Duration::from_millis(1));
    }
}

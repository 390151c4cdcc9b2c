//! A running runtime as its target shows and changes it.

use std::sync::mpsc;

use nearq_core::Workqueue;

use super::*;

fn target() -> (Runtime, RuntimeTarget) {
    let runtime = Runtime::builder().build().unwrap();
    (runtime.clone(), RuntimeTarget::new(runtime))
}

fn changes(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A queue's setting: configured and effective.
fn setting(settings: &Settings, key: &str) -> (String, String) {
    let all = settings.queues.first().map(|queue| &queue.settings);
    let all = all.or(settings.process.as_ref().map(|process| &process.settings)).unwrap();
    let found = all.iter().find(|setting| setting.key == key).unwrap();
    (found.configured.clone(), found.effective.clone())
}

fn held(queue: &Workqueue) -> mpsc::Sender<()> {
    let ((begun, has_begun), (go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    queue.spawn(move || {
        begun.send(()).unwrap();
        wait.recv().is_ok()
    });
    has_begun.recv().unwrap();
    go
}

#[test]
fn every_setting_has_a_value_that_can_be_set_again() {
    let (runtime, mut target) = target();
    let unbound = runtime.workqueue_builder("unbound").build().unwrap();
    let _percpu = runtime.workqueue_builder("percpu").per_cpu().build().unwrap();
    let _ordered = runtime.workqueue_builder("ordered").ordered().build().unwrap();
    let all = target.settings(None).unwrap();
    let process = all.process.as_ref().unwrap();
    let keys = |settings: &[crate::protocol::Setting]| {
        settings.iter().map(|setting| setting.key.clone()).collect::<Vec<_>>()
    };
    let known = |owner| {
        crate::settings_table::of(owner).map(|desc| desc.key.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&process.settings), known(crate::settings_table::Owner::Process));
    let writable = |settings: &[crate::protocol::Setting]| {
        // The mutexes' settings belong to the process, and other tests change them meanwhile.
        let own = |setting: &&crate::protocol::Setting| !setting.key.starts_with("lock_");
        let writable = settings.iter().filter(|setting| setting.writable).filter(own);
        let pair =
            |setting: &crate::protocol::Setting| (setting.key.clone(), setting.configured.clone());
        writable.map(pair).collect::<BTreeMap<_, _>>()
    };
    target.set(None, &writable(&process.settings)).unwrap();
    for queue in &all.queues {
        assert_eq!(keys(&queue.settings), known(crate::settings_table::Owner::Queue));
        let now = target.set(Some(&queue.name), &writable(&queue.settings)).unwrap();
        assert_eq!(now.queues[0], *queue, "setting the same value changes nothing");
    }
    drop(unbound);
}

#[test]
fn every_attribute_can_be_set_and_shown() {
    let (runtime, mut target) = target();
    let queue = runtime.workqueue_builder("q").build().unwrap();
    let cpu = runtime.allowed_cpus().first().unwrap();
    let cases = [
        ("affinity", "0", "0"),
        ("affinity", "1", "1"),
        ("affinity_scope", "numa", "numa"),
        ("affinity_strict", "1", "1"),
        ("affinity_strict", "0", "0"),
        ("localize", "yes", "1"),
        ("helping", "0", "0"),
        ("nice", "7", "7"),
        ("sched_idle", "1", "1"),
        ("sched_idle", "0", "0"),
        ("time_slice_us", "500", "500"),
        ("max_active", "3", "3"),
        ("min_active", "2", "2"),
    ];
    for (key, value, effective) in cases {
        let now = target.set(Some("q"), &changes(&[(key, value)])).unwrap();
        assert_eq!(setting(&now, key).1, effective, "{key}={value}");
    }
    let now = target.set(Some("q"), &changes(&[("affinity_scope", "default")])).unwrap();
    assert_eq!(setting(&now, "affinity_scope").1, "default (cache_shard)");
    let mask = format!("0x{:x}", 1_u128 << cpu);
    let now = target.set(Some("#1"), &changes(&[("cpumask", &mask)])).unwrap();
    assert_eq!(setting(&now, "cpumask").0, cpu.to_string());
    assert!(setting(&now, "cpumask").1.starts_with(&format!("{cpu} (")));
    let attributes = queue.attributes();
    assert!(attributes.localize && !attributes.helping && attributes.nice == 7);
    assert_eq!((queue.max_active(), queue.min_active()), (3, 2));
    assert_eq!(queue.effective_cpumask().to_list(), cpu.to_string());
}

#[test]
fn settings_of_the_process_can_be_set_and_shown() {
    let (runtime, mut target) = target();
    let cpu = runtime.allowed_cpus().first().unwrap().to_string();
    let cases = [
        ("default_affinity_scope", "numa", "numa"),
        ("affinity", "0", "0"),
        ("affinity", "1", "1"),
        ("cpu_intensive_thresh_us", "2500", "2500"),
        ("watchdog_thresh", "2.5", "2.5"),
        ("panic_on_stall", "3", "3"),
        ("spin", "0", "0"),
        ("home_choice", "first-run", "first-run"),
        ("home_inherit", "0", "0"),
        ("home_item_imbalance", "2500", "2500"),
        ("home_item_imbalance_step", "0", "0"),
        ("home_move_time", "100", "100"),
        ("home_move_margin", "400", "400"),
        ("home_move_interval_ms", "5000", "5000"),
    ];
    for (key, value, effective) in cases {
        let now = target.set(None, &changes(&[(key, value)])).unwrap();
        assert_eq!(setting(&now, key).1, effective, "{key}={value}");
    }
    let queue = runtime.workqueue_builder("follows").build().unwrap();
    assert_eq!(queue.affinity_scope_in_words(), "default (numa)");
    let now = target.set(None, &changes(&[("cpumask", &cpu)])).unwrap();
    assert_eq!(setting(&now, "cpumask").0, cpu);
    assert_eq!(queue.effective_cpumask().to_list(), cpu);
    assert_eq!(queue.spawn(|| 3).join().unwrap(), 3);
    target.set(None, &changes(&[("cpumask", "")])).unwrap();
    assert_eq!(queue.effective_cpumask(), runtime.allowed_cpus());
}

#[test]
fn the_home_of_a_queue_can_be_set_and_shown() {
    let (runtime, mut target) = target();
    let queue = runtime.workqueue_builder("homely").build().unwrap();
    let node = runtime.home_nodes()[0].node.to_string();
    let mut set = |key: &str, value: &str| {
        let now = target.set(Some("homely"), &changes(&[(key, value)])).unwrap();
        setting(&now, key)
    };
    let (configured, effective) = set("home", &node);
    assert!(configured == node && effective.contains(&format!("node {node}")), "{effective}");
    assert_eq!(queue.home().and_then(|home| home.node()), node.parse().ok());
    assert_ne!(set("home", "auto").0, "none");
    assert_eq!(set("home", "none"), ("none".to_owned(), "none".to_owned()));
    assert_eq!(queue.home(), None);
    assert_eq!(set("memory", "interleave").1, "interleave");
    assert_eq!(queue.spawn(|| 3).join().unwrap(), 3);
    set("home", &node);
    let dump = target.dump(&GetDump::default()).unwrap();
    assert_eq!(dump.homes.len(), runtime.home_nodes().len());
    assert_eq!(dump.home_weights.len(), nearq_core::home::Weights::names().len());
    let queue_dump = &dump.queues[0];
    assert_eq!(queue_dump.home.as_ref().map(|home| home.node.to_string()), Some(node));
    assert_eq!(queue_dump.memory, "interleave");
}

#[test]
fn refusals_change_nothing_and_state_what_is_allowed() {
    let (runtime, mut target) = target();
    let _queue = runtime.workqueue_builder("q").build().unwrap();
    let _percpu = runtime.workqueue_builder("percpu").per_cpu().build().unwrap();
    let _ordered = runtime.workqueue_builder("ordered").ordered().build().unwrap();
    let own = |target: &RuntimeTarget| {
        let mut settings = target.settings(None).unwrap();
        let process = settings.process.as_mut().unwrap();
        process.settings.retain(|setting| !setting.key.starts_with("lock_"));
        settings
    };
    let before = own(&target);
    type Case<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 19] = [
        (Some("q"), &[("nice", "3"), ("home", "4096")], "there is no such node"),
        (Some("q"), &[("home", "here")], "auto or none"),
        (Some("q"), &[("memory", "there")], "home, interleave, untouched"),
        (Some("percpu"), &[("home", "auto")], "per-CPU"),
        (None, &[("home_item_imbalance", "0")], "from 1 to 1000000"),
        (Some("none"), &[], "there are q, percpu, ordered"),
        (Some("#9"), &[], "there is no queue `#9`"),
        (Some("q"), &[("colour", "red")], "affinity_scope"),
        (Some("q"), &[("nice", "3"), ("affinity_scope", "l3")], "cache_shard"),
        (Some("q"), &[("affinity_strict", "1"), ("nice", "20")], "19"),
        (Some("q"), &[("affinity_strict", "1"), ("cpumask", "9999")], "this machine has"),
        (Some("q"), &[("time_slice_us", "5")], "100 µs"),
        (Some("q"), &[("max_active", "4"), ("min_active", "5")], "0 to 4"),
        (Some("q"), &[("per_cpu", "1")], "when the queue is created"),
        (Some("percpu"), &[("localize", "1")], "nice, sched_idle, time_slice_us and max_active"),
        (Some("ordered"), &[("max_active", "2")], "one item at a time"),
        (None, &[("lock_quiet", "3"), ("watchdog_thresh", "-1")], "0 for never"),
        (None, &[("watchdog_thresh", "99999999999")], "at most 18446744073"),
        (None, &[("spin", "7"), ("cpumask", "9999")], "this machine has"),
    ];
    for (queue, wrong, expected) in cases {
        let refusal = target.set(queue, &changes(wrong)).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{wrong:?}: {refusal}");
        assert_eq!(own(&target), before, "{wrong:?}");
    }
}

/// The limit 0 is the default limit, which is lower than the present limit of the queue.
#[test]
fn a_default_limit_below_min_active_is_refused() {
    let (runtime, mut target) = target();
    let queue = runtime.workqueue_builder("q").max_active(2048).min_active(2000).build().unwrap();
    let both = changes(&[("max_active", "0"), ("min_active", "2000")]);
    let refusal = target.set(Some("q"), &both).unwrap_err().to_string();
    assert!(refusal.contains("0 to 1024"), "{refusal}");
    assert_eq!((queue.max_active(), queue.min_active()), (2048, 2000));
}

#[test]
fn a_refusal_lists_all_settings_of_a_per_cpu_queue() {
    let (runtime, mut target) = target();
    let _percpu = runtime.workqueue_builder("percpu").per_cpu().build().unwrap();
    let settings = target.settings(Some("percpu")).unwrap().queues.remove(0).settings;
    let writable = settings.iter().filter(|setting| setting.writable);
    let keys: Vec<&str> = writable.map(|setting| setting.key.as_str()).collect();
    let (last, others) = keys.split_last().unwrap();
    let refusal = target.set(Some("percpu"), &changes(&[("cpumask", "")])).unwrap_err();
    let expected = format!("for which only {} and {last} can be set", others.join(", "));
    assert!(refusal.to_string().ends_with(&expected), "{refusal}");
}

#[test]
fn queues_with_equal_names_get_numbers() {
    let (runtime, mut target) = target();
    let _twins = [0, 1].map(|_| runtime.workqueue_builder("twin").build().unwrap());
    let refusal = target.set(Some("twin"), &changes(&[("nice", "1")])).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "several queues have the name `twin`; give one by its number: #1, #2"
    );
    assert_eq!(target.set(Some("#2"), &changes(&[("nice", "1")])).unwrap().queues[0].id, 2);
}

#[test]
fn counts_never_decrease_when_pwqs_are_replaced() {
    let (runtime, mut target) = target();
    let queue = runtime.workqueue_builder("q").build().unwrap();
    let mut last = 0;
    for scope in ["cpu", "system", "numa", "cpu", "default"] {
        target.set(Some("q"), &changes(&[("affinity_scope", scope)])).unwrap();
        for _ in 0..10 {
            queue.spawn(|| ()).join().unwrap();
        }
        queue.flush().unwrap();
        let completed = target.statistics().unwrap().queues[0].completed;
        assert_eq!(completed, last + 10);
        last = completed;
    }
}

#[test]
fn items_are_timed_only_while_requested() {
    let (runtime, mut target) = target();
    let queue = runtime.workqueue_builder("q").build().unwrap();
    assert!(target.statistics().unwrap().queues[0].wait.is_none());
    target.time_items(true).unwrap();
    queue.spawn(|| ()).join().unwrap();
    queue.flush().unwrap();
    let statistics = target.statistics().unwrap();
    let wait = statistics.queues[0].wait.as_ref().unwrap();
    assert_eq!((wait.samples, wait.count(), statistics.samples), (1, 1, 1));
    assert!(wait.quantile(0.5).unwrap() >= wait.sum_ns);
    target.time_items(false).unwrap();
    assert!(!target.statistics().unwrap().timing && !runtime.is_observed());
}

#[test]
fn the_dump_shows_running_and_waiting_items_and_the_cpu_map() {
    let (runtime, target) = target();
    let queue = runtime.workqueue_builder("q").max_active(1).rescuer().build().unwrap();
    let percpu = runtime.workqueue_builder("percpu").per_cpu().build().unwrap();
    let go = held(&queue);
    queue.spawn(|| ());
    let dump = loop {
        let dump = target.dump(&GetDump { items: true, locks: true }).unwrap();
        // The rescuer reports its number when it begins.
        if dump.queues[0].rescuer.as_ref().is_some_and(|rescuer| rescuer.thread != 0) {
            break dump;
        }
        std::thread::yield_now();
    };
    assert_eq!(dump.scopes.len(), 6);
    assert_eq!(dump.scopes.iter().filter(|scope| scope.default).count(), 1);
    let cpus = runtime.topology().possible().last().unwrap() + 1;
    for scope in &dump.scopes {
        assert_eq!(scope.cpu_pod.len(), cpus);
        assert!(scope.cpu_pod.iter().all(|pod| *pod < scope.pods.len() as i64));
    }
    let [shown, shown_percpu] = &dump.queues[..] else { panic!("{:?}", dump.queues) };
    assert_eq!((shown.kind.as_str(), shown_percpu.kind.as_str()), ("unbound", "percpu"));
    assert_eq!(shown.cpu_pool.len(), cpus);
    let pool = |id: i64| dump.pools.iter().find(|pool| pool.id as i64 == id).unwrap();
    let here = runtime.allowed_cpus().first().unwrap();
    assert!(pool(shown_percpu.cpu_pool[here]).per_cpu);
    let pod: nearq_core::CpuSet = pool(shown.cpu_pool[here]).pod_cpus.parse().unwrap();
    assert!(pod.contains(here));
    assert_eq!(shown.limits.iter().map(|row| (row.active, row.inactive)).max(), Some((1, 1)));
    let [running] = &dump.running[..] else { panic!("{:?}", dump.running) };
    assert_eq!((running.queue.as_str(), running.queue_id), ("q", shown.id));
    assert!(running.function.contains("held") && running.thread != 0);
    let [waiting] = &dump.waiting[..] else { panic!("{:?}", dump.waiting) };
    assert!(waiting.inactive && waiting.count == 1 && !dump.more_waiting);
    assert!(dump.locks.is_some());
    drop(go);
    drop(percpu);
}

#[test]
fn a_trace_names_each_queue_once() {
    let (runtime, mut target) = target();
    let queues = ["a", "b"].map(|name| runtime.workqueue_builder(name).build().unwrap());
    let mut trace = target.trace(&Trace { queue: None, every: None }).unwrap();
    let mut named = Vec::new();
    for round in 0..2 {
        for queue in &queues {
            queue.spawn(|| ()).join().unwrap();
            queue.flush().unwrap();
        }
        let batch = trace.take(1000);
        assert_eq!((batch.events.len(), batch.dropped, batch.every), (6, 0, 1), "round {round}");
        named.extend(batch.queues.into_iter().map(|queue| queue.name));
    }
    assert_eq!(named, ["a", "b"]);
    let none = Trace { queue: Some("c".into()), every: None };
    assert!(matches!(target.trace(&none).err(), Some(Refusal::NoSuchQueue { .. })));
}

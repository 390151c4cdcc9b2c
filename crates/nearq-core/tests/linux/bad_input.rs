//! Invalid requests are refused, with a text that names the value and what is allowed; and nothing is half changed.

use nearq_core::{AffinityScope, CpuSet, Error, Runtime, Work, Workqueue, system};

use crate::common::{command, output_text, part, skipped};

fn runtime() -> Runtime {
    Runtime::builder().build().unwrap()
}

/// Checks that the text contains each of the words.
#[track_caller]
fn names_all(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    assert!(!text.contains('\n'), "one line: {text}");
}

/// A number that no CPU of the machine has.
fn beyond(runtime: &Runtime) -> usize {
    runtime.topology().possible().last().unwrap() + 1
}

#[test]
fn a_cpu_that_does_not_exist() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("cpus").build().unwrap();
    let work = Work::new(|_: &Work| {});
    let cpu = beyond(&runtime);
    let possible = runtime.topology().possible().to_list();
    let error = queue.queue_on(cpu, &work).unwrap_err();
    names_all(&error, &[&cpu.to_string(), &possible]);
    assert!(!work.is_pending(), "nothing was queued");
    names_all(&queue.queue_on(usize::MAX, &work).unwrap_err(), &[&usize::MAX.to_string()]);
    let mask: CpuSet = [0, cpu].into_iter().collect();
    names_all(&queue.set_cpumask(mask.clone()).unwrap_err(), &[&cpu.to_string(), &possible]);
    let refused = runtime.workqueue_builder("masked").cpumask(mask).build().unwrap_err();
    assert_eq!(refused, Error::NoSuchCpu { cpu, possible: runtime.topology().possible().clone() });
}

#[test]
fn a_node_that_does_not_exist() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("nodes").build().unwrap();
    let work = Work::new(|_: &Work| {});
    let node = runtime.topology().nodes()[0].id.to_string();
    names_all(&queue.queue_on_node(99, &work).unwrap_err(), &["99", &node]);
    assert!(!work.is_pending(), "nothing was queued");
}

#[test]
fn a_mask_without_cpus_or_outside_the_allowed_cpus() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("masks").build().unwrap();
    assert_eq!(queue.set_cpumask(CpuSet::new()), Err(Error::EmptyMask));
    names_all(&Error::EmptyMask, &["mask", "at least one CPU"]);
    assert_eq!(
        runtime.workqueue_builder("empty").cpumask(CpuSet::new()).build().unwrap_err(),
        Error::EmptyMask
    );
    let outside = runtime.topology().possible().difference(&runtime.allowed_cpus());
    if outside.is_empty() {
        let why = "the process may use every CPU";
        skipped("a mask outside what is allowed", why, "run the tests under taskset");
    } else {
        let error = queue.set_cpumask(outside.clone()).unwrap_err();
        names_all(&error, &[&outside.to_list(), &runtime.allowed_cpus().to_list()]);
    }
}

#[test]
fn a_nice_value_out_of_range() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("nice").build().unwrap();
    for nice in [20, -21, i32::MAX, i32::MIN] {
        assert_eq!(queue.set_nice(nice), Err(Error::NiceOutOfRange(nice)));
        names_all(&Error::NiceOutOfRange(nice), &[&nice.to_string(), "-20", "19"]);
        assert!(runtime.workqueue_builder("nice").nice(nice).build().is_err());
    }
}

#[test]
fn a_refused_change_changes_nothing() {
    let runtime = runtime();
    let queue = runtime
        .workqueue_builder("whole")
        .affinity_scope(AffinityScope::Cpu)
        .nice(3)
        .build()
        .unwrap();
    let (attributes, pods) = (queue.attributes(), queue.pods());
    let refused = queue.change(|attributes| {
        attributes.affinity_scope = Some(AffinityScope::System);
        attributes.affinity_strict = true;
        attributes.localize = true;
        attributes.nice = 20;
    });
    assert_eq!(refused, Err(Error::NiceOutOfRange(20)));
    let cpu = beyond(&runtime);
    let refused = queue.change(|attributes| {
        attributes.nice = 4;
        attributes.cpumask = Some(CpuSet::single(cpu));
    });
    assert!(refused.is_err());
    assert_eq!(queue.attributes(), attributes);
    assert_eq!(queue.pods(), pods);
    assert_eq!(queue.spawn(|| 5).join().unwrap(), 5, "and the queue works");
}

#[test]
fn a_limit_of_no_threads() {
    let error = Runtime::builder().thread_limit(0).build().unwrap_err();
    assert_eq!(error, Error::NoThreads);
    names_all(&error, &["0 threads", "1"]);
}

#[test]
fn max_active_is_clamped() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("active").max_active(0).build().unwrap();
    assert_eq!(queue.max_active(), 1024, "0 is the default");
    queue.set_max_active(100_000).unwrap();
    assert_eq!(queue.max_active(), 2048);
    queue.set_max_active(1).unwrap();
    assert_eq!(queue.max_active(), 1);
    let odd = runtime.workqueue_builder("much").max_active(usize::MAX).build().unwrap();
    assert_eq!(odd.max_active(), 2048);
}

#[test]
fn too_large_a_limit_is_warned_of_once() {
    if part().is_some() {
        let runtime = runtime();
        for asked in [4000, 5000] {
            runtime.workqueue_builder("much").max_active(asked).build().unwrap();
        }
        return;
    }
    let output = command(too_large_a_limit_is_warned_of_once, "child").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("max_active")).collect();
    assert_eq!(warnings.len(), 1, "{}", output_text(&output));
    assert!(warnings[0].contains("4000") && warnings[0].contains("2048"), "{warnings:?}");
}

#[test]
fn the_default_scope_is_read_from_the_environment() {
    match part().as_deref() {
        None => {
            for (value, part) in
                [("numa", "good"), (" NUMA ", "good"), ("cahce", "bad"), ("cache_shard,", "bad")]
            {
                let output = command(the_default_scope_is_read_from_the_environment, part)
                    .env("NEARQ_DEFAULT_SCOPE", value)
                    .output()
                    .unwrap();
                let text = output_text(&output);
                assert!(output.status.success(), "{value:?}: {text}");
                let warned = text.matches("counts as not set").count();
                assert_eq!(warned, usize::from(part == "bad"), "{value:?}: {text}");
            }
        }
        Some("good") => {
            let runtime = Runtime::try_global().unwrap();
            assert_eq!(runtime.default_affinity_scope(), AffinityScope::Numa);
            let queue = Workqueue::builder("default").build().unwrap();
            assert_eq!(queue.affinity_scope_in_words(), "default (numa)");
        }
        Some(_) => {
            // The variable counts as not set, and there is one warning (see above).
            for _ in 0..2 {
                assert_eq!(Runtime::global().default_affinity_scope(), AffinityScope::CacheShard);
            }
            assert_eq!(system::percpu().spawn(|| 7).join().unwrap(), 7);
            let queue = Workqueue::builder("default").build().unwrap();
            assert_eq!(queue.affinity_scope_in_words(), "default (cache_shard)");
            assert_eq!(
                Runtime::builder().build().unwrap().default_affinity_scope(),
                AffinityScope::CacheShard
            );
            let named =
                Runtime::builder().default_affinity_scope(AffinityScope::Cache).build().unwrap();
            assert_eq!(named.default_affinity_scope(), AffinityScope::Cache);
        }
    }
}

#[test]
fn every_scope_that_an_error_names_is_accepted() {
    match part().as_deref() {
        None => {
            let text = "x".parse::<AffinityScope>().unwrap_err().to_string();
            let (_, names) = text.split_once("give one of ").unwrap();
            for name in names.split(", ") {
                let output = command(every_scope_that_an_error_names_is_accepted, "child")
                    .env("NEARQ_DEFAULT_SCOPE", name)
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{name:?}: {}", output_text(&output));
            }
        }
        Some(_) => drop(Runtime::builder().build().unwrap()),
    }
}

#[test]
fn affinity_is_read_from_the_environment() {
    match part().as_deref() {
        None => {
            for value in ["off", "0", "No", "FALSE", "on", "1", "maybe", ""] {
                let output = command(affinity_is_read_from_the_environment, value)
                    .env("NEARQ_AFFINITY", value)
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{value:?}: {}", output_text(&output));
            }
        }
        Some("off" | "0" | "No" | "FALSE") => {
            let queue = Workqueue::builder("off")
                .affinity_scope(AffinityScope::Cache)
                .affinity_strict(true)
                .build()
                .unwrap();
            assert!(!queue.runtime().is_affinity_enabled());
            assert_eq!(queue.affinity_scope_in_words(), "cache (off)");
            assert_eq!(queue.pods(), [queue.effective_cpumask()], "one pod of all CPUs");
            let default = Workqueue::builder("default").build().unwrap();
            assert_eq!(default.affinity_scope_in_words(), "default (cache_shard) (off)");
            queue.runtime().set_affinity_enabled(true);
            assert_eq!(queue.affinity_scope_in_words(), "cache");
            queue.set_affinity_enabled(false).unwrap();
            assert_eq!(queue.affinity_scope_in_words(), "cache (off)");
            assert_eq!(queue.spawn(|| 1).join().unwrap(), 1);
        }
        Some(_) => {
            assert!(Runtime::global().is_affinity_enabled(), "on, or it counts as not set");
            assert!(Runtime::builder().build().unwrap().is_affinity_enabled());
        }
    }
}

#[test]
fn a_refused_item_gets_the_reason() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("refused").build().unwrap();
    let work = Work::new(|_: &Work| {});
    let hour = std::time::Duration::from_hours(1);
    work.disable();
    assert!(!queue.queue(&work) && !queue.queue_delayed(&work, hour));
    for refused in
        [queue.try_queue(&work), queue.queue_on(0, &work), queue.queue_delayed_on(0, &work, hour)]
    {
        let error = refused.unwrap_err();
        assert_eq!(error, Error::Disabled);
        names_all(&error, &["disabled", "enable"]);
    }
    work.enable();
    assert_eq!(queue.queue_delayed_on(0, &work, hour), Ok(true));
    assert_eq!(queue.try_queue(&work), Ok(false), "it is pending");
    work.cancel();
    runtime.shutdown(std::time::Duration::from_mins(1)).unwrap();
    assert_eq!(queue.try_queue(&work), Err(Error::ShutDown));
    assert_eq!(queue.queue_delayed_on(0, &work, hour), Err(Error::ShutDown));
}

#[test]
fn delaying_an_item_after_a_shutdown_is_warned_of() {
    if part().is_none() {
        let output =
            command(delaying_an_item_after_a_shutdown_is_warned_of, "child").output().unwrap();
        let text = output_text(&output);
        assert!(output.status.success(), "{text}");
        assert_eq!(text.matches("was shut down and accepts nothing new").count(), 2, "{text}");
        return;
    }
    let runtime = runtime();
    let queues =
        ["delays", "modifies"].map(|name| runtime.workqueue_builder(name).build().unwrap());
    let work = Work::new(|_: &Work| {});
    runtime.shutdown(std::time::Duration::from_mins(1)).unwrap();
    let hour = std::time::Duration::from_hours(1);
    for _ in 0..2 {
        assert!(!queues[0].queue_delayed(&work, hour));
        assert!(!queues[1].modify_delayed(&work, hour));
    }
}

/// What the kind of queue excludes is reported first, because another mask would not help.
#[test]
fn any_mask_for_a_per_cpu_queue_is_refused() {
    let mask: CpuSet = "60000".parse().unwrap();
    let error = Workqueue::builder("masked").per_cpu().cpumask(mask).build().unwrap_err();
    assert!(matches!(error, Error::Unsupported { attribute: "a CPU mask", .. }), "{error}");
}

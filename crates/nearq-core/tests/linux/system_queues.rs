//! The system queues are the kernel's: names, kinds and limits.

use nearq_core::{Runtime, system};

#[test]
fn system_queues_have_the_attributes_of_the_kernels() {
    let rows = [
        (system::percpu(), "events", true, 1024, false),
        (system::highpri(), "events_highpri", true, 1024, false),
        (system::unbound(), "events_unbound", false, 2048, false),
        (system::long(), "events_long", true, 1024, false),
        (system::unbound_long(), "events_dfl_long", false, 2048, false),
        (system::freezable(), "events_freezable", true, 1024, true),
    ];
    for (queue, name, per_cpu, max_active, freezable) in rows {
        assert_eq!(queue.name(), name);
        assert_eq!(queue.is_per_cpu(), per_cpu, "{name}");
        assert_eq!(queue.max_active(), max_active, "{name}");
        assert_eq!(queue.is_freezable(), freezable, "{name}");
        assert!(!queue.is_ordered());
        assert_eq!(queue.spawn(|| 5).join().unwrap(), 5, "{name}");
    }
    // Freezing affects the freezable queues, and nothing else.
    let runtime = Runtime::global();
    runtime.freeze().unwrap();
    let held = system::freezable().spawn(|| 6);
    assert_eq!(system::percpu().spawn(|| 7).join().unwrap(), 7);
    assert!(!held.is_finished());
    runtime.thaw();
    assert_eq!(held.join().unwrap(), 6);
}

/// On real Linux: items run on the CPU that is named, in a worker whose name has the number of that CPU.
#[test]
fn an_item_runs_on_the_named_cpu_in_that_cpus_worker() {
    let (sender, receiver) = std::sync::mpsc::channel();
    for cpu in &Runtime::global().allowed_cpus() {
        let sender = sender.clone();
        let work = nearq_core::Work::new(move |_| {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.expect("the kernel reports it").trim().to_owned()
            };
            sender.send((field("Name:"), field("Cpus_allowed_list:"))).unwrap();
        });
        assert!(system::percpu().queue_on(cpu, &work).unwrap());
        let (name, allowed) = receiver.recv().unwrap();
        assert!(name.starts_with(&format!("nq/{cpu}:")), "{name}");
        assert_eq!(allowed, cpu.to_string());
    }
}

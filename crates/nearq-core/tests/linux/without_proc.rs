//! Without /proc, the runtime does not know what threads do: the hint still works, something starts every 10 ms, and there is one warning.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nearq_core::{JoinHandle, Runtime, Workqueue, block_in_place};

use crate::common::{Gate, PATIENCE, command, name_of, output_text, part, skipped};

#[test]
fn detection_degrades_to_hints_with_one_warning() {
    const WHAT: &str = "a system without /proc";
    let program = std::env::current_exe().expect("the test has a name");
    let hidden =
        "mount -t tmpfs none /proc 2>/dev/null || { echo no mount; exit 0; }; exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", hidden])
        .arg(program)
        .args(["--exact", name_of(&a_program_works_without_proc), "--ignored", "--nocapture"])
        .output();
    let output = match output {
        Ok(output) if !String::from_utf8_lossy(&output.stdout).contains("no mount") => output,
        _ => {
            let why = "there is no unshare, or nothing may be mounted";
            return skipped(WHAT, why, "apt-get install util-linux, and run the tests as root");
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    let shown = String::from_utf8_lossy(&output.stdout);
    if stderr.contains("unshare failed") {
        return skipped(WHAT, "no mount namespace may be made", "run the tests as root");
    }
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}{stderr}");
    let lines = stderr.lines().filter(|line| line.contains("nearq::block_in_place")).count();
    assert_eq!(lines, 1, "{stderr}");
    assert!(stderr.contains("/proc"), "{stderr}");
}

/// Items that sleep, waiting for each other: 16 more than there are CPUs, so all of them meet only if further workers are started.
fn meet(queue: &Workqueue) {
    let all = queue.runtime().parallelism() + 16;
    let (gate, entered) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let items: Vec<_> = (0..all)
        .map(|_| {
            let (gate, entered) = (gate.clone(), Arc::clone(&entered));
            queue.spawn(move || {
                if entered.fetch_add(1, Ordering::SeqCst) + 1 == all {
                    gate.open();
                }
                gate.wait();
            })
        })
        .collect();
    let begin = Instant::now();
    while !items.iter().all(JoinHandle::is_finished) && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    let entered = entered.load(Ordering::SeqCst);
    gate.open();
    assert_eq!(entered, all, "all of them start although nothing is known of threads");
    for item in items {
        item.join().unwrap();
    }
}

/// A program that has used up its file descriptors cannot read what its threads do, either.
#[test]
fn items_that_wait_for_each_other_run_without_file_descriptors() {
    if part().is_none() {
        let test = items_that_wait_for_each_other_run_without_file_descriptors;
        let output = command(test, "alone").output().unwrap();
        return assert!(output.status.success(), "{}", output_text(&output));
    }
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("blind").build().unwrap();
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limits exist during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
    assert!(std::fs::File::open("/proc/self/stat").is_err());
    meet(&queue);
}

#[test]
#[ignore = "run by the first test, in a process without /proc"]
fn a_program_works_without_proc() {
    let runtime = Runtime::builder().build().expect("the machine is known without /proc");
    let queue = runtime.workqueue_builder("blind").build().unwrap();
    meet(&queue);
    for hint in [false, true] {
        let gate = Gate::default();
        let sleepers: Vec<_> = (0..runtime.parallelism())
            .map(|_| {
                let gate = gate.clone();
                queue.spawn(move || if hint { block_in_place(|| gate.wait()) } else { gate.wait() })
            })
            .collect();
        let begin = Instant::now();
        let another = queue.spawn(|| {});
        while !another.is_finished() && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let has_run = another.is_finished();
        println!("hint {hint}: {:?}", begin.elapsed());
        gate.open();
        assert!(has_run, "hint {hint}: another one runs while they sleep");
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    }
}

//! A program works even if the machine cannot be read, or the kernel does not say which CPUs it may use; what is missing is reported
//! once.

use std::process::{Command, Output};

use nearq::Runtime;

use crate::filter::refuse;
use crate::skipped::skipped;

/// The CPUs that the program may use; set only in processes that run such a program.
const ALLOWED: &str = "NEARQ_TEST_ALLOWED";
/// Set if a filter must hide the affinity.
const HIDE_AFFINITY: &str = "NEARQ_TEST_HIDE_AFFINITY";
const NOTHING_MOUNTED: i32 = 77;

#[test]
#[ignore = "run by the other tests, where something is missing"]
fn a_program_with_a_queue() {
    let Some(allowed) = std::env::var_os(ALLOWED) else { return };
    if std::env::var_os(HIDE_AFFINITY).is_some() {
        assert!(refuse(&[libc::SYS_sched_getaffinity]));
    }
    assert_eq!(nearq::system::unbound().spawn(|| 7).join().unwrap(), 7);
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("own").per_cpu().build().unwrap();
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    runtime.refresh();
    assert_eq!(runtime.allowed_cpus().to_list().as_str(), allowed);
}

/// Runs the program after carrying out `mounts` in a mount namespace; none if there can be no such namespace.
fn output(mounts: Option<&str>, hide_affinity: bool) -> Option<Output> {
    let program = std::env::current_exe().unwrap();
    let mut command = match mounts {
        None => Command::new(program),
        Some(mounts) => {
            let script =
                format!("{mounts} 2>/dev/null || exit {NOTHING_MOUNTED}; exec \"$0\" \"$@\"");
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script]).arg(program);
            command
        }
    };
    command.args(["--exact", "machine::a_program_with_a_queue", "--ignored", "--nocapture"]);
    command.env(ALLOWED, Runtime::global().allowed_cpus().to_list());
    command.envs(hide_affinity.then_some((HIDE_AFFINITY, "1")));
    let output = command.output().ok()?;
    let is_refused = output.status.code() == Some(NOTHING_MOUNTED)
        || String::from_utf8_lossy(&output.stderr).contains("unshare failed");
    (!is_refused).then_some(output)
}

/// The program works, and its one line has all of these parts.
fn warns_of(output: &Output, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stdout));
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("nearq: ")).collect();
    let [line] = lines[..] else { panic!("one line was expected: {text}") };
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");
}

const WITHOUT_SYS: Option<&str> = Some("mount -t tmpfs none /sys");
const OF_SYS: [&str; 2] = ["/sys/devices/system/cpu: No such file", "on one node"];
const OF_AFFINITY: [&str; 2] = ["could not read the CPUs of thread", "/proc/self/status"];

#[test]
fn a_program_works_without_sys() {
    match output(WITHOUT_SYS, false) {
        Some(output) => warns_of(&output, &OF_SYS),
        None => {
            let why = "no mount namespace may be made";
            skipped("a program without /sys", why, "run the tests as root");
        }
    }
}

#[test]
fn a_program_works_if_the_cpus_are_unknown() {
    let has_filters = std::thread::spawn(|| refuse(&[])).join().unwrap();
    if !has_filters {
        let why = "the kernel has no filters on system calls";
        return skipped("a program without affinity", why, "a kernel with CONFIG_SECCOMP_FILTER");
    }
    warns_of(&output(None, true).unwrap(), &OF_AFFINITY);
    if let Some(output) = output(WITHOUT_SYS, true) {
        warns_of(&output, &[OF_AFFINITY, OF_SYS].concat());
    }
}

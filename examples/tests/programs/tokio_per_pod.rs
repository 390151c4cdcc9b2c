//! `tokio_per_pod`: the threads of each runtime, and its work, stay in the pod.

use crate::common::{From, Program};

#[test]
fn tasks_and_their_work_run_in_the_pod_of_their_runtime() {
    // A pod for each CPU that this process may use.
    let cpus = rustix::thread::sched_getaffinity(None).unwrap().count() as usize;
    for _ in 0..5 {
        let mut program = Program::start(env!("CARGO_BIN_EXE_tokio_per_pod"), &["cpu"]);
        assert!(program.end().success());
        let lines = program.seen(From::Output);
        assert_eq!(lines.len(), cpus, "{lines:?}");
        for line in lines {
            let (pod, _) = line.strip_prefix("CPUs ").unwrap().split_once(':').unwrap();
            assert_eq!(line, format!("CPUs {pod}: a task on CPU {pod}, its work on CPU {pod}"));
        }
    }
}

#[test]
fn a_scope_that_does_not_exist_is_an_error() {
    let mut program = Program::start(env!("CARGO_BIN_EXE_tokio_per_pod"), &["village"]);
    assert_eq!(program.end().code(), Some(1));
}

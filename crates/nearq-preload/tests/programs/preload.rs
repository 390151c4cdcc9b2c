//! Programs in C under the preload, and without it: they print the same.
//!
//! The programs are in `tests/c`; they check what they get, and print what may differ between implementations. They are compiled here; if
//! there is no C compiler, a line says so and nothing is tested.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{compile, folder, folder_for_sockets, library};
use crate::skipped::skipped;

/// How long a program that usually takes seconds may take.
const PATIENCE: &str = "300";

/// How threads that find a mutex held wait.
const MODES: [&str; 4] = ["off", "plain", "numa", "auto"];

/// What a program that ran printed.
struct Ran {
    printed: String,
    complained: String,
}

impl Ran {
    /// The figure before `what` in the report of a process of that name.
    fn reported(&self, name: &str, what: &str) -> Option<u64> {
        let line =
            self.complained.lines().find(|line| line.starts_with(&format!("nearq: {name},")))?;
        let figure = line.split_once(&format!("{what} "))?.1;
        figure.split(',').next()?.trim().parse().ok()
    }

    fn has_report(&self, name: &str) -> bool {
        self.complained.contains(&format!("nearq: {name}, process"))
    }
}

/// Runs a program, which must end successfully and in time.
fn run(program: &Path, arguments: &[&str], preload: bool, environment: &[(&str, &str)]) -> Ran {
    let mut command = Command::new("timeout");
    command.args(["--signal=ABRT", PATIENCE]);
    if preload {
        // The variable is set by `env`, so that only the program gets it.
        command.arg("env").arg(format!("LD_PRELOAD={}", library().display()));
    }
    let output = command
        .arg(program)
        .args(arguments)
        .env_remove("NEARQ_LOCK")
        .env_remove("NEARQ_CONTROL")
        .env("NEARQ_PRELOAD_STATISTICS", "1")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the program can be run");
    let ran = Ran {
        printed: String::from_utf8_lossy(&output.stdout).into_owned(),
        complained: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(
        output.status.success(),
        "{} {environment:?}: {} (signal {:?})\n{}\n{}",
        program.display(),
        output.status,
        output.status.signal(),
        ran.printed,
        ran.complained
    );
    ran
}

/// Runs a program with and without the preload, in each mode of the mutex, and with a control socket; returns the run with the preload, in
/// the usual mode.
fn same_with_and_without(name: &str) -> Option<Ran> {
    same_when_linked_with(&[], name)
}

/// Likewise, for a program that is compiled with these arguments.
fn same_when_linked_with(arguments: &[&str], name: &str) -> Option<Ran> {
    let program = compile(&format!("{name}.c"), name, arguments)?;
    let without = run(&program, &[], false, &[]);
    assert!(!without.has_report(name) && !without.printed.is_empty());
    let sockets = folder_for_sockets("preload");
    let sockets = sockets.to_str().expect("the folder's name is text");
    let environments: [&[(&str, &str)]; 5] = [
        &[("NEARQ_LOCK", "off")],
        &[("NEARQ_LOCK", "plain")],
        &[("NEARQ_LOCK", "numa")],
        &[("NEARQ_CONTROL", "full"), ("XDG_RUNTIME_DIR", sockets)],
        &[("NEARQ_LOCK", "auto")],
    ];
    let check = &|environment| {
        let with = run(&program, &[], true, environment);
        assert!(with.has_report(name), "the preload was not there: {}", with.complained);
        assert_eq!(with.printed, without.printed, "with the preload {environment:?}, and without");
        with
    };
    // All modes run at once, because most of the time the programs' threads sleep.
    std::thread::scope(|scope| {
        let running = environments.map(|environment| scope.spawn(move || check(environment)));
        let mut all = running.map(|thread| thread.join().expect("the same as without")).into_iter();
        all.next_back()
    })
}

/// The program does the same with and without the preload; and with this argument, which only works under the preload, it prints a text a
/// given number of times in each mode.
fn prints_in_each_mode(name: &str, argument: &str, text: &str, times: usize) {
    if same_with_and_without(name).is_none() {
        return;
    }
    let program = folder().join(name);
    for mode in MODES {
        let with = run(&program, &[argument], true, &[("NEARQ_LOCK", mode)]);
        assert_eq!(with.printed.matches(text).count(), times, "{mode}: {}", with.printed);
    }
}

#[test]
fn mutexes_of_every_kind_behave_like_the_c_librarys() {
    same_with_and_without("mutexes");
}

#[test]
fn condition_variables_behave_like_the_c_librarys() {
    same_with_and_without("condvars");
}

#[test]
fn reader_writer_locks_of_every_kind_behave_like_the_c_librarys() {
    prints_in_each_mode("rwlocks", "ours", "done\n", 2);
}

#[test]
fn a_thread_sleeps_until_its_deadline_on_the_requested_clock() {
    let Some(program) = compile("clocks.c", "clocks", &[]) else { return };
    for mode in MODES {
        let with = run(&program, &[], true, &[("NEARQ_LOCK", mode)]);
        if with.printed.contains(": unknown") {
            let why = "/proc/self/task/*/syscall cannot be read";
            let how = "run the tests where the kernel says in which call a thread is";
            return skipped("on which clock threads sleep", why, how);
        }
        assert_eq!(with.printed.matches(" sleeps on its clock\n").count(), 9, "{}", with.printed);
    }
}

#[test]
fn the_smallest_stacks_are_large_enough() {
    same_with_and_without("small_stacks");
}

#[test]
fn a_handler_that_locks_a_mutex_returns_to_the_interrupted_wait() {
    same_with_and_without("handlers");
}

#[test]
fn a_polling_thread_does_not_exhaust_the_records() {
    // Only once, in the usual mode, as it takes long.
    let Some(program) = compile("polling.c", "polling", &[]) else { return };
    assert_eq!(run(&program, &[], true, &[]).printed, "has() - before < ENOUGH = 1\n");
}

#[test]
fn threads_are_cancelled_while_they_wait() {
    same_with_and_without("cancelling");
}

#[test]
fn threads_are_cancelled_by_threads_that_they_wake() {
    prints_in_each_mode("asynchronous", "all of it", "went = ", 2);
}

#[test]
fn a_cancelled_thread_creates_another_thread_before_it_exits() {
    same_with_and_without("cancelled_early");
}

#[test]
fn short_waits_continue_until_the_cancelling_thread_progresses() {
    let shared = ["-shared", "-fPIC"];
    let Some(between) = compile("slow_cancel.c", "libslow_cancel.so", &shared) else { return };
    let between = between.to_str().expect("the folder's name is text");
    same_when_linked_with(&[between], "cancelled_slowly");
}

#[test]
fn threads_leave_a_wait_without_returning_from_it() {
    same_with_and_without("leaving");
}

#[test]
fn the_most_urgent_waiter_of_a_condition_variable_is_notified_first() {
    let Some(with) = same_with_and_without("urgent") else { return };
    if with.printed == "refused\n" {
        skipped("threads of real-time classes", "refused", "run the tests as root");
    }
}

#[test]
fn a_condvar_is_not_accessed_after_notifying_waiters_with_foreign_mutexes() {
    let Some(with) = same_with_and_without("standing_in") else { return };
    if with.printed == "refused\n" {
        skipped("threads of real-time classes", "refused", "run the tests as root");
    }
}

#[test]
fn threads_jump_out_of_a_wait() {
    // The C library's condition variable counts a thread that has left as one that waits, and may notify it.
    prints_in_each_mode("jumping", "conditions", "jumped = 3", 24);
}

#[test]
fn contending_threads_wait_in_nearqs_queues() {
    let Some(with) = same_with_and_without("contended") else { return };
    assert!(with.reported("contended", "contended") > Some(0), "{}", with.complained);
    assert!(with.reported("contended", "in turn") > Some(0), "{}", with.complained);
}

#[test]
fn destroyed_objects_are_not_accessed() {
    same_with_and_without("destroying");
}

#[test]
fn forks_leave_usable_mutexes() {
    if same_with_and_without("forking").is_none() {
        return;
    }
    let program = folder().join("forking");
    let with = run(&program, &["as it is"], true, &[]);
    assert!(with.printed.contains("well == forks = 1"), "{}", with.printed);
    // The child of a thread that holds something may release it; the C library does not allow that.
    let program = compile("inherited.c", "inherited", &[]).expect("there is a compiler");
    assert_eq!(run(&program, &[], true, &[]).printed, "lost() = 1\ngive_back(2) = 1\n");
}

#[test]
fn signal_handlers_may_fork() {
    same_with_and_without("forking_handlers");
}

#[test]
fn a_mutex_does_not_allocate() {
    let Some(with) = same_with_and_without("allocator") else { return };
    assert!(with.reported("allocator", "contended") > Some(0), "{}", with.complained);
}

#[test]
fn waiting_needs_no_memory() {
    same_with_and_without("no_memory");
}

#[test]
fn programs_are_selected_by_name() {
    let Some(parent) = compile("parent.c", "one-that-runs", &[]) else { return };
    let child = compile("contended.c", "another", &[]).expect("there is a compiler");
    let child = child.to_str().expect("the folder's name is text");
    let reports = |environment: &[(&str, &str)]| {
        let ran = run(&parent, &[child], true, environment);
        assert!(ran.printed.contains("ended_well(child) = 1"), "{}", ran.printed);
        (ran.has_report("one-that-runs"), ran.has_report("another"))
    };
    assert_eq!(reports(&[]), (true, true));
    assert_eq!(reports(&[("NEARQ_PRELOAD_ONLY", "another, else")]), (false, true));
    assert_eq!(reports(&[("NEARQ_PRELOAD_ONLY", "one-that-runs")]), (true, false));
    assert_eq!(reports(&[("NEARQ_PRELOAD_NOT", "another")]), (true, false));
    assert_eq!(
        reports(&[("NEARQ_PRELOAD_ONLY", "another"), ("NEARQ_PRELOAD_NOT", "another")]),
        (false, false)
    );
    for off in ["0", "off", "No", "FALSE", "", "garbage"] {
        assert_eq!(reports(&[("NEARQ_PRELOAD_STATISTICS", off)]), (false, false), "{off}");
    }
    assert_eq!(reports(&[("NEARQ_PRELOAD_STATISTICS", "Yes")]), (true, true));
}

/// If some of its calls were the C library's and some ours, the program would hang or count wrong.
#[test]
fn nothing_is_replaced_if_the_program_defines_a_function() {
    let Some(program) = compile("own_function.c", "own_function", &["-rdynamic"]) else { return };
    let with = run(&program, &[], true, &[]);
    assert_eq!(with.printed, "count = 80000\ncalls >= count = 1\n");
    assert!(!with.has_report("own_function"), "{}", with.complained);
    let expected =
        "nearq: the preload replaces nothing in this program: pthread_mutex_lock comes from";
    assert_eq!(with.complained.matches(expected).count(), 1, "{}", with.complained);
    // A program that only takes the address of a function gets ours.
    let taken = compile("mutexes.c", "taken", &["-no-pie", "-fno-pie", "-rdynamic"]);
    assert!(run(&taken.expect("there is a compiler"), &[], true, &[]).has_report("taken"));
}

/// With the program's own functions that cancel and jump, threads would wait for ever.
#[test]
fn nothing_is_replaced_if_the_program_defines_a_watched_function() {
    let names = ["__register_atfork", "_longjmp", "__pthread_mutex_unlock", "mtx_trylock"];
    let names = names.map(|name| (name, "own_name.c", format!("-DNAME={name}")));
    let with_parts = [
        ("pthread_cancel", "own_other_functions.c", "-DOWN_CANCEL".to_owned()),
        ("siglongjmp", "own_other_functions.c", "-DOWN_JUMP".to_owned()),
    ];
    for (name, source, argument) in with_parts.into_iter().chain(names) {
        let arguments = ["-rdynamic", "-fno-builtin", "-ldl", &argument];
        let Some(program) = compile(source, &format!("own-{name}"), &arguments) else { return };
        let with = run(&program, &[], true, &[]);
        let expected = format!("the preload replaces nothing in this program: {name} comes from");
        assert_eq!(with.complained.matches(&expected).count(), 1, "{name}: {}", with.complained);
    }
    // The same holds for a function of a library that is loaded earlier.
    let shared = ["-shared", "-fPIC"];
    let first = compile("slow_cancel.c", "libfirst.so", &shared).expect("there is a compiler");
    let program = compile("own_name.c", "own-nothing", &["-DNAME=nothing"]);
    let both = format!("{}:{}", first.display(), library().display());
    let only_it = [("LD_PRELOAD", &*both), ("NEARQ_PRELOAD_ONLY", "own-nothing")];
    let with = run(&program.expect("there is a compiler"), &[], false, &only_it);
    let expected = format!("pthread_cancel comes from {}\n", first.display());
    assert_eq!(with.complained.matches(&expected).count(), 1, "{}", with.complained);
}

/// The function that creates threads may be another object's.
#[test]
fn threads_created_behind_the_preload_can_wait() {
    let arguments = ["-rdynamic", "-ldl", "-DOWN_CREATE"];
    let Some(program) = compile("own_other_functions.c", "own-create", &arguments) else { return };
    for mode in MODES {
        let with = run(&program, &[], true, &[("NEARQ_LOCK", mode)]);
        assert_eq!(with.printed, "count == 80000 = 1\n");
        assert!(with.has_report("own-create"), "{}", with.complained);
    }
}

/// The loader ignores a library that the environment names by its path in a set-user-ID program; a library that the program itself names is
/// loaded, and must check for itself.
#[test]
fn a_privileged_program_is_left_alone() {
    let library = library();
    let linked = [library.to_str().expect("the folder's name is text")];
    let Some(program) = compile("contended.c", "more-rights", &linked) else { return };
    let before = run(&program, &[], false, &[]);
    assert!(before.has_report("more-rights"), "linked, it is there: {}", before.complained);
    let unprivileged = 65534;
    let given = chown(&program, Some(unprivileged), Some(unprivileged))
        .and_then(|()| fs::set_permissions(&program, PermissionsExt::from_mode(0o6755)));
    if let Err(error) = given {
        return skipped("a set-user-ID program", error, "run the tests as root");
    }
    // Such a program could wrongly honour the caller's variables despite its rights.
    let after = run(&program, &[], false, &[("NEARQ_PRELOAD_ONLY", "more-rights")]);
    fs::remove_file(&program).expect("made above");
    assert_eq!(after.printed, before.printed);
    if after.has_report("more-rights") {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        assert!(
            mounts.contains("nosuid"),
            "replaced in a set-user-ID program: {}",
            after.complained
        );
        skipped("a set-user-ID program", "the folder is mounted nosuid", "build elsewhere");
    }
}

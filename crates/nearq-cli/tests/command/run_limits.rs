//! `nearq run` when the system runs out: a full disk, files that may not grow, descriptors, processes, memory, arguments. It reports that
//! and fails; it neither waits for ever nor loses anything silently.

use crate::common::{Folder, errors, nearq, refuses, skipped};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

/// The exit status if the run itself failed.
const OWN_FAILURE: Option<i32> = Some(125);

/// Runs a line of a shell, in which `$NEARQ` is the command.
fn shell(line: &str) -> Output {
    let mut command = Command::new("bash");
    command.args(["-c", line]).env("NEARQ", crate::PROGRAM).stdin(Stdio::null());
    command.output().unwrap()
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn a_full_disk_is_reported_and_ends_the_run() {
    let folder = Folder::new("run-full");
    let mark = folder.path("mark");
    // The second would run for ever, and a third is waiting.
    let script = format!("echo a; [ $0 = 1 ] && exit; touch {mark}; exec sleep 1000");
    for order in [&["-j2"][..], &["-j2", "--keep-order"]] {
        let mut command = nearq();
        command.arg("run").args(order).args(["sh", "-c", &script, ":::", "1", "2", "3"]);
        let output = command.stdout(full()).output().unwrap();
        let stderr = errors(&output);
        assert_eq!(output.status.code(), OWN_FAILURE, "{stderr}");
        assert!(stderr.contains("standard output cannot be written: No space left"), "{stderr}");
        assert!(stderr.contains("not begun"), "{stderr}");
    }
    // Output of jobs on standard error is not lost silently either.
    let mut command = nearq();
    command.args(["run", "-j1", "sh", "-c", "echo $0; echo x >&2", ":::", "1"]);
    let output = command.stderr(full()).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (OWN_FAILURE, &b"1\n"[..]));
}

#[test]
fn a_full_disk_for_reports_is_a_failure() {
    for path in ["/dev/full", "-"] {
        let mut command = nearq();
        command.args(["run", "--json", path, "true", ":::", "1"]);
        let output = command.stdout(full()).output().unwrap();
        let stderr = errors(&output);
        assert_eq!(output.status.code(), OWN_FAILURE, "{path}: {stderr}");
        assert!(stderr.contains("No space left"), "{path}: {stderr}");
    }
    for option in ["--summary", "--verbose"] {
        let mut command = nearq();
        let status = command.args(["run", option, "true", ":::", "1"]).stderr(full()).status();
        assert_eq!(status.unwrap().code(), OWN_FAILURE, "{option}");
    }
    let mut command = nearq();
    let output = command.args(["run", "--dry-run", "echo", ":::", "1"]).stdout(full()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), OWN_FAILURE);
    assert!(errors(&output).contains("No space left"), "{}", errors(&output));
    assert!(
        refuses(&["run", "--joblog", "/dev/full", "true", ":::", "1"]).contains("No space left")
    );
}

#[test]
fn a_file_size_limit_spares_pipes_and_a_cut_job_log_is_reported() {
    let output = shell("ulimit -f 1; \"$NEARQ\" run seq 1 ::: 1000 | wc -l");
    assert_eq!(output.stdout, b"1000\n", "{}", errors(&output));
    let folder = Folder::new("run-file-limit");
    let log = folder.path("log");
    let line = format!("ulimit -f 1; \"$NEARQ\" run -j1 -k --joblog {log} echo ::: $(seq 60)");
    let output = shell(&line);
    let stderr = errors(&output);
    assert_eq!(output.status.code(), OWN_FAILURE, "{stderr}");
    assert_eq!(output.stdout.split(|byte| *byte == b'\n').count(), 61, "all jobs have run");
    assert!(stderr.contains("--joblog: the file is not complete: File too large"), "{stderr}");
    assert_eq!(stderr.lines().count(), 2, "as it happens, and at the end: {stderr}");
    let out = folder.path("out");
    let output = shell(&format!("ulimit -f 1; \"$NEARQ\" run -j1 seq 1 ::: 1000 > {out}"));
    let stderr = errors(&output);
    assert_eq!(output.status.code(), OWN_FAILURE, "{stderr}");
    assert!(stderr.contains("standard output cannot be written: File too large"), "{stderr}");
    // Jobs have the signal's default action: files that are too large end them, as under xargs.
    let job = format!("seq 1000 > {out}");
    let output = shell(&format!("ulimit -f 1; \"$NEARQ\" run --json - --shell '{job}; :' ::: 1"));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(fs::metadata(&out).unwrap().len() <= 1024);
    let output =
        shell(&format!("ulimit -f 1; \"$NEARQ\" run --json - sh -c 'exec seq 1000 > {out}' ::: 1"));
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["ended"], &parsed["jobs"][0]["signal"]), (&1.into(), &libc::SIGXFSZ.into()));
}

#[test]
fn without_descriptors_for_any_job_the_run_ends_and_names_the_limit() {
    let fill = |last: u32| {
        let open = "for i in $(seq 5 ${LAST}); do eval \"exec $i</dev/null\"; done";
        let open = open.replace("${LAST}", &last.to_string());
        format!("ulimit -n 20; {open}; exec \"$NEARQ\" run -k echo ::: 1 2")
    };
    // With each limit, different descriptors are missing: those of the engine itself, or the pipes of a job.
    for last in 8..19 {
        let output = shell(&fill(last));
        let stderr = errors(&output);
        if output.status.success() {
            assert_eq!(output.stdout, b"1\n2\n", "{last}");
        } else {
            assert_eq!(output.status.code(), OWN_FAILURE, "{last}: {stderr}");
            assert!(stderr.contains("ulimit -n"), "{last}: {stderr}");
        }
    }
}

#[test]
fn without_a_process_for_any_job_the_run_ends_and_names_the_limit() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        skipped("the limit on processes", "it needs a user of its own", "run the tests as root");
        return;
    }
    let mut command = Command::new(crate::PROGRAM);
    command.args(["run", "echo", ":::", "1", "2"]).stdin(Stdio::null());
    command.uid(61_236).gid(61_236).current_dir("/");
    let limit = || {
        let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        // SAFETY: the structure is initialised. The call may be made between fork and exec.
        unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) };
        Ok(())
    };
    // SAFETY: it makes one system call and touches no memory of other threads.
    unsafe { command.pre_exec(limit) };
    let Ok(output) = command.output() else {
        skipped("the limit on processes", "others may not read the build's folder", "chmod it");
        return;
    };
    let stderr = errors(&output);
    assert_eq!(output.status.code(), OWN_FAILURE, "{stderr}");
    assert!(
        stderr.contains("ulimit -u") && stderr.contains("0 ended, 0 stopped, 2 not begun"),
        "{stderr}"
    );
}

#[test]
fn inputs_that_do_not_fit_into_one_command_are_split() {
    let input: Vec<u8> = (0..40_000).flat_map(|n| format!("{n:0>99}\n").into_bytes()).collect();
    let mut command = nearq();
    command.args(["run", "-k", "-n100000", "sh", "-c", "printf '%s\\n' \"$@\"", "sh"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = input.clone();
    let feeder = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert!(output.status.success() && output.stdout == input, "{}", errors(&output));
    // An input that does not fit makes its job fail, and the error names the limit.
    let long = "x".repeat(100_000);
    let mut command = nearq();
    let output = command.args(["run", "echo", "{}{}", ":::", &long, "a"]).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b"aa\n"[..]));
    assert!(errors(&output).contains("131071 bytes"), "{}", errors(&output));
}

#[test]
fn an_input_without_an_end_is_an_error() {
    let mut command = nearq();
    let output = command.args(["run", "-j1", "-a", "/dev/zero", "echo"]).output().unwrap();
    assert_eq!(output.status.code(), OWN_FAILURE);
    assert!(errors(&output).contains("longer than"), "{}", errors(&output));
}

/// Runs it and reads its output with `read`; returns its largest memory in KiB, including that of its jobs.
#[expect(clippy::zombie_processes, reason = "`wait4` waits for it, and says what it used")]
fn memory(mut command: Command, read: impl FnOnce(std::process::ChildStdout)) -> i64 {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    read(child.stdout.take().unwrap());
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    let pid = child.id().cast_signed();
    // SAFETY: both places are ours, and the child has not been waited for.
    assert_eq!(unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) }, pid);
    // SAFETY: numbers, for which zeros are a value.
    unsafe { usage.assume_init() }.ru_maxrss
}

#[test]
fn memory_is_bounded_by_bytes() {
    // Some 500 MB of lines, none of which is needed yet.
    let folder = Folder::new("run-bytes");
    let go = folder.path("go");
    let line = "yes $(head -c 100000 /dev/zero | tr '\\0' x) | head -n 5000 | (\"$NEARQ\" run -j1 sh -c \
                'until [ -e GO ]; do sleep 0.01; done' sh; echo $? >&2)";
    let line = line.replace("GO", &go);
    let mut child = Command::new("bash");
    child.args(["-c", &line]).env("NEARQ", crate::PROGRAM).stdin(Stdio::null());
    child.process_group(0).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    let group = child.id();
    // When the pipe's writer waits, nothing more is read ahead.
    let nearq = || {
        fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let mut fields = stat.rsplit_once(") ")?.1.split(' ');
            let in_group = fields.nth(2)? == group.to_string() && stat.contains("(nearq)");
            in_group.then(|| entry.path())
        })
    };
    let status = |path: &std::path::Path, field: &str| {
        let text = fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(field)).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
    };
    let path = super::run_ends::wait_for("nearq begins", nearq);
    let mut before = 0;
    let resident = super::run_ends::wait_for("it has read what it reads ahead", || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = status(&path, "VmRSS:").unwrap_or(0);
        let is_steady = now > 20_000 && now == before;
        before = now;
        is_steady.then_some(now)
    });
    Command::new("kill").args(["-9", "--", &format!("-{group}")]).status().unwrap();
    child.wait().unwrap();
    assert!(resident < 100_000, "{resident} KiB");
}

#[test]
fn outputs_have_bounded_memory_and_stay_together() {
    const EACH: usize = 160 << 20;
    let script = format!("head -c {EACH} /dev/zero | tr '\\0' $0");
    for arguments in [&["-j3"][..], &["-j3", "-k"]] {
        let mut command = nearq();
        command.arg("run").args(arguments).args(["sh", "-c", &script, ":::", "a", "b", "c"]);
        command.stderr(Stdio::null());
        let mut order = Vec::new();
        let used = memory(command, |mut output| {
            let mut buffer = vec![0; 1 << 20];
            let mut all = 0;
            loop {
                let read = output.read(&mut buffer).unwrap();
                if read == 0 {
                    break;
                }
                all += read;
                // A piece mostly comes from one job, so checking is quick.
                let first = buffer[0];
                if buffer[..read] == vec![first; read] {
                    order.push(first);
                } else {
                    order.extend_from_slice(&buffer[..read]);
                }
                order.dedup();
            }
            assert_eq!(all, 3 * EACH);
        });
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, b"abc", "each output is complete");
        assert!(arguments.len() == 1 || order == sorted, "in order");
        // 256 of the 480 MiB are kept.
        assert!(used < 400 << 10, "{used} KiB");
    }
}

#[test]
fn combinations_of_lists_are_made_lazily() {
    let list: Vec<String> = (1..=1000).map(|number| number.to_string()).collect();
    let mut command = nearq();
    command.args(["run", "--dry-run", "echo"]);
    for _ in 0..3 {
        command.arg(":::").args(&list);
    }
    let used = memory(command, |output| {
        let line = BufReader::new(output).lines().nth(1000).unwrap().unwrap();
        assert!(line.ends_with("echo 1 2 1"), "{line}");
    });
    assert!(used < 100_000, "{used} KiB");
    let mut command = nearq();
    command.args(["run", "-j1", "--halt", "now", "false"]);
    for _ in 0..3 {
        command.arg(":::").args(&list);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("999999999 not begun"), "{}", errors(&output));
}

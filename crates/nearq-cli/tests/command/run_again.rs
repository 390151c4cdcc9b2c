//! `nearq run` with the job log of an earlier run, and what else decides when and how often a job runs: retries, time limits, delays.

use crate::common::{Folder, errors, nearq, prints, refuses};
use crate::invented::until;
use serde_json::Value;
use std::fs;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

const HEAD: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

/// A line as GNU parallel writes it.
fn line(number: u64, status: i32, command: &str) -> String {
    format!("{number}\t:\t1700000000.000\t     0.004\t0\t2\t{status}\t0\t{command}\n")
}

fn run(arguments: &[&str]) -> Output {
    nearq().arg("run").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Waits until there is a file.
fn wait_for(path: &str) {
    until(&format!("there is {path}"), || fs::metadata(path).is_ok());
}

/// Number, status, signal and command of each line.
fn log(path: &str) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let columns = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        [columns[0], columns[6], columns[7], columns[8]].join(" ")
    };
    text.lines().skip(1).map(columns).collect()
}

#[test]
fn a_run_continues_after_the_jobs_of_the_log() {
    let folder = Folder::new("again-resume");
    let path = folder.path("log");
    // By GNU parallel, with a line that was cut.
    fs::write(&path, format!("{HEAD}{}{}9\t:\t17", line(3, 1, "echo c"), line(1, 0, "echo a")))
        .unwrap();
    let arguments = ["--joblog", &path, "-k", "-j2", "echo", "{#}", ":::", "a", "b", "c", "d"];
    assert_eq!(
        stdout(&run(&[&["--dry-run", "--resume"], &arguments[..]].concat())),
        "echo 2\necho 4\n"
    );
    assert_eq!(stdout(&run(&[&["--resume"], &arguments[..]].concat())), "2\n4\n");
    assert_eq!(log(&path), ["3 1 0 echo c", "1 0 0 echo a", "2 0 0 echo 2", "4 0 0 echo 4"]);
    assert_eq!(stdout(&run(&[&["--resume"], &arguments[..]].concat())), "");
    assert_eq!(stdout(&run(&[&["--resume-failed"], &arguments[..]].concat())), "3\n");
    assert_eq!(log(&path).last().unwrap(), "3 0 0 echo 3");
    // A log of nine columns keeps nine.
    assert!(fs::read_to_string(&path).unwrap().lines().all(|line| line.split('\t').count() == 9));
    // Without the option, the log begins anew.
    run(&arguments);
    assert_eq!(log(&path).len(), 4);
}

#[test]
fn inputs_from_a_pipe_continue_too() {
    let folder = Folder::new("again-pipe");
    let path = folder.path("log");
    let list = folder.path("list");
    fs::write(&path, HEAD.to_owned() + &line(2, 0, "x")).unwrap();
    fs::write(&list, "a\nb\nc\n").unwrap();
    let output = run(&["-k", "--resume", "--joblog", &path, "--json", "-", "-a", &list, "echo"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let numbers: Vec<_> =
        json["jobs"].as_array().unwrap().iter().map(|job| &job["number"]).collect();
    assert_eq!(numbers, [1, 3]);
    assert_eq!((&json["ended"], &json["not_started"]), (&2.into(), &0.into()));
}

#[test]
fn failed_commands_run_again_as_they_stand_in_the_log() {
    let folder = Folder::new("again-failed");
    let path = folder.path("log");
    let mark = folder.path("it's a mark");
    // The words of a command have line breaks, quotes and tabs.
    let script = "[ -e \"$1\" ] && printf '%s\t#\n' \"$0\"";
    let output = run(&["-n2", "--joblog", &path, "sh", "-c", script, ":::", "x\ny", &mark]);
    assert_eq!(output.status.code(), Some(1));
    fs::write(&mark, "").unwrap();
    let output = run(&["--retry-failed", "--joblog", &path, "--tag"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(stdout(&output).ends_with("y\t#\n"), "{}", stdout(&output));
    assert_eq!(run(&["--retry-failed", "--joblog", &path]).stdout, b"");
    assert_eq!(log(&path).len(), 2);
}

#[test]
fn a_log_that_cannot_be_continued_is_refused() {
    let folder = Folder::new("again-refused");
    let path = folder.path("log");
    let says = |text: &str, arguments: &[&str], parts: &[&str]| {
        fs::write(&path, text).unwrap();
        let line = refuses(&[&["run"], arguments].concat());
        assert!(parts.iter().all(|part| line.contains(part)), "{arguments:?}: {line}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    };
    let resume = ["--resume", "--joblog", &path, "echo", ":::", "a"];
    says("a,b\n", &resume, &["--resume: --joblog", "its first line", "give the log"]);
    says(&format!("{HEAD}x\n{}", line(1, 0, "a")), &resume, &["line 2", "delete that line"]);
    let failed = ["--retry-failed", "--joblog", &path];
    says(
        &format!("{HEAD}{}", line(1, 1, "rm -r x").trim_end()),
        &failed,
        &["line 2", "no end", "complete it"],
    );
    let with_command = ["--retry-failed", "--joblog", &path, "echo", ":::", "a"];
    says(HEAD, &with_command, &["leave out the command", "--resume-failed"]);
    says(HEAD, &["--resume", "echo", ":::", "a"], &["--resume", "--joblog FILE"]);
    says(HEAD, &["--retry-failed"], &["--retry-failed", "--joblog FILE"]);
    says(
        HEAD,
        &["--resume", "--joblog", "/dev/null", "echo", ":::", "a"],
        &["/dev/null", "no ordinary file"],
    );
    for (option, other) in
        [("--tag", "--ungroup"), ("--tagstring=x", "-u"), ("--results=r", "--ungroup")]
    {
        says(HEAD, &[option, other, "echo", ":::", "a"], &["--ungroup", "leave out one"]);
    }
    says(
        HEAD,
        &["--results", "x.csv", "echo", ":::", "a"],
        &["--results x.csv", "give a folder", "--joblog"],
    );
    says(HEAD, &["--results", &path, "echo", ":::", "a"], &["it is a file", "folder"]);
    says(HEAD, &["--tagstring", "{2}", "echo", ":::", "a"], &["--tagstring", "{2}"]);
    says(
        HEAD,
        &["--tagstring", "{..}", "echo", ":::", "a"],
        &["--tagstring", "{..}", "placeholders are"],
    );
    says(HEAD, &["--timeout", "0", "echo", ":::", "a"], &["10s", "200%", "no limit"]);
    says(HEAD, &["--delay", "soon", "echo", ":::", "a"], &["0.5s"]);
    says(HEAD, &["--retries", "-1", "echo", ":::", "a"], &["--retries"]);
}

#[test]
fn two_runs_cannot_write_one_log() {
    let folder = Folder::new("again-two");
    let (path, mark) = (folder.path("log"), folder.path("mark"));
    let script = format!("case $0 in 1) ;; *) touch {mark}; sleep 1000;; esac");
    let mut first = nearq();
    first.args(["run", "-j1", "--joblog", &path, "sh", "-c", &script, ":::", "1", "2"]);
    let mut first = first.spawn().unwrap();
    wait_for(&mark);
    for option in [&["--resume"][..], &[]] {
        let line = refuses(&[&["run"], option, &["--joblog", &path, "echo", ":::", "a"]].concat());
        assert!(line.contains("another run writes it") && line.contains("another file"), "{line}");
    }
    let pid = first.id().cast_signed();
    // SAFETY: numbers only; the child has not been waited for.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    first.wait().unwrap();
    let output = run(&["--resume", "--joblog", &path, "echo", ":::", "a", "b"]);
    assert_eq!(stdout(&output), "b\n", "{}", errors(&output));
    assert_eq!(log(&path).len(), 2);
}

#[test]
fn a_run_that_begins_beside_another_one_leaves_its_log_alone() {
    let folder = Folder::new("again-beside");
    let (path, mark) = (folder.path("log"), folder.path("mark"));
    // The second run starts when there is no log yet, and ends its first job when there is one. The first run ends after it.
    let script = format!(
        "case $0 in first) touch {mark}1; until [ -e {mark}2 ]; do sleep 0.01; done;; second) until [ -s {path} ]; do sleep 0.01; done;; \
         end-first) until [ -e {mark}3 ]; do sleep 0.01; done;; esac"
    );
    let start = |name: &str| {
        let mut command = nearq();
        let end = format!("end-{name}");
        command.args(["run", "-j1", "--joblog", &path, "sh", "-c", &script, ":::", name, &end]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = start("first");
    wait_for(&format!("{mark}1"));
    let second = start("second");
    // It has read what there is of the log once it has started a job: its job, beside the orphan reaper.
    let children =
        || fs::read_to_string(format!("/proc/{0}/task/{0}/children", second.id())).unwrap();
    until("the second run has started a job", || children().split_whitespace().count() >= 2);
    fs::write(format!("{mark}2"), "").unwrap();
    let second = second.wait_with_output().unwrap();
    fs::write(format!("{mark}3"), "").unwrap();
    let first = first.wait_with_output().unwrap();
    assert_eq!(first.status.code(), Some(0), "{}", errors(&first));
    assert_eq!(second.status.code(), Some(125), "{}", errors(&second));
    assert!(errors(&second).contains("another run writes it"), "{}", errors(&second));
    let log = log(&path);
    assert!(log.len() == 2 && log[0].ends_with("first"), "{log:?}");
}

#[test]
fn jobs_that_were_stopped_with_their_run_begin_again() {
    let folder = Folder::new("again-stopped");
    let (path, mark) = (folder.path("log"), folder.path("mark"));
    // The second job takes the signal for a reason to end well; the third one does not. The third one begins when the first one has ended.
    let script = format!(
        "[ -e {mark} ] && exec echo $0; case $0 in 2) trap 'touch {mark}2; exit 0' TERM; touch {mark}1;; 3) until [ -e {mark}1 ]; do sleep 0.01; done; touch {mark}3;; \
         *) exit 0;; esac; sleep 1000 & wait"
    );
    let jobs = ["-k", "-j2", "--joblog", &path, "sh", "-c", &script, ":::", "1", "2", "3", "4"];
    let mut command = nearq();
    command.arg("run").args(jobs).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for(&format!("{mark}3"));
    // SAFETY: numbers only; the child has not been waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    let output = child.wait_with_output().unwrap();
    assert!(errors(&output).contains("1 ended, 2 stopped, 1 not begun"), "{}", errors(&output));
    assert!(fs::metadata(format!("{mark}2")).is_ok(), "the second job ended by itself");
    fs::write(&mark, "").unwrap();
    assert_eq!(
        stdout(&run(&[&["--dry-run", "--resume-failed"], &jobs[..]].concat())).lines().count(),
        3
    );
    assert_eq!(stdout(&run(&[&["--resume"], &jobs[..]].concat())), "2\n3\n4\n");
}

#[test]
fn a_failed_job_is_tried_again_and_printed_once() {
    let folder = Folder::new("again-retries");
    let (path, json, count) = (folder.path("log"), folder.path("json"), folder.path("count"));
    let script = format!("echo {{}} x >> {count}; wc -l < {count}; [ $(wc -l < {count}) -ge 3 ]");
    let arguments =
        ["--retries", "0", "--summary", "--joblog", &path, "--json", &json, "--shell", &script];
    let output = run(&[&arguments[..], &[":::", "a"]].concat());
    assert_eq!((output.status.code(), stdout(&output).trim()), (Some(0), "3"));
    assert!(errors(&output).contains("0 (run 3)"), "{}", errors(&output));
    assert_eq!(log(&path).len(), 1);
    let json: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&json["jobs"][0]["attempts"], &json["failed"]), (&3.into(), &0.into()));
}

#[test]
fn a_job_that_is_tried_again_keeps_its_place_in_the_order() {
    let folder = Folder::new("again-order");
    let mark = folder.path("mark");
    // The first job fails until the last one has ended.
    let script = format!(
        "case $0 in 1) [ -e {mark} ] || {{ sleep 0.01; exit 1; }};; 4) touch {mark};; esac; echo $0"
    );
    let arguments =
        ["run", "-k", "-j3", "--retries", "0", "sh", "-c", &script, ":::", "1", "2", "3", "4"];
    assert_eq!(prints(&arguments), "1\n2\n3\n4\n");
}

#[test]
fn a_run_that_ends_prints_the_outputs_behind_a_job_that_would_run_again() {
    let folder = Folder::new("again-ends");
    let (mark, pid) = (folder.path("mark"), folder.path("pid"));
    // The first job fails while the second one runs, and waits for its next turn.
    let script = format!(
        "case $0 in 1) echo $$ > {pid}; until [ -e {mark} ]; do sleep 0.01; done; exit 1;; 2) echo 2; touch {mark}; exec sleep 1000;; esac"
    );
    let mut command = nearq();
    command.args([
        "run",
        "-k",
        "-j2",
        "--retries",
        "2",
        "--delay",
        "3",
        "sh",
        "-c",
        &script,
        ":::",
        "1",
        "2",
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_gone = || {
        let first = fs::read_to_string(&pid).unwrap_or_default();
        !first.is_empty() && fs::metadata(format!("/proc/{}", first.trim())).is_err()
    };
    until("the first job has ended", is_gone);
    // SAFETY: numbers only; the child has not been waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "2\n", "{}", errors(&output));
    assert!(errors(&output).contains("1 stopped, 1 not begun"), "{}", errors(&output));
}

#[test]
fn a_timeout_ends_the_whole_process_group() {
    let folder = Folder::new("again-timeout");
    let (path, json) = (folder.path("log"), folder.path("json"));
    // The shell ends at the signal; its child ignores it, and so is killed while another job runs.
    let script = "trap '' TERM; sleep 1000 & echo $!; trap - TERM; wait";
    let mut command = nearq();
    command.args(["run", "-j2", "--timeout", "0.5", "--joblog", &path, "--json", &json]);
    let output = command.args(["sh", "-c", script, ":::", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).contains("job 1 is ended: it ran longer than 0.500 s (--timeout)"),
        "{}",
        errors(&output)
    );
    let child = stdout(&output);
    assert!(fs::metadata(format!("/proc/{}", child.trim())).is_err(), "{child} still runs");
    assert!(log(&path)[0].starts_with("1 -1 15 sh -c"), "{:?}", log(&path));
    let json: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let job = &json["jobs"][0];
    assert_eq!(
        (&job["timed_out"], &job["stopped"], &job["signal"]),
        (&true.into(), &false.into(), &15.into())
    );
}

#[test]
fn what_a_timed_out_job_leaves_behind_is_killed_while_the_run_goes_on() {
    let folder = Folder::new("again-late");
    let pid = folder.path("pid");
    let script = format!(
        "case $0 in 1) trap '' TERM; sleep 1000 & echo $! > {pid}; trap - TERM; wait;; \
         2) until [ -s {pid} ]; do sleep 0.01; done; while kill -0 $(cat {pid}); do sleep 0.05; done; echo gone;; esac"
    );
    // The second job begins five seconds later, so its own time is not over when that of the first one is.
    let mut command = nearq();
    let options = ["run", "-j2", "--timeout", "6", "--delay", "5", "sh", "-c"];
    command.args(options).args([&script, ":::", "1", "2"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert_eq!(stdout(&output), "gone\n", "{}", errors(&output));
    let child = fs::read_to_string(&pid).unwrap();
    assert!(fs::metadata(format!("/proc/{}", child.trim())).is_err(), "{child} still runs");
}

#[test]
fn jobs_start_no_sooner_than_the_delay_allows() {
    let begin = Instant::now();
    assert_eq!(
        prints(&["run", "-k", "-j4", "--delay", "0.2s", "echo", ":::", "a", "b", "c"]),
        "a\nb\nc\n"
    );
    assert!(begin.elapsed() >= Duration::from_millis(400), "{:?}", begin.elapsed());
}

#[test]
fn outputs_are_stored_as_they_are_in_place_of_being_printed() {
    let folder = Folder::new("again-results");
    let root = folder.path("out");
    let lines = prints(&[
        "run",
        "-k",
        "--tag",
        "--results",
        &root,
        "sh",
        "-c",
        "echo x$0",
        ":::",
        "..",
        "a/b",
    ]);
    assert_eq!(lines, "");
    let file = |name: &str| fs::read_to_string(format!("{root}/1/{name}")).unwrap();
    assert_eq!(
        [file(r"\../stdout"), file(r"a\_b/stdout"), file(r"a\_b/seq")],
        ["x..\n", "xa/b\n", "2"]
    );
    // Where nothing can be stored, nothing runs.
    let blocked = folder.path("file");
    fs::write(&blocked, "").unwrap();
    let output = run(&["--results", &format!("{blocked}/x{{}}"), "echo", ":::", "a"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{}", errors(&output));
    assert!(errors(&output).contains("--results"), "{}", errors(&output));
}

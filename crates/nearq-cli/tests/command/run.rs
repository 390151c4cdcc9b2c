//! `nearq run`: how jobs are built, what happens to their output, and what is reported about them.

use crate::common::{Folder, errors, nearq, prints, refuses, skipped};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Runs the command with the given standard input.
fn output_with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = nearq()
        .arg("run")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn status(arguments: &[&str]) -> Option<i32> {
    nearq().arg("run").args(arguments).output().unwrap().status.code()
}

#[test]
fn each_input_is_a_job() {
    assert_eq!(prints(&["run", "-k", "echo", "x", ":::", "a b", "c"]), "x a b\nx c\n");
    assert_eq!(prints(&["run", "-k", "echo", "{#}:{}", ":::", "a", "b"]), "1:a\n2:b\n");
    let output = output_with_input(&["-k", "echo"], b"one\n\ntwo\nthree");
    assert_eq!(text(&output.stdout), "one\ntwo\nthree\n");
    let output = output_with_input(&["-k", "-0", "printf", "<%s>"], b"a\nb\0c\0");
    assert_eq!(text(&output.stdout), "<a\nb><c>");
    let output = output_with_input(&["-k", "-n2", "echo", "{2}", "{1}"], b"1\n2\n3\n");
    assert_eq!(text(&output.stdout), "2 1\n 3\n");
    assert_eq!(
        prints(&["run", "-k", "echo", ":::", "a", "b", ":::", "1", "2"]),
        "a 1\na 2\nb 1\nb 2\n"
    );
    assert_eq!(prints(&["run", "echo", ":::"]), "");
    assert_eq!(prints(&["run", "-j0", "--", "echo", "-n", ":::", "a"]), "a");
}

#[test]
fn inputs_may_be_bytes_of_any_kind() {
    let output = output_with_input(&["printf", "%s"], b"a\xff\xfe'\"$x\\\n");
    assert_eq!(output.stdout, b"a\xff\xfe'\"$x\\");
    let output = output_with_input(&["--shell", "printf %s {} | cat"], b"a\xff'\"$x\\\n");
    assert_eq!(output.stdout, b"a\xff'\"$x\\");
}

#[test]
fn inputs_can_come_from_a_file() {
    let folder = Folder::new("run-input");
    let list = folder.path("list");
    fs::write(&list, "1\n2\n").unwrap();
    assert_eq!(prints(&["run", "-k", "-a", &list, "echo", "n"]), "n 1\nn 2\n");
    // The jobs of the inputs that have arrived run at once, whatever comes later.
    let mut child = nearq();
    let mut child = child
        .args(["run", "--input", "-", "echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    for line in ["first", "second"] {
        writeln!(input, "{line}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), line);
    }
    drop(input);
    assert!(lines.next().is_none() && child.wait().unwrap().success());
}

#[test]
fn jobs_get_no_standard_input() {
    let output = output_with_input(&["-k", "sh", "-c", "cat; echo {}"], b"a\nb\n");
    assert_eq!(text(&output.stdout), "a\nb\n");
}

#[test]
fn the_output_of_a_job_stays_together() {
    let folder = Folder::new("run-together");
    // Each waits until the other has printed its first line.
    let script = format!(
        "cd {} && echo $0; echo e$0 >&2; touch $0; until [ -e $1 ]; do sleep 0.01; done; echo $0",
        folder.path("")
    );
    let output = nearq()
        .args(["run", "-j2", "-n2", "sh", "-c", &script, ":::", "a", "b", "b", "a"])
        .output()
        .unwrap();
    let lines = text(&output.stdout);
    assert!(["a\na\nb\nb\n", "b\nb\na\na\n"].contains(&&*lines), "{lines}");
    assert_eq!(sorted(&errors(&output)), ["ea", "eb"]);
}

#[test]
fn keep_order_prints_outputs_in_input_order() {
    let folder = Folder::new("run-order");
    let mark = folder.path("mark");
    // The first job ends after the third.
    let script = format!(
        "case $0 in 1) until [ -e {mark} ]; do sleep 0.01; done;; 3) touch {mark};; esac; echo $0"
    );
    let arguments = ["sh", "-c", &script, ":::", "1", "2", "3"];
    assert_eq!(prints(&[&["run", "-j3", "-k"], &arguments[..]].concat()), "1\n2\n3\n");
}

#[test]
fn ungrouped_outputs_come_as_they_are_written() {
    let folder = Folder::new("run-ungroup");
    let script = format!(
        "cd {}; wait_for() {{ until [ -e $1 ]; do sleep 0.01; done; }}
         case $0 in 1) echo a; touch f1; wait_for f2; echo c;; 2) wait_for f1; echo b; touch f2;; esac",
        folder.path("")
    );
    assert_eq!(prints(&["run", "-j2", "-u", "sh", "-c", &script, ":::", "1", "2"]), "a\nb\nc\n");
}

#[test]
fn the_exit_status_is_the_number_of_failures() {
    assert_eq!(status(&["sh", "-c", "exit $0", ":::", "0", "1", "0", "7"]), Some(2));
    let many: Vec<String> = (0..130).map(|number| number.to_string()).collect();
    let mut arguments = vec!["-j4", "false", ":::"];
    arguments.extend(many.iter().map(String::as_str));
    assert_eq!(status(&arguments), Some(101));
    assert_eq!(status(&arguments[..103]), Some(100));
    assert_eq!(status(&["sh", "-c", "kill -9 $$", ":::", "1"]), Some(1));
}

#[test]
fn a_command_that_cannot_be_run_is_reported_before_any_job() {
    let folder = Folder::new("run-commands");
    let log = folder.path("log");
    let plain = folder.path("plain");
    fs::write(&plain, "echo script $1\n").unwrap();
    for (command, code) in [("no-such-command-here", 127), ("/no/such/file", 127), (&plain, 126)] {
        let output = nearq().args(["run", "--joblog", &log, command, ":::", "1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert!(errors(&output).starts_with(&format!("nearq: {command}: ")), "{}", errors(&output));
        assert!(fs::metadata(&log).is_err(), "nothing was run");
    }
    // One of several jobs fails.
    let output = nearq()
        .args(["run", "-k", "--joblog", &log, "{}", ":::", "true", "no-such-command-here", &plain])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    let log = fs::read_to_string(&log).unwrap();
    let status = |command: &str| {
        let line = log.lines().find(|line| line.contains(&format!("\t{command}\t"))).unwrap();
        line.split('\t').nth(6).unwrap().to_owned()
    };
    assert_eq!(
        [status("true"), status("no-such-command-here"), status(&plain)],
        ["0", "127", "126"]
    );
    // A script without an interpreter line is run by the shell.
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(prints(&["run", &plain, ":::", "x"]), "script x\n");
}

#[test]
fn a_failure_ends_the_run_as_requested() {
    let script = ["sh", "-c", "echo $0; exit $0", ":::", "0", "1", "0"];
    let run = |halt: &str| {
        let output = nearq().args(["run", "-j1", "--halt", halt]).args(script).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{halt}");
        text(&output.stdout)
    };
    assert_eq!(run("never"), "0\n1\n0\n");
    assert_eq!(run("soon"), "0\n1\n");
    assert_eq!(run("now"), "0\n1\n");
}

#[test]
fn the_first_failure_ends_running_jobs() {
    let folder = Folder::new("run-halt");
    let (mark, json) = (folder.path("mark"), folder.path("json"));
    // The second fails once the first is running and can be ended.
    let script = format!(
        "case $0 in 1) touch {mark}; exec sleep 1000;; 2) until [ -e {mark} ]; do sleep 0.01; done; exit 9;; esac"
    );
    let output = nearq()
        .args([
            "run", "-j2", "--halt", "now", "--json", &json, "sh", "-c", &script, ":::", "1", "2",
            "3",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&json["failed"], &json["not_started"]), (&1.into(), &1.into()));
    let [first, second] = [&json["jobs"][0], &json["jobs"][1]];
    assert_eq!((&first["signal"], &first["stopped"]), (&15.into(), &true.into()));
    assert_eq!((&second["exit"], &second["stopped"]), (&9.into(), &false.into()));
    assert!(
        errors(&output).contains("jobs: 1 ended, 1 stopped, 1 not begun"),
        "{}",
        errors(&output)
    );
}

#[test]
fn only_processes_that_leave_the_session_outlive_a_job() {
    let script = "sleep 1000 & echo $!; setsid sleep 1000 > /dev/null 2>&1 & echo $!";
    let output = prints(&["run", "sh", "-c", script, ":::", "1"]);
    let pids: Vec<&str> = output.lines().collect();
    let is_there = |pid: &str| fs::metadata(format!("/proc/{pid}")).is_ok();
    assert!(!is_there(pids[0]), "the process still exists");
    // The shell may have ended before its second child became a leader: then that child was ended too.
    if is_there(pids[1]) {
        Command::new("kill").arg(pids[1]).status().unwrap();
    }
}

#[test]
fn a_dry_run_only_prints_the_commands() {
    let folder = Folder::new("run-dry");
    let mark = folder.path("mark");
    let lines = prints(&["run", "--dry-run", "touch", &mark, ":::", "a b", "c"]);
    let lines: Vec<&str> = lines.lines().map(|line| line.rsplit('\t').next().unwrap()).collect();
    assert_eq!(lines, [format!("touch {mark} 'a b'"), format!("touch {mark} c")]);
    assert!(fs::metadata(&mark).is_err());
}

#[test]
fn the_job_log_and_the_json_record_what_happened() {
    let folder = Folder::new("run-log");
    let (log, json) = (folder.path("log"), folder.path("json"));
    let script = "echo $0; exit $0";
    let output = nearq()
        .args(["run", "-j1", "--joblog", &log, "--json", &json, "--summary", "sh", "-c", script])
        .args([":::", "0", "3"])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "0\n3\n".into()));
    let summary = errors(&output);
    assert!(summary.starts_with("JOB  HOME"), "{summary}");
    let counts = "2 jobs: 1 succeeded, 1 failed, 0 stopped, 0 not begun";
    assert!(summary.contains(counts), "{summary}");
    let log = fs::read_to_string(&log).unwrap();
    let rows: Vec<Vec<&str>> = log.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(
        rows[0][..9].join(" "),
        "Seq Host Starttime JobRuntime Send Receive Exitval Signal Command"
    );
    for (row, status) in rows[1..].iter().zip(["0", "3"]) {
        assert_eq!(row.len(), rows[0].len());
        assert_eq!((row[1], row[5], row[6], row[7]), (":", "2", status, "0"));
        assert_eq!(row[8], format!("sh -c 'echo $0; exit $0' {status}"));
        assert!(row[9].starts_with('#'), "{row:?}");
        assert!(
            row[2].parse::<f64>().unwrap() > 1e9 && row[3].trim().parse::<f64>().unwrap() < 60.0
        );
    }
    let json: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&json["ended"], &json["failed"]), (&2.into(), &1.into()));
    assert_eq!(json["jobs"][1]["exit"], 3);
    // Nothing else is on standard output.
    let output = nearq().args(["run", "--json", "-", "echo", ":::", "a"]).output().unwrap();
    assert_eq!(errors(&output), "a\n");
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["ended"], 1);
}

#[test]
fn contradictory_arguments_are_refused() {
    let names = |arguments: &[&str], parts: &[&str]| {
        let line = refuses(&[&["run"], arguments].concat());
        assert!(parts.iter().all(|part| line.contains(part)), "{arguments:?}: {line}");
    };
    names(&[], &["no command", "nearq run gzip"]);
    names(&["--home", "4095", "true", ":::", "1"], &["node 4095", "there is no such node", "give"]);
    names(&["--home", "here", "true"], &["'here'", "auto", "nearq topo"]);
    names(&["--jobs", "many", "true"], &["'many'", "50%"]);
    names(&["--halt", "later", "true"], &["'later'", "never, soon, now"]);
    names(&["--scope", "core", "true"], &["'core'", "numa", "cache"]);
    names(&["-k", "-u", "true"], &["--keep-order", "--ungroup"]);
    names(&["--max-args", "0", "true"], &["'0'", "at least 1"]);
    names(&["--input", "/no/such/file", "true"], &["--input /no/such/file", "cannot be read"]);
    names(&["--input", "/", "true"], &["--input /: ", "directory"]);
    names(&["--input", "x", "true", ":::", "1"], &["only one source"]);
    names(&["--joblog", "/no/such/log", "true", ":::", "1"], &["--joblog /no/such/log", "folder"]);
    names(&["--json", "/no/such/log", "true", ":::", "1"], &["--json /no/such/log", "folder"]);
    names(&["echo", "{2}", ":::", "1"], &["{2}", "one input"]);
    names(&["echo", "::::", "f"], &["`::::`", "--input FILE"]);
    names(&["--weight", "gravity=1", "true", ":::", "1"], &["gravity"]);
    names(&["--weight", "stay_ms", "true", ":::", "1"], &["NAME=N", "--weight help"]);
}

#[test]
fn home_none_prints_no_message_about_one_node() {
    let output = nearq()
        .args([
            "run",
            "--home",
            "none",
            "--verbose",
            "--summary",
            "--json",
            "-",
            "true",
            ":::",
            "a",
        ])
        .output()
        .unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let without = value["without"].as_str().unwrap();
    let stderr = errors(&output);
    assert!(without.contains("--home none") && !without.contains("one node"), "{without}");
    // The line is printed before the jobs and below the table.
    assert!(stderr.matches("--home none").count() == 2 && !stderr.contains("one node"), "{stderr}");
    let output = nearq()
        .args(["run", "--tree", "--home", "none", "--verbose", "--summary", "--", "echo", "a"])
        .output()
        .unwrap();
    let stderr = errors(&output);
    assert!(output.status.success() && output.stdout == b"a\n", "{stderr}");
    assert!(stderr.matches("--home none").count() == 2 && !stderr.contains("one node"), "{stderr}");
}

#[test]
fn without_inputs_on_a_terminal_a_message_explains_how_to_give_some() {
    let program = crate::PROGRAM;
    let typed = Command::new("script")
        .args(["-qec", &format!("{program} run echo"), "/dev/null"])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = typed else {
        skipped("inputs from a terminal", "no `script`", "install util-linux");
        return;
    };
    let text = text(&output.stdout);
    assert!(text.contains("no inputs: give them after `:::`"), "{text}");
}

#[test]
fn it_behaves_like_xargs() {
    let input: Vec<u8> = (0..200).flat_map(|n| format!("{n} \u{e9}\0").into_bytes()).collect();
    let mut xargs = Command::new("xargs");
    xargs.args(["-0", "-P2", "-I{}", "sh", "-c", "echo \"$0\"; exit 0", "<{}>"]);
    let child = xargs.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        skipped("xargs", "it is not installed", "install findutils");
        return;
    };
    child.stdin.take().unwrap().write_all(&input).unwrap();
    let other_output = text(&child.wait_with_output().unwrap().stdout);
    let nearq_output =
        output_with_input(&["-0", "-P2", "sh", "-c", "echo \"$0\"; exit 0", "<{}>"], &input);
    assert_eq!(sorted(&text(&nearq_output.stdout)), sorted(&other_output));
}

#[test]
fn it_behaves_like_parallel() {
    let words = ["-k", "-j2", "echo", "{#}", "{}", "{.}", "{/}", "{//}", "{/.}", "x{}y"];
    let inputs = [":::", "/a/b.c.d", "x", "a b.c", "it's", "d.e/f"];
    let other_output =
        Command::new("parallel").arg("--will-cite").args(words).args(inputs).output();
    let Some(other_output) = other_output.ok().filter(|output| output.status.success()) else {
        skipped("GNU parallel", "it is not installed", "install parallel");
        return;
    };
    let nearq_output = prints(&[&["run"], &words[..], &inputs[..]].concat());
    assert_eq!(nearq_output, text(&other_output.stdout));
}

//! How `nearq run` ends: by signals, by limits of the system, by a reader that goes away; and that none of its processes survives.

use crate::common::{Folder, errors, nearq, output_with_few_processes, skipped};
use crate::filter;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A loaded machine is slow.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until there is a result.
pub(crate) fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// Whether the process is alive; a zombie is not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state(&stat).is_some_and(|state| !['Z', 'X'].contains(&state))
}

fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The words of a file, once it has `count` of them.
pub(crate) fn words(path: &str, count: usize) -> Vec<String> {
    wait_for(path, || {
        let text = fs::read_to_string(path).unwrap_or_default();
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        (words.len() >= count).then_some(words)
    })
}

pub(crate) fn send(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
}

/// Two jobs, each a shell with a child and a grandchild; all six write their numbers to the file.
fn two_trees(pids: &str) -> Child {
    let inner = format!("sleep 1000 & echo $! >> {pids}; echo $$ >> {pids}; wait");
    let script = format!("echo $$ >> {pids}; sh -c '{inner}'; true");
    let mut command = nearq();
    command.args(["run", "-j2", "sh", "-c", &script, ":::", "1", "2"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_signal_ends_all_jobs_then_the_command() {
    let folder = Folder::new("run-signals");
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3)] {
        let pids = folder.path(signal);
        let mut child = two_trees(&pids);
        let all = words(&pids, 6);
        send(signal, &child);
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(number), "{status}");
        let left: Vec<&String> = all.iter().filter(|pid| is_alive(pid)).collect();
        assert!(left.is_empty(), "{left:?} live on after SIG{signal}");
    }
}

#[test]
fn an_end_by_a_signal_reports_stopped_and_unstarted_jobs() {
    let folder = Folder::new("run-counts");
    let (pids, json) = (folder.path("pids"), folder.path("json"));
    // The first three end, the next two run until they are ended.
    let script = format!("[ $0 -le 3 ] && exit; echo $$ >> {pids}; exec sleep 1000");
    let mut command = nearq();
    command.args(["run", "-j2", "--summary", "--json", &json, "sh", "-c", &script, ":::"]);
    command.args((1..=40).map(|number| number.to_string()));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    words(&pids, 2);
    send("INT", &child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(2));
    let stderr = errors(&output);
    assert!(stderr.contains("ended by SIGINT; jobs: 3 ended, 2 stopped, 35 not begun"), "{stderr}");
    assert!(stderr.contains("40 jobs: 3 succeeded, 0 failed, 2 stopped, 35 not begun"), "{stderr}");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!((&json["stopped"], &json["not_started"]), (&2.into(), &35.into()));
}

#[test]
fn unread_input_counts_as_more_jobs() {
    let folder = Folder::new("run-unread");
    let pids = folder.path("pids");
    let script = format!("echo $$ >> {pids}; exec sleep 1000");
    let mut command = nearq();
    command.args(["run", "-j1", "--summary", "sh", "-c", &script]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"1\n2\n").unwrap();
    words(&pids, 1);
    send("TERM", &child);
    let output = child.wait_with_output().unwrap();
    let stderr = errors(&output);
    assert!(stderr.contains("SIGTERM; jobs: 0 ended, 1 stopped, 1 or more not begun"), "{stderr}");
    assert!(stderr.contains("2 or more jobs: 0 succeeded"), "{stderr}");
}

#[test]
fn a_slow_reader_gets_all_output_of_a_halted_run() {
    let mut command = nearq();
    let script = "head -c 300000 /dev/zero; exit 1";
    command.args(["run", "-j1", "--halt", "now", "--shell", script, ":::", "1", "2"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Longer than jobs may take to end.
    sleep(Duration::from_millis(2500));
    let mut all = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    assert_eq!((all.len(), child.wait().unwrap().code()), (300_000, Some(1)));
}

#[test]
fn a_job_that_cannot_be_ended_is_left_and_reported() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        skipped("a job with more rights", "it needs a program of root's", "run the tests as root");
        return;
    }
    let folder = Folder::new("run-rights");
    let program = folder.path("setpriv");
    if fs::copy("/usr/bin/setpriv", &program).is_err() {
        skipped("a job with more rights", "no `setpriv`", "install util-linux");
        return;
    }
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut command = nearq();
    // Another user cannot end what root runs.
    command.args([
        "run",
        "-u",
        &program,
        "--reuid",
        "0",
        "sh",
        "-c",
        "echo $$; exec sleep 1000 2> /dev/null",
    ]);
    command.args([":::", "x"]).uid(61_235).gid(61_235).current_dir("/");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        skipped("a job with more rights", "others may not read the build's folder", "chmod it");
        return;
    };
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let Some(Ok(pid)) = lines.next() else {
        skipped("a job with more rights", "the build's folder is mounted without suid", "");
        return;
    };
    // At the second signal it is killed, at the third it is abandoned.
    for _ in 0..3 {
        send("TERM", &child);
        sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().unwrap();
    let kill = Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert_eq!(output.status.signal(), Some(15));
    assert!(kill.success(), "it was left running");
    let stderr = errors(&output);
    assert!(
        stderr
            .contains(&format!("1 job does not end on SIGKILL and is left running: process {pid}")),
        "{stderr}"
    );
}

#[test]
fn jobs_can_end_gracefully_and_are_killed_after_the_grace_period() {
    let folder = Folder::new("run-order-of-ends");
    let (ready, done) = (folder.path("ready"), folder.path("done"));
    let script = format!(
        "if [ $0 = 1 ]; then trap 'echo $$ >> {done}; exit 0' TERM; else trap '' TERM; fi
         echo $$ >> {ready}; while :; do sleep 0.05; done"
    );
    let mut command = nearq();
    command.args(["run", "-j2", "sh", "-c", &script, ":::", "1", "2"]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let all = words(&ready, 2);
    send("TERM", &child);
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert_eq!(words(&done, 1).len(), 1);
    assert!(!all.iter().any(|pid| is_alive(pid)));
}

/// Kills a run that has written the numbers of its processes there.
fn kill(mut child: Child, pids: &str) {
    let all = words(pids, 6);
    send("KILL", &child);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    for pid in all {
        wait_for("the processes end", || (!is_alive(&pid)).then_some(()));
    }
}

#[test]
fn a_kill_leaves_nothing_behind() {
    let folder = Folder::new("run-kill");
    let pids = folder.path("pids");
    kill(two_trees(&pids), &pids);
}

#[test]
fn a_kill_leaves_nothing_behind_without_close_range() {
    let folder = Folder::new("run-kill-without-close-range");
    let pids = folder.path("pids");
    // The filter applies to the thread, and to processes that it starts.
    let refused = std::thread::scope(|scope| {
        let start = || filter::refuse(&[libc::SYS_close_range]).then(|| two_trees(&pids));
        scope.spawn(start).join().unwrap()
    });
    let Some(child) = refused else {
        return skipped(
            "a kernel without close_range",
            "filters of system calls are refused",
            "a kernel with CONFIG_SECCOMP_FILTER",
        );
    };
    kill(child, &pids);
}

#[test]
fn a_stopped_run_stops_its_jobs_and_all_continue() {
    let folder = Folder::new("run-stop");
    let (pids, pipe) = (folder.path("pids"), folder.path("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // A single process, which waits for a writer. A shell would not do, because it might be in the middle of starting another process.
    let script = format!("echo $$ >> {pids}; exec cat {pipe}");
    let mut child = nearq().args(["run", "sh", "-c", &script, ":::", "1"]).spawn().unwrap();
    let job = words(&pids, 1).remove(0);
    let pid = child.id().to_string();
    let is = |pid: &str, wanted: char| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (state(&stat) == Some(wanted)).then_some(())
    };
    send("TSTP", &child);
    wait_for("the command stops", || is(&pid, 'T'));
    wait_for("the job stops", || is(&job, 'T'));
    send("CONT", &child);
    fs::write(&pipe, "").unwrap();
    let status = wait_for("both continue", || child.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

#[test]
fn ignored_signals_stay_ignored() {
    let folder = Folder::new("run-nohup");
    let pids = folder.path("pids");
    let script = format!("echo $$ >> {pids}; while [ ! -e {pids}.go ]; do sleep 0.01; done");
    let mut child = Command::new("nohup");
    child.arg(crate::PROGRAM).args(["run", "sh", "-c", &script, ":::", "1"]);
    let child = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    words(&pids, 1);
    send("HUP", &child);
    fs::write(format!("{pids}.go"), "").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let folder = Folder::new("run-reader");
    let pid = folder.path("pid");
    // The first job has printed, and its output is written when it ends; the second prints and ends. The others print later, one after
    // another: when the first ends, a child that another test has just forked may still hold our end of the pipe.
    let script = format!(
        "case $0 in \
             1) echo line; echo $$ > {pid}; exec sleep 1000;; \
             2) echo line;; \
             *) until [ -e {pid}.go ]; do sleep 0.01; done; sleep 0.02; echo line;; \
         esac"
    );
    let mut command = nearq();
    command.args(["run", "-j2", "sh", "-c", &script, ":::"]);
    command.args((1..=500).map(|number| number.to_string()));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "line\n");
    drop(reader);
    let last = words(&pid, 1).remove(0);
    assert!(Command::new("kill").arg(&last).status().unwrap().success());
    fs::write(format!("{pid}.go"), "").unwrap();
    let status = wait_for("it ends", || child.try_wait().unwrap());
    assert_eq!(status.signal(), Some(13), "{status}");
}

#[test]
fn a_slow_reader_does_not_keep_the_run_from_ending() {
    let mut command = nearq();
    // More than fits into a pipe.
    command.args(["run", "-j1", "--shell", "head -c 1000000 /dev/zero", ":::", "1", "2", "3"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = child.stdout.take().unwrap();
    let mut begin = [0; 100];
    reader.read_exact(&mut begin).unwrap();
    send("TERM", &child);
    let status = wait_for("it ends", || child.try_wait().unwrap());
    assert_eq!(status.signal(), Some(15));
}

#[test]
fn jobs_beyond_the_process_limit_wait_for_their_turn() {
    let numbers: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    let mut command = Command::new(crate::PROGRAM);
    command.args(["run", "-j0", "--json", "-", "sleep", "0.0{}", ":::"]).args(&numbers);
    command.stdin(Stdio::null());
    // The command, its orphan reaper and its printer are three.
    let Some(output) = output_with_few_processes(&mut command, 7) else { return };
    let stderr = errors(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "once: {stderr}");
    assert!(
        stderr.contains("a limit on processes is reached") && stderr.contains("others wait"),
        "{stderr}"
    );
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["ended"], 20);
}

#[test]
fn jobs_beyond_the_descriptor_limit_wait_for_their_turn() {
    let program = crate::PROGRAM;
    let script = format!(
        "ulimit -n 20 && exec {program} run -j0 -k --shell 'sleep 0.05; echo {{}}' ::: $(seq 30)"
    );
    let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    let stderr = errors(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.lines().count() == 1 && stderr.contains("ulimit -n"), "{stderr}");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (1..=30).collect::<Vec<u32>>());
}

//! A server that goes away: nothing is lost, and everything that waits for it says so.

use std::fs::File;
use std::io::Write as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::nearq;
use crate::nats::{Server, lines, signal, until};

#[test]
fn a_server_that_is_away_for_a_while_loses_nothing() {
    let Some(mut server) = Server::start("fleet-away") else { return };
    server.submit("1\n2\n", &[]);
    let log = server.folder.path("log-of-jobs");
    let errors = server.folder.path("errors");
    let file = File::create(&errors).unwrap();
    let mut command =
        server.worker(&["--until-empty", "--ack-wait", "30s", "-j1", "--", "sh", "-c"]);
    command.args(["echo $1 >>\"$LOG\"; sleep 0.5", "sh", "{}"]).env("LOG", &log);
    let mut worker = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
    until("a job runs", || lines(&log).len() == 1);
    server.end();
    // The job ends meanwhile.
    thread::sleep(Duration::from_millis(1500));
    server.run();
    assert!(worker.wait().unwrap().success());
    assert_eq!(lines(&log), ["1", "2"], "each once");
    let said = lines(&errors).join("\n");
    assert!(said.contains("is lost; jobs run on") && said.contains("connected to"), "{said}");
}

#[test]
fn a_worker_ends_when_it_is_asked_to_however_long_the_server_is_away() {
    const JOBS: usize = 150;
    let Some(mut server) = Server::start("fleet-away-long") else { return };
    server.submit(&"job\n".repeat(JOBS), &[]);
    let log = server.folder.path("log-of-jobs");
    let mut worker = server.worker(&["--ack-wait", "0.5s", "-j", &JOBS.to_string(), "--"]);
    worker.args(["sh", "-c", "echo >>\"$LOG\"; exec sleep 60"]).env("LOG", &log);
    let mut worker = worker.stderr(Stdio::null()).spawn().unwrap();
    until("all jobs run", || lines(&log).len() >= JOBS);
    server.end();
    // Signs of life come every sixth of a second, and the client has room for about two thousand messages.
    thread::sleep(Duration::from_secs(3));
    signal(worker.id(), libc::SIGTERM);
    thread::sleep(Duration::from_millis(300));
    signal(worker.id(), libc::SIGTERM);
    let begin = Instant::now();
    while worker.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(15) {
            let _ = worker.kill();
            let _ = worker.wait();
            panic!("the worker does not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
    println!("it ended within {:.1} s", begin.elapsed().as_secs_f64());
}

/// Starts a command whose output goes to the files `out` and `errors`.
fn start(server: &Server, command: &mut Command) -> (Child, String, String) {
    let [out, errors] = ["out", "errors"].map(|name| server.folder.path(name));
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&errors).unwrap());
    (command.spawn().unwrap(), out, errors)
}

/// Starts a submission that reads its standard input, and has submitted a job; the stream has two then.
fn begun_submission(server: &Server) -> (Child, ChildStdin, String, String) {
    server.submit("0\n", &[]);
    let mut command = nearq();
    command.args(["submit", "--to", &server.url(), "--stream", "JOBS"]).stdin(Stdio::piped());
    let (mut submission, out, errors) = start(server, &mut command);
    let mut input = submission.stdin.take().unwrap();
    writeln!(input, "1").unwrap();
    until("the first is submitted", || server.jobs()["jobs"] == 2);
    (submission, input, out, errors)
}

#[test]
fn a_submission_waits_for_the_server_and_says_so() {
    let Some(mut server) = Server::start("fleet-away-submission") else { return };
    let (mut submission, mut input, out, errors) = begun_submission(&server);
    server.end();
    until("it says that the server is away", || lines(&errors).len() == 1);
    writeln!(input, "2").unwrap();
    // Long enough that it is sent again.
    thread::sleep(Duration::from_millis(700));
    server.run();
    drop(input);
    assert!(submission.wait().unwrap().success(), "{:?}", lines(&errors));
    assert_eq!(lines(&out), ["2 jobs submitted"]);
    let said = lines(&errors);
    assert!(said[0].contains("is lost; jobs wait here"), "{said:?}");
    assert!(said[1].contains("again") && said.len() == 2, "{said:?}");
    assert_eq!(server.jobs()["jobs"], 3, "each once");
}

#[test]
fn a_submission_says_that_a_connected_server_does_not_answer() {
    let Some(server) = Server::start("fleet-silent") else { return };
    let (mut submission, mut input, out, errors) = begun_submission(&server);
    server.signal(libc::SIGSTOP);
    writeln!(input, "2\n3").unwrap();
    until("it says that jobs wait", || !lines(&errors).is_empty());
    server.signal(libc::SIGCONT);
    drop(input);
    assert!(submission.wait().unwrap().success(), "{:?}", lines(&errors));
    assert_eq!(lines(&out), ["3 jobs submitted"]);
    let said = lines(&errors);
    let log = std::fs::read_to_string(server.folder.path("log")).unwrap();
    assert!(said[0].contains("jobs wait here"), "{said:?}");
    // On a busy host the connection may be lost before: then that is said, and that it is made again.
    match said.len() {
        1 => assert!(said[0].contains("does not answer"), "{said:?}\n{log}"),
        2 => assert!(said[0].contains("is lost") && said[1].contains("again"), "{said:?}\n{log}"),
        _ => panic!("once, and not for each job: {said:?}\n{log}"),
    }
    assert_eq!(server.jobs()["jobs"], 4, "each once");
}

#[test]
fn a_table_that_is_watched_outlives_the_server() {
    let Some(mut server) = Server::start("fleet-away-table") else { return };
    server.submit("0\n", &[]);
    let mut command = nearq();
    command.args(["jobs", "--of", &server.url(), "--stream", "JOBS", "--watch", "--json"]);
    let (mut table, out, errors) = start(&server, &mut command);
    until("it shows the jobs", || !lines(&out).is_empty());
    server.end();
    until("it says that there is no answer", || !lines(&errors).is_empty());
    let before = lines(&out).len();
    server.run();
    until("it shows the jobs again", || lines(&out).len() > before);
    assert!(table.try_wait().unwrap().is_none());
    // A stream that is gone does not come back by itself.
    server.ask("STREAM.DELETE.JOBS", &serde_json::json!({}));
    until("it ends", || table.try_wait().unwrap().is_some());
    let said = lines(&errors);
    assert!(said.last().unwrap().contains("there is no such stream"), "{said:?}");
    assert!(said[0].contains("asked again until it answers"), "{said:?}");
}

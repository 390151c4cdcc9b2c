//! Bad input: one clear line, and nothing is lost.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{nearq, skipped};
use crate::nats::{Server, lines, signal, until};

/// Runs a command that must fail with that status and one line; returns the line.
fn fails(command: &mut Command, status: i32) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_server_that_refuses_is_named_with_what_to_do() {
    let Some(server) =
        Server::with("fleet-refuses", &["authorization { user: u, password: secret }"])
    else {
        return;
    };
    let worker = |url: &str| {
        let mut command = nearq();
        command.args(["run", "--from", url, "--stream", "JOBS", "--consumer", "w"]);
        command
    };
    let line = fails(worker(&server.url()).arg("echo"), 125);
    assert!(line.contains("authorization") && line.contains("--creds"), "{line}");
    let wrong = format!("nats://u:wrong@127.0.0.1:{}", server.port);
    let line = fails(worker(&wrong).arg("echo"), 125);
    assert!(
        line.contains("authorization") && !line.contains("wrong"),
        "the password is not printed: {line}"
    );
    let right = format!("nats://u:secret@127.0.0.1:{}", server.port);
    let line = fails(worker(&right).arg("echo"), 125);
    assert!(line.contains("no such stream"), "{line}");
    // A port at which nobody listens.
    let line = fails(worker("nats://127.0.0.1:9").arg("echo"), 125);
    assert!(line.contains("no connection") && line.contains("check the address"), "{line}");
    let line = fails(worker(&right).args(["--creds", "/nowhere", "echo"]), 125);
    assert!(line.contains("--creds /nowhere") && line.contains("nsc"), "{line}");
    let line = fails(nearq().args(["jobs", "--of", "nats://127.0.0.1:9", "--stream", "JOBS"]), 1);
    assert!(line.contains("no connection"), "{line}");
}

#[test]
fn a_stream_or_a_consumer_that_cannot_be_used_is_refused_before_anything_runs() {
    let Some(server) = Server::start("fleet-streams") else { return };
    let line = fails(&mut server.worker(&["echo"]), 125);
    assert!(
        line.contains("--stream JOBS: there is no such stream") && line.contains("--create"),
        "{line}"
    );
    let jobs = ["jobs", "--of", &server.url(), "--stream", "JOBS"];
    assert!(fails(nearq().args(jobs), 1).contains("no such stream"));
    server.submit("1\n", &[]);
    let line = fails(&mut server.worker(&["--dead", "elsewhere", "echo"]), 125);
    assert!(line.contains("--dead elsewhere: no stream keeps that subject"), "{line}");
    // Each result would be a job, whose result would be one.
    for option in ["--dead", "--publish"] {
        let line = fails(&mut server.worker(&[option, "JOBS.high", "echo"]), 125);
        assert!(line.contains(&format!("{option} JOBS.high: stream JOBS keeps that")), "{line}");
    }
    let submit = ["submit", "--to", &server.url(), "--stream", "JOBS", "--input", "/dev/null"];
    let line = fails(nearq().args(submit).args(["--subject", "JOBS.results"]), 1);
    assert!(line.contains("JOBS does not keep that subject, but JOBS-results does"), "{line}");
    let config = json!({"stream_name": "JOBS", "config": {"durable_name": "few-normal", "ack_policy": "explicit",
        "max_deliver": 3, "filter_subject": "JOBS.normal"}});
    server.ask("CONSUMER.DURABLE.CREATE.JOBS.few-normal", &config);
    let mut command = nearq();
    command.args(["run", "--from", &server.url(), "--stream", "JOBS", "--consumer", "few", "echo"]);
    let line = fails(&mut command, 125);
    assert!(line.contains("forgets a job after max_deliver deliveries"), "{line}");
    // It is not made, and so does not stand in the way of the next one.
    let mut command = nearq();
    command.args(["run", "--from", &server.url(), "--stream", "JOBS", "--consumer", "short"]);
    let line = fails(command.args(["--ack-wait", "0.1", "echo"]), 125);
    assert!(line.contains("--ack-wait") && line.contains("half a second"), "{line}");
    let list = server.ask("CONSUMER.NAMES.JOBS", &json!({}));
    assert!(!list.to_string().contains("short"), "{list}");
    // A work queue gives each job to one consumer.
    let line = fails(&mut server.worker(&["echo"]), 125);
    assert!(line.contains("consumer"), "{line}");
    assert_eq!(server.jobs()["jobs"], 1);
}

#[test]
fn a_permission_that_is_missing_is_named() {
    let users = "authorization { users: [{user: all, password: p}, \
                 {user: few, password: p, permissions: {publish: \"JOBS.>\", subscribe: \"_INBOX.>\"}}] }";
    let Some(server) = Server::with("fleet-permissions", &[users]) else { return };
    let of = |user: &str| format!("nats://{user}:p@127.0.0.1:{}", server.port);
    let few = of("few");
    let names = |line: &str| {
        assert!(line.contains("ermissions") && line.contains("$JS.API.STREAM"), "{line}");
    };
    let mut worker = nearq();
    worker.args(["run", "--from", &few, "--stream", "JOBS", "--consumer", "w", "echo"]);
    names(&fails(&mut worker, 125));
    names(&fails(nearq().args(["jobs", "--of", &few, "--stream", "JOBS"]), 1));
    let mut submit = nearq();
    submit.args(["submit", "--to", &few, "--stream", "JOBS"]).stdin(Stdio::null());
    names(&fails(&mut submit, 1));
}

#[test]
fn a_permission_that_is_missing_later_ends_the_worker_or_the_submission() {
    let deny = |user: &str, subject: &str| {
        format!("{{user: {user}, password: p, permissions: {{publish: {{deny: \"{subject}\"}}}}}}")
    };
    let denied = [
        ("next", "$JS.API.CONSUMER.MSG.NEXT.>"),
        ("ack", "$JS.ACK.>"),
        ("results", "JOBS.results"),
        ("dead", "JOBS.dead"),
        ("jobs", "JOBS.normal"),
        ("ask", "NEARQ.>"),
    ];
    let users: Vec<String> = denied.iter().map(|(user, subject)| deny(user, subject)).collect();
    let users = format!(
        "no_auth_user: all\nauthorization {{ users: [{{user: all, password: p}}, {}] }}",
        users.join(", ")
    );
    let lines: Vec<&str> = users.lines().collect();
    let Some(server) = Server::with("fleet-denied", &lines) else { return };
    server.submit("1\n2\n", &[]);
    let of = |user: &str| format!("nats://{user}:p@127.0.0.1:{}", server.port);
    for (user, job) in [("next", "true"), ("ack", "true"), ("results", "true"), ("dead", "false")] {
        let mut worker = nearq();
        worker.args(["run", "--from", &of(user), "--stream", "JOBS", "--consumer", "w", "-j1"]);
        worker.args(["--until-empty", "--ack-wait", "1s", "--dead", "JOBS.dead", "--tries", "1"]);
        worker.args(["--publish", "JOBS.results", "--", "sh", "-c", job, "sh", "{}"]);
        let output = worker.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{user}: {text}");
        assert!(text.contains("may not publish to") && text.contains("permission"), "{text}");
        assert!(text.lines().count() < 8, "{text}");
    }
    assert_eq!(server.jobs()["jobs"], 2, "none is lost");
    let mut submit = nearq();
    let file = server.folder.path("lines");
    submit.args(["submit", "--to", &of("jobs"), "--stream", "JOBS", "--input", &file]);
    let line = fails(&mut submit, 1);
    assert!(line.contains("may not publish to JOBS.normal") && line.contains("submitted: 0"));
    let line = fails(nearq().args(["jobs", "--of", &of("ask"), "--stream", "JOBS"]), 1);
    assert!(line.contains("not all could be asked") && line.contains("NEARQ.workers"), "{line}");
}

#[test]
fn a_signal_ends_a_worker_that_is_connecting() {
    // It accepts connections, and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", mute.local_addr().unwrap());
    let urls = [url.as_str(); 6].join(",");
    let mut command = nearq();
    command.args(["run", "--from", &urls, "--stream", "JOBS", "--consumer", "w", "echo"]);
    let mut worker = command.stderr(Stdio::null()).spawn().unwrap();
    drop(mute.accept().unwrap());
    let second = mute.accept().unwrap();
    signal(worker.id(), libc::SIGTERM);
    let begin = Instant::now();
    let status = worker.wait().unwrap();
    drop(second);
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{status}");
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
}

#[test]
fn a_command_may_name_several_inputs_of_a_job() {
    let Some(server) = Server::start("fleet-several") else { return };
    let jobs =
        "{\"input\": [\"a\", \"b\"]}\n{\"input\": \"alone\"}\n{\"input\": [\"c\", \"d\", \"e\"]}\n";
    server.submit(jobs, &["--objects"]);
    let mut worker = server.worker(&["--until-empty", "-j1", "-n2", "--dead", "JOBS.dead", "--"]);
    let output = worker.args(["echo", "{2}", "after", "{1}"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "one is dead: {output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "b after a\nd after c\n");
    let dead = server.messages("JOBS-dead");
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert!(dead[0].0.contains("it has one input") && dead[0].0.contains("names {2}"), "{dead:?}");
}

#[test]
fn options_that_contradict_a_queue_are_refused() {
    let from = ["run", "--from", "nats://127.0.0.1:9", "--stream", "JOBS", "--consumer", "w"];
    let refused = |more: &[&str]| crate::common::refuses(&[&from[..], more].concat());
    assert!(refused(&["echo", ":::", "a"]).contains("the inputs come from the queue"));
    assert!(refused(&["-j0", "echo"]).contains("--jobs 0"));
    assert!(refused(&["--tries", "3", "echo"]).contains("--dead"));
    assert!(refused(&["--dead-on", "0", "--dead", "x", "echo"]).contains("--dead-on"));
    assert!(refused(&["-k", "echo"]).contains("--keep-order"));
    assert!(refused(&["--retries", "3", "echo"]).contains("--retries"));
    assert!(
        refused(&["--", "grep", "[0-9]{4}", "{}"]).contains("{4}: each job has only one input")
    );
    assert!(refused(&["-n2", "--tagstring", "{3}", "echo", "{2}"]).contains("2 inputs"));
    assert!(refused(&["--results", "out/{/}", "echo"]).contains("may not contain an input"));
    assert!(crate::common::refuses(&["run", "--tries", "3", "echo"]).contains("--from"));
}

#[test]
fn a_message_that_is_no_job_is_put_aside_or_stays_and_does_not_stop_the_others() {
    let lines = ["max_payload: 33554432", "max_pending: 67108864"];
    let Some(server) = Server::with("fleet-no-job", &lines) else { return };
    server.submit("first\n", &[]);
    let submit = |text: &[u8], more: &[&str]| {
        let file = server.folder.path("bad");
        std::fs::write(&file, text).unwrap();
        let mut command = nearq();
        command
            .args(["submit", "--to", &server.url(), "--stream", "JOBS", "--input", &file])
            .args(more);
        command
    };
    // What is refused where it is submitted, with the jobs before it submitted.
    let long = vec![b'x'; 10 << 20];
    let line = fails(&mut submit(&[b"second\n", &long[..]].concat(), &[]), 1);
    assert!(
        line.contains("job 2: it is no job")
            && line.contains("10485760 bytes")
            && line.contains("submitted: 1, the ones before it"),
        "{line}"
    );
    assert!(
        fails(&mut submit(b"{\"input\": 3}\n", &["--objects"]), 1).contains("job 1: it is no job")
    );
    let line =
        fails(&mut submit(b"{\"input\": \"a\", \"deadline\": \"soon\"}\n", &["--objects"]), 1);
    assert!(line.contains("2030-01-01T00:00:00Z"), "{line}");
    // What somebody else has published: 10 MB, a zero byte.
    let mut client = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    for body in [&long[..], b"a\0b"] {
        let head = format!("CONNECT {{\"verbose\":false}}\r\nPUB JOBS.normal {}\r\n", body.len());
        std::io::Write::write_all(&mut client, &[head.as_bytes(), body, b"\r\n"].concat()).unwrap();
    }
    until("the stream has all of them", || server.jobs()["jobs"] == 4);
    let output =
        server.worker(&["--until-empty", "--dead", "JOBS.dead", "-j1", "echo"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "first\nsecond\n");
    assert_eq!(output.status.code(), Some(2), "as many as were put aside");
    let dead = server.messages("JOBS-dead");
    assert!(dead[0].0.contains("10485760 bytes") && dead[0].1.len() == 10 << 20, "{}", dead[0].0);
    assert!(dead[1].0.contains("zero byte"), "{}", dead[1].0);
    // Without a place for it, it stays, and a line says so.
    std::io::Write::write_all(&mut client, b"PUB JOBS.normal 3\r\na\0b\r\n").unwrap();
    let errors = server.folder.path("errors");
    let file = std::fs::File::create(&errors).unwrap();
    let mut worker = server.worker(&["echo"]).stderr(file).spawn().unwrap();
    until("a line says that it stays", || {
        self::lines(&errors).join("").contains("JOBS:5 stays in the queue: it is no job")
    });
    crate::nats::signal(worker.id(), libc::SIGTERM);
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    assert_eq!(server.jobs()["jobs"], 1);
}

/// Makes a stream take no more than so many messages.
fn limit(server: &Server, stream: &str, subjects: &[&str], retention: &str, most: i64) {
    let config = json!({"name": stream, "subjects": subjects, "retention": retention, "storage": "file", "discard": "new",
        "max_msgs": most, "num_replicas": 1});
    let answer = server.ask(&format!("STREAM.UPDATE.{stream}"), &config);
    assert!(answer["error"].is_null(), "{answer}");
}

#[test]
fn a_full_stream_is_told_of_and_loses_nothing() {
    let Some(server) = Server::start("fleet-full") else { return };
    server.submit("1\n2\n3\n", &[]);
    // No room for one of the jobs.
    let subjects = ["JOBS.high", "JOBS.normal", "JOBS.low"];
    limit(&server, "JOBS", &subjects, "workqueue", 4);
    let file = server.folder.path("more");
    std::fs::write(&file, "4\n5\n").unwrap();
    let submit = ["submit", "--to", &server.url(), "--stream", "JOBS", "--input", &file];
    let line = fails(nearq().args(submit), 1);
    assert!(line.contains("job 2: ") && line.contains("maximum messages exceeded"), "{line}");
    // No room for the results of two of them.
    limit(&server, "JOBS-results", &["JOBS.results"], "limits", 2);
    let errors = server.folder.path("errors");
    let file = std::fs::File::create(&errors).unwrap();
    let mut worker = server.worker(&["--until-empty", "-j1", "--publish", "JOBS.results", "echo"]);
    let mut worker = worker.stdout(Stdio::null()).stderr(file).spawn().unwrap();
    until("a line says so", || {
        let said = self::lines(&errors).join("\n");
        said.contains("the result of job JOBS:3: the server refuses: maximum messages exceeded")
    });
    assert_eq!(server.jobs()["jobs"], 2);
    limit(&server, "JOBS-results", &["JOBS.results"], "limits", -1);
    assert!(worker.wait().unwrap().success(), "{:?}", self::lines(&errors));
    assert_eq!((server.messages("JOBS-results").len(), &server.jobs()["jobs"]), (4, &0.into()));
}

#[test]
fn a_job_larger_than_a_message_is_refused_where_it_is_submitted() {
    let Some(server) = Server::with("fleet-large", &["max_payload: 4096"]) else { return };
    server.submit("1\n", &[]);
    let file = server.folder.path("large");
    std::fs::write(&file, vec![b'x'; 5000]).unwrap();
    let line = fails(
        nearq().args(["submit", "--to", &server.url(), "--stream", "JOBS", "--input", &file]),
        1,
    );
    assert!(line.contains("5000 bytes") && line.contains("at most 4096"), "{line}");
}

/// The clock of the day jumps back and forth by a day: signs of life, AckWait and backoff go by clocks that do not.
#[test]
fn a_clock_that_jumps_loses_nothing_and_repeats_nothing() {
    let Some(server) = Server::start("fleet-clock") else { return };
    let (source, library) = (server.folder.path("clock.c"), server.folder.path("clock.so"));
    let text = "#define _GNU_SOURCE\n#include <time.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
        int clock_gettime(clockid_t clock, struct timespec *now) {\n\
        long failed = syscall(SYS_clock_gettime, clock, now);\n\
        static _Atomic unsigned calls;\n\
        if (!failed && clock == CLOCK_REALTIME) now->tv_sec += (calls++ & 1) ? 86400 : -86400;\n\
        return failed; }\n";
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).status();
    if !built.is_ok_and(|status| status.success()) {
        return skipped(
            "a clock that jumps",
            "there is no C compiler",
            "apt-get install gcc libc6-dev",
        );
    }
    server.submit("1\n2\n3\n4\n", &[]);
    let log = server.folder.path("log-of-jobs");
    let output = server
        .worker(&["--until-empty", "--ack-wait", "1s", "-j2", "--timeout", "30s", "--", "sh", "-c"])
        .args([
            "echo $1 >>\"$LOG\"; unset LD_PRELOAD; sleep 1.5; test $1$NEARQ_JOB_TRIES != 41",
            "sh",
            "{}",
        ])
        .env("LOG", &log)
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut ran = lines(&log);
    ran.sort();
    assert_eq!(ran, ["1", "2", "3", "4", "4"], "one of them failed once");
}

#[test]
fn a_message_with_a_status_is_a_job_like_any_other() {
    let Some(server) = Server::start("fleet-status") else { return };
    server.submit("", &[]);
    for (headers, body) in [
        ("NATS/1.0 100\r\n\r\n", "1"),
        ("NATS/1.0 409 Consumer Deleted\r\n\r\n", "2"),
        ("NATS/1.0 404 No Messages\r\n\r\n", "3"),
    ] {
        server.publish("JOBS.normal", headers, body);
    }
    let output = server.worker(&["--until-empty", "-j1", "echo"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n2\n3\n");
}

#[test]
fn a_submission_that_has_changed_loses_nothing() {
    let Some(server) = Server::start("fleet-changed") else { return };
    server.submit("1\n2\n2\n", &["--id", "monday"]);
    server.submit("new\n1\n2\n2\n", &["--id", "monday"]);
    let output = server.worker(&["--until-empty", "-j1", "echo"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n2\n2\nnew\n", "{output:?}");
}

#[test]
fn a_stream_that_would_not_keep_jobs_is_refused() {
    let Some(server) = Server::start("fleet-interest") else { return };
    let stream = json!({ "name": "JOBS", "subjects": ["JOBS"], "retention": "interest" });
    server.ask("STREAM.CREATE.JOBS", &stream);
    let submit = ["submit", "--to", &server.url(), "--stream", "JOBS", "--input", "/dev/null"];
    assert!(fails(nearq().args(submit), 1).contains("retention interest"));
}

/// A worker that runs its only job, which takes a second, and what the job writes.
fn worker_with_a_job(server: &Server) -> (Child, String) {
    server.submit("1\n", &[]);
    let log = server.folder.path("log-of-jobs");
    let mut command = server.worker(&["-j2", "--", "sh", "-c"]);
    command.args(["echo begun >>\"$LOG\"; sleep 1; echo ended >>\"$LOG\"", "sh", "{}"]);
    let worker = command.env("LOG", &log).stderr(Stdio::piped()).spawn().unwrap();
    until("the job runs", || lines(&log).len() == 1);
    (worker, log)
}

fn delete_consumers(server: &Server) {
    for consumer in ["w-high", "w-normal", "w-low"] {
        server.ask(&format!("CONSUMER.DELETE.JOBS.{consumer}"), &json!({}));
    }
}

#[test]
fn a_worker_whose_consumer_is_deleted_lets_its_jobs_finish_and_says_so() {
    let Some(server) = Server::start("fleet-gone") else { return };
    let (worker, log) = worker_with_a_job(&server);
    delete_consumers(&server);
    let output = worker.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("is gone; running jobs finish"),
        "{output:?}"
    );
    assert_eq!(lines(&log), ["begun", "ended"]);
    assert_eq!(server.jobs()["jobs"], 1, "it is in the stream for the next worker");
}

#[test]
fn a_worker_that_drains_does_not_wait_for_a_consumer_that_is_deleted() {
    let Some(server) = Server::start("fleet-gone-draining") else { return };
    let (mut worker, log) = worker_with_a_job(&server);
    signal(worker.id(), libc::SIGTERM);
    delete_consumers(&server);
    until("the worker has ended", || worker.try_wait().unwrap().is_some());
    let output = worker.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is gone"), "{output:?}");
    assert_eq!(lines(&log), ["begun", "ended"]);
}

#[test]
fn the_connection_can_have_tls() {
    let configuration =
        ["tls { cert_file: \"FOLDER/server.pem\", key_file: \"FOLDER/server.key\" }"];
    let folder = crate::common::Folder::new("fleet-certificates");
    let (certificate, key) = (folder.path("ca.pem"), folder.path("ca.key"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args([
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return skipped("TLS to nats-server", "there is no openssl", "apt-get install openssl");
    }
    let lines = configuration.map(|line| {
        line.replace("FOLDER/server.pem", &certificate).replace("FOLDER/server.key", &key)
    });
    let Some(server) = Server::with("fleet-tls", &lines.each_ref().map(|line| &**line)) else {
        return;
    };
    let url = format!("tls://localhost:{}", server.port);
    let submit = |more: &[&str]| {
        let mut command = nearq();
        command
            .args(["submit", "--to", &url, "--stream", "JOBS", "--create", "--input", "/dev/null"])
            .args(more);
        command
    };
    let line = fails(&mut submit(&[]), 1);
    assert!(line.contains("--ca FILE") || line.contains("certificate"), "{line}");
    let output = submit(&["--ca", &certificate]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A worker that must end by itself, with an error; returns what it says.
fn ends_with_an_error(worker: &mut Command) -> String {
    let mut worker = worker.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the worker ends", || worker.try_wait().unwrap().is_some());
    let output = worker.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_job_whose_output_cannot_be_stored_is_given_back() {
    let Some(server) = Server::start("fleet-results") else { return };
    server.submit("full\nnowhere\n", &[]);
    let worker = |results: &str| {
        let mut worker = server.worker(&["--until-empty", "-j1", "--results", results]);
        worker.args(["echo", "{}"]);
        worker
    };
    let given_back = || {
        let waiting = |queue: &serde_json::Value| queue["waiting"].as_u64().unwrap();
        let out = |queue: &serde_json::Value| queue["out"].as_u64().unwrap();
        let state = server.jobs();
        let queues = state["queues"].as_array().unwrap();
        // A job that was given back counts as one that is out until it is delivered again.
        assert_eq!(queues.iter().map(|queue| waiting(queue) + out(queue)).sum::<u64>(), 2);
        assert_eq!(state["jobs"], 2, "{state}");
    };
    // The disk is full: the job itself ends with 0.
    let folder = server.folder.path("results");
    for input in ["full", "nowhere"] {
        let of_job = format!("{folder}/1/{input}");
        std::fs::create_dir_all(&of_job).unwrap();
        std::os::unix::fs::symlink("/dev/full", format!("{of_job}/stdout")).unwrap();
    }
    let said = ends_with_an_error(&mut worker(&folder));
    assert!(said.contains("cannot be stored"), "{said}");
    given_back();
    // The files cannot be made, and no job runs.
    let folder = server.folder.path("more-results");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(format!("{folder}/1"), "").unwrap();
    let said = ends_with_an_error(&mut worker(&folder));
    assert!(said.contains("cannot be written"), "{said}");
    given_back();
    // The server would wait for half a minute.
    let begin = std::time::Instant::now();
    let output = server.worker(&["--until-empty", "-j1", "echo"]).output().unwrap();
    assert!(output.status.success() && begin.elapsed() < Duration::from_secs(10), "{output:?}");
    assert_eq!(server.jobs()["jobs"], 0);
}

//! What is said to the server when jobs end, fail, live long or are stopped, and when workers are asked to end.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::nats::{Server, lines, signal, until};

#[test]
fn a_job_of_five_ack_waits_is_delivered_once_and_one_that_is_stopped_twice() {
    let Some(server) = Server::start("fleet-alive") else { return };
    server.submit("long\nstopped\n", &[]);
    let log = server.folder.path("log-of-jobs");
    let job = "echo \"$1 $$\" >>\"$LOG\"; test $NEARQ_JOB_TRIES = 1 || exit 0; \
               if test $1 = long; then sleep 5; else kill -STOP $$; fi";
    let worker = || {
        let mut worker =
            server.worker(&["--ack-wait", "1s", "-j2", "--", "sh", "-c", job, "sh", "{}"]);
        worker.env("LOG", &log).stderr(Stdio::null()).spawn().unwrap()
    };
    let begin = Instant::now();
    let mut workers = [worker(), worker()];
    let of = |name: &str| lines(&log).iter().filter(|line| line.starts_with(name)).count();
    until("the stopped job runs again", || of("stopped") == 2);
    until("the long job is done", || server.jobs()["jobs"] == 0);
    assert!(begin.elapsed() >= Duration::from_secs(5));
    assert_eq!((of("long"), of("stopped")), (1, 2), "{:?}", lines(&log));
    for worker in &mut workers {
        // The first signal lets the stopped job be, the second one ends it.
        signal(worker.id(), libc::SIGTERM);
        until("the worker drains or has ended", || {
            let drains = |worker: &serde_json::Value| worker["drains"] == true;
            worker.try_wait().unwrap().is_some()
                || server.jobs()["workers"].as_array().unwrap().iter().any(drains)
        });
        signal(worker.id(), libc::SIGTERM);
        let _ = worker.wait();
    }
}

#[test]
fn the_first_sigterm_lets_jobs_finish_and_the_second_gives_them_back_at_once() {
    let Some(server) = Server::start("fleet-drain") else { return };
    server.submit("a\nb\nc\n", &[]);
    let log = server.folder.path("log-of-jobs");
    let job = "echo \"$1 $NEARQ_JOB_TRIES\" >>\"$LOG\"; sleep $TIME";
    let begun = |time: &str| {
        let before = lines(&log).len();
        let mut worker = server.worker(&["-j1", "--", "sh", "-c", job, "sh", "{}"]);
        let worker =
            worker.env("LOG", &log).env("TIME", time).stderr(Stdio::null()).spawn().unwrap();
        until("a job runs", || lines(&log).len() > before);
        worker
    };
    let mut worker = begun("0.5");
    signal(worker.id(), libc::SIGTERM);
    assert_eq!(worker.wait().unwrap().code(), Some(0), "it has drained");
    assert_eq!(lines(&log), ["a 1"], "nothing more was taken");
    assert_eq!(server.jobs()["jobs"], 2, "and what was done is acknowledged");
    let mut worker = begun("60");
    signal(worker.id(), libc::SIGTERM);
    until("it says that it drains", || server.jobs()["workers"][0]["drains"] == true);
    signal(worker.id(), libc::SIGTERM);
    let ended = worker.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(libc::SIGTERM));
    // The server would wait for half a minute.
    let begin = Instant::now();
    let output = server.worker(&["-j1", "--until-empty", "echo"]).output().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10), "{output:?}");
    let mut again: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    again.sort();
    assert_eq!(again, ["b", "c"]);
}

#[test]
fn a_job_that_fails_is_tried_again_and_then_put_aside_with_the_reason() {
    let Some(server) = Server::start("fleet-dead") else { return };
    server.submit("fails\nrefused\nlate\nfine\n", &[]);
    let job = "echo \"$1 for the ${NEARQ_JOB_TRIES}th time\" >&2; \
               case $1 in fails) exit 3;; refused) exit 65;; late) sleep 60;; esac; echo \"$NEARQ_JOB done\"";
    let output = server
        .worker(&[
            "--until-empty",
            "--tries",
            "2",
            "--dead",
            "JOBS.dead",
            "--dead-on",
            "65,66",
            "--backoff",
            "0.2s",
        ])
        .args([
            "--timeout",
            "0.5s",
            "--publish",
            "JOBS.results",
            "-j2",
            "--",
            "sh",
            "-c",
            job,
            "sh",
            "{}",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "as many as were given up: {output:?}");
    let mut dead = server.messages("JOBS-dead");
    dead.sort_by(|a, b| a.1.cmp(&b.1));
    let bodies: Vec<&str> = dead.iter().map(|(_, body)| &**body).collect();
    assert_eq!(bodies, ["fails", "late", "refused"]);
    let has = |index: usize, lines: &[&str]| {
        let headers: &String = &dead[index].0;
        assert!(lines.iter().all(|line| headers.contains(line)), "{headers}");
    };
    has(
        0,
        &["Nearq-Tries: 2\r\n", "Nearq-Exit: 3\r\n", "delivered 2 times; at last: exit status 3"],
    );
    has(
        0,
        &[
            "Nearq-Error-End: fails for the 2th time\\n\r\n",
            "Nearq-Sequence: 1\r\n",
            "Nats-Msg-Id: JOBS:1:w-normal:",
        ],
    );
    has(1, &["Nearq-Tries: 2\r\n", "it ran too long"]);
    has(2, &["Nearq-Tries: 1\r\n", "exit status 65"]);
    let results = server.messages("JOBS-results");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].1, "JOBS:4 done\n");
    assert!(results[0].0.contains("Nats-Msg-Id: JOBS:4:w-normal:"), "{}", results[0].0);
    assert_eq!(server.jobs()["dead"], 3);
}

#[test]
fn a_job_that_ends_its_worker_is_put_aside_when_it_comes_once_too_often() {
    let Some(server) = Server::start("fleet-poison") else { return };
    server.submit("poison\n", &[]);
    let worker = || {
        server.worker(&[
            "--until-empty",
            "--ack-wait",
            "1s",
            "--tries",
            "1",
            "--dead",
            "JOBS.dead",
            "--",
        ])
    };
    // Twice as many as a job may fail: the server counts deliveries.
    for _ in 0..2 {
        let status = worker().args(["sh", "-c", "kill -KILL $PPID"]).status().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }
    let output = worker().arg("echo").output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{output:?}");
    assert!(server.messages("JOBS-dead")[0].0.contains("delivered 2 times without an end"));
}

#[test]
fn jobs_have_priorities_commands_and_deadlines_of_their_own() {
    let Some(server) = Server::start("fleet-objects") else { return };
    let jobs = r#"{"command": ["echo", "low", "{}"], "input": "1", "priority": "low"}
{"command": ["echo"], "input": ["two", "words"]}
{"command": ["echo", "high", "{/}"], "input": "a/b", "priority": "high", "deadline": "2999-01-01T00:00:00Z"}
{"command": ["echo"], "input": "late", "deadline": 1}
"#;
    server.submit(jobs, &["--objects"]);
    let output = server.worker(&["--until-empty", "-j1", "--dead", "JOBS.dead"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "high b\ntwo words\nlow 1\n", "{output:?}");
    let dead = server.messages("JOBS-dead");
    assert!(dead.len() == 1 && dead[0].0.contains("its deadline has passed"), "{dead:?}");
    assert!(dead[0].0.contains("Nearq-Job: json"), "it can be submitted again as it is");
}

#[test]
fn a_job_whose_output_is_not_printed_is_not_done() {
    let Some(server) = Server::start("fleet-unprinted") else { return };
    let numbers: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    server.submit(&(numbers.join("\n") + "\n"), &[]);
    // A disk that is full.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = server.worker(&["--until-empty", "-j2", "echo"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_eq!(server.jobs()["jobs"], 20, "all are in the queue");
    // A reader that does not read: the jobs whose output fits into the pipe are done, and no others.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = server.worker(&["-j2", "--", "sh", "-c"]);
    command.args(["echo $1; head -c 20000 /dev/zero | tr '\\0' x", "sh", "{}"]);
    let mut worker = command.stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    drop(command);
    until("all jobs have run", || {
        let state = server.jobs();
        let workers = state["workers"].as_array().unwrap();
        workers.len() == 1
            && state["queues"].as_array().unwrap().iter().all(|it| it["waiting"] == 0)
    });
    std::thread::sleep(Duration::from_millis(500));
    let left = server.jobs()["jobs"].as_u64().unwrap();
    worker.kill().unwrap();
    let _ = worker.wait();
    let text = std::io::read_to_string(reader).unwrap();
    let whole = text.split(|c: char| c.is_ascii_digit()).filter(|it| it.trim().len() == 20_000);
    assert!(whole.count() as u64 >= 20 - left && left >= 10, "{left} left of {}", text.len());
}

#[test]
fn jobs_have_their_own_variables_if_their_worker_is_a_job_itself() {
    let Some(server) = Server::start("fleet-variables") else { return };
    server.submit("x\n", &[]);
    let mut worker = server.worker(&["--until-empty", "--", "sh", "-c", "env | grep ^NEARQ_JOB"]);
    let output = worker.env("NEARQ_JOB", "outer:1").env("NEARQ_JOB_TRIES", "9").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["NEARQ_JOB=JOBS:1", "NEARQ_JOB_TRIES=1"], "{output:?}");
}

#[test]
fn nearq_jobs_says_which_worker_has_which_job() {
    let Some(server) = Server::start("fleet-board") else { return };
    server.submit("1\n2\n3\n", &[]);
    let mut worker = server.worker(&["-j2", "sleep", "60"]).stderr(Stdio::null()).spawn().unwrap();
    until("two jobs run", || {
        server.jobs()["workers"][0]["running"].as_object().is_some_and(|running| running.len() == 2)
    });
    let state = server.jobs();
    assert_eq!(state["workers"][0]["pid"], worker.id());
    assert_eq!(state["workers"][0]["running"]["2"]["tries"], 1);
    let of = |name: &str| {
        state["queues"]
            .as_array()
            .unwrap()
            .iter()
            .map(|queue| queue[name].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!((of("waiting"), of("out")), (1, 2));
    let text = crate::common::prints(&["jobs", "--of", &server.url(), "--stream", "JOBS"]);
    assert!(text.starts_with("stream JOBS: 3 jobs left, 1 waiting, 2 out; 0 ended"), "{text}");
    let _ = worker.kill();
    let _ = worker.wait();
}

#[test]
fn a_stream_that_is_made_again_keeps_its_results_and_orders_to_a_stream_are_not_passed_on() {
    let Some(server) = Server::start("fleet-again") else { return };
    for _ in 0..2 {
        server.submit("a\n", &[]);
        let output = server
            .worker(&["--until-empty", "--publish", "JOBS.results", "echo"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let deleted = server.ask("STREAM.DELETE.JOBS", &serde_json::json!({}));
        assert_eq!(deleted["success"], true, "{deleted}");
    }
    let results = server.messages("JOBS-results");
    let of_first = |(headers, _): &&(String, String)| headers.contains("Nearq-Sequence: 1\r\n");
    assert_eq!(results.iter().filter(of_first).count(), 2, "both are of job 1: {results:?}");
    server.submit("", &[]);
    let headers = "NATS/1.0\r\nNats-Expected-Stream: JOBS\r\nOwn: kept\r\n\r\n";
    server.publish("JOBS.normal", headers, "a\0b");
    let mut worker = server.worker(&["--until-empty", "--dead", "JOBS.dead", "echo"]);
    let mut worker = worker.stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while worker.try_wait().unwrap().is_none() && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Still there if the dead letter is refused.
    let _ = worker.kill();
    let _ = worker.wait();
    let dead = server.messages("JOBS-dead");
    assert_eq!(dead.len(), 1);
    assert!(dead[0].0.contains("Own: kept") && !dead[0].0.contains("Expected"), "{}", dead[0].0);
}

#[test]
fn a_worker_that_a_failed_job_has_ended_says_so_by_its_status() {
    let Some(server) = Server::start("fleet-halt") else { return };
    server.submit("1\n2\n3\n", &[]);
    let worker = |more: &[&str]| {
        let mut command = server.worker(&["--until-empty", "-j1"]);
        let output = command.args(more).args(["--", "sh", "-c", "exit 7", "sh", "{}"]).output();
        output.unwrap().status.code()
    };
    assert_eq!(worker(&["--halt", "soon"]), Some(1));
    assert_eq!(server.jobs()["jobs"], 3, "it is tried again");
}

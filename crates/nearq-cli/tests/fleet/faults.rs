//! Killed workers and jobs, a server that restarts, a network that is cut. The sizes are those of the quick run; with NEARQ_LONG there are
//! 10,000 jobs for each seed, and `NEARQ_TEST_SEED` chooses one.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::nats::{Server, lines, signal};
use crate::proxy::Proxy;

/// How many jobs each worker runs at a time.
const WIDTH: usize = 2;

/// A job notes its number and its process, works for a few milliseconds, and prints its number.
const JOB: &str = "echo \"$1 $$\" >>\"$LOG\"; sleep 0.0$(($1 % 5)); echo $1";

struct Faults<'a> {
    server: &'a Server,
    proxy: &'a Proxy,
    log: String,
    workers: Vec<Child>,
    random: fastrand::Rng,
}

impl Faults<'_> {
    /// Starts a worker; the first one is behind the network that is cut.
    fn worker(&self, index: usize) -> Child {
        let port = if index == 0 { self.proxy.port } else { self.server.port };
        let url = format!("nats://127.0.0.1:{port}");
        let errors = self.server.folder.path("worker-errors");
        let error = std::fs::File::options().create(true).append(true).open(errors).unwrap();
        let mut command = crate::common::nearq();
        command.args([
            "run",
            "--from",
            &url,
            "--stream",
            "JOBS",
            "--consumer",
            "w",
            "--ack-wait",
            "2s",
        ]);
        command.args(["--backoff", "0.1s", "--publish", "JOBS.results", "--until-empty", "-j"]);
        command.args([&WIDTH.to_string(), "--", "sh", "-c", JOB, "sh", "{}"]);
        command.env("LOG", &self.log).stdout(Stdio::null()).stderr(error).spawn().unwrap()
    }

    /// Kills a job that runs; returns whether there was one.
    fn kill_a_job(&self) -> bool {
        let log = lines(&self.log);
        let last = log.last().and_then(|line| line.split(' ').nth(1)?.parse::<u32>().ok());
        // A process of that number may be another one by now: only one whose program is ours is killed.
        let Some(job) = last else { return false };
        let command = std::fs::read(format!("/proc/{job}/cmdline")).unwrap_or_default();
        let is_ours = command.starts_with(b"sh\0-c\0echo");
        if is_ours {
            signal(job, libc::SIGKILL);
        }
        is_ours
    }

    fn kill_a_worker(&mut self) {
        let index = self.random.usize(..self.workers.len());
        let _ = self.workers[index].kill();
        let _ = self.workers[index].wait();
        self.workers[index] = self.worker(index);
    }
}

fn jobs_survive(seed: u64, jobs: usize, pause: Duration) {
    let Some(mut server) = Server::start(&format!("fleet-faults-{seed}")) else { return };
    let numbers: Vec<String> = (1..=jobs).map(|number| number.to_string()).collect();
    server.submit(&(numbers.join("\n") + "\n"), &["--id", "all"]);
    // Submitted once more by the same name, none is there twice.
    server.submit(&(numbers.join("\n") + "\n"), &["--id", "all"]);
    assert_eq!(server.jobs()["jobs"], jobs);
    let proxy = Proxy::to(server.port);
    let log = server.folder.path("executions");
    let random = fastrand::Rng::with_seed(seed);
    let (mut kills, mut restarted, mut was_cut) = (0, false, false);
    let mut faults = Faults { server: &server, proxy: &proxy, log, workers: Vec::new(), random };
    faults.workers = (0..3).map(|index| faults.worker(index)).collect();
    let begin = Instant::now();
    loop {
        thread::sleep(pause);
        let share = lines(&faults.log).len() * 100 / jobs;
        if share >= 90 {
            break;
        }
        assert!(
            begin.elapsed() < Duration::from_mins(10),
            "seed {seed}: {share} % after ten minutes"
        );
        if share >= 25 && !restarted {
            restarted = true;
            let Faults { log, workers, random, .. } = faults;
            server.end();
            thread::sleep(Duration::from_millis(300));
            server.run();
            faults = Faults { server: &server, proxy: &proxy, log, workers, random };
        } else if share >= 50 && !was_cut {
            was_cut = true;
            proxy.cut(Duration::from_millis(700));
        } else if faults.random.bool() {
            faults.kill_a_worker();
            kills += 1;
        } else {
            kills += usize::from(faults.kill_a_job());
        }
    }
    assert!(restarted && was_cut && kills > 0, "seed {seed}: the faults did not happen");
    for index in 0..faults.workers.len() {
        let mut status = faults.workers[index].wait().unwrap();
        if status.code() == Some(125) {
            // It was started while the server or the network was away. As docs/fleet.md says, what starts workers must start it again.
            let errors = lines(&server.folder.path("worker-errors")).join("\n");
            assert!(errors.contains("no connection"), "seed {seed}: {errors}");
            status = faults.worker(index).wait().unwrap();
        }
        let errors = lines(&server.folder.path("worker-errors")).join("\n");
        assert!(status.success(), "seed {seed}: a worker ended with {status}\n{errors}");
    }
    let mut executions: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines(&faults.log) {
        *executions.entry(line.split(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    let all: usize = executions.values().sum();
    let several: Vec<_> = executions.iter().filter(|(_, count)| **count > 1).collect();
    assert_eq!(executions.len(), jobs, "seed {seed}: jobs that never ran");
    // A restart of the server and a cut may cost as much as a kill.
    let most = jobs + (kills + 2) * WIDTH;
    assert!(all <= most, "seed {seed}: {all} executions, at most {most}: {several:?}");
    // Of each job one result, although some were executed several times.
    let (count, numbers) = results(&server);
    assert_eq!((count, numbers.len()), (jobs, jobs), "seed {seed}: results");
    assert_eq!(numbers, executions.into_keys().collect(), "seed {seed}");
    let state = server.jobs();
    assert_eq!((&state["jobs"], &state["dead"]), (&0.into(), &0.into()), "seed {seed}: {state}");
    println!(
        "seed {seed}: {jobs} jobs, {kills} kills, {all} executions, {:.1} s",
        begin.elapsed().as_secs_f64()
    );
}

/// How many results there are, and the different ones: a job prints its number, and a worker of another stream gets it as its input.
fn results(server: &Server) -> (usize, BTreeSet<String>) {
    let output = crate::common::nearq()
        .args(["run", "--from", &server.url(), "--stream", "JOBS-results", "--consumer", "check"])
        .args(["--until-empty", "--home", "none", "-j", "4", "echo"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<String> =
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    (numbers.len(), numbers.into_iter().collect())
}

#[test]
fn no_job_is_lost_and_few_run_twice_whatever_is_killed() {
    if std::env::var_os("NEARQ_LONG").is_none() {
        return jobs_survive(1, 300, Duration::from_millis(250));
    }
    match std::env::var("NEARQ_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => jobs_survive(seed, 10_000, Duration::from_millis(500)),
        None => (1..=5).for_each(|seed| jobs_survive(seed, 10_000, Duration::from_millis(500))),
    }
}

/// How long a run takes, in seconds.
fn seconds(command: &mut std::process::Command) -> f64 {
    let begin = Instant::now();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    begin.elapsed().as_secs_f64()
}

/// With jobs of ten milliseconds: `nearq run` alone against `nearq run --from`, the shortest runs of a few rounds. A busy host slows down
/// the queue more, which has more processes; so there are further rounds until the goal is reached.
#[test]
fn jobs_from_a_queue_run_about_as_fast_as_those_of_a_list() {
    let Some(server) = Server::start("fleet-speed") else { return };
    let is_long = std::env::var_os("NEARQ_LONG").is_some();
    let jobs = if is_long { 1000 } else { 100 };
    // A short run feels the connection, and the quick checks share the machine with others.
    let least = if is_long { 0.8 } else { 0.4 };
    let numbers: Vec<String> = (1..=jobs).map(|number| number.to_string()).collect();
    let job = ["-j2", "--", "sh", "-c", "sleep 0.01"];
    let (mut local, mut fleet) = (f64::MAX, f64::MAX);
    for round in 0..8 {
        if round >= 2 && local / fleet >= least {
            break;
        }
        let mut alone = crate::common::nearq();
        local = local.min(seconds(alone.arg("run").args(job).arg(":::").args(&numbers)));
        server.submit(&(numbers.join("\n") + "\n"), &[]);
        fleet = fleet.min(seconds(server.worker(&["--until-empty"]).args(job)));
    }
    println!(
        "{jobs} jobs of 10 ms: {local:.3} s from a list, {fleet:.3} s from a queue: {:.2}",
        local / fleet
    );
    assert!(
        local / fleet >= least,
        "{:.2} of the speed of a list, at least {least}",
        local / fleet
    );
}

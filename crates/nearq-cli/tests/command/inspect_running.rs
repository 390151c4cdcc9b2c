//! The inspecting commands, against a real program under load (`examples/probed.rs`): each attribute is changed, the next item runs under
//! the new value, and nothing is lost.

use crate::common::{Folder, errors, nearq, skipped};
use nearq_control::client::Client;
use nearq_control::protocol::{
    Dump, DumpReply, GetDump, GetSettings, PoolDump, Set, SettingsReply,
};
use nearq_control::values::{parse_cpus, show_cpus, show_mask};
use nearq_topology::CpuSet;
use serde_json::Value;
use std::fs::DirBuilder;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// How soon a change must be in effect for the next item.
const MAX_DELAY: Duration = Duration::from_millis(10);

/// The program, and the folder where its socket is.
struct Program {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: Folder,
}

impl Program {
    /// Starts the program; only one test may use `name`.
    fn start(name: &str) -> Self {
        let built = Path::new(crate::PROGRAM).parent().expect("it is in a folder");
        let folder = Folder::new(name);
        let mut child = Command::new(built.join("examples/probed"))
            .env("XDG_RUNTIME_DIR", folder.path(""))
            .env("NEARQ_CONTROL", "full")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("examples are built with the tests");
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it was requested"));
        let mut program = Program { child, commands, answers, folder };
        // Then the program has a worker, and soon a socket.
        program.ask("probe crypt");
        let socket = PathBuf::from(program.folder.path("nearq")).join(program.pid());
        let begun = Instant::now();
        while Client::connect_to(&socket).is_err() {
            assert!(begun.elapsed() < PATIENCE, "there is no {}", socket.display());
            std::thread::sleep(Duration::from_millis(5));
        }
        program
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn client(&self) -> Client {
        let socket = PathBuf::from(self.folder.path("nearq")).join(self.pid());
        Client::connect_to(&socket).expect("it listens")
    }

    /// Sends a command to the program; returns the answer.
    fn ask(&mut self, command: &str) -> Value {
        let commands = self.commands.as_mut().expect("it has not ended");
        writeln!(commands, "{command}").expect("it reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Runs `nearq` on the program.
    fn nearq(&self, command: &str, arguments: &[&str]) -> String {
        let output = nearq()
            .env("XDG_RUNTIME_DIR", self.folder.path(""))
            .args([command, &self.pid()])
            .args(arguments)
            .output()
            .expect("the command starts");
        assert!(output.status.success(), "nearq {command} {arguments:?}: {}", errors(&output));
        String::from_utf8(output.stdout).expect("the command prints UTF-8")
    }

    /// Queues an item now; returns its conditions, and the pool whose worker ran it.
    fn probe(&mut self, queue: &str) -> (Value, PoolDump) {
        let met = self.ask(&format!("probe {queue}"));
        let name = met["worker"].as_str().expect("a worker has a name");
        let dump: Dump =
            serde_json::from_str(&self.nearq("dump", &["--json"])).expect("a dump is a dump");
        let pool: u64 = match name.strip_prefix("nq/u").and_then(|name| name.split_once(':')) {
            Some((pool, _)) => pool.parse().expect("a pool has a number"),
            None => panic!("`{name}` is no worker of an unbound pool"),
        };
        let pool =
            dump.pools.into_iter().find(|one| one.id == pool).expect("the dump lists the pool");
        (met, pool)
    }

    /// Waits until an item runs under the expected conditions. A worker of another pool may help, and then its conditions are reported; so
    /// more than one item is checked.
    fn assert_runs_under(
        &mut self,
        queue: &str,
        what: &str,
        wanted: impl Fn(&Value, &PoolDump) -> bool,
    ) {
        let begun = Instant::now();
        loop {
            let (met, pool) = self.probe(queue);
            if wanted(&met, &pool) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: an item met {met} in {pool:?}");
        }
    }

    /// Sets a setting, and checks that `set` and `get` report the new value.
    fn set(&self, queue: &str, key: &str, value: &str, effective: &str) {
        let printed = self.nearq("set", &[queue, &format!("{key}={value}")]);
        assert_eq!(printed, format!("{key}  {effective}\n"));
        assert_eq!(self.nearq("get", &[queue, key]), format!("{effective}\n"));
    }

    /// Ends the program, and checks that nothing was lost or out of order.
    fn end(mut self) {
        let counts = self.ask("end");
        drop(self.commands.take());
        assert!(self.child.wait().expect("it ends").success());
        assert!(counts["queued"].as_u64() > Some(0), "{counts}");
        assert_eq!(counts["queued"], counts["ran"], "nothing is lost");
        assert_eq!(counts["disorder"], 0, "the ordered queue keeps its order");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Needed only if the test has failed; otherwise the program has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPUs that the tests' programs may use.
fn cpus() -> usize {
    std::thread::available_parallelism().expect("it is known").get()
}

#[test]
fn each_attribute_of_a_queue_is_changed_under_load_and_nothing_is_lost() {
    let mut program = Program::start("each-attribute");
    let dump = program.nearq("dump", &["--json"]);
    let dump: Dump = serde_json::from_str(&dump).unwrap();
    let allowed = dump.allowed.clone();
    let first = parse_cpus(&allowed).unwrap().unwrap().first().unwrap();
    let all = program.nearq("get", &["crypt", "cpumask"]).trim().to_owned();
    let one = |pool: &PoolDump| pool.pod_cpus.parse::<usize>().is_ok();

    program.set("crypt", "affinity_strict", "1", "1");
    program.assert_runs_under("crypt", "strict", |_, pool| pool.strict);
    program.set("crypt", "affinity_scope", "cpu", "cpu");
    program.assert_runs_under("crypt", "cpu", |met, pool| {
        one(pool) && met["cpus"] == pool.pod_cpus.as_str()
    });
    program.set("crypt", "affinity", "0", "0");
    program.assert_runs_under("crypt", "not affine", |_, pool| {
        pool.pod_cpus == allowed && !pool.strict
    });
    program.set("crypt", "affinity", "1", "1");
    program.assert_runs_under("crypt", "affine again", |_, pool| one(pool) && pool.strict);
    program.set("crypt", "affinity_strict", "0", "0");
    program.assert_runs_under("crypt", "not strict", |_, pool| one(pool) && !pool.strict);
    program.set("crypt", "helping", "0", "0");
    program.assert_runs_under("crypt", "no helping", |_, pool| pool.no_helping);
    program.set("crypt", "helping", "on", "1");
    program.assert_runs_under("crypt", "helping", |_, pool| !pool.no_helping && !pool.strict);
    program.set("crypt", "affinity_scope", "default", "default (cache_shard)");
    program.set("crypt", "localize", "yes", "1");
    program.assert_runs_under("crypt", "localized", |_, pool| !pool.strict);
    program.set("crypt", "localize", "0", "0");

    let mask = CpuSet::single(first);
    program.set("crypt", "cpumask", &format!("0x{}", show_mask(&mask)), &show_cpus(&mask));
    program
        .assert_runs_under("crypt", "a mask", |met, _| met["cpus"] == first.to_string().as_str());
    program.set("crypt", "cpumask", "", &all);
    program.assert_runs_under("crypt", "no mask", |_, pool| pool.cpus == allowed);

    program.set("crypt", "nice", "7", "7");
    program.assert_runs_under("crypt", "nice", |met, pool| pool.nice == 7 && met["nice"] == 7);
    program.set("crypt", "time_slice_us", "3000", "3000");
    program.assert_runs_under("crypt", "a slice", |_, pool| pool.slice_ns == 3_000_000);
    // SCHED_IDLE is policy 5.
    program.set("crypt", "sched_idle", "1", "1");
    program.assert_runs_under("crypt", "idle", |met, pool| pool.idle_class && met["policy"] == 5);
    program.set("crypt", "sched_idle", "0", "0");
    program
        .assert_runs_under("crypt", "not idle", |met, pool| !pool.idle_class && met["policy"] == 0);

    program.set("crypt", "min_active", "1", "1");
    program.set("crypt", "max_active", "1", "1");
    assert_eq!(program.ask("peak crypt")["peak"], 1, "one at a time");
    program.set("crypt", "max_active", "64", "64");
    let begun = Instant::now();
    while cpus() > 1 && program.ask("peak crypt")["peak"].as_u64() < Some(2) {
        assert!(begun.elapsed() < PATIENCE, "still one at a time");
    }
    // For the other queues, every setting that can be changed is changed.
    program.set("events", "nice", "3", "3");
    program.set("events", "max_active", "2", "2");
    program.set("log", "affinity_scope", "system", "ordered");
    program.set("log", "nice", "4", "4");
    program.end();
}

#[test]
fn the_process_is_changed_under_load_and_nothing_is_lost() {
    let mut program = Program::start("process");
    let allowed = program.nearq("get", &["cpumask", "--process"]).trim().to_owned();
    let set = |program: &Program, key: &str, value: &str, effective: &str| {
        let printed = program.nearq("set", &[&format!("{key}={value}")]);
        assert_eq!(printed, format!("{key}  {effective}\n"));
        assert_eq!(program.nearq("get", &[key, "--process"]), format!("{effective}\n"));
    };
    set(&program, "default_affinity_scope", "cpu", "cpu");
    assert_eq!(program.nearq("get", &["crypt", "affinity_scope"]), "default (cpu)\n");
    program.assert_runs_under("crypt", "the default", |_, pool| {
        pool.pod_cpus.parse::<usize>().is_ok()
    });
    set(&program, "affinity", "0", "0");
    set(&program, "affinity", "1", "1");
    let first: String = allowed.chars().take_while(char::is_ascii_digit).collect();
    let printed = program.nearq("set", &[&format!("cpumask={first}")]);
    assert!(printed.starts_with(&format!("cpumask  {first} (")), "{printed}");
    program.assert_runs_under("crypt", "a mask", |met, _| met["cpus"] == first.as_str());
    set(&program, "cpumask", "all", &allowed);
    for (key, value) in [
        ("cpu_intensive_thresh_us", "20000"),
        ("watchdog_thresh", "60"),
        ("spin", "0"),
        ("lock_mode", "plain"),
        ("lock_hand_overs", "64"),
        ("lock_remote_percent", "50"),
        ("lock_batch", "128"),
        ("lock_patience_us", "500"),
        ("lock_quiet", "16"),
        ("lock_yields", "3"),
        ("lock_count", "1"),
    ] {
        set(&program, key, value, value);
    }
    let text = program.nearq("dump", &["--locks"]);
    assert!(text.contains("\nmode=plain ") && text.contains("\ncontended="), "{text}");
    program.end();
}

#[test]
fn refused_settings_change_nothing() {
    let program = Program::start("refused");
    let before = program.nearq("get", &["--json"]);
    for (arguments, part) in [
        (&["crypt", "nice=-21"][..], "from -20 (most favoured) to 19"),
        (&["crypt", "nice=3", "affinity_scope=llc"], "cache_shard, cache, numa, system"),
        (&["crypt", "cpumask=99999"], "must be below"),
        (&["crypt", "cpumask=ff"], "a mask such as 0xff"),
        (&["crypt", "max_active=2049"], "from 0 to 2048"),
        (&["crypt", "per_cpu=1"], "fixed when the queue is created"),
        (&["crypt", "colour=red"], "there is no setting `colour`"),
        (&["events", "affinity_scope=cpu"], "per-CPU queue"),
        (&["log", "max_active=2"], "ordered queue"),
        (&["spin=1", "lock_mode=fast"], "plain"),
        (&["default_affinity_scope=default"], "give one of cpu"),
        (&["nosuch", "nice=1"], "there are crypt, events, log"),
    ] {
        let output = nearq()
            .env("XDG_RUNTIME_DIR", program.folder.path(""))
            .args(["set", &program.pid()])
            .args(arguments)
            .output()
            .unwrap();
        let line = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
        assert!(line.contains(part) && line.lines().count() == 1, "{arguments:?}: {line}");
    }
    assert_eq!(program.nearq("get", &["--json"]), before);
    program.end();
}

#[test]
fn a_change_takes_effect_within_10_ms() {
    const WHAT: &str = "how soon a change is in effect";
    if cpus() < 2 {
        return skipped(WHAT, "one CPU has one pod", "run the tests on two CPUs");
    }
    let mut program = Program::start("soon");
    let allowed = program.nearq("get", &["cpumask", "--process"]);
    let first: String = allowed.chars().take_while(char::is_ascii_digit).collect();
    let mut client = program.client();
    let mut set = |queue: Option<&str>, changes: &[(&str, &str)]| {
        let change = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let changes = changes.iter().map(change).collect();
        let begun = Instant::now();
        let SettingsReply { settings } = client
            .call(&Set { queue: queue.map(String::from), changes, until_closed: false })
            .expect("it is allowed");
        (begun, settings)
    };
    set(Some("crypt"), &[("affinity_strict", "1")]);
    let mut took = Vec::new();
    for round in 0..60 {
        let (scope, alone) = if round % 2 == 0 { ("cpu", true) } else { ("system", false) };
        let (begun, _) = set(Some("crypt"), &[("affinity_scope", scope)]);
        let set_after = begun.elapsed();
        let met = program.ask("probe crypt");
        // Each time the first item after the answer: its worker belongs to a pool of the new scope, which it never leaves.
        let one = met["cpus"].as_str().is_some_and(|cpus| cpus.parse::<usize>().is_ok());
        assert_eq!(one, alone, "round {round}: {met} after affinity_scope={scope}");
        took.push(set_after);
    }
    report("affinity_scope", &mut took);
    for (queue, key, values) in [
        (Some("crypt"), "affinity_strict", ["0", "1"]),
        (Some("crypt"), "cpumask", [first.as_str(), ""]),
        (Some("crypt"), "nice", ["5", "0"]),
        (Some("crypt"), "max_active", ["1", "1024"]),
        (Some("crypt"), "helping", ["0", "1"]),
        (None, "default_affinity_scope", ["cpu", "cache"]),
        (None, "cpumask", [first.as_str(), ""]),
        (None, "lock_mode", ["plain", "auto"]),
    ] {
        let mut took: Vec<Duration> = (0..20)
            .map(|round| {
                let (begun, _) = set(queue, &[(key, values[round % 2])]);
                begun.elapsed()
            })
            .collect();
        report(key, &mut took);
    }
    drop(client);
    program.end();
}

/// Prints how long it took, and checks the shortest: with other programs on the machine, the longer ones say nothing about nearq.
fn report(what: &str, took: &mut [Duration]) {
    took.sort();
    let (least, median, most) = (took[0], took[took.len() / 2], took[took.len() - 1]);
    println!("{what}: {least:?} at least, {median:?} in the middle, {most:?} at most");
    assert!(least < MAX_DELAY, "{what} took {least:?}");
}

#[test]
fn a_stopped_process_does_not_hold_up_the_others() {
    let program = Program::start("stopped");
    let other = Program::start("not-stopped");
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &program.pid()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {name}");
    };
    signal("-STOP");
    // A folder for both, which other users may not enter; a socket is found by its name, and by the process that listens there.
    let both = Folder::new("both");
    DirBuilder::new().mode(0o700).create(both.path("nearq")).unwrap();
    for one in [&program, &other] {
        let socket = PathBuf::from(one.folder.path("nearq")).join(one.pid());
        std::fs::rename(socket, PathBuf::from(both.path("nearq")).join(one.pid())).unwrap();
    }
    let output =
        nearq().env("XDG_RUNTIME_DIR", both.path("")).args(["ps", "--json"]).output().unwrap();
    signal("-CONT");
    assert!(output.status.success(), "{}", errors(&output));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |one: &Program| {
        let rows = rows.as_array().unwrap().iter();
        rows.clone().find(|row| row["pid"] == one.child.id()).cloned().expect("it is listed")
    };
    let error = row(&program)["error"].to_string();
    assert!(error.contains("may be stopped or overloaded"), "{error}");
    assert_eq!(row(&other)["process"]["queues"], 3);
    // Once the process continues, it answers again.
    let socket = PathBuf::from(both.path("nearq")).join(program.pid());
    let mut client = Client::connect_to(&socket).unwrap();
    assert_eq!(client.call(&GetSettings { queue: None }).unwrap().settings.queues.len(), 3);
    let DumpReply { dump } = client.call(&GetDump::default()).unwrap();
    assert_eq!(dump.queues.len(), 3);
}

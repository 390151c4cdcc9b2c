//! A program in C under the preload can be inspected and tuned over its control socket if the environment allows it.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{compile, folder_for_sockets, library};
use crate::skipped::skipped;
use nearq_control::client::{Client, ClientError};
use nearq_control::control_target::{ControlTarget, Tracing};
use nearq_control::find;
use nearq_control::locks::LocksOnly;
use nearq_control::protocol::{
    Access, Dump, GetDump, GetProcess, GetSettings, GetStatistics, Locks, Process, Refusal, Set,
    Settings, Statistics, Trace,
};
use nearq_control::server::{self, Options, Status};

/// How long a loaded machine may take for something that usually takes a moment.
const PATIENCE: Duration = Duration::from_mins(2);

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "not within the time limit: {what}");
        thread::sleep(Duration::from_millis(5));
    }
    println!("{what}: after {:?}", begin.elapsed());
}

/// A program that runs until a test ends it.
struct Running {
    program: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Where its socket is, if it has one.
    folder: PathBuf,
}

impl Running {
    /// Starts a program under the preload, with a folder of its own for sockets.
    fn start(program: &Path, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let runtime = folder_for_sockets(name);
        let _ = fs::remove_dir_all(runtime.join("nearq"));
        let mut program = Command::new(program)
            .args(arguments)
            .env("LD_PRELOAD", library())
            .env("XDG_RUNTIME_DIR", &runtime)
            .env_remove("NEARQ_CONTROL")
            .env_remove("NEARQ_PRELOAD_STATISTICS")
            .env("NEARQ_LOCK", "plain")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be run");
        let input = program.stdin.take();
        let output = BufReader::new(program.stdout.take().expect("it was requested"));
        Running { program, input, output, folder: runtime.join("nearq") }
    }

    /// Starts the usual program, and waits until it prints its number.
    fn usual(name: &str, environment: &[(&str, &str)]) -> Option<(Self, u32)> {
        let program = compile("inspected.c", name, &[])?;
        let mut running = Running::start(&program, name, &[], environment);
        let pid = running.found_as("program");
        Some((running, pid))
    }

    /// The number under which the program can be found, according to its output: "program 17".
    fn found_as(&mut self, what: &str) -> u32 {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the program prints a line");
        let number = line.trim().strip_prefix(what).and_then(|number| number.trim().parse().ok());
        number.unwrap_or_else(|| panic!("it should say {what} and a number: {line:?}"))
    }

    /// The sockets in its folder.
    fn sockets(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten();
        let names = entries.map(|entry| entry.expect("it can be read").file_name());
        names.map(|name| name.into_string().expect("numbers")).collect()
    }

    /// Ends the program, which must end successfully. Returns its warnings.
    fn end(mut self) -> String {
        drop(self.input.take());
        let output = self.program.wait_with_output().expect("it ends");
        let complained = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {complained}", output.status);
        complained
    }
}

/// Connects to a process that is about to listen.
fn connect(pid: u32) -> Client {
    let mut client = None;
    wait_until("the process listens", || {
        client = Client::connect(pid).ok();
        client.is_some()
    });
    client.expect("the previous step waited for it")
}

fn locks(client: &mut Client) -> Locks {
    let reply = client.call(&GetDump { items: false, locks: true }).expect("it can be inspected");
    reply.dump.locks.expect("it was requested")
}

fn changes(changes: &[(&str, &str)]) -> Set {
    let changes = changes.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
    Set { queue: None, changes: changes.collect(), until_closed: false }
}

/// Sets settings of the process; returns all settings after that.
fn set(client: &mut Client, wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    let reply = client.call(&changes(wanted)).expect("it can be set");
    let settings = reply.settings.process.expect("the process's own").settings;
    settings.into_iter().map(|setting| (setting.key, setting.effective)).collect()
}

fn refused<T>(outcome: Result<T, ClientError>) -> Refusal {
    match outcome {
        Err(ClientError::Refused(refusal)) => refusal,
        Err(other) => panic!("it fails in another way: {other}"),
        Ok(_) => panic!("it is not refused"),
    }
}

/// The names of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let name =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(|task| name(task).trim().to_owned()).collect()
}

fn servers(pid: u32) -> usize {
    threads(pid).iter().filter(|name| *name == "nq/control").count()
}

#[test]
fn contended_mutexes_are_inspected_and_tuned() {
    let Some((running, pid)) = Running::usual("tuned", &[("NEARQ_CONTROL", "full")]) else {
        return;
    };
    let mut client = connect(pid);
    let process = client.call(&GetProcess {}).expect("it identifies itself").process;
    assert_eq!((process.pid, process.runtime, process.control), (pid, false, Access::Full));
    assert!(process.command.ends_with("/tuned") && process.queues == 0, "{process:?}");
    assert_eq!((running.sockets(), servers(pid)), (vec![pid.to_string()], 1));
    assert!(find::processes().unwrap().iter().any(|found| found.pid == pid));
    let no_queues = refused(client.call(&GetStatistics { timing: false }));
    assert!(matches!(no_queues, Refusal::NotHere { .. }), "{no_queues:?}");

    // Nothing is counted until counting is enabled.
    let before = locks(&mut client);
    assert_eq!((before.mode.as_str(), before.counting), ("plain", false));
    assert_eq!((before.contended, before.slots_used, before.adaptive.len()), (0, 0, 0));
    let now = set(&mut client, &[("lock_count", "1"), ("lock_yields", "0")]);
    assert!(now.contains(&("lock_count".to_owned(), "1".to_owned())), "{now:?}");
    wait_until("threads are counted that wait in turn", || locks(&mut client).in_turn > 100);
    let plain = locks(&mut client);
    assert_eq!((plain.counting, plain.switched, plain.slots_used), (true, 0, 0));

    // Queues by cache, for the one mutex that threads compete for.
    set(&mut client, &[("lock_mode", "numa")]);
    wait_until("it has queues by cache", || locks(&mut client).switched > 0);
    let numa = locks(&mut client);
    assert_eq!((numa.mode.as_str(), numa.switched, numa.switched_back), ("numa", 1, 0));
    assert!(numa.slots_used == 1 && numa.slots >= 1, "{numa:?}");
    wait_until(
        "a thread waits in a cache",
        || matches!(&locks(&mut client).adaptive[..], [one] if one.held && one.caches > 0),
    );

    // Then back to one queue, and then no queues at all, in which case no turns are taken.
    set(&mut client, &[("lock_mode", "plain")]);
    wait_until("it has one queue again", || locks(&mut client).slots_used == 0);
    assert!(locks(&mut client).switched_back > 0);
    set(&mut client, &[("lock_mode", "off")]);
    let mut seen = locks(&mut client);
    wait_until("threads wait, and none is in turn", || {
        thread::sleep(Duration::from_millis(20));
        let before = std::mem::replace(&mut seen, locks(&mut client));
        seen.contended > before.contended && seen.in_turn == before.in_turn
    });

    // An invalid value is refused, and nothing is changed.
    let text =
        refused(client.call(&changes(&[("lock_batch", "3"), ("lock_mode", "numa")]))).to_string();
    assert_eq!(text, "lock_batch cannot be `3`: not allowed; give a whole number from 5 to 2048");
    let text = refused(client.call(&changes(&[("lock_mode", "fast")]))).to_string();
    assert!(text.contains("off, auto, plain and numa"), "{text}");
    let settings = client.call(&GetSettings::default()).expect("it can be inspected").settings;
    let settings = settings.process.expect("the process's own").settings;
    assert!(settings.iter().any(|one| one.key == "lock_mode" && one.effective == "off"));

    assert!(!running.end().contains("nearq:"), "there is no warning");
}

#[test]
fn without_the_setting_there_is_no_thread_and_no_socket() {
    for (name, value) in [
        ("unasked", None),
        ("empty", Some("")),
        ("off", Some("off")),
        ("no", Some("No")),
        ("zero", Some(" 0 ")),
        ("misspelt", Some("yse")),
    ] {
        let environment: Vec<_> = value.map(|value| ("NEARQ_CONTROL", value)).into_iter().collect();
        let Some((running, pid)) = Running::usual(name, &environment) else { return };
        // The program has created its threads by now, and ours would have been the first.
        assert_eq!((servers(pid), threads(pid).len()), (0, 5), "{name}");
        assert!(Client::connect(pid).is_err());
        assert_eq!(running.sockets(), Vec::<String>::new());
        let complained = running.end();
        let complaints = complained.lines().filter(|line| line.contains("NEARQ_CONTROL")).count();
        assert_eq!(complaints, usize::from(name == "misspelt"), "{complained}");
    }
}

#[test]
fn a_single_threaded_program_gets_no_service_thread() {
    let Some(program) = compile("inspected.c", "alone", &[]) else { return };
    let mut running = Running::start(&program, "alone", &["alone"], &[("NEARQ_CONTROL", "full")]);
    let pid = running.found_as("program");
    assert_eq!((threads(pid).len(), running.sockets().len()), (1, 0));
    running.end();
}

#[test]
fn a_daemonized_child_is_found_under_its_own_process_number() {
    let Some(program) = compile("inspected.c", "daemon", &[]) else { return };
    let environment = [("NEARQ_CONTROL", "full")];
    let mut running = Running::start(&program, "daemon", &["background"], &environment);
    // Both write to the same pipe, in any order; the child twice.
    let (mut parent, mut child) = (0, 0);
    for _ in 0..3 {
        let mut line = String::new();
        running.output.read_line(&mut line).expect("it prints a line");
        let number = line.trim().rsplit(' ').next().and_then(|number| number.parse().ok());
        let number = number.unwrap_or_else(|| panic!("{line:?}"));
        if line.starts_with("parent") { parent = number } else { child = number }
    }
    let mut of_parent = connect(parent);
    set(&mut of_parent, &[("lock_count", "1"), ("lock_yields", "0")]);
    let mut of_child = connect(child);
    let pid = |client: &mut Client| client.call(&GetProcess {}).expect("it answers").process.pid;
    assert_eq!((pid(&mut of_parent), pid(&mut of_child)), (parent, child));
    let found: Vec<_> = find::processes().unwrap().into_iter().map(|found| found.pid).collect();
    assert!(found.contains(&parent) && found.contains(&child), "{found:?}");
    assert_eq!((servers(parent), servers(child)), (1, 1));
    // Each has its own mutexes and settings.
    wait_until("the parent counts", || locks(&mut of_parent).in_turn > 0);
    let of_its_own = locks(&mut of_child);
    assert_eq!((of_its_own.counting, of_its_own.contended), (false, 0));
    let mut sockets = running.sockets();
    sockets.sort();
    let mut expected = [parent.to_string(), child.to_string()];
    expected.sort();
    assert_eq!(sockets, expected);
    drop((of_parent, of_child));
    let left = running.folder.clone();
    running.end();
    assert_eq!(fs::read_dir(left).expect("the folder stays").count(), 0, "sockets are removed");
}

/// A process that executes another program keeps its number, and what the previous program has left is no obstacle.
#[test]
fn the_program_after_exec_is_found() {
    let Some(program) = compile("inspected.c", "executed", &[]) else { return };
    let environment = [("NEARQ_CONTROL", "read")];
    let mut running = Running::start(&program, "executed", &["exec"], &environment);
    let pid = running.found_as("before");
    let mut client = connect(pid);
    // A line of input makes it go on, and the connection ends with it.
    running.input.as_mut().expect("it was requested").write_all(b"\n").expect("it reads");
    assert_eq!(running.found_as("program"), pid);
    wait_until("the first is gone", || client.call(&GetProcess {}).is_err());
    let process = connect(pid).call(&GetProcess {}).expect("it answers").process;
    assert!(process.pid == pid && process.command.ends_with("executed"), "{process:?}");
    assert_eq!((running.sockets(), servers(pid)), (vec![pid.to_string()], 1));
    running.end();
}

/// If a program changes its user, the new user has no access to the socket that it opened before; root always has access.
#[test]
fn a_program_that_becomes_another_user_is_still_found_by_root() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        let why = "it takes root";
        return skipped("a program that becomes another user", why, "run the tests as root");
    }
    let Some(program) = compile("inspected.c", "demoted", &[]) else { return };
    let environment = [("NEARQ_CONTROL", "full")];
    let mut running = Running::start(&program, "demoted", &["demoted"], &environment);
    let pid = running.found_as("before");
    drop(connect(pid));
    running.input.as_mut().expect("it was requested").write_all(b"\n").expect("it reads");
    assert_eq!(running.found_as("program"), pid);
    let mut client = connect(pid);
    set(&mut client, &[("lock_mode", "numa")]);
    assert_eq!(locks(&mut client).mode, "numa");
    running.end();
}

/// Kilobytes of memory that a process has.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel reports it");
    line.trim().split(' ').next().and_then(|kilobytes| kilobytes.parse().ok()).expect("a number")
}

#[test]
fn repeated_requests_use_constant_memory() {
    let Some((running, pid)) = Running::usual("memory", &[("NEARQ_CONTROL", "read")]) else {
        return;
    };
    let mut client = connect(pid);
    let mut ask = |times: usize| {
        for _ in 0..times {
            locks(&mut client);
            client.call(&GetSettings::default()).expect("it answers");
        }
        resident(pid)
    };
    let before = ask(100);
    let more = if std::env::var_os("NEARQ_LONG").is_some() { 900 } else { 300 };
    let after = ask(more);
    println!("{before} kB after 200 calls, {after} kB after {} more", 2 * more);
    assert!(after < before + 256, "{before} kB, then {after} kB after {} calls more", 2 * more);
    running.end();
}

/// Limits a process's memory to what it has, or removes the limit.
fn limit_memory(pid: u32, limited: bool) {
    let bytes = if limited { 4096 } else { libc::RLIM_INFINITY };
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a number, and a local that is read.
    let done = unsafe {
        libc::prlimit(pid.cast_signed(), libc::RLIMIT_AS, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_request_does_not_kill_a_program_without_memory() {
    let Some((running, pid)) = Running::usual("no-memory", &[("NEARQ_CONTROL", "read")]) else {
        return;
    };
    drop(connect(pid));
    let mut socket = UnixStream::connect(running.folder.join(pid.to_string())).expect("it listens");
    limit_memory(pid, true);
    // Longer than the server's buffer.
    let long = "x".repeat(60_000);
    let call =
        format!(r#"{{"method":"org.varlink.service.GetInfo","parameters":{{"x":"{long}"}}}}"#);
    socket.write_all(call.as_bytes()).expect("it is taken");
    socket.write_all(b"\0").expect("it is taken");
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
    let early = socket.read(&mut [0]).expect_err("it needs memory for this").kind();
    assert_eq!(early, std::io::ErrorKind::WouldBlock);
    limit_memory(pid, false);
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    assert_eq!(socket.read(&mut [0]).expect("it answers"), 1);
    running.end();
}

/// What a program with a runtime reports, as far as it matters here.
struct WithRuntime(LocksOnly);

impl ControlTarget for WithRuntime {
    fn process(&self) -> Process {
        Process { runtime: true, queues: 7, ..self.0.process() }
    }

    fn time_items(&mut self, on: bool) -> Result<(), Refusal> {
        self.0.time_items(on)
    }

    fn statistics(&self) -> Result<Statistics, Refusal> {
        self.0.statistics()
    }

    fn dump(&self, wanted: &GetDump) -> Result<Dump, Refusal> {
        self.0.dump(wanted)
    }

    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal> {
        self.0.settings(queue)
    }

    fn set(
        &mut self,
        queue: Option<&str>,
        changes: &BTreeMap<String, String>,
    ) -> Result<Settings, Refusal> {
        self.0.set(queue, changes)
    }

    fn trace(&mut self, wanted: &Trace) -> Result<Box<dyn Tracing>, Refusal> {
        self.0.trace(wanted)
    }
}

/// Set for a process that runs this test's program again, under the preload.
const RUN_AS_PROGRAM: &str = "NEARQ_TEST_AS_A_PROGRAM";

/// A program that uses nearq itself: in its own process, as the next test starts it. The library's server is started with the first thread:
/// at the same time as the program's own server or, if the program waits first, earlier.
#[test]
fn run_as_program_with_a_runtime() {
    let Some(start) = std::env::var_os(RUN_AS_PROGRAM) else { return };
    let found =
        || find::processes().unwrap().into_iter().find(|found| found.pid == std::process::id());
    if start == "later" {
        wait_until("the library's server is there", || found().is_some());
    }
    let options = Options { access: Access::Full };
    server::ensure(|| Box::new(WithRuntime(LocksOnly::new())), options);
    let status = server::status();
    assert!(matches!(status, Status::Listening { .. }), "{status}");
    println!("\nprogram {}", std::process::id());
    std::io::stdin().read_line(&mut String::new()).expect("it ends eventually");
}

#[test]
fn a_program_with_its_own_runtime_is_found_by_its_socket() {
    let program = std::env::current_exe().expect("a test knows its file");
    for start in ["at once", "later"] {
        for round in 0..5 {
            let name = format!("runtime-{}-{round}", start.replace(' ', "-"));
            let arguments = ["--exact", "control::run_as_program_with_a_runtime", "--nocapture"];
            let environment = [("NEARQ_CONTROL", "full"), (RUN_AS_PROGRAM, start)];
            let mut running = Running::start(&program, &name, &arguments, &environment);
            let mut line = String::new();
            while !line.starts_with("program") {
                line.clear();
                let read = running.output.read_line(&mut line).expect("it prints a line");
                assert!(read > 0, "it has ended");
            }
            let pid = running.program.id();
            assert_eq!(line.trim(), format!("program {pid}"));
            let mut client = connect(pid);
            let process = client.call(&GetProcess {}).expect("it answers").process;
            assert_eq!((process.pid, process.runtime, process.queues), (pid, true, 7), "{start}");
            let folder = running.folder.clone();
            assert_eq!(running.sockets(), [pid.to_string()]);
            running.end();
            assert_eq!(fs::read_dir(folder).expect("it stays").count(), 0);
        }
    }
}

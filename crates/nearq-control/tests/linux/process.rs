//! A process and its own server: how the server is started, found and cleaned up after; the environment, forks, other users, containers.
//!
//! Other processes are this test's program again; a variable says which part to play.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::common::{Folder, Shared, until};
use crate::skipped::skipped;
use nearq_control::client::{Client, ConnectError};
use nearq_control::control_target::ControlTarget;
use nearq_control::find;
use nearq_control::protocol::{Access, GetProcess};
use nearq_control::server::{self, Options, Status};

const PART: &str = "NEARQ_TEST_PART";
pub(crate) const NOBODY: u32 = 65534;

/// Another process. It prints lines, plays its part until its input is closed, and is killed at the end of the test.
pub(crate) struct Actor {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Actor {
    pub(crate) fn command(program: &Path, part: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["--exact", "process::the_other_process", "--nocapture", "--test-threads=1"]);
        command.env(PART, part).env_remove("NEARQ_CONTROL").env_remove("TMPDIR");
        command
    }

    pub(crate) fn start(part: &str, runtime: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut command = Self::command(&program, part);
        command.env("XDG_RUNTIME_DIR", runtime);
        change(&mut command);
        Self::run(command)
    }

    pub(crate) fn run(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Of a program that was just copied, a process that another test forks meanwhile may have the descriptor that writes it, until that
        // process executes its own program.
        let mut process = loop {
            match command.spawn() {
                Err(busy) if busy.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                spawned => break spawned.unwrap(),
            }
        };
        let lines = BufReader::new(process.stdout.take().unwrap());
        Actor { process, lines }
    }

    /// The next line that begins with the word.
    pub(crate) fn read(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let count = self.lines.read_line(&mut line).unwrap();
            assert!(count > 0, "the process ended and has not said `{word}`");
            // The test harness of the other process prints before it on the same line.
            if let Some((_, rest)) = line.split_once(&format!("<{word}> ")) {
                return rest.trim_end().to_owned();
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Lets the process end by itself.
    pub(crate) fn end(mut self) {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
    }

    /// Waits until the process has ended by itself.
    pub(crate) fn ends(&mut self) {
        // Its child may still read its input, which a wait by the standard library would close.
        let input = self.process.stdin.take();
        self.process.wait().unwrap();
        self.process.stdin = input;
    }

    /// The remaining lines that it prints.
    pub(crate) fn everything(&mut self) -> String {
        let mut all = String::new();
        self.lines.read_to_string(&mut all).unwrap();
        all
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn report(word: &str, what: impl std::fmt::Display) {
    println!("<{word}> {what}");
}

pub(crate) fn make() -> Box<dyn ControlTarget> {
    Shared::new().target()
}

pub(crate) fn begin() -> Status {
    assert_eq!(server::status(), Status::NotStarted);
    server::ensure(make, Options::default());
    server::ensure(make, Options { access: Access::Full });
    server::status()
}

pub(crate) fn wait_for_the_end_of_input() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The part that the other process plays.
#[test]
fn the_other_process() {
    let Ok(part) = std::env::var(PART) else { return };
    match part.split_once(' ').unwrap_or((&part, "")) {
        ("serve", _) => {
            report("status", begin());
            wait_for_the_end_of_input();
        }
        ("refused", limit) => crate::refused::play(limit),
        ("fork", _) => fork(),
        ("close", _) => close(),
        ("list", _) => {
            for found in find::processes().unwrap() {
                report("found", format!("{} {} {}", found.pid, found.user, found.socket.display()));
            }
            report("end", "");
        }
        ("ask", socket) => report("answer", ask(Path::new(socket))),
        (part, what) => crate::impostors::play(part, what),
    }
}

fn ask(socket: &Path) -> String {
    match Client::connect_to(socket) {
        Err(error) => error.to_string(),
        Ok(mut client) => match client.call(&GetProcess {}) {
            Ok(reply) => format!("allowed {:?}", reply.process.allowed),
            Err(error) => error.to_string(),
        },
    }
}

fn fork() {
    report("status", begin());
    let parent = std::process::id();
    // A connection of the parent, which the child must not keep open.
    let mut client = Client::connect(parent).unwrap();
    client.call(&GetProcess {}).unwrap();
    // Other users of this machine may list processes, and so be connected for a moment.
    let mut before = 0;
    until("no other client is connected", || {
        before = sockets_of(std::process::id());
        before == 3
    });
    // SAFETY: the child continues in this thread alone, and uses nothing that another thread may have had half changed: the C
    // library makes its allocator usable.
    if unsafe { libc::fork() } == 0 {
        report("open", format!("{before} {}", sockets_of(std::process::id())));
        drop(client);
        report("child", server::status());
        server::ensure(make, Options { access: Access::Full });
        report("child", server::status());
        wait_for_the_end_of_input();
        // Through the C library, like a program that returns from `main`.
        std::process::exit(0);
    }
    wait_for_the_end_of_input();
    client.call(&GetProcess {}).unwrap();
    let mut status = 0;
    // SAFETY: a local is written.
    unsafe { libc::wait(&raw mut status) };
    assert_eq!(status, 0);
    let path = match server::status() {
        Status::Listening { path, .. } => path,
        other => panic!("{other}"),
    };
    assert!(path.exists(), "the child has removed the parent's socket");
}

/// The open sockets and event descriptors of a process.
fn sockets_of(pid: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// A program that closes all files it does not know, and opens others under their numbers.
fn close() {
    let Status::Listening { path, .. } = begin() else { panic!("no server") };
    let connection = std::os::unix::net::UnixStream::connect(path).unwrap();
    let used = (3..1000).filter(|number| fs::read_link(format!("/proc/self/fd/{number}")).is_ok());
    let used: Vec<i32> = used.collect();
    std::mem::forget(connection);
    let file = fs::File::open("/dev/zero").unwrap();
    for number in used {
        // SAFETY: numbers; the files of this test are not used any more.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), number) };
    }
    until("the server has noticed", || matches!(server::status(), Status::Failed(_)));
    report("status", server::status());
    let open = (3..1000).filter(|number| {
        fs::read_link(format!("/proc/self/fd/{number}"))
            .is_ok_and(|to| to == Path::new("/dev/zero"))
    });
    report("open", open.count());
}

pub(crate) fn own_user() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}

pub(crate) fn skipped_for_want_of_root(what: &str) -> bool {
    let no_root = own_user() != 0;
    if no_root {
        skipped(what, "it takes root to be another user", "run the tests as root");
    }
    no_root
}

#[test]
fn a_process_can_be_found_and_asked_and_removes_its_socket() {
    let folder = Folder::new("found");
    let mut actor = Actor::start("serve", folder.path(), |_| {});
    let socket = folder.path().join("nearq").join(actor.pid().to_string());
    assert_eq!(actor.read("status"), format!("listening on {}, for inspection", socket.display()));
    // The caller's own variables lead elsewhere.
    let mut client = Client::connect(actor.pid()).unwrap();
    let process = client.call(&GetProcess {}).unwrap().process;
    assert_eq!((process.pid, process.control), (actor.pid(), Access::Read));
    let found =
        find::processes().unwrap().into_iter().find(|found| found.pid == actor.pid()).unwrap();
    assert_eq!(found.user, own_user());
    assert!(found.socket.exists());
    actor.end();
    assert!(!socket.exists(), "the socket was left behind");
}

#[test]
fn a_killed_process_leaves_a_socket_that_the_next_one_removes() {
    let folder = Folder::new("killed");
    let mut pids = Vec::new();
    for _ in 0..2 {
        let mut actor = Actor::start("serve", folder.path(), |_| {});
        actor.read("status");
        pids.push(actor.pid());
        let socket = folder.path().join("nearq").join(actor.pid().to_string());
        actor.kill();
        assert!(socket.exists());
        for earlier in &pids[..pids.len() - 1] {
            let socket = folder.path().join("nearq").join(earlier.to_string());
            assert!(!socket.exists(), "the next server did not remove it");
        }
    }
    let killed = pids[1];
    let error = Client::connect(killed).unwrap_err();
    assert!(matches!(error, ConnectError::NoSuchProcess { .. }), "{error}");
    // Listing processes removes the socket too.
    let mut actor = Actor::start("list", folder.path(), |_| {});
    actor.read("end");
    assert!(!folder.path().join("nearq").join(killed.to_string()).exists());
}

#[test]
fn each_process_is_listed_once() {
    let folder = Folder::new("listing");
    let mut actors: Vec<_> = (0..3).map(|_| Actor::start("serve", folder.path(), |_| {})).collect();
    for actor in &mut actors {
        actor.read("status");
    }
    let mut list = Actor::start("list", folder.path(), |_| {});
    let mut expected: Vec<String> = actors
        .iter()
        .map(|actor| {
            let socket = folder.path().join("nearq").join(actor.pid().to_string());
            format!("{} {} {}", actor.pid(), own_user(), socket.display())
        })
        .collect();
    expected.sort();
    let all = list.everything();
    let mut found: Vec<&str> = all
        .lines()
        .filter_map(|line| Some(line.split_once("<found> ")?.1))
        .filter(|line| line.contains(&folder.path().display().to_string()))
        .collect();
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn the_environment_overrides_the_program() {
    let folder = Folder::new("environment");
    let status = |value: &str| {
        let mut actor = Actor::start("serve", folder.path(), |command| {
            command.env("NEARQ_CONTROL", value).stderr(Stdio::piped());
        });
        let status = actor.read("status");
        drop(actor.process.stdin.take());
        let mut warning = String::new();
        actor.process.stderr.take().unwrap().read_to_string(&mut warning).unwrap();
        (status, warning.lines().next().unwrap_or_default().to_owned())
    };
    assert_eq!(status("off").0, "off: NEARQ_CONTROL=off, or the program requested no socket");
    assert!(status("full").0.ends_with(", for inspection and changes"));
    assert!(status("read").0.ends_with(", for inspection"));
    for off in ["0", "no", "OFF", "False"] {
        let off_status = "off: NEARQ_CONTROL=off, or the program requested no socket".to_owned();
        assert_eq!(status(off), (off_status, String::new()), "{off}");
    }
    for value in ["1", "Read", "on"] {
        assert!(status(value).0.ends_with(", for inspection"), "{value}");
    }
    let (found, warning) = status("all");
    assert!(found.starts_with("off: "), "{found}");
    assert!(warning.starts_with("nearq: NEARQ_CONTROL is `all`; it must be off, read or full"));
    assert_eq!(fs::read_dir(folder.path().join("nearq")).unwrap().count(), 0);
}

#[test]
fn without_a_private_directory_there_is_no_socket() {
    let folder = Folder::new("private");
    let own = folder.path().join(format!("nearq-{}", own_user()));
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    let nowhere = folder.path().join("nowhere");
    let mut actor = Actor::start("serve", &nowhere, |command| {
        command.env("TMPDIR", folder.path());
    });
    let status = actor.read("status");
    assert!(status.starts_with("failed: "), "{status}");
    assert!(status.contains("is accessible to other users"), "{status}");
    assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
    let error = Client::connect(actor.pid()).unwrap_err();
    assert!(matches!(error, ConnectError::NoSocket { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("does not listen") && text.lines().count() == 1, "{text}");
}

#[test]
fn a_forked_child_gets_its_own_server() {
    let folder = Folder::new("fork");
    let mut actor = Actor::start("fork", folder.path(), |_| {});
    actor.read("status");
    let open = actor.read("open");
    // The client, the server's end of it and the listener; in the child the client alone.
    assert_eq!(open, "3 1");
    assert_eq!(actor.read("child"), "not started yet");
    let status = actor.read("child");
    assert!(status.ends_with(", for inspection and changes"), "{status}");
    let sockets = folder.path().join("nearq");
    until("two sockets", || fs::read_dir(&sockets).unwrap().count() == 2);
    for entry in fs::read_dir(&sockets).unwrap() {
        let pid = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        assert_eq!(Client::connect(pid).unwrap().call(&GetProcess {}).unwrap().process.pid, pid);
    }
    actor.end();
    assert_eq!(fs::read_dir(&sockets).unwrap().count(), 0);
}

#[test]
fn files_that_reuse_the_servers_descriptors_are_not_closed() {
    let folder = Folder::new("close");
    let mut actor = Actor::start("close", folder.path(), |_| {});
    assert_eq!(actor.read("status"), "failed: the program has closed the socket");
    let open: usize = actor.read("open").parse().unwrap();
    assert!(open >= 4, "{open}: the server has closed files of the program");
    actor.end();
}

#[test]
fn an_idle_server_does_not_wake_up() {
    let folder = Folder::new("idle");
    let mut actor = Actor::start("serve", folder.path(), |_| {});
    actor.read("status");
    let threads = fs::read_dir(format!("/proc/{}/task", actor.pid())).unwrap().flatten();
    let thread = threads
        .map(|thread| thread.path())
        .find(|thread| fs::read_to_string(thread.join("comm")).unwrap() == "nq/control\n")
        .expect("the thread has its name");
    let field = |name: &str| {
        let status = fs::read_to_string(thread.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        line.trim_start_matches(':').trim().to_owned()
    };
    until("the server sleeps", || field("State").starts_with('S'));
    // Other users of this machine may list processes meanwhile, and so wake the thread.
    until("the server has slept for half a second", || {
        let before = field("voluntary_ctxt_switches");
        std::thread::sleep(std::time::Duration::from_millis(500));
        field("voluntary_ctxt_switches") == before
    });
    // All signals except those that faults of the thread raise, and two of the C library.
    let blocked = u64::from_str_radix(&field("SigBlk"), 16).unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGPROF, libc::SIGUSR1] {
        assert!(blocked & (1 << (signal - 1)) != 0, "signal {signal}");
    }
}

/// A copy of this program that other users can run.
pub(crate) fn copy_for_others(folder: &Folder) -> PathBuf {
    let copy = folder.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

pub(crate) fn as_user(user: u32, program: &Path, part: &str) -> Command {
    let mut command = Actor::command(program, part);
    std::os::unix::process::CommandExt::uid(&mut command, user);
    command
}

#[test]
fn another_user_is_refused_and_root_is_allowed() {
    if skipped_for_want_of_root("another user's access") {
        return;
    }
    let folder = Folder::new("users");
    let program = copy_for_others(&folder);
    let runtime = folder.path().join("run");
    fs::create_dir(&runtime).unwrap();
    std::os::unix::fs::chown(&runtime, Some(NOBODY), None).unwrap();
    let mut command = as_user(NOBODY, &program, "serve");
    command.env("XDG_RUNTIME_DIR", &runtime);
    let mut actor = Actor::run(command);
    let status = actor.read("status");
    assert!(status.ends_with(", for inspection"), "{status}");
    let socket = runtime.join("nearq").join(actor.pid().to_string());
    let asked_by = |user: u32| {
        let part = format!("ask {}", socket.display());
        Actor::run(as_user(user, &program, &part)).read("answer")
    };
    assert_eq!(asked_by(NOBODY), "allowed Read");
    assert_eq!(asked_by(0), "allowed Full");
    assert!(asked_by(NOBODY - 1).contains("Permission denied"), "{}", asked_by(NOBODY - 1));
    // Root finds the process without help.
    assert_eq!(
        Client::connect(actor.pid()).unwrap().call(&GetProcess {}).unwrap().process.allowed,
        Access::Full
    );
    assert!(
        find::processes()
            .unwrap()
            .iter()
            .any(|found| found.pid == actor.pid() && found.user == NOBODY)
    );
    // Even if the directory is opened to others, the kernel says which user asks.
    fs::set_permissions(runtime.join("nearq"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let answer = asked_by(NOBODY - 1);
    assert!(answer.contains("org.varlink.service.PermissionDenied"), "{answer}");
    assert_eq!(asked_by(NOBODY), "allowed Read");
}

#[test]
fn another_users_runtime_directory_is_not_used() {
    if skipped_for_want_of_root("another user's directory") {
        return;
    }
    let folder = Folder::new("sudo");
    let (other_runtime, tmp) = (folder.path().join("theirs"), folder.path().join("tmp"));
    fs::create_dir(&other_runtime).unwrap();
    fs::create_dir(&tmp).unwrap();
    std::os::unix::fs::chown(&other_runtime, Some(NOBODY), None).unwrap();
    let mut actor = Actor::start("serve", &other_runtime, |command| {
        command.env("TMPDIR", &tmp);
    });
    let socket = tmp.join("nearq-0").join(actor.pid().to_string());
    assert_eq!(actor.read("status"), format!("listening on {}, for inspection", socket.display()));
    assert_eq!(fs::read_dir(&other_runtime).unwrap().count(), 0);
}

#[test]
fn a_program_with_elevated_rights_has_no_socket() {
    if skipped_for_want_of_root("a set-user-ID program") {
        return;
    }
    let folder = Folder::new("secure");
    let program = copy_for_others(&folder);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut command = as_user(NOBODY, &program, "serve");
    command.env("XDG_RUNTIME_DIR", folder.path()).env("NEARQ_CONTROL", "full");
    let status = Actor::run(command).read("status");
    if !status.starts_with("off: ") && mounted_without_set_user_id(folder.path()) {
        let why = format!("{} is mounted nosuid", folder.path().display());
        return skipped("a set-user-ID program", why, "build elsewhere");
    }
    assert_eq!(status, "off: the program has more privileges than the process that started it");
    assert!(!folder.path().join("nearq").exists());
}

fn mounted_without_set_user_id(path: &Path) -> bool {
    rustix::fs::statvfs(path).unwrap().f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID)
}

#[test]
fn a_process_in_a_container_can_be_reached_from_outside() {
    if skipped_for_want_of_root("a container") {
        return;
    }
    let folder = Folder::new("container");
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let program = std::env::current_exe().unwrap();
    // The namespace has its own process numbers, and a directory that no process outside sees.
    let script = "mount -t tmpfs -o mode=700 none \"$XDG_RUNTIME_DIR\" && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        script,
    ]);
    let own = Actor::command(&program, "serve");
    command.arg(own.get_program()).args(own.get_args());
    command.env(PART, "serve").env("XDG_RUNTIME_DIR", &inside).env_remove("NEARQ_CONTROL");
    command.stderr(Stdio::null());
    if !Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        let why = "unshare(1) cannot make one";
        return skipped("a container", why, "run the tests where namespaces may be made");
    }
    let mut actor = Actor::run(command);
    // Its number inside is 1.
    assert!(actor.read("status").contains("/inside/nearq/1, "));
    assert!(!inside.join("nearq").exists());
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", actor.pid())).unwrap();
    let pid: u32 = children.trim().parse().unwrap();
    let process = Client::connect(pid).unwrap().call(&GetProcess {}).unwrap().process;
    assert_eq!(process.pid, 1);
    let found = find::processes().unwrap().into_iter().find(|found| found.pid == pid).unwrap();
    assert!(found.socket.starts_with(format!("/proc/{pid}/root")), "{}", found.socket.display());
}

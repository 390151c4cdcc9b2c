//! Output that cannot be written: a full disk, a descriptor that cannot be written, a file that may not grow, a reader that is gone.

use crate::PROGRAM;
use crate::common::{Folder, errors, nearq, skipped};
use crate::steering::{Answers, machines, questions, serve, subcommands};
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The subcommands whose output comes from another program.
const OF_OTHERS: [&str; 3] = ["run", "bench", "sim"];

/// One call of every subcommand; its help if it prints nothing else.
fn commands(name: &str) -> (Vec<Command>, [Folder; 2]) {
    let (pid, files) = (std::process::id().to_string(), machines(&format!("{name}-machines")));
    let folder = serve(name, Answers::Well);
    let command = |subcommand: &str, arguments: &[String]| {
        let mut command = nearq();
        command.env("XDG_RUNTIME_DIR", folder.path("")).arg(subcommand).args(arguments);
        command
    };
    let mut commands = vec![command("--help", &[]), command("--version", &[])];
    for subcommand in subcommands() {
        if OF_OTHERS.contains(&subcommand.as_str()) {
            continue;
        }
        let first = questions(&subcommand, &pid, &files).swap_remove(0);
        commands.push(command(&subcommand, &first));
        if subcommand != "help" {
            commands.push(command(&subcommand, &["--help".to_owned()]));
        }
    }
    (commands, [folder, files])
}

/// Fails unless the command says that its output is lost.
fn assert_output_lost(command: &Command, output: &Output) {
    let stderr = errors(output);
    assert_eq!(output.status.code(), Some(1), "{command:?}: {stderr}");
    assert!(stderr.contains("nearq: standard output cannot be written: "), "{command:?}: {stderr}");
}

#[test]
fn every_subcommand_reports_a_full_disk() {
    let (commands, _folders) = commands("full");
    for mut command in commands {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        assert_output_lost(&command, &output);
    }
}

#[test]
fn an_unwritable_descriptor_is_reported() {
    for arguments in [&["topo"][..], &["knobs"], &["--help"]] {
        let mut command = nearq();
        let readable = File::open("/dev/null").unwrap();
        let output = command.args(arguments).stdout(readable).output().unwrap();
        assert_output_lost(&command, &output);
    }
}

#[test]
fn a_closed_descriptor_is_reported() {
    for (arguments, status) in [("topo", 1), ("knobs", 1), ("--help", 1), ("run echo ::: 1 2", 125)]
    {
        let line = format!("exec {PROGRAM} {arguments} >&-");
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        let stderr = errors(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {stderr}");
        assert!(stderr.contains("standard output cannot be written: Bad file"), "{stderr}");
    }
}

#[test]
fn a_closed_pipe_ends_every_subcommand_silently() {
    let (commands, _folders) = commands("unread");
    for mut command in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", errors(&output));
        let stderr = errors(&output);
        // `trace` also prints counts.
        assert!(stderr.is_empty() || stderr.contains(" events in "), "{command:?}: {stderr}");
    }
}

/// Runs `nearq` with files limited to some kilobytes.
fn with_small_files(folder: &Folder, arguments: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 4; exec \"$@\"", "sh", crate::PROGRAM]).args(arguments);
    shell.env("XDG_RUNTIME_DIR", folder.path("")).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_picture_that_does_not_fit_on_disk_leaves_the_old_file() {
    let folder = Folder::new("small-files");
    let path = folder.path("machine.svg");
    for before in [None, Some("the old one")] {
        if let Some(before) = before {
            fs::write(&path, before).unwrap();
        }
        let output = with_small_files(&folder, &["topo", "--on", "numa:2 core:64", "--svg", &path]);
        let stderr = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("--svg ") && stderr.contains("cannot be written"), "{stderr}");
        assert!(!stderr.contains(".nearq-"), "the draft is nothing that the user knows: {stderr}");
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), before);
        let left = fs::read_dir(folder.path("")).unwrap().count();
        assert_eq!(left, usize::from(before.is_some()), "nothing else is left behind");
    }
    let output = nearq().args(["topo", "--svg", "/dev/full"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("--svg /dev/full: cannot be written"), "{}", errors(&output));
    assert!(OpenOptions::new().write(true).open("/dev/full").is_ok(), "a device stays what it is");
}

#[test]
fn a_trace_on_a_full_disk_ends_with_a_valid_file() {
    let folder = serve("small-trace", Answers::Much);
    let path = folder.path("trace.json");
    let pid = std::process::id().to_string();
    let output = with_small_files(&folder, &["trace", &pid, "--output", &path]);
    let stderr = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot be written") && stderr.contains("up to there"), "{stderr}");
    let text = fs::read_to_string(&path).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).expect("the file is whole");
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
}

/// A non-blocking pipe of one page, as an event loop leaves it to the programs that it starts.
fn nonblocking_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the descriptor is ours; no memory is given.
    unsafe {
        assert!(libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) >= 4096);
        assert_eq!(libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK), 0);
    }
    (reader, writer)
}

#[test]
fn non_blocking_output_is_written_completely() {
    let (commands, _folders) = commands("hasty");
    let mut commands: Vec<_> = commands.into_iter().map(|command| (command, 1)).collect();
    commands.extend([
        (command_of(&["topo", "--on", "numa:4 core:16", "--json"]), 10_000),
        (command_of(&["run", "--dry-run", "echo", ":::", &"x".repeat(9000)]), 9000),
        (command_of(&["run", "--verbose", "true", ":::", &"x".repeat(9000)]), 9000),
    ]);
    for (mut command, least) in commands {
        let (mut reader, writer) = nonblocking_pipe();
        command.stdin(Stdio::null()).stderr(writer.try_clone().unwrap()).stdout(writer);
        let mut child = command.spawn().unwrap();
        // The command holds its ends of the pipe.
        drop(command);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let mut printed = Vec::new();
        reader.read_to_end(&mut printed).unwrap();
        let printed = String::from_utf8_lossy(&printed);
        assert!(child.wait().unwrap().success(), "{printed}");
        assert!(printed.len() >= least && !printed.contains("cannot be written"), "{printed}");
    }
}

fn command_of(arguments: &[&str]) -> Command {
    let mut command = nearq();
    command.args(arguments);
    command
}

/// Runs a line of a shell with `$NEARQ`, in a folder.
fn in_folder(folder: &Folder, line: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder.path("")).env("NEARQ", PROGRAM);
    shell.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn an_option_that_names_standard_output_appends_to_it() {
    let folder = Folder::new("named-stdout");
    let read = || fs::read_to_string(folder.path("log")).unwrap();
    for (line, parts) in [
        ("\"$NEARQ\" topo --svg /dev/stdout >> log", ["<svg", "CPUs"]),
        ("\"$NEARQ\" run --json /dev/fd/1 echo hello ::: a >> log", ["hello a", "\"ended\": 1"]),
        (
            "\"$NEARQ\" run --joblog /proc/self/fd/3 echo hello ::: a 3>> log >&3",
            ["Seq\t", "hello a"],
        ),
    ] {
        fs::write(folder.path("log"), "kept\n").unwrap();
        let output = in_folder(&folder, line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", errors(&output));
        let log = read();
        assert!(log.starts_with("kept\n") && parts.iter().all(|part| log.contains(part)), "{log}");
    }
}

#[test]
fn files_are_unchanged_if_nothing_was_run() {
    let folder = Folder::new("as-they-were");
    let read = |name: &str| fs::read_to_string(folder.path(name)).unwrap();
    for (line, status) in [
        ("\"$NEARQ\" run --joblog log --json /nonexistent/x echo ::: a", 2),
        ("\"$NEARQ\" run --joblog log --json json nosuchcommand ::: a", 127),
        ("\"$NEARQ\" run --joblog log --json log echo ::: a", 2),
        ("\"$NEARQ\" run --joblog log --json ./link echo ::: a", 2),
        ("\"$NEARQ\" run -u --joblog log --json json echo ::: a >&-", 125),
    ] {
        for name in ["log", "json"] {
            fs::write(folder.path(name), name).unwrap();
        }
        let _ = std::os::unix::fs::symlink("log", folder.path("link"));
        let output = in_folder(&folder, line);
        assert_eq!(output.status.code(), Some(status), "{line}: {}", errors(&output));
        assert_eq!([read("log"), read("json")], ["log", "json"], "{line}");
    }
}

#[test]
fn a_trace_that_cannot_be_written_leaves_the_file_and_the_link() {
    let (folder, served) = (Folder::new("no-room"), serve("no-room-served", Answers::Well));
    let pid = std::process::id();
    let old = "x".repeat(3000);
    fs::write(folder.path("trace.json"), &old).unwrap();
    std::os::unix::fs::symlink("trace.json", folder.path("link")).unwrap();
    for name in ["trace.json", "link"] {
        let runtime = served.path("");
        let line = format!(
            "ulimit -f 0; XDG_RUNTIME_DIR={runtime} \"$NEARQ\" trace {pid} --items 1 --output {name}"
        );
        let output = in_folder(&folder, &line);
        let stderr = errors(&output);
        assert!(output.status.code() == Some(1) && stderr.contains("File too large"), "{stderr}");
        assert_eq!(fs::read_to_string(folder.path("trace.json")).unwrap(), old, "{name}");
        assert!(fs::symlink_metadata(folder.path("link")).unwrap().is_symlink());
    }
}

#[test]
fn a_closed_standard_output_is_not_replaced_for_started_programs() {
    let all = [("run -u echo ::: 1", 125), ("run --tree echo 1", 125), ("bench --help", 1)];
    // The last command is another program, which is built with the whole workspace.
    let has_bench = Path::new(PROGRAM).with_file_name("nearq-bench").exists();
    if !has_bench {
        skipped("nearq bench without output", "nearq-bench is not built", "build the workspace");
    }
    for (arguments, status) in all.into_iter().take(if has_bench { 3 } else { 2 }) {
        let line = format!("exec {PROGRAM} {arguments} >&-");
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        let stderr = errors(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {stderr}");
        assert!(stderr.contains("standard output cannot be written: Bad file"), "{stderr}");
    }
}

//! What docs/tutorial.md says is true: its program is the example `checksums`, and each of its commands succeeds on that program and prints
//! the lines that the page shows. Figures may differ.

use crate::common::{Folder, errors, nearq, with_signals};
use crate::invented::until;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

const PAGE: &str = include_str!("../../../../docs/tutorial.md");
const PROGRAM: &str = include_str!("../../examples/checksums.rs");
/// The commands whose output is that of the machine, each with a line that is the same on all machines.
const OF_THE_MACHINE: [(&str, &str); 2] =
    [("nearq topo", "This process"), ("nearq dump", "Affinity Scopes")];

/// A command on the page, and the lines that it is shown to print.
struct Example<'a> {
    command: &'a str,
    lines: Vec<&'a str>,
}

/// The blocks of a page in that language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<Vec<&'a str>> {
    let mut blocks = Vec::new();
    // The language of the block that has begun, and its lines.
    let mut open: Option<(&str, Vec<&str>)> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(found), None) => open = Some((found, Vec::new())),
            (Some(_), Some(_)) => {
                let block = open.take().filter(|(found, _)| *found == language);
                blocks.extend(block.map(|(_, lines)| lines));
            }
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    blocks
}

/// The commands of the page's consoles, without those that build.
fn examples(page: &str) -> Vec<Example<'_>> {
    let mut examples: Vec<Example<'_>> = Vec::new();
    for line in blocks(page, "console").concat() {
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (Some(command), _) => examples.push(Example { command, lines: Vec::new() }),
            (None, Some(example)) => example.lines.push(line),
            (None, None) => panic!("{line}: no command prints this"),
        }
    }
    examples.retain(|example| example.command.starts_with("nearq "));
    examples
}

/// What a line consists of apart from figures, units, and values that do not apply.
fn words(line: &str) -> Vec<&str> {
    let is_word = |word: &&str| {
        !word.contains(|letter: char| letter.is_ascii_digit())
            && !["-", "ns", "us", "ms", "s"].contains(word)
    };
    line.split_whitespace().filter(is_word).collect()
}

/// The lines of `nearq ps` without the column of users, which only root sees.
fn without_users(output: &str) -> String {
    if output.split_whitespace().nth(1) != Some("USER") {
        return output.to_owned();
    }
    let rows = output.lines().map(|line| {
        let cells = line.split_whitespace().enumerate().filter(|(column, _)| *column != 1);
        cells.map(|(_, cell)| cell).collect::<Vec<_>>().join(" ") + "\n"
    });
    rows.collect()
}

/// The tutorial's program while it runs.
struct Running {
    child: Child,
    folder: Folder,
}

impl Running {
    fn start() -> Running {
        let built = Path::new(crate::PROGRAM).parent().expect("it is in a folder");
        let folder = Folder::new("tutorial");
        let child = with_signals(built.join("examples/checksums").to_str().expect("a plain path"))
            .arg0("target/debug/checksums")
            .arg("600")
            .env("XDG_RUNTIME_DIR", folder.path(""))
            .env("NEARQ_CONTROL", "full")
            .stdout(Stdio::null())
            .spawn()
            .expect("examples are built with the tests");
        let running = Running { child, folder };
        until("the program has a socket", || running.prints("nearq ps").contains("checksums"));
        running
    }

    /// Runs a command of the page, and returns what it prints.
    fn prints(&self, command: &str) -> String {
        let arguments = command.split_whitespace().skip(1);
        let mut nearq = nearq();
        nearq.env("XDG_RUNTIME_DIR", self.folder.path("")).args(arguments);
        let output = nearq.output().expect("the command starts");
        assert!(output.status.success(), "{command}: {}", errors(&output));
        String::from_utf8_lossy(&output.stdout).into_owned() + &errors(&output)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_tutorials_program_is_the_example() {
    let on_the_page = blocks(PAGE, "rust,no_run").concat().join("\n");
    let from = PROGRAM.find("use nearq").expect("it uses the library");
    assert_eq!(on_the_page, PROGRAM[from..].trim_end());
}

#[test]
fn the_tutorials_commands_print_what_the_page_shows() {
    let examples = examples(PAGE);
    let of = |name: &str| examples.iter().filter(|one| one.command.starts_with(name)).count();
    for command in ["topo", "ps", "top", "get", "set", "dump", "trace"] {
        assert!(of(&format!("nearq {command}")) > 0, "the page does not show {command}");
    }
    // The page shows one process throughout.
    let ps = examples.iter().find(|example| example.command == "nearq ps").expect("it is shown");
    let shown = ps.lines[1].split_whitespace().next().expect("a process has a number");

    let running = Running::start();
    let pid = running.child.id().to_string();
    for Example { command, lines } in &examples {
        let output = running.prints(&command.replace(shown, &pid));
        let output = if *command == "nearq ps" { without_users(&output) } else { output };
        let printed: BTreeSet<Vec<&str>> = output.lines().map(words).collect();
        let everywhere = OF_THE_MACHINE
            .iter()
            .find(|(name, _)| command.starts_with(name) && !command.contains(" --on "));
        let expected = match everywhere {
            Some((_, line)) => {
                assert!(lines.contains(line), "{command}: the page does not show `{line}`");
                std::slice::from_ref(line)
            }
            None => &lines[..],
        };
        for line in expected.iter().filter(|line| **line != "...") {
            assert!(printed.contains(&words(line)), "{command} does not print `{line}`:\n{output}");
        }
    }
}

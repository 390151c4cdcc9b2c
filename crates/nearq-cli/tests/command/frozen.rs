//! Compares what every subcommand prints on fixed input with the records in `tests/frozen`.

#[path = "../../../nearq-command/tests/frozen/mod.rs"]
mod recorded;

use crate::common::nearq;
use crate::steering::{Answers, serve, subcommands};
use recorded::{Frozen, transcript};
use std::process::Command;

/// The fixed input of each subcommand: described machines, an invented process, and nothing that depends on this machine or on time. The
/// help of each is also recorded.
fn questions(subcommand: &str) -> &'static [&'static [&'static str]] {
    const SMALL: &str = "pack:2 numa:2 l3:2 core:2 pu:2";
    match subcommand {
        "topo" => &[
            &["--on", SMALL],
            &["--on", SMALL, "--json"],
            &["--on", SMALL, "--scope", "cache"],
            &["--on", "ryzen-3900x", "--costs"],
            &["--on", "ryzen-3900x", "--json"],
            &["--on", "epyc-9654-2s"],
            &["--on", "grace-72", "--scope", "numa"],
            &["--on", "pack:0"],
            &["--scope", "caches"],
        ],
        "run" => &[
            &["-k", "-j1", "echo", "x", ":::", "a b", "c"],
            &["-j1", "sh", "-c", "exit $0", ":::", "0", "3"],
            &["--jobs", "few", "echo"],
            &["--pipe", "cat"],
            &["--tree"],
        ],
        "submit" => &[&["--stream", "JOBS"]],
        "jobs" => &[&["--of", "nats://127.0.0.1:9"]],
        "homes" => &[&["--watch", "soon"]],
        "ps" => &[&[], &["--json"]],
        "dump" => &[
            &["PID"],
            &["PID", "--items", "--locks"],
            &["PID", "--masks"],
            &["PID", "--items", "--locks", "--json"],
        ],
        "top" => &[
            &["PID", "--once", "-i", "0.1"],
            &["PID", "--once", "-i", "0.1", "--json"],
            &["PID", "--sort", "colour"],
        ],
        "get" => &[
            &["PID"],
            &["PID", "--json"],
            &["PID", "crypt"],
            &["PID", "crypt", "affinity_scope"],
            &["PID", "missing"],
        ],
        "set" => &[
            &["PID", "crypt", "affinity_scope=cache"],
            &["PID", "crypt", "affinity_scope=cache", "--json"],
            &["PID", "crypt", "affinity_scope"],
            &["PID", "crypt", "colour=red"],
        ],
        "trace" => &[
            &["PID", "--items", "1"],
            &["PID", "--items", "1", "--json"],
            &["PID", "--every", "0"],
        ],
        "tune" => &[&["PID", "crypt", "--seconds", "0"]],
        "metrics" => &[&["PID"], &["PID", "--format", "openmetrics"]],
        "knobs" => &[&[], &["--json"], &["--markdown"], &["affinity_scope"], &["colour"]],
        // A separate program, which has its own files.
        "bench" | "sim" => &[],
        "completions" => &[&["bash"], &["zsh"], &["fish"], &["elvish"], &["tcsh"]],
        "man" => &[&["/nowhere"]],
        "help" => &[&[]],
        other => panic!("what does `nearq {other}` print on fixed input? Say so here"),
    }
}

#[test]
fn output_on_fixed_input_is_as_recorded() {
    let folder = serve("frozen", Answers::Plainly);
    let pid = std::process::id().to_string();
    let mut frozen = Frozen::of(env!("CARGO_MANIFEST_DIR"));
    for subcommand in subcommands() {
        let questions = questions(&subcommand);
        let help: &[&[&str]] = if questions.is_empty() { &[] } else { &[&["--help"]] };
        let mut transcripts = String::new();
        for words in help.iter().chain(questions) {
            let words_now = words.iter().map(|&word| if word == "PID" { &pid } else { word });
            let mut command = nearq();
            command.env("XDG_RUNTIME_DIR", folder.path("")).env_remove("COLUMNS");
            let output = command.arg(&subcommand).args(words_now).output().unwrap();
            let asked: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            let question = format!("nearq {subcommand} {}", asked.join(" "));
            transcripts += &transcript(question.trim_end(), &output);
        }
        let transcripts = transcripts.replace(&folder.path(""), "FOLDER/");
        let transcripts = with_name_of(&transcripts, &pid);
        match subcommand.as_str() {
            _ if transcripts.is_empty() => {}
            "ps" => frozen.compare("ps", &without_user(&without_others(&transcripts))),
            subcommand => frozen.compare(subcommand, &transcripts),
        }
    }
    frozen.end();
}

/// The text with "PID" in place of the number, except within another number.
fn with_name_of(text: &str, pid: &str) -> String {
    let is_digit = |next: Option<char>| next.is_some_and(|next| next.is_ascii_digit());
    let mut named = String::new();
    let mut rest = 0;
    for (at, _) in text.match_indices(pid) {
        let end = at + pid.len();
        let before = text[..at].chars().next_back();
        let is_part = is_digit(before) || is_digit(text[end..].chars().next());
        named += &text[rest..at];
        named += if is_part { pid } else { "PID" };
        rest = end;
    }
    named + &text[rest..]
}

#[test]
fn only_whole_process_numbers_are_replaced() {
    let text = "4217 0.134217728 42170 /run/nearq.4217: 4217";
    assert_eq!(with_name_of(text, "4217"), "PID 0.134217728 42170 /run/nearq.PID: PID");
}

/// Lists of processes, as a table and as JSON, without other programs that use nearq and run on this machine now. This process is named PID.
fn without_others(lists: &str) -> String {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let mut kept = String::new();
    // The lines of the JSON object that has begun.
    let mut object = String::new();
    for line in lists.split_inclusive('\n') {
        let inside = !object.is_empty();
        if inside || line == "  {\n" {
            object += line;
            if inside && line.starts_with("  }") {
                kept += if object.contains("\"pid\": PID,") { &object } else { "" };
                object.clear();
            }
        } else if !line.split_whitespace().next().is_some_and(is_number) {
            kept += line;
        }
    }
    kept.replace("  },\n]", "  }\n]")
}

#[test]
fn other_processes_are_left_out_of_lists() {
    let object =
        |pid: &str| format!("  {{\n    \"pid\": {pid},\n    \"process\": {{\n    }}\n  }}");
    let own = format!("$ ps\n  PID  USER\n  PID  root\n$ ps --json\n[\n{}\n]\n", object("PID"));
    assert_eq!(without_others(&own), own);
    let json = [object("7"), object("PID"), object("42")].join(",\n");
    let all = format!("$ ps\n  PID  USER\n    7  root\n  PID  root\n$ ps --json\n[\n{json}\n]\n");
    assert_eq!(without_others(&all), own);
}

/// A list of processes without this process's user, and without the widths of columns, which depend on its number.
fn without_user(list: &str) -> String {
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    let user = String::from_utf8(user).unwrap();
    let lines = list.lines().map(|line| {
        let is_row = line.trim_start().starts_with("PID");
        let line = line.replace(user.trim_end(), "USER");
        let words: Vec<&str> = line.split_whitespace().collect();
        if is_row { words.join(" ") } else { line }
    });
    lines.map(|line| line + "\n").collect()
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=:.$".contains(c);
    if word.chars().all(is_plain) { word.into() } else { format!("'{word}'") }
}

//! `nearq run` beside GNU parallel: the same command lines give the same outputs, exit status, job logs and files. Each can continue what
//! the other has begun. Debian's package `parallel` is needed.

use crate::common::{Folder, nearq, skipped};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Command lines for one folder, one after the other; both programs take each of them.
type Steps = &'static [&'static [&'static str]];

const CASES: &[(&str, Steps)] = &[
    ("tags", &[&["-k", "--tag", "echo {}; echo {#}", ":::", "a b", "it's"]]),
    ("tags of lines without an end", &[&["-k", "--tag", "printf 'x\\ny'", ":::", "a", "b"]]),
    ("tags of combinations", &[&["-k", "--tag", "echo", ":::", "a", "b", ":::", "1", "2"]]),
    ("tags of several inputs", &[&["-k", "-n2", "--tag", "echo", ":::", "a", "b", "c"]]),
    ("no tag without output", &[&["-k", "--tag", "true", ":::", "a", "b"]]),
    (
        "tags with placeholders",
        &[&["-k", "-j1", "--tagstring", "{#}-{/}-{.}-{%}", "echo", ":::", "d/a.b", "d/c d"]],
    ),
    (
        "tags with numbers",
        &[&["-k", "--tagstring", "{2}:{1}", "echo", ":::", "a", ":::", "1", "2"]],
    ),
    (
        "tags with characters that cannot be typed",
        &[&["-k", "--tagstring", "a\\t{}\\n\\rb\\x\\", "echo", ":::", "a", "b"]],
    ),
    ("an empty tag", &[&["-k", "--tagstring", "", "echo", ":::", "a", "b"]]),
    ("the tag of an empty input", &[&["-k", "--tag", "echo", ":::", "", "b"]]),
    ("tags of bytes", &[&["-k", "--tag", "printf '\\000x\\n\\001\\377y\\n\\nz'", ":::", "a", "b"]]),
    ("a tag for all", &[&["-k", "--tagstring", "same", "echo", ":::", "a", "b"]]),
    (
        "retries",
        &[&[
            "-k",
            "-j1",
            "--retries",
            "3",
            "--joblog",
            "L",
            "echo {#}; echo x >> n{#}; exit {}",
            ":::",
            "0",
            "1",
            "2",
        ]],
    ),
    (
        "retries until it succeeds",
        &[&[
            "-j1",
            "--retries",
            "5",
            "--joblog",
            "L",
            "echo x >> {}; grep -c x {} | grep 3",
            ":::",
            "n",
        ]],
    ),
    ("one run", &[&["-j1", "--retries", "1", "--joblog", "L", "echo x >> n; exit {}", ":::", "1"]]),
    (
        "retries and halt",
        &[&[
            "-j1",
            "--retries",
            "2",
            "--halt",
            "now,fail=1",
            "--joblog",
            "L",
            "echo x >> n{#}; exit {}",
            ":::",
            "0",
            "1",
            "0",
        ]],
    ),
    ("a timeout", &[&["-j3", "--timeout", "1", "--joblog", "L", "sleep {}", ":::", "20", "0"]]),
    (
        "a timeout of a job that handles the signal",
        &[&[
            "--timeout",
            "1s",
            "--joblog",
            "L",
            "trap 'exit 0' TERM; sleep {} & wait",
            ":::",
            "20",
        ]],
    ),
    (
        "a timeout and retries",
        &[&[
            "--timeout",
            "1",
            "--retries",
            "2",
            "--joblog",
            "L",
            "echo x >> n; sleep {}",
            ":::",
            "20",
        ]],
    ),
    (
        "a timeout by the median",
        &[&[
            "-j1",
            "--timeout",
            "1000%",
            "--joblog",
            "L",
            "sleep {}",
            ":::",
            "0.1",
            "0.1",
            "0.1",
            "0.1",
            "30",
        ]],
    ),
    ("a delay", &[&["-k", "--delay", "0.1", "--joblog", "L", "echo", ":::", "a", "b"]]),
    (
        "results",
        &[&[
            "-k",
            "--results",
            "R",
            "echo {}; echo e{#} >&2; exit {#}",
            ":::",
            "a/b",
            "x y",
            "\\",
            "t\tt",
        ]],
    ),
    (
        "results of a job that runs again",
        &[&[
            "-k",
            "-j1",
            "--retries",
            "3",
            "--results",
            "R",
            "echo run {}; echo e >&2; echo x >> n{}; test $(wc -l < n{}) -ge {}",
            ":::",
            "1",
            "2",
            "4",
        ]],
    ),
    (
        "results of combinations",
        &[&["-k", "--results", "R/", "echo", ":::", "a", "b", ":::", "1", "2"]],
    ),
    (
        "results of several inputs",
        &[&["-k", "-n2", "--results", "d/R", "echo", ":::", "a", "b", "c"]],
    ),
    (
        "results of names with special characters",
        &[&[
            "-k",
            "--results",
            "R",
            "echo {#}",
            ":::",
            "%41",
            "-x",
            "$HOME",
            "*",
            "~",
            ".x",
            "..x",
        ]],
    ),
    (
        "results that are there already",
        &[
            &["--results", "R", "echo long-{}", ":::", "a"],
            &["--results", "R", "echo {}", ":::", "a"],
        ],
    ),
    (
        "results of the last attempt",
        &[&[
            "-j1",
            "--retries",
            "2",
            "--results",
            "R",
            "if [ -e m{} ]; then echo s; else touch m{}; echo long; echo e >&2; exit 1; fi",
            ":::",
            "a",
        ]],
    ),
    (
        "results by name",
        &[&["-k", "--results", "R/x_{}", "echo {}; echo e >&2", ":::", "a", "b c", "d/e"]],
    ),
    (
        "results in folders by name",
        &[&["-k", "--results", "R/{#}-{/.}/", "echo {}; echo e >&2", ":::", "a.c", "d/e"]],
    ),
    ("results and tags", &[&["-k", "--tag", "--results", "R", "echo x", ":::", "a", "b"]]),
    (
        "resume",
        &[
            &["-j1", "--joblog", "L", "echo {}; exit {}", ":::", "0", "1"],
            &[
                "-k",
                "-j1",
                "--resume",
                "--joblog",
                "L",
                "echo {#} {}; exit {}",
                ":::",
                "0",
                "1",
                "2",
                "0",
            ],
            &[
                "-k",
                "-j1",
                "--resume",
                "--joblog",
                "L",
                "echo {#} {}; exit {}",
                ":::",
                "0",
                "1",
                "2",
                "0",
            ],
        ],
    ),
    (
        "resume after jobs were ended",
        &[
            &[
                "-j2",
                "--halt",
                "now,fail=1",
                "--joblog",
                "L",
                "trap 'exit 0' TERM; sleep {} & wait; exit 1",
                ":::",
                "0.5",
                "20",
                "0",
            ],
            &["-k", "--resume", "--joblog", "L", "echo {#}", ":::", "0.5", "20", "0"],
        ],
    ),
    (
        "resume with empty inputs",
        &[
            &["-j1", "--halt", "soon,fail=1", "--joblog", "L", "[ -n {} ]", ":::", "a", "", "b"],
            &["-k", "--resume", "--joblog", "L", "echo {#} {}", ":::", "a", "", "b"],
        ],
    ),
    ("resume without a log", &[&["--resume", "--joblog", "L", "echo", ":::", "a"]]),
    (
        "resume what failed",
        &[
            &["-j1", "--joblog", "L", "echo {}; exit {}", ":::", "0", "1", "3"],
            &[
                "-k",
                "-j1",
                "--resume-failed",
                "--joblog",
                "L",
                "echo {#} {}; [ {} = 1 ]",
                ":::",
                "0",
                "1",
                "3",
                "1",
            ],
            &[
                "-k",
                "-j1",
                "--resume-failed",
                "--joblog",
                "L",
                "echo {#} {}",
                ":::",
                "0",
                "1",
                "3",
                "1",
            ],
        ],
    ),
    (
        "retry what failed",
        &[
            &["-j1", "--joblog", "L", "echo {#} '# it'; exit {}", ":::", "0", "1", "3"],
            &["-k", "-j1", "--retry-failed", "--joblog", "L"],
            &["-k", "-j1", "--retry-failed", "--joblog", "L"],
        ],
    ),
    (
        "retry where nothing failed",
        &[&["-j1", "--joblog", "L", "true", ":::", "0"], &["--retry-failed", "--joblog", "L"]],
    ),
    (
        "retry after a timeout",
        &[
            &[
                "-j1",
                "--timeout",
                "1",
                "--joblog",
                "L",
                "[ -e m ] || { touch m; sleep {}; }",
                ":::",
                "20",
            ],
            &["--retry-failed", "--joblog", "L"],
        ],
    ),
    (
        "a preview of a continued run",
        &[
            &["-j1", "--joblog", "L", "echo", ":::", "a"],
            &["-k", "--resume", "--joblog", "L", "--dry-run", "echo {#}", ":::", "a", "b"],
        ],
    ),
    (
        "continuing in the order of inputs",
        &[
            &["-j1", "--joblog", "L", "echo", ":::", "a"],
            &["-k", "-j4", "--resume", "--joblog", "L", "echo {#}", ":::", "a", "b", "c", "d", "e"],
        ],
    ),
];

/// What can be seen of a step: what it printed, and its exit status.
type Seen = (String, Option<i32>);

fn step(by_nearq: bool, folder: &Path, words: &[&str]) -> Seen {
    let mut command = if by_nearq {
        let mut command = nearq();
        command.arg("run");
        if !words.contains(&"--retry-failed") {
            command.arg("--shell");
        }
        command
    } else {
        let mut command = Command::new("parallel");
        // Its settings, and a note that it has been cited, belong to the user.
        command
            .arg("--will-cite")
            .env("PARALLEL_HOME", folder.join("home"))
            .env("SHELL", "/bin/sh");
        command
    };
    let output = command.args(words).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

/// Every file below a folder, with its contents; of job logs, the columns that do not depend on time.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "home" {
                    folders.push(path);
                }
            } else if name == "L" {
                found.insert(name, log(&path).into_bytes());
            } else {
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

/// Number, bytes printed, status, signal and command of each line, by number.
fn log(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let mut lines: Vec<Vec<&str>> =
        text.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    lines.sort_by_key(|columns| columns[0].parse::<u64>().unwrap());
    let lines = lines.iter().map(|columns| {
        assert!(columns[1] == ":" && columns[2].parse::<f64>().unwrap() > 1e9, "{text}");
        [columns[0], columns[5], columns[6], columns[7], columns[8]].join("|") + "\n"
    });
    lines.collect()
}

#[test]
fn the_same_lines_do_the_same_and_each_continues_the_others_runs() {
    let is_there = Command::new("parallel").args(["--will-cite", "--version"]).output();
    if !is_there.is_ok_and(|output| output.stdout.starts_with(b"GNU parallel")) {
        skipped("nearq run beside GNU parallel", "it is not installed", "apt-get install parallel");
        return;
    }
    for (number, (name, steps)) in CASES.iter().enumerate() {
        // Who runs the first step, and who runs the others.
        let mut seen = Vec::new();
        for by_nearq in [[false, false], [true, true], [false, true], [true, false]] {
            if steps.len() == 1 && by_nearq[0] != by_nearq[1] {
                continue;
            }
            let [first, others] = by_nearq.map(u8::from);
            let folder = Folder::new(&format!("beside-{number}-{first}{others}"));
            let path = folder.path("");
            let path = Path::new(&path);
            let by = |index: usize| by_nearq[index.min(1)];
            let outputs: Vec<Seen> = steps
                .iter()
                .enumerate()
                .map(|(index, words)| step(by(index), path, words))
                .collect();
            seen.push((by_nearq, outputs, files(path)));
        }
        for (by_nearq, outputs, files) in &seen[1..] {
            assert_eq!(*outputs, seen[0].1, "{name}: by nearq: {by_nearq:?}");
            let text = |files: &BTreeMap<String, Vec<u8>>| {
                let each = files
                    .iter()
                    .map(|(name, text)| format!("{name}: {:?}", String::from_utf8_lossy(text)));
                each.collect::<Vec<_>>().join("\n")
            };
            assert_eq!(text(files), text(&seen[0].2), "{name}: by nearq: {by_nearq:?}");
        }
    }
}

//! Each program runs to its end with the right output, and is at most as long as its counterpart on another library.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// More than any program takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// Runs a program, which prints less than a pipe holds, and returns what it prints.
fn output_of(program: &str, arguments: &[&Path]) -> String {
    let mut child =
        Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if begin.elapsed() > LONG {
            child.kill().expect("it can be killed");
            panic!("{program} does not end");
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{program}: {status}");
    std::io::read_to_string(child.stdout.expect("piped")).expect("it is text")
}

/// The lines of a program that are neither empty nor a comment.
fn length(program: &str) -> usize {
    let path = format!("{}/src/bin/{program}.rs", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).expect(&path);
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

fn is_at_most_as_long(program: &str, counterpart: &str) {
    let (own, other) = (length(program), length(counterpart));
    assert!(own <= other, "{program} has {own} lines, {counterpart} {other}");
}

const HASH_FILES: [&str; 2] =
    [env!("CARGO_BIN_EXE_hash_files"), env!("CARGO_BIN_EXE_hash_files_with_rayon")];

#[test]
fn files_are_hashed_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("b");
    fs::create_dir(&inner).unwrap();
    fs::write(folder.path().join("a"), "abc").unwrap();
    fs::write(inner.join("empty"), "").unwrap();
    // The published values for these inputs.
    let expected = format!(
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  {0}/a\n\
         e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  {0}/b/empty\n",
        folder.path().display()
    );
    for program in HASH_FILES {
        assert_eq!(output_of(program, &[folder.path()]), expected, "{program}");
    }
}

#[test]
fn without_a_folder_a_hundred_files_are_hashed() {
    for program in HASH_FILES {
        assert_eq!(output_of(program, &[]).lines().count(), 100, "{program}");
    }
}

#[test]
fn a_folder_that_does_not_exist_is_an_error() {
    for program in HASH_FILES {
        let output = Command::new(program).arg("/nowhere").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{program}");
    }
}

#[test]
fn hash_files_is_at_most_as_long_as_with_rayon() {
    is_at_most_as_long("hash_files", "hash_files_with_rayon");
}

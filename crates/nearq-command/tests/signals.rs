//! The first signal is heard, the second one ends the program, and one that is ignored stays so. Each in a program of
//! its own, which is this one again: what becomes of signals is the whole process's, and they end it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;

use nearq_command::signals;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::low_level::raise;

/// Says which part the program has.
const PART: &str = "SIGNALS_TEST_PART";
/// How a part ends in which all is as it should be.
const FINE: i32 = 77;

/// Hears signals, raises some, and ends as the part says.
fn play(part: &str) -> ! {
    let (sender, receiver) = mpsc::channel();
    signals::on_first(move |number, name| sender.send((number, name)).unwrap()).unwrap();
    match part {
        "second" => {
            raise(SIGTERM).unwrap();
            assert_eq!(receiver.recv(), Ok((SIGTERM, "SIGTERM")));
            raise(SIGTERM).unwrap();
            panic!("the second one ends it");
        }
        "ignored" => {
            raise(SIGHUP).unwrap();
            raise(SIGTERM).unwrap();
            assert_eq!(receiver.recv(), Ok((SIGTERM, "SIGTERM")));
            std::process::exit(FINE);
        }
        part => panic!("{part}: there is no such part"),
    }
}

/// Runs this test again in another program, which ignores a signal or none.
fn outcome(test: &str, part: &str, ignores: &str) -> ExitStatus {
    let this = std::env::current_exe().expect("a test knows its file");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("trap - TERM; {ignores} exec \"$@\""), "sh"]);
    command.arg(this).args(["--exact", test, "--nocapture"]);
    command.env(PART, part).status().expect("sh is there")
}

#[test]
fn the_second_signal_ends_the_program_at_once() {
    if let Ok(part) = std::env::var(PART) {
        play(&part);
    }
    let ended = outcome("the_second_signal_ends_the_program_at_once", "second", "");
    assert_eq!(ended.signal(), Some(SIGTERM), "{ended}");
}

#[test]
fn a_signal_that_was_ignored_at_first_stays_ignored() {
    if let Ok(part) = std::env::var(PART) {
        play(&part);
    }
    let test = "a_signal_that_was_ignored_at_first_stays_ignored";
    let ended = outcome(test, "ignored", "trap '' HUP;");
    assert_eq!(ended.code(), Some(FINE), "{ended}");
}

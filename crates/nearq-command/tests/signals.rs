//! The first signal is received, the second signal ends the program, and an ignored signal stays ignored. Each case runs in a separate
//! process, which is this program again: signal handling applies to the whole process, and signals end it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;

use nearq_command::signals;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::low_level::raise;

/// The variable that says which part the program plays.
const PART: &str = "SIGNALS_TEST_PART";
/// The exit status of a part that succeeded.
const FINE: i32 = 77;

/// Receives signals, raises some, and ends as the part requires.
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

/// Runs this test again in another process, which ignores a signal or none.
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
fn a_signal_ignored_at_start_stays_ignored() {
    if let Ok(part) = std::env::var(PART) {
        play(&part);
    }
    let test = "a_signal_ignored_at_start_stays_ignored";
    let ended = outcome(test, "ignored", "trap '' HUP;");
    assert_eq!(ended.code(), Some(FINE), "{ended}");
}

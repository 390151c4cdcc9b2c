//! Compares the help of every experiment, and the refusals of invalid machines, with what is recorded in `tests/frozen`. The tables of the
//! experiments are compared with those of docs/results.

#[path = "../../../nearq-command/tests/frozen/mod.rs"]
mod recorded;

use crate::common::nearq;
use recorded::{Frozen, transcript};

const ALL: [(&str, &[&str]); 2] = [
    (
        "bench",
        &["scopes", "dispatch", "blocking", "join", "highpri", "lock", "rwlock", "home", "numa"],
    ),
    ("sim", &["calibrate", "lines", "score", "sensitivity", "soak"]),
];

#[test]
fn output_on_fixed_input_is_as_recorded() {
    let mut frozen = Frozen::of(env!("CARGO_MANIFEST_DIR"));
    let asked = |words: &[&str]| {
        let output = nearq().args(words).env_remove("COLUMNS").output().unwrap();
        transcript(&format!("nearq {}", words.join(" ")), &output)
    };
    for (subcommand, experiments) in ALL {
        frozen.compare(subcommand, &asked(&[subcommand, "--help"]));
        for experiment in experiments {
            let help = asked(&[subcommand, experiment, "--help"]);
            let no_option = asked(&[subcommand, experiment, "--no-such-option"]);
            let no_machine = asked(&[subcommand, experiment, "--on", "none"]);
            let all = help + &no_option + &no_machine;
            frozen.compare(&format!("{subcommand}-{experiment}"), &all);
        }
    }
    frozen.compare("sim-soak-executions", &soaked());
    frozen.end();
}

/// The behaviour of some seeds of the soak: every step of each simulated thread, as a hash.
fn soaked() -> String {
    let output = nearq().args(["sim", "soak", "--seeds", "60", "--from", "7000"]).output().unwrap();
    let text = transcript("nearq sim soak --seeds 60 --from 7000", &output);
    // How long it took.
    let (before, after) = text.split_once(" s of virtual time in ").unwrap();
    let (_, after) = after.split_once(" s; ").unwrap();
    format!("{before} s of virtual time; {after}")
}

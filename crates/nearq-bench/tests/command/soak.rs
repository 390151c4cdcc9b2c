//! `nearq sim soak`: one seed, many seeds, and what it refuses.

use crate::common::{nearq, refuses};

fn output(arguments: &[&str]) -> String {
    let output = nearq().args(["sim", "soak"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn some_seeds_and_a_summary() {
    let text = output(&["--seeds", "8", "--from", "100"]);
    assert!(text.starts_with("8 seeds, "), "{text}");
    assert!(text.contains(" preemptions") && text.ends_with("every promise was kept\n"), "{text}");
}

#[test]
fn a_verbose_seed_with_its_trace_is_reproducible() {
    let text = output(&["--seed", "3", "--trace"]);
    for part in ["seed 3\n", "machine: ", "queue-0: scope ", "issuer-0", " main ", "* worker nq/u"]
    {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    assert!(text.trim_end().ends_with("every promise was kept"), "{text}");
    assert!(text.lines().count() > 100);
    assert_eq!(output(&["--seed", "3", "--trace"]), text);
}

#[test]
fn invalid_seeds_are_refused() {
    for (arguments, parts) in [
        (&["--seed", "-1"][..], &["-1", "whole number"][..]),
        (&["--seed", "all"], &["'all'", "whole number"]),
        (&["--seeds", "0"], &["'0'", "1 or more"]),
        (&["--trace"], &["--seed"]),
        (&["--seed", "1", "--seeds", "2"], &["--seed", "--seeds"]),
        (&["--from", "18446744073709551615"], &["--from", "18446744073709551615"]),
    ] {
        let line = refuses(&[&["sim", "soak"], arguments].concat());
        for part in parts {
            assert!(line.contains(part), "{arguments:?}: {part} is not in {line}");
        }
    }
}

//! `NEARQ_RAYON_SCOPE`, `NEARQ_RAYON_STRICT` and `NEARQ_RAYON_NICE`: each test runs this program again with other variables.

use std::process::Command;

/// In the process that a test starts: prints the settings of a pool.
#[test]
#[ignore = "the other tests of this file run it"]
fn print_settings() {
    rayon_core::join(|| (), || ());
    // A second pool, which reads them too.
    crate::pool(1).join(|| (), || ());
    let queues = nearq::Runtime::global().queues();
    let queue = queues.iter().find(|queue| queue.name() == "rayon").expect("the pool's queue");
    let attributes = queue.attributes();
    println!(
        "SETTINGS {:?} {} {}",
        attributes.affinity_scope, attributes.affinity_strict, attributes.nice
    );
}

/// The settings of a pool where the variables are set, and the lines on the standard error that name a variable of them.
fn settings(variables: &[(&str, &str)]) -> (String, Vec<String>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["settings::print_settings", "--exact", "--ignored", "--nocapture"]);
    for name in ["NEARQ_RAYON_SCOPE", "NEARQ_RAYON_STRICT", "NEARQ_RAYON_NICE"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    let (out, err) = (out.unwrap(), err.unwrap());
    assert!(output.status.success(), "{out}{err}");
    let settings = out.lines().find_map(|line| Some(line.split_once("SETTINGS ")?.1));
    let lines =
        err.lines().filter(|line| line.contains("NEARQ_RAYON")).map(str::to_owned).collect();
    (settings.expect("it prints them").to_owned(), lines)
}

#[test]
fn variables_set_scope_strictness_and_nice_value() {
    let (settings, lines) = settings(&[
        ("NEARQ_RAYON_SCOPE", "numa"),
        ("NEARQ_RAYON_STRICT", "1"),
        ("NEARQ_RAYON_NICE", "7"),
    ]);
    assert_eq!(settings, "Some(Numa) true 7");
    assert_eq!(lines, [""; 0]);
}

#[test]
fn an_invalid_variable_is_reported_in_one_line_and_counts_as_not_set() {
    let (default, lines) = settings(&[]);
    assert_eq!(lines, [""; 0]);
    assert_eq!(settings(&[("NEARQ_RAYON_NICE", "")]), (default.clone(), lines));
    for (name, value, allowed) in [
        ("NEARQ_RAYON_SCOPE", "galaxy", "cpu, smt, cache, cache_shard, numa or system"),
        ("NEARQ_RAYON_STRICT", "perhaps", "0 or 1"),
        ("NEARQ_RAYON_STRICT", "2", "0 or 1"),
        ("NEARQ_RAYON_NICE", "rude", "a number from -20 to 19"),
        ("NEARQ_RAYON_NICE", "20", "a number from -20 to 19"),
    ] {
        let (settings, lines) = settings(&[(name, value)]);
        assert_eq!(settings, default, "{name}={value}");
        let [line] = lines.as_slice() else { panic!("{name}={value}: {lines:?}") };
        assert!(line.contains(&format!("{name}={value}")) && line.contains(allowed), "{line}");
    }
}

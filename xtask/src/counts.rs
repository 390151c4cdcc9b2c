//! Counts the instructions that queueing, spawning and locking take, and compares them with the counts recorded in `.ci/counts`.
//!
//! The counts also depend on the compiler, so nothing is compared if the compiler is not the recorded one.

use crate::sources;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::callgrind;

/// How often an example with several threads is counted until the count is the recorded one.
const ATTEMPTS: usize = 5;

/// What is counted.
struct Example {
    package: &'static str,
    name: &'static str,
    modes: &'static [&'static str],
    /// The number of counts of which the median is taken.
    times: usize,
    /// How much a figure may differ from the recorded one in either direction, as a fraction of it.
    share: f64,
}

const ALL: [Example; 2] = [
    Example {
        package: "nearq-core",
        name: "item_cost",
        modes: &["queue", "spawn", "requeue"],
        // With several threads, the time that they wait differs from run to run, and medians of three runs differ by up to 2 %. The C
        // library copies memory differently on other processors.
        times: 3,
        share: 0.05,
    },
    Example {
        package: "nearq-lock",
        name: "lock_cost",
        modes: &["mutex", "osq", "try", "notify"],
        times: 1,
        share: 0.01,
    },
];

impl Example {
    /// The median of its counts.
    fn count(&self, program: &Path, mode: &str) -> Result<f64, String> {
        let counted = (0..self.times).map(|_| callgrind::per_round(program, mode));
        let mut counted = counted.collect::<Result<Vec<f64>, String>>()?;
        counted.sort_by(f64::total_cmp);
        Ok(counted[self.times / 2])
    }
}

/// Counts, and compares the counts with the recorded ones or records them.
pub(crate) fn check(writes: bool) -> Result<String, String> {
    if let Some(skipped) = callgrind::skipped("items and locks")? {
        return Ok(skipped);
    }
    let path = sources::root().join(".ci/counts");
    let compiler = compiler()?;
    let recorded = fs::read_to_string(&path).unwrap_or_default();
    if !writes && recorded.lines().next() != Some(&compiler) {
        return Ok(format!(
            "skipped: instructions of items and locks: they are recorded for another compiler than {compiler}; to have it: cargo xtask \
             counts --write before a change, cargo xtask counts after it"
        ));
    }
    let recorded = read(&recorded);
    let (mut text, mut wrong) = (compiler + "\n", Vec::new());
    for example in ALL {
        let program = callgrind::build(example.package, example.name, "")?;
        for mode in example.modes {
            let name = format!("{} {mode}", example.name);
            let is_recorded = |count: f64| {
                recorded.get(&name).is_some_and(|&one| is_near(one, count, example.share))
            };
            let mut count = example.count(&program, mode)?;
            // On a busy machine threads wait longer for one another, and do more. What the code costs is the same each time.
            let mut attempts = if example.times > 1 && !writes { ATTEMPTS } else { 1 };
            while attempts > 1 && !is_recorded(count) {
                count = example.count(&program, mode)?;
                attempts -= 1;
            }
            let _ = writeln!(text, "{name} {count:.1}");
            if !is_recorded(count) {
                let (recorded, percent) = (recorded.get(&name), example.share * 100.0);
                let recorded = recorded.map_or("nothing".into(), f64::to_string);
                wrong.push(format!(
                    "{name}: {count:.1} instructions, recorded are {recorded}; {percent} % more or fewer are allowed"
                ));
            }
        }
    }
    if writes {
        fs::write(&path, &text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    } else if !wrong.is_empty() {
        return Err(format!(
            "{}\nif that is what you want: cargo xtask counts --write",
            wrong.join("\n")
        ));
    }
    Ok(text.trim_end().into())
}

/// The compiler's name for itself.
fn compiler() -> Result<String, String> {
    let output = Command::new("rustc").arg("--version").output();
    let output = output.map_err(|error| format!("rustc cannot be run: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().into())
}

/// The figures of a file. Each line except the first has an example, what it counts, and the count.
fn read(text: &str) -> BTreeMap<String, f64> {
    let figure = |line: &str| {
        let (name, count) = line.rsplit_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    text.lines().skip(1).filter_map(figure).collect()
}

/// Whether a count is close enough to the recorded one; a small count may also differ by rounding.
fn is_near(recorded: f64, count: f64, share: f64) -> bool {
    (count - recorded).abs() <= (recorded * share).max(0.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_compared() {
        let figures = read("rustc 1.2.3\nitem_cost queue 286.0\nlock_cost try 9.0\n");
        assert_eq!(figures.len(), 2);
        let is_near = |name: &str, count| is_near(figures[name], count, 0.01);
        assert!(is_near("item_cost queue", 288.8) && !is_near("item_cost queue", 289.0));
        assert!(!is_near("item_cost queue", 283.0));
        assert!(is_near("lock_cost try", 9.1) && !is_near("lock_cost try", 10.0));
    }
}

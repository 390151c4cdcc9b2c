//! Compares the public interface of the crates that users' programs link, item by item, with the one recorded in `.ci/interface`.
//!
//! So a change of the interface shows in the commit that makes it, and a commit cannot change the interface by accident.

use crate::sources;
use std::fs;
use std::path::Path;

use public_api::Builder;

use crate::api::{crates, rustdoc};

/// The crate that programs link besides those that `nearq` exports.
const LOCK: (&str, &str) = ("nearq-lock", "");

/// Compares the interface with the recorded one, or records it.
pub(crate) fn check(writes: bool) -> Result<String, String> {
    let folder = sources::root().join(".ci/interface");
    let (mut items, mut listed, mut differences) = (0, 0, Vec::new());
    for (name, features) in crates().chain([LOCK]) {
        listed += 1;
        let listing = list(name, features)?;
        items += listing.lines().count();
        let path = folder.join(format!("{name}.txt"));
        if writes {
            let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, &listing));
            written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            continue;
        }
        let recorded = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        differences.extend(differing(&recorded, &listing));
    }
    if differences.is_empty() {
        return Ok(format!("{items} public items in {listed} crates, as recorded"));
    }
    Err(format!(
        "{}\nif that is what you want: cargo run -p xtask --features listing -- listing --write",
        differences.join("\n")
    ))
}

/// The items of one crate, one per line. Items of our other crates are named without their modules, which users do not see.
fn list(name: &str, features: &str) -> Result<String, String> {
    let listing = Builder::from_rustdoc_json(rustdoc(name, features)?)
        .omit_blanket_impls(true)
        .omit_auto_derived_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .map_err(|error| format!("{name}: {error}"))?;
    let own_prefix = format!("{}::", name.replace('-', "_"));
    let lines = listing.items().map(|item| without_modules(&item.to_string(), &own_prefix) + "\n");
    Ok(lines.collect())
}

/// A line without the modules in paths to crates of ours other than `own_prefix`.
fn without_modules(line: &str, own_prefix: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut without = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_part) {
        let (before, from) = rest.split_at(start);
        let (path, after) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        without.push_str(before);
        let is_ours = path.starts_with("nearq_") && !path.starts_with(own_prefix);
        let parts: Vec<&str> = path.split("::").collect();
        let is_module = |(at, part): &(usize, &&str)| {
            is_ours && *at > 0 && *at + 1 < parts.len() && part.starts_with(char::is_lowercase)
        };
        let kept = parts.iter().enumerate().filter(|part| !is_module(part));
        without.push_str(&kept.map(|(_, part)| *part).collect::<Vec<_>>().join("::"));
        rest = after;
    }
    without + rest
}

/// The lines that only one of the two texts has.
fn differing(recorded: &str, now: &str) -> Vec<String> {
    let missing = |sign: char, from: &str, other: &str| {
        let other: std::collections::BTreeSet<&str> = other.lines().collect();
        let lines = from.lines().filter(|line| !other.contains(line));
        lines.map(|line| format!("{sign}{line}")).collect::<Vec<_>>()
    };
    [missing('-', recorded, now), missing('+', now, recorded)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_other_crates_of_ours_are_left_out() {
        let line =
            "pub fn nearq_core::home::Home::at(nearq_topology::cpuset::CpuSet, &core::fmt::Error)";
        let without =
            "pub fn nearq_core::home::Home::at(nearq_topology::CpuSet, &core::fmt::Error)";
        assert_eq!(without_modules(line, "nearq_core::"), without);
        let method = "nearq_core::queue::Queue::run";
        assert_eq!(without_modules(method, "nearq_control::"), "nearq_core::Queue::run");
    }

    #[test]
    fn removed_and_new_items_are_reported() {
        assert_eq!(differing("a\nb\n", "b\nc\n"), ["-a", "+c"]);
    }
}

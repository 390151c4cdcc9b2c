//! Every package that is built has a licence under which it may be used and passed on without further duties.

use crate::metadata::{self, Package, Unknown, Workspace};
use crate::spdx;
use std::collections::BTreeMap;

/// Licences that ask for no more than that their text is kept.
const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// A crate of ours with one licence more, for the part of it that the kernel runs: what it may call there is for such
/// programs alone.
const FOR_THE_KERNEL: (&str, &str) = ("nearq-scx", "GPL-2.0-only");

/// Names every package whose licence is not allowed. Where what the scheduler depends on cannot be had, one line says
/// so.
pub(crate) fn check() -> Result<String, String> {
    let house = allowed(&metadata::packages(Workspace::House)?)?;
    let scheduler = match metadata::packages(Workspace::Scheduler) {
        Ok(packages) => allowed(&packages)?,
        Err(Unknown::Absent(why)) => format!(
            "skipped: licences of what nearq-scx depends on: it is not on this machine ({why}); to have it: \
             cargo fetch --manifest-path crates/nearq-scx/Cargo.toml"
        ),
        Err(unknown) => return Err(unknown.into()),
    };
    Ok(format!("{house}\nand of nearq-scx, a workspace of its own:\n{scheduler}"))
}

/// Counts the licences of a workspace's packages, or names those that are not allowed.
fn allowed(packages: &[Package]) -> Result<String, String> {
    let offenders: Vec<String> = packages.iter().filter_map(offence).collect();
    if !offenders.is_empty() {
        let allowed = ALLOWED.join(", ");
        return Err(format!("{}\nallowed are {allowed}", offenders.join("\n")));
    }
    let mut expressions: BTreeMap<&str, usize> = BTreeMap::new();
    for package in packages {
        *expressions.entry(package.licence.as_deref().unwrap_or_default()).or_default() += 1;
    }
    let list: Vec<String> = expressions
        .iter()
        .map(|(expression, count)| format!("  {count:3}  {expression}"))
        .collect();
    Ok(format!("{}\n{} packages, all with allowed licences", list.join("\n"), packages.len()))
}

/// What is wrong with a package's licence, if something is.
fn offence(package: &Package) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    let Some(expression) = &package.licence else {
        return Some(format!("{name}: says no licence"));
    };
    let is_allowed = |licence: &str| {
        let ours = package.member && (package.name.as_str(), licence) == FOR_THE_KERNEL;
        ours || ALLOWED.contains(&licence)
    };
    match spdx::is_met(expression, is_allowed) {
        Ok(true) => None,
        Ok(false) => Some(format!("{name}: {expression}: not allowed")),
        Err(reason) => Some(format!("{name}: {expression:?}: not understood: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(licence: Option<&str>) -> Package {
        Package {
            name: "some".into(),
            version: "1.2.3".into(),
            licence: licence.map(str::to_owned),
            member: false,
            uses: Vec::new(),
        }
    }

    #[test]
    fn an_offender_is_named_with_its_version_and_licence() {
        assert_eq!(offence(&package(Some("MIT OR Apache-2.0"))), None);
        assert_eq!(offence(&package(Some("(MIT OR Apache-2.0) AND Unicode-3.0"))), None);
        let text = offence(&package(Some("MPL-2.0"))).unwrap();
        assert_eq!(text, "some 1.2.3: MPL-2.0: not allowed");
        assert_eq!(offence(&package(None)).unwrap(), "some 1.2.3: says no licence");
        assert!(offence(&package(Some("MIT OR"))).unwrap().contains("not understood"));
        let refused = allowed(&[package(Some("MIT")), package(Some("MPL-2.0"))]).unwrap_err();
        assert!(refused.starts_with("some 1.2.3: MPL-2.0: not allowed\nallowed are "), "{refused}");
        let counted = allowed(&[package(Some("MIT")), package(Some("MIT"))]).unwrap();
        assert_eq!(counted, "    2  MIT\n2 packages, all with allowed licences");
    }

    #[test]
    fn what_is_for_the_kernel_is_allowed_to_the_scheduler_alone() {
        let expression = "(MIT OR Apache-2.0) AND GPL-2.0-only";
        let named =
            |name: &str, member| Package { name: name.into(), member, ..package(Some(expression)) };
        assert_eq!(offence(&named("nearq-scx", true)), None);
        assert!(offence(&named("nearq-scx", false)).is_some(), "another's of the same name");
        assert!(offence(&named("nearq-core", true)).is_some());
        let library = |licence| offence(&package(Some(licence)));
        assert_eq!(library("LGPL-2.1-only OR BSD-2-Clause"), None, "libbpf, by its other licence");
        assert!(library("LGPL-2.1-only").is_some());
    }
}

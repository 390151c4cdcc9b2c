//! Every package that is built has a licence under which it may be used and passed on without further duties.

use crate::metadata::{self, Package};
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

/// Names every package whose licence is not allowed.
pub(crate) fn check() -> Result<String, String> {
    let packages = metadata::packages()?;
    let offenders: Vec<String> = packages.iter().filter_map(offence).collect();
    if !offenders.is_empty() {
        let allowed = ALLOWED.join(", ");
        return Err(format!("{}\nallowed are {allowed}", offenders.join("\n")));
    }
    let mut expressions: BTreeMap<&str, usize> = BTreeMap::new();
    for package in &packages {
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
    match spdx::is_met(expression, |licence| ALLOWED.contains(&licence)) {
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
    }
}

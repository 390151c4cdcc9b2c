//! The layers of the workspace: which of our crates may use which. An arrow that is not in the plan is refused, so a new arrow is a
//! decision and not an accident. The rules for the sources are checked along with it: `folders`, `examples`, `errors` and `paths`.

use crate::sources;

use crate::metadata::{self, Package};
use crate::{errors, examples, folders, paths};

/// A crate, the crates that it may use, and those that its tests may use in addition.
type CrateRule = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Every crate, in an order in which no crate uses a later one: so there are no circles.
const PLAN: [CrateRule; 28] = [
    ("nearq-topology", &[], &["nearq-topology"]),
    ("nearq-home", &["nearq-topology"], &[]),
    ("nearq-command", &["nearq-topology"], &[]),
    ("nearq-platform", &["nearq-topology"], &[]),
    ("nearq-tree", &[], &[]),
    ("nearq-processes", &["nearq-home", "nearq-platform", "nearq-topology", "nearq-tree"], &[]),
    ("nearq-fleet", &["nearq-processes"], &[]),
    ("nearq-model", &["nearq-platform", "nearq-topology"], &[]),
    ("nearq-checks", &[], &[]),
    ("nearq-sim", &["nearq-platform", "nearq-topology"], &["nearq-lock", "nearq-model"]),
    ("nearq-scx-policy", &["nearq-topology"], &[]),
    (
        "nearq-policy-harness",
        &["nearq-scx-policy", "nearq-sim", "nearq-topology"],
        &["nearq-home", "nearq-platform"],
    ),
    ("nearq-lock", &["nearq-platform"], &["nearq-model", "nearq-sim", "nearq-topology"]),
    (
        "nearq-core",
        &["nearq-home", "nearq-lock", "nearq-platform", "nearq-topology"],
        &["nearq-model", "nearq-sim"],
    ),
    (
        "nearq-control",
        &["nearq-core", "nearq-lock", "nearq-platform", "nearq-topology"],
        &["nearq"],
    ),
    (
        "nearq",
        &["nearq-control", "nearq-core", "nearq-platform", "nearq-topology"],
        &["nearq-lock"],
    ),
    ("nearq-examples", &["nearq"], &[]),
    ("nearq-report", &["nearq-command", "nearq-platform", "nearq-sim", "nearq-topology"], &[]),
    (
        "nearq-experiments",
        &[
            "nearq",
            "nearq-home",
            "nearq-lock",
            "nearq-platform",
            "nearq-processes",
            "nearq-report",
            "nearq-policy-harness",
            "nearq-sim",
            "nearq-topology",
        ],
        &["nearq-model"],
    ),
    (
        "nearq-cli",
        &[
            "nearq-command",
            "nearq-control",
            "nearq-fleet",
            "nearq-home",
            "nearq-platform",
            "nearq-processes",
            "nearq-report",
            "nearq-topology",
        ],
        &["nearq"],
    ),
    (
        "nearq-soak",
        &["nearq", "nearq-platform", "nearq-report", "nearq-sim", "nearq-topology"],
        &[],
    ),
    (
        "nearq-bench",
        &[
            "nearq-command",
            "nearq-experiments",
            "nearq-processes",
            "nearq-report",
            "nearq-sim",
            "nearq-soak",
        ],
        &[],
    ),
    ("nearq-preload", &["nearq-control", "nearq-lock", "nearq-platform"], &["nearq-model"]),
    (
        "nearq-scx",
        &["nearq-command", "nearq-home", "nearq-processes", "nearq-scx-policy", "nearq-topology"],
        &[],
    ),
    ("rayon-core", &["nearq", "nearq-platform"], &[]),
    ("nearq-rayon", &["nearq-platform", "nearq-topology"], &[]),
    (
        "nearq-python",
        &["nearq", "nearq-home", "nearq-platform", "nearq-processes", "nearq-topology"],
        &[],
    ),
    ("xtask", &[], &[]),
];

/// Names every crate and every arrow that is not in the plan.
pub(crate) fn check() -> Result<String, String> {
    let members = metadata::members()?;
    let offences: Vec<String> = members.iter().flat_map(offences).collect();
    if !offences.is_empty() {
        return Err(format!("{}\nthe plan is in xtask/src/layers.rs", offences.join("\n")));
    }
    let root = sources::root();
    let offences = [
        folders::check(&root)?,
        examples::check(&root)?,
        errors::check(&root)?,
        paths::check(&root)?,
    ]
    .concat();
    if !offences.is_empty() {
        return Err(offences.join("\n"));
    }
    let arrows: usize = members.iter().map(|package| package.uses.len()).sum();
    Ok(format!(
        "{} crates, {arrows} arrows between them, all in the plan, as are those between the folders of nearq-core; examples, errors and paths in the documents are as they should be",
        members.len()
    ))
}

/// The dependencies of a crate that are not in the plan.
fn offences(package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some((_, may_use, tests_may_use)) = PLAN.iter().find(|(other, ..)| other == name) else {
        return vec![format!("{name}: no such crate in the plan")];
    };
    let refused = package.uses.iter().filter(|used| {
        let used_name = used.name.as_str();
        !(may_use.contains(&used_name) || used.tests_only && tests_may_use.contains(&used_name))
    });
    refused
        .map(|used| {
            let user = if used.tests_only { "the tests of " } else { "" };
            format!("{user}{name} may not use {}", used.name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Use;

    fn package(name: &str, uses: &[(&str, bool)]) -> Package {
        let uses =
            uses.iter().map(|&(name, tests_only)| Use { name: name.into(), tests_only }).collect();
        Package { name: name.into(), uses }
    }

    #[test]
    fn the_plan_has_no_circles() {
        for (index, (name, may_use, _)) in PLAN.iter().enumerate() {
            let earlier = |used: &&str| PLAN[..index].iter().any(|(other, ..)| other == used);
            assert!(may_use.iter().all(earlier), "{name} uses what comes later");
        }
    }

    #[test]
    fn an_arrow_that_is_not_in_the_plan_is_named() {
        assert!(offences(&package("nearq-lock", &[("nearq-platform", false)])).is_empty());
        assert!(offences(&package("nearq-lock", &[("nearq-model", true)])).is_empty());
        let up =
            offences(&package("nearq-lock", &[("nearq-core", false), ("nearq-experiments", true)]));
        assert_eq!(
            up,
            [
                "nearq-lock may not use nearq-core",
                "the tests of nearq-lock may not use nearq-experiments"
            ]
        );
        assert_eq!(
            offences(&package("nearq-core", &[("nearq-model", false)])),
            ["nearq-core may not use nearq-model"],
            "what tests may use is not for the crate itself"
        );
        assert_eq!(offences(&package("nearq-new", &[])), ["nearq-new: no such crate in the plan"]);
    }
}

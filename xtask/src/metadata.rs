//! The crates of this project, as cargo's metadata lists them.

use crate::sources;
use cargo_metadata::{DependencyKind, MetadataCommand};
use std::process::Command;

/// The crates are in several workspaces: building the loadable scheduler takes a compiler for the kernel, rayon's interface has the name
/// of a crate that the experiments use, the pools for each pod are built with rayon alone, and the Python module needs pyo3.
const WORKSPACES: [&str; 5] = [
    "Cargo.toml",
    "crates/nearq-scx/Cargo.toml",
    "compat/rayon-core/Cargo.toml",
    "compat/nearq-rayon/Cargo.toml",
    "python/Cargo.toml",
];

/// The cargo that runs this program, or the one on the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A crate of ours.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Our crates that it depends on.
    pub(crate) uses: Vec<Use>,
}

/// One crate of ours uses another.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) name: String,
    /// Whether it does so only in its tests, examples or benchmarks.
    pub(crate) tests_only: bool,
}

/// All our crates. Finding them downloads nothing.
pub(crate) fn members() -> Result<Vec<Package>, String> {
    let root = sources::root();
    let mut members = Vec::new();
    for manifest in WORKSPACES {
        let mut command = MetadataCommand::new();
        command.manifest_path(root.join(manifest)).no_deps().other_options(["--locked".to_owned()]);
        members.extend(command.exec().map_err(|error| error.to_string())?.packages);
    }
    Ok(members.into_iter().map(Package::from).collect())
}

impl From<cargo_metadata::Package> for Package {
    fn from(package: cargo_metadata::Package) -> Self {
        // A crate from a folder is ours; a crate from a registry has a source.
        let ours = package.dependencies.into_iter().filter(|used| used.source.is_none());
        let uses = ours.map(|used| Use {
            name: used.name,
            tests_only: used.kind == DependencyKind::Development,
        });
        Package { name: package.name.to_string(), uses: uses.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workspaces_are_checked() {
        let members = members().unwrap();
        let uses = |name: &str| -> Vec<(&str, bool)> {
            let package = members.iter().find(|package| package.name == name).unwrap();
            package.uses.iter().map(|used| (used.name.as_str(), used.tests_only)).collect()
        };
        assert!(uses("nearq-scx").contains(&("nearq-home", false)));
        assert!(uses("rayon-core").contains(&("nearq", false)));
        assert!(uses("nearq-rayon").contains(&("nearq-topology", false)));
        assert!(uses("nearq-python").contains(&("nearq-processes", false)));
        assert!(uses("nearq-lock").contains(&("nearq-platform", false)));
        assert!(uses("nearq-lock").contains(&("nearq-model", true)), "tests alone");
    }
}

//! What cargo knows of the workspace's packages.

use serde_json::Value;
use std::process::Command;

/// The cargo that runs this program, or the one on the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A package of the workspace or one that it depends on.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The licence expression.
    pub(crate) licence: Option<String>,
    /// Whether it is one of ours.
    pub(crate) member: bool,
    /// Our packages that it depends on.
    pub(crate) uses: Vec<Use>,
}

/// One package of the workspace uses another.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) name: String,
    /// In its tests, examples or benchmarks only.
    pub(crate) tests_only: bool,
}

/// All packages that are built for some target or feature, tests included.
pub(crate) fn packages() -> Result<Vec<Package>, String> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .output()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata failed:\n{}", errors.trim_end()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata is not understood: {error}"))?;
    Ok(read(&metadata))
}

fn read(metadata: &Value) -> Vec<Package> {
    let empty = Vec::new();
    let list = |value: &Value, key: &str| value[key].as_array().unwrap_or(&empty).clone();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let members = list(metadata, "workspace_members");
    let package = |package: &Value| Package {
        name: text(package, "name"),
        version: text(package, "version"),
        licence: package["license"].as_str().map(str::to_owned),
        member: members.contains(&package["id"]),
        // What comes from a folder is ours; what comes from a registry has a source.
        uses: list(package, "dependencies")
            .iter()
            .filter(|dependency| dependency["source"].is_null())
            .map(|dependency| Use {
                name: text(dependency, "name"),
                tests_only: dependency["kind"] == "dev",
            })
            .collect(),
    };
    list(metadata, "packages").iter().map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_and_their_uses_are_told_from_the_rest() {
        let metadata = json!({
            "workspace_members": ["path+file:///nearq-lock#0.1.0"],
            "packages": [
                {"id": "path+file:///nearq-lock#0.1.0", "name": "nearq-lock", "version": "0.1.0", "license": "MIT",
                 "dependencies": [
                    {"name": "nearq-platform", "source": null, "kind": null},
                    {"name": "nearq-model", "source": null, "kind": "dev"},
                    {"name": "loom", "source": "registry+x", "kind": "dev"},
                 ]},
                {"id": "registry+x#loom@1.0.0", "name": "loom", "version": "1.0.0", "license": null, "dependencies": []},
            ],
        });
        let packages = read(&metadata);
        assert_eq!((packages[0].member, packages[1].member), (true, false));
        assert_eq!(
            (packages[0].licence.as_deref(), packages[1].licence.as_deref()),
            (Some("MIT"), None)
        );
        let uses: Vec<_> =
            packages[0].uses.iter().map(|used| (used.name.as_str(), used.tests_only)).collect();
        assert_eq!(uses, [("nearq-platform", false), ("nearq-model", true)]);
    }
}

//! What cargo knows of the packages of a workspace.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cargo that runs this program, or the one on the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The house is two workspaces: the loadable scheduler takes a compiler for the kernel to build, and has a lock file of
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workspace {
    /// All crates but one.
    House,
    /// `nearq-scx`.
    Scheduler,
}

impl Workspace {
    fn manifest(self) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        match self {
            Self::House => root.join("Cargo.toml"),
            Self::Scheduler => root.join("crates/nearq-scx/Cargo.toml"),
        }
    }
}

/// Why packages cannot be named.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// What is depended on is not on this machine and cannot be downloaded; what cargo says of it.
    Absent(String),
    /// Something is wrong.
    Wrong(String),
}

impl From<Unknown> for String {
    fn from(unknown: Unknown) -> Self {
        let (Unknown::Absent(text) | Unknown::Wrong(text)) = unknown;
        format!("cargo metadata: {text}")
    }
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
pub(crate) fn packages(workspace: Workspace) -> Result<Vec<Package>, Unknown> {
    ask(workspace, &["--all-features"])
}

/// Our own packages of a workspace. Nothing is downloaded for that.
pub(crate) fn members(workspace: Workspace) -> Result<Vec<Package>, Unknown> {
    ask(workspace, &["--no-deps"])
}

fn ask(workspace: Workspace, options: &[&str]) -> Result<Vec<Package>, Unknown> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(options)
        .arg("--manifest-path")
        .arg(workspace.manifest())
        .output()
        .map_err(|error| Unknown::Wrong(format!("it cannot be run: {error}")))?;
    if !output.status.success() {
        return Err(unknown(&String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Unknown::Wrong(format!("its answer is not understood: {error}")))?;
    Ok(read(&metadata))
}

/// What cargo's errors mean: whether it is the network alone that is missing. That a lock file is out of date is wrong; the help beside
/// that error speaks of `--offline`.
fn unknown(errors: &str) -> Unknown {
    let signs = ["failed to download", "unable to download", "offline"];
    if !errors.contains("--locked was passed") && signs.iter().any(|sign| errors.contains(sign)) {
        let first = errors.lines().find_map(|line| line.strip_prefix("error: "));
        return Unknown::Absent(first.unwrap_or("cargo cannot download them").to_owned());
    }
    Unknown::Wrong(errors.trim_end().to_owned())
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
    fn what_is_not_downloaded_is_told_from_what_is_wrong() {
        let offline = "error: no matching package named `libbpf-rs` found\nlocation searched: an index\n\
                       As a reminder, you're using offline mode (--offline) which can sometimes cause failures\n";
        let said = "no matching package named `libbpf-rs` found";
        assert_eq!(unknown(offline), Unknown::Absent(said.into()));
        let no_network = "    Updating an index\nerror: failed to get `rustix` as a dependency of package `x`\n\n\
                          Caused by:\n  failed to download from `https://index.invalid/config.json`\n";
        let said = "failed to get `rustix` as a dependency of package `x`";
        assert_eq!(unknown(no_network), Unknown::Absent(said.into()));
        for wrong in [
            "error: cannot update the lock file Cargo.lock because --locked was passed to prevent this\n\
             help: to generate the lock file without accessing the network, remove the --locked flag and use --offline instead.\n",
            "error: failed to get `nearq-home` as a dependency of package `x`\n\nCaused by:\n  No such file\n",
        ] {
            assert!(
                matches!(unknown(wrong), Unknown::Wrong(text) if text.contains(wrong.trim_end()))
            );
        }
    }

    #[test]
    fn both_workspaces_are_where_they_are_looked_for() {
        let names = |workspace| -> Vec<String> {
            members(workspace).unwrap().into_iter().map(|package| package.name).collect()
        };
        assert!(names(Workspace::House).contains(&"nearq-core".to_owned()));
        assert_eq!(names(Workspace::Scheduler), ["nearq-scx"]);
    }

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

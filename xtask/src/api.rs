//! The public interface of `nearq`: every type of ours that one of its signatures names can be reached under `nearq::`, and no example
//! names another crate of ours, which the reader does not have.
//!
//! `nearq` exports what other crates of the workspace define. The compiler does not mind if a function returns a type that the user cannot
//! name. So this check reads rustdoc's JSON output for the crates, which the nightly toolchain writes.

use crate::sources;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::examples;

/// The crate that users add.
const FACADE: &str = "nearq";
/// The crates whose types it exports, each with its features.
const INNER: [(&str, &str); 5] = [
    ("nearq-topology", "hwloc"),
    ("nearq-home", ""),
    ("nearq-platform", ""),
    ("nearq-core", "hyper_1,futures_task_0_3"),
    ("nearq-control", "runtime,metrics"),
];
/// The paths that signatures may name although `nearq` does not export them, each with the reason.
const ALLOWED: [(&str, &str); 2] = [
    (
        "nearq_platform::platform::Platform",
        "the bound of the parameter P, which users leave at its default",
    ),
    ("nearq_platform::linux::platform::Linux", "that default"),
];
/// A type that is exported because signatures name it. The check must find it if it is left out.
const PROBE: &str = "nearq_core::user::shutdown::StillRunning";

/// Rustdoc's JSON output for each crate, by the crate's name as it appears in paths.
struct Documented(BTreeMap<String, Value>);

/// The crate that users add and those whose types it exports, each with its features.
pub(crate) fn crates() -> impl Iterator<Item = (&'static str, &'static str)> {
    INNER.into_iter().chain([(FACADE, "prometheus_client_0_25")])
}

/// Names each type that a signature has and `nearq` does not export.
pub(crate) fn check() -> Result<String, String> {
    let mut documented = BTreeMap::new();
    for (name, features) in crates() {
        documented.insert(name.replace('-', "_"), document(name, features)?);
    }
    let documented = Documented(documented);
    let exported = documented.exported();
    let missing = documented.missing(&exported);
    if !missing.is_empty() {
        return Err(format!("{}\nexport them in crates/nearq/src/lib.rs", missing.join("\n")));
    }
    let examples = documented.examples(&exported);
    if !examples.is_empty() {
        return Err(format!(
            "{}\nname nearq there; a hidden line can say what that is",
            examples.join("\n")
        ));
    }
    let mut without = exported.clone();
    if !without.remove(PROBE) || documented.missing(&without).is_empty() {
        return Err(format!("the check is blind: it does not miss {PROBE}"));
    }
    Ok(format!(
        "{} names are exported by nearq, and all that their signatures name",
        exported.len()
    ))
}

/// Runs rustdoc on a crate, and returns its JSON output.
fn document(name: &str, features: &str) -> Result<Value, String> {
    let path = rustdoc(name, features)?;
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs rustdoc on a crate with JSON output, and returns the path of the output file.
pub(crate) fn rustdoc(name: &str, features: &str) -> Result<PathBuf, String> {
    let root = sources::root();
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "rustdoc", "--quiet", "--locked", "--lib", "-p", name]);
    command.args([
        "--features",
        features,
        "--",
        "-Z",
        "unstable-options",
        "--output-format",
        "json",
    ]);
    let output = command.current_dir(&root).env_remove("RUSTFLAGS").output();
    let output = output.map_err(|error| format!("rustup cannot be run: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("rustdoc of {name} failed:\n{errors}"));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("doc").join(name.replace('-', "_") + ".json"))
}

impl Documented {
    /// The full paths of the items that `nearq` exports.
    fn exported(&self) -> BTreeSet<String> {
        let mut exported = BTreeSet::new();
        self.export(FACADE, &self.0[FACADE]["root"], &mut exported);
        exported
    }

    /// Adds an item; if it is a module, also everything in it.
    fn export(&self, krate: &str, id: &Value, exported: &mut BTreeSet<String>) {
        let document = &self.0[krate];
        if let Some(path) = path(document, id) {
            let defined_in = path.split("::").next().unwrap_or_default();
            if defined_in != krate && self.0.contains_key(defined_in) {
                if let Some(id) = self.id(&path) {
                    self.export(defined_in, &id, exported);
                }
                return;
            }
            exported.insert(path);
        }
        let inner = &document["index"][id.to_string()]["inner"];
        for item in list(&inner["module"]["items"]) {
            self.export(krate, item, exported);
        }
        let used = &inner["use"]["id"];
        if !used.is_null() {
            self.export(krate, used, exported);
        }
    }

    /// The number of an item in the JSON output for its own crate.
    fn id(&self, path: &str) -> Option<Value> {
        let krate = path.split("::").next()?;
        let document = self.0.get(krate)?;
        let numbers = document["paths"].as_object()?;
        let of_crate = |entry: &&Value| entry["crate_id"] == 0 && path == joined(entry);
        let (number, _) = numbers.iter().find(|(_, entry)| of_crate(entry))?;
        number.parse::<u64>().ok().map(Value::from)
    }

    /// What the item with this path names; `None` if its crate is not one of ours.
    fn named_by(&self, path: &str) -> Option<Named> {
        let id = self.id(path)?;
        let document = &self.0[path.split("::").next()?];
        let mut named = Named::default();
        named_by(document, &document["index"][id.to_string()], &mut named);
        Some(named)
    }

    /// The paths that signatures of exported items name, and that are neither exported nor allowed.
    fn missing(&self, exported: &BTreeSet<String>) -> Vec<String> {
        let mut missing = BTreeSet::new();
        for item in exported {
            let Some(named) = self.named_by(item) else { continue };
            for name in named.paths {
                let ours = name.split("::").next().is_some_and(|krate| self.0.contains_key(krate));
                let allowed = ALLOWED.iter().any(|(allowed, _)| *allowed == name);
                if ours && !allowed && !exported.contains(&name) {
                    missing.insert(format!("{item} names {name}, which nearq does not export"));
                }
            }
        }
        missing.into_iter().collect()
    }

    /// The lines of examples that name one of our crates other than `nearq`.
    fn examples(&self, exported: &BTreeSet<String>) -> Vec<String> {
        let mut lines = Vec::new();
        for item in exported {
            let Some(named) = self.named_by(item) else { continue };
            for docs in named.docs {
                let foreign = examples::foreign_in(&docs, FACADE).into_iter();
                lines.extend(foreign.map(|line| format!("{item}: `{line}`")));
            }
        }
        lines
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn joined(entry: &Value) -> String {
    list(&entry["path"]).iter().filter_map(Value::as_str).collect::<Vec<_>>().join("::")
}

/// The full path of an item.
fn path(document: &Value, id: &Value) -> Option<String> {
    let entry = &document["paths"][id.to_string()];
    (!entry.is_null()).then(|| joined(entry))
}

/// What the signatures and the documentation of an item and its parts contain.
#[derive(Default)]
struct Named {
    /// The paths of the types and traits that the signatures name.
    paths: BTreeSet<String>,
    /// The texts of the documentation.
    docs: Vec<String>,
}

/// Adds what is in an item, in its fields, variants and methods, and in the traits that it implements. Rustdoc's output leaves out private
/// items.
fn named_by(document: &Value, item: &Value, named: &mut Named) {
    named.docs.extend(item["docs"].as_str().map(str::to_owned));
    let inner = &item["inner"];
    let implemented = &inner["impl"];
    if implemented["is_synthetic"] == true || !implemented["blanket_impl"].is_null() {
        return;
    }
    // The items of a module are checked by themselves.
    if inner["module"].is_null() {
        names_in(document, inner, named);
    }
}

fn names_in(document: &Value, value: &Value, named: &mut Named) {
    match value {
        Value::Array(values) => {
            for value in values {
                names_in(document, value, named);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                match key.as_str() {
                    "resolved_path" | "trait" => named.paths.extend(path(document, &value["id"])),
                    "fields" | "impls" | "items" | "variants" | "tuple" => {
                        for id in list(value).iter().filter(|id| id.is_number()) {
                            named_by(document, &document["index"][id.to_string()], named);
                        }
                    }
                    _ => {}
                }
                names_in(document, value, named);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A crate with a function-like type `Kept`, a method of which returns `Made`; and `nearq`, which exports only the first or both.
    fn documented(both: bool) -> Documented {
        let returns =
            json!({"function": {"sig": {"output": {"resolved_path": {"path": "Made", "id": 4}}}}});
        let core = json!({
            "root": 0,
            "paths": {
                "1": {"crate_id": 0, "path": ["nearq_core", "kept", "Kept"]},
                "4": {"crate_id": 0, "path": ["nearq_core", "made", "Made"]},
                "9": {"crate_id": 1, "path": ["std", "vec", "Vec"]},
            },
            "index": {
                "1": {"inner": {"struct": {"kind": {"plain": {"fields": [5]}}, "impls": [2]}}},
                "2": {"inner": {"impl": {"trait": null, "items": [3], "is_synthetic": false, "blanket_impl": null}}},
                "3": {"inner": returns},
                "4": {"inner": {"struct": {"kind": "unit", "impls": []}}},
                "5": {"inner": {"struct_field": {"resolved_path": {"path": "Vec", "id": 9}}}},
            },
        });
        let uses = if both { json!([1, 2]) } else { json!([1]) };
        let facade = json!({
            "root": 0,
            "paths": {
                "0": {"crate_id": 0, "path": ["nearq"]},
                "11": {"crate_id": 1, "path": ["nearq_core", "kept", "Kept"]},
                "12": {"crate_id": 1, "path": ["nearq_core", "made", "Made"]},
            },
            "index": {
                "0": {"inner": {"module": {"items": uses}}},
                "1": {"inner": {"use": {"id": 11}}},
                "2": {"inner": {"use": {"id": 12}}},
            },
        });
        Documented(BTreeMap::from([("nearq".into(), facade), ("nearq_core".into(), core)]))
    }

    #[test]
    fn a_type_that_a_method_returns_must_be_exported() {
        let documented = documented(false);
        let missing = documented.missing(&documented.exported());
        let line =
            "nearq_core::kept::Kept names nearq_core::made::Made, which nearq does not export";
        assert_eq!(missing, [line]);
    }

    #[test]
    fn exported_types_are_not_missing() {
        let documented = documented(true);
        assert_eq!(documented.missing(&documented.exported()), [""; 0]);
    }
}

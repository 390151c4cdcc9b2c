//! The machine as JSON.

use super::{View, escaped_json};
use crate::{CpuSet, Group, Limits, Scope, Topology};
use std::fmt::{Display, Write as _};

/// The machine as one JSON object, with a line break at the end.
///
/// | key | holds |
/// |---|---|
/// | `model`, `possible`, `present`, `online` | a string or null; arrays of CPU numbers: those there may ever be, those plugged in, those in use |
/// | `cpus` | for each CPU that is plugged in `cpu`, `core`, `llc`, `node`, `package`, `die`, `cluster`, `online`, `capacity`, `kind`, and `allowed` (to the process; null without limits) |
/// | `cores`, `llcs`, `packages`, `dies`, `clusters`, `caches` | arrays of objects with `cpus` and what is known of them; sizes in bytes |
/// | `nodes` | for each node `id`, `cpus`, `memory` in bytes |
/// | `distances` | a row for each node |
/// | `pods` | for each scope an array of objects with `cpus` and `node` |
/// | `limits` | null, or `affinity`, `online`, `cpuset`, `quota`, `effective`, `parallelism`, `explain`, `notes` |
/// | `notes` | what could not be learned |
///
/// Parts name each other by their index in the array of that name; what is not known is null.
pub fn json(view: &View<'_>) -> String {
    let machine = view.topology;
    let effective = view.limits.map(Limits::effective);
    let members = [
        ("model", optional(machine.model_name().map(string))),
        ("possible", set(&(machine.possible() | machine.slots()))),
        ("present", set(machine.possible())),
        ("online", set(machine.online())),
        (
            "cpus",
            array(machine.cpus().iter().map(|cpu| {
                object(&[
                    ("cpu", cpu.id.to_string()),
                    ("core", cpu.core.to_string()),
                    ("llc", cpu.llc.to_string()),
                    ("node", optional(cpu.node)),
                    ("package", optional(cpu.package)),
                    ("die", optional(cpu.die)),
                    ("cluster", optional(cpu.cluster)),
                    ("online", cpu.online.to_string()),
                    ("capacity", optional(cpu.capacity)),
                    ("kind", optional(cpu.kind.as_deref().map(string))),
                    (
                        "allowed",
                        optional(effective.as_ref().map(|allowed| allowed.contains(cpu.id))),
                    ),
                ])
            })),
        ),
        (
            "cores",
            array(machine.cores().iter().map(|core| {
                let kind = optional(core.kind.as_deref().map(string));
                object(&[
                    ("cpus", set(&core.cpus)),
                    ("llc", core.llc.to_string()),
                    ("node", optional(core.node)),
                    ("kind", kind),
                ])
            })),
        ),
        ("llcs", array((0..machine.llcs().len()).map(|llc| llc_object(machine, llc)))),
        (
            "nodes",
            array(machine.nodes().iter().map(|node| {
                object(&[
                    ("id", node.id.to_string()),
                    ("cpus", set(&node.cpus)),
                    ("memory", optional(node.memory)),
                ])
            })),
        ),
        (
            "distances",
            array(
                (0..machine.nodes().len())
                    .map(|a| inline((0..machine.nodes().len()).map(|b| machine.distance(a, b)))),
            ),
        ),
        ("packages", groups(machine.packages())),
        ("dies", groups(machine.dies())),
        ("clusters", groups(machine.clusters())),
        (
            "caches",
            array(machine.caches().iter().map(|cache| {
                object(&[
                    ("level", cache.level.to_string()),
                    ("kind", string(&cache.kind.to_string())),
                    ("size", optional(cache.size)),
                    ("line", optional(cache.line)),
                    ("cpus", set(&cache.cpus)),
                ])
            })),
        ),
        ("pods", pods(view)),
        ("limits", optional(view.limits.map(limits))),
        ("notes", strings(machine.notes())),
    ];
    let mut out = String::from("{");
    for (index, (name, value)) in members.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(out, "{comma}\n  {}: {value}", string(name));
    }
    escaped_json(&(out + "\n}\n")).into_owned()
}

fn llc_object(machine: &Topology, index: usize) -> String {
    let llc = &machine.llcs()[index];
    let cache = llc.cache.map(|cache| &machine.caches()[cache]);
    object(&[
        ("cpus", set(&llc.cpus)),
        ("level", optional(cache.map(|cache| cache.level))),
        ("size", optional(cache.and_then(|cache| cache.size))),
        ("node", optional(llc.node)),
        ("cores", inline(llc.cores.iter())),
    ])
}

fn groups(groups: &[Group]) -> String {
    array(
        groups
            .iter()
            .map(|group| object(&[("id", optional(group.id)), ("cpus", set(&group.cpus))])),
    )
}

fn pods(view: &View<'_>) -> String {
    let of = |scope| {
        let pods = view.topology.groups(scope, view.shard_size);
        array(
            pods.iter()
                .map(|pod| object(&[("cpus", set(&pod.cpus)), ("node", optional(pod.node))])),
        )
    };
    object(&Scope::ALL.map(|scope| (scope.name(), of(scope))))
}

fn limits(limits: &Limits) -> String {
    let quota = limits.quota.as_ref().map(|quota| {
        object(&[
            ("cpus", quota.cpus.to_string()),
            ("source", string(&quota.source.to_string_lossy())),
        ])
    });
    object(&[
        ("affinity", set(&limits.affinity)),
        ("online", set(&limits.online)),
        ("cpuset", optional(limits.cpuset.as_ref().map(set))),
        ("quota", optional(quota)),
        ("effective", set(&limits.effective())),
        ("parallelism", limits.parallelism().to_string()),
        ("explain", strings(&limits.explain())),
        ("notes", strings(limits.notes())),
    ])
}

fn object(members: &[(&str, String)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}: {value}", string(name))).collect();
    format!("{{{}}}", members.join(", "))
}

/// An array with an element to a line.
fn array(values: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = values.map(|value| format!("\n    {value}")).collect();
    if lines.is_empty() { "[]".into() } else { format!("[{}\n  ]", lines.join(",")) }
}

/// An array in one line.
fn inline<T: Display>(values: impl Iterator<Item = T>) -> String {
    format!("[{}]", values.map(|value| value.to_string()).collect::<Vec<_>>().join(", "))
}

fn set(cpus: &CpuSet) -> String {
    inline(cpus.iter())
}

fn strings(texts: &[String]) -> String {
    inline(texts.iter().map(|text| string(text)))
}

fn optional<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "null".into(), |value| value.to_string())
}

/// A JSON string: quotes, backslashes and control characters escaped.
fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(string("a\"b\\c\nd\u{1}é\u{7f}"), "\"a\\\"b\\\\c\\nd\\u0001é\\u007f\"");
    }

    #[test]
    fn what_is_not_known_is_null_and_parts_are_named_by_index() {
        let machine = Topology::from_synthetic("numa:2 core:1 pu:2").unwrap();
        let text = json(&View::new(&machine));
        assert!(text.contains("\"model\": null"), "{text}");
        assert!(text.contains(
            "{\"cpu\": 3, \"core\": 1, \"llc\": 1, \"node\": 1, \"package\": 0, \"die\": null, \"cluster\": null, \
             \"online\": true, \"capacity\": null, \"kind\": null, \"allowed\": null}"
        ), "{text}");
        assert!(text.contains("[10, 20],\n    [20, 10]\n  ]"), "{text}");
        assert!(text.contains("\"limits\": null"), "{text}");
    }
}

//! Which configurations of a queue are worth trying on the machine that it runs on.
//!
//! A scope is tried if its pods, reduced to the CPUs that the queue may use, differ from those of every other scope. Each is also tried
//! with strict workers, unless there is only one pod, which workers cannot leave. Affinity off means one pod of all CPUs: it is tried if no
//! scope has the same single pod. The configuration in effect is always tried, under its own name.

use std::collections::BTreeMap;

use nearq_control::protocol::{Dump, QueueDump, QueueSettings, ScopeDump, Setting};
use nearq_topology::CpuSet;

/// The settings that make up a configuration.
pub(super) const KEYS: [&str; 3] = ["affinity", "affinity_scope", "affinity_strict"];

/// A configuration that is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    /// `cache`, `cache+strict`, `affinity off`.
    pub(super) name: String,
    /// The changes that set it.
    pub(super) changes: BTreeMap<String, String>,
    /// Its pods, as lists of CPUs.
    pub(super) pods: Vec<String>,
}

/// The configurations to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The first one is the configuration in effect, as configured.
    pub(super) configurations: Vec<Configuration>,
    /// Scopes that are not tried, each with the scope that has the same pods.
    pub(super) same: Vec<(String, String)>,
}

/// The settings of a queue that matter here.
#[derive(Clone, Debug)]
struct Now {
    affinity: bool,
    scope: String,
    strict: bool,
    configured: BTreeMap<String, String>,
}

/// The configurations to try with a queue, or why there are none.
pub(super) fn plan(
    dump: &Dump,
    queue: &QueueDump,
    settings: &QueueSettings,
) -> Result<Plan, String> {
    match queue.kind.as_str() {
        "percpu" => {
            return Err("it is a per-CPU queue: an item runs on the CPU that queued it, so it has no scope; \
                    only unbound queues can be tuned"
                .into());
        }
        "ordered" => {
            return Err("it is an ordered queue: it has one pool of all its CPUs, whatever its scope; only unbound \
                    queues that are not ordered can be tuned"
                .into());
        }
        _ => {}
    }
    let now = Now::of(settings)?;
    let cpus = CpuSet::parse_list(&queue.cpus).map_err(|error| error.to_string())?;
    let default = dump.scopes.iter().find(|scope| scope.default).map(|scope| scope.name.as_str());
    let mut different: Vec<(String, Vec<String>)> = Vec::new();
    let mut same = Vec::new();
    // Of equal scopes, the one in effect is tried, or else the default.
    let mut scopes: Vec<&ScopeDump> = dump.scopes.iter().collect();
    scopes.sort_by_key(|scope| (scope.name != now.scope, Some(scope.name.as_str()) != default));
    for scope in scopes {
        let pods = pods(scope, &cpus)?;
        match different.iter().find(|(_, others)| *others == pods) {
            Some((other, _)) => same.push((scope.name.clone(), other.clone())),
            None => different.push((scope.name.clone(), pods)),
        }
    }
    let order = |name: &str| dump.scopes.iter().position(|scope| scope.name == name);
    different.sort_by_key(|(name, _)| order(name));
    same.sort_by_key(|(name, _)| order(name));

    let mut configurations = Vec::new();
    for (scope, pods) in &different {
        configurations.push(with_affinity(scope, false, pods));
        if pods.len() > 1 {
            configurations.push(with_affinity(scope, true, pods));
        }
    }
    let one_pod = vec![cpus.to_list()];
    if !configurations.iter().any(|configuration| configuration.pods == one_pod) {
        configurations.push(Configuration {
            name: "affinity off".into(),
            changes: changes(&["0".into(), now.scope.clone(), "0".into()]),
            pods: one_pod.clone(),
        });
    }
    let is_now = |configuration: &Configuration| {
        let effective = different.iter().find(|(name, _)| *name == now.scope);
        let effective = effective.filter(|_| now.affinity).map_or(&one_pod, |(_, pods)| pods);
        let strict = configuration.name.ends_with(STRICT);
        configuration.pods == *effective && (strict == now.strict || effective.len() == 1)
    };
    let at = configurations
        .iter()
        .position(is_now)
        .ok_or_else(|| format!("its scope `{}` does not exist on this machine", now.scope))?;
    let mut control = configurations.remove(at);
    control.changes = now.configured;
    configurations.insert(0, control);
    if configurations.len() == 1 {
        return Err(format!(
            "all scopes are the same on the CPUs that it may use ({}), so there is nothing to choose from",
            queue.cpus
        ));
    }
    Ok(Plan { configurations, same })
}

const STRICT: &str = "+strict";

fn with_affinity(scope: &str, strict: bool, pods: &[String]) -> Configuration {
    Configuration {
        name: format!("{scope}{}", if strict { STRICT } else { "" }),
        changes: changes(&["1".into(), scope.into(), if strict { "1" } else { "0" }.into()]),
        pods: pods.to_vec(),
    }
}

fn changes(values: &[String; 3]) -> BTreeMap<String, String> {
    KEYS.iter().map(ToString::to_string).zip(values.iter().cloned()).collect()
}

/// The pods of a scope on these CPUs, in order.
fn pods(scope: &ScopeDump, cpus: &CpuSet) -> Result<Vec<String>, String> {
    let mut rest = cpus.clone();
    let mut pods = Vec::new();
    for pod in &scope.pods {
        let pod = CpuSet::parse_list(&pod.cpus).map_err(|error| error.to_string())?;
        let part = pod.intersection(cpus);
        if !part.is_empty() {
            rest = rest.difference(&part);
            pods.push(part);
        }
    }
    if !rest.is_empty() {
        pods.push(rest);
    }
    pods.sort_by_key(CpuSet::first);
    Ok(pods.iter().map(CpuSet::to_list).collect())
}

impl Now {
    fn of(settings: &QueueSettings) -> Result<Self, String> {
        let setting = |key: &str| -> Result<&Setting, String> {
            let found = settings.settings.iter().find(|setting| setting.key == key);
            let found = found.ok_or_else(|| format!("it has no setting `{key}`"))?;
            if !found.writable {
                return Err(format!("its setting `{key}` cannot be changed"));
            }
            Ok(found)
        };
        let on = |setting: &Setting| setting.effective.starts_with('1');
        let [affinity, scope, strict] = [setting(KEYS[0])?, setting(KEYS[1])?, setting(KEYS[2])?];
        if !on(affinity) && affinity.configured.starts_with('1') {
            return Err("the process ignores all scopes (its own `affinity` is 0), so there is nothing to choose from; \
                        `nearq set PID affinity=1` changes that"
                .into());
        }
        Ok(Self {
            affinity: on(affinity),
            scope: scope_in(&scope.effective).to_owned(),
            strict: on(strict),
            configured: [affinity, scope, strict]
                .map(|setting| (setting.key.clone(), setting.configured.clone()))
                .into(),
        })
    }
}

/// The scope that a value stands for: `cache_shard` for `default (cache_shard)`. `(off)` follows if affinity is off.
fn scope_in(words: &str) -> &str {
    let words = words.strip_suffix(" (off)").unwrap_or(words);
    words.split_once('(').map_or(words, |(_, scope)| scope.trim_end_matches(')'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::PodDump;

    fn scope(name: &str, pods: &[&str]) -> ScopeDump {
        let pod = |cpus: &&str| PodDump { cpus: (*cpus).into(), node: 0 };
        ScopeDump {
            name: name.into(),
            default: name == "cache_shard",
            pods: pods.iter().map(pod).collect(),
            cpu_pod: Vec::new(),
        }
    }

    /// Eight CPUs: two caches of two cores of two CPUs, one node.
    fn dump() -> Dump {
        Dump {
            scopes: vec![
                scope("cpu", &["0", "1", "2", "3", "4", "5", "6", "7"]),
                scope("smt", &["0-1", "2-3", "4-5", "6-7"]),
                scope("cache_shard", &["0-3", "4-7"]),
                scope("cache", &["0-3", "4-7"]),
                scope("numa", &["0-7"]),
                scope("system", &["0-7"]),
            ],
            ..Dump::default()
        }
    }

    fn queue(kind: &str, cpus: &str) -> QueueDump {
        QueueDump { kind: kind.into(), cpus: cpus.into(), ..QueueDump::default() }
    }

    fn settings(affinity: &str, scope: [&str; 2], strict: &str) -> QueueSettings {
        let setting = |key: &str, configured: &str, effective: &str| Setting {
            key: key.into(),
            configured: configured.into(),
            effective: effective.into(),
            writable: true,
        };
        QueueSettings {
            settings: vec![
                setting("affinity", affinity, affinity),
                setting("affinity_scope", scope[0], scope[1]),
                setting("affinity_strict", strict, strict),
            ],
            ..QueueSettings::default()
        }
    }

    const DEFAULT: [&str; 2] = ["default", "default (cache_shard)"];

    fn names(plan: &Plan) -> Vec<&str> {
        plan.configurations.iter().map(|configuration| configuration.name.as_str()).collect()
    }

    #[test]
    fn scopes_with_equal_pods_are_tried_once() {
        let plan = plan(&dump(), &queue("unbound", "0-7"), &settings("1", DEFAULT, "0")).unwrap();
        let expected =
            ["cache_shard", "cpu", "cpu+strict", "smt", "smt+strict", "cache_shard+strict", "numa"];
        assert_eq!(names(&plan), expected);
        let same = [("cache", "cache_shard"), ("system", "numa")];
        assert_eq!(plan.same, same.map(|(one, other)| (one.into(), other.into())));
        assert_eq!(plan.configurations[0].changes["affinity_scope"], "default");
        assert_eq!(plan.configurations[0].pods, ["0-3", "4-7"]);
        let strict = &plan.configurations[4].changes;
        assert_eq!(strict.values().collect::<Vec<_>>(), ["1", "smt", "1"]);
    }

    #[test]
    fn the_current_configuration_is_tried_under_its_own_name() {
        let now = |scope: &str, strict: &str| {
            let settings = settings("1", [scope, scope], strict);
            plan(&dump(), &queue("unbound,S", "0-7"), &settings).unwrap()
        };
        let cache = now("cache", "1");
        assert_eq!(cache.configurations[0].name, "cache+strict");
        assert!(!names(&cache).contains(&"cache_shard"));
        let system = now("system", "1");
        assert_eq!(
            system.configurations[0].name, "system",
            "with one pod, strict makes no difference"
        );
        assert_eq!(
            system.configurations[0].changes["affinity_strict"], "1",
            "the value is unchanged"
        );
    }

    #[test]
    fn without_affinity_all_cpus_are_one_pod() {
        let words = ["default", "default (cache_shard) (off)"];
        let off = plan(&dump(), &queue("unbound", "0-7"), &settings("0", words, "0")).unwrap();
        assert_eq!(off.configurations[0].name, "numa");
        assert_eq!(off.configurations[0].changes["affinity"], "0");
        let mut few = dump();
        few.scopes.truncate(4);
        let tried = plan(&few, &queue("unbound", "0-7"), &settings("1", DEFAULT, "0")).unwrap();
        assert_eq!(*names(&tried).last().unwrap(), "affinity off");
        let off = plan(&few, &queue("unbound", "0-7"), &settings("0", DEFAULT, "0")).unwrap();
        assert_eq!(off.configurations[0].name, "affinity off");
    }

    #[test]
    fn the_scope_is_parsed_from_the_shown_value() {
        for words in ["cache", "default (cache)", "cache (off)", "default (cache) (off)"] {
            assert_eq!(scope_in(words), "cache", "{words}");
        }
    }

    #[test]
    fn only_pods_on_the_queues_cpus_count() {
        let part = plan(&dump(), &queue("unbound", "0-1,4"), &settings("1", DEFAULT, "0")).unwrap();
        assert_eq!(part.configurations[0].pods, ["0-1", "4"]);
        assert_eq!(
            names(&part),
            ["cache_shard", "cpu", "cpu+strict", "cache_shard+strict", "numa"]
        );
        let one = plan(&dump(), &queue("unbound", "3"), &settings("1", DEFAULT, "0")).unwrap_err();
        assert!(one.contains("all scopes are the same") && one.contains("(3)"), "{one}");
    }

    #[test]
    fn untunable_queues_are_refused_with_a_reason() {
        let refused = |kind: &str, settings: &QueueSettings| {
            plan(&dump(), &queue(kind, "0-7"), settings).unwrap_err()
        };
        let usual = settings("1", DEFAULT, "0");
        assert!(refused("percpu", &usual).contains("per-CPU"));
        assert!(refused("ordered", &usual).contains("ordered"));
        let mut fixed = usual.clone();
        fixed.settings[1].writable = false;
        assert!(refused("unbound", &fixed).contains("`affinity_scope` cannot be changed"));
        let mut ignored = usual.clone();
        ignored.settings[0].effective = "0".into();
        assert!(refused("unbound", &ignored).contains("set PID affinity=1"));
    }
}

//! What only the program itself can set, when it builds a queue or a runtime: the calls of the builders that correspond to no setting of
//! [`settings_table`](crate::settings_table).

/// A call of a builder.
#[derive(Clone, Copy, Debug)]
pub struct BuilderSetting {
    /// The call.
    pub api: &'static str,
    /// What it takes, in words.
    pub values: &'static str,
    /// What it does, in a sentence.
    pub what: &'static str,
}

const fn call(api: &'static str, values: &'static str, what: &'static str) -> BuilderSetting {
    BuilderSetting { api, values, what }
}

const NOTHING: &str = "nothing";
const HOOK: &str = "a function";

/// The calls, those of queues first.
pub const BUILDER_SETTINGS: &[BuilderSetting] = &[
    call("WorkqueueBuilder::highpri", NOTHING, "As nice -20: the workers are the most favoured"),
    call(
        "WorkqueueBuilder::freezable",
        NOTHING,
        "`Runtime::freeze` holds the queue's items back until `Runtime::thaw`",
    ),
    call(
        "WorkqueueBuilder::cpu_intensive",
        NOTHING,
        "Items of a per-CPU queue compute for long: they do not count as running, so others start beside them",
    ),
    call(
        "WorkqueueBuilder::rescuer",
        NOTHING,
        "The queue has a thread of its own, which runs its items if no worker can be started",
    ),
    call(
        "RuntimeBuilder::stack_size",
        "bytes; the system's default if not set",
        "The stack size of every thread",
    ),
    call(
        "RuntimeBuilder::thread_limit",
        "a number; 4096 if not set",
        "The most worker threads that the runtime may have",
    ),
    call(
        "RuntimeBuilder::idle_timeout",
        "a duration; 5 minutes if not set",
        "How long a worker sleeps before it ends",
    ),
    call(
        "RuntimeBuilder::cache_shard_size",
        "a number of cores; 8 if not set",
        "The average size of a shard of the scope cache_shard",
    ),
    call("RuntimeBuilder::on_worker_start", HOOK, "Each worker calls it when it starts"),
    call("RuntimeBuilder::on_worker_stop", HOOK, "Each worker calls it before it ends"),
    call(
        "RuntimeBuilder::on_stall",
        HOOK,
        "It is called instead of the warning when work waits and nothing has started for long (watchdog_thresh)",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::settings_table;

    /// The calls of a builder that set nothing, and `kind`, which is `per_cpu` and `ordered` in one.
    const OTHERS: [&str; 4] = ["build", "build_global", "fmt", "kind"];

    /// The calls of both builders, from the record of the public interface.
    fn calls() -> BTreeSet<String> {
        let record = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/interface/nearq-core.txt");
        let record = std::fs::read_to_string(record).expect("the record can be read");
        let mut calls = BTreeSet::new();
        for line in record.lines() {
            let Some(path) = line.strip_prefix("pub fn nearq_core::") else { continue };
            let path = path.split('(').next().unwrap_or_default();
            let parts: Vec<&str> = path.split("::").collect();
            let (Some(name), Some(owner)) = (parts.last(), path.split('<').next()) else {
                continue;
            };
            if owner.ends_with("Builder") && owner != "TaskBuilder" && !OTHERS.contains(name) {
                calls.insert(format!("{owner}::{name}"));
            }
        }
        calls
    }

    #[test]
    fn every_call_of_the_builders_is_in_one_of_the_tables() {
        let calls = calls();
        assert!(calls.contains("RuntimeBuilder::spin"), "the record is understood: {calls:?}");
        let here: BTreeSet<&str> = BUILDER_SETTINGS.iter().map(|call| call.api).collect();
        assert_eq!(here.len(), BUILDER_SETTINGS.len(), "each occurs once");
        let settings: BTreeSet<&str> = settings_table::all().map(|desc| desc.api).collect();
        for call in &calls {
            let setter = call.replace("Builder::", "::set_");
            let is_setting = [call, &setter].iter().any(|api| settings.contains(api.as_str()));
            assert!(
                is_setting != here.contains(call.as_str()),
                "{call} must be in one of the two tables"
            );
        }
        let gone: Vec<&&str> = here.iter().filter(|api| !calls.contains(**api)).collect();
        assert!(gone.is_empty(), "no builder has {gone:?}");
    }
}

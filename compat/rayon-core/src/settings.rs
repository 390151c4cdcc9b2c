//! What the environment sets for the queues of pools, and their names.
//!
//! | variable | value |
//! |---|---|
//! | `RAYON_NUM_THREADS`, or else `RAYON_RS_NUM_CPUS` | the size of pools whose builder sets none; 0 means the default size |
//! | `NEARQ_RAYON_SCOPE` | `cpu`, `smt`, `cache`, `cache_shard`, `numa` or `system` |
//! | `NEARQ_RAYON_STRICT` | `1`: workers stay in the scope's pod; `0`: they may go elsewhere |
//! | `NEARQ_RAYON_NICE` | the nice value of the workers |
//!
//! While the program runs, `nearq set` changes the last three for each pool.

use std::str::FromStr;

use nearq::{AffinityScope, WorkqueueBuilder};
use nearq_platform::{Linux, LockPlatform};

/// The value of a variable, if it is set, not empty, and valid. An invalid value is reported once.
fn read<T>(name: &str, allowed: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.trim().is_empty())?;
    let value = parse(text.trim());
    if value.is_none() {
        let why = "is invalid and counts as not set; it must be";
        Linux::warn_once(name, &format!("{name}={text} {why} {allowed}"));
    }
    value
}

/// Sets what the environment says.
pub(crate) fn apply(mut builder: WorkqueueBuilder) -> WorkqueueBuilder {
    let scopes = "cpu, smt, cache, cache_shard, numa or system";
    let scope = read("NEARQ_RAYON_SCOPE", scopes, |text| text.parse::<AffinityScope>().ok());
    if let Some(scope) = scope {
        builder = builder.affinity_scope(scope);
    }
    let strict = read("NEARQ_RAYON_STRICT", "0 or 1", |text| match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    });
    if let Some(strict) = strict {
        builder = builder.affinity_strict(strict);
    }
    let nice = read("NEARQ_RAYON_NICE", "a number from -20 to 19", |text| {
        text.parse().ok().filter(|nice| (-20..=19).contains(nice))
    });
    if let Some(nice) = nice {
        builder = builder.nice(nice);
    }
    builder
}

/// The size of a pool whose builder sets none, if the environment does.
pub(crate) fn size_set() -> Option<usize> {
    let variable = |name| std::env::var(name).ok().and_then(|text| usize::from_str(&text).ok());
    let size = variable("RAYON_NUM_THREADS").or_else(|| variable("RAYON_RS_NUM_CPUS"));
    size.filter(|size| *size > 0)
}

/// How many CPUs the process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The name of a pool's queue, from the name of its first thread; none if nothing is left of that.
pub(crate) fn queue_name(thread: &str) -> Option<String> {
    let name =
        thread.trim_end_matches(|last: char| last.is_ascii_digit() || "-_#:/ ".contains(last));
    (!name.is_empty()).then(|| name.to_owned())
}

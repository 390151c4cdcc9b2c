//! What the environment sets for the queues of pools, and their names.
//!
//! | variable | value |
//! |---|---|
//! | `RAYON_NUM_THREADS`, `RAYON_RS_NUM_CPUS` | the size of pools whose builder sets none; 0 is the default |
//! | `NEARQ_RAYON_SCOPE` | `cpu`, `smt`, `cache`, `cache_shard`, `numa` or `system` |
//! | `NEARQ_RAYON_STRICT` | `1`: workers stay in the scope's pod; `0`: they may go elsewhere |
//! | `NEARQ_RAYON_NICE` | the nice value of the workers |
//!
//! While the program runs, `nearq set` changes the last three for each pool.

use std::str::FromStr;

use nearq::{AffinityScope, WorkqueueBuilder};

/// The value of a variable, if it is set and valid. An invalid value is reported.
fn read<T: FromStr>(name: &str, allowed: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let value = text.trim().parse().ok();
    if value.is_none() {
        eprintln!("rayon: {name}={text} is invalid and counts as not set; it must be {allowed}");
    }
    value
}

/// Sets what the environment says.
pub(crate) fn apply(mut builder: WorkqueueBuilder) -> WorkqueueBuilder {
    let scopes = "cpu, smt, cache, cache_shard, numa or system";
    if let Some(scope) = read::<AffinityScope>("NEARQ_RAYON_SCOPE", scopes) {
        builder = builder.affinity_scope(scope);
    }
    if let Some(strict) = read::<u8>("NEARQ_RAYON_STRICT", "0 or 1") {
        builder = builder.affinity_strict(strict != 0);
    }
    if let Some(nice) = read::<i32>("NEARQ_RAYON_NICE", "a number from -20 to 19") {
        builder = builder.nice(nice.clamp(-20, 19));
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

//! The affinity scopes: how CPUs are grouped into pods.

use crate::ParseError;
use std::fmt;
use std::str::FromStr;

/// How CPUs are grouped into pods, finest first.
///
/// Scopes may be added: use [`AffinityScope::ALL`] for all of them. Displays and parses as the kernel's name ([`AffinityScope::name`]).
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// use nearq::topology::AffinityScope;
///
/// assert_eq!("cache_shard".parse::<AffinityScope>()?, AffinityScope::CacheShard);
/// assert!(AffinityScope::Cpu < AffinityScope::System);
/// # Ok::<(), nearq::topology::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AffinityScope {
    /// Every CPU is a pod.
    Cpu,
    /// The CPUs of a core.
    Smt,
    /// Whole cores of one last-level cache, about [`DEFAULT_SHARD_SIZE`](crate::DEFAULT_SHARD_SIZE) of them.
    CacheShard,
    /// The CPUs of a last-level cache.
    Cache,
    /// The CPUs of a NUMA node.
    Numa,
    /// All CPUs.
    System,
}

impl AffinityScope {
    /// Every scope, finest first.
    pub const ALL: &'static [Self] =
        &[Self::Cpu, Self::Smt, Self::CacheShard, Self::Cache, Self::Numa, Self::System];

    /// The kernel's name of the scope, as the attribute `affinity_scope` of a kernel workqueue takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Smt => "smt",
            Self::CacheShard => "cache_shard",
            Self::Cache => "cache",
            Self::Numa => "numa",
            Self::System => "system",
        }
    }

    /// The names of all scopes, finest first, as a list for messages: `cpu, smt, cache_shard, cache, numa, system`.
    #[doc(hidden)]
    pub fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|scope| scope.name()).collect();
        names.join(", ")
    }

    /// What a pod of the scope is, in words: singular and plural.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::AffinityScope;
    ///
    /// assert_eq!(AffinityScope::Cache.pod_nouns(), ("last-level cache", "last-level caches"));
    /// ```
    pub const fn pod_nouns(self) -> (&'static str, &'static str) {
        match self {
            Self::Cpu => ("CPU", "CPUs"),
            Self::Smt => ("core", "cores"),
            Self::CacheShard => ("shard of a last-level cache", "shards of last-level caches"),
            Self::Cache => ("last-level cache", "last-level caches"),
            Self::Numa => ("NUMA node", "NUMA nodes"),
            Self::System => ("whole machine", "whole machines"),
        }
    }
}

impl fmt::Display for AffinityScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for AffinityScope {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::ALL.iter().copied().find(|scope| scope.name() == text).ok_or_else(|| {
            ParseError::new(text, text, "no such scope", &format!("one of {}", Self::names()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_finest_to_coarsest() {
        for pair in AffinityScope::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for &scope in AffinityScope::ALL {
            assert_eq!(scope.to_string().parse::<AffinityScope>(), Ok(scope));
        }
    }

    #[test]
    fn an_unknown_scope_is_named_with_the_allowed_ones() {
        assert_eq!(
            "llc".parse::<AffinityScope>().unwrap_err().to_string(),
            "\"llc\": no such scope; give one of cpu, smt, cache_shard, cache, numa, system"
        );
    }
}

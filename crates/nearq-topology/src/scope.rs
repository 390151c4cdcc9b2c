//! The affinity scopes: how CPUs are grouped into pods.

use crate::ParseError;
use std::fmt;
use std::str::FromStr;

/// How CPUs are grouped into pods, finest first.
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// use nearq::topology::Scope;
///
/// assert_eq!("cache_shard".parse::<Scope>()?, Scope::CacheShard);
/// assert!(Scope::Cpu < Scope::System);
/// # Ok::<(), nearq::topology::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
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

impl Scope {
    /// Every scope, finest first.
    pub const ALL: [Self; 6] =
        [Self::Cpu, Self::Smt, Self::CacheShard, Self::Cache, Self::Numa, Self::System];

    /// The kernel's name of the scope.
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
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scope {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            ParseError::new(text, text, "no such scope", &format!("one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_finest_to_coarsest() {
        for pair in Scope::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for scope in Scope::ALL {
            assert_eq!(scope.to_string().parse::<Scope>(), Ok(scope));
        }
    }

    #[test]
    fn an_unknown_scope_is_named_with_the_allowed_ones() {
        assert_eq!(
            "llc".parse::<Scope>().unwrap_err().to_string(),
            "\"llc\": no such scope; give one of cpu, smt, cache_shard, cache, numa, system"
        );
    }
}

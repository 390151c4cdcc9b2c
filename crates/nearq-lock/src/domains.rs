//! Domains: the groups of CPUs by which waiters queue up and readers count themselves.
//!
//! A domain is a last-level cache, unless the environment variable `NEARQ_LOCK_DOMAINS` says that it is a node or a package. It is read when
//! the first thread of the process waits, and holds for all locks from then on: queues and counts have a line for each domain.

use nearq_platform::{CacheInfo, LockPlatform, read_setting};

/// The maximum number of domains. If there are more caches, neighbouring ones share domains.
pub(crate) const MOST_DOMAINS: usize = 32;

/// What a domain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cache,
    Node,
    Package,
}

impl Kind {
    /// The kind that the environment names.
    fn at_start<P: LockPlatform>() -> Self {
        let parse = |text: &str| match text {
            "cache" | "l3" => Ok(Kind::Cache),
            "node" => Ok(Kind::Node),
            "package" => Ok(Kind::Package),
            _ => Err("cache (or l3), node or package".to_owned()),
        };
        read_setting::<P, _>("NEARQ_LOCK_DOMAINS", "Using cache", parse)
            .ok()
            .flatten()
            .unwrap_or(Kind::Cache)
    }

    /// What is the same for the caches of a domain.
    fn of(self, index: usize, cache: &CacheInfo) -> usize {
        match self {
            Kind::Cache => index,
            Kind::Node => cache.node,
            Kind::Package => cache.package,
        }
    }

    /// The domain of each of these caches, by number, and how many domains there are: at least one. They are in the order of the caches.
    fn group(self, caches: &[CacheInfo]) -> (Box<[u8]>, usize) {
        let mut groups = Vec::new();
        let mut place = |group| {
            groups.iter().position(|known| *known == group).unwrap_or_else(|| {
                groups.push(group);
                groups.len() - 1
            })
        };
        let caches = caches.iter().enumerate();
        let places: Vec<usize> =
            caches.map(|(index, cache)| place(self.of(index, cache))).collect();
        let count = groups.len().clamp(1, MOST_DOMAINS);
        let domain = |place: &usize| (place * count / groups.len()) as u8;
        (places.iter().map(domain).collect(), count)
    }
}

/// The domain of each of these caches, by number, and how many domains there are, as the environment of the process says.
pub(crate) fn of_caches<P: LockPlatform>(caches: &[CacheInfo]) -> (Box<[u8]>, usize) {
    Kind::at_start::<P>().group(caches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(caches: usize) -> Vec<CacheInfo> {
        let cache = |index: usize| {
            let (node, package) = (index / 2, index / 4);
            CacheInfo { node, memory: Some(node), package, cpus: 2 }
        };
        (0..caches).map(cache).collect()
    }

    #[test]
    fn caches_are_grouped_by_node_or_package() {
        let group = |kind: Kind, caches| {
            let (domains, count) = kind.group(&machine(caches));
            (domains.to_vec(), count)
        };
        assert_eq!(group(Kind::Cache, 3), (vec![0, 1, 2], 3));
        assert_eq!(group(Kind::Node, 8), (vec![0, 0, 1, 1, 2, 2, 3, 3], 4));
        assert_eq!(group(Kind::Package, 8), (vec![0, 0, 0, 0, 1, 1, 1, 1], 2));
        assert_eq!(group(Kind::Node, 0), (vec![], 1));
        let (domains, count) = group(Kind::Cache, 64);
        assert_eq!((count, domains[0], domains[1], domains[2], domains[63]), (32, 0, 0, 1, 31));
    }
}

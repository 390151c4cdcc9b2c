//! Which CPUs belong together, if every CPU says so for itself and some may be wrong.
//!
//! A set is claimed by each of its CPUs that says that these CPUs belong together. The sets that most of their CPUs claim come first, and
//! later ones get the CPUs that are left. A set that more of its CPUs contradict than claim is used only for the CPUs that claim it, and
//! not at all if nothing better was claimed.

use crate::CpuSet;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A set of CPUs that are claimed to belong together.
#[derive(Clone, Debug)]
struct Claim<T> {
    /// The CPUs that claim this set.
    by: CpuSet,
    /// What else is claimed about them; the first claim counts.
    what: T,
}

/// Sets of CPUs of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Claims<T> {
    sets: BTreeMap<CpuSet, Claim<T>>,
}

impl<T> Default for Claims<T> {
    fn default() -> Self {
        Self { sets: BTreeMap::new() }
    }
}

/// The sets that were agreed on.
#[derive(Debug)]
pub(crate) struct Agreement<T> {
    /// They do not overlap, and are in order of their first CPU.
    pub sets: Vec<(CpuSet, T)>,
    /// The CPUs that are in several of the claimed sets.
    pub overlap: CpuSet,
    /// The CPUs whose claims were not followed.
    pub dropped: CpuSet,
}

impl<T> Claims<T> {
    /// Adds the claim of some CPUs that they belong together with all of `cpus`.
    pub(crate) fn add(&mut self, cpus: CpuSet, by: &CpuSet, what: impl FnOnce() -> T) {
        let claim =
            self.sets.entry(cpus).or_insert_with(|| Claim { by: CpuSet::new(), what: what() });
        claim.by = &claim.by | by;
    }

    /// Adds the claim of the machine, on behalf of all these CPUs, that they belong together.
    pub(crate) fn add_whole(&mut self, cpus: CpuSet, what: T) {
        let by = cpus.clone();
        self.add(cpus, &by, || what);
    }

    /// What else is claimed about the sets.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.sets.values_mut().map(|claim| &mut claim.what)
    }

    /// The CPUs that claim something.
    pub(crate) fn claimants(&self) -> CpuSet {
        self.sets.values().fold(CpuSet::new(), |all, claim| &all | &claim.by)
    }

    /// The sets that the CPUs agree on, within `possible`. If a CPU of `claimants` is in a set and does not claim it, it contradicts the
    /// set.
    pub(crate) fn agree(self, possible: &CpuSet, claimants: &CpuSet) -> Agreement<T> {
        let mut within = Self::default();
        for (cpus, claim) in self.sets {
            within.add(&cpus & possible, &claim.by, || claim.what);
        }
        let mut ranked: Vec<_> = within
            .sets
            .into_iter()
            .filter(|(cpus, _)| !cpus.is_empty())
            .map(|(cpus, claim)| {
                let votes = (&cpus & &claim.by).len();
                let against = (&(&cpus & claimants) - &claim.by).len();
                (votes as isize - against as isize, votes, cpus, claim)
            })
            .collect();
        // Already sorted by set, which decides if the votes are equal.
        ranked.sort_by_key(|(net, votes, ..)| Reverse((*net, *votes)));
        let mut agreement =
            Agreement { sets: Vec::new(), overlap: CpuSet::new(), dropped: CpuSet::new() };
        let mut taken = CpuSet::new();
        for (net, _, cpus, claim) in ranked {
            agreement.overlap = &agreement.overlap | &(&cpus & &taken);
            let mut rest = &cpus - &taken;
            if net < 0 {
                rest = if agreement.sets.is_empty() { CpuSet::new() } else { &rest & &claim.by };
            }
            if rest != cpus {
                agreement.dropped = &agreement.dropped | &claim.by;
            }
            if !rest.is_empty() {
                taken = &taken | &rest;
                agreement.sets.push((rest, claim.what));
            }
        }
        agreement.sets.sort_by_key(|(cpus, _)| cpus.first());
        agreement
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// The result for the sets that CPUs claim, each with the CPUs that claim it.
    fn agree(claims: &[(&str, &str)]) -> (Vec<String>, String) {
        let mut all = Claims::default();
        for (cpus, by) in claims {
            all.add(set(cpus), &set(by), || ());
        }
        let claimants = all.claimants();
        let agreement = all.agree(&CpuSet::all(64), &claimants);
        (
            agreement.sets.iter().map(|(cpus, ())| cpus.to_list()).collect(),
            agreement.dropped.to_list(),
        )
    }

    #[test]
    fn one_wrong_claim_does_not_outvote_the_others() {
        for (claims, sets, dropped) in [
            // Too large, and first in order.
            (
                &[("0-7", "0"), ("0-1", "1"), ("2-3", "2-3"), ("4-7", "4-7")][..],
                &["0-1", "2-3", "4-7"][..],
                "0",
            ),
            // Too small.
            (&[("0", "0"), ("0-7", "1-7")], &["0-7"], "0"),
            // Both siblings are wrong.
            (
                &[("0-7", "0-1"), ("2-3", "2-3"), ("4-5", "4-5"), ("6-7", "6-7")],
                &["0-1", "2-3", "4-5", "6-7"],
                "0-1",
            ),
            // CPUs about which nothing is known contradict nothing.
            (&[("0-3", "0")], &["0-3"], ""),
            // All contradict each other.
            (&[("0-2", "0"), ("0-3", "1"), ("0-4", "2"), ("1-4", "3"), ("0-5", "4")], &[], "0-4"),
        ] {
            let (found, not_followed) = agree(claims);
            assert_eq!(
                (found, not_followed.as_str()),
                (sets.iter().map(ToString::to_string).collect(), dropped),
                "{claims:?}"
            );
        }
    }
}

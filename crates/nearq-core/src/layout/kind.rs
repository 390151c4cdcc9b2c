//! Which attributes each kind of queue can have.

use crate::base::error::Error;
use crate::base::ids::QueueKind;
use crate::layout::attributes::Attributes;
use crate::layout::domain::{Bounds, DEFAULT_MAX_ACTIVE, DEFAULT_MIN_ACTIVE};

impl QueueKind {
    /// The limit of a queue of this kind whose builder sets none.
    pub(crate) fn default_bounds(self) -> Bounds {
        match self {
            QueueKind::Ordered => Bounds { max_active: 1, min_active: 1 },
            QueueKind::PerCpu | QueueKind::Unbound => {
                Bounds { max_active: DEFAULT_MAX_ACTIVE, min_active: DEFAULT_MIN_ACTIVE }
            }
        }
    }

    /// Whether a queue of this kind has a `max_active` that can be set.
    pub(crate) fn check_max_active(self) -> Result<(), Error> {
        self.check_limit("max_active", self != QueueKind::Ordered)
    }

    /// Whether a queue of this kind has a `min_active`: whether it counts by node.
    pub(crate) fn check_min_active(self) -> Result<(), Error> {
        self.check_limit("min_active", self == QueueKind::Unbound)
    }

    fn check_limit(self, attribute: &'static str, has: bool) -> Result<(), Error> {
        if has { Ok(()) } else { Err(Error::Unsupported { attribute, kind: self }) }
    }

    /// Whether a queue of this kind can have the attributes.
    pub(crate) fn check(self, attributes: &Attributes) -> Result<(), Error> {
        if self != QueueKind::PerCpu {
            return Ok(());
        }
        let Attributes {
            affinity_scope,
            affinity_strict,
            localize,
            helping,
            affinity_enabled,
            cpumask,
            nice: _,
            sched_idle: _,
            time_slice: _,
            max_active: _,
            min_active: _,
            memory,
        } = attributes;
        let free = Attributes::default();
        let set = [
            (*affinity_scope != free.affinity_scope, "an affinity scope"),
            (*affinity_strict != free.affinity_strict, "affinity_strict"),
            (*localize != free.localize, "localize"),
            (*helping != free.helping, "helping"),
            (*affinity_enabled != free.affinity_enabled, "affinity_enabled"),
            (*cpumask != free.cpumask, "a CPU mask"),
            (*memory != free.memory, "where memory comes from"),
        ];
        let wrong = set.into_iter().find(|(set, _)| *set);
        wrong.map_or(Ok(()), |(_, what)| {
            Err(Error::Unsupported { attribute: what, kind: QueueKind::PerCpu })
        })
    }
}

#[cfg(test)]
mod tests {
    use nearq_topology::{AffinityScope, CpuSet};

    use super::*;

    #[test]
    fn of_a_per_cpu_queue_only_nice_can_be_set() {
        type Change = fn(&mut Attributes);
        let changes: [(Change, Option<&str>); 7] = [
            (
                |attributes| attributes.affinity_scope = Some(AffinityScope::Cpu),
                Some("an affinity scope"),
            ),
            (|attributes| attributes.affinity_strict = true, Some("affinity_strict")),
            (|attributes| attributes.localize = true, Some("localize")),
            (|attributes| attributes.helping = false, Some("helping")),
            (|attributes| attributes.affinity_enabled = false, Some("affinity_enabled")),
            (|attributes| attributes.cpumask = Some(CpuSet::single(0)), Some("a CPU mask")),
            (|attributes| attributes.nice = 3, None),
        ];
        for (change, wrong) in changes {
            let mut attributes = Attributes::default();
            change(&mut attributes);
            assert_eq!(
                QueueKind::PerCpu.check(&attributes).err(),
                wrong.map(|attribute| Error::Unsupported { attribute, kind: QueueKind::PerCpu })
            );
            assert_eq!(QueueKind::Unbound.check(&attributes), Ok(()));
        }
    }
}

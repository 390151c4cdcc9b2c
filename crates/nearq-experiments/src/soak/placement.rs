//! Where an item may run: the runtime's promises about pods and masks, computed a second time from the documentation.
//!
//! The promises are checked only where they are unconditional. While a change is being made, an item may go by the old
//! attributes or by the new ones. Where what the process may use changes behind the runtime's back, it follows within a
//! second, and the system moves threads whose CPUs are gone to wherever there are some: of such programs nothing is asked.

use nearq::{Attributes, CpuSet, Scope};
use nearq_topology::Topology;

/// The runtime's own settings, as far as they decide where items run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    pub(crate) scope: Scope,
    pub(crate) affinity: bool,
}

/// The machine as the program was given it.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) topology: Topology,
    pub(crate) shard_size: usize,
    /// What the process may use, if that never changes.
    pub(crate) allowed: Option<CpuSet>,
}

/// The worker that runs an item, and the CPU.
#[derive(Clone, Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) name: &'a str,
    pub(crate) pod: &'a CpuSet,
    pub(crate) cpu: usize,
}

impl Ground {
    /// Whether `runner` may run what was queued under any of `attributes` and `defaults`, for `cpu` if that is known.
    /// If not: what was expected.
    pub(crate) fn check(
        &self,
        runner: &Runner<'_>,
        attributes: &[Attributes],
        defaults: &[Defaults],
        cpu: Option<usize>,
    ) -> Result<(), String> {
        let mut expected = Vec::new();
        for attributes in attributes {
            for defaults in defaults {
                match self.check_one(runner, attributes, *defaults, cpu) {
                    Ok(()) => return Ok(()),
                    Err(text) if !expected.contains(&text) => expected.push(text),
                    Err(_) => {}
                }
            }
        }
        Err(format!(
            "ran on CPU {} in worker {} of pod {}; {}",
            runner.cpu,
            runner.name,
            runner.pod,
            expected.join("; or ")
        ))
    }

    fn check_one(
        &self,
        runner: &Runner<'_>,
        attributes: &Attributes,
        defaults: Defaults,
        cpu: Option<usize>,
    ) -> Result<(), String> {
        let Some(allowed) = &self.allowed else { return Ok(()) };
        let effective = match &attributes.cpumask {
            Some(mask) if mask.intersects(allowed) => mask.intersection(allowed),
            _ => allowed.clone(),
        };
        if !effective.contains(runner.cpu) {
            return Err(format!("the queue's CPUs were {effective}"));
        }
        let affine = attributes.affinity && defaults.affinity;
        let (true, true, Some(cpu)) = (affine, attributes.strict, cpu) else { return Ok(()) };
        let pods = self.topology.pods(attributes.scope.unwrap_or(defaults.scope), self.shard_size);
        let Some(pod) = pods.pod_of(cpu) else { return Ok(()) };
        let whole = &pods.pods[pod].cpus;
        let inside = whole.intersection(&effective);
        // A pod of which nothing may be used stands for all that may be.
        let expected = if inside.is_empty() { &effective } else { &inside };
        let right = runner.pod == expected && expected.contains(runner.cpu);
        if right {
            return Ok(());
        }
        Err(format!("a strict item for CPU {cpu} belongs into the pod {whole}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground(allowed: Option<&str>) -> Ground {
        Ground {
            topology: Topology::from_synthetic("l3:2 core:2").unwrap(),
            shard_size: 8,
            allowed: allowed.map(|text| text.parse().unwrap()),
        }
    }

    fn strict() -> Attributes {
        Attributes { scope: Some(Scope::Cache), strict: true, ..Attributes::default() }
    }

    #[test]
    fn a_strict_item_belongs_into_the_pod_of_its_cpu() {
        let defaults = [Defaults { scope: Scope::System, affinity: true }];
        let (left, right): (CpuSet, CpuSet) = ("0-1".parse().unwrap(), "2-3".parse().unwrap());
        let there = Runner { name: "w", pod: &right, cpu: 2 };
        {
            let ground = ground(Some("0-3"));
            assert_eq!(ground.check(&there, &[strict()], &defaults, Some(3)), Ok(()));
            let error = ground.check(&there, &[strict()], &defaults, Some(0)).unwrap_err();
            assert!(error.ends_with("a strict item for CPU 0 belongs into the pod 0-1"), "{error}");
            assert_eq!(ground.check(&there, &[strict()], &defaults, None), Ok(()));
            let both = [strict(), Attributes::default()];
            assert_eq!(ground.check(&there, &both, &defaults, Some(0)), Ok(()), "either may hold");
            let off = [Defaults { scope: Scope::System, affinity: false }];
            assert_eq!(ground.check(&there, &[strict()], &off, Some(0)), Ok(()));
        }
        let unknown = ground(None).check(&there, &[strict()], &defaults, Some(0));
        assert_eq!(unknown, Ok(()), "who knows what was left then");
        let fallback = ground(Some("2-3")).check(&there, &[strict()], &defaults, Some(0));
        assert_eq!(fallback, Ok(()), "nothing is left of the pod");
        let outside = Runner { name: "w", pod: &left, cpu: 1 };
        assert!(ground(Some("2-3")).check(&outside, &[strict()], &defaults, None).is_err());
    }

    #[test]
    fn nobody_runs_outside_the_mask() {
        let defaults = [Defaults { scope: Scope::System, affinity: true }];
        let masked = Attributes { cpumask: Some("1".parse().unwrap()), ..Attributes::default() };
        let all: CpuSet = "0-3".parse().unwrap();
        let inside = Runner { name: "w", pod: &all, cpu: 1 };
        let outside = Runner { name: "w", pod: &all, cpu: 2 };
        let ground = ground(Some("0-3"));
        assert_eq!(ground.check(&inside, std::slice::from_ref(&masked), &defaults, None), Ok(()));
        assert!(ground.check(&outside, &[masked], &defaults, None).is_err());
    }
}

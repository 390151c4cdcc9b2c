//! Where an item may run: the runtime's promises about pods and masks, computed a second time from the documentation.
//!
//! The promises are checked only if they are unconditional. While a change is being made, an item may follow the old attributes or the new
//! ones. If what the process may use changes without the runtime's knowledge, the runtime follows within a second, and the system moves
//! threads whose CPUs are gone to any that exist: nothing is checked for such programs.

use nearq::{AffinityScope, Attributes, CpuSet};
use nearq_topology::Topology;

use super::plan::Kind;

/// The runtime's own settings, as far as they decide where items run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    pub(crate) scope: AffinityScope,
    pub(crate) affinity: bool,
}

/// The machine that the program was given.
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

impl Runner<'_> {
    /// Whether it is a queue's rescuer.
    fn rescues(&self) -> bool {
        self.name.starts_with("nq/R-")
    }
}

impl Ground {
    /// Whether `runner` may run what was queued under any of `attributes` and `defaults`, for `cpu` if that is known.
    /// If not: what was expected.
    pub(crate) fn check(
        &self,
        runner: &Runner<'_>,
        kind: Kind,
        attributes: &[Attributes],
        defaults: &[Defaults],
        cpu: Option<usize>,
    ) -> Result<(), String> {
        let mut expected = Vec::new();
        for attributes in attributes {
            for defaults in defaults {
                match self.check_one(runner, kind, attributes, *defaults, cpu) {
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
        kind: Kind,
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
        match kind {
            Kind::Unbound => {}
            Kind::PerCpu => return per_cpu(runner, allowed, cpu),
            // A rescuer goes from pool to pool, and has the CPUs of its current pool.
            Kind::Ordered if runner.rescues() => return Ok(()),
            Kind::Ordered if *runner.pod == effective => return Ok(()),
            Kind::Ordered => return Err(format!("an ordered queue has one pod, {effective}")),
        }
        let affine = attributes.affinity_enabled && defaults.affinity;
        let (true, true, Some(cpu)) = (affine, attributes.affinity_strict, cpu) else {
            return Ok(());
        };
        let pods = self
            .topology
            .pods(attributes.affinity_scope.unwrap_or(defaults.scope), self.shard_size);
        let Some(pod) = pods.pod_index(cpu) else { return Ok(()) };
        let whole = &pods.pods[pod].cpus;
        let inside = whole.intersection(&effective);
        // A pod of which no CPU may be used stands for all usable CPUs.
        let expected = if inside.is_empty() { &effective } else { &inside };
        let right = (runner.rescues() || runner.pod == expected) && expected.contains(runner.cpu);
        if right {
            return Ok(());
        }
        Err(format!("a strict item for CPU {cpu} belongs into the pod {whole}"))
    }
}

/// An item of a per-CPU queue runs where it was queued, in a worker of that CPU.
fn per_cpu(runner: &Runner<'_>, allowed: &CpuSet, cpu: Option<usize>) -> Result<(), String> {
    let own = if runner.rescues() {
        Some(runner.cpu)
    } else {
        runner.pod.first().filter(|_| runner.pod.len() == 1)
    };
    let elsewhere = cpu.is_some_and(|cpu| !allowed.contains(cpu));
    let right = runner.rescues() && elsewhere
        || own.is_some()
            && (cpu.is_none() || own == cpu)
            && own.is_none_or(|own| runner.cpu == own || !allowed.contains(own));
    let wanted = || cpu.map_or("the CPU that queued it".into(), |cpu| format!("CPU {cpu}"));
    if right { Ok(()) } else { Err(format!("a per-CPU item belongs to {}", wanted())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::attributes_with;

    fn ground(allowed: Option<&str>) -> Ground {
        Ground {
            topology: Topology::from_synthetic("l3:2 core:2").unwrap(),
            shard_size: 8,
            allowed: allowed.map(|text| text.parse().unwrap()),
        }
    }

    fn strict() -> Attributes {
        attributes_with(|new| {
            new.affinity_scope = Some(AffinityScope::Cache);
            new.affinity_strict = true;
        })
    }

    #[test]
    fn a_strict_item_belongs_into_the_pod_of_its_cpu() {
        let defaults = [Defaults { scope: AffinityScope::System, affinity: true }];
        let (left, right): (CpuSet, CpuSet) = ("0-1".parse().unwrap(), "2-3".parse().unwrap());
        let there = Runner { name: "w", pod: &right, cpu: 2 };
        {
            let ground = ground(Some("0-3"));
            assert_eq!(
                ground.check(&there, Kind::Unbound, &[strict()], &defaults, Some(3)),
                Ok(())
            );
            let error =
                ground.check(&there, Kind::Unbound, &[strict()], &defaults, Some(0)).unwrap_err();
            assert!(error.ends_with("a strict item for CPU 0 belongs into the pod 0-1"), "{error}");
            assert_eq!(ground.check(&there, Kind::Unbound, &[strict()], &defaults, None), Ok(()));
            let both = [strict(), Attributes::default()];
            assert_eq!(
                ground.check(&there, Kind::Unbound, &both, &defaults, Some(0)),
                Ok(()),
                "either may hold"
            );
            let off = [Defaults { scope: AffinityScope::System, affinity: false }];
            assert_eq!(ground.check(&there, Kind::Unbound, &[strict()], &off, Some(0)), Ok(()));
        }
        let unknown = ground(None).check(&there, Kind::Unbound, &[strict()], &defaults, Some(0));
        assert_eq!(unknown, Ok(()), "who knows what was left then");
        let fallback =
            ground(Some("2-3")).check(&there, Kind::Unbound, &[strict()], &defaults, Some(0));
        assert_eq!(fallback, Ok(()), "nothing is left of the pod");
        let outside = Runner { name: "w", pod: &left, cpu: 1 };
        assert!(
            ground(Some("2-3"))
                .check(&outside, Kind::Unbound, &[strict()], &defaults, None)
                .is_err()
        );
    }

    #[test]
    fn nobody_runs_outside_the_mask() {
        let defaults = [Defaults { scope: AffinityScope::System, affinity: true }];
        let masked = attributes_with(|new| new.cpumask = "1".parse().ok());
        let all: CpuSet = "0-3".parse().unwrap();
        let inside = Runner { name: "w", pod: &all, cpu: 1 };
        let outside = Runner { name: "w", pod: &all, cpu: 2 };
        let ground = ground(Some("0-3"));
        assert_eq!(
            ground.check(&inside, Kind::Unbound, std::slice::from_ref(&masked), &defaults, None),
            Ok(())
        );
        assert!(ground.check(&outside, Kind::Unbound, &[masked], &defaults, None).is_err());
    }

    #[test]
    fn a_per_cpu_item_belongs_to_its_cpu() {
        let defaults = [Defaults { scope: AffinityScope::System, affinity: true }];
        let (one, two): (CpuSet, CpuSet) = ("1".parse().unwrap(), "0-1".parse().unwrap());
        let check = |pod: &CpuSet, ran: usize, queued: Option<usize>, allowed: &str| {
            let runner = Runner { name: "w", pod, cpu: ran };
            let attributes = [Attributes::default()];
            ground(Some(allowed)).check(&runner, Kind::PerCpu, &attributes, &defaults, queued)
        };
        assert_eq!(check(&one, 1, Some(1), "0-3"), Ok(()));
        assert_eq!(check(&one, 1, None, "0-3"), Ok(()));
        assert_eq!(check(&one, 2, Some(1), "2-3"), Ok(()), "its CPU may not be used");
        let error = check(&one, 2, Some(1), "0-3").unwrap_err();
        assert!(error.ends_with("a per-CPU item belongs to CPU 1"), "{error}");
        assert!(check(&one, 2, None, "0-3").is_err());
        assert!(check(&one, 1, Some(2), "0-3").is_err());
        assert!(check(&two, 1, Some(1), "0-3").is_err(), "no worker of one CPU");
    }

    #[test]
    fn an_ordered_item_belongs_into_the_one_pod_of_its_mask() {
        let defaults = [Defaults { scope: AffinityScope::Cpu, affinity: true }];
        let mut masked = [strict()];
        masked[0].cpumask = "1-2".parse().ok();
        let (pod, part): (CpuSet, CpuSet) = ("1-2".parse().unwrap(), "1".parse().unwrap());
        let ground = ground(Some("0-3"));
        let runner = Runner { name: "w", pod: &pod, cpu: 1 };
        assert_eq!(ground.check(&runner, Kind::Ordered, &masked, &defaults, Some(2)), Ok(()));
        let runner = Runner { name: "w", pod: &part, cpu: 1 };
        assert!(ground.check(&runner, Kind::Ordered, &masked, &defaults, Some(1)).is_err());
    }
}

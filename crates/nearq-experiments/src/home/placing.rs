//! Where the tasks of a run start, by row: the masks and memory nodes that they are given.

use super::plan::{Plan, Row};
use nearq_home::{Load, Nodes, pick};
use nearq_topology::CpuSet;

/// A task's place at its start.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    /// The index of its home, if it has one.
    pub(super) home: Option<usize>,
    /// Where it may run from the start; anywhere if not told.
    pub(super) cpus: Option<CpuSet>,
    /// Where it may run once its memory is touched, if that is not the same.
    pub(super) then: Option<CpuSet>,
    /// The index of the node that its memory is to come from; where it runs if not told.
    pub(super) memory: Option<usize>,
}

/// Places for all tasks of a run.
pub(super) fn starts(plan: &Plan, row: Row, nodes: &Nodes) -> Vec<Start> {
    let mut loads = vec![Load::default(); nodes.len()];
    let on = |node: usize| nodes.get(node).cpus.clone();
    let of_task = |task: usize| match row {
        Row::Without | Row::Scheduler => Start {
            home: None,
            cpus: plan.start_on.map(on),
            then: plan.start_on.map(|_| nodes.cpus()),
            memory: None,
        },
        Row::Homes | Row::Dynamic => {
            let home = plan.start_on.unwrap_or_else(|| pick(nodes, &loads, None));
            loads[home].homes += 1000;
            Start { home: Some(home), cpus: Some(on(home)), then: None, memory: Some(home) }
        }
        Row::Oracle => {
            // Round the nodes, and on each round its CPUs.
            let node = task % nodes.len();
            let cpus = &nodes.get(node).cpus;
            let cpu = cpus.iter().nth(task / nodes.len() % cpus.len());
            let cpus = cpu.map(CpuSet::single);
            Start { home: None, cpus, then: None, memory: Some(node) }
        }
    };
    (0..plan.tasks).map(of_task).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::Size;
    use super::*;
    use crate::Machine;

    #[test]
    fn homes_and_pins_are_spread_and_an_overload_is_not() {
        let machine = Machine::named("numa:2 core:2").unwrap();
        let nodes = Nodes::of(machine.topology(), machine.topology().online());
        let size = Size::of(&machine, nodes.clone(), true, (Some(1000), Some(1)), None, 4);
        let cpus = |plan: &Plan, row| -> Vec<String> {
            let of = |start: &Start| start.cpus.as_ref().map_or("-".into(), CpuSet::to_list);
            starts(plan, row, &nodes).iter().map(of).collect()
        };
        let plan = size.numa_test(4);
        assert_eq!(cpus(&plan, Row::Without), ["-"; 4]);
        assert_eq!(cpus(&plan, Row::Homes), ["0-1", "2-3", "0-1", "2-3"]);
        assert_eq!(cpus(&plan, Row::Oracle), ["0", "2", "1", "3"]);
        let overload = size.overload();
        assert_eq!(cpus(&overload, Row::Without), ["0-1"; 4]);
        assert_eq!(cpus(&overload, Row::Dynamic), ["0-1"; 4]);
        let then = starts(&overload, Row::Without, &nodes)[0].then.clone();
        assert_eq!(then.unwrap().to_list(), "0-3");
    }
}

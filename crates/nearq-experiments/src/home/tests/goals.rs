//! Tests of `figures`: the goals that homes have, and whether this run reached them.

use super::super::plan::Size;
use super::*;
use crate::Machine;
use nearq_home::Nodes;
use nearq_report::Collector;

#[test]
fn goals_are_judged_by_means() {
    let machine = Machine::named("tx7-itanium2").unwrap();
    let nodes = Nodes::of(machine.topology(), machine.topology().online());
    let size = Size::of(&machine, nodes, true, (None, None), None, 4);
    let plans = [size.numa_test(4), size.overload()];
    let mut collector = Collector::default();
    for (share, ratio) in [(65.0, 0.98), (85.0, 1.01)] {
        collector.add(&plans[0].title(), "homes", metric::GAP_CLOSED, share);
        collector.add(&plans[1].title(), "homes", metric::CPU_RATIO, ratio);
        collector.add(&plans[1].title(), "homes", metric::HOME_PERCENT, 94.0);
    }
    let rows = collector.rows();
    let goals = judge(&rows, &plans, true);
    let met: Vec<_> = goals.iter().map(|goal| (goal.goal, goal.met)).collect();
    assert_eq!(met, [(70.0, true), (95.0, false), (0.99, true)]);
    assert_eq!(judge(&rows, &plans, false).len(), 2, "the share is asked for on the TX7");
}

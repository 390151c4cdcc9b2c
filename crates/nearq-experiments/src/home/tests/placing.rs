//! Tests of `plan`: where the tasks of a run start, by row.

use super::Size;
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

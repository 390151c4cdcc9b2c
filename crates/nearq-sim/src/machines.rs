//! The machines that are built in.

use nearq_topology::Topology;

use crate::machine::Machine;

/// Name, description, what it is.
const SHAPES: [(&str, &str, &str); 8] = [
    ("ryzen-3900x", "l3:4 core:3 pu:2", "AMD Ryzen 9 3900X"),
    ("epyc-7551-2s", "pack:2 numa:4 l3:2 core:4 pu:2", "2 x AMD EPYC 7551"),
    ("epyc-9654-2s", "pack:2 numa:1 l3:12 core:8 pu:2", "2 x AMD EPYC 9654"),
    ("kh-40000-2s", "pack:2 numa:1 l3:2 core:8", "2 x Zhaoxin KH-40000"),
    ("grace-72", "l3:1 core:72", "NVIDIA Grace"),
    ("tx7-itanium2", "numa:4 l3:2 core:1", "NEC TX7, Itanium 2"),
    ("opteron-2s", "pack:2 numa:1 l3:2 core:1", "2 x AMD Opteron"),
    ("strix-point", "l3:2 core:6 pu:2", "AMD Ryzen AI 9 HX 370"),
];

pub(crate) const NAMES: &[&str] = &{
    let mut names = [""; SHAPES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = SHAPES[at].0;
        at += 1;
    }
    names
};

pub(crate) fn named(name: &str) -> Option<Machine> {
    let (name, shape, about) = SHAPES.iter().find(|(known, ..)| *known == name)?;
    let topology = Topology::from_synthetic(shape).expect("the built-in shapes are well formed");
    let mut machine = Machine::of(*name, topology).expect("not too large");
    (*about).clone_into(&mut machine.about);
    Some(machine)
}

//! Properties that must hold for the text and the picture of every machine, for the fuzzer and for the tests beside it.

use nearq_report::drawing::{self, View};
use nearq_topology::Topology;

/// A picture of more CPUs takes seconds.
const FEW: usize = 300;

/// Draws the machine.
pub(crate) fn shown(machine: &Topology) {
    let view = View::new(machine);
    assert!(!drawing::text(&view).is_empty());
    if machine.possible().len() <= FEW {
        let svg = drawing::svg(&view);
        assert!(roxmltree::Document::parse(&svg).is_ok(), "{svg}");
    }
}

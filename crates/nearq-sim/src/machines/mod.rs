//! The machines that are built in, with costs from public measurements.
//!
//! # Inputs and predictions
//! Inputs are single quantities of the hardware and of the kernel: what one line takes from CPU to CPU, what one
//! CPU streams, what a system call costs. Each has its source beside it, and [`Machine::sources`] lists them.
//! Everything that an experiment shows is a prediction: every throughput, every latency, every gap between two
//! configurations, and above all which one wins. No cost was fitted to a result of the documents whose experiments
//! are simulated; of those, only what they say of their machines is used. **A cost changes only with a new
//! citation.**
//!
//! # How the numbers are made
//! - A *bounce* is what the usual core-to-core benchmarks measure: two CPUs in turn take one line by a
//!   compare-exchange, and half of a round trip counts. The transfer is the bounce less the compare-exchange.
//! - Of a range, the middle is taken, and the text says so.
//! - *Not re-read* marks a publication that was not at hand when the number was written down.
//! - What nobody published follows from the rules in [`derive`].

mod derive;
mod grace_72;
mod ryzen_3900x;
mod sheet;

use nearq_topology::Topology;

use crate::machine::Machine;

const RYZEN_3900X: &str = "ryzen-3900x";
const GRACE_72: &str = "grace-72";

pub(crate) const NAMES: &[&str] = &[
    RYZEN_3900X,
    "epyc-7551-2s",
    "epyc-9654-2s",
    "kh-40000-2s",
    GRACE_72,
    "tx7-itanium2",
    "opteron-2s",
    "strix-point",
];

/// Shapes whose costs are still those of a machine of unknown make.
const SHAPES: [(&str, &str); 6] = [
    ("epyc-7551-2s", "pack:2 numa:4 l3:2 core:4 pu:2"),
    ("epyc-9654-2s", "pack:2 numa:1 l3:12 core:8 pu:2"),
    ("kh-40000-2s", "pack:2 numa:1 l3:8 core:4"),
    ("tx7-itanium2", "numa:4 l3:2 core:1"),
    ("opteron-2s", "pack:2 numa:1 l3:1 core:6"),
    ("strix-point", "l3:2 core:6 pu:2"),
];

pub(crate) fn named(name: &str) -> Option<Machine> {
    match name {
        RYZEN_3900X => Some(ryzen_3900x::machine()),
        GRACE_72 => Some(grace_72::machine()),
        _ => {
            let (name, shape) = SHAPES.iter().find(|(known, _)| *known == name)?;
            let topology = Topology::from_synthetic(shape).expect("well formed");
            Some(Machine::of(*name, topology).expect("not too large"))
        }
    }
}

// Sources that several machines share.

const ZEN2_L2: &str = "31.59 bytes a cycle from the L2 of a 3950X; C. Lam, \"Deep Diving Neoverse N1\", Chips and \
                       Cheese, 2021, https://chipsandcheese.com/p/deep-diving-neoverse-n1";

const ZEN4_L3: &str = "24 bytes a cycle, as measured on Zen 4 with the same path of 32 bytes; G. Cozma, \"Genoa-X: \
                       Server V-Cache Round 2\", Chips and Cheese, 2023, \
                       https://chipsandcheese.com/p/genoa-x-server-v-cache-round-2";

const SMT_ZEN2: &str = "a build of gem5 takes Neoverse N1 40.3 % longer than Zen 2 without SMT and 86.4 % longer than \
                        with it: 1.33 times the work on two CPUs; C. Lam, \"Deep Diving Neoverse N1\", Chips and \
                        Cheese, 2021, https://chipsandcheese.com/p/deep-diving-neoverse-n1";

const LINK_SHARE: &str = "81.5 % of the peak of the memory's channels, as measured on Genoa-X (375 of 460 GB/s); \
                          G. Cozma, \"Genoa-X: Server V-Cache Round 2\", Chips and Cheese, 2023";

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
mod epyc_7551;
mod epyc_9654;
mod grace_72;
mod kh_40000;
mod opteron;
mod ryzen_3900x;
mod sheet;
mod strix_point;
mod tx7_itanium2;

use nearq_topology::LOCAL_DISTANCE;

use crate::machine::Machine;

const RYZEN_3900X: &str = "ryzen-3900x";
const EPYC_7551: &str = "epyc-7551-2s";
const EPYC_9654: &str = "epyc-9654-2s";
const KH_40000: &str = "kh-40000-2s";
const GRACE_72: &str = "grace-72";
const TX7_ITANIUM2: &str = "tx7-itanium2";
const OPTERON: &str = "opteron-2s";
const STRIX_POINT: &str = "strix-point";

pub(crate) const NAMES: &[&str] =
    &[RYZEN_3900X, EPYC_7551, EPYC_9654, KH_40000, GRACE_72, TX7_ITANIUM2, OPTERON, STRIX_POINT];

pub(crate) fn named(name: &str) -> Option<Machine> {
    Some(match name {
        RYZEN_3900X => ryzen_3900x::machine(),
        EPYC_7551 => epyc_7551::machine(),
        EPYC_9654 => epyc_9654::machine(),
        KH_40000 => kh_40000::machine(),
        GRACE_72 => grace_72::machine(),
        TX7_ITANIUM2 => tx7_itanium2::machine(),
        OPTERON => opteron::machine(),
        STRIX_POINT => strix_point::machine(),
        _ => return None,
    })
}

/// The firmware's distances between the nodes of `groups` packages of `each` nodes: `near` inside a package, `far`
/// between packages.
fn distances(groups: usize, each: usize, near: u32, far: u32) -> Vec<Vec<u32>> {
    let nodes = 0..groups * each;
    let distance = |a: usize, b: usize| match () {
        () if a == b => LOCAL_DISTANCE,
        () if a / each == b / each => near,
        () => far,
    };
    nodes.clone().map(|a| nodes.clone().map(|b| distance(a, b)).collect()).collect()
}

// Sources that several machines share.

const ZEN2_L2: &str = "31.59 bytes a cycle from the L2 of a 3950X; C. Lam, \"Deep Diving Neoverse N1\", Chips and \
       Cheese, 2021, https://chipsandcheese.com/p/deep-diving-neoverse-n1";

const ZEN4_L3: &str = "24 bytes a cycle, as measured on Zen 4 with the same path of 32 bytes; G. Cozma, \"Genoa-X: \
       Server V-Cache Round 2\", Chips and Cheese, 2023, \
       https://chipsandcheese.com/p/genoa-x-server-v-cache-round-2";

const SMT_ZEN2: &str = "a build of gem5 takes Neoverse N1 40.3 % longer than Zen 2 without SMT and 86.4 % longer \
       than with it: 1.33 times the work on two CPUs; C. Lam, \"Deep Diving Neoverse N1\", Chips and Cheese, 2021, \
       https://chipsandcheese.com/p/deep-diving-neoverse-n1";

const LINK_SHARE: &str = "81.5 % of the peak of the memory's channels, as measured on Genoa-X (375 of 460 GB/s); \
       G. Cozma, \"Genoa-X: Server V-Cache Round 2\", Chips and Cheese, 2023";

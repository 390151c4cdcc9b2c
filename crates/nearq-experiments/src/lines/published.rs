//! What was published about cache lines of machines that can be simulated, and the machines.
//!
//! # Bounces
//! From the matrices of KCORES core-to-core-latency-plus (2024), <https://github.com/KCORES/core-to-core-latency-plus>: half of a round trip of
//! one line that two CPUs take by turns with a compare-exchange. A figure is the median of all pairs of CPUs with that distance and that home.
//! The matrices do not say where the line was at home. It is one page for all pairs, and its home is clear from the figures: it is the node
//! within which bounces between last-level caches are the shortest.
//!
//! # Additions
//! From the results of T. Downs, "A Concurrency Cost Hierarchy" (2020), <https://github.com/travisdowns/concurrency-hierarchy-bench> (`atomic
//! add`): CPUs that add to one word without a pause. They give the time of an addition on each CPU; here it is divided by the number of CPUs.
//! One CPU alone has the line.
//!
//! # Inputs and predictions
//! The costs of a machine come from some of these figures: those are inputs, and show no more than that the simulated program measures what the
//! costs say. The others are predictions.

use crate::calibrate::places::{Class, Home};
use crate::{Error, Machine};
use Class::{OtherLlc, OtherPackage, SameCore, SameLlc, SamePackage};

/// Whether a cost of the machine comes from a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Input,
    Prediction,
}
use Use::{Input, Prediction};

/// A bounce: the distance, the home, nanoseconds, and whether a cost comes from it.
pub(super) type Bounce = (Class, Home, f64, Use);

/// A machine and what was published about it.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) name: &'static str,
    /// The machine file, unless the machine is built in.
    file: Option<&'static str>,
    /// The index of the node that was the line's home, if that counts and is known.
    pub(super) home: Option<usize>,
    pub(super) source: &'static str,
    pub(super) bounces: &'static [Bounce],
    /// Additions: how many CPUs, nanoseconds from one addition to the next, and whether a cost comes from it.
    pub(super) additions: &'static [(usize, f64, Use)],
}

impl Published {
    /// The simulated machine.
    pub(super) fn machine(&self) -> Result<Machine, Error> {
        let Some(text) = self.file else { return Machine::named(self.name) };
        let machine = nearq_sim::Machine::of_file(self.name, text);
        machine.map(Machine::simulated).map_err(|error| Error::input(error.to_string()))
    }

    /// The published bounce of that kind.
    pub(super) fn bounce(&self, class: Class, home: Home) -> Option<&Bounce> {
        self.bounces.iter().find(|bounce| (bounce.0, bounce.1) == (class, home))
    }
}

/// All machines.
pub(super) static ALL: [Published; 7] = [
    Published {
        name: "ryzen-3900x",
        file: None,
        home: None,
        source: "AMD Ryzen 9 3900X, by AlloyBronya and by zommiommy: the mean of their medians; the sibling by zommiommy alone",
        bounces: &[
            (SameCore, Home::Near, 6.8, Input),
            (SameLlc, Home::Near, 41.8, Input),
            (OtherLlc, Home::Near, 86.2, Input),
        ],
        additions: &[],
    },
    Published {
        name: "epyc-7551-2s",
        file: None,
        home: Some(7),
        source: "Dual AMD EPYC 7601, which has this shape, by jstzwj; the line was at home on node 7",
        bounces: &[
            (SameCore, Home::Near, 12.2, Input),
            (SameCore, Home::SamePackage, 12.0, Prediction),
            (SameCore, Home::OtherPackage, 11.9, Prediction),
            (SameLlc, Home::Near, 38.1, Input),
            (SameLlc, Home::SamePackage, 38.1, Prediction),
            (SameLlc, Home::OtherPackage, 37.8, Prediction),
            (OtherLlc, Home::Near, 128.4, Input),
            (OtherLlc, Home::SamePackage, 216.3, Input),
            (OtherLlc, Home::OtherPackage, 335.4, Input),
            (SamePackage, Home::Near, 211.0, Input),
            (SamePackage, Home::SamePackage, 255.5, Prediction),
            (SamePackage, Home::OtherPackage, 373.0, Prediction),
            (OtherPackage, Home::Near, 336.0, Input),
            (OtherPackage, Home::SamePackage, 377.3, Prediction),
        ],
        additions: &[],
    },
    Published {
        name: "epyc-7702-2s",
        file: Some(include_str!("machines/epyc-7702-2s.json")),
        home: Some(0),
        source: "Dual AMD EPYC 7702, SMT off, by herver; the line was at home on node 0",
        bounces: &[
            (SameLlc, Home::Near, 25.0, Input),
            (SameLlc, Home::OtherPackage, 25.1, Prediction),
            (OtherLlc, Home::Near, 131.2, Input),
            (OtherLlc, Home::OtherPackage, 233.1, Input),
            (OtherPackage, Home::Near, 233.1, Input),
        ],
        additions: &[],
    },
    Published {
        name: "epyc-9454-2s",
        file: Some(include_str!("machines/epyc-9454-2s.json")),
        home: Some(0),
        source: "Dual AMD EPYC 9454, by fwyzard; the line was at home on node 0",
        bounces: &[
            (SameCore, Home::Near, 10.3, Input),
            (SameCore, Home::OtherPackage, 10.3, Prediction),
            (SameLlc, Home::Near, 26.5, Input),
            (SameLlc, Home::OtherPackage, 26.5, Prediction),
            (OtherLlc, Home::Near, 103.4, Input),
            (OtherLlc, Home::OtherPackage, 200.1, Input),
            (OtherPackage, Home::Near, 197.6, Input),
        ],
        additions: &[],
    },
    Published {
        name: "epyc-9654-2s",
        file: None,
        home: None,
        source: "Dual AMD EPYC 9654, SMT off, by leavelet; the same on both nodes, as if the line had been at home on either",
        bounces: &[
            (SameLlc, Home::Near, 27.1, Input),
            (OtherLlc, Home::Near, 99.3, Input),
            (OtherPackage, Home::Near, 191.6, Input),
        ],
        additions: &[],
    },
    Published {
        name: "skylake-4",
        file: Some(include_str!("machines/skylake-4.json")),
        home: None,
        source: "additions on 4 Skylake cores at 2.6 GHz, by T. Downs (`skl`), medians",
        bounces: &[],
        additions: &[
            (1, 7.0, Input),
            (2, 22.1, Prediction),
            (3, 23.3, Prediction),
            (4, 24.1, Prediction),
        ],
    },
    Published {
        name: "graviton-2-16",
        file: Some(include_str!("machines/graviton-2-16.json")),
        home: None,
        source: "additions on 16 of the 64 cores of a Graviton 2, by T. Downs (`g2-16`), medians",
        bounces: &[],
        additions: &[
            (1, 5.3, Input),
            (2, 8.5, Input),
            (4, 8.7, Prediction),
            (8, 9.4, Prediction),
            (12, 9.5, Prediction),
            (16, 9.4, Prediction),
        ],
    },
];

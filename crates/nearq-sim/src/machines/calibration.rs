//! What `nearq sim calibrate` records in a machine file beside the costs: each measurement with its quartiles, and how quiet the machine was.
//! The costs of the file follow from these numbers; the simulator itself uses the costs alone.

use serde::{Deserialize, Serialize};

/// How a machine was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The version of nearq that measured.
    pub nearq: String,
    /// The kernel's release.
    pub kernel: String,
    /// How long the measurement took, in seconds.
    pub seconds: f64,
    /// What disturbed the measurement.
    pub noise: Noise,
    /// Why the machine was too noisy; empty if it was quiet.
    pub noisy: Vec<String>,
    /// The measurements, in the order in which they were made.
    pub measurements: Vec<Measurement>,
}

/// What disturbed a measurement, in percent. None if the kernel does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// CPU time that the host gave to others.
    pub steal_percent: Option<f64>,
    /// CPU time that other programs used.
    pub others_percent: Option<f64>,
    /// Time during which a thread waited for a CPU, while fewer threads measured than there are CPUs.
    pub pressure_percent: Option<f64>,
    /// Samples during which the measuring thread lost its CPU.
    pub preempted_percent: f64,
}

/// One quantity, measured twice; all others were measured in between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The quantity.
    pub name: String,
    /// What it is counted in.
    pub unit: String,
    /// The first quartile, the median and the third quartile of both times together.
    pub quartiles: [f64; 3],
    /// The median of each time.
    pub medians: [f64; 2],
    /// How many samples there are of both times together.
    pub samples: usize,
}

impl Measurement {
    /// The median of all samples.
    pub fn median(&self) -> f64 {
        self.quartiles[1]
    }

    /// By how much the second median differs from the first, in percent.
    pub fn drift_percent(&self) -> f64 {
        let [first, again] = self.medians;
        ((again - first) / first * 100.0).abs()
    }
}

impl Calibration {
    /// The measurement of that name.
    pub fn find(&self, name: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.name == name)
    }
}

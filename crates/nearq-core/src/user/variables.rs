//! Environment variables for a runtime that is being built. If a value is unknown, there is one warning, and it counts as not set.

use core::time::Duration;

use nearq_home::Weights;
use nearq_platform::{Platform, SWITCH, parse_switch, read_setting};
use nearq_topology::{AffinityScope, CpuSet};

use crate::homes::HomeChoice;
use crate::layout::attributes::MachineConfig;

/// The value of a variable, if it is set; if the value is invalid, the error of `parse` says what is allowed.
fn read<P: Platform, T>(name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
    read_setting::<P, T>(name, "It counts as not set", parse).ok().flatten()
}

fn switch<P: Platform>(name: &str) -> Option<bool> {
    read::<P, _>(name, |text| parse_switch(text).ok_or_else(|| SWITCH.into()))
}

pub(crate) fn default_affinity_scope<P: Platform>() -> Option<AffinityScope> {
    let expected = "cpu, smt, cache, cache_shard, numa or system";
    read::<P, _>("NEARQ_DEFAULT_SCOPE", |text| text.parse().map_err(|_| expected.into()))
}

pub(crate) fn affinity<P: Platform>() -> Option<bool> {
    switch::<P>("NEARQ_AFFINITY")
}

/// CPUs of this machine, of which the process may use at least one.
pub(crate) fn cpumask<P: Platform>(here: &MachineConfig) -> Option<CpuSet> {
    read::<P, _>("NEARQ_CPUMASK", |text| {
        let mask = CpuSet::parse_list(text).ok();
        mask.filter(|mask| here.check_own_mask(mask).is_ok()).ok_or_else(|| {
            format!(
                "a list of CPUs such as 0-3,8, all of which the machine has ({}), and at least one of which the process may use ({})",
                here.topology.possible(),
                here.limits.effective()
            )
        })
    })
}

pub(crate) fn inherits_homes<P: Platform>() -> Option<bool> {
    switch::<P>("NEARQ_HOME_INHERIT")
}

pub(crate) fn home_choice<P: Platform>() -> Option<HomeChoice> {
    read::<P, _>("NEARQ_HOME_CHOICE", |text| text.parse().map_err(|_| "now or first-run".into()))
}

/// A time in seconds.
pub(crate) fn stall_after<P: Platform>() -> Option<Duration> {
    read::<P, _>("NEARQ_STALL_AFTER", |text| {
        let seconds: Option<f64> = text.parse().ok();
        seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or_else(|| "a number of seconds, or 0 for never".into())
    })
}

/// A number of stalls.
pub(crate) fn abort_on_stall<P: Platform>() -> Option<u32> {
    read::<P, _>("NEARQ_ABORT_ON_STALL", |text| {
        text.parse().map_err(|_| format!("a number of stalls up to {}, or 0 for never", u32::MAX))
    })
}

/// Weights as in `imbalance=2000,imbalance_step=0`, where those that are not named stay as they are.
pub(crate) fn home_weights<P: Platform>(weights: &Weights) -> Option<Weights> {
    read::<P, _>("NEARQ_HOME_WEIGHTS", |text| {
        let mut weights = weights.clone();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let known = part
                .split_once('=')
                .and_then(|(name, value)| Some((name.trim(), value.trim().parse().ok()?)));
            let (name, value) = known.ok_or("NAME=NUMBER, several with commas between them")?;
            weights.set(name, value).map_err(|wrong| {
                format!("NAME=NUMBER, several with commas between them: {wrong}")
            })?;
        }
        Ok(weights)
    })
}

//! Which scheduler the simulated kernel has: its own, after Linux's, or the node affine one that `nearq-scx` loads into a real one.
//!
//! Under the node affine scheduler tasks are just started: it gives them their homes itself, and nobody watches over them. That is one
//! row, `home scheduler`, beside the kernel's own without homes.

use super::plan::{Row, Scenario};
use crate::{Error, Machine};

/// What `--scheduler` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduler {
    /// The kernel's own, without homes and with those that are kept from outside.
    Stock,
    /// The node affine one, and the kernel's own without homes to compare it with.
    Home,
    /// All of it.
    Both,
}

impl Scheduler {
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheduler::Stock => "stock",
            Scheduler::Home => "home",
            Scheduler::Both => "both",
        }
    }

    /// What is named, if it can be had on the machine and in this build.
    pub(super) fn named(name: Option<&str>, machine: &Machine) -> Result<Self, Error> {
        let scheduler = match name {
            None | Some("stock") => return Ok(Scheduler::Stock),
            Some("home") => Scheduler::Home,
            Some("both") => Scheduler::Both,
            Some(name) => {
                return Err(Error::input(format!(
                    "--scheduler {name:?}: give stock, home or both"
                )));
            }
        };
        let name = scheduler.name();
        if machine.model().is_none() {
            return Err(Error::input(format!(
                "--scheduler {name}: this machine has the scheduler that its kernel has; load the node affine one with `nearq-scx start` and run \
                 this without --scheduler, or name a simulated machine with --on"
            )));
        }
        under_home(machine)
            .map(|_| scheduler)
            .map_err(|error| Error::input(format!("--scheduler {name}: {error}")))
    }

    /// The rows of a scenario, on a simulated machine or the real one.
    pub(super) fn rows(self, scenario: Scenario, simulated: bool) -> &'static [Row] {
        use Row::{Dynamic, Homes, Oracle, Scheduler as Node, Without};
        match (self, scenario == Scenario::NumaTest && simulated) {
            (Scheduler::Stock, true) => &[Without, Homes, Dynamic, Oracle],
            (Scheduler::Stock, false) => &[Without, Homes, Dynamic],
            (Scheduler::Home, true) => &[Without, Node, Oracle],
            (Scheduler::Home, false) => &[Without, Node],
            (Scheduler::Both, true) => &[Without, Homes, Dynamic, Node, Oracle],
            (Scheduler::Both, false) => &[Without, Homes, Dynamic, Node],
        }
    }
}

/// The machine with the node affine scheduler, or why that cannot be.
#[cfg(feature = "home-scheduler")]
pub(super) fn under_home(machine: &Machine) -> Result<Machine, String> {
    machine.clone().under_home_scheduler().map_err(|error| error.to_string())
}

/// The machine with the node affine scheduler, or why that cannot be.
#[cfg(not(feature = "home-scheduler"))]
pub(super) fn under_home(_: &Machine) -> Result<Machine, String> {
    Err("this nearq was built without it; with a C compiler: cargo build --release -p nearq-cli --features home-scheduler".into())
}

//! Which scheduler the kernel has: its own, or the node affine one, which `nearq-scx` loads into a real one.
//!
//! Under the node affine scheduler tasks are just started: the scheduler itself gives them their homes, and no `SoftAffinity` watches over
//! them. These are two rows, beside the row of the kernel's own scheduler without homes: `home scheduler`, and `2003's rule`, where the
//! scheduler chooses what CPUs take from other nodes by the rule of the document (`own_bonus` of the policy).
//!
//! In numa_test on a simulated machine there are two more rows, under the scheduler of the document's kernel: without its patch, and with
//! it. These are what the document measured.

use super::plan::{Row, Scenario};
use super::real;
use crate::{Error, Machine};
use nearq_sim::O1;
use std::path::Path;

/// The node affine scheduler's `own_bonus` for the rule of 2003: a task counts twice for its home.
pub(super) const OF_2003: u64 = 1000;

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

    /// The named choice, if it is available on the machine and in this build; `program` is this command.
    pub(super) fn named(
        name: Option<&str>,
        machine: &Machine,
        program: &Path,
    ) -> Result<Self, Error> {
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
        let why_not = match machine.model() {
            None => real::scheduler::missing(program)
                .map(|why| format!("{why}; or name a simulated machine with --on")),
            Some(_) => under_home(machine, false).err(),
        };
        match why_not {
            None => Ok(scheduler),
            Some(why) => Err(Error::input(format!("--scheduler {name}: {why}"))),
        }
    }

    /// The rows of a scenario, on a simulated machine or the real one.
    pub(super) fn rows(self, scenario: Scenario, simulated: bool) -> &'static [Row] {
        use Row::{After, Before, Dynamic, Homes, Oracle, Rule, Scheduler as Node, Without};
        match (self, scenario == Scenario::NumaTest && simulated) {
            (Scheduler::Stock, true) => &[Before, After, Without, Homes, Dynamic, Oracle],
            (Scheduler::Stock, false) => &[Without, Homes, Dynamic],
            (Scheduler::Home, true) => &[Before, After, Without, Node, Rule, Oracle],
            (Scheduler::Home, false) => &[Without, Node, Rule],
            (Scheduler::Both, true) => {
                &[Before, After, Without, Homes, Dynamic, Node, Rule, Oracle]
            }
            (Scheduler::Both, false) => &[Without, Homes, Dynamic, Node, Rule],
        }
    }
}

/// The machine with the scheduler of a row, or why that is not possible.
pub(super) fn simulated(machine: &Machine, row: Row) -> Result<Machine, String> {
    match row {
        Row::Before => Ok(machine.clone().setting_up(|it| it.scheduler(|_| O1::new()))),
        Row::After => Ok(machine.clone().setting_up(|it| it.scheduler(|_| O1::with_homes()))),
        Row::Scheduler => under_home(machine, false),
        Row::Rule => under_home(machine, true),
        _ => Ok(machine.clone()),
    }
}

/// The machine with the node affine scheduler, with the rule of 2003 or as it is, or why that is not possible.
#[cfg(feature = "home-scheduler")]
pub(super) fn under_home(machine: &Machine, by_rule: bool) -> Result<Machine, String> {
    nearq_policy_harness::Home::new(machine.topology()).map_err(|error| error.to_string())?;
    let set_up = if by_rule { with::<OF_2003> } else { with::<0> };
    Ok(machine.clone().setting_up(set_up))
}

/// A simulation with the node affine scheduler and this weight.
#[cfg(feature = "home-scheduler")]
fn with<const OWN_BONUS: u64>(simulation: nearq_sim::Simulation) -> nearq_sim::Simulation {
    simulation.scheduler(|machine| {
        let mut home = nearq_policy_harness::Home::new(machine).expect("the machine was tried");
        home.weights_mut().own_bonus = OWN_BONUS;
        home
    })
}

/// The machine with the node affine scheduler, or why that is not possible.
#[cfg(not(feature = "home-scheduler"))]
pub(super) fn under_home(_: &Machine, _: bool) -> Result<Machine, String> {
    Err("this nearq-bench was built without it; with a C compiler and libclang installed, run \
         cargo run --release -p nearq-bench --features home-scheduler -- bench home"
        .into())
}

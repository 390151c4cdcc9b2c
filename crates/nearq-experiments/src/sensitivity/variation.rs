//! What is varied: one cost, one rule of the machine, or one part of an experiment's load at a time.

use crate::harness::waking_within_cache;
use crate::{Error, Machine};
use nearq_sim::Costs;

/// The percentages of its value that a cost is given.
const PERCENTS: [u64; 2] = [50, 150];

/// Something that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factor {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Less and more; `None` if there is no less. A rule has nothing but the other rule, which is the second. What would leave the machine
    /// as it is is left out.
    pub changes: [Option<Change>; 2],
}

/// The kinds of what is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cost of the machine, and its value there.
    Cost(u64),
    /// A rule of the machine, and what replaces it.
    Rule(&'static str),
    /// A part of the experiment's load.
    Load,
}

/// How a factor is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// To this percentage of its value.
    Percent(u64),
    /// To the other rule.
    Other,
}

/// A rule of the simulated machine that can be replaced.
struct Rule {
    name: &'static str,
    /// What replaces it, on a machine with these costs.
    other: fn(&Costs) -> &'static str,
    replacement: Replacement,
}

/// How a rule is replaced: by other costs, or on the machine itself.
enum Replacement {
    Costs(fn(&mut Costs)),
    Machine(fn(Machine) -> Machine),
}

/// The rules, each with one replacement.
static RULES: [Rule; 4] = [
    // It does not matter on which node a line is at home.
    Rule {
        name: "home agent",
        other: |_| "none",
        replacement: Replacement::Costs(|costs| {
            (costs.home_same_package, costs.home_other_package) = (0, 0);
        }),
    },
    // A woken thread searches for an idle CPU under its cache and not in the rest of its node.
    Rule {
        name: "wake rule",
        other: |_| "within the cache",
        replacement: Replacement::Machine(waking_within_cache),
    },
    Rule {
        name: "SMT",
        other: |_| "a busy sibling costs nothing",
        replacement: Replacement::Costs(|costs| costs.smt_percent = 100),
    },
    // Where there are none, one takes as long as getting a line from another last-level cache.
    Rule {
        name: "far atomics",
        other: |costs| if costs.far_atomic == 0 { "on" } else { "off" },
        replacement: Replacement::Costs(|costs| {
            costs.far_atomic = if costs.far_atomic == 0 { costs.other_llc } else { 0 };
        }),
    },
];

impl Rule {
    /// The machine with the other rule.
    fn replaced(&self, machine: &Machine) -> Machine {
        match self.replacement {
            Replacement::Costs(change) => with_costs(machine, change),
            Replacement::Machine(change) => change(machine.clone()),
        }
    }

    /// Whether the machine has the other rule already.
    fn is_replaced(&self, costs: &Costs) -> bool {
        let mut after = *costs;
        match self.replacement {
            Replacement::Costs(change) => change(&mut after),
            Replacement::Machine(_) => return false,
        }
        after == *costs
    }
}

/// The simulated machine with other costs.
fn with_costs(machine: &Machine, change: impl FnOnce(&mut Costs)) -> Machine {
    let Some(model) = machine.model() else { return machine.clone() };
    let mut costs = *model.costs();
    change(&mut costs);
    Machine::simulated(model.clone().with_costs(costs))
}

impl Factor {
    /// A cost of the machine. Small numbers cannot be halved exactly: the percentages are the actual ones. Nothing stays nothing.
    fn cost(name: &'static str, costs: &Costs) -> Option<Self> {
        let cost = costs.get(name)?;
        if cost == 0 {
            return Some(Self { name, kind: Kind::Cost(0), changes: [None, None] });
        }
        let [less, more] = PERCENTS.map(|percent| costs.scaled(name, percent)?.get(name));
        let percent = |changed: u64| Change::Percent((changed * 100).div_ceil(cost));
        let less = less.filter(|&less| less < cost).map(percent);
        let more = percent(more.filter(|&more| more > cost).unwrap_or(cost + 1));
        Some(Self { name, kind: Kind::Cost(cost), changes: [less, Some(more)] })
    }

    fn rule(rule: &Rule, costs: &Costs) -> Self {
        let other = (!rule.is_replaced(costs)).then_some(Change::Other);
        Self { name: rule.name, kind: Kind::Rule((rule.other)(costs)), changes: [None, other] }
    }

    /// A part of an experiment's load.
    fn load(name: &'static str) -> Self {
        let changes = PERCENTS.map(|percent| Some(Change::Percent(percent)));
        Self { name, kind: Kind::Load, changes }
    }

    /// The machine with the factor changed; the same machine for a part of a load.
    pub(super) fn apply(&self, machine: &Machine, change: Change) -> Machine {
        let rule = || RULES.iter().find(|rule| rule.name == self.name);
        match (self.kind, change) {
            (Kind::Cost(_), Change::Percent(percent)) => with_costs(machine, |costs| {
                *costs = costs.scaled(self.name, percent).expect("it is a cost");
            }),
            (Kind::Rule(_), _) => rule().expect("it is a rule").replaced(machine),
            _ => machine.clone(),
        }
    }

    /// The part of the load and its percentage, if the factor is one.
    pub(super) fn setting(&self, change: Change) -> Option<(&'static str, u64)> {
        match (self.kind, change) {
            (Kind::Load, Change::Percent(percent)) => Some((self.name, percent)),
            _ => None,
        }
    }

    /// `same_llc = 40`, `wake rule: within the cache`, or the name of a part of a load.
    pub fn describe(&self) -> String {
        match self.kind {
            Kind::Cost(cost) => format!("{} = {cost}", self.name),
            Kind::Rule(other) => format!("{}: {other}", self.name),
            Kind::Load => format!("{} (payload)", self.name),
        }
    }

    /// The factor with a change: `same_llc -50 %`, `wake rule: within the cache`.
    pub fn changed(&self, change: Change) -> String {
        match change {
            Change::Percent(percent) => format!("{} {}", self.name, difference(percent)),
            Change::Other => self.describe(),
        }
    }
}

/// `-50 %`: a percentage as a difference.
pub(super) fn difference(percent: u64) -> String {
    format!("{:+} %", percent.cast_signed() - 100)
}

/// The costs and the rules of a machine, and the parts of an experiment's load: all, or those of these names.
pub(super) fn factors(
    machine: &Machine,
    load: &[&'static str],
    only: &[String],
) -> Result<Vec<Factor>, Error> {
    let wanted = |factor: &Factor| only.is_empty() || only.iter().any(|name| name == factor.name);
    let model = machine.model().ok_or_else(|| {
        Error::input(format!(
            "--on {}: the costs of a real machine cannot be varied; give a simulated one: {}",
            machine.name(),
            Machine::NAMES.join(", ")
        ))
    })?;
    let costs = Costs::NAMES.iter().filter_map(|name| Factor::cost(name, model.costs()));
    let rules = RULES.iter().map(|rule| Factor::rule(rule, model.costs()));
    let load = load.iter().map(|name| Factor::load(name));
    Ok(costs.chain(rules).chain(load).filter(wanted).collect())
}

/// Refuses a name that no cost, no rule and no part of these loads has.
pub(super) fn check_names(only: &[String], load: &[&'static str]) -> Result<(), Error> {
    let rules = RULES.iter().map(|rule| rule.name);
    let known: Vec<&str> = Costs::NAMES.iter().chain(load).copied().chain(rules).collect();
    match only.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Error::input(format!(
            "--costs {name}: no such cost, and no such rule; give some of {}",
            known.join(", ")
        ))),
    }
}

#[cfg(test)]
#[path = "tests/variation.rs"]
mod tests;

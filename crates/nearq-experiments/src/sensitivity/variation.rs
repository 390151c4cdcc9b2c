//! What is varied: one cost, or one parameter of an experiment, at a time.

use crate::{Error, Machine};
use nearq_sim::Costs;

/// The percentages of its value that a cost is given.
const PERCENTS: [u64; 2] = [50, 150];

/// Something that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factor {
    /// The name of a cost, or of a parameter.
    pub name: &'static str,
    /// What a cost is on the machine; none for a parameter.
    pub cost: Option<u64>,
    /// Less and more, in percent of what it is; none where there is no less.
    pub percents: [Option<u64>; 2],
}

impl Factor {
    /// A cost of the machine. Small numbers cannot be halved exactly: the percentages are what comes of it.
    fn cost(name: &'static str, costs: &Costs) -> Option<Self> {
        let cost = costs.get(name)?;
        let [less, more] = PERCENTS.map(|percent| costs.scaled(name, percent)?.get(name));
        let percent = |changed: u64| (changed * 100).div_ceil(cost.max(1));
        let less = less.filter(|&less| less < cost).map(percent);
        let more = percent(more.filter(|&more| more > cost).unwrap_or(cost + 1));
        Some(Self { name, cost: Some(cost), percents: [less, Some(more)] })
    }

    /// A parameter of an experiment.
    fn parameter(name: &'static str) -> Self {
        Self { name, cost: None, percents: PERCENTS.map(Some) }
    }

    /// The machine with the cost at `percent`; the same machine for a parameter.
    pub(super) fn apply(&self, machine: &Machine, percent: u64) -> Machine {
        let scaled = machine.model().filter(|_| self.cost.is_some()).and_then(|model| {
            Some(model.clone().with_costs(model.costs().scaled(self.name, percent)?))
        });
        scaled.map_or_else(|| machine.clone(), Machine::simulated)
    }

    /// The parameter at `percent`, if it is one.
    pub(super) fn setting(&self, percent: u64) -> Option<(&'static str, u64)> {
        self.cost.is_none().then_some((self.name, percent))
    }

    /// `same_llc = 40`, or the name of a parameter.
    pub fn describe(&self) -> String {
        match self.cost {
            Some(cost) => format!("{} = {cost}", self.name),
            None => format!("{} (payload)", self.name),
        }
    }
}

/// `-50 %`: a percentage as a difference.
pub(super) fn difference(percent: u64) -> String {
    format!("{:+} %", percent.cast_signed() - 100)
}

/// The costs of a machine and the parameters of an experiment: all, or those of these names.
pub(super) fn factors(
    machine: &Machine,
    parameters: &[&'static str],
    only: &[String],
) -> Result<Vec<Factor>, Error> {
    let wanted = |name: &&&'static str| only.is_empty() || only.iter().any(|one| one == **name);
    let model = machine.model().ok_or_else(|| {
        Error::input(format!(
            "--on {}: the costs of a real machine cannot be varied; give a simulated one: {}",
            machine.name(),
            Machine::NAMES.join(", ")
        ))
    })?;
    let costs = Costs::NAMES.iter().filter(wanted);
    let costs = costs.filter_map(|name| Factor::cost(name, model.costs()));
    let parameters = parameters.iter().filter(wanted).map(|name| Factor::parameter(name));
    Ok(costs.chain(parameters).collect())
}

/// Refuses a name that neither a cost nor a parameter has.
pub(super) fn check_names(only: &[String], parameters: &[&'static str]) -> Result<(), Error> {
    let known = || Costs::NAMES.iter().chain(parameters);
    match only.iter().find(|name| !known().any(|one| one == name)) {
        None => Ok(()),
        Some(name) => Err(Error::input(format!(
            "--costs {name}: no such cost; give some of {}",
            known().copied().collect::<Vec<_>>().join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_halved_and_raised_by_half_as_far_as_they_can_be() {
        let costs = Costs::DEFAULT;
        let factor = Factor::cost("same_llc", &costs).unwrap();
        assert_eq!((factor.cost, factor.percents), (Some(40), [Some(50), Some(150)]));
        let mut small = costs;
        small.own_line = 1;
        let factor = Factor::cost("own_line", &small).unwrap();
        assert_eq!(factor.percents, [None, Some(200)], "1 ns has no half, and 2 is the next");
        assert_eq!(Factor::cost("luck", &costs), None);
        assert_eq!((difference(50), difference(150)), ("-50 %".into(), "+50 %".into()));
    }

    #[test]
    fn a_factor_changes_its_cost_alone() {
        let machine = Machine::named("l3:2 core:2").unwrap();
        let all = factors(&machine, &["item_work"], &["wake_up".into()]).unwrap();
        let [wake_up] = &all[..] else { panic!("one was asked for") };
        let changed = wake_up.apply(&machine, 150);
        let (before, after) = (machine.model().unwrap(), changed.model().unwrap());
        assert_eq!(after.costs().wake_up, before.costs().wake_up * 3 / 2);
        assert_eq!(
            after.costs().scaled("wake_up", 100).unwrap().idle_exit,
            before.costs().idle_exit
        );
        assert_eq!((changed.name(), wake_up.setting(150)), ("l3:2 core:2", None));
    }

    #[test]
    fn parameters_are_factors_too_and_other_names_are_refused() {
        let machine = Machine::named("l3:2 core:2").unwrap();
        let all = factors(&machine, &["item_work"], &[]).unwrap();
        assert_eq!(all.len(), Costs::NAMES.len() + 1);
        assert_eq!(all.last().unwrap().setting(50), Some(("item_work", 50)));
        assert_eq!(check_names(&["item_work".into(), "spawn".into()], &["item_work"]), Ok(()));
        let error = check_names(&["luck".into()], &["item_work"]).unwrap_err().to_string();
        assert!(error.contains("--costs luck") && error.contains("same_llc"), "{error}");
        let here = factors(&Machine::here().unwrap(), &[], &[]).unwrap_err().to_string();
        assert!(here.contains("--on here") && here.contains("grace-72"), "{here}");
    }
}

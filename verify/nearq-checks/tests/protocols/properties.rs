//! What a checker has found out about a scenario's properties.

use std::fmt::Debug;

use stateright::{Checker, Expectation, Model};

/// Each property holds, and what `reaches` names does happen, so that the check is not empty.
pub(crate) fn hold<M>(scenario: &M, checker: &impl Checker<M>, reaches: &[&str])
where
    M: Model<State: Clone + PartialEq + Debug, Action: Clone + PartialEq + Debug>,
{
    let states = checker.unique_state_count();
    for property in scenario.properties() {
        let path = checker.discovery(property.name);
        if property.expectation == Expectation::Sometimes {
            let reached = path.is_some() || !reaches.contains(&property.name);
            assert!(reached, "{} is never so; {states} states", property.name);
        } else if let Some(path) = path {
            let last = path.last_state().clone();
            let steps = path.into_actions();
            panic!("{} does not hold after {steps:?}: {last:?}", property.name);
        }
    }
}

/// The properties that do not hold.
pub(crate) fn not_held<M>(scenario: &M, checker: &impl Checker<M>) -> Vec<&'static str>
where
    M: Model<State: Clone + PartialEq + Debug, Action: Clone + PartialEq + Debug>,
{
    let properties = scenario.properties();
    let must_hold = properties.iter().filter(|one| one.expectation != Expectation::Sometimes);
    must_hold.map(|one| one.name).filter(|name| checker.discovery(name).is_some()).collect()
}

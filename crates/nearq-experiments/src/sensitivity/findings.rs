//! What is varied, and the effect on the conclusions.

use super::question::{Answer, Conclusion};
use crate::{Error, Machine};
use nearq_report::Summary;
use nearq_sim::Costs;

// The results of varying the costs: for every cost and conclusion, the value, and whether it holds.

/// The results for one experiment.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The experiment.
    pub experiment: &'static str,
    /// The machine's name.
    pub machine: String,
    /// The conclusions, as they are on the unchanged machine with the first seed.
    pub conclusions: Vec<Conclusion>,
    /// The unchanged machine.
    pub base: Cell,
    /// The factors that were varied: the one that moves most comes first, unused ones come last.
    pub lines: Vec<Line>,
}

/// One factor: less, and more.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was varied.
    pub factor: Factor,
    /// The results with less and with more; `None` if the cost cannot be less.
    pub cells: [Option<Cell>; 2],
    /// The largest relative change of a value that it causes.
    pub moves: f64,
    /// Whether the experiment uses it at all: if it does not, the run is the same to the last event.
    pub used: bool,
}

/// All conclusions with one thing varied by a given amount.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The percentage of its value that was used; 100 for the unchanged machine.
    pub percent: u64,
    /// The median of each conclusion's value.
    pub values: Vec<f64>,
    /// The margins of each conclusion, one for each seed.
    pub margins: Vec<Vec<f64>>,
    /// The hash of each run.
    hashes: Vec<u64>,
}

/// The fate of a conclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds, whichever factor is varied.
    Survives,
    /// It holds on the unchanged machine and fails on some varied one.
    Falls,
    /// It fails on the unchanged machine.
    Fails,
}

fn median(runs: &[f64]) -> f64 {
    Summary::of(runs).map_or(f64::NAN, |summary| summary.median)
}

impl Cell {
    fn new(percent: u64, answers: &[&Answer]) -> Self {
        let count = answers.first().map_or(0, |answer| answer.conclusions.len());
        let of = |number: usize, get: &dyn Fn(&Conclusion) -> f64| -> Vec<f64> {
            answers.iter().map(|answer| get(&answer.conclusions[number])).collect()
        };
        Self {
            percent,
            values: (0..count).map(|number| median(&of(number, &|one| one.value))).collect(),
            margins: (0..count)
                .map(|number| of(number, &|one| one.bound.margin(one.value)))
                .collect(),
            hashes: answers.iter().map(|answer| answer.trace_hash).collect(),
        }
    }

    /// Whether a conclusion holds, by the median of its margins.
    pub fn holds(&self, conclusion: usize) -> bool {
        self.margin(conclusion) >= 0.0
    }

    /// The median margin of a conclusion.
    pub fn margin(&self, conclusion: usize) -> f64 {
        median(&self.margins[conclusion])
    }

    /// The largest relative difference of a value from that of `base`.
    fn moves(&self, base: &Self) -> f64 {
        let moved =
            self.values.iter().zip(&base.values).map(|(value, base)| (value / base - 1.0).abs());
        moved.fold(0.0, f64::max)
    }
}

impl Findings {
    /// Puts the answers in order: those of the unchanged machine have nothing varied, the others a factor by number and
    /// a percentage.
    pub(super) fn new(
        experiment: &'static str,
        machine: &Machine,
        factors: Vec<Factor>,
        answers: Vec<(Option<(usize, u64)>, Answer)>,
    ) -> Self {
        let cell = |varied: Option<(usize, u64)>| {
            let matching = answers.iter().filter(|(of, _)| *of == varied);
            let matching: Vec<&Answer> = matching.map(|(_, answer)| answer).collect();
            Cell::new(varied.map_or(100, |(_, percent)| percent), &matching)
        };
        let base = cell(None);
        let line = |(number, factor): (usize, Factor)| {
            let cells = factor.percents.map(|percent| Some(cell(Some((number, percent?)))));
            let all = || cells.iter().flatten();
            let moves = all().map(|cell| cell.moves(&base)).fold(0.0, f64::max);
            let used = all().any(|cell| cell.hashes != base.hashes);
            Line { factor, cells, moves, used }
        };
        let mut lines: Vec<Line> = factors.into_iter().enumerate().map(line).collect();
        // Stable: equals stay in the order of the costs.
        lines.sort_by(|a, b| (b.used, b.moves).partial_cmp(&(a.used, a.moves)).expect("no NaN"));
        let first = answers.iter().find(|(varied, _)| varied.is_none());
        let conclusions = first.map_or_else(Vec::new, |(_, answer)| answer.conclusions.clone());
        Self { experiment, machine: machine.name().into(), conclusions, base, lines }
    }

    /// The largest relative change of a value that seeds alone cause: a smaller change is not significant.
    pub fn spread(&self) -> f64 {
        let spread = self.base.margins.iter().zip(&self.base.values).map(|(margins, value)| {
            let summary = Summary::of(margins);
            summary.map_or(0.0, |summary| (summary.max - summary.min) / 2.0 / value.abs())
        });
        spread.fold(0.0, f64::max)
    }

    /// The variations with which a conclusion fails that holds on the unchanged machine.
    pub fn falls_with(&self, conclusion: usize) -> Vec<String> {
        if !self.base.holds(conclusion) {
            return Vec::new();
        }
        let cells = self
            .lines
            .iter()
            .flat_map(|line| line.cells.iter().flatten().map(move |cell| (line.factor.name, cell)));
        cells
            .filter(|(_, cell)| !cell.holds(conclusion))
            .map(|(name, cell)| format!("{name} {}", difference(cell.percent)))
            .collect()
    }

    /// What becomes of a conclusion.
    pub fn verdict(&self, conclusion: usize) -> Verdict {
        if !self.base.holds(conclusion) {
            Verdict::Fails
        } else if self.falls_with(conclusion).is_empty() {
            Verdict::Survives
        } else {
            Verdict::Falls
        }
    }

    /// The costs and parameters that the experiment does not use.
    pub fn unused(&self) -> impl Iterator<Item = &'static str> {
        self.lines.iter().filter(|line| !line.used).map(|line| line.factor.name)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::question::Bound;
    use super::*;

    fn answer(value: f64, trace_hash: u64) -> Answer {
        let name = "shards pay".into();
        Answer {
            conclusions: vec![Conclusion { name, value, bound: Bound::AtLeast(1.5) }],
            trace_hash,
        }
    }

    fn factor(name: &'static str) -> Factor {
        Factor { name, cost: Some(40), percents: [Some(50), Some(150)] }
    }

    /// A machine on which one cost is not used, one moves little, one makes the conclusion fall.
    pub(in super::super) fn sample() -> Findings {
        let factors = vec![factor("fork"), factor("clock"), factor("same_llc")];
        let both = |number: usize, percent: u64, values: [f64; 2], hash: u64| {
            values.map(|value| (Some((number, percent)), answer(value, hash)))
        };
        let mut answers = vec![(None, answer(2.0, 7)), (None, answer(2.2, 7))];
        answers.extend(both(0, 50, [2.0, 2.2], 7));
        answers.extend(both(0, 150, [2.0, 2.2], 7));
        answers.extend(both(1, 50, [2.1, 2.1], 8));
        answers.extend(both(1, 150, [2.15, 2.15], 9));
        answers.extend(both(2, 50, [1.0, 1.2], 10));
        answers.extend(both(2, 150, [3.0, 3.2], 11));
        Findings::new("dispatch", &Machine::named("grace-72").unwrap(), factors, answers)
    }

    #[test]
    fn factors_are_sorted_by_effect_with_unused_ones_last() {
        let findings = sample();
        let names: Vec<_> = findings.lines.iter().map(|line| line.factor.name).collect();
        assert_eq!(names, ["same_llc", "clock", "fork"]);
        assert_eq!(findings.unused().collect::<Vec<_>>(), ["fork"]);
        assert!((findings.lines[0].moves - 0.476).abs() < 0.001);
        assert!((findings.spread() - 0.0476).abs() < 0.001);
    }

    #[test]
    fn a_conclusion_holds_by_the_median_of_its_seeds() {
        let findings = sample();
        assert!(findings.base.holds(0) && (findings.base.values[0] - 2.1).abs() < 1e-9);
        assert_eq!(findings.falls_with(0), ["same_llc -50 %"]);
        assert_eq!(findings.verdict(0), Verdict::Falls);
        let mut sound = sample();
        sound.lines.retain(|line| line.factor.name != "same_llc");
        assert_eq!(sound.verdict(0), Verdict::Survives);
        sound.base.margins[0] = vec![-0.1];
        assert_eq!((sound.verdict(0), sound.falls_with(0)), (Verdict::Fails, Vec::new()));
    }
}

// What is varied: one cost, or one parameter of an experiment, at a time.

/// The percentages of its value that a cost is given.
const PERCENTS: [u64; 2] = [50, 150];

/// Something that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factor {
    /// The name of a cost, or of a parameter.
    pub name: &'static str,
    /// The value of a cost on the machine; `None` for a parameter.
    pub cost: Option<u64>,
    /// A smaller and a larger value, in percent of the cost; `None` if there is no smaller one.
    pub percents: [Option<u64>; 2],
}

impl Factor {
    /// A cost of the machine. Small numbers cannot be halved exactly: the percentages are the actual ones.
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
#[path = "tests/variation.rs"]
mod variation_tests;

//! The effect on the conclusions: for everything that is varied and every conclusion, the value, and whether it holds.

use super::question::{Answer, Conclusion, Question};
use super::variation::{Change, Factor};
use crate::Machine;
use crate::harness::options::too_small;
use nearq_report::Summary;

/// The results for one experiment.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The experiment.
    pub experiment: &'static str,
    /// The machine's name.
    pub machine: String,
    /// How large a run was, beside a run of the experiment itself.
    pub size: &'static str,
    /// Why nothing is judged, if nothing is.
    pub too_small: Option<String>,
    /// The conclusions, as they are on the unchanged machine with the first seed.
    pub conclusions: Vec<Conclusion>,
    /// The unchanged machine.
    pub base: Cell,
    /// The factors that were varied: the one that moves most comes first, unused ones come last.
    pub lines: Vec<Line>,
}

/// One factor: less, and more; or the other rule.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was varied.
    pub factor: Factor,
    /// The results of the factor's changes, in their order.
    pub cells: [Option<Cell>; 2],
    /// The largest relative change of a value that it causes.
    pub moves: f64,
    /// Whether the experiment uses it at all: if it does not, the run is the same to the last event.
    pub used: bool,
}

/// All conclusions with one thing varied by a given amount.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// How the factor was changed; `None` for the unchanged machine.
    pub change: Option<Change>,
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
    /// The run is too small to say.
    Unjudged,
}

fn median(runs: &[f64]) -> f64 {
    Summary::of(runs).map_or(f64::NAN, |summary| summary.median)
}

impl Cell {
    fn new(change: Option<Change>, answers: &[&Answer]) -> Self {
        let count = answers.first().map_or(0, |answer| answer.conclusions.len());
        let of = |number: usize, get: &dyn Fn(&Conclusion) -> f64| -> Vec<f64> {
            answers.iter().map(|answer| get(&answer.conclusions[number])).collect()
        };
        Self {
            change,
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

impl Line {
    /// Whether there is something to vary.
    pub(super) fn is_varied(&self) -> bool {
        self.cells.iter().any(Option::is_some)
    }

    /// What is varied in one of its cells: `same_llc -50 %`.
    pub(super) fn name_of(&self, cell: &Cell) -> String {
        cell.change.map_or_else(String::new, |change| self.factor.changed(change))
    }
}

impl Findings {
    /// Puts the answers in order: those of the unchanged machine have nothing varied, the others a factor by number and
    /// a change.
    pub(super) fn new(
        question: &Question,
        quick: bool,
        machine: &Machine,
        factors: Vec<Factor>,
        answers: Vec<(Option<(usize, Change)>, Answer)>,
    ) -> Self {
        let cell = |varied: Option<(usize, Change)>| {
            let matching = answers.iter().filter(|(of, _)| *of == varied);
            let matching: Vec<&Answer> = matching.map(|(_, answer)| answer).collect();
            Cell::new(varied.map(|(_, change)| change), &matching)
        };
        let base = cell(None);
        let least = question.least_runs[usize::from(quick)];
        let too_small = too_small(machine, [base.hashes.len(), least], &[]);
        let line = |(number, factor): (usize, Factor)| {
            let cells = factor.changes.map(|change| Some(cell(Some((number, change?)))));
            let all = || cells.iter().flatten();
            let moves = all().map(|cell| cell.moves(&base)).fold(0.0, f64::max);
            let used = all().any(|cell| cell.hashes != base.hashes);
            Line { factor, cells, moves, used }
        };
        let mut lines: Vec<Line> = factors.into_iter().enumerate().map(line).collect();
        // Stable: equals stay in the order of the factors.
        lines.sort_by(|a, b| (b.used, b.moves).partial_cmp(&(a.used, a.moves)).expect("no NaN"));
        let first = answers.iter().find(|(varied, _)| varied.is_none());
        let conclusions = first.map_or_else(Vec::new, |(_, answer)| answer.conclusions.clone());
        Self {
            experiment: question.name,
            machine: machine.name().into(),
            size: question.sizes[usize::from(quick)],
            too_small,
            conclusions,
            base,
            lines,
        }
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
        if self.too_small.is_some() || !self.base.holds(conclusion) {
            return Vec::new();
        }
        let failing = |cell: &&Cell| !cell.holds(conclusion);
        let of_line = |line: &Line| -> Vec<String> {
            line.cells.iter().flatten().filter(failing).map(|cell| line.name_of(cell)).collect()
        };
        self.lines.iter().flat_map(of_line).collect()
    }

    /// What becomes of a conclusion.
    pub fn verdict(&self, conclusion: usize) -> Verdict {
        if self.too_small.is_some() {
            Verdict::Unjudged
        } else if !self.base.holds(conclusion) {
            Verdict::Fails
        } else if self.falls_with(conclusion).is_empty() {
            Verdict::Survives
        } else {
            Verdict::Falls
        }
    }

    /// What the experiment does not use, or the machine does not have.
    pub fn unused(&self) -> impl Iterator<Item = &'static str> {
        self.lines.iter().filter(|line| !line.used).map(|line| line.factor.name)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::question::{Bound, tests::question};
    use super::super::variation::Kind;
    use super::*;

    fn answer(value: f64, trace_hash: u64) -> Answer {
        let name = "shards pay".into();
        Answer {
            conclusions: vec![Conclusion { name, value, bound: Bound::AtLeast(1.5) }],
            trace_hash,
        }
    }

    fn factor(name: &'static str) -> Factor {
        let changes = [50, 150].map(|percent| Some(Change::Percent(percent)));
        Factor { name, kind: Kind::Cost(40), changes }
    }

    /// A machine on which one cost is nothing, one is not used, one moves little, and one cost and one rule make the conclusion fall. A
    /// quick run is too small to judge it.
    pub(in super::super) fn sample(quick: bool) -> Findings {
        let rule = Factor {
            name: "wake rule",
            kind: Kind::Rule("within the cache"),
            changes: [None, Some(Change::Other)],
        };
        let nothing = Factor { name: "interrupt", kind: Kind::Cost(0), changes: [None, None] };
        let factors = vec![factor("fork"), factor("clock"), factor("same_llc"), rule, nothing];
        let with = |number: usize, change: Change, values: [f64; 2], hash: u64| {
            values.map(|value| (Some((number, change)), answer(value, hash)))
        };
        let both =
            |number, percent, values, hash| with(number, Change::Percent(percent), values, hash);
        let mut answers = vec![(None, answer(2.0, 7)), (None, answer(2.2, 7))];
        answers.extend(both(0, 50, [2.0, 2.2], 7));
        answers.extend(both(0, 150, [2.0, 2.2], 7));
        answers.extend(both(1, 50, [2.1, 2.1], 8));
        answers.extend(both(1, 150, [2.15, 2.15], 9));
        answers.extend(both(2, 50, [1.0, 1.2], 10));
        answers.extend(both(2, 150, [3.0, 3.2], 11));
        answers.extend(with(3, Change::Other, [1.4, 1.4], 12));
        let machine = Machine::named("grace-72").unwrap();
        Findings::new(&question(), quick, &machine, factors, answers)
    }

    #[test]
    fn factors_are_sorted_by_effect_with_unused_ones_last() {
        let findings = sample(false);
        let names: Vec<_> = findings.lines.iter().map(|line| line.factor.name).collect();
        assert_eq!(names, ["same_llc", "wake rule", "clock", "fork", "interrupt"]);
        assert_eq!(findings.unused().collect::<Vec<_>>(), ["fork", "interrupt"]);
        assert!((findings.lines[0].moves - 0.476).abs() < 0.001);
        assert!((findings.spread() - 0.0476).abs() < 0.001);
    }

    #[test]
    fn a_conclusion_holds_by_the_median_of_its_seeds() {
        let findings = sample(false);
        assert!(findings.base.holds(0) && (findings.base.values[0] - 2.1).abs() < 1e-9);
        assert_eq!(findings.falls_with(0), ["same_llc -50 %", "wake rule: within the cache"]);
        assert_eq!(findings.verdict(0), Verdict::Falls);
        let mut sound = sample(false);
        sound.lines.retain(|line| line.factor.name == "clock");
        assert_eq!(sound.verdict(0), Verdict::Survives);
        sound.base.margins[0] = vec![-0.1];
        assert_eq!((sound.verdict(0), sound.falls_with(0)), (Verdict::Fails, Vec::new()));
    }

    #[test]
    fn nothing_is_judged_with_too_few_seeds() {
        let findings = sample(true);
        assert_eq!((findings.verdict(0), findings.falls_with(0)), (Verdict::Unjudged, Vec::new()));
        let why = "Too small to judge: --runs 2. Give --runs 3, or more.";
        assert_eq!((findings.size, findings.too_small.as_deref()), ("4 items", Some(why)));
        assert_eq!((sample(false).size, sample(false).too_small), ("60 items", None));
    }
}

//! `nearq bench lock --surface`: what `auto` gains over one queue on a simulated machine, and how much longer threads wait, by the time that
//! threads spend away from the mutex, by their number, and by where they run.
//!
//! A gain at one number of writers and one time says little: whether queues by cache pay depends on whether threads wait, and for how many
//! of them at once. So all combinations are run, with the short section.
//!
//! One queue has more than one way to go on in some of these loads: threads may wait in it all the time, or hardly at all, or hand it over in
//! an order that crosses sockets more often or less, and keeps to it. In which of them a run ends depends on its seed, and a longer run does
//! not change it. Medians would jump from one to the other, so a gain is that of the mean throughput over all seeds, and there are more runs
//! of a place until the standard error of its gain is small. Waits are medians.

use super::contestants::{AUTO, Contestant, DEPTH, PLAIN, Roster, simulated};
use super::goals::Goal;
use super::load::{CpuPlacement, Load, Plan, Sample};
use super::{LockOptions, MOST_WRITERS, OUTSIDE_NS, simulated_run};
use crate::harness::options::{all_within, means_something, too_small, within};
use crate::harness::table::{counted, reached};
use crate::harness::{self, Common, Experiment, Run};
use crate::plots::heat::{Heat, draw};
use crate::{Error, Machine};
use nearq_report::metric::{self, Metric};
use nearq_report::{Report, Row, Summary, Table, find};
use serde_json::{Value, json};
use std::time::Duration;

/// The times away from the mutex, in nanoseconds.
const OUTSIDES: [usize; 11] = [0, 100, 300, 1000, 2000, 3000, 4000, 5000, 8000, 10_000, 20_000];
/// The numbers of writers; those of which a machine has no CPUs are left out.
const WRITERS: [usize; 12] = [2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 128, 384];
/// For a quick run, which takes a few of both.
const FEW: ([usize; 3], [usize; 4]) = ([100, 1000, 5000], [4, 16, 32, 64]);
/// Runs of each place, one after the other until the standard error of its gain is small: so many, and at most so many.
const RUNS: [&[usize]; 2] = [&[5, 20, 80], &[3]];
/// The standard error in points that is small enough.
const ERROR: f64 = 2.0;
/// How long a run lasts in virtual time.
const DURATION: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(5)];

/// The least gain in percent, and the most by which the longest wait and the 99th percentile may exceed those of one queue.
const LEAST_GAIN: f64 = -5.0;
const MOST_LONGEST: f64 = 4.0;
const MOST_P99: f64 = 1.0;

/// What is read off the figures of `auto`, and which bound it has.
struct Measure {
    metric: Metric,
    what: &'static str,
    read: fn(&Summary) -> f64,
    bound: f64,
    at_most: bool,
    unit: &'static str,
    digits: usize,
}

const MEASURES: [Measure; 3] = [
    Measure {
        metric: metric::GAIN,
        what: "gain of auto over plain in percent",
        read: |summary| summary.mean,
        bound: LEAST_GAIN,
        at_most: false,
        unit: " %",
        digits: 0,
    },
    Measure {
        metric: metric::WAIT_RATIO_MAX,
        what: "longest wait of auto to that of plain",
        read: |summary| summary.median,
        bound: MOST_LONGEST,
        at_most: true,
        unit: "",
        digits: 1,
    },
    Measure {
        metric: metric::WAIT_RATIO_P99,
        what: "p99 of the waits of auto to that of plain",
        read: |summary| summary.median,
        bound: MOST_P99,
        at_most: true,
        unit: "",
        digits: 1,
    },
];

/// The experiment, with the options of `lock`.
#[derive(Clone, Debug)]
pub(crate) struct Surface<'o>(pub(crate) &'o LockOptions);

/// What must be done.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    places: Vec<CpuPlacement>,
    outsides: Vec<usize>,
    writers: Vec<usize>,
    duration: Duration,
    /// How many runs each place has, and then those whose gain is not certain enough.
    runs: Vec<usize>,
}

/// A place on the surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    place: CpuPlacement,
    outside_ns: usize,
    writers: usize,
}

impl Cell {
    fn scenario(self) -> String {
        scenario(self.place.name(), self.outside_ns, self.writers)
    }
}

fn scenario(place: &str, outside_ns: usize, writers: usize) -> String {
    format!("{place} {outside_ns} ns {writers}")
}

impl Job {
    fn cells(&self) -> impl Iterator<Item = Cell> {
        self.places.iter().flat_map(move |&place| {
            self.outsides.iter().flat_map(move |&outside_ns| {
                self.writers.iter().map(move |&writers| Cell { place, outside_ns, writers })
            })
        })
    }
}

/// The runs of a place: one queue and `auto` with each seed.
#[derive(Debug, Default)]
struct Pairs(Vec<[Sample; 2]>);

impl Pairs {
    fn summary(&self, which: usize, read: fn(&Sample) -> f64) -> Summary {
        let runs: Vec<f64> = self.0.iter().map(|pair| read(&pair[which])).collect();
        Summary::of(&runs).expect("there is a run")
    }

    /// The standard error in points of the gain of the means; infinite if nothing can be said of it.
    fn error(&self) -> f64 {
        if self.0.len() < 2 {
            return f64::INFINITY;
        }
        let [plain, auto] = [0, 1].map(|which| self.summary(which, Sample::per_second));
        // The errors of a quotient, in parts of it, are those of its parts (to first order).
        let square = |of: Summary| (of.deviation / of.mean).powi(2) / of.runs as f64;
        auto.mean / plain.mean * (square(plain) + square(auto)).sqrt() * 100.0
    }
}

type Facts<'f, 'o> = harness::Facts<'f, Surface<'o>>;

impl Experiment for Surface<'_> {
    const NAME: &'static str = "lock";
    type Plan = Job;
    type Found = ();
    type Verdict = Vec<Goal>;

    fn common(&self) -> &Common {
        &self.0.common
    }

    fn plan(&self, machine: &Machine) -> Result<Job, Error> {
        let options = self.0;
        if machine.model().is_none() {
            return Err(Error::input(
                "--surface: only on a simulated machine; give one with --on".to_owned(),
            ));
        }
        for (option, is_given) in
            [("--section", options.section.is_some()), ("--shape", options.shape.is_some())]
        {
            means_something(option, is_given, false, "a run without --surface")?;
        }
        let quick = usize::from(options.common.quick);
        let outsides = match options.outside_ns {
            Some(outside) => {
                within("--outside", outside, 0, OUTSIDE_NS[1])?;
                vec![outside]
            }
            None if quick == 1 => FEW.0.to_vec(),
            None => OUTSIDES.to_vec(),
        };
        let cpus = machine.usable().len();
        let writers = match &options.writers {
            Some(writers) => writers.clone(),
            None => {
                let all = if quick == 1 { &FEW.1[..] } else { &WRITERS };
                all.iter().copied().filter(|&writers| writers <= cpus).collect()
            }
        };
        all_within("--writers", &writers, MOST_WRITERS)?;
        let places = match options.place.as_deref() {
            None => vec![CpuPlacement::Compact, CpuPlacement::Spread],
            given => vec![CpuPlacement::named(given)?],
        };
        Ok(Job {
            places,
            outsides,
            writers,
            duration: options.common.duration.unwrap_or(DURATION[quick]),
            runs: options.common.runs.map_or_else(|| RUNS[quick].to_vec(), |runs| vec![runs]),
        })
    }

    fn measure(&self, run: &mut Run<'_>, job: &mut Job) -> Result<(), Error> {
        let machine = run.machine;
        let contestant = |row| simulated().into_iter().find(|one| one.row == row);
        let [plain, auto] =
            [PLAIN, AUTO].map(|row| contestant(row).expect("both run on simulated machines"));
        let cells: Vec<Cell> = job.cells().collect();
        let what = |_, &(number, of, seed): &(usize, Contestant, usize)| {
            let cell: Cell = cells[number];
            format!("run {}, {}: {}", seed + 1, cell.scenario(), of.row)
        };
        let work = |&(number, of, seed): &(usize, Contestant, usize)| {
            let cell = cells[number];
            let plan = Plan {
                load: Load::Short,
                writers: cell.writers,
                cpus: cell.place.order(machine),
                // Our locks need no writers.
                roster: Roster::new(0, &[], DEPTH),
                // A simulated round is a nanosecond.
                outside: cell.outside_ns as u64,
                duration: job.duration,
                seed: seed as u64,
            };
            Ok(simulated_run(machine, of, plan)?.0)
        };
        let mut samples: Vec<Pairs> = cells.iter().map(|_| Pairs::default()).collect();
        for &runs in &job.runs {
            let open = samples.iter().enumerate().filter(|(_, pairs)| pairs.error() > ERROR);
            let tasks: Vec<_> = open
                .flat_map(|(number, pairs)| {
                    let pair = move |seed| [plain, auto].map(|one| (number, one, seed));
                    (pairs.0.len()..runs).flat_map(pair)
                })
                .collect();
            let mut done = tasks.iter().zip(run.all(&tasks, what, work)?);
            while let (Some(((number, ..), plain)), Some((_, auto))) = (done.next(), done.next()) {
                samples[*number].0.push([plain, auto]);
            }
        }
        for (cell, pairs) in cells.iter().zip(&samples) {
            let plain = [
                pairs.summary(0, Sample::per_second).mean,
                pairs.summary(0, |sample| sample.waits.longest_us()).median,
                pairs.summary(0, |sample| sample.waits.quantile_us(0.99)).median,
            ];
            for [_, sample] in &pairs.0 {
                let gain = (sample.per_second() / plain[0] - 1.0) * 100.0;
                let longest = sample.waits.longest_us() / plain[1];
                let p99 = sample.waits.quantile_us(0.99) / plain[2];
                for (measure, value) in MEASURES.iter().zip([gain, longest, p99]) {
                    // If one queue was never taken, or no thread waited, there is no ratio.
                    if value.is_finite() {
                        run.figures.add(&cell.scenario(), AUTO, measure.metric, value);
                    }
                }
            }
            if pairs.error().is_finite() {
                run.figures.add(&cell.scenario(), AUTO, metric::GAIN_ERROR, pairs.error());
            }
        }
        Ok(())
    }

    fn too_small(&self, machine: &Machine, job: &Job) -> Result<Option<String>, Error> {
        let quick = LockOptions { common: self.0.common.of_a_quick_run(), ..self.0.clone() };
        let least = Surface(&quick).plan(machine)?;
        let duration = [job.duration, least.duration].map(|time| time.as_secs_f64());
        Ok(too_small(machine, [job.runs[0], least.runs[0]], &[("--duration", duration)]))
    }

    fn judge(facts: &Facts<'_, '_>) -> Vec<Goal> {
        if facts.too_small.is_some() {
            return Vec::new();
        }
        let judged = |measure| judge(&facts.rows, facts.plan.cells(), measure);
        MEASURES.iter().filter_map(judged).collect()
    }

    fn parameters(facts: &Facts<'_, '_>) -> Value {
        let job = &facts.plan;
        json!({
            "surface": true,
            "runs": job.runs,
            "duration_s": job.duration.as_secs_f64(),
            "places": job.places.iter().map(|place| place.name()).collect::<Vec<_>>(),
            "outsides_ns": job.outsides,
            "writers": job.writers,
            "goals": facts.verdict,
        })
    }

    fn text(facts: &Facts<'_, '_>) -> String {
        let job = &facts.plan;
        let ms = job.duration.as_secs_f64() * 1e3;
        let (fewest, most) = (job.runs[0], job.runs[job.runs.len() - 1]);
        let runs = if fewest == most {
            counted(fewest, "run")
        } else {
            format!(
                "{fewest} to {most} runs, until the standard error of a gain is at most {ERROR} points,"
            )
        };
        let error = facts.rows.iter().filter(|row| row.metric == metric::GAIN_ERROR.name);
        let error = match error.map(|row| row.summary.mean).reduce(f64::max) {
            Some(error) => format!("its standard error is {error:.1} points at most"),
            None => "one run has no standard error".to_owned(),
        };
        let mut text = facts.heading("");
        text.push_str(&format!(
            "{runs} of {ms} ms of virtual time for each figure, each on a fresh machine with a seed of its own.\n\
             Writers take the mutex, increment a counter on each of two lines that all share, give it back and compute for the time of the line.\n\
             They are pinned: compact fills one cache after the other, spread alternates between caches.\n\
             A gain is that of the mean throughput of the runs; {error}. Waits are compared by their medians over the runs.\n"
        ));
        for measure in &MEASURES {
            for place in &job.places {
                text.push_str(&format!("\n{}", table(facts, measure, place.name())));
            }
        }
        if facts.show_goals() {
            text.push_str(&format!("\n{}", goals(facts)));
        }
        text
    }
}

/// The worst place on the surface decides.
fn judge(rows: &[Row], cells: impl Iterator<Item = Cell>, measure: &Measure) -> Option<Goal> {
    let figure = |cell: Cell| {
        let row = find(rows, &cell.scenario(), AUTO, measure.metric)?;
        Some((cell, (measure.read)(&row.summary)))
    };
    let figures = cells.filter_map(figure);
    let worse = |a: &(Cell, f64), b: &(Cell, f64)| a.1.total_cmp(&b.1);
    let (cell, reached) =
        if measure.at_most { figures.max_by(worse)? } else { figures.min_by(worse)? };
    let met = if measure.at_most { reached <= measure.bound } else { reached >= measure.bound };
    let error = find(rows, &cell.scenario(), AUTO, metric::GAIN_ERROR).map(|row| row.summary.mean);
    let error = error.filter(|_| measure.metric.name == metric::GAIN.name);
    let error = error.map_or(String::new(), |error| format!(" (standard error {error:.1})"));
    let (outside, place) = (cell.outside_ns, cell.place.name());
    Some(Goal {
        load: Load::Short.name(),
        what: format!("{}{error}, {outside} ns outside, {place}", measure.what),
        reached,
        writers: Some(cell.writers),
        goal: measure.bound,
        at_most: measure.at_most,
        unit: measure.unit,
        met,
    })
}

fn table(facts: &Facts<'_, '_>, measure: &Measure, place: &str) -> Table {
    let job = &facts.plan;
    let counts: Vec<String> = job.writers.iter().map(ToString::to_string).collect();
    let headings: Vec<&str> =
        std::iter::once("ns outside").chain(counts.iter().map(String::as_str)).collect();
    let mut table =
        Table::new(format!("{place}: {}, by the number of writers", measure.what), &headings);
    for &outside_ns in &job.outsides {
        let cell = |&writers: &usize| {
            let found = facts.of(&scenario(place, outside_ns, writers), AUTO, measure.metric);
            let shown = |summary: Summary| {
                let (digits, value) = (measure.digits, (measure.read)(&summary));
                if measure.at_most {
                    format!("{value:.digits$}")
                } else {
                    format!("{value:+.digits$}")
                }
            };
            found.map_or("-".into(), shown)
        };
        table.row(
            std::iter::once(outside_ns.to_string()).chain(job.writers.iter().map(cell)).collect(),
        );
    }
    table
}

fn goals(facts: &Facts<'_, '_>) -> String {
    if let Some(why) = &facts.too_small {
        return format!("{why}\n");
    }
    let mut table = Table::new(
        format!("Goals of {AUTO}, at the worst place of the surface"),
        &["", "reached", "writers", "goal", ""],
    );
    for goal in &facts.verdict {
        let least = if goal.at_most { "<=" } else { ">=" };
        table.row(vec![
            goal.what.clone(),
            format!("{:.2}{}", goal.reached, goal.unit),
            goal.writers.map_or("all".into(), |writers| writers.to_string()),
            format!("{least} {:.2}{}", goal.goal, goal.unit),
            reached(goal.met),
        ]);
    }
    table.to_string()
}

/// The gains in colour, a map for each placement.
pub(crate) fn picture(report: &Report) -> String {
    let numbers = |name: &str| -> Vec<usize> {
        let given = report.parameters[name].as_array().map(Vec::as_slice).unwrap_or_default();
        given.iter().filter_map(Value::as_u64).map(|number| number as usize).collect()
    };
    let (outsides, writers) = (numbers("outsides_ns"), numbers("writers"));
    let map = |place: &str| {
        let gain = |outside_ns: usize, writers: usize| {
            let row = report.find(&scenario(place, outside_ns, writers), AUTO, metric::GAIN);
            row.map_or(0.0, |row| row.summary.mean.round())
        };
        let row = |&outside_ns: &usize| {
            let gains = writers.iter().map(|&writers| gain(outside_ns, writers)).collect();
            (format!("{} us", outside_ns as f64 / 1000.0), gains)
        };
        Heat {
            title: format!("{place}: gain over one queue in percent"),
            scale: "blue: faster than one queue; red: slower".into(),
            columns: writers.iter().map(|writers| format!("{writers} writers")).collect(),
            rows: outsides.iter().map(row).collect(),
            notes: vec!["rows: how long a thread is away from the mutex".into()],
        }
    };
    let maps: Vec<Heat> = harness::table::texts(report, "places").into_iter().map(map).collect();
    let title = format!(
        "nearq bench lock --surface: {}",
        harness::table::place(report, report.environment.cpus)
    );
    draw(&title, &maps)
}

#[cfg(test)]
#[path = "tests/surface.rs"]
mod tests;

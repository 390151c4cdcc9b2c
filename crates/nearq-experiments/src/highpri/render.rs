//! The tables and the picture of `highpri`.

use super::conclusions::{Ratio, SOURCE};
use super::contestant::{Contestant, row};
use super::{Measured, Samples, Task, crowd, stage};
use crate::Machine;
use crate::plots::curves::{Curve, Curves, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Environment, Row, Table, find};
use std::rc::Rc;

/// The columns.
const COLUMNS: [(&str, Metric); 9] = [
    ("samples", metric::SAMPLES),
    ("stolen", metric::SAMPLES_STOLEN),
    ("p50", metric::LATENCY_P50),
    ("p99", metric::LATENCY_P99),
    ("p99.9", metric::LATENCY_P999),
    ("top 20", metric::LATENCY_TOP20),
    ("deviation", metric::LATENCY_TOP20_DEVIATION),
    ("max", metric::LATENCY_MAX),
    ("max unstolen", metric::LATENCY_MAX_UNSTOLEN),
];

/// Columns beside which the document has figures.
const PUBLISHED: [(&str, Metric); 3] = [
    ("published top 20", metric::LATENCY_TOP20),
    ("deviation", metric::LATENCY_TOP20_DEVIATION),
    ("max", metric::LATENCY_MAX),
];

/// What the tables and the picture are made from, beside the rows.
pub(super) struct Facts<'f> {
    pub(super) machine: &'f Machine,
    pub(super) task: &'f Task,
    pub(super) scenario: &'f str,
    pub(super) measured: &'f Measured,
    pub(super) ratios: &'f [Ratio],
    /// Why nothing is judged, if that is so.
    pub(super) too_small: Option<&'f str>,
    /// Whether the goals are shown.
    pub(super) show_goals: bool,
}

/// Milliseconds with as many digits as a reader can use: these go from microseconds to seconds.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl Facts<'_> {
    /// Everything for people.
    pub(super) fn text(&self, rows: &[Row], environment: &Environment) -> String {
        let (task, plan) = (self.task, &self.task.plan);
        let mut text = match self.machine.model() {
            None => format!("nearq bench highpri\n{}\n", environment.describe()),
            Some(model) => format!(
                "nearq bench highpri, on the simulated {} ({}), {} CPUs\n\
                 All times are virtual; each row has a fresh machine. Other pools are Linux programs: their rows are left out.\n",
                model.name(),
                model.about(),
                self.machine.parallelism(),
            ),
        };
        text.push_str(&format!(
            "{} threads at nice 0 sleep {} ms in a loop on CPU {}{}; from CPU {} an item is queued every {} ms, at most one at a time; \
             {} s a row{}.\n\
             A latency is the time from before the call that queues to the item's first instruction, in ms. \
             \"top 20\" is the mean of the longest 20.\n\
             \"stolen\": samples during which the host took time from the CPU; they are in all other columns but the last.\n",
            task.threads,
            crowd::SLEEP.as_secs_f64() * 1000.0,
            plan.cpu,
            self.crowd(),
            plan.issuer_cpu,
            plan.interval.as_secs_f64() * 1000.0,
            plan.duration.as_secs_f64(),
            if task.runs > 1 { format!(", {} runs, medians", task.runs) } else { String::new() },
        ));
        if plan.cpu == plan.issuer_cpu {
            text.push_str(
                "There is one CPU: the issuer is on it too, and its own waiting sets the pace.\n",
            );
        }
        text.push_str(&format!("\n{}", self.table(rows)));
        text.push_str(&format!("\n{}", self.conclusions()));
        text
    }

    fn crowd(&self) -> String {
        match (self.measured.wake_ups, self.machine.model()) {
            (Some(rate), _) => format!(" ({rate:.0} wake-ups a second, all together)"),
            (None, Some(_)) => format!(
                ", work {} us after each (a stated input)",
                stage::CROWD_WORK.as_secs_f64() * 1e6
            ),
            (None, None) => String::new(),
        }
    }

    fn table(&self, rows: &[Row]) -> Table {
        let published = rows.iter().any(|row| row.published.is_some());
        let mut headings = vec![""];
        headings.extend(COLUMNS.map(|(heading, _)| heading));
        if published {
            headings.push("|");
            headings.extend(PUBLISHED.map(|(heading, _)| heading));
        }
        let title = format!("From queueing to start, in ms, {}", self.scenario);
        let mut table = Table::new(title, &headings);
        for (contestant, _) in &self.measured.all {
            let name = contestant.row();
            let found = |metric| find(rows, self.scenario, name, metric);
            let cell = |metric: Metric| match found(metric) {
                Some(row) if metric.unit == "1" => format!("{:.0}", row.summary.median),
                Some(row) => rounded(row.summary.median),
                None => "-".into(),
            };
            let mut cells = vec![name.to_owned()];
            cells.extend(COLUMNS.map(|(_, metric)| cell(metric)));
            if published {
                let of_document = |metric: Metric| {
                    found(metric).and_then(|row| row.published).map_or("-".into(), rounded)
                };
                cells.push("|".into());
                cells.extend(PUBLISHED.map(|(_, metric)| of_document(metric)));
            }
            table.row(cells);
        }
        for remark in self.measured.all.iter().map(|(contestant, _)| about(contestant)) {
            table.remark(remark);
        }
        self.measured.remarks.iter().for_each(|line| table.remark(line.clone()));
        if published {
            table.remark(format!("published: {SOURCE}"));
            table.remark(format!(
                "the document's \"before\" put high-priority items at the head of a list that was empty: what `{}` does",
                row::NORMAL
            ));
        }
        table
    }

    fn conclusions(&self) -> Table {
        let headings = ["", "", "ms", "ms", "ratio", "published", "goal", ""];
        // The last two are about goals.
        let judged = self.show_goals && self.too_small.is_none();
        let shown = if judged { headings.len() } else { headings.len() - 2 };
        let title = "How many times as long the first waits as the second";
        let mut table = Table::new(title, &headings[..shown]);
        for ratio in self.ratios {
            let what = ratio.metric.trim_start_matches("latency_ms_");
            let mut cells = vec![
                format!("{} / {}", ratio.slow, ratio.fast),
                what.into(),
                rounded(ratio.slow_ms),
                rounded(ratio.fast_ms),
                rounded(ratio.ratio),
                ratio.published.map_or("-".into(), rounded),
                ratio.goal.map_or("-".into(), |goal| format!("{goal:.0}")),
                ratio.met.map_or("", |met| if met { "met" } else { "missed" }).into(),
            ];
            cells.truncate(shown);
            table.row(cells);
        }
        if let Some(why) = self.too_small.filter(|_| self.show_goals) {
            table.remark(why);
        }
        table
    }

    /// Which share of the samples waits how long, row by row.
    pub(super) fn picture(&self, environment: &Environment) -> String {
        let curve = |(contestant, samples): &(Rc<dyn Contestant>, Samples)| Curve {
            name: contestant.row().into(),
            points: samples.curve(),
        };
        let title = match self.machine.model() {
            Some(model) => {
                format!("nearq bench highpri: simulated {} ({})", model.name(), model.about())
            }
            None => {
                let model = environment.cpu_model.as_deref().unwrap_or("unknown CPU");
                format!(
                    "nearq bench highpri: {model}, Linux {}",
                    environment.kernel.as_deref().unwrap_or("unknown")
                )
            }
        };
        let curves = Curves {
            title: format!("{title}, {}", self.scenario),
            across: "latency from queueing to start, in ms (by factors of ten)".into(),
            up: "share of samples that wait at least as long".into(),
            curves: self.measured.all.iter().map(curve).collect(),
            warning: environment.warning(),
        };
        draw(&curves)
    }
}

fn about(contestant: &Rc<dyn Contestant>) -> String {
    format!("{}: {}", contestant.row(), contestant.about())
}

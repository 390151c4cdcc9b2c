//! The tables and the picture of `lock`.

use super::contestant::{AUTO, NUMA, PLAIN};
use super::figures::{of, variation};
use super::load::{Load, Place, described};
use super::{Facts, LONG, published, stage::Stage};
use crate::plots::curves::{Curve, Curves, draw_all};
use nearq_platform::Linux;
use nearq_report::metric::{self, Metric};
use nearq_report::{Environment, HERE, Report, Row, Table, rounded};
use serde_json::Value;

/// A number of acquisitions, in thousands with as many digits as help.
fn thousands(per_second: f64) -> String {
    rounded(per_second / 1000.0)
}

impl Facts<'_> {
    /// Everything for people: what was done, the tables, the goals.
    pub(super) fn text(&self, rows: &[Row], environment: &Environment) -> String {
        let mut text = self.preface(environment);
        for &load in &self.job.loads {
            text.push_str(&format!("\n{}\n", self.overview(rows, load)));
            text.push_str(&format!("{}\n", self.gains(rows, load)));
            for &writers in &self.job.writers {
                text.push_str(&format!("{}\n", self.table(rows, load, writers)));
            }
        }
        for line in self.left_out {
            text.push_str(&format!("Left out: {line}\n"));
        }
        if self.show_goals {
            text.push_str(&self.goals());
        }
        text
    }

    fn preface(&self, environment: &Environment) -> String {
        let job = self.job;
        let (ms, runs) = (job.duration.as_secs_f64() * 1e3, job.runs);
        let runs = if runs == 1 { "1 run".into() } else { format!("{runs} runs") };
        let mut text = match self.machine.model() {
            None => format!(
                "nearq bench lock\n{}\n{runs} of {ms} ms for each row, which take turns within each run, forwards and backwards.\n",
                environment.describe(),
            ),
            Some(model) => format!(
                "nearq bench lock, on the simulated {} ({})\n{runs} of {ms} ms of virtual time for each row, each on a fresh machine \
                 with a seed of its own.\n\
                 The other locks are Linux programs: they do not run on simulated machines, and their rows are left out.\n",
                model.name(),
                model.about(),
            ),
        };
        let order: Vec<String> = job.cpus.iter().take(8).map(ToString::to_string).collect();
        let more = if job.cpus.len() > order.len() { ", ..." } else { "" };
        text.push_str(&format!(
            "Writers are pinned, {} ({}{more}), more writers than CPUs from the front again, and start together. Each takes the lock, does \
             its part, gives it back and computes for {} ns.\n\
             Fairness is the share of the acquisitions that the busier half of the writers made: 0.5 is fair.\n",
            job.place.name(),
            order.join(", "),
            job.outside_ns,
        ));
        match self.reading_ns {
            Some(reading) => text.push_str(&format!(
                "A wait is the time from before the call to after it, by a counter of the CPU (a reading takes {reading:.0} ns, twice a turn, for \
                 every row alike). One wait in {} goes into the distribution, with that weight, and every one of {} us or more.\n",
                Linux::EVERY,
                LONG.as_micros(),
            )),
            None => text.push_str(
                "A wait is the time from before the call to after it; all are in the distribution, and looking at the clock costs nothing.\n",
            ),
        }
        text.push_str(
            "Percentiles and longest waits are medians over the runs; \"worst\" is the longest wait of all runs.\n\
             UnixBench and the real fxmark and perf bench epoll exercise the kernel's own locks, which no mutex of user space replaces: the shapes \
             here are their lock patterns alone, and the document's figures stand beside ours for the order of magnitude.\n",
        );
        text
    }

    /// Throughput of everybody with every number of writers.
    fn overview(&self, rows: &[Row], load: Load) -> Table {
        let title = format!(
            "{}\nThousands of acquisitions a second, medians, by the number of writers",
            load.about()
        );
        let counts: Vec<String> = self.job.writers.iter().map(ToString::to_string).collect();
        let mut headings = vec![""];
        headings.extend(counts.iter().map(String::as_str));
        let mut table = Table::new(title, &headings);
        for row in &self.rows {
            let rate = |&writers: &usize| {
                of(rows, load, writers, row, metric::ACQUISITIONS_PER_SECOND)
                    .map_or("-".into(), |summary| thousands(summary.median))
            };
            let mut cells = vec![(*row).to_owned()];
            cells.extend(self.job.writers.iter().map(rate));
            table.row(cells);
        }
        table
    }

    /// What queues by cache bring, beside the document's figures.
    fn gains(&self, rows: &[Row], load: Load) -> Table {
        let headings = ["writers", "auto", "always-NUMA", "document, 2x EPYC 7551"];
        let title = format!("{}: gain over {PLAIN}, medians of the runs' gains", load.name());
        let mut table = Table::new(title, &headings);
        let percent = |gain: Option<f64>| gain.map_or("-".into(), |gain| format!("{gain:+.1} %"));
        for &writers in &self.job.writers {
            let gain = |row| of(rows, load, writers, row, metric::GAIN).map(|of| of.median);
            table.row(vec![
                writers.to_string(),
                percent(gain(AUTO)),
                percent(gain(NUMA)),
                percent(published::gain(load, writers)),
            ]);
        }
        table.remark(published::remark(load));
        table.remark(format!("{}.", published::SOURCE));
        table
    }

    fn table(&self, rows: &[Row], load: Load, writers: usize) -> Table {
        let headings =
            ["", "1000/s", "CV (%)", "fairness", "p50 (us)", "p99", "p99.99", "max", "worst"];
        let mut table = Table::new(described(load, writers), &headings);
        for row in &self.rows {
            let found = |metric: Metric| of(rows, load, writers, row, metric);
            let Some(rate) = found(metric::ACQUISITIONS_PER_SECOND) else {
                table.row(vec![(*row).into(), "-".into()]);
                continue;
            };
            let median = |metric| found(metric).map_or("-".into(), |of| rounded(of.median));
            table.row(vec![
                (*row).into(),
                thousands(rate.median),
                if rate.runs > 1 { format!("{:.1}", variation(&rate)) } else { "-".into() },
                found(metric::FAIRNESS).map_or("-".into(), |of| format!("{:.3}", of.median)),
                median(metric::WAIT_P50),
                median(metric::WAIT_P99),
                median(metric::WAIT_P9999),
                median(metric::WAIT_MAX),
                found(metric::WAIT_MAX).map_or("-".into(), |of| rounded(of.max)),
            ]);
        }
        table
    }

    fn goals(&self) -> String {
        if let Some(why) = &self.too_small {
            return format!("{why}\n");
        }
        if self.goals.is_empty() {
            let why = match (self.machine.model(), self.job.place) {
                (Some(_), Place::Spread) => "spread placement is shown without goals",
                (Some(_), Place::Compact) => {
                    "on a simulated machine there are goals for the short section, and 1 to 8, 16, 32, 48 and 64 writers"
                }
                (None, _) => "they are about torture",
            };
            return format!("No goals: {why}.\n");
        }
        let headings = ["", "", "reached", "writers", "goal", ""];
        let mut table = Table::new(format!("Goals of {AUTO}"), &headings);
        for goal in self.goals {
            let least = if goal.at_most { "<=" } else { ">=" };
            let figure = |value: f64| match goal.unit {
                "" => format!("{value:.3}"),
                unit => format!("{value:+.1}{unit}"),
            };
            table.row(vec![
                goal.load.into(),
                goal.what.clone(),
                figure(goal.reached),
                goal.writers.map_or("all".into(), |writers| writers.to_string()),
                format!("{least} {}", figure(goal.goal)),
                if goal.met { "reached" } else { "missed" }.into(),
            ]);
        }
        let missed = self.goals.iter().filter(|goal| !goal.met).count();
        table.remark(format!(
            "{} of {} reached. Ratios are those within a run, and their median over the runs, which also decides which of two is the better; \
             of several numbers of writers the worst is shown.",
            self.goals.len() - missed,
            self.goals.len()
        ));
        if self.machine.model().is_none() && self.job.outside_ns > 0 {
            table.remark(format!(
                "One thread's ratio is that of whole turns, the {} ns between two of them included; --outside 0 leaves them out.",
                self.job.outside_ns
            ));
        }
        table.to_string()
    }
}

/// Throughput over the number of writers.
pub(crate) fn picture(report: &Report) -> String {
    let (rows, environment) = (report.rows.as_slice(), &report.environment);
    let machine = if report.machine == HERE {
        let model = environment.cpu_model.as_deref().unwrap_or("unknown CPU");
        format!("{model}, {} CPUs", environment.cpus)
    } else {
        format!("simulated {}", report.machine)
    };
    let texts = |name: &str| {
        let list = report.parameters[name].as_array();
        list.into_iter().flatten().filter_map(Value::as_str)
    };
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.row.as_str()) {
            names.push(&row.row);
        }
    }
    let diagram = |load: &str| {
        let curve = |name: &&str| {
            let rates = rows.iter().filter(|row| {
                row.row == *name && row.metric == metric::ACQUISITIONS_PER_SECOND.name
            });
            // A scenario is called by the load and the number of writers.
            let point = |row: &Row| {
                let writers = row.scenario.strip_prefix(load)?.trim().parse().ok()?;
                Some((writers, row.summary.median / 1000.0))
            };
            let mut points: Vec<(f64, f64)> = rates.filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve { name: (*name).to_owned(), points }
        };
        let place = report.parameters["place"].as_str().unwrap_or_default();
        Curves {
            title: format!("nearq bench lock, {load}, {place}: {machine}"),
            across: "writers".into(),
            up: "thousands of acquisitions per second, median of the runs".into(),
            curves: names.iter().map(curve).filter(|of| !of.points.is_empty()).collect(),
            warning: environment.warning(),
        }
    };
    let diagrams: Vec<Curves> = texts("loads").map(diagram).collect();
    draw_all(&diagrams)
}

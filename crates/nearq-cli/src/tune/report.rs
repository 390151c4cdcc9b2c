//! The report at the end: a table and a conclusion as text, and the same content as JSON in the format of the experiments.

use nearq_command::screen::{counted, or_dash, plain};
use nearq_processes::jobs::quote;
use nearq_report::metric::{self, Metric};
use nearq_report::{Collector, Environment, HERE, Report, Table, rounded};
use serde_json::{Value, json};

use super::Settled;
use super::plan::Plan;
use super::statistics::{median, spread};
use super::trial::words;
use super::verdict::{Goal, LEVEL, Measurement, Rounds, Verdict};

/// Everything that is known after the trials.
pub(super) struct Facts<'f> {
    pub(super) pid: u32,
    pub(super) queue: &'f str,
    pub(super) settled: &'f Settled,
    pub(super) plan: &'f Plan,
    pub(super) rounds: &'f Rounds,
    pub(super) verdict: &'f Verdict,
}

type Column = (Metric, &'static str, fn(&Measurement) -> Option<f64>);

const COLUMNS: [Column; 4] = [
    (metric::ITEMS_PER_SECOND, "items/s", |measured| Some(measured.items_per_second)),
    (metric::CPU_PER_ITEM, "CPU us/item", |measured| measured.cpu_us_per_item),
    (metric::START_LATENCY_P50, "wait us p50", |measured| measured.wait_us_p50),
    (metric::START_LATENCY_P99, "wait us p99", |measured| measured.wait_us_p99),
];

impl Facts<'_> {
    /// The report as text: the table, in lines of at most `width` columns if that is given, and the conclusion. What was set afterwards is
    /// not part of it.
    pub(super) fn text(&self, width: Option<usize>) -> String {
        let Settled { goal, rounds, measured, settle, seed, .. } = self.settled;
        let about = match goal {
            Goal::Throughput => "throughput",
            Goal::Latency => "latency",
        };
        let mut text = format!(
            "queue {} of process {}, for {about}: {} of {}, each of {} in random order \
             (seed {seed}),\neach for {} s after {} s to settle; median ± median absolute deviation\n\n",
            plain(self.queue),
            self.pid,
            self.rounds.0.len(),
            counted(*rounds as u64, "round"),
            counted(self.plan.configurations.len() as u64, "configuration"),
            rounded(measured.as_secs_f64()),
            rounded(settle.as_secs_f64()),
        );
        // The configuration and its gain stay; what the goal is about is left out last.
        let spare = match goal {
            Goal::Throughput => [5, 4, 3, 2],
            Goal::Latency => [3, 2, 4, 5],
        };
        text.push_str(&self.table().fitted(&spare, width));
        text.push('\n');
        text.push_str(&self.conclusion());
        text
    }

    fn table(&self) -> Table {
        let mut headings = vec!["", "better by"];
        headings.extend(COLUMNS.map(|(_, heading, _)| heading));
        let mut table = Table::new("", &headings);
        for (number, configuration) in self.plan.configurations.iter().enumerate() {
            let now = if number == 0 { " (now)" } else { "" };
            let gain =
                (number > 0).then(|| self.rounds.compare(number, self.settled.goal)).flatten();
            let gain = gain.map(|comparison| format!("{:+.1} %", comparison.gain * 100.0));
            let mut cells = vec![format!("{}{now}", configuration.name), gain.unwrap_or_default()];
            for (.., value) in COLUMNS {
                let values = self.rounds.of(number, value);
                let cell = median(&values).zip(spread(&values));
                cells.push(or_dash(
                    cell.map(|(middle, spread)| {
                        format!("{} ±{}", rounded(middle), rounded(spread))
                    }),
                ));
            }
            table.row(cells);
        }
        for (scope, other) in &self.plan.same {
            table.remark(plain(&format!("{scope}: the same pods as {other}")));
        }
        table
    }

    /// The conclusion from the table, in words. What limits it comes first: the last line is the one that is acted upon.
    pub(super) fn conclusion(&self) -> String {
        let now = plain(&self.plan.configurations[0].name);
        let goal = self.settled.goal;
        let conclusion = match self.verdict {
            Verdict::Better(number, found) => {
                let better = &self.plan.configurations[*number];
                format!(
                    "{} is better than {now} by {:.1} % ({:.1} to {:.1} % in single rounds; the probability that \
                     this is mere chance is {}).\nTo set it: nearq set {} {} {}\n",
                    plain(&better.name),
                    found.gain * 100.0,
                    found.range.0 * 100.0,
                    found.range.1 * 100.0,
                    chance(found.chance),
                    self.pid,
                    quoted(&self.settled.argument),
                    words(&better.changes),
                )
            }
            Verdict::Same => format!(
                "Keep {now}: nothing else is better by {:.0} % or more and significantly (at a level of {}).\n",
                goal.least_gain() * 100.0,
                chance(LEVEL),
            ),
            Verdict::TooFewItems(items) => format!(
                "No conclusion: only {} completed in {} s. Try again when the queue has work, or with more \
                 --seconds.\n",
                if *items == 1 { "1 item was".to_owned() } else { format!("{items} items were") },
                rounded(self.settled.measured.as_secs_f64()),
            ),
            Verdict::TooFewRounds(needed) => format!(
                "No conclusion from {}: with so many configurations it takes {needed}.\n",
                counted(self.rounds.0.len() as u64, "round"),
            ),
        };
        if matches!(self.verdict, Verdict::TooFewItems(_)) {
            return conclusion;
        }
        let mut text = String::new();
        if let Some(idle) = self.rounds.idle_part().filter(|_| goal == Goal::Throughput) {
            text.push_str(&format!(
                "The queue had little to do: {:.0} % of the CPU time was idle, and nothing waited. So its throughput depends on the \
                 program, not on the scope;\n--goal latency, or the CPU time per item, says more about the scopes.\n",
                idle * 100.0,
            ));
        }
        if let Some(part) = self.rounds.unsteady(goal) {
            text.push_str(&format!(
                "The load itself varies: {now} varied by ±{:.0} % from round to round. More or longer rounds may show \
                 differences that this hides.\n",
                part * 100.0,
            ));
        }
        text + &conclusion
    }

    /// The report as JSON, in the format of all experiments. `applied`: the better configuration stays set.
    pub(super) fn report(&self, environment: Environment, applied: bool) -> Report {
        let mut collector = Collector::default();
        for (number, configuration) in self.plan.configurations.iter().enumerate() {
            for (metric, _, value) in COLUMNS {
                for run in self.rounds.of(number, value) {
                    collector.add(self.queue, &configuration.name, metric, run);
                }
            }
        }
        let Settled { goal, rounds, measured, settle, seed, .. } = self.settled;
        let parameters = json!({
            "pid": self.pid,
            "queue": self.queue,
            "goal": match goal { Goal::Throughput => "throughput", Goal::Latency => "latency" },
            "seconds": measured.as_secs_f64(),
            "settle_seconds": settle.as_secs_f64(),
            "rounds": rounds,
            "seed": seed,
            "configurations": self.configurations(),
            "same": self.plan.same.iter().map(|(scope, other)| json!({"scope": scope, "as": other})).collect::<Vec<_>>(),
            "verdict": self.verdict_json(),
            "load_unsteady": self.rounds.unsteady(*goal),
            "cpu_time_left": self.rounds.idle_part(),
            "applied": applied,
        });
        Report {
            experiment: "tune",
            machine: HERE.into(),
            // Not reported: the measured process itself counts as one of the other processes.
            environment: Environment { others_percent: None, ..environment },
            parameters,
            rows: collector.rows(),
            quartiles: collector.quartiles(),
            text: String::new(),
            svg: String::new(),
        }
    }

    fn configurations(&self) -> Vec<Value> {
        let each = self.plan.configurations.iter().enumerate().map(|(number, configuration)| {
            let compared =
                (number > 0).then(|| self.rounds.compare(number, self.settled.goal)).flatten();
            json!({
                "row": configuration.name,
                "now": number == 0,
                "changes": configuration.changes,
                "pods": configuration.pods,
                "gain": compared.map(|found| found.gain),
                "least_gain": compared.map(|found| found.range.0),
                "largest_gain": compared.map(|found| found.range.1),
                "chance_of_luck": compared.map(|found| found.chance),
            })
        });
        each.collect()
    }

    fn verdict_json(&self) -> Value {
        let (word, row) = match self.verdict {
            Verdict::Better(number, _) => ("better", Some(*number)),
            Verdict::Same => ("same", Some(0)),
            Verdict::TooFewItems(_) => ("too_few_items", None),
            Verdict::TooFewRounds(_) => ("too_few_rounds", None),
        };
        let row = row.map(|number| &self.plan.configurations[number].name);
        json!({"is": word, "row": row, "words": self.conclusion().trim_end()})
    }
}

/// A probability with as many digits as are meaningful.
fn chance(part: f64) -> String {
    if part < 0.001 { "less than 0.1 %".into() } else { format!("{:.1} %", part * 100.0) }
}

/// An argument quoted for a shell, in which `#`, for example, begins a comment.
fn quoted(argument: &str) -> String {
    let mut word = Vec::new();
    quote(plain(argument).as_bytes(), &mut word);
    String::from_utf8_lossy(&word).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::plan::Configuration;
    use std::time::Duration;

    #[test]
    fn arguments_are_quoted_for_a_shell() {
        let shown = ["crypt", "#7", "my queue", "it's"].map(quoted);
        assert_eq!(shown, ["crypt", "'#7'", "'my queue'", r"'it'\''s'"]);
    }

    #[test]
    fn caveats_come_before_the_advice() {
        let configuration = |name: &str| Configuration {
            name: name.into(),
            changes: [("affinity_scope".to_owned(), name.to_owned())].into(),
            pods: vec!["0-1".into()],
        };
        let plan =
            Plan { configurations: ["cache", "cpu"].map(configuration).into(), same: vec![] };
        let settled = Settled {
            goal: Goal::Throughput,
            rounds: 5,
            measured: Duration::from_secs(1),
            settle: Duration::ZERO,
            seed: 1,
            argument: "crypt".into(),
        };
        let measured = |items_per_second: f64| Measurement {
            items: 1000,
            items_per_second,
            busy: 0.2,
            ..Measurement::default()
        };
        // The control varies, and the queue is idle most of the time.
        let rounds =
            [100.0, 140.0, 60.0, 120.0, 80.0].map(|now| vec![measured(now), measured(now * 4.0)]);
        let rounds = Rounds(rounds.into());
        let verdict = rounds.verdict(Goal::Throughput);
        let facts = Facts {
            pid: 7,
            queue: "crypt",
            settled: &settled,
            plan: &plan,
            rounds: &rounds,
            verdict: &verdict,
        };
        let text = facts.conclusion();
        let place =
            |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing in {text}"));
        let places = [
            "had little to do",
            "load itself varies",
            "cpu is better than cache",
            "To set it: nearq set",
        ]
        .map(place);
        assert!(places.is_sorted(), "{text}");
        assert!(text.ends_with("nearq set 7 crypt affinity_scope=cpu\n"), "{text}");
    }

    #[test]
    fn chances_have_only_significant_digits() {
        assert_eq!([0.0004, 0.0198, 1.0].map(chance), ["less than 0.1 %", "2.0 %", "100.0 %"]);
    }
}

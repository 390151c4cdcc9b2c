//! Output for scripts: the table as text, or lines of JSON.

use nearq_command::screen::{self, Side};
use nearq_control::protocol::Process;
use serde::Serialize;

use super::columns::{COLUMNS, Column};
use super::model::{Model, Pod, Row, Whole};
use super::state::{Filter, Sort, filtered_and_sorted};
use crate::output::json_line;

/// The table, with all columns at full width; on a terminal, with those that fit.
pub(super) fn table(model: &Model, filter: &Filter, sort: Sort) -> String {
    let columns: Vec<Column> = COLUMNS.into_iter().filter(|column| !column.graph()).collect();
    let sides = columns.iter().map(|column| if column.text { Side::Left } else { Side::Right });
    let sides: Vec<Side> = sides.collect();
    let mut lines: Vec<Vec<String>> =
        vec![columns.iter().map(|column| column.heading(false).to_owned()).collect()];
    for row in filtered_and_sorted(model, filter, sort, false) {
        lines.push(columns.iter().map(|column| column.value(row, false)).collect());
    }
    // The names stay.
    let spare: Vec<usize> = (1..sides.len()).rev().collect();
    screen::fitted(&sides, &lines, &spare, screen::width_of(&std::io::stdout()))
}

/// The fields of a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    pid: u32,
    command: &'a str,
    #[serde(flatten)]
    whole: &'a Whole,
    queues: Vec<&'a Row>,
    pods: &'a [Pod],
}

/// One line of JSON.
pub(super) fn json(
    pid: u32,
    process: &Process,
    model: &Model,
    filter: &Filter,
    sort: Sort,
) -> String {
    let queues = filtered_and_sorted(model, filter, sort, false);
    let line =
        Line { pid, command: &process.command, whole: &model.whole, queues, pods: &model.pods };
    json_line(&line) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::invented;
    use nearq_control::protocol::Access;
    use serde_json::Value;

    fn model() -> Model {
        let mut model = Model::default();
        for call in 1..3 {
            model.add_sample(invented::statistics(call, true));
        }
        model
    }

    fn sort(key: &str) -> Sort {
        Sort { column: Column::named(key).unwrap(), reverse: false }
    }

    #[test]
    fn the_table_has_all_columns_and_the_requested_rows() {
        let text = table(&model(), &Filter::new("crypt"), sort("items"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for column in COLUMNS {
            assert_eq!(lines[0].contains(column.heading), !column.graph(), "{text}");
        }
        assert!(
            lines[1].starts_with("kcryptd/253:0 ") && lines[2].starts_with("kcryptd_io"),
            "{text}"
        );
    }

    #[test]
    fn a_json_line_has_totals_rates_and_times() {
        let process = invented::process(Access::Read);
        let text = json(12, &process, &model(), &Filter::new("^netns$"), sort("items"));
        assert_eq!(text.matches('\n').count(), 1);
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["pid"], &line["interval_ns"]), (&12.into(), &1_000_000_000.into()));
        let queue = &line["queues"][0];
        assert_eq!(line["queues"].as_array().map(Vec::len), Some(1));
        assert_eq!(queue["name"], "netns");
        let both = [&queue["total"], &queue["per_second"]];
        assert!(
            both.iter()
                .all(|counts| counts["completed"].is_number() && counts["mayday"].is_number())
        );
        assert!(both.iter().all(|counts| counts.get("cpu_intensive").is_none()));
        assert!(queue["wait"]["p99_ns"].is_number(), "{text}");
        assert!(line["pods"][3]["busy"].is_number(), "{text}");
    }
}

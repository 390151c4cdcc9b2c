//! The columns: what each shows, how wide it is, and which are left out first on a narrow terminal.

use std::cmp::Ordering;

use nearq_command::screen;

use super::format;
use super::model::Row;

/// A column of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its name for `--sort`.
    pub(super) key: &'static str,
    /// Its heading.
    pub(super) heading: &'static str,
    /// Its width, without the space to its left.
    pub(super) width: usize,
    /// If there is not enough room, the columns with the smallest numbers stay.
    pub(super) priority: u8,
    /// Whether it is text, which is aligned to the left and sorted from A to Z.
    pub(super) text: bool,
    /// The description of the column.
    pub(super) what: &'static str,
    /// The value that it shows.
    field: Field,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Items,
    Total,
    InFlight,
    Depth,
    Cpu,
    Wait50,
    Wait99,
    Run50,
    Run99,
    History,
    Hogs,
    Moves,
    Helped,
    Mayday,
    Rescued,
    Panics,
    Limit,
    Kind,
    Scope,
}

/// The least width of the name's column.
pub(super) const NARROWEST_NAME: usize = 16;
/// Its greatest width.
pub(super) const WIDEST_NAME: usize = 40;
/// The greatest width of a history.
const WIDEST_HISTORY: usize = 40;

const fn number(
    field: Field,
    key: &'static str,
    heading: &'static str,
    [width, priority]: [u8; 2],
    what: &'static str,
) -> Column {
    Column { key, heading, width: width as usize, priority, text: false, what, field }
}

const fn text(column: Column) -> Column {
    Column { text: true, ..column }
}

/// All columns, from left to right.
pub(super) const COLUMNS: [Column; 20] = [
    text(number(
        Field::Name,
        "name",
        "WORKQUEUE",
        [NARROWEST_NAME as u8, 0],
        "The queue's name; a long name is cut at its beginning",
    )),
    number(Field::Items, "items", "ITEMS/S", [7, 1], "Executions that ended, per second"),
    number(
        Field::Total,
        "total",
        "TOTAL",
        [8, 14],
        "Executions that have started since the queue was created",
    ),
    number(Field::InFlight, "infl", "INFL", [5, 3], "Items in flight: those that are running now"),
    number(
        Field::Depth,
        "depth",
        "DEPTH",
        [6, 2],
        "Items that are waiting now, for a worker or because of max_active",
    ),
    number(
        Field::Cpu,
        "cpu",
        "CPU%",
        [6, 4],
        "CPU time that workers spend on its items, in percent of one CPU; with totals: CPUTIME, in seconds",
    ),
    number(
        Field::Wait50,
        "p50",
        "P50",
        [6, 6],
        "Median wait: half of the items started within this time of being queued",
    ),
    number(
        Field::Wait99,
        "p99",
        "P99",
        [6, 5],
        "99 % of the items started within this time of being queued",
    ),
    number(
        Field::Run50,
        "run50",
        "RUN50",
        [6, 15],
        "Median run time: half of the items ran no longer than this",
    ),
    number(Field::Run99, "run99", "RUN99", [6, 13], "99 % of the items ran no longer than this"),
    text(number(
        Field::History,
        "history",
        "HISTORY",
        [10, 7],
        "ITEMS/S of the last intervals, the newest on the right; scaled to each queue's maximum",
    )),
    number(
        Field::Hogs,
        "hogs",
        "HOGS",
        [6, 9],
        "Items that used their CPU for too long (CPUitsv in wq_monitor); per-CPU queues only",
    ),
    number(
        Field::Moves,
        "moves",
        "CMW/RPR",
        [7, 8],
        "Per-CPU queues: workers woken because one slept inside an item (CMW). Other queues: workers moved back to their pod (RPR)",
    ),
    number(
        Field::Helped,
        "helped",
        "HELPED",
        [6, 10],
        "Executions by workers of other pods; not for per-CPU queues",
    ),
    number(
        Field::Mayday,
        "mayday",
        "MAYDAY",
        [6, 11],
        "Calls of the queue's rescuer, if it has one",
    ),
    number(
        Field::Rescued,
        "rescued",
        "RESCUED",
        [7, 12],
        "Executions by the queue's rescuer, if it has one",
    ),
    number(Field::Panics, "panics", "PANICS", [6, 16], "Executions that ended in a panic"),
    number(
        Field::Limit,
        "max",
        "MAX",
        [5, 17],
        "max_active: how many items may be on pools or running at once",
    ),
    text(number(
        Field::Kind,
        "kind",
        "KIND",
        [9, 18],
        "percpu, unbound, unbound,S (strict) or ordered",
    )),
    text(number(Field::Scope, "scope", "SCOPE", [21, 19], "The affinity scope")),
];

impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.field == other.field
    }
}

impl Column {
    /// The column with that name for `--sort`.
    pub(super) fn named(key: &str) -> Option<Column> {
        COLUMNS.into_iter().find(|column| column.key == key && column.sortable())
    }

    /// The names that `--sort` accepts.
    pub(super) fn keys() -> Vec<&'static str> {
        COLUMNS.iter().filter(|column| column.sortable()).map(|column| column.key).collect()
    }

    /// Whether rows can be sorted by this column.
    pub(super) fn sortable(&self) -> bool {
        self.field != Field::History
    }

    /// Whether the column is a graph.
    pub(super) fn graph(&self) -> bool {
        self.field == Field::History
    }

    /// Its heading.
    pub(super) fn heading(&self, totals: bool) -> &'static str {
        if totals && self.field == Field::Cpu { "CPUTIME" } else { self.heading }
    }

    /// The text in the column.
    pub(super) fn value(&self, row: &Row, totals: bool) -> String {
        let optional = |total: Option<u64>, rate: Option<f64>| match (totals, total, rate) {
            (true, Some(total), _) => format::count(total),
            (false, _, Some(rate)) => format::rate(rate),
            _ => "-".to_owned(),
        };
        let time = |time: Option<u64>| screen::or_dash(time.map(screen::time));
        let (total, rate) = (&row.total, &row.per_second);
        match self.field {
            Field::Name => screen::plain(&row.name),
            Field::Items => format::rate(rate.completed),
            Field::Total => format::count(total.started),
            Field::InFlight => format::count(row.running),
            Field::Depth => format::count(row.depth()),
            Field::Cpu if totals => format::seconds(total.cpu_ns),
            Field::Cpu => format::percent(rate.cpu_ns / 1e9),
            Field::Wait50 => time(row.wait.p50_ns),
            Field::Wait99 => time(row.wait.p99_ns),
            Field::Run50 => time(row.run.p50_ns),
            Field::Run99 => time(row.run.p99_ns),
            Field::History => String::new(),
            Field::Hogs => optional(total.cpu_intensive, rate.cpu_intensive),
            Field::Moves => optional(total.moves(), rate.moves()),
            Field::Helped => optional(total.helped, rate.helped),
            Field::Mayday => optional(total.mayday, rate.mayday),
            Field::Rescued => optional(total.rescued, rate.rescued),
            Field::Panics => optional(Some(total.panicked), Some(rate.panicked)),
            Field::Limit => format::count(row.max_active),
            Field::Kind => screen::plain(&row.kind),
            Field::Scope => screen::plain(&row.scope),
        }
    }

    /// The order of two rows by this column, the smaller first.
    pub(super) fn compare(&self, one: &Row, other: &Row, totals: bool) -> Ordering {
        match self.field {
            Field::Name | Field::History => one.name.cmp(&other.name),
            Field::Kind => one.kind.cmp(&other.kind),
            Field::Scope => one.scope.cmp(&other.scope),
            _ => self.number(one, totals).total_cmp(&self.number(other, totals)),
        }
    }

    /// The value to sort by; a value that does not apply to a queue is less than zero.
    fn number(&self, row: &Row, totals: bool) -> f64 {
        let optional = |total: Option<u64>, rate: Option<f64>| {
            let value = if totals { total.map(|total| total as f64) } else { rate };
            value.unwrap_or(-1.0)
        };
        let time = |time: Option<u64>| time.map_or(-1.0, |time| time as f64);
        let (total, rate) = (&row.total, &row.per_second);
        match self.field {
            Field::Items => rate.completed,
            Field::Total => total.started as f64,
            Field::InFlight => row.running as f64,
            Field::Depth => row.depth() as f64,
            Field::Cpu => optional(Some(total.cpu_ns), Some(rate.cpu_ns)),
            Field::Wait50 => time(row.wait.p50_ns),
            Field::Wait99 => time(row.wait.p99_ns),
            Field::Run50 => time(row.run.p50_ns),
            Field::Run99 => time(row.run.p99_ns),
            Field::Hogs => optional(total.cpu_intensive, rate.cpu_intensive),
            Field::Moves => optional(total.moves(), rate.moves()),
            Field::Helped => optional(total.helped, rate.helped),
            Field::Mayday => optional(total.mayday, rate.mayday),
            Field::Rescued => optional(total.rescued, rate.rescued),
            Field::Panics => optional(Some(total.panicked), Some(rate.panicked)),
            Field::Limit => row.max_active as f64,
            Field::Name | Field::History | Field::Kind | Field::Scope => 0.0,
        }
    }
}

/// The columns that fit on a line of `width`, with their widths, from left to right. `longest_name` is the width that the names need. If
/// not all columns fit there are several pages: the first has the most important ones, the next has those that the first left out.
pub(super) fn fit(width: usize, longest_name: usize, page: usize) -> Vec<(Column, usize)> {
    let pages = pages(width);
    let mut chosen = pages[page % pages.len()].clone();
    let used = |chosen: &[(Column, usize)]| -> usize {
        chosen.iter().map(|(_, width)| width + 1).sum::<usize>()
    };
    // The remaining width goes to long names, then to the history.
    for (column, most) in
        [(Field::Name, longest_name.min(WIDEST_NAME)), (Field::History, WIDEST_HISTORY)]
    {
        let free = width.saturating_sub(used(&chosen));
        if let Some((_, column_width)) = chosen.iter_mut().find(|(other, _)| other.field == column)
        {
            *column_width = (*column_width + free).min(most).max(*column_width);
        }
    }
    chosen
}

/// The number of pages.
pub(super) fn page_count(width: usize) -> usize {
    pages(width).len()
}

/// The columns of each page. Every page begins with the name, and every other column is on exactly one page.
fn pages(width: usize) -> Vec<Vec<(Column, usize)>> {
    let [name, rest @ ..] = COLUMNS;
    let mut left = rest.to_vec();
    left.sort_by_key(|column| column.priority);
    let mut pages = Vec::new();
    while !left.is_empty() {
        let mut chosen = vec![(name, name.width.min(width.saturating_sub(1)))];
        let mut free = width.saturating_sub(name.width + 1);
        left.retain(|&column| {
            let fits = column.width < free;
            if fits {
                free -= column.width + 1;
                chosen.push((column, column.width));
            }
            !fits
        });
        let alone = chosen.len() == 1;
        chosen.sort_by_key(|(column, _)| COLUMNS.iter().position(|other| other == column));
        pages.push(chosen);
        if alone {
            break;
        }
    }
    pages
}

/// The heading and description of every column, for the help.
pub(super) fn legend() -> String {
    let lines = COLUMNS.iter().map(|column| format!("  {:<10} {}\n", column.heading, column.what));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headings(width: usize, page: usize) -> Vec<&'static str> {
        fit(width, 10, page).iter().map(|(column, _)| column.heading).collect()
    }

    #[test]
    fn a_narrow_terminal_shows_the_most_important_columns() {
        assert_eq!(headings(30, 0), ["WORKQUEUE", "ITEMS/S"]);
        assert_eq!(
            headings(80, 0),
            ["WORKQUEUE", "ITEMS/S", "INFL", "DEPTH", "CPU%", "P50", "P99", "HISTORY", "CMW/RPR"]
        );
        assert_eq!(headings(200, 0).len(), COLUMNS.len());
    }

    #[test]
    fn every_column_is_on_exactly_one_page() {
        for width in [40, 64, 80, 100, 120, 150, 200, 500] {
            let mut seen: Vec<&str> = Vec::new();
            for page in 0..page_count(width) {
                let columns = fit(width, 100, page);
                let used: usize = columns.iter().map(|(_, width)| width + 1).sum();
                assert!(used <= width, "{used} of {width}");
                seen.extend(columns.iter().skip(1).map(|(column, _)| column.heading));
            }
            seen.sort_unstable();
            let mut all: Vec<_> = COLUMNS.iter().skip(1).map(|column| column.heading).collect();
            all.sort_unstable();
            assert_eq!(seen, all, "at {width}, some twice or never");
        }
        assert_eq!(headings(80, page_count(80)), headings(80, 0), "after the last comes the first");
    }

    #[test]
    fn very_narrow_terminals_still_show_names() {
        for width in 0..26 {
            assert_eq!(fit(width, 100, 0)[0].0.heading, "WORKQUEUE");
            assert!(page_count(width) >= 1);
        }
    }

    #[test]
    fn long_names_get_the_remaining_width() {
        let width_of = |longest, name| {
            let fitted = fit(200, longest, 0);
            fitted.iter().find(|(column, _)| column.heading == name).map(|(_, width)| *width)
        };
        assert_eq!(width_of(10, "WORKQUEUE"), Some(NARROWEST_NAME));
        assert!(width_of(100, "WORKQUEUE") > width_of(10, "WORKQUEUE"));
        assert!(width_of(100, "HISTORY") < width_of(10, "HISTORY"));
    }

    #[test]
    fn headings_and_values_fit_and_keys_are_words() {
        for column in COLUMNS {
            assert!(column.heading.len() <= column.width, "{}", column.heading);
            assert_eq!(COLUMNS.iter().filter(|other| other.key == column.key).count(), 1);
            assert_eq!(COLUMNS.iter().filter(|other| other.priority == column.priority).count(), 1);
            assert_eq!(Column::named(column.key).is_some(), column.sortable());
            assert!(column.value(&Row::default(), false).len() <= column.width);
            assert!(column.value(&Row::default(), true).len() <= column.width);
        }
    }
}

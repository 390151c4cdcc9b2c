//! One queue: its counts, how long its items took, its limit, its history, and its pools.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use nearq_command::screen;
use nearq_control::protocol::{NodeLimit, PoolDump, QueueDump};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Row as Cells, Widget as _};

use crate::top::format;
use crate::top::model::{Pod, Row, Times};
use crate::top::paint::{self, DIM, HEADING, Paint};
use crate::top::state::State;

/// The width of the counts, with a space.
const COUNTS: u16 = 41;
/// On a lower screen, graphs have one line.
const TALL: u16 = 34;

/// Draws a queue.
pub(super) fn draw(state: &State, row: &Row, paint: &Paint, area: Rect, buffer: &mut Buffer) {
    let graph_lines = if area.height >= TALL { 3 } else { 1 };
    let [title, rest] = paint::split(area, 1);
    let Row { name, id, kind, scope, max_active, .. } = row;
    let text = format!(" {name}  #{id}  {kind}  scope {scope}  max_active {max_active}");
    buffer.set_style(title, HEADING);
    paint::text(&text, HEADING).render(title, buffer);

    let counts = counts(row);
    let (limits, others) = limits(state, row);
    // The counts have a heading, which is not a row.
    let left = counts.len() + 1;
    let right = 4 + limits.len() + usize::from(others.is_some());
    let [above, mut rest] = paint::split(rest, left.max(right) as u16);
    let [left, right] =
        Layout::horizontal([Constraint::Length(COUNTS), Constraint::Min(0)]).areas(above);
    let heading = paint::row("", ["PER SECOND", "TOTAL"]).style(DIM);
    paint::table(counts, &[13, 14, 11], left.width).header(heading).render(left, buffer);
    let [top, below] = paint::split(right, 4);
    times(row, top, buffer);
    let [top, below] = paint::split(below, limits.len() as u16);
    paint::table(limits, &[12, 8, 8, 11], top.width).render(top, buffer);
    paint::text(&others.unwrap_or_default(), DIM).render(below, buffer);

    if let Some(history) = state.model.histories.get(&row.id) {
        let as_count = |value: f64| format::count(value as u64);
        let as_time = |value: f64| screen::time(value as u64);
        let graphs: [Graph<'_>; 3] = [
            ("ITEMS/S", &history.completed, &format::rate),
            ("DEPTH", &history.depth, &as_count),
            ("wait P99", &history.wait, &as_time),
        ];
        for shown in graphs {
            let area;
            [area, rest] = paint::split(rest, graph_lines);
            graph(shown, paint, area, buffer);
        }
    }
    list(state, paint, rest, buffer);
}

/// The counts, per second and in total; those that do not apply to the queue are left out.
fn counts<'a>(row: &Row) -> Vec<Cells<'a>> {
    let (rate, total) = (&row.per_second, &row.total);
    let cpu = [
        format!("{}%", format::percent(rate.cpu_ns / 1e9)),
        format!("{}s", format::seconds(total.cpu_ns)),
    ];
    let (rates, totals) = (rate.named().into_iter(), total.named().into_iter());
    let counts = rates.zip(totals).filter_map(|((name, rate), (_, total))| {
        Some((name, [format::rate(rate?), format::count(total?)]))
    });
    let mut lines: Vec<_> = counts.collect();
    // This follows the counts that every queue has.
    lines.insert(3, ("CPU time", cpu));
    lines.into_iter().map(|(name, numbers)| paint::row(&format!(" {name}"), numbers)).collect()
}

/// How long items took, and how many items there are.
fn times(row: &Row, area: Rect, buffer: &mut Buffer) {
    let line = |name: &str, times: &Times| {
        let Times { p50_ns, p90_ns, p99_ns, max_ns, .. } = times;
        let time = |time: &Option<u64>| screen::or_dash(time.map(screen::time));
        paint::row(name, [p50_ns, p90_ns, p99_ns, max_ns].map(time))
    };
    let lines = [line("wait", &row.wait), line("run", &row.run)];
    paint::table(lines, &[5, 7, 7, 7, 7], area.width)
        .header(paint::row("", ["P50", "P90", "P99", "MAX"]).style(DIM))
        .render(area, buffer);
    let now = [("running", row.running), ("waiting", row.waiting), ("held back", row.inactive)];
    let now = now.map(|(name, count)| format!("{name} {}", format::count(count))).join("  ");
    now.render(paint::line(area, 3), buffer);
}

/// The limits and how far they are used, and how many domains are not shown.
fn limits<'a>(state: &State, row: &Row) -> (Vec<Cells<'a>>, Option<String>) {
    let Some(dump) = queue_dump(state, row) else { return (Vec::new(), None) };
    // Idle domains are left out: on a large machine there are many.
    let busy = |limit: &&NodeLimit| limit.active > 0 || limit.inactive > 0;
    let (shown, quiet): (Vec<_>, Vec<_>) = dump.limits.iter().partition(busy);
    let mut lines = vec![paint::row("LIMIT", ["ACTIVE", "MOST", "HELD BACK"]).style(DIM)];
    lines.extend(shown.iter().take(3).map(|limit| {
        let number = if limit.number < 0 { String::new() } else { format!(" {}", limit.number) };
        let numbers = [limit.active, limit.limit, limit.inactive].map(format::count);
        paint::row(&format!("{}{number}", limit.domain), numbers)
    }));
    let others = match (shown.len().saturating_sub(3), quiet.len()) {
        (0, 0) => None,
        (0, quiet) => Some(format!("and {quiet} idle")),
        (more, quiet) => Some(format!("and {quiet} idle, {more} in use")),
    };
    (lines, others)
}

fn queue_dump<'a>(state: &'a State, row: &Row) -> Option<&'a QueueDump> {
    let dump = state.model.dump.as_ref()?;
    dump.queues.iter().find(|queue| queue.id == row.id)
}

/// A graph: its name, its values, and how a value is printed.
type Graph<'a> = (&'a str, &'a VecDeque<f64>, &'a dyn Fn(f64) -> String);

/// Draws the history.
fn graph((name, values, written): Graph<'_>, paint: &Paint, area: Rect, buffer: &mut Buffer) {
    let [label, _, graph, _] = Layout::horizontal([
        Constraint::Length(20),
        Constraint::Length(1),
        Constraint::Max(100),
        Constraint::Length(1),
    ])
    .areas(area);
    let greatest = values.iter().rev().take(graph.width.into()).copied().fold(0.0, f64::max);
    let greatest = format!("max {}", written(greatest));
    let last = paint::last_line(label);
    paint::text(&format!(" {name}"), DIM).render(last, buffer);
    paint::text(&greatest, Style::new()).right_aligned().render(last, buffer);
    paint.graph(values, graph, buffer);
}

/// What is known about a pool of the queue.
pub(super) struct QueuePool<'a> {
    /// Its number.
    number: u64,
    /// The number of CPUs whose items go to this pool.
    sources: usize,
    /// The pool's part of the last dump.
    dump: Option<&'a PoolDump>,
    /// The pool's part of the last sample; `None` if nothing happened in the pool.
    pod: Option<&'a Pod>,
}

/// The pools of the queue that is shown, by number.
pub(super) fn pools(state: &State) -> Vec<QueuePool<'_>> {
    let row = state.queue.and_then(|id| state.model.row(id));
    let (Some(row), Some(dump)) = (row, &state.model.dump) else { return Vec::new() };
    let Some(queue) = queue_dump(state, row) else { return Vec::new() };
    let mut sources: BTreeMap<u64, usize> = BTreeMap::new();
    for pool in queue.cpu_pool.iter().filter_map(|&pool| u64::try_from(pool).ok()) {
        *sources.entry(pool).or_default() += 1;
    }
    let numbers: BTreeSet<u64> = sources.keys().copied().collect();
    let dumps: BTreeMap<u64, &PoolDump> = dump.pools.iter().map(|pool| (pool.id, pool)).collect();
    let pods: BTreeMap<u64, &Pod> = state.model.pods.iter().map(|pod| (pod.pool, pod)).collect();
    let pool = |number: u64| QueuePool {
        number,
        sources: sources[&number],
        dump: dumps.get(&number).copied(),
        pod: pods.get(&number).copied(),
    };
    numbers.into_iter().map(pool).collect()
}

/// The headings of the pools, and their widths.
const HEADINGS: [&str; 10] =
    ["POOL", "NICE", "WORKERS", "IDLE", "READY", "ITEMS/S", "CPU%", "FROM", "  BUSY", "CPUS"];
/// See [`HEADINGS`]. The last column gets the remaining width.
const WIDTHS: [u16; 9] = [5, 5, 8, 5, 6, 8, 7, 6, BUSY.1 + 3];
/// The position and the length of the bar that shows how busy a pool is.
const BUSY: (u16, u16) = (52, 8);

/// Draws the pools. The values count the work of all queues in each pool.
fn list(state: &State, paint: &Paint, area: Rect, buffer: &mut Buffer) {
    let cells = |numbers: [String; 8], texts: [&str; 2]| -> Cells<'_> {
        let number = |number: &String| paint::text(number, Style::new()).right_aligned();
        let texts = texts.map(|text| paint::text(text, Style::new()));
        numbers.iter().map(number).chain(texts).collect()
    };
    let [numbers @ .., busy, cpus] = HEADINGS;
    let heading = cells(numbers.map(String::from), [busy, cpus]);
    let pools = pools(state);
    let lines = usize::from(area.height).saturating_sub(1);
    let shown = pools.iter().skip(state.first_pool).take(lines);
    let rows = shown
        .clone()
        .map(|pool| cells(pool.numbers(), ["", pool.dump.map_or("?", |dump| &dump.pod_cpus)]));
    let left = area.width.saturating_sub(WIDTHS.iter().sum());
    paint::table(rows, &[&WIDTHS[..], &[left]].concat(), area.width)
        .header(heading.style(HEADING))
        .render(area, buffer);
    if state.model.dump.is_none() {
        " the pools are not known yet".render(paint::line(area, 1), buffer);
        return;
    }
    for (line, pool) in area.rows().skip(1).zip(shown) {
        let busy = pool.pod.map_or(0.0, |pod| pod.busy);
        let cell = |cell: u16| paint::height(busy * f64::from(BUSY.1) - f64::from(cell), 8);
        let bar = Rect { x: area.x + BUSY.0, width: BUSY.1, ..line };
        let bars = paint.bars((0..BUSY.1).map(cell)).style(paint.heat(busy));
        bars.render(bar.intersection(area), buffer);
    }
    let hidden = pools.len().saturating_sub(state.first_pool + lines);
    if hidden > 0 {
        let more = paint::text(&format!(" +{hidden}"), DIM).right_aligned();
        more.render(paint::last_line(area), buffer);
    }
}

impl QueuePool<'_> {
    /// The values below the headings.
    fn numbers(&self) -> [String; 8] {
        let of_dump = |of: fn(&PoolDump) -> String| self.dump.map_or_else(|| "?".to_owned(), of);
        [
            self.number.to_string(),
            of_dump(|pool| pool.nice.to_string()),
            of_dump(|pool| pool.workers.to_string()),
            of_dump(|pool| pool.idle.to_string()),
            of_dump(|pool| pool.ready.to_string()),
            format::rate(self.pod.map_or(0.0, |pod| pod.completed_per_second)),
            format::percent(self.pod.map_or(0.0, |pod| pod.cpu)),
            self.sources.to_string(),
        ]
    }
}

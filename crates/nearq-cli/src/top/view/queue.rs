//! One queue: all that is counted of it, how long its items took, where its limit stands, how it went, and its pools.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use nearq_command::screen;
use nearq_control::protocol::{NodeLimit, PoolDump, QueueDump};
use ratatui::style::Style;

use crate::top::format;
use crate::top::model::{Counts, Pod, Row, Times};
use crate::top::paint::{Canvas, DIM, HEADING};
use crate::top::state::State;

/// The columns of counts, and a space.
const COUNTS: usize = 41;
/// Below this height graphs have one line, and what is zero is left out.
const TALL: usize = 34;

/// Draws a queue.
pub(super) fn draw(state: &State, row: &Row, canvas: &mut Canvas<'_>) {
    let (width, height) = (canvas.width(), canvas.height());
    let title = format!(
        " {}  #{}  {}  scope {}  max_active {}",
        row.name, row.id, row.kind, row.scope, row.max_active
    );
    canvas.style_line(0, HEADING);
    canvas.text(0, 0, &title, HEADING);

    let left = counts(row, &mut canvas.part(0, 1, COUNTS, height));
    let rest = width.saturating_sub(COUNTS);
    let right = times(state, row, &mut canvas.part(COUNTS, 1, rest, height));
    let below = 1 + left.max(right);
    let graphs =
        graphs(state, row, &mut canvas.part(0, below, width, height.saturating_sub(below)), height);
    let below = below + graphs;
    list(state, &mut canvas.part(0, below, width, height.saturating_sub(below)));
}

/// What is counted, per second and in all; how many lines that takes.
fn counts(row: &Row, canvas: &mut Canvas<'_>) -> usize {
    canvas.right(27, 0, "PER SECOND", DIM);
    canvas.right(38, 0, "TOTAL", DIM);
    let (rate, total) = (&row.per_second, &row.total);
    let cpu = [
        format!("{}%", format::percent(rate.cpu_ns / 1e9)),
        format!("{}s", format::seconds(total.cpu_ns)),
    ];
    let mut lines = vec![
        (
            "started",
            number(rate, total, |counts| Some(counts.started), |counts| Some(counts.started)),
        ),
        (
            "ended",
            number(rate, total, |counts| Some(counts.completed), |counts| Some(counts.completed)),
        ),
        (
            "panicked",
            number(rate, total, |counts| Some(counts.panicked), |counts| Some(counts.panicked)),
        ),
        ("CPU time", Some(cpu)),
    ];
    let optional = [
        ("hogs", number(rate, total, |counts| counts.cpu_intensive, |counts| counts.cpu_intensive)),
        (
            "woken up",
            number(
                rate,
                total,
                |counts| counts.concurrency_wakeups,
                |counts| counts.concurrency_wakeups,
            ),
        ),
        (
            "repatriated",
            number(rate, total, |counts| counts.repatriated, |counts| counts.repatriated),
        ),
        ("helped", number(rate, total, |counts| counts.helped, |counts| counts.helped)),
        ("mayday", number(rate, total, |counts| counts.mayday, |counts| counts.mayday)),
        ("rescued", number(rate, total, |counts| counts.rescued, |counts| counts.rescued)),
    ];
    lines.extend(optional);
    let lines: Vec<_> = lines
        .into_iter()
        .filter_map(|(name, values)| values.map(|values| (name, values)))
        .collect();
    for (line, (name, [rate, total])) in lines.iter().enumerate() {
        canvas.text(1, line + 1, name, Style::new());
        canvas.right(27, line + 1, rate, Style::new());
        canvas.right(38, line + 1, total, Style::new());
    }
    lines.len() + 1
}

/// A count per second and in all, where the queue has it.
fn number(
    rate: &Counts<f64>,
    total: &Counts<u64>,
    of_rate: impl Fn(&Counts<f64>) -> Option<f64>,
    of_total: impl Fn(&Counts<u64>) -> Option<u64>,
) -> Option<[String; 2]> {
    Some([format::rate(of_rate(rate)?), format::count(of_total(total)?)])
}

/// How long items took, how many there are, and where the limit stands; how many lines that takes.
fn times(state: &State, row: &Row, canvas: &mut Canvas<'_>) -> usize {
    let ends = [12, 19, 26, 33];
    for (end, heading) in ends.into_iter().zip(["P50", "P90", "P99", "MAX"]) {
        canvas.right(end, 0, heading, DIM);
    }
    for (line, (name, times)) in [("wait", row.wait), ("run", row.run)].into_iter().enumerate() {
        canvas.text(0, line + 1, name, Style::new());
        let Times { p50_ns, p90_ns, p99_ns, max_ns, .. } = times;
        for (end, time) in ends.into_iter().zip([p50_ns, p90_ns, p99_ns, max_ns]) {
            let text = time.map_or_else(|| "-".to_owned(), screen::time);
            canvas.right(end, line + 1, &text, Style::new());
        }
    }
    let now = [("running", row.running), ("waiting", row.waiting), ("held back", row.inactive)];
    let now = now.map(|(name, count)| format!("{name} {}", format::count(count))).join("  ");
    canvas.text(0, 3, &now, Style::new());
    let dump = queue_dump(state, row);
    let Some(dump) = dump else { return 4 };
    let mut y = 4;
    canvas.text(0, y, "LIMIT         ACTIVE    MOST  HELD BACK", DIM);
    // Domains in which nothing happens say nothing, and on a large machine there are many.
    let busy = |limit: &&NodeLimit| limit.active > 0 || limit.inactive > 0;
    let (shown, quiet): (Vec<_>, Vec<_>) = dump.limits.iter().partition(busy);
    for limit in shown.iter().take(3) {
        y += 1;
        let number = if limit.number < 0 { String::new() } else { format!(" {}", limit.number) };
        canvas.text(0, y, &format!("{}{number}", limit.domain), Style::new());
        canvas.right(20, y, &format::count(limit.active), Style::new());
        canvas.right(28, y, &format::count(limit.limit), Style::new());
        canvas.right(39, y, &format::count(limit.inactive), Style::new());
    }
    let more = shown.len().saturating_sub(3);
    if more + quiet.len() > 0 {
        y += 1;
        let text = format!("and {} with nothing, {more} with something", quiet.len());
        canvas.text(
            0,
            y,
            if more == 0 { text.split(',').next().unwrap_or_default() } else { &text },
            DIM,
        );
    }
    y + 1
}

fn queue_dump<'a>(state: &'a State, row: &Row) -> Option<&'a QueueDump> {
    let dump = state.model.dump.as_ref()?;
    dump.queues.iter().find(|queue| queue.id == row.id)
}

/// How it went; how many lines that takes.
fn graphs(state: &State, row: &Row, canvas: &mut Canvas<'_>, height: usize) -> usize {
    let paint = canvas.paint;
    let lines = if height >= TALL { 3 } else { 1 };
    let Some(history) = state.model.histories.get(&row.id) else { return 0 };
    let width = canvas.width().saturating_sub(22).min(100);
    let as_count = |value: f64| format::count(value as u64);
    let as_time = |value: f64| screen::time(value as u64);
    type Named<'a> = (&'a str, &'a VecDeque<f64>, &'a dyn Fn(f64) -> String);
    let graphs: [Named<'_>; 3] = [
        ("ITEMS/S", &history.completed, &format::rate),
        ("DEPTH", &history.depth, &as_count),
        ("wait P99", &history.wait, &as_time),
    ];
    for (index, (name, values, text)) in graphs.into_iter().enumerate() {
        let y = index * lines;
        let greatest = values.iter().rev().take(width).copied().fold(0.0, f64::max);
        canvas.text(1, y + lines - 1, name, DIM);
        canvas.right(20, y + lines - 1, &format!("max {}", text(greatest)), Style::new());
        for (line, graph) in paint.lines(values, width, lines).iter().enumerate() {
            canvas.text(21, y + line, graph, paint.graph());
        }
    }
    lines * 3
}

/// A pool of the queue, as far as it is known.
pub(super) struct QueuePool<'a> {
    /// Its number.
    number: u64,
    /// The CPUs from which items go there.
    sources: usize,
    /// What there was to see.
    dump: Option<&'a PoolDump>,
    /// What happened; nothing did where that is missing.
    pod: Option<&'a Pod>,
}

/// The pools of the queue that is looked into, by number.
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

/// What stands above the pools, and where it ends; two more stand to the left of their column.
const HEADINGS: [(&str, usize); 8] = [
    ("POOL", 5),
    ("NICE", 10),
    ("WORKERS", 18),
    ("IDLE", 23),
    ("READY", 29),
    ("ITEMS/S", 37),
    ("CPU%", 44),
    ("FROM", 50),
];
/// Where it begins how busy a pool is, and of which CPUs it is.
const BUSY: usize = 52;
/// See [`BUSY`].
const CPUS: usize = BUSY + 9;

/// The pools: all that happens there, for whichever queue.
fn list(state: &State, canvas: &mut Canvas<'_>) {
    let paint = canvas.paint;
    canvas.style_line(0, HEADING);
    for (heading, end) in HEADINGS {
        canvas.right(end, 0, heading, HEADING);
    }
    canvas.text(BUSY, 0, "BUSY", HEADING);
    canvas.text(CPUS, 0, "CPUS", HEADING);
    if state.model.dump.is_none() {
        canvas.text(1, 1, "the pools are not known yet", Style::new());
        return;
    }
    let pools = pools(state);
    let lines = canvas.height().saturating_sub(1);
    for (line, pool) in pools.iter().skip(state.first_pool).take(lines).enumerate() {
        let y = line + 1;
        let busy = pool.pod.map_or(0.0, |pod| pod.busy);
        for ((_, end), text) in HEADINGS.into_iter().zip(pool.numbers()) {
            canvas.right(end, y, &text, Style::new());
        }
        let cell = |cell: u8| paint.level((busy * 8.0 - f64::from(cell)).clamp(0.0, 1.0));
        let bar: String = (0..8).map(cell).collect();
        canvas.text(BUSY, y, &bar, paint.heat(busy));
        canvas.text(CPUS, y, pool.dump.map_or("?", |dump| dump.pod_cpus.as_str()), Style::new());
    }
    let hidden = pools.len().saturating_sub(state.first_pool + lines);
    if hidden > 0 {
        canvas.right(canvas.width(), lines, &format!(" +{hidden}"), DIM);
    }
}

impl QueuePool<'_> {
    /// What stands below the headings.
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

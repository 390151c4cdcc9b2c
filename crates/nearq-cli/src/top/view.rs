//! Draws the screen from the state. This module queries nothing and changes nothing.
//!
//! ```text
//!   nearq top  pid 4711  COMMAND                     every 1.0s      which process
//!   CPU 153%  queues 12  workers 9 (4 asleep) ...                    totals
//!   pods     0 ▁▂█·                                                  the heat strip: a cell for each pool
//!   WORKQUEUE        ▼ITEMS/S  INFL ...                              the table, or a queue
//!   ? help  q end ...                                                keys, or a message
//! ```

mod overlay;
mod queue;
mod table;

use nearq_command::screen;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Text;
use ratatui::widgets::{Clear, Paragraph, SparklineBar, Widget as _};
use unicode_width::UnicodeWidthStr as _;

use super::format;
use super::model::Pod;
use super::paint::{self, DIM, Paint, TITLE};
use super::state::{Overlay, State, shown};

pub(super) use overlay::help_text;

/// Lines above the heat strip.
const LINES_ABOVE_STRIP: u16 = 2;
/// Columns before the first cell of the heat strip.
const STRIP_LABEL: u16 = 11;

/// Draws everything.
pub(super) fn draw(state: &State, paint: &Paint, area: Rect, buffer: &mut Buffer) {
    if let Overlay::Help(first) = state.overlay {
        overlay::help(first, area, buffer);
        return;
    }
    let strip = strip_lines(state, area);
    let lines = [1, 1, strip].map(Constraint::Length);
    let rest = [Constraint::Min(0), Constraint::Length(1)];
    let [first, second, strip, body, last] =
        Layout::vertical(lines.into_iter().chain(rest)).areas(area);
    title(state, first, second, buffer);
    self::strip(state, paint, strip, buffer);
    match state.queue.and_then(|id| state.model.row(id)) {
        Some(row) => queue::draw(state, row, paint, body, buffer),
        None => table::draw(state, paint, body, buffer),
    }
    bottom(state, paint, area, last, buffer);
    if let Overlay::Form(form) = &state.overlay {
        overlay::form(form, paint, area, buffer);
    }
}

/// The line that identifies the process, and the totals.
fn title(state: &State, first: Rect, second: Rect, buffer: &mut Buffer) {
    let every = format!("every {}", screen::time(state.interval.as_nanos() as u64));
    let title = format!("nearq top  pid {}  {}", state.pid, state.process.command);
    let [left, _, right] = Layout::horizontal([
        Constraint::Min(0),
        Constraint::Length(2),
        Constraint::Length(every.len() as u16),
    ])
    .areas(first);
    paint::text(&title, TITLE).render(left, buffer);
    paint::text(&every, TITLE).render(right, buffer);
    if !state.model.ready {
        return;
    }
    let whole = &state.model.whole;
    let timed = if whole.timing {
        format!("timed {}/s", format::rate(whole.samples_per_second))
    } else {
        "not timed".to_owned()
    };
    let parts = [
        format!("CPU {}%", format::percent(whole.cpu)),
        queues(state),
        format!("workers {} ({} asleep)", whole.workers, whole.idle),
        timed,
        format!("control {}%", format::percent(whole.control_cpu)),
        format!("{} at once", whole.parallelism),
    ];
    // Each part of a line is shown in full or left out.
    let mut text = String::new();
    for part in parts {
        if text.width() + part.width() <= second.width.into() {
            text += &(part + "  ");
        }
    }
    paint::text(&text, Style::new()).render(second, buffer);
}

fn queues(state: &State) -> String {
    let all = state.model.rows.len();
    match state.filter.text.as_str() {
        "" => format!("queues {all}"),
        filter => format!("queues {} of {all} with {filter}", state.rows().len()),
    }
}

/// How many cells of the heat strip fit on a line.
fn per_line(width: u16) -> usize {
    (width.saturating_sub(STRIP_LABEL) / 8 * 8).max(8).into()
}

/// How many lines the heat strip takes.
fn strip_lines(state: &State, area: Rect) -> u16 {
    let most = (area.height / 4).saturating_sub(LINES_ABOVE_STRIP).clamp(1, 8);
    let lines = state.model.pods.len().div_ceil(per_line(area.width));
    lines.min(most.into()) as u16
}

/// The heat strip.
fn strip(state: &State, paint: &Paint, area: Rect, buffer: &mut Buffer) {
    let pods = &state.model.pods;
    let per_line = per_line(area.width);
    // A pool with work shows at least the lowest level, even if its CPU time is not counted yet.
    let bar = |pod: &Pod| match pod.active().then(|| paint::height(pod.busy, 8).max(1)) {
        Some(height) => SparklineBar::from(height).style(paint.heat(pod.busy)),
        None => SparklineBar::from(None),
    };
    for (line, (area, pods)) in area.rows().zip(pods.chunks(per_line)).enumerate() {
        let [label, cells] =
            Layout::horizontal([Constraint::Length(STRIP_LABEL), Constraint::Min(0)]).areas(area);
        let name = if line == 0 { "pods" } else { "" };
        paint::text(&format!("{name:<5}{:>5}", pods[0].pool), DIM).render(label, buffer);
        paint.bars(pods.iter().map(bar)).absent_value_style(paint.heat(0.0)).render(cells, buffer);
    }
    let most = usize::from(area.height) * per_line;
    if pods.len() > most {
        let more = paint::text(&format!(" +{}", pods.len() - most), DIM).right_aligned();
        more.render(paint::last_line(area), buffer);
    }
}

/// The last line: what is being typed, a message, or the keys. A message may need more lines.
fn bottom(state: &State, paint: &Paint, area: Rect, last: Rect, buffer: &mut Buffer) {
    let (text, style) = if let Overlay::Filter(_) = state.overlay {
        let note = if state.filter.literal {
            "  (not a valid expression: searched literally)"
        } else {
            ""
        };
        (format!("filter: {}_{note}", state.filter.text), TITLE)
    } else if !state.message.is_empty() {
        (state.message.clone(), TITLE)
    } else if let Some(why) = &state.gone {
        (format!("{why}; this is the last state; q ends"), paint.alarm())
    } else {
        paint::text(keys_of(state, area.width.into()), DIM).render(last, buffer);
        return;
    };
    let text = screen::wrapped("", screen::plain(&text).split_whitespace(), area.width.into());
    let lines = text.lines().count().min(area.height.into()) as u16;
    let overlay = Rect { y: area.bottom() - lines, height: lines, ..area };
    Clear.render(overlay, buffer);
    Paragraph::new(Text::styled(text, style)).render(overlay, buffer);
}

/// The most important keys.
fn keys_of(state: &State, width: usize) -> &'static str {
    match state.queue {
        Some(_) => "? help  q end  Esc back  up down pools  s set",
        None if super::columns::page_count(width) > 1 => {
            "? help  q end  / filter  < > sort  Enter pools  s set  t totals  c more columns"
        }
        None => "? help  q end  / filter  < > sort  r reverse  Enter pools  s set  t totals",
    }
}

/// The last pool that may be the first one shown.
pub(super) fn last_pool(state: &State) -> usize {
    queue::pools(state).len().saturating_sub(1)
}

/// The last line of the help that may be the first one shown.
pub(super) fn last_line_of_help(state: &State) -> usize {
    let (width, height) = (usize::from(state.size.0), usize::from(state.size.1));
    help_text(width).len().saturating_sub(height.saturating_sub(2))
}

//! The screen, from what is known: nothing is asked and nothing is changed here.
//!
//! ```text
//!   nearq top  pid 4711  COMMAND                     every 1.0s      who
//!   CPU 153%  queues 12  workers 9 (4 asleep) ...                    how much in all
//!   pods     0 ▁▂█·                                                  the heat strip: a cell a pool
//!   WORKQUEUE        ▼ITEMS/S  INFL ...                              the table, or a queue
//!   ? help  q end ...                                                keys, or what is to be said
//! ```

mod over;
mod queue;
mod table;

use nearq_command::screen;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr as _;

use super::format;
use super::paint::{Canvas, DIM, Paint, TITLE};
use super::state::{Over, State, shown};

pub(super) use over::help_text;

/// Lines above the heat strip.
const ABOVE: usize = 2;
/// Columns before the first cell of the heat strip.
const STRIP_LABEL: usize = 11;

/// Draws everything.
pub(super) fn draw(state: &State, paint: &Paint, area: Rect, buffer: &mut Buffer) {
    let mut canvas = Canvas::new(paint, area, buffer);
    let (width, height) = (canvas.width(), canvas.height());
    if let Over::Help(first) = state.over {
        over::help(first, &mut canvas);
        return;
    }
    title(state, &mut canvas);
    let strip = strip(state, &mut canvas.part(0, ABOVE, width, strip_lines(height)));
    let body = ABOVE + strip;
    let mut part = canvas.part(0, body, width, height.saturating_sub(body + 1));
    match state.queue.and_then(|id| state.model.row(id)) {
        Some(row) => queue::draw(state, row, &mut part),
        None => table::draw(state, &mut part),
    }
    bottom(state, &mut canvas);
    if let Over::Form(form) = &state.over {
        over::form(form, &mut canvas);
    }
}

/// Who it is, and how much of everything there is.
fn title(state: &State, canvas: &mut Canvas<'_>) {
    let width = canvas.width();
    let every = format!("every {}", screen::time(state.interval.as_nanos() as u64));
    let who = format!("nearq top  pid {}  {}", state.pid, screen::plain(&state.process.command));
    canvas.part(0, 0, width.saturating_sub(every.len() + 2), 1).text(0, 0, &who, TITLE);
    canvas.right(width, 0, &every, TITLE);
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
    // Whole parts or none of them.
    let mut x = 0;
    for part in parts {
        if x + part.width() <= width {
            canvas.text(x, 1, &part, ratatui::style::Style::new());
            x += part.width() + 2;
        }
    }
}

fn queues(state: &State) -> String {
    let all = state.model.rows.len();
    match state.filter.text.as_str() {
        "" => format!("queues {all}"),
        filter => format!("queues {} of {all} with {filter}", state.rows().len()),
    }
}

/// Lines that the heat strip may have.
fn strip_lines(height: usize) -> usize {
    (height / 4).saturating_sub(ABOVE).clamp(1, 8)
}

/// The heat strip; how many lines it takes.
fn strip(state: &State, canvas: &mut Canvas<'_>) -> usize {
    let paint = canvas.paint;
    let per_line = (canvas.width().saturating_sub(STRIP_LABEL) / 8 * 8).max(8);
    let most = canvas.height() * per_line;
    let pods = &state.model.pods;
    for (line, cells) in pods.chunks(per_line).take(canvas.height()).enumerate() {
        let label = format!("{:<5}{:>5}", if line == 0 { "pods" } else { "" }, cells[0].pool);
        canvas.text(0, line, &label, DIM);
        for (cell, pod) in cells.iter().enumerate() {
            let glyph = if pod.active() {
                // Some work is there: the least level, though its CPU time is not counted yet.
                paint.level(pod.busy.max(f64::MIN_POSITIVE))
            } else {
                paint.glyphs.idle
            };
            canvas.text(STRIP_LABEL + cell, line, &glyph.to_string(), paint.heat(pod.busy));
        }
    }
    if pods.len() > most {
        let more = format!(" +{}", pods.len() - most);
        canvas.right(canvas.width(), canvas.height().saturating_sub(1), &more, DIM);
    }
    pods.len().div_ceil(per_line).min(canvas.height())
}

/// The last line: what is being written, what is to be said, or the keys. What is to be said may need more lines.
fn bottom(state: &State, canvas: &mut Canvas<'_>) {
    let paint = canvas.paint;
    let (width, height) = (canvas.width(), canvas.height());
    let (text, style) = if let Over::Filter(_) = state.over {
        let note = if state.filter.literal { "  (no expression: as it stands)" } else { "" };
        (format!("filter: {}_{note}", state.filter.text), TITLE)
    } else if !state.message.is_empty() {
        (state.message.clone(), TITLE)
    } else if let Some(why) = &state.gone {
        (format!("{why}; this is the last picture; q ends"), paint.alarm())
    } else {
        canvas.text(0, height.saturating_sub(1), keys_of(state, width), DIM);
        return;
    };
    let lines = format::wrapped(&text, width);
    let first = height.saturating_sub(lines.len());
    for (line, text) in lines.iter().enumerate() {
        canvas.clear_line(first + line);
        canvas.text(0, first + line, text, style);
    }
}

/// The keys that are needed most.
fn keys_of(state: &State, width: usize) -> &'static str {
    match state.queue {
        Some(_) => "? help  q end  Esc back  up down pools  s set",
        None if super::columns::page_count(width) > 1 => {
            "? help  q end  / filter  < > sort  Enter pools  s set  t totals  c more columns"
        }
        None => "? help  q end  / filter  < > sort  r reverse  Enter pools  s set  t totals",
    }
}

/// The last pool that the first line of a queue's pools may show.
pub(super) fn last_pool(state: &State) -> usize {
    queue::pools(state).len().saturating_sub(1)
}

/// The last line that help may begin with.
pub(super) fn last_line_of_help(state: &State) -> usize {
    let (width, height) = (usize::from(state.size.0), usize::from(state.size.1));
    help_text(width).len().saturating_sub(height.saturating_sub(2))
}

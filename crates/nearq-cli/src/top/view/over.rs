//! What lies over the table: help, and a setting that is being changed.

use nearq_control::knobs::{self, Owner};
use ratatui::style::Style;

use super::shown;
use crate::top::columns::COLUMNS;
use crate::top::format;
use crate::top::keys::KEYS;
use crate::top::paint::{Canvas, DIM, TITLE};
use crate::top::state::Form;

/// The widest that help is.
const WIDEST_HELP: usize = 120;
/// Columns before what an entry of help says.
const INDENT: usize = 15;
/// Columns and lines of a form.
const FORM: [usize; 2] = [76, 14];

/// What else is on the screen.
const REST: [(&str, &str); 8] = [
    (
        "pods",
        "a cell for each pool, by number: how much of its CPUs' time its workers used, from nothing to all of it",
    ),
    ("control", "CPU time of the thread that answers, in percent of one CPU"),
    (
        "timed",
        "items that were timed, per second; P50 to MAX are about as many more as were left out",
    ),
    (
        "-",
        "there is no such thing: hogs of unbound queues, a rescuer that a queue has not, times of items that were not timed",
    ),
    (
        "LIMIT",
        "where max_active is counted: a node, a CPU, across nodes, or the whole; items that are active there, as many as may be, and those held back",
    ),
    (
        "POOL",
        "a pool that the queue's items go to; what stands beside it is about all queues that use the pool",
    ),
    ("READY", "items that were taken off the inbox and have not begun"),
    ("FROM", "CPUs whose items of this queue go there; CPUS are those of the pod"),
];

/// What help says, in lines of at most so many columns.
pub(in crate::top) fn help_text(width: usize) -> Vec<String> {
    let columns: Vec<_> = COLUMNS.iter().map(|column| (column.heading, column.what)).collect();
    let sections = [
        ("Keys", &KEYS[..]),
        ("Columns: counts from HOGS to PANICS are per second, or in all with `t`", &columns),
        ("And else", &REST),
    ];
    let room = width.min(WIDEST_HELP).saturating_sub(INDENT);
    let mut lines = Vec::new();
    for (title, entries) in sections {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(title.to_owned());
        for (name, what) in entries {
            for (line, text) in format::wrapped(what, room).into_iter().enumerate() {
                let name = if line == 0 { name } else { "" };
                lines.push(format!("  {name:<width$}{text}", width = INDENT - 2));
            }
        }
    }
    lines
}

/// Draws help, from a line on.
pub(super) fn help(first: usize, canvas: &mut Canvas<'_>) {
    let lines = help_text(canvas.width());
    let room = canvas.height().saturating_sub(2);
    canvas.text(0, 0, "nearq top: help", TITLE);
    for (y, line) in lines.iter().skip(first).take(room).enumerate() {
        let style = if line.starts_with(' ') { Style::new() } else { TITLE };
        canvas.text(0, y + 1, line, style);
    }
    let more = lines.len().saturating_sub(first + room);
    let text = match more {
        0 => "any other key closes it".to_owned(),
        more => format!("down: {more} more lines; any other key closes it"),
    };
    canvas.text(0, canvas.height().saturating_sub(1), &text, DIM);
}

/// Draws a form, in the middle.
pub(super) fn form(form: &Form, canvas: &mut Canvas<'_>) {
    let [width, height] = [FORM[0].min(canvas.width()), FORM[1].min(canvas.height())];
    let (x, y) = ((canvas.width() - width) / 2, (canvas.height() - height) / 2);
    let mut canvas = canvas.part(x, y, width, height);
    let (title, owner) = match &form.queue {
        Some((id, name)) => (format!("set: queue {name} (#{id})"), Owner::Queue),
        None => ("set: the process".to_owned(), Owner::Process),
    };
    canvas.frame(&title);
    let mut canvas = canvas.part(2, 1, width.saturating_sub(4), height.saturating_sub(2));
    let inner = canvas.width();
    if let Some(setting) = form.setting() {
        let knob = knobs::named(owner, &setting.key);
        let place = format!("{} of {}", form.chosen + 1, form.settings.len());
        canvas.text(0, 0, &format!("key      {}", setting.key), TITLE);
        canvas.right(inner, 0, &place, DIM);
        let said = knob.map(|knob| format!("{}. Allowed: {}", knob.what, knob.values));
        for (line, text) in format::wrapped(&said.unwrap_or_default(), inner.saturating_sub(9))
            .iter()
            .take(3)
            .enumerate()
        {
            canvas.text(9, 1 + line, text, Style::new());
        }
        let now = format!(
            "now      {}, in effect {}",
            shown(&setting.configured),
            shown(&setting.effective)
        );
        canvas.text(0, 5, &now, Style::new());
        canvas.text(0, 6, &format!("value    {}_", form.value), TITLE);
    }
    let outcome =
        if form.settings.is_empty() && form.outcome.is_empty() { "..." } else { &form.outcome };
    for (line, text) in format::wrapped(outcome, inner).iter().take(3).enumerate() {
        canvas.text(0, 8 + line, text, TITLE);
    }
    let keys = "up down: another key  Ctrl-U: empty  Enter: set it  Esc: back";
    canvas.text(0, 11, keys, DIM);
}

//! What covers the table: help, and a setting that is being changed.

use nearq_command::screen;
use nearq_control::settings_table::{self, Owner};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Clear, Padding, Paragraph, Widget as _, Wrap};

use super::shown;
use crate::top::columns::COLUMNS;
use crate::top::keys::KEYS;
use crate::top::paint::{self, DIM, Paint, TITLE};
use crate::top::state::Form;

/// The greatest width of help.
const WIDEST_HELP: usize = 120;
/// Width and height of a form.
const FORM: [u16; 2] = [76, 14];

/// What else is on the screen.
const REST: [(&str, &str); 8] = [
    (
        "pods",
        "a cell for each pool, by number: how much of its CPUs' time its workers used, from none to all",
    ),
    ("control", "CPU time of the thread that answers, in percent of one CPU"),
    (
        "timed",
        "items timed per second; if there are more items, P50 to MAX are estimated from these",
    ),
    (
        "-",
        "does not apply, or was not measured: hogs of unbound queues, a rescuer of queues without one, times if no items were timed",
    ),
    (
        "LIMIT",
        "where max_active is counted: a node, a CPU, across nodes, or the whole machine; \
         then the items active there, the maximum, and the items held back",
    ),
    (
        "POOL",
        "a pool that the queue's items go to; the other columns are about all queues that use the pool",
    ),
    ("READY", "items that were taken off the inbox and have not started"),
    ("FROM", "the CPUs whose items of this queue go there; CPUS: the CPUs of the pod"),
];

/// The text of the help, in lines of at most `width` columns.
pub(in crate::top) fn help_text(width: usize) -> Vec<String> {
    let columns: Vec<_> = COLUMNS.iter().map(|column| (column.heading, column.what)).collect();
    let sections = [
        ("Keys", &KEYS[..]),
        ("Columns: counts from HOGS to PANICS are per second, or totals with `t`", &columns),
        ("Other things on the screen", &REST),
    ];
    let mut text = String::new();
    for (title, entries) in sections {
        let gap = if text.is_empty() { "" } else { "\n" };
        text += &format!("{gap}{title}\n");
        for (name, what) in entries {
            let head = format!("  {name:<13}");
            text += &screen::wrapped(&head, what.split_whitespace(), width.min(WIDEST_HELP));
        }
    }
    text.lines().map(String::from).collect()
}

/// Draws help, from line `first` on.
pub(super) fn help(first: usize, area: Rect, buffer: &mut Buffer) {
    let lines = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [title, body, bottom] = Layout::vertical(lines).areas(area);
    paint::text("nearq top: help", TITLE).render(title, buffer);
    let lines = help_text(area.width.into());
    let style = |line: &String| if line.starts_with(' ') { Style::new() } else { TITLE };
    let text: Text<'_> = lines.iter().map(|line| paint::text(line, style(line))).collect();
    Paragraph::new(text).scroll((first as u16, 0)).render(body, buffer);
    let text = match lines.len().saturating_sub(first + usize::from(body.height)) {
        0 => "any other key closes it".to_owned(),
        more => format!("down: {more} more lines; any other key closes it"),
    };
    paint::text(&text, DIM).render(bottom, buffer);
}

/// Draws a form, in the middle.
pub(super) fn form(form: &Form, paint: &Paint, area: Rect, buffer: &mut Buffer) {
    let [width, height] = FORM.map(Constraint::Max);
    let area = area.centered(width, height);
    // With a margin: half of a wide character at the left would hide the frame.
    Clear.render(area.outer(Margin::new(1, 0)), buffer);
    let (title, owner) = match &form.queue {
        Some((id, name)) => (format!(" set: queue {name} (#{id}) "), Owner::Queue),
        None => (" set: the process ".to_owned(), Owner::Process),
    };
    let block = Block::bordered()
        .border_set(paint.glyphs.frame)
        .title(paint::text(&title, TITLE))
        .padding(Padding::horizontal(1));
    let inner = block.inner(area);
    block.render(area, buffer);

    let lines = [1, 3, 1, 1, 1, 1, 3, 1].map(Constraint::Length);
    let [key, description, _, now, value, _, outcome, keys] = Layout::vertical(lines).areas(inner);
    let mut draw = |text: Line<'_>, area: Rect| {
        Paragraph::new(text).wrap(Wrap { trim: true }).render(area, buffer);
    };
    if let Some(setting) = form.setting() {
        draw(paint::text(&format!("key      {}", setting.key), TITLE), key);
        let place = format!("{} of {}", form.chosen + 1, form.settings.len());
        draw(paint::text(&place, DIM).right_aligned(), key);
        if let Some(desc) = settings_table::named(owner, &setting.key) {
            let [_, description] =
                Layout::horizontal([Constraint::Length(9), Constraint::Min(0)]).areas(description);
            draw(format!("{}. Allowed: {}", desc.what, desc.values).into(), description);
        }
        let (configured, effective) = (shown(&setting.configured), shown(&setting.effective));
        let text = format!("now      {configured}, in effect {effective}");
        draw(paint::text(&text, Style::new()), now);
        draw(paint::text(&format!("value    {}_", form.value), TITLE), value);
    }
    let nothing_yet = form.settings.is_empty() && form.outcome.is_empty();
    draw(paint::text(if nothing_yet { "..." } else { &form.outcome }, TITLE), outcome);
    let text = "up down: another key  Ctrl-U: clear  Enter: set  Esc: back";
    draw(paint::text(text, DIM), keys);
}

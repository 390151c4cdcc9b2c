//! The table: a row a queue.

use ratatui::style::Style;
use unicode_width::UnicodeWidthStr as _;

use crate::top::columns;
use crate::top::paint::{Canvas, HEADING, MARKED};
use crate::top::state::State;
use nearq_command::screen::tail;

/// Draws the table.
pub(super) fn draw(state: &State, canvas: &mut Canvas<'_>) {
    let paint = canvas.paint;
    let rows = state.rows();
    let longest = rows.iter().map(|row| row.name.width()).max().unwrap_or(0);
    let fitted = columns::fit(canvas.width(), longest, state.page);
    heading(state, &fitted, canvas);
    if rows.is_empty() {
        let text = match () {
            () if !state.model.ready => "the first rates come with the second look",
            () if state.model.rows.is_empty() => "the process has no queues",
            () => "no queue has such a name; Esc shows all",
        };
        canvas.text(1, 1, text, Style::new());
        return;
    }
    // Whole screens at a time: the row with the mark moves, the others stay.
    let lines = canvas.height().saturating_sub(1).max(1);
    let marked = state.marked(&rows);
    let first = marked / lines * lines;
    for (line, row) in rows.iter().enumerate().skip(first).take(lines) {
        let style = if line == marked { MARKED } else { Style::new() };
        let y = line - first + 1;
        if line == marked {
            canvas.text(0, y, ">", style);
        }
        let mut x = 1;
        for (column, width) in &fitted {
            if column.graph() {
                let history = state.model.histories.get(&row.id);
                let graph = history.map(|history| paint.lines(&history.completed, *width, 1));
                let graph = graph.into_iter().flatten().next().unwrap_or_default();
                canvas.text(x, y, &graph, paint.graph());
            } else if column.text {
                let value = tail(&column.value(row, state.totals), *width, paint.glyphs.cut);
                canvas.text(x, y, &value, style);
            } else {
                canvas.right(x + width, y, &column.value(row, state.totals), style);
            }
            x += width + 1;
        }
    }
}

fn heading(state: &State, fitted: &[(columns::Column, usize)], canvas: &mut Canvas<'_>) {
    let paint = canvas.paint;
    canvas.style_line(0, HEADING);
    let mut x = 1;
    for (column, width) in fitted {
        let text = column.heading(state.totals);
        let start = if column.text { x } else { (x + width).saturating_sub(text.len()) };
        canvas.text(start, 0, text, HEADING);
        if *column == state.sort.column {
            let [falling, rising] = paint.glyphs.order;
            let mark = if state.sort.rising() { rising } else { falling };
            canvas.text(start - 1, 0, &mark.to_string(), HEADING);
        }
        x += width + 1;
    }
}

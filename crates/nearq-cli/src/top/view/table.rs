//! The table: a row for each queue.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Row, StatefulWidget, TableState, Widget as _};
use unicode_width::UnicodeWidthStr as _;

use crate::top::columns::{self, Column};
use crate::top::paint::{self, HEADING, MARKED, Paint};
use crate::top::state::State;
use nearq_command::screen::tail;

/// Draws the table.
pub(super) fn draw(state: &State, paint: &Paint, area: Rect, buffer: &mut Buffer) {
    let rows = state.rows();
    let longest = rows.iter().map(|row| row.name.width()).max().unwrap_or(0);
    let fitted = columns::fit(area.width.into(), longest, state.page);
    // Scrolls by whole screens: the mark moves, the rows stay.
    let lines = usize::from(area.height).saturating_sub(1).max(1);
    let marked = state.marked(&rows);
    let first = marked / lines * lines;
    let shown = rows.iter().skip(first).take(lines);

    // Each cell begins with a mark or a blank.
    let cell = |column: &Column, mark: char, value: &str| {
        let cell = paint::text(&format!("{mark}{value}"), Style::new());
        if column.text { cell } else { cell.right_aligned() }
    };
    let [falling, rising] = paint.glyphs.order;
    let order = if state.sort.rising() { rising } else { falling };
    let heading = fitted.iter().map(|(column, _)| {
        let mark = if *column == state.sort.column { order } else { ' ' };
        cell(column, mark, column.heading(state.totals))
    });
    let lines = shown.clone().enumerate().map(|(line, row)| {
        let cells = fitted.iter().enumerate().map(|(place, (column, width))| {
            let mark = if place == 0 && first + line == marked { '>' } else { ' ' };
            let value = column.value(row, state.totals);
            cell(column, mark, &tail(&value, *width, paint.glyphs.cut))
        });
        cells.collect()
    });
    let mut place = TableState::new().with_selected(marked - first);
    let widths: Vec<u16> = fitted.iter().map(|(_, width)| *width as u16 + 1).collect();
    let table = paint::table(lines, &widths, area.width)
        .header(heading.collect::<Row<'_>>().style(HEADING))
        .row_highlight_style(MARKED);
    StatefulWidget::render(table, area, buffer, &mut place);

    if rows.is_empty() {
        let why = match () {
            () if !state.model.ready => "  the first rates come with the second sample",
            () if state.model.rows.is_empty() => " the process has no queues",
            () => "  no queue's name matches; Esc shows all",
        };
        why.render(paint::line(area, 1), buffer);
        return;
    }
    let before = |(column, _): &&(Column, usize)| !column.graph();
    let x: usize = 1 + fitted.iter().take_while(before).map(|(_, width)| width + 1).sum::<usize>();
    let Some((_, width)) = fitted.iter().find(|(column, _)| column.graph()) else { return };
    for (line, row) in area.rows().skip(1).zip(shown) {
        let graph = Rect { x: area.x + x as u16, width: *width as u16, ..line };
        if let Some(history) = state.model.histories.get(&row.id) {
            paint.graph(&history.completed, graph.intersection(area), buffer);
        }
    }
}

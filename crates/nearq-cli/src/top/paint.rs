//! Appearance: colours, characters, graphs. Nothing is shown by colour alone.

use std::collections::VecDeque;
use std::env;

use nearq_command::screen::plain;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::{bar, border};
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Row, Sparkline, SparklineBar, Table, Widget as _};

/// The characters of graphs and frames.
#[derive(Clone, Debug)]
pub(super) struct Glyphs {
    /// Empty, then eight heights.
    levels: bar::Set<'static>,
    /// A pool where nothing happens.
    pub(super) idle: &'static str,
    /// The sort marks: greatest first, smallest first.
    pub(super) order: [char; 2],
    /// The mark for text that is cut.
    pub(super) cut: char,
    /// A frame.
    pub(super) frame: border::Set<'static>,
}

const BLOCKS: Glyphs = Glyphs {
    levels: bar::NINE_LEVELS,
    idle: "·",
    order: ['▼', '▲'],
    cut: '…',
    frame: border::PLAIN,
};

const ASCII: Glyphs = Glyphs {
    levels: bar::Set {
        empty: " ",
        one_eighth: ".",
        one_quarter: ":",
        three_eighths: "-",
        half: "=",
        five_eighths: "+",
        three_quarters: "*",
        seven_eighths: "#",
        full: "@",
    },
    idle: "_",
    order: ['v', '^'],
    cut: '~',
    frame: border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    },
};

/// The line at the top, and important text.
pub(super) const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
/// Headings of columns.
pub(super) const HEADING: Style = Style::new().add_modifier(Modifier::REVERSED);
/// The row with the mark.
pub(super) const MARKED: Style = Style::new().add_modifier(Modifier::BOLD);
/// Less important text.
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// The appearance.
#[derive(Clone, Debug)]
pub(super) struct Paint {
    /// Whether there are colours.
    pub(super) colour: bool,
    /// The characters.
    pub(super) glyphs: Glyphs,
}

impl Paint {
    /// From the environment: no colours if NO_COLOR is set, only ASCII if the locale has no other characters.
    pub(super) fn of_environment() -> Self {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let locale = locale.map(|locale| locale.to_string_lossy().to_ascii_lowercase());
        let wide = locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8"));
        Self::new(set("NO_COLOR").is_none(), wide)
    }

    /// With or without colours, with block characters or with ASCII characters only.
    pub(super) fn new(colour: bool, blocks: bool) -> Self {
        Paint { colour, glyphs: if blocks { BLOCKS } else { ASCII } }
    }

    /// The style of alarms.
    pub(super) fn alarm(&self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
        if self.colour { style.fg(Color::Red) } else { style }
    }

    /// The style for a share, 0 to 1.
    pub(super) fn heat(&self, part: f64) -> Style {
        let colour = match part {
            part if part < 0.34 => Color::Green,
            part if part < 0.84 => Color::Yellow,
            _ => Color::Red,
        };
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// A line of bars, from left to right, each of a height of 0 to 8.
    pub(super) fn bars<'a>(
        &self,
        bars: impl IntoIterator<Item = impl Into<SparklineBar>>,
    ) -> Sparkline<'a> {
        Sparkline::default()
            .data(bars)
            .max(8)
            .bar_set(self.glyphs.levels.clone())
            .absent_value_symbol(self.glyphs.idle)
    }

    /// Draws a graph of the newest values, the newest on the right; the greatest has the full height.
    pub(super) fn graph(&self, values: &VecDeque<f64>, area: Rect, buffer: &mut Buffer) {
        let shown = values.iter().rev().take(area.width.into());
        let greatest = shown.clone().copied().fold(0.0, f64::max);
        let most = area.height * 8;
        self.bars(shown.map(|value| height(value / greatest, most)))
            .max(most.into())
            .direction(RenderDirection::RightToLeft)
            .style(if self.colour { Style::new().fg(Color::Cyan) } else { Style::new() })
            .render(area, buffer);
    }
}

/// The height of a bar: a value above 0 is never drawn as empty.
pub(super) fn height(part: f64, most: u16) -> u64 {
    if part > 0.0 { (part * f64::from(most)).round().max(1.0).min(most.into()) as u64 } else { 0 }
}

/// A text in one style; control characters in it have no effect.
pub(super) fn text<'a>(text: &str, style: Style) -> Line<'a> {
    Span::styled(plain(text), style).into()
}

/// A line of an area, by its number; empty if the area has fewer lines.
pub(super) fn line(area: Rect, number: u16) -> Rect {
    Rect { y: area.y.saturating_add(number), height: 1, ..area }.intersection(area)
}

/// The last line of an area.
pub(super) fn last_line(area: Rect) -> Rect {
    line(area, area.height.saturating_sub(1))
}

/// The first lines of an area, and those below.
pub(super) fn split(area: Rect, lines: u16) -> [Rect; 2] {
    Layout::vertical([Constraint::Length(lines), Constraint::Min(0)]).areas(area)
}

/// A row of a table: the first cell to the left, numbers to the right.
pub(super) fn row<'a>(name: &str, numbers: impl IntoIterator<Item = impl AsRef<str>>) -> Row<'a> {
    let numbers = numbers.into_iter();
    let numbers = numbers.map(|number| text(number.as_ref(), Style::new()).right_aligned());
    Row::new([text(name, Style::new())].into_iter().chain(numbers))
}

/// A table whose columns have these widths, with nothing between them; columns that do not fit into that width are left out.
pub(super) fn table<'a>(
    rows: impl IntoIterator<Item = Row<'a>>,
    widths: &[u16],
    available: u16,
) -> Table<'a> {
    let end = |place: &usize| widths[..=*place].iter().sum::<u16>();
    let fit = (0..widths.len()).take_while(|place| end(place) <= available).count();
    Table::new(rows, Constraint::from_lengths(widths[..fit].iter().copied())).column_spacing(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_negligible_values_have_no_height() {
        assert_eq!([0.0, 1e-9, 0.5, 0.999, 1.0].map(|part| height(part, 8)), [0, 1, 4, 8, 8]);
    }

    #[test]
    fn without_colour_no_style_has_a_colour() {
        let paint = Paint::new(false, true);
        for style in [paint.alarm(), paint.heat(1.0), paint.heat(0.0)] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert!(Paint::new(true, true).heat(1.0).fg.is_some());
    }

    #[test]
    fn graphs_grow_upwards_with_the_newest_value_on_the_right() {
        let graph = |paint: &Paint, values: &[f64], width, height| {
            let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
            paint.graph(&values.iter().copied().collect(), buffer.area, &mut buffer);
            buffer
        };
        let paint = &Paint::new(false, true);
        let values = [9.0, 0.0, 1.0, 4.0, 8.0];
        assert_eq!(graph(paint, &values, 4, 1), Buffer::with_lines([" ▁▄█"]));
        assert_eq!(graph(paint, &values, 4, 2), Buffer::with_lines(["   █", " ▂██"]));
        assert_eq!(graph(paint, &values, 7, 1), Buffer::with_lines(["  █ ▁▄▇"]));
        assert_eq!(graph(paint, &[], 3, 2), Buffer::with_lines(["   ", "   "]));
        let ascii = &Paint::new(false, false);
        assert_eq!(graph(ascii, &values, 7, 1), Buffer::with_lines(["  @ .=#"]));
    }
}

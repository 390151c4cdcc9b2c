//! Drawing on a part of the screen: text, bars, graphs. What has a colour also has a shape.

use std::collections::VecDeque;
use std::env;

use nearq_command::screen::plain;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr as _;

/// The characters that pictures are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glyphs {
    /// Nothing, then eight heights.
    pub(super) levels: [char; 9],
    /// A pool where nothing happens.
    pub(super) idle: char,
    /// The greatest at the top, the smallest at the top.
    pub(super) order: [char; 2],
    /// Something is left out.
    pub(super) cut: char,
    /// A frame: across, down, and the corners.
    pub(super) frame: [char; 6],
}

const BLOCKS: Glyphs = Glyphs {
    levels: [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
    idle: '·',
    order: ['▼', '▲'],
    cut: '…',
    frame: ['─', '│', '┌', '┐', '└', '┘'],
};

const ASCII: Glyphs = Glyphs {
    levels: [' ', '.', ':', '-', '=', '+', '*', '#', '@'],
    idle: '_',
    order: ['v', '^'],
    cut: '~',
    frame: ['-', '|', '+', '+', '+', '+'],
};

/// The line at the top, and what must be read.
pub(super) const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
/// What stands above columns.
pub(super) const HEADING: Style = Style::new().add_modifier(Modifier::REVERSED);
/// The row with the mark.
pub(super) const MARKED: Style = Style::new().add_modifier(Modifier::BOLD);
/// What is less important.
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// How things look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    /// Whether there are colours.
    pub(super) colour: bool,
    /// The characters.
    pub(super) glyphs: Glyphs,
}

impl Paint {
    /// As the environment has it: no colours with NO_COLOR, no characters beyond ASCII where the locale has none.
    pub(super) fn of_environment() -> Self {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let locale = locale.map(|locale| locale.to_string_lossy().to_ascii_lowercase());
        let wide = locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8"));
        Self::new(set("NO_COLOR").is_none(), wide)
    }

    /// With colours or without, with block characters or with those of ASCII.
    pub(super) fn new(colour: bool, blocks: bool) -> Self {
        Paint { colour, glyphs: if blocks { BLOCKS } else { ASCII } }
    }

    /// What must not be missed.
    pub(super) fn alarm(&self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
        if self.colour { style.fg(Color::Red) } else { style }
    }

    /// A graph.
    pub(super) fn graph(&self) -> Style {
        if self.colour { Style::new().fg(Color::Cyan) } else { Style::new() }
    }

    /// A part of a whole, 0 to 1.
    pub(super) fn heat(&self, part: f64) -> Style {
        let colour = match part {
            part if part < 0.34 => Color::Green,
            part if part < 0.84 => Color::Yellow,
            _ => Color::Red,
        };
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// The character for a part of a whole, 0 to 1: something is never nothing.
    pub(super) fn level(&self, part: f64) -> char {
        let level = if part > 0.0 { (part * 8.0).round().clamp(1.0, 8.0) } else { 0.0 };
        self.glyphs.levels[level as usize]
    }

    /// A graph of the newest values, to the right, from the top line to the bottom; the greatest has the full height.
    pub(super) fn lines(&self, values: &VecDeque<f64>, width: usize, height: usize) -> Vec<String> {
        let shown: Vec<f64> = values.iter().rev().take(width).rev().copied().collect();
        let greatest = shown.iter().copied().fold(0.0, f64::max);
        let line = |line: usize| {
            let below = (height - 1 - line) as f64;
            let cell = |value: &f64| {
                let part =
                    if greatest > 0.0 { value / greatest * height as f64 - below } else { 0.0 };
                // What is small still shows in the lowest line, and nowhere else.
                if part < 1.0 / 16.0 && below > 0.0 { ' ' } else { self.level(part.min(1.0)) }
            };
            let text: String = shown.iter().map(cell).collect();
            format!("{}{text}", " ".repeat(width - shown.len()))
        };
        (0..height).map(line).collect()
    }
}

/// A part of the screen; what lies outside of it is not drawn.
pub(super) struct Canvas<'a> {
    /// How things look.
    pub(super) paint: &'a Paint,
    area: Rect,
    buffer: &'a mut Buffer,
}

impl<'a> Canvas<'a> {
    /// A part of a buffer.
    pub(super) fn new(paint: &'a Paint, area: Rect, buffer: &'a mut Buffer) -> Self {
        let area = area.intersection(buffer.area);
        Canvas { paint, area, buffer }
    }

    /// Its columns.
    pub(super) fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// Its lines.
    pub(super) fn height(&self) -> usize {
        usize::from(self.area.height)
    }

    /// A part of it.
    pub(super) fn part(&mut self, x: usize, y: usize, width: usize, height: usize) -> Canvas<'_> {
        let [x, y, width, height] =
            [x, y, width, height].map(|n| u16::try_from(n).unwrap_or(u16::MAX));
        let area = Rect {
            x: self.area.x.saturating_add(x),
            y: self.area.y.saturating_add(y),
            width,
            height,
        };
        let area = area.intersection(self.area);
        Canvas { paint: self.paint, area, buffer: self.buffer }
    }

    /// Writes a text; what does not fit is cut.
    pub(super) fn text(&mut self, x: usize, y: usize, text: &str, style: Style) {
        if x >= self.width() || y >= self.height() {
            return;
        }
        let room = self.width() - x;
        let [x, y] = [x, y].map(|n| n as u16);
        // Most of it others have written.
        self.buffer.set_stringn(self.area.x + x, self.area.y + y, plain(text), room, style);
    }

    /// Writes a text that ends before the column `end`; where it has no room, its beginning stays.
    pub(super) fn right(&mut self, end: usize, y: usize, text: &str, style: Style) {
        self.text(end.saturating_sub(text.width()), y, text, style);
    }

    /// Gives a whole line a style.
    pub(super) fn style_line(&mut self, y: usize, style: Style) {
        if y < self.height() {
            let line = Rect { y: self.area.y + y as u16, height: 1, ..self.area };
            self.buffer.set_style(line, style);
        }
    }

    /// Takes away what stands in a line.
    pub(super) fn clear_line(&mut self, y: usize) {
        self.style_line(y, Style::reset());
        self.text(0, y, &" ".repeat(self.width()), Style::new());
    }

    /// Takes away what is there, and draws a frame with a title around it.
    pub(super) fn frame(&mut self, title: &str) {
        let [across, down, corners @ ..] = self.paint.glyphs.frame;
        let (width, height) = (self.width(), self.height());
        let inner = width.saturating_sub(2);
        let line = |left: char, middle: char, right: char| {
            format!("{left}{}{right}", String::from(middle).repeat(inner))
        };
        for y in 0..height {
            let text = match y {
                0 => line(corners[0], across, corners[1]),
                y if y + 1 == height => line(corners[2], across, corners[3]),
                _ => line(down, ' ', down),
            };
            self.style_line(y, Style::reset());
            self.text(0, y, &text, Style::new());
            self.halve(y);
        }
        let title = format!(" {title} ");
        self.part(2, 0, width.saturating_sub(4), 1).text(0, 0, &title, TITLE);
    }
}

impl Canvas<'_> {
    /// A wide character to the left of a line would cover the line's first column.
    fn halve(&mut self, y: usize) {
        let left = self.area.x.checked_sub(1).map(|x| (x, self.area.y + y as u16));
        if let Some(cell) = left.and_then(|left| self.buffer.cell_mut(left))
            && cell.symbol().width() > 1
        {
            cell.set_symbol(" ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_never_nothing() {
        let paint = Paint::new(false, true);
        assert_eq!(
            [0.0, 1e-9, 0.5, 0.999, 1.0].map(|part| paint.level(part)),
            [' ', '▁', '▄', '█', '█']
        );
        let paint = Paint::new(false, false);
        assert_eq!([0.0, 1e-9, 1.0].map(|part| paint.level(part)), [' ', '.', '@']);
    }

    #[test]
    fn without_colour_nothing_has_one() {
        let paint = Paint::new(false, true);
        for style in [paint.alarm(), paint.graph(), paint.heat(1.0), paint.heat(0.0)] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert!(Paint::new(true, true).heat(1.0).fg.is_some());
    }

    #[test]
    fn graphs_grow_from_the_bottom_and_the_newest_is_to_the_right() {
        let paint = Paint::new(false, true);
        let values: VecDeque<f64> = [9.0, 0.0, 1.0, 4.0, 8.0].into();
        assert_eq!(paint.lines(&values, 4, 1), [" ▁▄█"]);
        assert_eq!(paint.lines(&values, 4, 2), ["   █", " ▂██"]);
        assert_eq!(paint.lines(&values, 7, 1), ["  █ ▁▄▇"]);
        assert_eq!(paint.lines(&VecDeque::new(), 3, 2), ["   ", "   "]);
    }

    #[test]
    fn frames_cover_halves_of_wide_characters() {
        let paint = Paint::new(false, false);
        let mut buffer = Buffer::with_lines(["日本語日本語"; 3]);
        Canvas::new(&paint, Rect::new(3, 0, 5, 3), &mut buffer).frame("");
        let line = |y| (0..12).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        assert_eq!(buffer[(2, 1)].symbol(), " ");
        assert!(line(1).starts_with("日") && line(1).contains("  |   |"), "{:?}", line(1));
    }

    #[test]
    fn nothing_is_drawn_outside() {
        let paint = Paint::new(false, true);
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 3));
        let mut canvas = Canvas::new(&paint, Rect::new(0, 0, 100, 100), &mut buffer);
        canvas.text(4, 1, "abcdef", Style::new());
        canvas.text(9, 9, "abcdef", Style::new());
        canvas.right(2, 0, "12345678", Style::new());
        canvas.part(1, 2, 2, 9).text(0, 0, "xyz", Style::new());
        canvas.part(7, 7, 2, 9).frame("nowhere");
        assert_eq!(buffer, Buffer::with_lines(["123456", "    ab", " xy   "]));
    }
}

//! Pictures of results, as SVG.

pub mod bars;
pub mod curves;
pub mod differences;
pub mod gains;
pub mod heat;

use kuva::backend::svg::SvgBackend;
use kuva::render::figure::Figure;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use std::sync::Arc;

/// One diagram of a picture.
pub struct Diagram {
    plots: Vec<Plot>,
    layout: Layout,
    height: f64,
}

/// Draws diagrams one below the other, under a title.
pub fn draw(title: &str, diagrams: Vec<Diagram>) -> String {
    stacked(title, (bars::WIDTH, bars::HEIGHT), diagrams)
}

/// Diagrams one below the other, each with the height that it states.
fn stacked(title: &str, cell: (f64, f64), diagrams: Vec<Diagram>) -> String {
    let count = diagrams.len();
    let (mut plots, mut layouts, mut heights) = (Vec::new(), Vec::new(), Vec::new());
    for diagram in diagrams {
        plots.push(diagram.plots);
        layouts.push(diagram.layout);
        heights.push(diagram.height);
    }
    let mut figure = Figure::new(count, 1)
        .with_title(title)
        .with_title_size(19)
        .with_cell_size(cell.0, cell.1)
        .with_plots(plots)
        .with_layouts(layouts);
    for (row, height) in heights.into_iter().enumerate() {
        figure = figure.with_row_height(row, height);
    }
    SvgBackend::new().render_scene(&figure.render())
}

/// How the numbers at an axis are written: all of them as `0.001`, `1` or `10,000`.
fn ticks() -> TickFormat {
    TickFormat::Custom(Arc::new(plain))
}

/// The layout of a diagram with what makes its figures doubtful.
fn warned(layout: Layout, warning: Option<&str>) -> Layout {
    match warning {
        Some(warning) => layout.with_subtitle(warning).with_subtitle_size(12),
        None => layout,
    }
}

/// A number without an exponent, with commas between thousands.
fn plain(value: f64) -> String {
    let text = format!("{value:.9}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn numbers_at_an_axis_have_one_format() {
        let numbers = [0.001, 0.25, 1.0, 50.0, 1e4, 1e6, 1.5e7, -1234.5, 0.1 + 0.2];
        let texts = numbers.map(plain);
        let expected =
            ["0.001", "0.25", "1", "50", "10,000", "1,000,000", "15,000,000", "-1,234.5", "0.3"];
        assert_eq!(texts, expected);
    }
}

//! Heat maps: a table of numbers in colour, red below zero and blue above.

use kuva::plot::Heatmap;
use kuva::plot::heatmap::ColorMap;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use std::sync::Arc;

/// Width of a picture, in pixels.
const WIDTH: f64 = 960.0;
/// Height of a row, and of what stands above and below the rows.
const ROW: f64 = 26.0;
const FRAME: f64 = 130.0;
/// Height of a line of the notes.
const NOTE: f64 = 16.0;
/// Letters of a note that fit below the map.
const LETTERS: usize = 130;
/// The number from which on colours are at their strongest: one large number must not make all others pale.
const STRONG: f64 = 50.0;
/// The least share of the full colour for a number other than zero: its sign must always be visible.
const TINT: f64 = 0.2;
/// The strongest colours, which people with any colour vision can tell apart and black letters can be read on.
const RED: [f64; 3] = [230.0, 130.0, 60.0];
const BLUE: [f64; 3] = [86.0, 160.0, 220.0];
const WHITE: f64 = 255.0;

/// One heat map.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    /// What is shown.
    pub title: String,
    /// What the colours mean.
    pub scale: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows from the top: a name, and a number for each column.
    pub rows: Vec<(String, Vec<f64>)>,
    /// Lines below the map.
    pub notes: Vec<String>,
}

/// Draws heat maps one below the other, under a title.
pub fn draw(title: &str, maps: &[Heat]) -> String {
    let one = |one: &Heat| super::Diagram {
        plots: vec![one.plot()],
        layout: one.layout(),
        height: one.height(),
    };
    super::stacked(title, (WIDTH, FRAME), maps.iter().map(one).collect())
}

/// The colour of a number.
fn colour(value: f64) -> String {
    let share = (value.abs() / STRONG).min(1.0);
    let strength = if value == 0.0 { 0.0 } else { TINT + (1.0 - TINT) * share };
    let full = if value < 0.0 { RED } else { BLUE };
    let [red, green, blue] = full.map(|part| (WHITE + (part - WHITE) * strength).round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

impl Heat {
    fn height(&self) -> f64 {
        FRAME + ROW * self.rows.len() as f64 + NOTE * self.notes.len() as f64
    }

    fn plot(&self) -> Plot {
        // The library passes the position of a number between the least and the most.
        let numbers = || self.rows.iter().flat_map(|(_, row)| row).copied();
        let least = numbers().fold(f64::INFINITY, f64::min);
        let most = numbers().fold(f64::NEG_INFINITY, f64::max);
        let map =
            ColorMap::Custom(Arc::new(move |place: f64| colour(least + place * (most - least))));
        // Rows are drawn from the bottom up.
        let rows = self.rows.iter().rev().map(|(_, row)| row.clone());
        Plot::Heatmap(Heatmap::new().with_data(rows).with_color_map(map).with_values())
    }

    fn layout(&self) -> Layout {
        let names = self.rows.iter().rev().map(|(name, _)| name.clone()).collect();
        let below = std::iter::once(self.scale.clone()).chain(self.notes.iter().cloned());
        Layout::auto_from_plots(&[self.plot()])
            .with_title(&self.title)
            .with_title_size(15)
            .with_label_size(12)
            .with_tick_size(11)
            .with_x_categories(self.columns.clone())
            .with_y_categories(names)
            .with_x_label(below.collect::<Vec<_>>().join("\n"))
            .with_x_label_wrap(LETTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_cells_are_red_and_holding_cells_are_blue() {
        assert_eq!(colour(0.0), "#ffffff");
        assert_eq!((colour(500.0), colour(50.0)), ("#56a0dc".into(), "#56a0dc".into()));
        assert_eq!(colour(-50.0), "#e6823c");
        assert_eq!(colour(-1e-9), "#fae6d8");
    }

    #[test]
    fn a_map_names_its_rows_and_columns_and_shows_its_numbers() {
        let map = Heat {
            title: "Margins".into(),
            scale: "blue holds".into(),
            columns: vec!["C1 -50 %".into(), "C1 +50 %".into()],
            rows: vec![("same_llc".into(), vec![-0.25, 0.75]), ("clock".into(), vec![0.5, 0.5])],
            notes: vec!["C1: shards pay".into()],
        };
        let svg = draw("sensitivity", &[map]);
        for word in ["Margins", "C1 -50 %", "same_llc", "clock", "-0.25", "0.75", "blue holds"] {
            assert!(svg.contains(&format!(">{word}<")), "{word} is missing");
        }
    }
}

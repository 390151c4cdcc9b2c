//! Pictures of differences over a number of threads: percent over a baseline, the spread of the runs as whiskers, and published values as
//! marks of the same colour.

use super::curves::COLOURS;
use kuva::plot::annotations::ReferenceLine;
use kuva::plot::{LinePlot, MarkerShape, ScatterPlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;

/// A difference, and the least and the greatest of the runs.
pub type Spread = (f64, [f64; 3]);

/// One lock's differences.
#[derive(Clone, Debug, Default)]
pub struct Gain {
    /// What it shows.
    pub name: String,
    /// By the number of threads: the median, the least and the greatest of the runs.
    pub points: Vec<Spread>,
    /// Published values.
    pub published: Vec<(f64, f64)>,
}

/// Differences over common axes.
#[derive(Clone, Debug)]
pub struct Gains {
    /// What is shown.
    pub title: String,
    /// The quantity on the vertical axis.
    pub up: String,
    /// The differences.
    pub gains: Vec<Gain>,
    /// What makes the figures doubtful, if anything does.
    pub warning: Option<String>,
}

impl Gains {
    /// The plots, and their layout.
    pub fn parts(&self) -> (Vec<Plot>, Layout) {
        let plots: Vec<Plot> = self.gains.iter().enumerate().flat_map(plot).collect();
        let (low, high) = self.range();
        let layout = Layout::auto_from_plots(&plots)
            .with_y_axis_min(low)
            .with_y_axis_max(high)
            .with_title(&self.title)
            .with_title_size(16)
            .with_label_size(13)
            .with_tick_size(11)
            .with_x_label("writers")
            .with_y_label(&self.up)
            .with_log_x()
            .with_tick_format(super::ticks())
            .with_reference_line(ReferenceLine::horizontal(0.0))
            .with_legend_position(kuva::plot::legend::LegendPosition::OutsideRightTop);
        let layout = super::warned(layout, self.warning.as_deref());
        (plots, layout)
    }

    /// Where the vertical axis begins and ends: zero, whiskers and marks are inside.
    fn range(&self) -> (f64, f64) {
        let ends = |gain: &Gain| {
            let runs = gain.points.iter().flat_map(|(_, spread)| *spread);
            runs.chain(gain.published.iter().map(|&(_, value)| value)).collect::<Vec<f64>>()
        };
        let all = || self.gains.iter().flat_map(ends);
        let (low, high) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
        let beyond = if low < high { (high - low) * 0.04 } else { 1.0 };
        (low - beyond, high + beyond)
    }
}

fn plot((index, gain): (usize, &Gain)) -> Vec<Plot> {
    let colour = COLOURS[index % COLOURS.len()];
    let whiskers =
        gain.points.iter().map(|&(_, [median, least, most])| (median - least, most - median));
    let line = LinePlot::new()
        .with_data(gain.points.iter().map(|&(writers, [median, ..])| (writers, median)))
        .with_y_err_asymmetric(whiskers)
        .with_color(colour)
        .with_stroke_width(2.0)
        .with_legend(&gain.name);
    let mut plots = vec![Plot::Line(line)];
    if !gain.published.is_empty() {
        let marks = ScatterPlot::new()
            .with_data(gain.published.iter().copied())
            .with_marker(MarkerShape::Cross)
            .with_size(7.0)
            .with_color(colour)
            .with_legend(format!("{}, published", gain.name));
        plots.push(Plot::Scatter(marks));
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whiskers_and_marks_are_inside_the_frame() {
        let gain = Gain {
            points: vec![(1.0, [0.0, -2.0, 1.0]), (64.0, [20.0, -30.0, 95.0])],
            published: vec![(64.0, 99.0)],
            ..Gain::default()
        };
        let gains =
            Gains { title: String::new(), up: String::new(), gains: vec![gain], warning: None };
        let (low, high) = gains.range();
        assert!(low < -30.0 && high > 99.0, "{low} {high}");
    }

    #[test]
    fn the_picture_names_its_locks_and_marks_what_was_published() {
        let gain = |name: &str, published: &[(f64, f64)]| Gain {
            name: name.into(),
            points: vec![(1.0, [0.0, -1.0, 1.0]), (64.0, [90.0, 80.0, 95.0])],
            published: published.to_vec(),
        };
        let gains = Gains {
            title: "Gains".into(),
            up: "gain in percent".into(),
            gains: vec![gain("a lock", &[(64.0, 91.0)]), gain("another", &[])],
            warning: None,
        };
        let svg = crate::plots::curves::stacked(vec![gains.parts()]);
        for word in
            ["Gains", "gain in percent", "writers", "a lock", "another", "a lock, published"]
        {
            assert!(svg.contains(&format!(">{word}<")), "{word} is missing");
        }
        assert!(!svg.contains("another, published") && !svg.contains("NaN"));
    }
}

//! Pictures of curves over axes that grow by factors of ten: distributions, and figures over a number of threads.

use kuva::backend::svg::SvgBackend;
use kuva::plot::LinePlot;
use kuva::plot::legend::LegendPosition;
use kuva::render::figure::Figure;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;

/// Colours that people with any colour vision can tell apart (Okabe and Ito), on white; when they are used up they are
/// repeated, dashed.
pub(super) const COLOURS: [&str; 7] =
    ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999"];
/// Size of a picture, in pixels.
const SIZE: (f64, f64) = (1100.0, 640.0);

/// One curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// What it shows.
    pub name: String,
    /// Its points from the left to the right, all above zero.
    pub points: Vec<(f64, f64)>,
}

/// Curves over common axes.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// What is shown.
    pub title: String,
    /// The quantity on the horizontal axis.
    pub across: String,
    /// The quantity on the vertical axis.
    pub up: String,
    /// The curves.
    pub curves: Vec<Curve>,
    /// What makes the figures doubtful, if anything does.
    pub warning: Option<String>,
}

/// Draws them.
pub fn draw(curves: &Curves) -> String {
    let (plots, layout) = curves.parts();
    let layout = layout.with_width(SIZE.0).with_height(SIZE.1);
    SvgBackend::new().render_scene(&render_multiple(plots, layout))
}

/// Draws several of them one below the other.
pub fn draw_all(diagrams: &[Curves]) -> String {
    stacked(diagrams.iter().map(Curves::parts).collect())
}

/// Draws diagrams of these parts one below the other.
pub fn stacked(diagrams: Vec<(Vec<Plot>, Layout)>) -> String {
    let (plots, layouts): (Vec<_>, Vec<_>) = diagrams.into_iter().unzip();
    let figure = Figure::new(plots.len(), 1)
        .with_cell_size(SIZE.0, SIZE.1)
        .with_layouts(layouts)
        .with_plots(plots);
    SvgBackend::new().render_scene(&figure.render())
}

impl Curves {
    /// The plots, and their layout, for a picture of several diagrams.
    pub fn parts(&self) -> (Vec<Plot>, Layout) {
        let plots = self.plots();
        let layout = self.layout(&plots);
        (plots, layout)
    }

    fn plots(&self) -> Vec<Plot> {
        self.curves.iter().enumerate().map(plot).collect()
    }

    fn layout(&self, plots: &[Plot]) -> Layout {
        let layout = Layout::auto_from_plots(plots)
            .with_title(&self.title)
            .with_title_size(16)
            .with_label_size(13)
            .with_tick_size(11)
            .with_x_label(&self.across)
            .with_y_label(&self.up)
            .with_log_scale()
            .with_tick_format(super::ticks())
            .with_legend_position(LegendPosition::OutsideRightTop);
        super::warned(layout, self.warning.as_deref())
    }
}

fn plot((index, curve): (usize, &Curve)) -> Plot {
    /// The least value that is plotted, so that it has a logarithm: a tenth of the shortest time that is ever measured.
    const LEAST: f64 = 1e-5;
    let points = curve.points.iter().map(|&(x, y)| (x.max(LEAST), y));
    let line = LinePlot::new()
        .with_data(points)
        .with_color(COLOURS[index % COLOURS.len()])
        .with_stroke_width(2.0)
        .with_legend(&curve.name);
    Plot::Line(if index < COLOURS.len() { line } else { line.with_dashed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_names_its_curves_and_axes() {
        let curve = |name: &str, factor: f64| Curve {
            name: name.into(),
            points: vec![(factor, 1.0), (factor * 10.0, 0.1), (factor * 100.0, 0.001)],
        };
        let many: Vec<Curve> =
            (0..9).map(|row| curve(&format!("row {row}"), f64::from(row + 1))).collect();
        let svg = draw(&Curves {
            title: "Latencies".into(),
            across: "ms".into(),
            up: "share".into(),
            curves: many,
            warning: None,
        });
        for word in ["Latencies", "ms", "share", "row 0", "row 8"] {
            assert!(svg.contains(&format!(">{word}<")), "{word} is missing");
        }
        assert!(svg.contains("stroke-dasharray"), "the eighth has the first one's colour, dashed");
    }

    #[test]
    fn several_pictures_are_combined_into_one() {
        let curves = |title: &str| Curves {
            title: title.into(),
            across: "writers".into(),
            up: "rate".into(),
            curves: vec![Curve { name: "a lock".into(), points: vec![(1.0, 3e6), (64.0, 1e6)] }],
            warning: Some("others ran".into()),
        };
        let svg = draw_all(&[curves("above"), curves("below")]);
        for word in ["above", "below", "writers", "rate", "a lock", "others ran", "1,000,000"] {
            assert!(svg.contains(&format!(">{word}<")), "{word} is missing");
        }
        assert_eq!(svg.matches("<svg").count(), 1);
    }

    #[test]
    fn a_latency_of_zero_is_drawn_at_the_left() {
        let curves = vec![Curve { name: "a".into(), points: vec![(0.0, 1.0), (1.0, 0.5)] }];
        let svg = draw(&Curves { curves, ..Curves::default() });
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

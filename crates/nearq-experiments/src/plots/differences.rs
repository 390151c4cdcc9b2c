//! Pictures of differences, and of other values whose distance from zero is not what is shown: a row for each thing compared, with dots for
//! what was measured, the spread of the runs as whiskers, and published values as crosses.

use super::bars::{Bar, colour};
use super::{Diagram, ticks, warned};
use kuva::plot::legend::{LegendEntry, LegendPosition, LegendShape};
use kuva::plot::{LinePlot, MarkerShape, ScatterPlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use nearq_report::Report;

/// Height of a dot with its whisker, in pixels.
const LANE: f64 = 10.0;
/// Space between two rows.
const GAP: f64 = 9.0;
/// Height of the title, the ticks and the name of the axis.
const AROUND: f64 = 104.0;
/// Height of a line of the legend.
const LEGEND_LINE: f64 = 20.0;
/// The colour of the lines at ticks and between rows.
const GRID: &str = "#DDDDDD";
/// The colour of the line at zero.
const ZERO: &str = "#FF0000";
/// The colour of published values that have a lane of their own.
const BLACK: &str = "#000000";
/// The ticks between two powers of ten.
const ROUND: [f64; 3] = [1.0, 2.0, 5.0];
/// About how many ticks an axis has.
const TICKS: f64 = 9.0;

/// What one dot shows, and what was published for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dot {
    /// The value and its spread.
    pub measured: Option<Bar>,
    /// The published value.
    pub published: Option<Bar>,
}

impl Dot {
    /// A value for which nothing was published.
    pub fn measured(bar: Option<Bar>) -> Self {
        Self { measured: bar, published: None }
    }
}

/// Where an axis begins, and how it grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// The values are differences, so that there is a line at zero.
    #[default]
    Differences,
    /// The axis shows the values and no more.
    Values,
    /// The same, and it grows by factors of ten if the values, all above zero, span one.
    Factors,
}

/// One diagram: rows of dots, in every row one for each series.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// What is shown.
    pub title: String,
    /// What the values are, with their unit.
    pub axis: String,
    /// What the dots of a row stand for; a single nameless series is not in the legend.
    pub series: Vec<String>,
    /// The rows: a name, and a dot for every series.
    pub rows: Vec<(String, Vec<Dot>)>,
    /// How the values are along the axis.
    pub scale: Scale,
    /// Whether the dots of a row are close to each other, because their whiskers are short.
    pub dense: bool,
    /// What makes the figures doubtful, if anything does.
    pub warning: Option<String>,
}

impl Differences {
    /// An empty diagram of one series, for that report.
    pub fn of(report: &Report) -> Self {
        let warning = report.environment.warning();
        Self { series: vec![String::new()], warning, ..Self::default() }
    }

    /// The plots, and their layout.
    pub fn diagram(&self) -> Diagram {
        Diagram { plots: self.plots(), layout: self.layout(), height: self.height() }
    }

    /// Whether anything was published for one of the dots.
    fn is_published(&self) -> bool {
        let mut shown = self.rows.iter().flat_map(|(_, dots)| dots.iter().take(self.series.len()));
        shown.any(|dot| dot.published.is_some())
    }

    /// Whether published values are below the measured ones, since there is room for both.
    fn is_below(&self) -> bool {
        self.series.len() == 1 && self.is_published()
    }

    /// How many lanes a row has, and the height of one.
    fn lanes(&self) -> (f64, f64) {
        let count = self.series.len() + usize::from(self.is_below());
        (count as f64, if self.dense { LANE / 2.0 } else { LANE })
    }

    fn height(&self) -> f64 {
        let (lanes, lane) = self.lanes();
        let rows = self.rows.len() as f64 * (lane * lanes + GAP);
        AROUND + rows.max(LEGEND_LINE * (self.legend().len() as f64 + 1.0))
    }

    /// The least and the greatest of the values, whiskers and marks, if there are any.
    fn ends(&self) -> Option<(f64, f64)> {
        let dots = self.rows.iter().flat_map(|(_, dots)| dots);
        let bars = dots.flat_map(|dot| [dot.measured, dot.published]).flatten();
        let ends = bars.flat_map(|bar| [bar.low.min(bar.value), bar.high.max(bar.value)]);
        let zero = (self.scale == Scale::Differences).then_some(0.0);
        let ends = || ends.clone().filter(|end| end.is_finite()).chain(zero);
        Some((ends().min_by(f64::total_cmp)?, ends().max_by(f64::total_cmp)?))
    }

    /// Whether the axis grows by factors of ten.
    fn is_logarithmic(&self) -> bool {
        let wide = self.ends().is_some_and(|(low, high)| low > 0.0 && high >= 10.0 * low);
        self.scale == Scale::Factors && wide
    }

    /// The values at which the axis begins and ends: whiskers and marks are inside.
    fn range(&self) -> (f64, f64) {
        const BEYOND: f64 = 0.04;
        match self.ends() {
            Some((low, high)) if self.is_logarithmic() => {
                let beyond = (high / low).powf(BEYOND);
                // It begins at a tick: otherwise there may be none in its first third.
                let power = 10_f64.powf((low / beyond).log10().floor());
                let ticks = ROUND.map(|of| of * power).into_iter();
                (ticks.filter(|tick| *tick <= low / beyond).fold(power, f64::max), high * beyond)
            }
            Some((low, high)) if low < high => {
                let beyond = (high - low) * BEYOND;
                (low - beyond, high + beyond)
            }
            Some((only, _)) => (only - 1.0, only + 1.0),
            None => (0.0, 1.0),
        }
    }

    /// The middle of a lane; the first row is at the top.
    fn place(&self, row: usize, lane: usize) -> f64 {
        let (lanes, height) = self.lanes();
        let pitch = height / (height * lanes + GAP);
        (self.rows.len() - row) as f64 + pitch * ((lanes - 1.0) / 2.0 - lane as f64)
    }

    fn plots(&self) -> Vec<Plot> {
        let mut plots = self.grid();
        for series in 0..self.series.len() {
            let of = |which: fn(&Dot) -> Option<Bar>, lane: usize| {
                let bar = |(row, (_, dots)): (usize, &(String, Vec<Dot>))| {
                    Some((which(dots.get(series)?)?, self.place(row, lane)))
                };
                self.rows.iter().enumerate().filter_map(bar).collect::<Vec<(Bar, f64)>>()
            };
            let scatter = |bars: Vec<(Bar, f64)>, colour: &str| {
                let mut plot = ScatterPlot::new()
                    .with_data(bars.iter().map(|(bar, place)| (bar.value, *place)))
                    .with_color(colour);
                for (point, (bar, _)) in plot.data.iter_mut().zip(&bars) {
                    // Without a spread there is no whisker, so that a cross stays a cross.
                    point.x_err =
                        (bar.low < bar.high).then_some((bar.value - bar.low, bar.high - bar.value));
                }
                plot
            };
            let size = if self.dense { 3.0 } else { 4.0 };
            let measured = scatter(of(|dot| dot.measured, series), colour(series)).with_size(size);
            let (lane, colour) =
                if self.is_below() { (1, BLACK) } else { (series, colour(series)) };
            let published = scatter(of(|dot| dot.published, lane), colour).with_size(5.0);
            plots.push(Plot::Scatter(measured));
            plots.push(Plot::Scatter(published.with_marker(MarkerShape::Cross)));
        }
        plots
    }

    /// Lines at the ticks and between the rows, which the dots are drawn over, and the dashed one at zero.
    fn grid(&self) -> Vec<Plot> {
        let ((low, high), rows) = (self.range(), self.rows.len());
        let line = |ends: [(f64, f64); 2]| LinePlot::new().with_data(ends).with_color(GRID);
        let upright = |at: f64| line([(at, 0.5), (at, rows as f64 + 0.5)]);
        let between = (1..rows).map(|row| row as f64 + 0.5).map(|at| line([(low, at), (high, at)]));
        let ticks = if self.is_logarithmic() {
            let powers = low.log10().floor() as i32..=high.log10().floor() as i32;
            let all = powers.flat_map(|power| ROUND.map(|of| of * 10_f64.powi(power)));
            all.filter(|tick| (low..=high).contains(tick)).collect()
        } else {
            let step = step(high - low);
            let ticks = (low / step).ceil() as i64..=(high / step).floor() as i64;
            ticks.map(|tick| tick as f64 * step).collect::<Vec<f64>>()
        };
        let zero = || upright(0.0).with_color(ZERO).with_dashed();
        between
            .chain(ticks.into_iter().map(upright))
            .chain((self.scale == Scale::Differences).then(zero))
            .map(|line| Plot::Line(line.with_stroke_width(1.0)))
            .collect()
    }

    fn legend(&self) -> Vec<LegendEntry> {
        let entry = |label: &str, color: &str, shape| LegendEntry {
            label: label.into(),
            color: color.into(),
            shape,
            dasharray: None,
        };
        let named = self.series.iter().enumerate().filter(|(_, name)| !name.is_empty());
        let series = named.map(|(at, name)| entry(name, colour(at), LegendShape::Circle));
        let mark = || entry("published", BLACK, LegendShape::Marker(MarkerShape::Cross));
        series.chain(self.is_published().then(mark)).collect()
    }

    fn layout(&self) -> Layout {
        let (low, high) = self.range();
        let (bottom, top) = (0.5, self.rows.len().max(1) as f64 + 0.5);
        let layout = Layout::new((low, high), (bottom, top))
            .with_title(&self.title)
            .with_title_size(15)
            .with_label_size(12)
            .with_tick_size(11)
            .with_x_tick_format(ticks())
            .with_x_axis_min(low)
            .with_x_axis_max(high)
            .with_y_axis_min(bottom)
            .with_y_axis_max(top)
            .with_y_categories(self.rows.iter().rev().map(|(name, _)| name.clone()).collect());
        let layout = if self.is_logarithmic() {
            layout.with_log_x().with_x_label(format!("{}; by factors of ten", self.axis))
        } else {
            layout.with_x_tick_step(step(high - low)).with_x_label(&self.axis)
        };
        let layout = warned(layout, self.warning.as_deref());
        match self.legend() {
            legend if legend.is_empty() => layout,
            legend => layout
                .with_legend_entries(legend)
                .with_legend_position(LegendPosition::OutsideRightTop),
        }
    }
}

/// The distance between ticks over such a range: 1, 2 or 5 by a power of ten.
fn step(range: f64) -> f64 {
    let least = range / TICKS;
    let power = 10_f64.powf(least.log10().floor());
    ROUND.into_iter().map(|of| of * power).find(|of| *of >= least).unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Differences {
        let bar = |value: f64| Some(Bar { value, low: value - 1.0, high: value + 2.0 });
        let marked = Dot { measured: bar(-5.0), published: Some(Bar::exactly(-40.0)) };
        Differences {
            title: "Against system".into(),
            axis: "percent".into(),
            series: vec!["HIGH".into(), "LOW".into()],
            rows: vec![
                ("cache".into(), vec![Dot::measured(bar(1.0)), marked]),
                ("cpu+strict".into(), vec![Dot::measured(bar(3.0)), Dot::default()]),
            ],
            scale: Scale::Differences,
            dense: false,
            warning: Some("other programs ran".into()),
        }
    }

    #[test]
    fn the_picture_names_everything_that_it_shows() {
        let svg = super::super::draw("nearq bench scopes", vec![sample().diagram()]);
        let words = [
            "nearq bench scopes",
            "Against system",
            "percent",
            "HIGH",
            "LOW",
            "cache",
            "cpu+strict",
            "published",
            "other programs ran",
        ];
        for word in words {
            assert!(svg.contains(&format!(">{word}<")), "{word} is missing");
        }
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn whiskers_marks_and_zero_are_inside_the_frame() {
        let (low, high) = sample().range();
        assert!(low < -40.0 && high > 5.0, "the published value, and the longest whisker");
        let above = Differences { rows: vec![sample().rows.remove(1)], ..sample() };
        assert!(above.range().0 < 0.0, "a difference is seen from zero");
        let absolute = Differences { scale: Scale::Values, ..above };
        assert!(absolute.range().0 > 0.0, "other values are not");
        let nothing = Differences { rows: Vec::new(), ..absolute };
        assert_eq!(nothing.range(), (0.0, 1.0));
    }

    #[test]
    fn an_axis_grows_by_factors_of_ten_if_the_values_span_one() {
        let of = |values: [f64; 2]| {
            let dot = |value| Dot::measured(Some(Bar::exactly(value)));
            let rows = values.map(|value| ("row".into(), vec![dot(value)]));
            Differences {
                axis: "us".into(),
                scale: Scale::Factors,
                rows: rows.into(),
                series: vec![String::new()],
                ..Differences::default()
            }
        };
        let svg = |of: &Differences| super::super::draw("times", vec![of.diagram()]);
        let (narrow, wide) = (of([2.5, 2.7]), of([3.0, 2_000_000.0]));
        assert!(!narrow.is_logarithmic() && svg(&narrow).contains(">us<"));
        assert!(svg(&narrow).contains(">2.6<"), "it has ticks of its own");
        assert!(wide.is_logarithmic() && svg(&wide).contains(">us; by factors of ten<"));
        assert!(svg(&wide).contains(">1,000,000<"), "ticks have one format");
        let (low, high) = wide.range();
        assert_eq!(low, 1.0, "it begins at a tick");
        assert!(high > 2e6, "{high}");
    }

    #[test]
    fn rows_are_in_order_and_their_dots_do_not_meet() {
        let sample = sample();
        let places = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(row, of)| sample.place(row, of));
        assert!(places.is_sorted_by(|above, below| above > below), "{places:?}");
        assert!(places[0] - places[1] < places[1] - places[2], "a row's are together");
    }

    #[test]
    fn published_values_of_a_single_series_are_below_the_measured_ones() {
        let mut single = sample();
        single.series.truncate(1);
        assert!(!single.is_below(), "nothing was published for the first series");
        for (_, dots) in &mut single.rows {
            dots.remove(0);
        }
        assert!(single.is_below() && single.lanes().0 == 2.0, "two whiskers would overlap");
        assert!(!sample().is_below(), "several series have a colour each");
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!([9.0, 17.0, 70.0, 0.8].map(step), [1.0, 2.0, 10.0, 0.1]);
    }
}

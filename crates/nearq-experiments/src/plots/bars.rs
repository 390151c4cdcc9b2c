//! Pictures of results in bars. The plotting library is young, so it is used only in this file, `curves` and `heat`.

use kuva::plot::legend::{LegendEntry, LegendPosition, LegendShape};
use kuva::plot::{BarPlot, ForestPlot};
use kuva::render::annotations::ReferenceLine;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use nearq_report::{Report, Summary};

/// Colours that people with any colour vision can tell apart (Okabe and Ito), on white.
const COLOURS: [&str; 8] =
    ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442"];
/// Width of a picture, in pixels.
const WIDTH: f64 = 960.0;
/// Names up to this many letters leave space beside the bars.
const SHORT_NAME: usize = 12;
/// Names up to this many letters fit into the usual columns of a legend below the bars; longer ones need wider columns.
const COLUMN_LETTERS: usize = 38;
/// Height of a diagram with vertical bars.
const HEIGHT: f64 = 330.0;

fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// A bar, and the spread of its runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// The height.
    pub value: f64,
    /// The lower end of the whisker.
    pub low: f64,
    /// The upper end of the whisker.
    pub high: f64,
}

impl Bar {
    /// The mean of the runs, from the smallest to the largest of them.
    pub fn mean(summary: &Summary) -> Self {
        Self { value: summary.mean, low: summary.min, high: summary.max }
    }

    /// The median of the runs, from the smallest to the largest of them.
    pub fn median(summary: &Summary) -> Self {
        Self { value: summary.median, low: summary.min, high: summary.max }
    }

    /// A value without a spread.
    pub fn exactly(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// The same in a unit that is `unit` times as large.
    #[must_use]
    pub fn over(self, unit: f64) -> Self {
        Self { value: self.value / unit, low: self.low / unit, high: self.high / unit }
    }
}

/// One diagram: groups of bars, in every group one for each series.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// What is shown.
    pub title: String,
    /// What the values are, with their unit.
    pub axis: String,
    /// What the bars of a group stand for; a single nameless series draws no legend.
    pub series: Vec<String>,
    /// The groups: a name, and for every series a bar or nothing.
    pub groups: Vec<(String, Vec<Option<Bar>>)>,
    /// Whether the bars are horizontal, so that long names can be read.
    pub lying: bool,
    /// Whether the axis grows by factors of ten. Then the length of a bar would mean nothing, so dots are drawn instead of bars, one below
    /// the other. The values must be above zero.
    pub logarithmic: bool,
    /// A line to compare with, and its name, which is written at the axis.
    pub reference: Option<(f64, String)>,
    /// What makes the figures doubtful, if anything does.
    pub warning: Option<String>,
}

/// Draws diagrams one below the other, under a title.
pub fn draw(title: &str, diagrams: &[Bars]) -> String {
    let one = |one: &Bars| (one.plot(), one.layout(), one.height());
    super::stacked(title, (WIDTH, HEIGHT), diagrams.iter().map(one).collect())
}

impl Bars {
    /// An empty diagram of one series, for that report.
    pub fn of(report: &Report) -> Self {
        let warning = report.environment.warning();
        Self { series: vec![String::new()], warning, ..Self::default() }
    }

    /// The same with horizontal bars.
    pub fn lying(report: &Report) -> Self {
        Self { lying: true, ..Self::of(report) }
    }

    fn height(&self) -> f64 {
        let bars = self.groups.len() * self.series.len().max(1);
        if self.lying || self.logarithmic { 110.0 + 24.0 * bars as f64 } else { HEIGHT }
    }

    fn all(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flat_map(|(_, bars)| bars).flatten()
    }

    /// The beginning of the axis.
    fn least(&self) -> f64 {
        if !self.logarithmic {
            return 0.0;
        }
        let lowest = self.all().map(|bar| bar.low).fold(f64::INFINITY, f64::min);
        if lowest.is_finite() { 10_f64.powf(lowest.log10().floor()) } else { 1.0 }
    }

    /// The end of the axis: beyond the longest whisker, which is never cut off.
    fn most(&self) -> f64 {
        let reference = self.reference.as_ref().map_or(0.0, |(value, _)| *value);
        let longest = self.all().map(|bar| bar.high.max(bar.value)).fold(reference, f64::max);
        let headroom = if self.logarithmic { 1.25 } else { 1.04 };
        if longest > 0.0 { longest * headroom } else { 1.0 }
    }

    /// Horizontal bars are drawn from the bottom up: in reverse order, the first one is on top.
    fn in_order<T>(&self, items: impl DoubleEndedIterator<Item = T>) -> Vec<T> {
        if self.lying { items.rev().collect() } else { items.collect() }
    }

    /// The legend is beside the bars if its names are short, so that nothing moves; below the bars if long names would take their space.
    fn legend_position(&self) -> LegendPosition {
        if self.series.iter().all(|name| name.len() <= SHORT_NAME) {
            LegendPosition::OutsideRightTop
        } else {
            LegendPosition::OutsideBottomColumns
        }
    }

    /// A dot for each bar, with its name beside it.
    fn dots(&self) -> Plot {
        let mut plot = ForestPlot::new().with_show_null_line(false).with_cap_size(3.0);
        for (name, bars) in &self.groups {
            for (series, bar) in bars.iter().enumerate() {
                let Some(Bar { value, low, high }) = *bar else { continue };
                let name = match self.series.as_slice() {
                    [_, _, ..] => format!("{name}, {}", self.series[series]),
                    _ => name.clone(),
                };
                plot = plot.with_colored_row(name, value, low, high, colour(series));
            }
        }
        Plot::Forest(plot)
    }

    fn plot(&self) -> Plot {
        if self.logarithmic {
            return self.dots();
        }
        let mut plot = BarPlot::new().with_horizontal(self.lying);
        let mut whiskers = Vec::new();
        let nothing = Bar { value: self.least(), low: self.least(), high: self.least() };
        for (name, bars) in self.in_order(self.groups.iter()) {
            let numbered = self.in_order(bars.iter().enumerate());
            let mut values = Vec::new();
            for (series, bar) in numbered {
                let bar = bar.unwrap_or(nothing);
                let value = bar.value.max(self.least());
                whiskers.push((value - bar.low.max(self.least()), bar.high - value));
                values.push((value, colour(series)));
            }
            plot = plot.with_group(name, values);
        }
        if whiskers.iter().any(|&(down, up)| down > 0.0 || up > 0.0) {
            plot = plot.with_asymmetric_error(whiskers);
        }
        Plot::Bar(plot)
    }

    fn layout(&self) -> Layout {
        let mut layout = Layout::auto_from_plots(&[self.plot()])
            .with_title(&self.title)
            .with_title_size(15)
            .with_label_size(12)
            .with_tick_size(11);
        let lying = self.lying || self.logarithmic;
        let axis = match &self.reference {
            Some((_, name)) => format!("{}; the dashed line is {name}", self.axis),
            None => self.axis.clone(),
        };
        layout = if lying {
            layout
                .with_x_label(axis)
                .with_x_tick_format(super::ticks())
                .with_x_axis_min(self.least())
                .with_x_axis_max(self.most())
        } else {
            layout
                .with_y_label(axis)
                .with_y_tick_format(super::ticks())
                .with_y_axis_min(self.least())
                .with_y_axis_max(self.most())
        };
        if self.logarithmic {
            layout = layout.with_log_x();
        }
        if self.series.len() > 1 && !self.logarithmic {
            let entry = |(series, label): (usize, &String)| LegendEntry {
                label: label.clone(),
                color: colour(series).into(),
                shape: LegendShape::Rect,
                dasharray: None,
            };
            let entries = self.series.iter().enumerate().map(entry);
            layout = layout
                .with_legend_entries(entries.collect())
                .with_legend_position(self.legend_position());
        }
        if self.series.iter().any(|name| name.len() > COLUMN_LETTERS) {
            layout = layout.with_legend_col_limit(2);
        }
        if let Some((value, _)) = &self.reference {
            let line = if lying {
                ReferenceLine::vertical(*value)
            } else {
                ReferenceLine::horizontal(*value)
            };
            layout = layout.with_reference_line(line);
        }
        super::warned(layout, self.warning.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64) -> Bar {
        Bar { value, low: value * 0.95, high: value * 1.05 }
    }

    fn sample() -> Vec<Bars> {
        let vertical = Bars {
            title: "Throughput".into(),
            axis: "MiB/s".into(),
            series: vec!["system".into(), "system+local".into(), "cpu+strict".into()],
            groups: vec![
                ("HIGH".into(), vec![Some(bar(700.0)), Some(bar(690.0)), Some(bar(640.0))]),
                ("MED".into(), vec![Some(bar(400.0)), Some(bar(405.0)), None]),
            ],
            ..Bars::default()
        };
        let horizontal = Bars {
            title: "Time per item".into(),
            axis: "ns".into(),
            series: vec![String::new()],
            groups: vec![
                ("nearq requeue".into(), vec![Some(bar(120.0))]),
                ("crossbeam-channel".into(), vec![Some(bar(280.0))]),
            ],
            lying: true,
            logarithmic: false,
            reference: Some((140.0, "the goal".into())),
            warning: Some("other programs ran".into()),
        };
        vec![vertical, horizontal]
    }

    #[test]
    fn a_whisker_is_never_cut_off() {
        let mut bars = sample().remove(0);
        bars.groups[0].1[0] = Some(Bar { value: 700.0, low: 1.0, high: 9000.0 });
        assert!(bars.most() > 9000.0);
        let summary = Summary::of(&[0.0, 50.0, 0.0]).unwrap();
        let Bar { low, high, .. } = Bar::mean(&summary);
        assert_eq!((low, high), (0.0, 50.0), "a deviation would go below zero");
    }

    #[test]
    fn a_logarithmic_axis_has_dots_of_one_size() {
        let mut bars = sample().remove(1);
        (bars.logarithmic, bars.reference) = (true, None);
        assert!(matches!(bars.plot(), Plot::Forest(_)));
        assert_eq!(bars.least(), 100.0, "it begins below the lowest whisker");
        let svg = draw("dots", &[bars]);
        assert!(svg.contains(">nearq requeue<") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn axis_numbers_have_commas_and_no_exponent() {
        for (lying, logarithmic) in [(false, false), (true, false), (true, true)] {
            let mut bars = sample().remove(1);
            bars.groups[0].1[0] = Some(bar(2_000_000.0));
            (bars.lying, bars.logarithmic, bars.reference) = (lying, logarithmic, None);
            let svg = draw("ticks", &[bars]);
            assert!(svg.contains(">1,000,000<"), "{lying} {logarithmic}: {svg}");
        }
    }

    #[test]
    fn no_text_overlaps_the_bars() {
        let svg = draw("nearq bench dispatch", &sample());
        assert!(!svg.contains(">the goal<"), "the line's name is at the axis");
    }

    #[test]
    fn the_picture_names_everything_that_it_shows() {
        let svg = draw("nearq bench scopes", &sample());
        let words = [
            "nearq bench scopes",
            "MiB/s",
            "HIGH",
            "MED",
            "cpu+strict",
            "nearq requeue",
            "ns; the dashed line is the goal",
            "other programs ran",
        ];
        for word in words {
            assert!(svg.contains(&format!(">{word}<")), "{word} is missing");
        }
        assert!(
            svg.to_lowercase().contains(&COLOURS[2].to_lowercase()),
            "the third series has its colour"
        );
    }
}

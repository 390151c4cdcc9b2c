//! Pictures of results in bars. The plotting library is young, so it is used only in the files beside this one.

use super::Diagram;
use kuva::plot::BarPlot;
use kuva::plot::legend::{LegendEntry, LegendPosition, LegendShape};
use kuva::render::annotations::ReferenceLine;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use nearq_report::{Report, Summary};

/// Colours that people with any colour vision can tell apart (Okabe and Ito), on white.
const COLOURS: [&str; 8] =
    ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442"];
/// Width of a picture, in pixels.
pub(super) const WIDTH: f64 = 960.0;
/// Names up to this many letters leave space beside the bars.
const SHORT_NAME: usize = 12;
/// Height of a diagram with vertical bars.
pub(super) const HEIGHT: f64 = 330.0;

pub(super) fn colour(series: usize) -> &'static str {
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

    /// By how much it is beyond `base`, in percent.
    #[must_use]
    pub fn beyond(self, base: f64) -> Self {
        let percent = |value: f64| (value / base - 1.0) * 100.0;
        Self { value: percent(self.value), low: percent(self.low), high: percent(self.high) }
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
    /// A line to compare with, and its name, which is written at the axis.
    pub reference: Option<(f64, String)>,
    /// What makes the figures doubtful, if anything does.
    pub warning: Option<String>,
}

/// Draws diagrams one below the other, under a title.
pub fn draw(title: &str, diagrams: &[Bars]) -> String {
    super::draw(title, diagrams.iter().map(Bars::diagram).collect())
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

    /// The plot, and its layout.
    pub fn diagram(&self) -> Diagram {
        Diagram { plots: vec![self.plot()], layout: self.layout(), height: self.height() }
    }

    fn height(&self) -> f64 {
        let bars = self.groups.len() * self.series.len().max(1);
        if self.lying { 110.0 + 24.0 * bars as f64 } else { HEIGHT }
    }

    fn all(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flat_map(|(_, bars)| bars).flatten()
    }

    /// The end of the axis: beyond the longest whisker, which is never cut off.
    fn most(&self) -> f64 {
        let reference = self.reference.as_ref().map_or(0.0, |(value, _)| *value);
        let longest = self.all().map(|bar| bar.high.max(bar.value)).fold(reference, f64::max);
        if longest > 0.0 { longest * 1.04 } else { 1.0 }
    }

    /// Horizontal bars are drawn from the bottom up: in reverse order, the first one is on top.
    fn in_order<T>(&self, items: impl DoubleEndedIterator<Item = T>) -> Vec<T> {
        if self.lying { items.rev().collect() } else { items.collect() }
    }

    /// The legend is beside the bars if its names are short, so that nothing moves; below the bars if long names would take their space. Below
    /// horizontal bars there is the name of the axis, which it would cover.
    fn legend_position(&self) -> LegendPosition {
        if self.lying || self.series.iter().all(|name| name.len() <= SHORT_NAME) {
            LegendPosition::OutsideRightTop
        } else {
            LegendPosition::OutsideBottomColumns
        }
    }

    fn plot(&self) -> Plot {
        let mut plot = BarPlot::new().with_horizontal(self.lying);
        let mut whiskers = Vec::new();
        let nothing = Bar::exactly(0.0);
        for (name, bars) in self.in_order(self.groups.iter()) {
            let numbered = self.in_order(bars.iter().enumerate());
            let mut values = Vec::new();
            for (series, bar) in numbered {
                let bar = bar.unwrap_or(nothing);
                let value = bar.value.max(0.0);
                whiskers.push((value - bar.low.max(0.0), bar.high - value));
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
        let axis = match &self.reference {
            Some((_, name)) => format!("{}; the dashed line is {name}", self.axis),
            None => self.axis.clone(),
        };
        layout = if self.lying {
            layout
                .with_x_label(axis)
                .with_x_tick_format(super::ticks())
                .with_x_axis_min(0.0)
                .with_x_axis_max(self.most())
        } else {
            layout
                .with_y_label(axis)
                .with_y_tick_format(super::ticks())
                .with_y_axis_min(0.0)
                .with_y_axis_max(self.most())
        };
        if self.series.len() > 1 {
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
        if let Some((value, _)) = &self.reference {
            let line = if self.lying {
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
    fn axis_numbers_have_commas_and_no_exponent() {
        for lying in [false, true] {
            let mut bars = sample().remove(1);
            bars.groups[0].1[0] = Some(bar(2_000_000.0));
            (bars.lying, bars.reference) = (lying, None);
            let svg = draw("ticks", &[bars]);
            assert!(svg.contains(">1,000,000<"), "{lying}: {svg}");
        }
    }

    #[test]
    fn the_legend_of_horizontal_bars_does_not_cover_the_name_of_the_axis() {
        let mut bars = sample().remove(0);
        bars.series[1] = "a name of more than a few letters".into();
        assert!(matches!(bars.legend_position(), LegendPosition::OutsideBottomColumns));
        bars.lying = true;
        assert!(matches!(bars.legend_position(), LegendPosition::OutsideRightTop));
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

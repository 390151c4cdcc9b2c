//! The latencies of one row, and the figures that the document names.

use std::time::Duration;

/// The worst latencies that are averaged, as in the document.
pub const TOP: usize = 20;

/// One latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// From queueing, or from the expiry of the timer, to the item's first instruction, in nanoseconds.
    pub latency: u64,
    /// Whether the host took time from that CPU meanwhile.
    pub stolen: bool,
}

/// The latencies of one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples(Vec<Sample>);

/// What is said about latencies, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// How many there are.
    pub samples: usize,
    /// How many of them fell together with time that the host took.
    pub stolen: usize,
    /// The longest.
    pub max: f64,
    /// The longest of those during which the host took nothing; zero where there is none.
    pub max_unstolen: f64,
    /// The mean of the worst [`TOP`].
    pub top: f64,
    /// Their standard deviation.
    pub top_deviation: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
}

impl Samples {
    /// Adds one.
    pub fn add(&mut self, latency: Duration, stolen: bool) {
        let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.push(Sample { latency, stolen });
    }

    /// Adds those of another run.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The figures; none of no samples.
    pub fn figures(&self) -> Option<Figures> {
        let sorted = self.sorted();
        let max = *sorted.last()?;
        let unstolen = self.0.iter().filter(|sample| !sample.stolen);
        let top = &sorted[sorted.len().saturating_sub(TOP)..];
        let mean = top.iter().sum::<f64>() / top.len() as f64;
        let squares: f64 = top.iter().map(|latency| (latency - mean).powi(2)).sum();
        let deviation = if top.len() > 1 { (squares / (top.len() - 1) as f64).sqrt() } else { 0.0 };
        let at = |share: f64| sorted[rank(share, sorted.len())];
        Some(Figures {
            samples: sorted.len(),
            stolen: self.0.iter().filter(|sample| sample.stolen).count(),
            max,
            max_unstolen: unstolen.map(|sample| milliseconds(sample.latency)).fold(0.0, f64::max),
            top: mean,
            top_deviation: deviation,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
        })
    }

    /// For each of some latencies (in milliseconds) the share of samples that are at least as long: a falling curve that shows the
    /// worst as clearly as the middle. Every one of the worst is a point of it; of the others, those at even steps of the
    /// share's logarithm.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        /// Points for each factor of ten.
        const STEPS: f64 = 40.0;
        let sorted = self.sorted();
        let count = sorted.len();
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut step = i64::MAX;
        for (index, &latency) in sorted.iter().enumerate().rev() {
            let share = (count - index) as f64 / count as f64;
            let here = (-share.log10() * STEPS).floor() as i64;
            if here < step || count - index <= TOP {
                step = here;
                points.push((latency, share));
            }
        }
        points.reverse();
        points
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted: Vec<f64> =
            self.0.iter().map(|sample| milliseconds(sample.latency)).collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// The nearest rank: the least of `count` sorted values that at least this share of them does not exceed.
fn rank(share: f64, count: usize) -> usize {
    ((share * count as f64).ceil() as usize).clamp(1, count) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(milliseconds: impl IntoIterator<Item = u64>) -> Samples {
        let mut samples = Samples::default();
        for latency in milliseconds {
            samples.add(Duration::from_millis(latency), false);
        }
        samples
    }

    #[test]
    fn the_figures_of_known_latencies() {
        // In an order that is not sorted.
        let figures = of((1..=1000).rev()).figures().unwrap();
        assert_eq!((figures.samples, figures.max, figures.p50), (1000, 1000.0, 500.0));
        assert_eq!((figures.p99, figures.p999), (990.0, 999.0));
        assert_eq!(figures.top, 990.5, "981 to 1000");
        // The sample deviation of twenty numbers in a row: the root of 20 * 21 / 12.
        assert!((figures.top_deviation - 35.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(Samples::default().figures(), None);
    }

    #[test]
    fn few_samples_are_all_among_the_worst() {
        let figures = of([2, 4]).figures().unwrap();
        assert_eq!((figures.top, figures.p50, figures.p99), (3.0, 2.0, 4.0));
        assert_eq!(of([7]).figures().unwrap().top_deviation, 0.0);
    }

    #[test]
    fn what_the_host_took_part_in_is_counted_apart_and_stays_in() {
        let mut samples = of([1, 2]);
        samples.add(Duration::from_millis(90), true);
        let figures = samples.figures().unwrap();
        assert_eq!((figures.samples, figures.stolen), (3, 1));
        assert_eq!((figures.max, figures.max_unstolen), (90.0, 2.0));
    }

    #[test]
    fn the_curve_falls_from_all_to_the_worst() {
        let curve = of(1..=10_000).curve();
        assert_eq!(curve.last(), Some(&(10_000.0, 1e-4)));
        assert!(curve.len() < 250, "{} points", curve.len());
        assert!(curve.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 > two[1].1));
        assert!(curve[0].1 > 0.9, "{:?}", curve[0]);
        let worst = curve.iter().filter(|(_, share)| *share < 20.5e-4).count();
        assert_eq!(worst, TOP, "each of the worst is there");
        assert!(Samples::default().curve().is_empty());
    }
}

//! The counts of a process as OpenMetrics: a collector for a program's own registry, and the whole text for `nearq metrics`.
//!
//! Three tables define the metrics: of the process, of each queue and of each pool. A metric that does not apply is left out: the
//! rescuer's counts of a queue that has none, times of items that were not timed. `docs/metrics.md` is made from the same tables.

mod histogram;
mod tables;

use std::fmt;

use nearq_topology::safe_text::page;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

#[cfg(feature = "runtime")]
use nearq_core::Runtime;

#[cfg(feature = "runtime")]
use crate::control_target::ControlTarget;
use crate::protocol::{PodStatistics, QueueStatistics, Refusal, Statistics};
#[cfg(feature = "runtime")]
use crate::runtime::RuntimeTarget;
use tables::{Kind, Metric, Value};

pub use prometheus_client;

/// The content type of the text, for a server that answers scrapes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where a [`Metrics`] collector takes the counts from, each time that it is scraped.
///
/// Any function that returns the counts is a source.
pub trait Source: Send + Sync + 'static {
    /// Returns the counts of this moment.
    ///
    /// # Errors
    /// The counts cannot be read; then nothing is exported.
    fn statistics(&self) -> Result<Statistics, Refusal>;
}

impl<F: Fn() -> Result<Statistics, Refusal> + Send + Sync + 'static> Source for F {
    fn statistics(&self) -> Result<Statistics, Refusal> {
        self()
    }
}

/// A collector of a process's counts, for a `prometheus_client` registry.
///
/// ```
/// # mod nearq { pub mod metrics { pub use nearq_control::{metrics::*, protocol::Statistics}; } }
/// use nearq::metrics::{Metrics, Statistics, prometheus_client};
/// use prometheus_client::{encoding::text::encode, registry::Registry};
///
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(Metrics::new(|| {
///     Ok(Statistics { workers: 3, ..Statistics::default() })
/// })));
///
/// let mut text = String::new();
/// encode(&mut text, &registry)?;
/// assert!(text.contains("\nnearq_workers 3\n") && text.ends_with("# EOF\n"));
/// # Ok::<(), std::fmt::Error>(())
/// ```
pub struct Metrics<S> {
    source: S,
}

impl<S: Source> Metrics<S> {
    /// Makes a collector that takes the counts from `source` each time that it is scraped. [`of_runtime`](Metrics::of_runtime) makes one of
    /// a runtime.
    pub fn new(source: S) -> Self {
        Metrics { source }
    }
}

/// A source of counts that reads a runtime of this process; see [`Metrics::of_runtime`].
#[cfg(feature = "runtime")]
#[derive(Debug)]
pub struct RuntimeSource(RuntimeTarget);

#[cfg(feature = "runtime")]
impl Source for RuntimeSource {
    fn statistics(&self) -> Result<Statistics, Refusal> {
        self.0.statistics()
    }
}

/// The current counts of a runtime, for [`text`].
///
/// ```
/// # mod nearq { pub use {nearq_control::metrics, nearq_core::Runtime}; }
/// use nearq::{Runtime, metrics};
///
/// let text = metrics::text(metrics::statistics(Runtime::global()), vec![("service", "crypt".to_owned())]);
/// assert!(text.contains("nearq_workers{service=\"crypt\"}"));
/// ```
#[cfg(feature = "runtime")]
pub fn statistics(runtime: &Runtime) -> Statistics {
    // The target of a runtime always answers.
    RuntimeTarget::new(runtime.clone()).statistics().unwrap_or_default()
}

#[cfg(feature = "runtime")]
impl Metrics<RuntimeSource> {
    /// Makes a collector of the counts of `runtime`. For the process-wide one, pass [`Runtime::global`].
    ///
    /// ```
    /// # mod nearq { pub use {nearq_control::metrics, nearq_core::Runtime}; }
    /// use nearq::Runtime;
    /// use nearq::metrics::{Metrics, prometheus_client::registry::Registry};
    ///
    /// let mut registry = Registry::default();
    /// registry.register_collector(Box::new(Metrics::of_runtime(Runtime::global())));
    /// ```
    pub fn of_runtime(runtime: &Runtime) -> Self {
        Metrics::new(RuntimeSource(RuntimeTarget::new(runtime.clone())))
    }

    /// Makes a collector as [`of_runtime`](Self::of_runtime) does, and has items timed while it lives: at most 20,000 a second.
    ///
    /// # Errors
    /// Items cannot be timed.
    pub fn of_timed_runtime(runtime: &Runtime) -> Result<Self, Refusal> {
        let mut target = RuntimeTarget::new(runtime.clone());
        target.time_items(true)?;
        Ok(Metrics::new(RuntimeSource(target)))
    }
}

impl<S> fmt::Debug for Metrics<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl<S: Source> Collector for Metrics<S> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        match self.source.statistics() {
            Ok(statistics) => encode_all(&statistics, encoder),
            Err(_) => Ok(()),
        }
    }
}

fn encode_all(statistics: &Statistics, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
    let process = [(Labels::new(), statistics)];
    tables::PROCESS.iter().try_for_each(|metric| write(&mut encoder, metric, &process))?;

    let queues: Vec<_> =
        statistics.queues.iter().map(|queue| (queue_labels(queue), queue)).collect();
    write_info(&mut encoder, &statistics.queues)?;
    tables::QUEUE.iter().try_for_each(|metric| write(&mut encoder, metric, &queues))?;

    let pools: Vec<_> = statistics.pods.iter().map(|pool| (pool_labels(pool), pool)).collect();
    tables::POOL.iter().try_for_each(|metric| write(&mut encoder, metric, &pools))
}

/// Counts that were read earlier.
#[derive(Debug)]
struct Known(Statistics);

impl Collector for Known {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_all(&self.0, encoder)
    }
}

/// Returns the counts as one complete text, with `# EOF` at its end. Each metric has `labels` besides its own.
pub fn text(statistics: Statistics, labels: Vec<(&'static str, String)>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(statistics, labels, &mut text);
    text
}

/// Writes the same text as [`text`] piece by piece, which needs less memory: for many queues, the whole text is a hundred times as long as
/// the process's answer.
///
/// # Errors
/// An error of the writer.
pub fn write_text(
    statistics: Statistics,
    labels: Vec<(&'static str, String)>,
    to: &mut impl fmt::Write,
) -> fmt::Result {
    let labels = labels.into_iter().map(|(name, value)| (name.into(), shown(&value).into()));
    let mut registry = Registry::with_labels(labels);
    registry.register_collector(Box::new(Known(statistics)));
    encode(to, &registry)
}

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;

/// A label's value as it is exported: without characters that would control a terminal. The format itself escapes quotes and line
/// breaks.
fn shown(value: &str) -> String {
    page(value).into_owned()
}

fn queue_labels(queue: &QueueStatistics) -> Labels {
    vec![("queue", shown(&queue.name)), ("id", queue.id.to_string())]
}

fn pool_labels(pool: &PodStatistics) -> Labels {
    vec![
        ("pool", pool.pool.to_string()),
        ("cpus", shown(&pool.cpus)),
        ("nice", pool.nice.to_string()),
    ]
}

/// The properties of a queue, as labels of a metric that is always 1.
fn write_info(encoder: &mut DescriptorEncoder<'_>, queues: &[QueueStatistics]) -> fmt::Result {
    if queues.is_empty() {
        return Ok(());
    }
    let (name, help) = tables::QUEUE_INFO;
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Info)?;
    queues.iter().try_for_each(|queue| {
        let mut labels = queue_labels(queue);
        labels.extend([("kind", shown(&queue.kind)), ("scope", shown(&queue.scope))]);
        family.encode_info(&labels)
    })
}

/// One metric, for every object that has it.
fn write<T>(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Metric<T>,
    of: &[(Labels, &T)],
) -> fmt::Result {
    let values: Vec<_> =
        of.iter().filter_map(|(labels, one)| Some((labels, metric.of(one)?))).collect();
    if values.is_empty() {
        return Ok(());
    }
    let unit = metric.seconds.then_some(Unit::Seconds);
    let kind = match metric.kind() {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    let mut family = encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), kind)?;
    for (labels, value) in values {
        // Without labels there would be empty braces.
        if labels.is_empty() {
            write_value(&mut family, metric.seconds, value)?;
        } else {
            write_value(&mut family.encode_family(labels)?, metric.seconds, value)?;
        }
    }
    Ok(())
}

fn write_value(encoder: &mut MetricEncoder<'_>, is_time: bool, value: Value<'_>) -> fmt::Result {
    let seconds = |ns: u64| ns as f64 / 1e9;
    match value {
        Value::Counter(ns) if is_time => {
            encoder.encode_counter::<NoLabelSet, f64, f64>(&seconds(ns), None)
        }
        Value::Counter(count) => encoder.encode_counter::<NoLabelSet, u64, f64>(&count, None),
        Value::Gauge(ns) if is_time => encoder.encode_gauge(&seconds(ns)),
        Value::Gauge(now) => encoder.encode_gauge(&now),
        Value::Histogram(times) => {
            let (sum, buckets) = (seconds(times.sum_ns), histogram::steps(times));
            encoder.encode_histogram::<NoLabelSet>(sum, times.count(), &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests;

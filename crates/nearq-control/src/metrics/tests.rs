//! The exported text against the rules of OpenMetrics, and against what is documented.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::protocol::{Bucket, Histogram};

/// Everything that can be exported, with a name that has to be escaped.
fn everything() -> Statistics {
    let times = |shift: u64| Histogram {
        samples: 10,
        sum_ns: 123_456_789,
        buckets: vec![
            Bucket { below_ns: 900 << shift, count: 7 },
            Bucket { below_ns: 70_000 << shift, count: 2 },
            Bucket { below_ns: u64::MAX, count: 1 },
        ],
    };
    let queue = |id, name: &str, kind: &str| QueueStatistics {
        id,
        name: name.into(),
        kind: kind.into(),
        scope: "default (cache_shard)".into(),
        started: 12,
        completed: 11,
        running: 1,
        cpu_ns: 1_500_000_000,
        rescuer: kind == "unbound",
        rescued: 3,
        thieves: id - 1,
        stolen: 9,
        wait: Some(times(0)),
        run: Some(times(4)),
        ..QueueStatistics::default()
    };
    Statistics {
        cpu_ns: 2_250_000_000,
        control_cpu_ns: 1_000_000,
        workers: 4,
        idle: 3,
        parallelism: 8,
        timing: true,
        samples: 20,
        queues: vec![queue(1, "a \"b\"\\\nc", "unbound"), queue(2, "plain", "percpu")],
        pods: vec![PodStatistics { pool: 7, cpus: "0-3".into(), nice: -5, ..Default::default() }],
        ..Statistics::default()
    }
}

/// One line of values.
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

fn label_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Labels after the opening brace, and what follows the closing one.
fn labels(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut labels = Vec::new();
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label has a value in quotes");
        assert!(label_name(name), "{name}");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("the quotes are closed") {
                (_, '\\') => match chars.next().expect("something is escaped").1 {
                    'n' => value.push('\n'),
                    escaped @ ('"' | '\\') => value.push(escaped),
                    other => panic!("\\{other} is no escape"),
                },
                (end, '"') => break end + 1,
                (_, '\n') => panic!("a line break in a value"),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        rest = &after[end..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, rest.strip_prefix('}').expect("labels end with a brace")),
        }
    }
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a value follows the name");
    let (labels, value) = match line[end..].strip_prefix('{') {
        Some(rest) => labels(rest),
        None => (Vec::new(), &line[end..]),
    };
    let value = value.strip_prefix(' ').expect("one blank before the value");
    let value = value.parse().unwrap_or_else(|_| panic!("{value} is no number: {line}"));
    let names: BTreeSet<&str> = labels.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.len(), labels.len(), "a label occurs once: {line}");
    Sample { name: line[..end].to_owned(), labels, value }
}

/// A family: its name, kind and unit, and its values.
#[derive(Default)]
struct Family {
    name: String,
    kind: String,
    unit: Option<String>,
    samples: Vec<Sample>,
}

/// Reads a text as strictly as the specification demands (OpenMetrics 1.0), as far as it is used here.
fn families(text: &str) -> Vec<Family> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let mut families: Vec<Family> = Vec::new();
    for line in body.lines() {
        assert!(!line.is_empty() && line.trim() == line, "{line:?}");
        let Some(description) = line.strip_prefix("# ") else {
            let family = families.last_mut().expect("a family comes before its values");
            family.samples.push(sample(line));
            continue;
        };
        let [what, name, rest] = description.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        if families.last().is_none_or(|family| family.name != name) {
            assert!(families.iter().all(|family| family.name != name), "{name} comes twice");
            families.push(Family { name: name.to_owned(), ..Family::default() });
        }
        let family = families.last_mut().expect("just added");
        assert!(family.samples.is_empty(), "{line} comes after values");
        match what {
            "HELP" => assert!(rest.ends_with('.') && !rest.contains('\\'), "{line}"),
            "TYPE" => family.kind = rest.to_owned(),
            "UNIT" => family.unit = Some(rest.to_owned()),
            _ => panic!("{line}"),
        }
    }
    families
}

/// What the specification says about names and values of each kind.
fn check(family: &Family) {
    let Family { name, kind, unit, samples } = family;
    assert!(label_name(name) && !samples.is_empty(), "{name}");
    if let Some(unit) = unit {
        assert!(name.ends_with(&format!("_{unit}")), "{name} ends with its unit");
    }
    let suffixes: &[&str] = match kind.as_str() {
        "counter" => &["_total"],
        "gauge" => &[""],
        "info" => &["_info"],
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => panic!("{name} is a {kind}"),
    };
    for reserved in ["_total", "_info", "_bucket", "_sum", "_count", "_created"] {
        assert!(!name.ends_with(reserved), "{name}");
    }
    for sample in samples {
        let suffix = sample.name.strip_prefix(name.as_str()).expect("the family's name");
        assert!(suffixes.contains(&suffix), "{}", sample.name);
        assert!(sample.value >= 0.0 && sample.value.is_finite(), "{}", sample.name);
        assert!(kind != "info" || sample.value == 1.0);
    }
    if kind == "histogram" {
        check_histogram(name, samples);
    }
}

fn check_histogram(name: &str, samples: &[Sample]) {
    let mut by_labels: BTreeMap<Vec<(String, String)>, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let labels = sample.labels.iter().filter(|(name, _)| name != "le").cloned().collect();
        by_labels.entry(labels).or_default().push(sample);
    }
    for samples in by_labels.values() {
        let with = |suffix: &str| {
            let full = format!("{name}{suffix}");
            samples.iter().filter(move |sample| sample.name == full)
        };
        let buckets: Vec<(f64, f64)> = with("_bucket")
            .map(|sample| {
                let end = sample.labels.iter().find(|(name, _)| name == "le").expect("an end");
                let infinite = end.1 == "+Inf";
                let end = if infinite { f64::INFINITY } else { end.1.parse().expect("a number") };
                (end, sample.value)
            })
            .collect();
        let growing = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(buckets.windows(2).all(growing), "{name}: {buckets:?}");
        let all = buckets.last().expect("buckets");
        assert_eq!(all.0, f64::INFINITY);
        assert_eq!(with("_count").map(|sample| sample.value).collect::<Vec<_>>(), [all.1]);
        assert_eq!(with("_sum").count(), 1);
    }
}

#[test]
fn the_text_conforms_to_openmetrics() {
    let families = families(&text(everything(), Vec::new()));
    families.iter().for_each(check);
    let mut seen = BTreeSet::new();
    for sample in families.iter().flat_map(|family| &family.samples) {
        assert!(seen.insert((&sample.name, &sample.labels)), "{} twice", sample.name);
    }
    // Nothing at all is still a complete text.
    self::families(&text(Statistics::default(), Vec::new())).iter().for_each(check);
}

#[test]
fn values_are_exported_under_the_right_names() {
    let exported = text(everything(), Vec::new());
    for line in [
        "nearq_process_cpu_seconds_total 2.25",
        "nearq_workers 4",
        "nearq_queue_items_started_total{queue=\"plain\",id=\"2\"} 12",
        "nearq_queue_items_rescued_total{queue=\"a \\\"b\\\"\\\\\\nc\",id=\"1\"} 3",
        "nearq_queue_thieves_total{queue=\"plain\",id=\"2\"} 1",
        "nearq_queue_closures_stolen_total{queue=\"plain\",id=\"2\"} 9",
        "nearq_queue_info{queue=\"plain\",id=\"2\",kind=\"percpu\",scope=\"default (cache_shard)\"} 1",
        "nearq_queue_cpu_seconds_total{queue=\"plain\",id=\"2\"} 1.5",
        "nearq_queue_wait_seconds_count{queue=\"plain\",id=\"2\"} 10",
        "nearq_queue_wait_seconds_bucket{le=\"0.000001024\",queue=\"plain\",id=\"2\"} 7",
        "nearq_pool_workers{pool=\"7\",cpus=\"0-3\",nice=\"-5\"} 0",
    ] {
        assert!(exported.lines().any(|other| other == line), "{line} is missing in\n{exported}");
    }
    // A queue without a rescuer has no counts of a rescuer, and hogs are counted for per-CPU queues only.
    assert!(!exported.contains("items_rescued_total{queue=\"plain\""));
    assert!(!exported.contains("cpu_intensive_total{queue=\"a "));
    // The items of the other queue do not fork.
    assert!(!exported.contains("thieves_total{queue=\"a "));
    assert!(!exported.contains("stolen_total{queue=\"a "));
}

#[test]
fn every_sample_has_the_process_labels_without_control_characters() {
    let mut statistics = everything();
    statistics.queues[1].name = "e\u{1b}[2J\u{9b}\u{202e}".into();
    let labels = vec![("pid", "4711".to_owned()), ("command", "a\"b\\c\u{7f}\nd".to_owned())];
    let exported = text(statistics, labels);
    let families = families(&exported);
    families.iter().for_each(check);
    for sample in families.iter().flat_map(|family| &family.samples) {
        let has = |name: &str, value: &str| {
            sample.labels.iter().any(|(label, found)| label == name && found == value)
        };
        assert!(has("pid", "4711") && has("command", "a\"b\\c\u{fffd}\nd"), "{}", sample.name);
    }
    assert!(exported.contains("queue=\"e\u{fffd}[2J\u{fffd}\u{fffd}\""), "{exported}");
}

#[test]
fn without_a_source_nothing_is_exported() {
    let mut registry = Registry::default();
    let nothing = || Err(Refusal::NotHere { why: "no runtime".into() });
    registry.register_collector(Box::new(Metrics::new(nothing)));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert_eq!(text, "# EOF\n");
}

#[cfg(feature = "runtime")]
#[test]
fn a_runtime_is_exported_with_times_if_requested() {
    let runtime = Runtime::builder_in().build().unwrap();
    let queue = runtime.workqueue_builder("exported").build().unwrap();
    let exported = |metrics: Metrics<RuntimeSource>| {
        queue.spawn(|| ()).join().unwrap();
        queue.flush().unwrap();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        families(&text).iter().for_each(check);
        text
    };
    let plain = exported(Metrics::of_runtime(&runtime));
    assert!(plain.contains("nearq_queue_items_completed_total{queue=\"exported\",id="), "{plain}");
    assert!(plain.contains("nearq_timing 0") && !plain.contains("nearq_queue_run_seconds"));
    assert!(!plain.contains("nearq_control_cpu"));
    let timed = exported(Metrics::of_timed_runtime(&runtime).unwrap());
    assert!(timed.contains("nearq_timing 1"), "{timed}");
    assert!(timed.contains("nearq_queue_run_seconds_count{queue=\"exported\""), "{timed}");
}

/// The table of the documentation: names as they are exported, kinds, labels and meanings.
fn documented() -> String {
    let exported = text(everything(), Vec::new());
    let help: BTreeMap<&str, &str> =
        exported.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' ')).collect();
    let mut table = String::from("| name | kind | labels | what |\n|---|---|---|---|\n");
    for family in families(&exported) {
        let suffix = match family.kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let labels = family.samples[0].labels.iter().map(|(name, _)| name.as_str());
        let labels: Vec<&str> = labels.filter(|name| *name != "le").collect();
        let (kind, what) = (&family.kind, help[family.name.as_str()]);
        let labels = labels.join(", ");
        table += &format!("| `{}{suffix}` | {kind} | {labels} | {what} |\n", family.name);
    }
    table
}

#[test]
fn documented_and_exported_metrics_are_the_same() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(page).expect("docs/metrics.md can be read");
    let table = documented();
    assert!(page.contains(&table), "docs/metrics.md must have this table:\n\n{table}");
}

/// A writer that remembers the longest text that it received at once.
struct Pieces {
    longest: usize,
    all: usize,
}

impl fmt::Write for Pieces {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.longest = self.longest.max(text.len());
        self.all += text.len();
        Ok(())
    }
}

#[test]
fn many_queues_are_written_in_small_pieces() {
    let largest = Bucket { below_ns: 1, count: u64::MAX };
    let times = Histogram { samples: u64::MAX, sum_ns: u64::MAX, buckets: vec![largest; 3] };
    let queue = |id| QueueStatistics {
        id,
        name: "x".repeat(256),
        started: u64::MAX,
        wait: Some(times.clone()),
        ..QueueStatistics::default()
    };
    let statistics = Statistics { queues: (0..1000).map(queue).collect(), ..Statistics::default() };
    let mut pieces = Pieces { longest: 0, all: 0 };
    write_text(statistics, Vec::new(), &mut pieces).unwrap();
    assert!(pieces.all > 10_000_000 && pieces.longest < 1000, "{} {}", pieces.all, pieces.longest);
}

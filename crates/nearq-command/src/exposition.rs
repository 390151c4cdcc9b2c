//! Metrics as text: OpenMetrics, as it is made, or the older format of Prometheus, which is made of that.
//!
//! What reads files (node exporter's folder, the Pushgateway, `promtool check metrics`) knows the older one alone. The differences, of
//! what is used here: a counter's family is named with `_total`, an info is a gauge, and there are neither units nor an end.

use clap::ValueEnum;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The text format of Prometheus, which files are read in
    Prometheus,
    /// OpenMetrics 1.0
    #[value(name = "openmetrics")]
    OpenMetrics,
}

/// A text of OpenMetrics in that format.
pub fn in_format(text: String, format: Format) -> String {
    match format {
        Format::OpenMetrics => text,
        Format::Prometheus => prometheus(&text),
    }
}

fn prometheus(text: &str) -> String {
    let mut converted = String::new();
    // The help of a family comes before its type, which changes the name.
    let mut help = "";
    for line in text.lines() {
        if let Some(told) = line.strip_prefix("# HELP ") {
            help = told.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((family, kind)) =
            line.strip_prefix("# TYPE ").and_then(|told| told.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            converted +=
                &format!("# HELP {family}{suffix} {help}\n# TYPE {family}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            converted += line;
            converted.push('\n');
        }
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_that_the_older_format_has() {
        let text = "\
# HELP a_cpu_seconds CPU time.
# TYPE a_cpu_seconds counter
# UNIT a_cpu_seconds seconds
a_cpu_seconds_total{x=\"# y\"} 1.5
# HELP a_queue What it is.
# TYPE a_queue info
a_queue_info{kind=\"b\"} 1
# HELP a_wait Waits.
# TYPE a_wait histogram
a_wait_bucket{le=\"+Inf\"} 3
# EOF
";
        let older = "\
# HELP a_cpu_seconds_total CPU time.
# TYPE a_cpu_seconds_total counter
a_cpu_seconds_total{x=\"# y\"} 1.5
# HELP a_queue_info What it is.
# TYPE a_queue_info gauge
a_queue_info{kind=\"b\"} 1
# HELP a_wait Waits.
# TYPE a_wait histogram
a_wait_bucket{le=\"+Inf\"} 3
";
        assert_eq!(in_format(text.into(), Format::Prometheus), older);
        assert_eq!(in_format(text.into(), Format::OpenMetrics), text);
    }
}

//! Metrics as text: OpenMetrics, as it is generated, or the older format of Prometheus, converted from it.
//!
//! Tools that read files (node exporter's folder, the Pushgateway, `promtool check metrics`) know only the older format. For the metrics
//! used here, the older format differs as follows: a counter's family is named with `_total`, an info is a gauge, and there are no units
//! and no end mark.

use std::fmt::{self, Write as _};
use std::mem;

use clap::ValueEnum;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The text format of Prometheus, which tools that read files expect
    Prometheus,
    /// OpenMetrics 1.0
    #[value(name = "openmetrics")]
    OpenMetrics,
}

/// Converts a text of OpenMetrics to that format.
pub fn in_format(text: String, format: Format) -> String {
    if format == Format::OpenMetrics {
        return text;
    }
    let mut converted = String::new();
    // Writing to a string cannot fail.
    let _ = Converted::new(format, &mut converted).write_str(&text);
    converted
}

/// Takes a text of OpenMetrics in pieces of any length, which may cut lines, and writes it in that format.
#[derive(Debug)]
pub struct Converted<W> {
    format: Format,
    to: W,
    /// The line that is not complete yet.
    line: String,
    /// The help of the family: it comes before the type, which may change the family's name.
    help: String,
}

impl<W: fmt::Write> Converted<W> {
    /// Writes to `to`.
    pub fn new(format: Format, to: W) -> Self {
        Converted { format, to, line: String::new(), help: String::new() }
    }

    fn end_line(&mut self) -> fmt::Result {
        let line = mem::take(&mut self.line);
        if let Some(described) = line.strip_prefix("# HELP ") {
            described.split_once(' ').map_or("", |(_, help)| help).clone_into(&mut self.help);
        } else if let Some((family, kind)) =
            line.strip_prefix("# TYPE ").and_then(|described| described.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            writeln!(self.to, "# HELP {family}{suffix} {}", self.help)?;
            writeln!(self.to, "# TYPE {family}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            writeln!(self.to, "{line}")?;
        }
        Ok(())
    }
}

impl<W: fmt::Write> fmt::Write for Converted<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.format == Format::OpenMetrics {
            return self.to.write_str(text);
        }
        for piece in text.split_inclusive('\n') {
            match piece.strip_suffix('\n') {
                Some(end) => {
                    self.line.push_str(end);
                    self.end_line()?;
                }
                None => self.line.push_str(piece),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_the_older_format() {
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
        let mut pieces = String::new();
        let mut converted = Converted::new(Format::Prometheus, &mut pieces);
        for letter in text.chars() {
            converted.write_char(letter).expect("a string takes all");
        }
        assert_eq!(pieces, older);
    }
}

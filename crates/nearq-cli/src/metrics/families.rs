//! The texts of several processes as one text: a format of Prometheus allows each metric once, with the samples of all processes.

use std::collections::HashMap;
use std::fmt;

/// The metrics of the texts so far, in the order in which they first came.
#[derive(Debug, Default)]
pub(super) struct Families {
    /// What describes each metric, and its samples.
    all: Vec<(String, String)>,
    /// The place of a metric, by its name.
    places: HashMap<String, usize>,
}

impl Families {
    /// Adds a text in the format OpenMetrics.
    pub(super) fn add(&mut self, text: &str) {
        let mut place = 0;
        let mut is_new = false;
        for line in text.split_inclusive('\n').filter(|line| *line != "# EOF\n") {
            match described(line) {
                Some(name) => {
                    let known = self.places.get(name).copied();
                    // A metric has several such lines.
                    is_new = known.is_none() || is_new && known == Some(place);
                    place = known.unwrap_or(self.all.len());
                    if known.is_none() {
                        self.places.insert(name.to_owned(), place);
                        self.all.push((String::new(), String::new()));
                    }
                    if is_new {
                        self.all[place].0.push_str(line);
                    }
                }
                None => {
                    if let Some((_, samples)) = self.all.get_mut(place) {
                        samples.push_str(line);
                    }
                }
            }
        }
    }

    /// Writes all of them as one text.
    pub(super) fn write(&self, to: &mut impl fmt::Write) -> fmt::Result {
        for (description, samples) in &self.all {
            to.write_str(description)?;
            to.write_str(samples)?;
        }
        to.write_str("# EOF\n")
    }
}

/// The metric that a line describes; `None` for a sample.
fn described(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("# ")?.split_whitespace();
    words.next()?;
    words.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_is_described_once_and_has_the_samples_of_all() {
        let mut families = Families::default();
        families.add(
            "# HELP a A.\n# TYPE a gauge\na{pid=\"1\"} 1\n# TYPE c gauge\nc{pid=\"1\"} 3\n# EOF\n",
        );
        families.add("# HELP a A.\n# TYPE a gauge\na{pid=\"2\"} 5\n# TYPE b gauge\nb{pid=\"2\",q=\"# TYPE\"} 6\n# EOF\n");
        let mut text = String::new();
        families.write(&mut text).unwrap();
        assert_eq!(
            text,
            "# HELP a A.\n# TYPE a gauge\na{pid=\"1\"} 1\na{pid=\"2\"} 5\n# TYPE c gauge\nc{pid=\"1\"} 3\n\
             # TYPE b gauge\nb{pid=\"2\",q=\"# TYPE\"} 6\n# EOF\n"
        );
        let mut none = String::new();
        Families::default().write(&mut none).unwrap();
        assert_eq!(none, "# EOF\n");
    }
}

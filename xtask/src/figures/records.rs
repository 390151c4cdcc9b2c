//! Looks up recorded values by their paths.
//!
//! - `lock | short 16 | nearq auto | wait_us_max` is the median of that metric in lock.json, for this scenario and row; one more word
//!   selects another statistic (`mean`, `deviation`, `min`, `max`, `published`).
//! - `lock | parameters | goals | load=short & writers=4 | reached` reads values that are not in rows, by following the keys. In an array,
//!   a word selects the element that has these fields or this index. `#` at the end is the number of elements, `#met=true` the number of
//!   elements with these fields.
//! - `slice.txt | | instructions per round: | 2` is the second number after these words, for results without JSON. The part before them may
//!   name the beginning of an earlier line, such as a table's heading.

use super::prose;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The recorded results that have been read so far.
pub(super) struct Records {
    folder: PathBuf,
    results: HashMap<String, Value>,
    texts: HashMap<String, String>,
}

impl Records {
    pub(super) fn new(folder: &Path) -> Records {
        Records { folder: folder.into(), results: HashMap::new(), texts: HashMap::new() }
    }

    /// Adds a result that is in no file.
    #[cfg(test)]
    pub(super) fn insert(&mut self, name: &str, result: Value) {
        self.results.insert(name.into(), result);
    }

    /// The value that a path leads to.
    pub(super) fn value(&mut self, path: &str) -> Result<f64, String> {
        let words: Vec<&str> = path.split('|').map(str::trim).collect();
        let value = match words.as_slice() {
            [file, section, label, number]
                if Path::new(file).extension().is_some_and(|end| end == "txt") =>
            {
                in_text(self.text(file)?, section, label, number)?
            }
            [file, "parameters" | "environment", ..] => inside(self.result(file)?, &words[1..])?,
            [file, scenario, row, metric] => {
                in_rows(self.result(file)?, scenario, row, metric, "median")?
            }
            [file, scenario, row, metric, statistic] => {
                in_rows(self.result(file)?, scenario, row, metric, statistic)?
            }
            _ => return Err(format!("no path of a recorded value: {path}")),
        };
        value.ok_or_else(|| format!("not recorded: {path}"))
    }

    fn read(&self, file: &str) -> Result<String, String> {
        std::fs::read_to_string(self.folder.join(file)).map_err(|error| format!("{file}: {error}"))
    }

    fn text(&mut self, file: &str) -> Result<&str, String> {
        if !self.texts.contains_key(file) {
            let text = self.read(file)?;
            self.texts.insert(file.into(), text);
        }
        Ok(&self.texts[file])
    }

    fn result(&mut self, name: &str) -> Result<&Value, String> {
        if !self.results.contains_key(name) {
            let file = format!("{name}.json");
            let result = serde_json::from_str(&self.read(&file)?)
                .map_err(|error| format!("{file}: {error}"))?;
            self.results.insert(name.into(), result);
        }
        Ok(&self.results[name])
    }
}

/// A statistic of a row. Two rows with the same name are an error: one of them would never be compared.
fn in_rows(
    result: &Value,
    scenario: &str,
    row: &str,
    metric: &str,
    statistic: &str,
) -> Result<Option<f64>, String> {
    let rows = result["rows"].as_array().ok_or("the result has no rows")?;
    let same = |candidate: &&Value| {
        [("scenario", scenario), ("row", row), ("metric", metric)]
            .iter()
            .all(|(key, word)| candidate[key] == **word)
    };
    let mut found = rows.iter().filter(same);
    let value = found.next().and_then(|row| row[statistic].as_f64());
    if found.next().is_some() {
        return Err(format!("more than one row: {scenario} | {row} | {metric}"));
    }
    Ok(value)
}

/// The value that is found by following these keys.
fn inside(result: &Value, words: &[&str]) -> Result<Option<f64>, String> {
    let mut value = result;
    for word in words {
        if let (Some(fields), Value::Array(elements)) = (word.strip_prefix('#'), value) {
            let count =
                elements.iter().filter(|element| fields.is_empty() || is(element, fields)).count();
            return Ok(u32::try_from(count).ok().map(f64::from));
        }
        value = match value {
            Value::Array(elements) => match word.parse::<usize>() {
                Ok(index) => elements.get(index),
                Err(_) => elements.iter().find(|element| is(element, word)),
            },
            _ => value.get(word),
        }
        .ok_or_else(|| format!("no {word} is recorded of {}", words.join(" | ")))?;
    }
    Ok(value.as_f64())
}

/// Whether an element has these fields: `load=short & writers=4`.
fn is(element: &Value, fields: &str) -> bool {
    fields.split(" & ").all(|field| {
        field.split_once('=').is_some_and(|(key, word)| match &element[key] {
            Value::String(text) => text == word,
            other => serde_json::from_str(word).is_ok_and(|value: Value| value == *other),
        })
    })
}

/// A number in a text, counted from 1, on the first line that begins with the label and comes after a line that begins with the section.
fn in_text(text: &str, section: &str, label: &str, number: &str) -> Result<Option<f64>, String> {
    let position: Option<usize> = number.parse().ok().filter(|position| *position > 0);
    let position =
        position.ok_or_else(|| format!("{number} is not an index (the first number is 1)"))?;
    let mut lines = text.lines().map(str::trim_start);
    if !section.is_empty() && !lines.any(|line| line.starts_with(section)) {
        return Err(format!("no line begins with {section}"));
    }
    let line = lines
        .find_map(|line| line.strip_prefix(label))
        .ok_or_else(|| format!("no line begins with {label}"))?;
    let prose = prose::Prose::new("", line);
    let value = prose.numbers().get(position - 1).cloned();
    Ok(value.and_then(|range| prose::value(prose.text(&range))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_their_names() {
        let mut records = Records::new(Path::new("/nowhere"));
        let row = |row: &str, median: f64| serde_json::json!({"scenario": "a b", "row": row, "metric": "ns", "median": median, "mean": median + 0.5});
        records.insert("r", serde_json::json!({"rows": [row("x", 1.0), row("y, z()", 2.0), row("t", 3.0), row("t", 4.0)]}));
        assert_eq!(records.value("r | a b | y, z() | ns"), Ok(2.0));
        assert_eq!(records.value("r | a b | x | ns | mean"), Ok(1.5));
        assert!(records.value("r | a b | x | us").is_err());
        assert!(records.value("r | a b | t | ns").is_err(), "which of two rows?");
    }

    #[test]
    fn elements_are_found_by_their_fields() {
        let goals = serde_json::json!([{"load": "short", "writers": 4, "reached": 0.5}, {"load": "long", "writers": 4, "reached": 0.25}]);
        let result = serde_json::json!({"parameters": {"goals": goals}});
        assert_eq!(
            inside(&result, &["parameters", "goals", "load=long & writers=4", "reached"]),
            Ok(Some(0.25))
        );
        assert_eq!(inside(&result, &["parameters", "goals", "0", "reached"]), Ok(Some(0.5)));
        assert_eq!(inside(&result, &["parameters", "goals", "#"]), Ok(Some(2.0)));
        assert_eq!(inside(&result, &["parameters", "goals", "#load=long"]), Ok(Some(1.0)));
        assert!(inside(&result, &["parameters", "goals", "load=none", "reached"]).is_err());
    }

    #[test]
    fn numbers_are_found_in_texts() {
        let text = "4 tasks\nwithout  1.5 ±0.1\n8 tasks\nwithout  2.5 ±0.2 (30 to 40)\n";
        assert_eq!(in_text(text, "8 tasks", "without", "1"), Ok(Some(2.5)));
        assert_eq!(in_text(text, "8 tasks", "without", "4"), Ok(Some(40.0)));
        assert_eq!(in_text(text, "", "without", "2"), Ok(Some(0.1)));
        assert!(in_text(text, "16 tasks", "without", "1").is_err());
        assert_eq!(in_text(text, "", "without", "9"), Ok(None));
        for no_index in ["0", "-1", "first"] {
            let why = in_text(text, "", "without", no_index).unwrap_err();
            assert_eq!(why, format!("{no_index} is not an index (the first number is 1)"));
        }
    }
}

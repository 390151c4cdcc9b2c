//! The last decisions about processes whose memory is not at home, in a file that `status` shows.
//!
//! A new file replaces the old one, so a reader gets one or the other. Nothing else depends on the file: if it cannot be written, nothing
//! is shown.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::pins;

/// How many decisions are kept.
const KEPT: usize = 64;

pub(crate) fn path() -> PathBuf {
    Path::new(pins::RUN).join("memory.json")
}

/// Something that was decided or done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// The decision in words.
    pub(crate) what: String,
}

/// The last decisions, and what sampling has cost.
#[derive(Debug, Default)]
pub(crate) struct Log {
    recent: VecDeque<(u64, Decision)>,
    pub(crate) samples: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) elapsed_ns: u64,
}

impl Log {
    pub(crate) fn add(&mut self, decision: Decision) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back((now, decision));
    }

    fn value(&self) -> Value {
        let decisions: Vec<Value> = self
            .recent
            .iter()
            .map(|(at, one)| json!({"at": at, "pid": one.pid, "name": one.name, "what": one.what}))
            .collect();
        json!({
            "looks": self.samples,
            "cpu_seconds": self.cpu_ns as f64 / 1e9,
            "seconds": self.elapsed_ns as f64 / 1e9,
            "decisions": decisions,
        })
    }

    /// Writes it to the place where `status` reads it.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, format!("{}\n", self.value()))?;
        fs::rename(&new, path)
    }
}

/// Removes the file: it is about a scheduler that is gone.
pub(crate) fn remove() {
    // The file may not exist.
    let _ = fs::remove_file(path());
}

/// The contents of the file; empty if there is no file.
pub(crate) fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

/// The last decisions in the file, as lines.
pub(crate) fn lines(value: &Value, most: usize, now: u64) -> Vec<String> {
    let all = value["decisions"].as_array().map_or(&[][..], Vec::as_slice);
    let line = |one: &Value| {
        let ago = now.saturating_sub(one["at"].as_u64().unwrap_or(now));
        let (pid, name) = (&one["pid"], one["name"].as_str().unwrap_or_default());
        let what = one["what"].as_str().unwrap_or_default();
        crate::output::flat(&format!("{ago} s ago: {name} ({pid}): {what}"))
    };
    all.iter().skip(all.len().saturating_sub(most)).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_decisions_are_kept_written_and_read() {
        let path = std::env::temp_dir().join(format!("nearq-scx-decisions-{}", std::process::id()));
        assert_eq!(read(&path), Value::Null);
        let mut log = Log::default();
        for pid in 0..100 {
            let what = format!("was\nmoved {pid}");
            log.add(Decision { pid, name: "sh".into(), what });
        }
        log.write(&path).unwrap();
        let value = read(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(value["decisions"].as_array().unwrap().len(), KEPT);
        let at = value["decisions"][63]["at"].as_u64().unwrap();
        assert_eq!(
            lines(&value, 2, at + 5),
            ["5 s ago: sh (98): was moved 98", "5 s ago: sh (99): was moved 99"]
        );
        assert!(lines(&Value::Null, 2, 0).is_empty());
    }
}

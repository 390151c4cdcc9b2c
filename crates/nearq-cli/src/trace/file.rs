//! The file of `--output`: whole at any time, whatever ends the command.
//!
//! After each batch the text that ends the file is written behind it, and the next batch is written over that. So a file that is
//! looked at early, or left behind by SIGKILL, opens like any other; where a batch cannot be written (a full disk), the file ends with
//! the one before it. Where one cannot go back (a pipe), it ends once.
//!
//! What was in the file before is replaced with the first batch: a trace that is refused leaves it as it is.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use nearq_control::protocol::TraceBatch;
use serde_json::Value;

use super::chrome::{self, Chrome};
use super::names::Names;
use crate::output::Failure;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct TraceFile {
    path: PathBuf,
    file: File,
    /// Where the next event goes, if one can go there.
    end: Option<u64>,
    /// What comes next: the beginning, until it is written.
    text: String,
    /// What stands behind the events that are written.
    ending: String,
    chrome: Chrome,
    /// Made here, and nothing is written yet: not left behind so.
    unused: bool,
}

impl TraceFile {
    /// Opens the file for the process `pid`.
    pub(super) fn open(path: &Path, pid: u32, command: &str) -> Result<Self, Failure> {
        let existed = path.symlink_metadata().is_ok();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| {
            Failure::input(format!(
                "--output {}: cannot be written: {error}; give a file in a folder that you may write",
                path.display()
            ))
        })?;
        let regular = file.metadata().is_ok_and(|data| data.is_file());
        let mut text = chrome::BEGINNING.to_owned();
        let chrome = Chrome::new(pid, command, &mut text);
        Ok(Self {
            path: path.into(),
            file,
            end: regular.then_some(0),
            text,
            ending: String::new(),
            chrome,
            unused: !existed,
        })
    }

    /// Adds what a batch tells; `about` says how the trace came about so far.
    pub(super) fn batch(
        &mut self,
        batch: &TraceBatch,
        names: &Names,
        about: &BTreeMap<&'static str, Value>,
    ) -> Result<(), Failure> {
        self.chrome.batch(batch, names, &mut self.text);
        self.write(about).map_err(|error| self.failure(&error))
    }

    /// Adds what is unfinished, and ends the file.
    pub(super) fn finish(
        mut self,
        names: &Names,
        about: &BTreeMap<&'static str, Value>,
    ) -> Result<(), Failure> {
        self.chrome.finish(names, &mut self.text);
        let ended = self.write(about).and_then(|()| match self.end {
            Some(_) => Ok(()),
            None => self.file.write_all(chrome::ending(about).as_bytes()),
        });
        ended.map_err(|error| self.failure(&error))
    }

    /// Writes the text and, where it can be taken back, the end behind it.
    fn write(&mut self, about: &BTreeMap<&'static str, Value>) -> io::Result<()> {
        self.unused = false;
        let mut text = std::mem::take(&mut self.text);
        let Some(end) = self.end else { return self.file.write_all(text.as_bytes()) };
        let next = end + text.len() as u64;
        let ending = chrome::ending(about);
        text.push_str(&ending);
        if let Err(error) = self.put(end, &text) {
            return Err(self.mended(end, error));
        }
        (self.end, self.ending) = (Some(next), ending);
        Ok(())
    }

    /// Writes what is behind `from` until the end of the file.
    fn put(&mut self, from: u64, text: &str) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(from))?;
        // One call, so that there is hardly a moment without an end.
        self.file.write_all(text.as_bytes())?;
        // There may have been more in the file, or a longer end.
        self.file.set_len(from + text.len() as u64)
    }

    /// Takes back a part of a batch, for which there was no room; says what there is now.
    fn mended(&mut self, end: u64, error: io::Error) -> io::Error {
        let ending = std::mem::take(&mut self.ending);
        let now = if ending.is_empty() {
            fs::remove_file(&self.path).map(|()| "the file is removed")
        } else {
            self.put(end, &ending).map(|()| "the file has the events until then")
        };
        let now = now.unwrap_or("the file is cut off");
        io::Error::new(error.kind(), format!("{error}; {now}"))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::run(format!("{}: cannot be written: {error}", self.path.display()))
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if self.unused {
            // An empty file is left behind, at worst.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::{TraceEvent, TraceKind, TracedQueue};
    use serde_json::json;

    fn batch(at_ns: u64) -> TraceBatch {
        let event = |kind, at_ns, took_ns| TraceEvent {
            kind,
            at_ns,
            took_ns,
            queue: 1,
            thread: 5,
            function: "work".into(),
            ..TraceEvent::default()
        };
        TraceBatch {
            queues: vec![TracedQueue { id: 1, name: "queue".into() }],
            events: vec![event(TraceKind::Start, at_ns, 10), event(TraceKind::End, at_ns + 90, 90)],
            ..TraceBatch::default()
        }
    }

    fn slices(path: &Path) -> usize {
        let text = std::fs::read_to_string(path).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
        let events = json["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == "X").count()
    }

    #[test]
    fn the_file_is_whole_after_every_batch() {
        let path = std::env::temp_dir().join(format!("nearq-trace-{}.json", std::process::id()));
        std::fs::write(&path, "x".repeat(9000)).unwrap();
        drop(TraceFile::open(&path, 1, "a program").unwrap());
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            9000,
            "a refused trace changes no file"
        );
        let mut file = TraceFile::open(&path, 1, "a program").unwrap();
        let mut names = Names::in_folder("/proc/none".into());
        for number in 1..20 {
            let batch = batch(number * 1000);
            names.learn(&batch);
            // What is said at the end gets longer and shorter.
            let about = BTreeMap::from([("dropped", json!("x".repeat(number as usize % 5 * 300)))]);
            file.batch(&batch, &names, &about).unwrap();
            assert_eq!(slices(&path), number as usize);
        }
        file.finish(&names, &BTreeMap::new()).unwrap();
        assert_eq!(slices(&path), 19);
        std::fs::remove_file(&path).unwrap();
        drop(TraceFile::open(&path, 1, "a program").unwrap());
        assert!(!path.exists(), "and leaves none");
    }
}

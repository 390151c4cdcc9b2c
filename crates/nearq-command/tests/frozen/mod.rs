//! Outputs that must not change unnoticed: compares a command's answers on fixed input with recorded files.
//!
//! To reword or reorder outputs on purpose, run the tests with `NEARQ_FREEZE=write` in the environment, which rewrites the files, and
//! commit the difference.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// The recorded files of one crate.
pub(crate) struct Frozen {
    folder: PathBuf,
    writes: bool,
    compared: BTreeSet<String>,
    differences: Vec<String>,
}

impl Frozen {
    /// The recorded files in `tests/frozen` of the crate at `manifest`.
    pub(crate) fn of(manifest: &str) -> Self {
        Self {
            folder: Path::new(manifest).join("tests/frozen"),
            writes: std::env::var_os("NEARQ_FREEZE").is_some_and(|value| value == "write"),
            compared: BTreeSet::new(),
            differences: Vec::new(),
        }
    }

    /// Compares a text with the file of that name.
    pub(crate) fn compare(&mut self, name: &str, text: &str) {
        let file = format!("{name}.txt");
        let path = self.folder.join(&file);
        assert!(self.compared.insert(file), "{name} is compared twice");
        if self.writes {
            fs::create_dir_all(&self.folder).unwrap();
            return fs::write(&path, text).unwrap();
        }
        let recorded = fs::read_to_string(&path).unwrap_or_default();
        if recorded != text {
            self.differences.push(difference(&path, &recorded, text));
        }
    }

    /// Fails if anything was different, or if a file was never compared.
    pub(crate) fn end(self) {
        let files = fs::read_dir(&self.folder).unwrap().flatten();
        let names = files.map(|file| file.file_name().into_string().unwrap());
        let unused: Vec<String> = names.filter(|name| !self.compared.contains(name)).collect();
        assert!(unused.is_empty(), "{unused:?} in {} are never compared", self.folder.display());
        assert!(
            self.differences.is_empty(),
            "{}\nIf that is intended, run this test with NEARQ_FREEZE=write in the environment, and check the changes in the files",
            self.differences.join("\n")
        );
    }
}

/// The first line that differs.
fn difference(path: &Path, recorded: &str, text: &str) -> String {
    let mut pairs = recorded.lines().zip(text.lines()).enumerate();
    let at = pairs.find(|(_, (old, new))| old != new).map(|(at, _)| at);
    let at = at.unwrap_or_else(|| recorded.lines().count().min(text.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
    let (old, new) = (line(recorded), line(text));
    format!("{}:{}\n  recorded: {old}\n  now:      {new}", path.display(), at + 1)
}

/// The command line, what it printed, and how it ended.
pub(crate) fn transcript(question: &str, output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut transcript = format!("$ {question}\n{}", text(&output.stdout));
    if !output.stderr.is_empty() {
        transcript += &format!("--- standard error\n{}", text(&output.stderr));
    }
    if !output.status.success() {
        transcript += &format!("--- {}\n", output.status);
    }
    transcript + "\n"
}

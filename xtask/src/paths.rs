//! Checks that the paths that the documents name exist: those in code spans of ARCHITECTURE.md, CONTRIBUTING.md, docs/documents.md and
//! docs/design.
//!
//! A path may leave out its beginning (`queue/retired.rs`) and the ending `.rs` (`queue/retired`), because the documents say where their
//! files are. A code span counts as a path if it consists only of characters that occur in paths, and has a slash or ends in `.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sources;

const DOCUMENTS: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/documents.md"];
const FOLDER: &str = "docs/design";
/// The names of the runtime's threads begin with this.
const THREADS: &str = "nq/";

/// Reports each path that does not exist in the checkout.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let files = sources::files(root)?;
    let known = known(&files);
    let documents = files.iter().filter(|file| {
        DOCUMENTS.iter().any(|name| *file == Path::new(name))
            || file.starts_with(FOLDER) && file.extension().is_some_and(|it| it == "md")
    });
    let mut offences = Vec::new();
    for document in documents {
        let name = document.display();
        let text =
            fs::read_to_string(root.join(document)).map_err(|error| format!("{name}: {error}"))?;
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = paths(line).filter(|path| !known.contains(path.trim_end_matches('/')));
            offences.extend(wrong.map(|path| format!("{name}:{number}: there is no `{path}`")));
        }
    }
    Ok(offences)
}

/// All ends of the paths of files and folders, with and without `.rs`.
fn known(files: &BTreeSet<PathBuf>) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for path in files.iter().flat_map(|file| file.ancestors()) {
        let path = path.to_string_lossy();
        let beginnings = path.match_indices('/').map(|(slash, _)| slash + 1);
        for beginning in beginnings.chain([0]) {
            let end = &path[beginning..];
            known.insert(end.to_owned());
            known.extend(end.strip_suffix(".rs").map(str::to_owned));
        }
    }
    known
}

/// The code spans of a line that look like paths of this checkout.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        let letters = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
        let is_path =
            span.contains('/') || Path::new(span).extension().is_some_and(|end| end == "rs");
        is_path && span.chars().all(letters) && !span.starts_with('/') && !span.starts_with(THREADS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_leave_out_its_beginning_and_its_ending() {
        let files = ["crates/core/src/queue/retired.rs", "docs/results/a.txt"].map(PathBuf::from);
        let known = known(&files.into());
        for path in
            ["queue/retired.rs", "queue/retired", "retired.rs", "crates/core", "docs/results"]
        {
            assert!(known.contains(path), "{path}");
        }
        assert!(!known.contains("queue/retire") && !known.contains("ueue/retired"));
    }

    #[test]
    fn code_spans_that_are_no_paths_are_left_alone() {
        let line =
            "`nq/timer` sleeps, `/proc/stat` and `a / b`; `queue/end` or `end.rs`, `flush` not";
        assert_eq!(paths(line).collect::<Vec<_>>(), ["queue/end", "end.rs"]);
    }

    #[test]
    fn every_path_in_the_documents_exists() {
        let root = sources::root();
        assert_eq!(check(&root), Ok(Vec::new()));
    }
}

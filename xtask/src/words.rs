//! Checks that replaced words do not come back: `.ci/retired-words` lists them, each with its replacement and, if it is retired only in one
//! folder, with that folder.
#![allow(clippy::disallowed_types, reason = "a Linux program")]

use std::fs;
use std::path::Path;

use crate::sources;

const LIST: &str = ".ci/retired-words";
/// The files that may contain retired words: the history, and the list itself.
const FREE: [&str; 3] = [LIST, "CHANGELOG.md", "docs/results/"];
const EXTENSIONS: [&str; 7] = ["rs", "md", "c", "h", "sh", "toml", "varlink"];

/// A word that must no longer be used.
#[derive(Debug, PartialEq, Eq)]
struct Retired<'a> {
    word: &'a str,
    folder: &'a str,
    replacement: &'a str,
}

/// Reports each place where a retired word occurs.
pub(crate) fn check() -> Result<String, String> {
    let root = sources::root();
    let list = fs::read_to_string(root.join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    let retired = parse(&list)?;
    let mut found = Vec::new();
    for path in sources::files(&root)? {
        let file = path.to_string_lossy();
        if !is_read(&file) {
            continue;
        }
        // Files that are not text have no words.
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        found.extend(offences(&file, &text, &retired));
    }
    if found.is_empty() {
        Ok(format!("none of the {} retired words is used", retired.len()))
    } else {
        Err(format!("{}\nthe list is {LIST}", found.join("\n")))
    }
}

fn parse(list: &str) -> Result<Vec<Retired<'_>>, String> {
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (left, replacement) =
                line.split_once(" -> ").ok_or_else(|| format!("{LIST}: no replacement: {line}"))?;
            let (word, folder) = left.split_once(" in ").unwrap_or((left, ""));
            Ok(Retired { word, folder, replacement })
        })
        .collect()
}

/// Whether this file contains words that people write.
fn is_read(file: &str) -> bool {
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    !FREE.iter().any(|free| file.starts_with(free))
        && (file.starts_with(".ci/") || extension.is_some_and(|it| EXTENSIONS.contains(&it)))
}

fn offences(file: &str, text: &str, retired: &[Retired<'_>]) -> Vec<String> {
    let here: Vec<&Retired<'_>> =
        retired.iter().filter(|one| file.starts_with(one.folder)).collect();
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for one in here.iter().filter(|one| has_word(line, one.word)) {
            found.push(format!(
                "{file}:{number}: \"{}\" is retired; say {}",
                one.word, one.replacement
            ));
        }
    }
    found
}

/// Whether the line contains the word as a whole.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_as_a_whole_and_where_it_is_retired() {
        let list = "# words\n\nGadget -> Gizmo\nTable in a/pool -> WorkerSlab\n";
        let retired = parse(list).expect("well formed");
        assert_eq!(
            retired[1],
            Retired { word: "Table", folder: "a/pool", replacement: "WorkerSlab" }
        );
        let text = "the Gadget\nGadgets, a_Gadget\nTimerTable and Table\n";
        let found = offences("a/pool/x.rs", text, &retired);
        assert_eq!(
            found,
            [
                "a/pool/x.rs:1: \"Gadget\" is retired; say Gizmo",
                "a/pool/x.rs:3: \"Table\" is retired; say WorkerSlab"
            ]
        );
        assert_eq!(offences("b/x.rs", text, &retired).len(), 1);
        assert!(parse("Gadget\n").is_err());
    }

    #[test]
    fn no_retired_word_is_used() {
        check().expect("all words are current");
    }
}

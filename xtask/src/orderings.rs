//! Weakens every `SeqCst` of nearq-core to acquire and release, one file at a time, and checks whether the quick models find that.
//!
//! loom treats a `SeqCst` access as an acquire and release one (but a load misses no newer `SeqCst` write), and implements `SeqCst` fences.
//! So the code has `P::model_fence()` where it relies on `SeqCst`: a fence in a model, nothing elsewhere. The fences of a file are removed
//! when it is weakened. If no test finds the weakening of a file, the file relies on orderings that no model checks: `.ci/orderings` lists
//! these files, each with the purpose of its orderings. A listed file whose weakening is found must be removed from the list.
//!
//! A file without a fence of its own relies on the fences of other files, which stay when it is weakened. So no test is run for it, and it
//! must be on the list.
#![allow(clippy::disallowed_types, reason = "a Linux program")]

use crate::mistakes::{Copy, MISSED, Mistake};
use crate::sources;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SOURCES: &str = "crates/nearq-core/src";
const FENCE: &str = "P::model_fence();";
/// Why a file is not weakened.
const NO_FENCE: &str = "no fence of its own";

/// Weakens each file, or only the named ones.
pub(crate) fn check(names: &[&str]) -> Result<String, String> {
    let root = sources::root();
    let accepted = accepted(&root)?;
    let mut files = Vec::new();
    collect(&root, Path::new(SOURCES), &mut files)?;
    files.sort();
    if !names.is_empty() {
        files = named(&files, names)?;
    }
    let copy = Copy::of(&root)?;
    let (mut count, mut wrong) = (0, Vec::new());
    for file in &files {
        let text =
            fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))?;
        let weak = weaken(&text)?;
        if weak == text {
            continue;
        }
        count += 1;
        let begun = Instant::now();
        let outcome =
            if has_fence(&text) { find(&copy, file, &text, &weak) } else { Err(NO_FENCE.into()) };
        let seconds = begun.elapsed().as_secs();
        match (outcome, accepted.get(file)) {
            (Ok(found), None) => println!("found: {file} ({found}, {seconds} s)"),
            (Err(why), Some(reason)) if [MISSED, NO_FENCE].contains(&why.as_str()) => {
                println!("listed: {file}: {why}: {reason} ({seconds} s)")
            }
            (Ok(found), Some(_)) => {
                println!("FOUND, although .ci/orderings lists it: {file} ({found}, {seconds} s)");
                wrong.push(file.as_str());
            }
            (Err(why), _) => {
                println!("NOT FOUND: {file}: {why} ({seconds} s)");
                wrong.push(file.as_str());
            }
        }
    }
    if wrong.is_empty() {
        Ok(format!("{count} files use SeqCst; each is found when it is weakened, or is listed"))
    } else {
        Err(format!("not as .ci/orderings says: {}", wrong.join(", ")))
    }
}

/// The named files. A name is a path from the root, or from the folder that `.ci/orderings` uses.
fn named(files: &[String], names: &[&str]) -> Result<Vec<String>, String> {
    let file = |name: &&str| {
        let inside = format!("{SOURCES}/{name}");
        let found = files.iter().find(|file| **file == *name || **file == inside);
        found.cloned().ok_or_else(|| format!("there is no source {inside}"))
    };
    names.iter().map(file).collect()
}

/// Whether the file has a fence, which is removed when the file is weakened.
fn has_fence(text: &str) -> bool {
    text.contains(FENCE) || text.contains("P::fence(Ordering::SeqCst)")
}

/// Which tests find the weakening; those of the file's own module are run first.
fn find(copy: &Copy, file: &str, text: &str, weak: &str) -> Result<String, String> {
    let module = file[SOURCES.len() + 1..].trim_end_matches(".rs").replace('/', "::");
    let module = format!("{module}::");
    let tests = |more: &[&str]| {
        let always = ["-p", "nearq-core", "--lib"];
        let mistake = Mistake {
            file: file.into(),
            tests: always.iter().chain(more).map(|word| (*word).into()).collect(),
            replacements: vec![(text.into(), weak.into())],
            ..Mistake::default()
        };
        copy.try_out(&mistake)
    };
    tests(&[module.as_str()]).or_else(|_| tests(&[]))
}

/// The files whose weakening no test finds, each with the reason why it stays as it is.
fn accepted(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let path = root.join(".ci/orderings");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (file, reason) =
                line.split_once(": ").ok_or_else(|| format!("no reason: {line}"))?;
            Ok((format!("{SOURCES}/{file}"), reason.into()))
        })
        .collect()
}

/// The sources below `folder`, without tests.
fn collect(root: &Path, folder: &Path, into: &mut Vec<String>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(root.join(folder)).map_err(failed)? {
        let path: PathBuf = folder.join(entry.map_err(failed)?.file_name());
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if root.join(&path).is_dir() {
            if name != "tests" {
                collect(root, &path, into)?;
            }
        } else if path.extension().is_some_and(|rest| rest == "rs")
            && !matches!(name, "tests.rs" | "plain.rs")
        {
            into.push(path.to_str().ok_or("a path that is no text")?.into());
        }
    }
    Ok(())
}

/// The text with each `SeqCst` replaced by the weakest ordering that still publishes what was written.
fn weaken(text: &str) -> Result<String, String> {
    const STRONG: &str = "Ordering::SeqCst";
    let text = text.replace(FENCE, "");
    let mut weak = String::new();
    let mut rest = 0;
    while let Some(found) = text[rest..].find(STRONG) {
        let at = rest + found;
        weak += &text[rest..at];
        weak += match argument_of(&text[..at]) {
            Some(("load", _)) => "Ordering::Acquire",
            Some(("store", _)) => "Ordering::Release",
            Some((name, 3)) if name.starts_with("compare_exchange") => "Ordering::Acquire",
            Some(_) => "Ordering::AcqRel",
            None => return Err("a SeqCst that is no argument of a call".into()),
        };
        rest = at + STRONG.len();
    }
    Ok(weak + &text[rest..])
}

/// The function whose argument follows `before`, and the number of arguments that precede it.
fn argument_of(before: &str) -> Option<(&str, usize)> {
    let (mut depth, mut commas) = (0, 0);
    for (at, letter) in before.char_indices().rev() {
        match letter {
            ')' | ']' | '}' => depth += 1,
            '(' if depth == 0 => {
                let name = before[..at].trim_end();
                let begin = name.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_');
                return Some((&name[begin.map_or(0, |begin| begin + 1)..], commas));
            }
            '(' | '[' | '{' => depth -= 1,
            ',' if depth == 0 => commas += 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ordering_becomes_the_next_weaker_one() {
        let strong = "a.load(Ordering::SeqCst); a.store(f(1, 2), Ordering::SeqCst); P::model_fence(); \
             a.swap(1, Ordering::SeqCst); a.compare_exchange(1, g(2), Ordering::SeqCst, Ordering::SeqCst); \
             P::fence(Ordering::SeqCst);";
        let weak = "a.load(Ordering::Acquire); a.store(f(1, 2), Ordering::Release);  \
             a.swap(1, Ordering::AcqRel); a.compare_exchange(1, g(2), Ordering::AcqRel, Ordering::Acquire); \
             P::fence(Ordering::AcqRel);";
        assert_eq!(weaken(strong), Ok(weak.into()));
    }

    #[test]
    fn files_are_named_in_two_ways_and_others_are_refused() {
        let files = ["run.rs", "timer/inbox.rs"].map(|file| format!("{SOURCES}/{file}"));
        let inbox = Ok(vec![files[1].clone()]);
        assert_eq!(named(&files, &["timer/inbox.rs"]), inbox);
        assert_eq!(named(&files, &[&files[1]]), inbox);
        assert!(named(&files, &["run.rs", "inbox.rs"]).is_err());
    }

    #[test]
    fn partial_fences_do_not_count() {
        assert!(!has_fence("a.load(Ordering::SeqCst); P::fence(Ordering::Acquire);"));
        assert!(has_fence("P::model_fence();") && has_fence("P::fence(Ordering::SeqCst);"));
    }

    #[test]
    fn the_list_names_files_that_have_such_orderings() {
        let root = sources::root();
        for file in accepted(&root).expect("well formed").into_keys() {
            let text = fs::read_to_string(root.join(&file)).expect(&file);
            assert_ne!(weaken(&text).expect(&file), text, "{file}");
        }
    }
}

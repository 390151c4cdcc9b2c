//! Plants mistakes in the protocols, one at a time, and sees whether the quick tests find them.
//!
//! The list is `.ci/mistakes`, whose head describes the format. Each is planted in a copy of the checkout under the target directory. A
//! mistake that the tests do not find fails the check, and so does one that cannot be planted any more or does not compile: then the list
//! must be updated. Without the mistake, the same tests must pass in that copy; otherwise their failure would mean nothing.
//!
//! `.ci/variants` has mistakes of another kind: all are planted at once, each is active only in a program whose `NEARQ_VARIANT` names it,
//! and a test checks that the fault soak finds each of them.
#![allow(clippy::disallowed_types, reason = "a Linux program")]

use crate::metadata::cargo;
use crate::sources::{self, root, target};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

/// How many seconds the tests may take without a mistake, including the build, even on a very busy machine.
const PATIENCE: u64 = 3600;
/// How many seconds the tests may take with a mistake, at least. Because of this limit, a mistake that makes a test hang is found too.
const LEAST_PATIENCE: u64 = 300;
/// How many times as long the tests may take with a mistake as without it.
const TIMES_AS_LONG: u64 = 10;

/// The reason that is given if a mistake was planted and compiled, but the tests did not find it.
pub(crate) const MISSED: &str = "the tests pass";

/// A mistake.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) name: String,
    /// What goes wrong.
    pub(crate) what: String,
    pub(crate) file: String,
    /// Arguments of `cargo test`.
    pub(crate) tests: Vec<String>,
    /// The texts that are replaced, each with its replacement.
    pub(crate) replacements: Vec<(String, String)>,
}

/// Plants each mistake, or only those whose names are given.
pub(crate) fn check(names: &[&str]) -> Result<String, String> {
    let root = root();
    let all = read(&root, ".ci/mistakes")?;
    if let Some(name) = names.iter().find(|name| all.iter().all(|mistake| mistake.name != **name)) {
        let known: Vec<&str> = all.iter().map(|mistake| mistake.name.as_str()).collect();
        return Err(format!("there is no mistake \"{name}\"; there are: {}", known.join(", ")));
    }
    let chosen: Vec<&Mistake> =
        all.iter().filter(|it| names.is_empty() || names.contains(&it.name.as_str())).collect();
    let copy = Copy::of(&root)?;
    let mut missed = Vec::new();
    for mistake in &chosen {
        let begun = Instant::now();
        let outcome = copy.try_out(mistake);
        let seconds = begun.elapsed().as_secs();
        match outcome {
            Ok(found) => {
                println!("found: {}: {} ({found}, {seconds} s)", mistake.name, mistake.what)
            }
            Err(why) => {
                println!("NOT FOUND: {}: {}: {why}", mistake.name, mistake.what);
                missed.push(mistake.name.as_str());
            }
        }
    }
    if missed.is_empty() {
        Ok(format!("all {} planted mistakes were found", chosen.len()))
    } else {
        Err(format!("planted mistakes that were not found: {}", missed.join(", ")))
    }
}

/// Plants all variants at once, and runs the test that looks for each.
pub(crate) fn check_variants() -> Result<String, String> {
    let root = root();
    let variants = read(&root, ".ci/variants")?;
    let mut planted = BTreeMap::new();
    for variant in &variants {
        let file = PathBuf::from(&variant.file);
        let text = match planted.remove(&file) {
            Some(text) => text,
            None => fs::read_to_string(root.join(&file))
                .map_err(|error| format!("{}: {error}", variant.file))?,
        };
        planted.insert(file, plant(variant, &text)?);
    }
    let tests = variants.first().map(|variant| &variant.tests).ok_or("there are no variants")?;
    let folder = target(&root).join("variants");
    let copy = Copy::made(&root, &folder, &planted)?;
    let status = copy.cargo_test(tests, PATIENCE).status().map_err(no_timeout)?;
    if status.success() {
        Ok("each variant was found".into())
    } else {
        Err(format!("variants that were not found, see above: cargo test ended with {status}"))
    }
}

/// The mistakes of a list.
fn read(root: &Path, list: &str) -> Result<Vec<Mistake>, String> {
    parse(&fs::read_to_string(root.join(list)).map_err(|error| format!("{list}: {error}"))?)
}

fn no_timeout(error: io::Error) -> String {
    format!("timeout cannot be run: {error}")
}

/// A copy of the checkout, as it is on the disk.
pub(crate) struct Copy {
    root: PathBuf,
    target: PathBuf,
    /// How many seconds the tests take without a mistake, by their arguments.
    sound: RefCell<HashMap<Vec<String>, u64>>,
}

impl Copy {
    pub(crate) fn of(root: &Path) -> Result<Self, String> {
        let folder = target(root).join("mistakes");
        Self::made(root, &folder, &BTreeMap::new())
    }

    /// A copy in `folder`. It is also built there, because cargo does not distinguish the crates of two checkouts. Some files get other
    /// texts.
    fn made(
        root: &Path,
        folder: &Path,
        planted: &BTreeMap<PathBuf, String>,
    ) -> Result<Self, String> {
        let copy = folder.join("checkout");
        fs::create_dir_all(&copy).map_err(|error| format!("{}: {error}", copy.display()))?;
        let copy = fs::canonicalize(&copy).map_err(|error| error.to_string())?;
        make_same(root, &sources::files(root)?, &copy, planted)
            .map_err(|error| format!("the checkout cannot be copied: {error}"))?;
        Ok(Copy { root: copy, target: folder.join("target"), sound: RefCell::default() })
    }

    /// How the mistake was found, or why it was not.
    pub(crate) fn try_out(&self, mistake: &Mistake) -> Result<String, String> {
        let path = self.root.join(&mistake.file);
        let original =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", mistake.file))?;
        let planted = plant(mistake, &original)?;
        let seconds = self.without(&mistake.tests)?;
        fs::write(&path, planted).map_err(|error| format!("{}: {error}", mistake.file))?;
        let outcome = self.run(mistake, LEAST_PATIENCE.max(TIMES_AS_LONG * seconds));
        fs::write(&path, original).map_err(|error| format!("{}: {error}", mistake.file))?;
        outcome
    }

    /// How many seconds the tests take without a mistake. They must pass, and are run only once.
    fn without(&self, tests: &[String]) -> Result<u64, String> {
        if let Some(seconds) = self.sound.borrow().get(tests) {
            return Ok(*seconds);
        }
        self.test(tests, &["--no-run"], PATIENCE)?;
        let begun = Instant::now();
        if !self.test(tests, &[], PATIENCE)?.status.success() {
            return Err(format!("without it `cargo test {}` fails too", tests.join(" ")));
        }
        let seconds = begun.elapsed().as_secs();
        self.sound.borrow_mut().insert(tests.into(), seconds);
        Ok(seconds)
    }

    fn run(&self, mistake: &Mistake, patience: u64) -> Result<String, String> {
        let built = self.test(&mistake.tests, &["--no-run"], PATIENCE)?;
        if !built.status.success() {
            let output = String::from_utf8_lossy(&built.stderr);
            let error = output.lines().find(|line| line.starts_with("error")).unwrap_or("no error");
            return Err(format!("it does not compile: {error}"));
        }
        let ran = self.test(&mistake.tests, &[], patience)?;
        if ran.status.success() {
            return Err(MISSED.into());
        }
        let output = String::from_utf8_lossy(&ran.stdout);
        let failed = output.lines().filter(|line| line.ends_with("... FAILED")).count();
        Ok(match (ran.status.code(), failed) {
            (Some(124), _) => "the tests hang".into(),
            (_, 0) => format!("the tests end with {}", ran.status),
            (_, failed) => format!("{failed} tests fail"),
        })
    }

    fn test(&self, tests: &[String], more: &[&str], patience: u64) -> Result<Output, String> {
        self.cargo_test(tests, patience).args(more).output().map_err(no_timeout)
    }

    fn cargo_test(&self, tests: &[String], patience: u64) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg(patience.to_string())
            .arg(cargo().get_program())
            .args(["test", "--locked"])
            .args(tests)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target);
        command
    }
}

/// Makes `copy` contain exactly these files of `root`, some of them with another text. A file that has not changed is not written, so it
/// does not cause a rebuild.
fn make_same(
    root: &Path,
    files: &BTreeSet<PathBuf>,
    copy: &Path,
    planted: &BTreeMap<PathBuf, String>,
) -> Result<(), String> {
    remove_others(copy, Path::new(""), files)?;
    for file in files {
        let (from, to) = (root.join(file), copy.join(file));
        let failed = |error: io::Error| format!("{}: {error}", to.display());
        let new = match planted.get(file) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?,
        };
        if fs::read(&to).is_ok_and(|old| old == new) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(copy)).map_err(failed)?;
        // This also copies the permissions.
        fs::copy(&from, &to).map_err(failed)?;
        if planted.contains_key(file) {
            fs::write(&to, new).map_err(failed)?;
        }
    }
    Ok(())
}

/// Removes everything except these files from `folder` of the copy. Returns whether any of these files is in it.
fn remove_others(copy: &Path, folder: &Path, files: &BTreeSet<PathBuf>) -> Result<bool, String> {
    let failed = |error: io::Error| format!("{}: {error}", copy.join(folder).display());
    let mut has_files = false;
    for entry in fs::read_dir(copy.join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = folder.join(entry.file_name());
        if entry.file_type().map_err(failed)?.is_dir() {
            if remove_others(copy, &path, files)? {
                has_files = true;
            } else {
                fs::remove_dir(entry.path()).map_err(failed)?;
            }
        } else if files.contains(&path) {
            has_files = true;
        } else {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(has_files)
}

/// The text of the file with the mistake in it.
fn plant(mistake: &Mistake, text: &str) -> Result<String, String> {
    let mut text = text.to_owned();
    for (old, new) in &mistake.replacements {
        match text.matches(old.as_str()).count() {
            1 => text = text.replace(old.as_str(), new),
            count => {
                return Err(format!(
                    "the text to replace occurs {count} times in {} (it must occur once):\n{old}",
                    mistake.file
                ));
            }
        }
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Vec<Mistake>, String> {
    let mut mistakes = Vec::new();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    for line in lines {
        if let Some(title) = line.strip_prefix("== ") {
            let (name, what) = title.split_once(": ").ok_or_else(|| format!("no name: {line}"))?;
            mistakes.push(Mistake { name: name.into(), what: what.into(), ..Mistake::default() });
            continue;
        }
        let mistake =
            mistakes.last_mut().ok_or_else(|| format!("before the first mistake: {line}"))?;
        if mistake.file.is_empty() {
            mistake.file = line.into();
        } else if mistake.tests.is_empty() {
            mistake.tests = line.split(' ').map(String::from).collect();
        } else if let Some(old) = line.strip_prefix('-') {
            match mistake.replacements.last_mut() {
                Some((before, new)) if new.is_empty() => *before += &format!("{old}\n"),
                _ => mistake.replacements.push((format!("{old}\n"), String::new())),
            }
        } else if let (Some(new), Some((_, after))) =
            (line.strip_prefix('+'), mistake.replacements.last_mut())
        {
            *after += &format!("{new}\n");
        } else {
            return Err(format!(
                "{}: a line that is neither replaced nor new: {line}",
                mistake.name
            ));
        }
    }
    match mistakes.iter().find(|mistake| mistake.replacements.is_empty()) {
        Some(mistake) => Err(format!("{}: nothing is replaced", mistake.name)),
        None => Ok(mistakes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# A list.\n\n== one: it is lost\na.rs\n-p a --lib\n-old\n-more\n+new\n-second\n+2\n+3\n";

    #[test]
    fn a_list_is_read() {
        let expected = Mistake {
            name: "one".into(),
            what: "it is lost".into(),
            file: "a.rs".into(),
            tests: vec!["-p".into(), "a".into(), "--lib".into()],
            replacements: vec![
                ("old\nmore\n".into(), "new\n".into()),
                ("second\n".into(), "2\n3\n".into()),
            ],
        };
        assert_eq!(parse(TEXT), Ok(vec![expected]));
    }

    #[test]
    fn a_mistake_is_planted_where_its_lines_occur_once() {
        let mistake = &parse(TEXT).expect("well formed")[0];
        assert_eq!(plant(mistake, "a\nold\nmore\nsecond\nb\n"), Ok("a\nnew\n2\n3\nb\n".into()));
        assert!(plant(mistake, "old\nsecond\n").is_err());
        assert!(plant(mistake, "old\nmore\nold\nmore\nsecond\n").is_err());
    }

    #[test]
    fn invalid_mistakes_are_refused() {
        assert!(parse("== one: x\na.rs\n-p a\n").is_err(), "nothing is replaced");
        assert!(parse("a.rs\n").is_err(), "no name");
        assert!(parse("== one: x\na.rs\n-p a\n-old\n+new\nother\n").is_err());
    }

    #[test]
    fn a_copy_has_exactly_the_files_of_the_checkout() {
        let folder = std::env::temp_dir().join(format!("nearq-xtask-{}", std::process::id()));
        let (root, copy) = (folder.join("root"), folder.join("copy"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("in a folder")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        };
        write(root.join("a/b/new"), "new");
        write(root.join("a/changed"), "after");
        write(root.join("same"), "same");
        write(copy.join("a/changed"), "before");
        write(copy.join("same"), "same");
        write(copy.join("a/gone"), "of a file that has been deleted");
        write(copy.join("gone/with/its"), "folder");
        let written = |name: &str| fs::metadata(copy.join(name)).and_then(|it| it.modified()).ok();
        let before = written("same");
        let files = ["a/b/new", "a/changed", "same"].map(PathBuf::from);
        let planted = BTreeMap::from([(PathBuf::from("a/changed"), "planted".to_owned())]);
        let made = make_same(&root, &BTreeSet::from(files.clone()), &copy, &planted);
        let after = written("same");
        let texts = files.map(|file| fs::read_to_string(copy.join(file)).unwrap_or_default());
        let left = copy.join("a/gone").exists() || copy.join("gone").exists();
        let missing = BTreeSet::from([PathBuf::from("nothing")]);
        let refused = make_same(&root, &missing, &copy, &BTreeMap::new());
        fs::remove_dir_all(&folder).expect("made above");
        assert_eq!(made, Ok(()));
        assert_eq!(texts, ["new", "planted", "same"]);
        assert!(!left, "a deleted file stays in the copy");
        assert!(refused.is_err_and(|why| why.contains("nothing")), "an error is seen");
        assert_eq!(before, after, "unchanged files are not written");
    }

    /// Each mistake of the project's own lists can be planted in the sources as they are.
    #[test]
    fn the_lists_fit_the_sources() {
        for (list, least) in [(".ci/mistakes", 20), (".ci/variants", 6)] {
            let mistakes = read(&root(), list).expect("well formed");
            assert!(mistakes.len() >= least);
            for mistake in mistakes {
                let source = fs::read_to_string(root().join(&mistake.file)).expect(&mistake.file);
                let planted = plant(&mistake, &source)
                    .unwrap_or_else(|why| panic!("{}: {why}", mistake.name));
                assert_ne!(planted, source, "{}", mistake.name);
            }
        }
    }
}

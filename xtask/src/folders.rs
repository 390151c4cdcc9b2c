//! The plan of nearq-core's folders: which folder may import which. Imports only point down. Files that import each other are in one
//! folder, and there are few of them. ARCHITECTURE.md says what each folder is for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::sources;

const SOURCES: &str = "crates/nearq-core/src";

/// A folder, and the folders that it may import.
type FolderRule = (&'static str, &'static [&'static str]);

/// Every folder, in an order in which no folder imports a later one. The only file beside the folders is `lib.rs`, which may import all of
/// them.
const PLAN: [FolderRule; 16] = [
    ("base", &[]),
    ("deque", &["base"]),
    ("homes", &["base"]),
    ("layout", &["base", "homes"]),
    ("timer", &["base", "layout"]),
    ("item", &["base", "homes", "timer"]),
    ("observe", &["base", "item"]),
    ("pool", &["base", "deque", "homes", "layout", "item"]),
    ("limit", &["base", "layout", "item", "pool"]),
    ("runtime", &["base", "homes", "layout", "timer", "observe", "pool"]),
    ("queue", &["base", "homes", "layout", "timer", "item", "observe", "pool", "limit", "runtime"]),
    ("run", &["base", "homes", "layout", "item", "pool", "limit", "runtime", "queue"]),
    ("monitor", &["base", "pool", "limit", "runtime", "queue"]),
    ("task", &["base", "homes", "item", "pool", "limit", "queue"]),
    ("fork_join", &["base", "deque", "pool", "limit", "queue"]),
    (
        "user",
        &[
            "base",
            "homes",
            "layout",
            "item",
            "observe",
            "pool",
            "limit",
            "runtime",
            "queue",
            "monitor",
            "task",
            "fork_join",
        ],
    ),
];

/// The largest number of files that may import each other in a circle.
const LARGEST_CIRCLE: usize = 6;

/// Names every import that is not in the plan, and every circle that is too large or spans folders.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join(SOURCES);
    let mut files = BTreeMap::new();
    sources::each(&folder, &mut |path, text| {
        let module = path.strip_prefix(&folder).expect("it is below").with_extension("");
        files.insert(module.to_string_lossy().into_owned(), stripped(text));
    })?;
    Ok(offences(&files))
}

/// The text without comments and without code that is compiled only for tests, except the declarations of test files.
fn stripped(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n");
    match text.find("#[cfg(test)]\nmod tests {") {
        Some(tests) => text[..tests].to_owned(),
        None => text,
    }
}

fn offences(files: &BTreeMap<String, String>) -> Vec<String> {
    let graph = Graph::of(files);
    let mut offences = Vec::new();
    for (from, to) in &graph.imports {
        let (folder, other) = (folder_of(from), folder_of(to));
        let Some((_, may_import)) = PLAN.iter().find(|(name, _)| *name == folder) else {
            offences.push(format!("{SOURCES}/{from}.rs: no such folder in the plan"));
            continue;
        };
        if folder != other && !may_import.contains(&other) {
            offences
                .push(format!("{SOURCES}/{from}.rs may not import {to}.rs, of the folder {other}"));
        }
    }
    for circle in graph.circles() {
        let folders: BTreeSet<_> = circle.iter().map(|file| folder_of(file)).collect();
        if folders.len() > 1 || circle.len() > LARGEST_CIRCLE {
            let files = circle.join(" ");
            offences.push(format!(
                "{SOURCES}: these files import each other; {LARGEST_CIRCLE} of one folder may: {files}"
            ));
        }
    }
    if !offences.is_empty() {
        offences.push("the plan is in xtask/src/folders.rs".into());
    }
    offences
}

fn folder_of(file: &str) -> &str {
    file.split('/').next().unwrap_or(file)
}

/// Which files import which.
struct Graph {
    imports: BTreeSet<(String, String)>,
}

/// A path in the sources, from the crate's root.
type ModulePath = Vec<String>;

impl Graph {
    fn of(files: &BTreeMap<String, String>) -> Self {
        let tests = test_files(files);
        let is_test = |file: &str| {
            tests.iter().any(|test| file == test || file.starts_with(&format!("{test}/")))
        };
        let sources: BTreeMap<&str, &str> = files
            .iter()
            .filter(|(file, _)| !is_test(file))
            .map(|(file, text)| (file.as_str(), text.as_str()))
            .collect();
        // What a file re-exports from other files: a name, and the file that defines it.
        let mut handed_on = BTreeMap::new();
        for (file, text) in &sources {
            for path in uses(text, true) {
                let Some(path) = absolute(file, &path, &sources) else { continue };
                if let Some((owner, [name, ..])) = find(&path, &sources) {
                    handed_on.insert((*file, name.clone()), owner);
                }
            }
        }
        let mut imports = BTreeSet::new();
        for (file, text) in sources.iter().filter(|(file, _)| **file != "lib") {
            for path in uses(text, false).into_iter().chain(paths(text)) {
                let Some(path) = absolute(file, &path, &sources) else { continue };
                // A name at the root is one that `lib.rs` re-exports.
                let (owner, rest) = find(&path, &sources).unwrap_or(("lib", &path));
                let first = rest.first().cloned().unwrap_or_default();
                let owner = handed_on.get(&(owner, first)).copied().unwrap_or(owner);
                if owner != *file && owner != "lib" {
                    imports.insert(((*file).to_owned(), owner.to_owned()));
                }
            }
        }
        Graph { imports }
    }

    /// The sets of files that import each other, directly or not.
    fn circles(&self) -> Vec<Vec<String>> {
        let files: BTreeSet<&str> =
            self.imports.iter().flat_map(|(from, to)| [from.as_str(), to.as_str()]).collect();
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            files.iter().map(|file| (*file, self.reached_from(file))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for file in &files {
            let circle: Vec<String> = reached[file]
                .iter()
                .filter(|other| reached[*other].contains(file))
                .map(|other| (*other).to_owned())
                .collect();
            if circle.len() > 1 && seen.insert(circle.clone()) {
                circles.push(circle);
            }
        }
        circles
    }

    fn reached_from<'a>(&'a self, file: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&str> = vec![file];
        while let Some(file) = next.pop() {
            let imported = self.imports.iter().filter(|(from, _)| from == file);
            next.extend(imported.map(|(_, to)| to.as_str()).filter(|to| reached.insert(*to)));
        }
        reached
    }
}

/// Files that are compiled only for tests: each is declared with `#[cfg(test)]` or by another such file.
fn test_files(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut tests = Vec::new();
    for (file, text) in files {
        let folder = if file == "lib" { String::new() } else { format!("{file}/") };
        let mut lines = text.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            let is_for_tests = line.starts_with("#[cfg(") && line.contains("test");
            // Other attributes may come in between.
            while is_for_tests && lines.next_if(|line| line.starts_with("#[")).is_some() {}
            let declared = lines
                .peek()
                .and_then(|line| line.rsplit_once("mod "))
                .and_then(|(_, name)| name.strip_suffix(';'));
            if let (true, Some(name)) = (is_for_tests, declared) {
                tests.push(format!("{folder}{name}"));
            }
        }
    }
    tests
}

/// The paths of `use` declarations; with `handed_on`, only of those that other files see.
fn uses(text: &str, handed_on: bool) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("use ") {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = text[line..at].trim();
        let Some(end) = text[at..].find(';') else { continue };
        if before.is_empty() && !handed_on || before.starts_with("pub") {
            expand(text[at + 4..at + end].trim(), &[], &mut found);
        }
    }
    found
}

/// Splits a tree of imports into single paths.
fn expand(tree: &str, before: &[String], into: &mut Vec<ModulePath>) {
    let Some((base, rest)) = tree.split_once('{') else {
        let tree = tree.split(" as ").next().unwrap_or(tree);
        into.push(before.iter().cloned().chain(segments(tree)).collect());
        return;
    };
    let before: ModulePath = before.iter().cloned().chain(segments(base)).collect();
    let (mut depth, mut start) = (0, 0);
    let rest = rest.trim_end();
    let rest = rest.strip_suffix('}').unwrap_or(rest);
    for (at, character) in rest.char_indices().chain([(rest.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let each = rest[start..at].trim();
                if !each.is_empty() {
                    expand(each, &before, into);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

fn segments(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(str::trim).filter(|segment| !segment.is_empty()).map(str::to_owned)
}

/// The paths in the text that begin at the crate's root or at an enclosing module.
fn paths(text: &str) -> Vec<ModulePath> {
    let is_part = |character: char| character.is_alphanumeric() || matches!(character, '_' | ':');
    text.split(|character| !is_part(character))
        .filter(|word| ["crate::", "super::", "self::"].iter().any(|root| word.starts_with(root)))
        .map(|word| segments(word).collect())
        .collect()
}

/// The path from the crate's root; none if it leads out of the crate.
fn absolute(file: &str, path: &[String], files: &BTreeMap<&str, &str>) -> Option<ModulePath> {
    let own_path: ModulePath =
        if file == "lib" { Vec::new() } else { segments(&file.replace('/', "::")).collect() };
    let up = path.iter().take_while(|segment| *segment == "super").count();
    let (base, rest) = match path.first().map(String::as_str) {
        Some("crate") => (Vec::new(), &path[1..]),
        Some("self") => (own_path, &path[1..]),
        Some("super") => (own_path[..own_path.len().checked_sub(up)?].to_vec(), &path[up..]),
        Some(first) => {
            let child =
                own_path.iter().cloned().chain([first.to_owned()]).collect::<Vec<_>>().join("/");
            files.contains_key(child.as_str()).then_some(())?;
            (own_path, path)
        }
        None => return None,
    };
    Some(base.into_iter().chain(rest.iter().cloned()).collect())
}

/// The file that a path leads to, and what is left of the path.
fn find<'a, 'b>(
    path: &'a [String],
    files: &BTreeMap<&'b str, &str>,
) -> Option<(&'b str, &'a [String])> {
    (1..=path.len()).rev().find_map(|length| {
        let file = path[..length].join("/");
        let (file, _) = files.get_key_value(file.as_str())?;
        Some((*file, &path[length..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_of(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|&(file, text)| (file.to_owned(), stripped(text))).collect();
        let mut offences = offences(&files);
        offences.pop();
        offences
    }

    #[test]
    fn the_plan_has_no_circles() {
        for (index, (name, may_import)) in PLAN.iter().enumerate() {
            let earlier = |other: &&str| PLAN[..index].iter().any(|(folder, _)| folder == other);
            assert!(may_import.iter().all(earlier), "{name} imports what comes later");
        }
    }

    #[test]
    fn an_upward_import_is_named_however_it_is_written() {
        let up = |text| {
            let offences = offences_of(&[
                ("base", "pub mod event;"),
                ("base/event", text),
                ("pool", "pub(crate) mod worker;\npub(crate) use worker::Table;\n"),
                ("pool/worker", ""),
                ("lib", "pub use pool::worker::Worker;"),
            ]);
            offences.len()
        };
        assert_eq!(up("// crate::pool\nuse core::cell::Cell;"), 0);
        for text in [
            "use crate::pool::worker::Worker;",
            "use crate::{Worker};",
            "use crate::pool::{worker::{self, Worker}, Pool};",
            "fn f() { crate::pool::worker::f() }",
            "use super::super::pool::Table;",
            "fn f() -> crate::Worker {}",
        ] {
            assert_ne!(up(text), 0, "{text}");
        }
    }

    #[test]
    fn test_only_code_may_import_anything() {
        let base = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\n#[cfg(not(miri))]\nmod plain;\n";
        let files = [
            ("base", base),
            ("base/tests", "use crate::pool::Pool;\nmod more;\n"),
            ("base/tests/more", "use crate::pool::Pool;"),
            ("base/plain", "use crate::pool::Pool;"),
            ("pool", ""),
        ];
        assert_eq!(offences_of(&files), [""; 0]);
    }

    #[test]
    fn circles_that_are_large_or_span_folders_are_named() {
        let next = |number: usize| format!("use crate::base::f{};", number % 7);
        let texts: Vec<(String, String)> =
            (0..7).map(|number| (format!("base/f{number}"), next(number + 1))).collect();
        let files: Vec<_> = texts.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let offences = offences_of(&files);
        assert_eq!(offences.len(), 1, "{offences:?}");
        assert!(offences[0].contains("base/f0 base/f1 base/f2"));
        let six: Vec<_> = files[..6].to_vec();
        assert_eq!(offences_of(&six), [""; 0], "no circle");
    }
}

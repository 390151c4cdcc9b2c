//! Checks the links of the documents: a link from a Markdown file to another file of the checkout leads to a file that exists, and to a
//! heading that it has. If the text of a link is code, the file contains it: a test, a function, a key, a variable or a command that a
//! document names is still there. Links to other sites are checked by their form alone, because a check must not depend on the network.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use crate::sources;

/// A link of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Where its destination is in the document's text.
    pub(crate) range: Range<usize>,
    /// What the document says: an address, a path from the document's folder, a heading, or a path with a heading.
    pub(crate) destination: String,
    /// The text of the link, if it is one code span and nothing else.
    code: Option<String>,
}

/// Where a link leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To another site.
    Site,
    /// To a file or folder of the checkout, by its path from the root, and to that heading of it.
    File(PathBuf, Option<String>),
}

/// Reports each link that leads nowhere.
pub(crate) fn check() -> Result<String, String> {
    let root = sources::root();
    let files = sources::files(&root)?;
    // A link in the file system has the text of another document, which is checked where it is.
    let is_document = |file: &&PathBuf| {
        file.extension().is_some_and(|it| it == "md") && !root.join(file).is_symlink()
    };
    let mut offences = Vec::new();
    let mut count = 0;
    let mut read = BTreeMap::new();
    for document in files.iter().filter(is_document) {
        let text = fs::read_to_string(root.join(document))
            .map_err(|error| format!("{}: {error}", document.display()))?;
        read.insert(document.clone(), text);
    }
    let headings: BTreeMap<&Path, BTreeSet<String>> =
        read.iter().map(|(document, text)| (document.as_path(), anchors(text))).collect();
    for (document, text) in &read {
        for link in links(text) {
            count += 1;
            let followed = follow(&root, document, &link.destination, &headings);
            if let Err(why) = followed.and_then(|()| finds(&root, document, &link)) {
                let line = 1 + text[..link.range.start].matches('\n').count();
                offences.push(format!("{}:{line}: {why}", document.display()));
            }
        }
    }
    if offences.is_empty() {
        Ok(format!("the {count} links of {} documents lead somewhere", read.len()))
    } else {
        Err(offences.join("\n"))
    }
}

/// Whether a link leads somewhere.
fn follow(
    root: &Path,
    document: &Path,
    destination: &str,
    headings: &BTreeMap<&Path, BTreeSet<String>>,
) -> Result<(), String> {
    let Target::File(path, heading) = target(document, destination)? else { return Ok(()) };
    if !root.join(&path).exists() {
        return Err(format!("`{destination}`: there is no {}", path.display()));
    }
    match (heading, headings.get(path.as_path())) {
        (Some(heading), Some(known)) if !known.contains(&heading) => {
            Err(format!("`{destination}`: {} has no heading `#{heading}`", path.display()))
        }
        _ => Ok(()),
    }
}

/// Whether the file that a link leads to contains the text of the link, if that is code: as whole words, and in a Rust file not in a
/// comment alone. A file also has its own name and the end of its path. A link to a heading, a folder or another site may have any text.
fn finds(root: &Path, document: &Path, link: &Link) -> Result<(), String> {
    let Some(code) = &link.code else { return Ok(()) };
    let Target::File(path, None) = target(document, &link.destination)? else { return Ok(()) };
    if path.ends_with(code) || !root.join(&path).is_file() {
        return Ok(());
    }
    let name = path.display();
    let text = fs::read_to_string(root.join(&path)).map_err(|error| format!("{name}: {error}"))?;
    let is_rust = path.extension().is_some_and(|it| it == "rs");
    let is_comment = |line: &str| is_rust && line.trim_start().starts_with("//");
    if text.lines().any(|line| !is_comment(line) && contains(line, code)) {
        Ok(())
    } else {
        Err(format!("there is no `{code}` in {name}"))
    }
}

/// Whether a line contains a text that is not part of a longer word.
fn contains(line: &str, text: &str) -> bool {
    let is_word = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    };
    line.match_indices(text).any(|(at, _)| {
        !is_word(line[..at].chars().next_back()) && !is_word(line[at + text.len()..].chars().next())
    })
}

/// Where a link of a document leads, whether it exists or not.
pub(crate) fn target(document: &Path, destination: &str) -> Result<Target, String> {
    if let Some((scheme, rest)) = destination.split_once(':') {
        let is_address = scheme == "https" && rest.starts_with("//") && rest.len() > 2;
        if is_address && !rest.contains(char::is_whitespace) {
            return Ok(Target::Site);
        }
        return Err(format!("`{destination}` is no address that begins with https://"));
    }
    let (path, heading) = match destination.split_once('#') {
        Some((path, heading)) => (path, Some(heading.to_owned())),
        None => (destination, None),
    };
    if path.is_empty() {
        return Ok(Target::File(document.to_owned(), heading));
    }
    let folder = document.parent().unwrap_or(Path::new(""));
    match within(&folder.join(path)) {
        Some(path) => Ok(Target::File(path, heading)),
        None => Err(format!("`{destination}` leads out of the checkout")),
    }
}

/// A path without `.` and `..`; nothing if it leaves the folder where it begins.
pub(crate) fn within(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir if plain.pop() => {}
            _ => return None,
        }
    }
    Some(plain)
}

/// The links and pictures of a document, in order, except those that are addresses in angle brackets.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let mut events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter().peekable();
    while let Some((event, range)) = events.next() {
        let Event::Start(
            Tag::Link { dest_url: destination, .. } | Tag::Image { dest_url: destination, .. },
        ) = event
        else {
            continue;
        };
        // The destination comes last, before a title and the closing parenthesis.
        let Some(at) = text[range.clone()].rfind(&*destination) else { continue };
        let start = range.start + at;
        let code = match events.peek() {
            Some((Event::Code(code), span)) if is_all_of(&text[range], &text[span.clone()]) => {
                Some(code.to_string())
            }
            _ => None,
        };
        links.push(Link {
            range: start..start + destination.len(),
            destination: destination.into_string(),
            code,
        });
    }
    // A picture within a link begins after the link, and its destination comes before that of the link.
    links.sort_by_key(|link| link.range.start);
    links
}

/// Whether a code span is the whole text of a link.
fn is_all_of(link: &str, span: &str) -> bool {
    link.strip_prefix('[')
        .and_then(|link| link.strip_prefix(span))
        .is_some_and(|rest| rest.starts_with(']'))
}

/// The anchors of a document's headings, as forges and mdBook name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    *heading += &text;
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let name = anchor(&heading.take().unwrap_or_default());
                let taken = (1..).map(|number| format!("{name}-{number}"));
                let free = [name.clone()].into_iter().chain(taken);
                anchors.extend(free.into_iter().find(|name| !anchors.contains(name)));
            }
            _ => {}
        }
    }
    anchors
}

/// The anchor of a heading: small letters, hyphens for blanks, and no other signs.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_tables_and_not_in_code() {
        let text = "A [b](c.md) and `[no](no.md)`.\n\n| [x](y.md#z) |\n|---|\n| ![p](p.svg \"t\") |\n\n\
                    ```\n[no](no.md)\n```\n\n[![q](q.svg)](r.md)\n";
        let found: Vec<String> = links(text).into_iter().map(|link| link.destination).collect();
        assert_eq!(found, ["c.md", "y.md#z", "p.svg", "q.svg", "r.md"]);
        for link in links(text) {
            assert_eq!(text[link.range], link.destination);
        }
    }

    #[test]
    fn a_path_is_read_from_the_documents_folder() {
        let document = Path::new("docs/design/homes.md");
        let file = |path: &str, heading: Option<&str>| {
            Ok(Target::File(PathBuf::from(path), heading.map(str::to_owned)))
        };
        assert_eq!(target(document, "../home.md"), file("docs/home.md", None));
        assert_eq!(target(document, "../../README.md#try"), file("README.md", Some("try")));
        assert_eq!(target(document, "#here"), file("docs/design/homes.md", Some("here")));
        assert_eq!(target(document, "https://docs.rs/rayon"), Ok(Target::Site));
        for wrong in ["../../../etc", "http://docs.rs", "https:docs.rs", "https://a b", "mailto:a"]
        {
            assert!(target(document, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn headings_have_the_anchors_that_forges_give_them() {
        let text =
            "# `nearq` top, *and* more\n## A-b_c: d?\n## Two\ntext\n## Two\n```\n# no\n```\n";
        let expected = ["nearq-top-and-more", "a-b_c-d", "two", "two-1"].map(str::to_owned);
        assert_eq!(anchors(text), BTreeSet::from(expected));
    }

    #[test]
    fn a_link_to_a_missing_file_or_heading_is_an_offence() {
        let root = sources::root();
        let readme = Path::new("README.md");
        let headings = BTreeMap::from([(readme, BTreeSet::from(["try-it".to_owned()]))]);
        let follow = |destination| follow(&root, readme, destination, &headings);
        assert_eq!(follow("docs/home.md"), Ok(()));
        assert_eq!(follow("README.md#try-it"), Ok(()));
        assert!(follow("docs/homely.md").unwrap_err().contains("there is no docs/homely.md"));
        assert!(follow("#try-this").unwrap_err().contains("no heading `#try-this`"));
    }

    #[test]
    fn a_link_whose_text_is_code_leads_to_a_file_that_contains_it() {
        let root = sources::root();
        let find = |text: &str| {
            let found = links(text);
            let [link] = found.as_slice() else { panic!("one link: {found:?}") };
            finds(&root, Path::new("README.md"), link)
        };
        let here = "xtask/src/links.rs";
        let test = "a_link_to_a_missing_file_or_heading_is_an_offence";
        assert_eq!(find(&format!("[`{test}`]({here})")), Ok(()));
        // The file also has its name, and the end of its path.
        assert_eq!(find(&format!("[`src/links.rs`]({here})")), Ok(()));
        // Not a whole word, and in a comment alone.
        let remark = ["is not part of", "a longer word"].join(" ");
        for missing in [&test[..20], &remark] {
            let why = find(&format!("[`{missing}`]({here})")).unwrap_err();
            assert_eq!(why, format!("there is no `{missing}` in {here}"));
        }
        // In prose a text is a text, and what a folder or a heading is called is free.
        assert_eq!(find(&format!("[{}]({here})", &test[..20])), Ok(()));
        assert_eq!(find(&format!("[the `{}`]({here})", &test[..20])), Ok(()));
        assert_eq!(find("[`the folder`](xtask/src)"), Ok(()));
        assert_eq!(find("[`the heading`](README.md#try-it)"), Ok(()));
    }

    #[test]
    fn every_link_of_the_documents_leads_somewhere() {
        check().expect("all links lead somewhere");
    }
}

//! Builds the book from docs with mdBook, and checks what it has built.
//!
//! The pages are those that the forge shows, unchanged. mdBook calls this program for each build (`[preprocessor.repository]` in
//! docs/book.toml), because of three things that the forge does and mdBook does not:
//!
//! - A page may be outside of docs, such as CHANGELOG.md. The book gets it under its path from the root of the checkout.
//! - A link may lead to a file that is no page, such as a source. In the book it leads to the repository.
//! - A link to a folder leads to the page README.md in it.
//!
//! Afterwards every link and every anchor in the HTML is followed.

mod html;

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::links::{self, Target};
use crate::sources;

/// The folder of the book's configuration, its list of pages, and most of its pages.
const BOOK: &str = "docs";
const PAGES: &str = "docs/SUMMARY.md";

/// Builds the book and checks it.
pub(crate) fn check() -> Result<String, String> {
    let root = root()?;
    if Command::new("mdbook").arg("--version").output().is_err() {
        return Ok("skipped: the book: there is no mdbook; to have it: \
                   cargo install --locked mdbook --version ^0.5.4 --no-default-features --features search"
            .into());
    }
    let target = std::path::absolute(sources::target(&root)).map_err(|error| error.to_string())?;
    let book = target.join("book");
    let mut mdbook = Command::new("mdbook");
    mdbook.args(["build", BOOK, "--dest-dir"]).arg(&book).current_dir(&root);
    let output = mdbook.output().map_err(|error| format!("mdbook: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_problem = |line: &str| ["WARN", "ERROR"].iter().any(|level| line.contains(level));
    if !output.status.success() || said.lines().any(is_problem) {
        return Err(format!("mdbook: {said}"));
    }
    let counts = html::check(&book)?;
    Ok(format!("{}: {counts}", book.display()))
}

/// What mdBook calls: with `supports RENDERER`, says whether the pages can be prepared for it; otherwise prepares those on standard input.
pub(crate) fn prepare(arguments: &[&str]) -> Result<String, String> {
    if let ["supports", _] = arguments {
        return Ok(String::new());
    }
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).map_err(|error| error.to_string())?;
    let input: Value = serde_json::from_str(&input).map_err(|error| error.to_string())?;
    let [_, book] = input.as_array().map_or(&[][..], Vec::as_slice) else {
        return Err("mdBook did not send a pair of its context and the book".into());
    };
    let mut book = book.clone();
    let root = root()?;
    let mut pages = Pages { root: &root, repository: repository(&root)?, paths: BTreeMap::new() };
    pages.place(&mut book)?;
    pages.all_are_listed()?;
    pages.rewrite(&mut book)?;
    Ok(book.to_string())
}

fn root() -> Result<PathBuf, String> {
    let root = sources::root();
    root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))
}

/// The address of the repository, which Cargo.toml has.
fn repository(root: &Path) -> Result<String, String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))
        .map_err(|error| format!("Cargo.toml: {error}"))?;
    let address = manifest.lines().find_map(|line| {
        line.strip_prefix("repository = \"")?.strip_suffix('"').map(str::to_owned)
    });
    address.ok_or_else(|| "Cargo.toml has no line `repository = \"…\"`".into())
}

/// The pages of the book.
struct Pages<'a> {
    /// The root of the checkout.
    root: &'a Path,
    /// The address of the repository.
    repository: String,
    /// By a page's path in the checkout, its path in the book.
    paths: BTreeMap<PathBuf, PathBuf>,
}

impl Pages<'_> {
    /// Gives each page its path in the book.
    fn place(&mut self, book: &mut Value) -> Result<(), String> {
        each_chapter(book, &mut |chapter| {
            let text = |key: &str| chapter[key].as_str().map(str::to_owned);
            let (Some(source), Some(path)) = (text("source_path"), text("path")) else {
                return Ok(());
            };
            let in_checkout = links::within(&Path::new(BOOK).join(&source))
                .ok_or_else(|| format!("{PAGES}: {source} is outside of the checkout"))?;
            let outside: &[_] = &['.', '/'];
            let in_book = PathBuf::from(path.trim_start_matches(outside));
            chapter["path"] = in_book.display().to_string().into();
            match self.paths.insert(in_checkout, in_book) {
                None => Ok(()),
                Some(_) => Err(format!("{PAGES} lists {source} twice")),
            }
        })
    }

    /// Refuses pages of docs that the list does not have: readers of the book would not find them.
    fn all_are_listed(&self) -> Result<(), String> {
        let is_page = |file: &PathBuf| {
            file.starts_with(BOOK)
                && file.extension().is_some_and(|it| it == "md")
                && file != Path::new(PAGES)
        };
        let files = sources::files(self.root)?;
        let missing: Vec<String> = files
            .iter()
            .filter(|file| is_page(file) && !self.paths.contains_key(*file))
            .map(|file| format!("{PAGES} does not list {}", file.display()))
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
    }

    /// Lets each link of each page lead to the same file as on the forge.
    fn rewrite(&self, book: &mut Value) -> Result<(), String> {
        let mut offences = Vec::new();
        each_chapter(book, &mut |chapter| {
            let (Some(source), Some(path), Some(content)) = (
                chapter["source_path"].as_str(),
                chapter["path"].as_str(),
                chapter["content"].as_str(),
            ) else {
                return Ok(());
            };
            let document = links::within(&Path::new(BOOK).join(source)).unwrap_or_default();
            let mut text = content.to_owned();
            for link in links::links(content).into_iter().rev() {
                match self.destination(&document, Path::new(path), &link.destination) {
                    Ok(destination) => text.replace_range(link.range, &destination),
                    Err(why) => offences.push(format!("{}: {why}", document.display())),
                }
            }
            chapter["content"] = text.into();
            Ok(())
        })?;
        if offences.is_empty() { Ok(()) } else { Err(offences.join("\n")) }
    }

    /// Where a link leads in the book. `page` is the path of the page that has it.
    fn destination(
        &self,
        document: &Path,
        page: &Path,
        destination: &str,
    ) -> Result<String, String> {
        let (file, heading) = match links::target(document, destination)? {
            Target::Site => return Ok(destination.to_owned()),
            Target::File(file, _) if file == document => {
                return Ok(destination[destination.find('#').unwrap_or(0)..].to_owned());
            }
            Target::File(file, heading) => (file, heading),
        };
        let heading = heading.map(|heading| format!("#{heading}")).unwrap_or_default();
        let in_checkout = self.root.join(&file);
        if let Some(path) =
            self.paths.get(&file).or_else(|| self.paths.get(&file.join("README.md")))
        {
            return Ok(relative(page, path) + &heading);
        }
        // mdBook copies the files of docs that are no pages.
        match file.strip_prefix(BOOK) {
            Ok(path) if in_checkout.is_file() => return Ok(relative(page, path) + &heading),
            _ => {}
        }
        let kind = match () {
            () if in_checkout.is_dir() => "tree",
            () if in_checkout.is_file() => "blob",
            () => return Err(format!("`{destination}`: there is no {}", file.display())),
        };
        Ok(format!("{}/{kind}/HEAD/{}{heading}", self.repository, file.display()))
    }
}

/// The path from one page to another file, both of which are given by their paths in the book.
fn relative(page: &Path, file: &Path) -> String {
    let depth = page.components().count().saturating_sub(1);
    format!("{}{}", "../".repeat(depth), file.display())
}

/// Calls `change` for each chapter of a book, those within chapters included.
fn each_chapter(
    book: &mut Value,
    change: &mut dyn FnMut(&mut Value) -> Result<(), String>,
) -> Result<(), String> {
    // The book has `items`, a chapter `sub_items`. Other items, such as separators, are no objects with a chapter.
    for list in ["items", "sub_items"] {
        let items = book.get_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            if let Some(chapter) = item.get_mut("Chapter") {
                change(chapter)?;
                each_chapter(chapter, change)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn pages(root: &Path) -> Pages<'_> {
        let paths = [
            ("docs/home.md", "home.md"),
            ("docs/results/README.md", "results/index.md"),
            ("CHANGELOG.md", "CHANGELOG.md"),
        ];
        let paths = paths.map(|(source, path)| (PathBuf::from(source), PathBuf::from(path)));
        Pages { root, repository: "https://example.org/nearq".into(), paths: paths.into() }
    }

    #[test]
    fn links_lead_to_pages_to_files_beside_them_or_to_the_repository() {
        let root = root().unwrap();
        let pages = pages(&root);
        let from = |document: &str, page: &str, destination: &str| {
            pages.destination(Path::new(document), Path::new(page), destination)
        };
        let results = ("docs/results/README.md", "results/index.md");
        let to = |destination| from(results.0, results.1, destination);
        assert_eq!(to("../home.md#memory").unwrap(), "../home.md#memory");
        assert_eq!(to("../../CHANGELOG.md").unwrap(), "../CHANGELOG.md");
        assert_eq!(to("lock.svg").unwrap(), "../results/lock.svg");
        assert_eq!(to("#results").unwrap(), "#results");
        assert_eq!(to("https://docs.rs").unwrap(), "https://docs.rs");
        assert_eq!(
            to("../../SECURITY.md#limits").unwrap(),
            "https://example.org/nearq/blob/HEAD/SECURITY.md#limits"
        );
        assert_eq!(to("../../crates").unwrap(), "https://example.org/nearq/tree/HEAD/crates");
        assert_eq!(
            from("CHANGELOG.md", "CHANGELOG.md", "docs/results").unwrap(),
            "results/index.md"
        );
        assert!(to("missing.svg").is_err());
    }

    #[test]
    fn pages_from_outside_get_a_path_within_the_book() {
        let chapter = |source: &str, path: &str, content: &str, inner: Value| {
            json!({"Chapter": {
                "source_path": source, "path": path, "content": content, "sub_items": inner
            }})
        };
        let inner = json!([chapter("home.md", "home.md", "[s](../SECURITY.md)", json!([]))]);
        let outer = chapter("../CHANGELOG.md", "../CHANGELOG.md", "[h](docs/home.md)", inner);
        let mut book = json!({"items": ["Separator", outer]});
        let root = root().unwrap();
        let mut pages = Pages { paths: BTreeMap::new(), ..pages(&root) };
        pages.place(&mut book).unwrap();
        pages.rewrite(&mut book).unwrap();
        let outer = &book["items"][1]["Chapter"];
        assert_eq!(
            (&outer["path"], &outer["content"]),
            (&json!("CHANGELOG.md"), &json!("[h](home.md)"))
        );
        let inner = &outer["sub_items"][0]["Chapter"];
        assert_eq!(inner["content"], "[s](https://example.org/nearq/blob/HEAD/SECURITY.md)");
        let missing = pages.all_are_listed().unwrap_err();
        assert!(
            missing.contains("docs/kernel.md") && !missing.contains("docs/home.md"),
            "{missing}"
        );
        let twice = pages.place(&mut json!({"items": [{"Chapter": {
            "source_path": "home.md", "path": "home.md", "sub_items": []
        }}]}));
        assert_eq!(twice, Err("docs/SUMMARY.md lists home.md twice".to_owned()));
    }

    #[test]
    fn the_repository_has_an_address() {
        let address = repository(&root().unwrap()).unwrap();
        assert!(address.starts_with("https://"), "{address}");
    }

    #[test]
    fn every_page_of_docs_is_listed_once() {
        let root = root().unwrap();
        let summary = std::fs::read_to_string(root.join(PAGES)).expect("it can be read");
        let mut pages = Pages { paths: BTreeMap::new(), ..pages(&root) };
        let mut listed = BTreeSet::new();
        for link in links::links(&summary) {
            assert!(listed.insert(link.destination.clone()), "twice: {}", link.destination);
            let path = links::within(&Path::new(BOOK).join(&link.destination)).unwrap();
            pages.paths.insert(path.clone(), path);
        }
        assert_eq!(pages.all_are_listed(), Ok(()));
    }
}

//! Follows every link in the HTML of the book: the file that it leads to must be there, and must have the anchor.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::links;

/// What a file of HTML has.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    /// The destinations of links, pictures, scripts and styles.
    links: BTreeSet<String>,
    /// The names that links may lead to.
    anchors: BTreeSet<String>,
    /// Whether relative links begin at the root of the book, as on the page for addresses that do not exist.
    from_root: bool,
}

/// Follows all links of the files below a folder. Returns how many there are, in words.
pub(super) fn check(book: &Path) -> Result<String, String> {
    let mut pages = BTreeMap::new();
    read(book, book, &mut pages)?;
    if pages.is_empty() {
        return Err(format!("{}: there is no HTML", book.display()));
    }
    let mut offences = Vec::new();
    let mut count = 0;
    for (file, page) in &pages {
        for link in page.links.iter().filter(|link| !is_elsewhere(link)) {
            count += 1;
            let folder = if page.from_root { Path::new("") } else { file.parent().unwrap_or(file) };
            if let Err(why) = follow(book, file, folder, link, &pages) {
                offences.push(format!("{}: `{link}`: {why}", file.display()));
            }
        }
    }
    if offences.is_empty() {
        Ok(format!("{} pages, {count} links within the book", pages.len()))
    } else {
        Err(offences.join("\n"))
    }
}

/// Whether a link leads to another site, or has its data in itself.
fn is_elsewhere(link: &str) -> bool {
    ["https:", "http:", "data:", "javascript:"].iter().any(|scheme| link.starts_with(scheme))
}

fn follow(
    book: &Path,
    file: &Path,
    folder: &Path,
    link: &str,
    pages: &BTreeMap<PathBuf, Page>,
) -> Result<(), String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = if path.is_empty() {
        file.to_owned()
    } else {
        links::within(&folder.join(path)).ok_or("it leads out of the book")?
    };
    if !book.join(&path).is_file() {
        return Err(format!("there is no {}", path.display()));
    }
    match pages.get(&path) {
        Some(page) if !anchor.is_empty() && !page.anchors.contains(anchor) => {
            Err(format!("{} has no `{anchor}`", path.display()))
        }
        _ => Ok(()),
    }
}

/// Reads the files of HTML below a folder; their names are paths from `book`.
fn read(book: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<(), String> {
    let cannot_read = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(cannot_read)? {
        let path = entry.map_err(cannot_read)?.path();
        if path.is_dir() {
            read(book, &path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text = fs::read_to_string(&path).map_err(cannot_read)?;
            let name = path.strip_prefix(book).unwrap_or(&path).to_owned();
            pages.insert(name, page(&text));
        }
    }
    Ok(())
}

/// The links and anchors of a page. mdBook writes all attributes in double quotes, and escapes these in the text.
fn page(html: &str) -> Page {
    let mut page = Page::default();
    for tag in html.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap_or_default();
        let is_base = tag.starts_with("base ");
        for (at, _) in tag.match_indices("=\"") {
            let name = tag[..at].rsplit(char::is_whitespace).next().unwrap_or_default();
            let value = tag[at + 2..].split('"').next().unwrap_or_default();
            match name {
                "href" if is_base => page.from_root = value == "/",
                "href" | "src" if !value.is_empty() => _ = page.links.insert(plain(value)),
                "id" | "name" => _ = page.anchors.insert(plain(value)),
                _ => {}
            }
        }
    }
    page
}

/// A value without the escapes of HTML.
fn plain(value: &str) -> String {
    value.replace("&quot;", "\"").replace("&#39;", "'").replace("&#x27;", "'").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder for one test, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn with(name: &str, files: &[(&str, &str)]) -> Folder {
            let folder = std::env::temp_dir().join(format!("nearq-{name}-{}", std::process::id()));
            for (file, text) in files {
                let path = folder.join(file);
                fs::create_dir_all(path.parent().unwrap()).expect("it can be made");
                fs::write(path, text).expect("it can be written");
            }
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn links_and_anchors_are_read_from_attributes() {
        let html = r#"<h2 id="a&amp;b"><a class="header" href="x.html#y">T</a></h2><img src='no'>
            <script src="s.js"></script><p title="href=">no</p>"#;
        let expected = Page {
            links: ["x.html#y", "s.js"].map(str::to_owned).into(),
            anchors: ["a&b".to_owned()].into(),
            from_root: false,
        };
        assert_eq!(page(html), expected);
        assert!(page(r#"<base href="/"><a href="x">"#).from_root);
    }

    #[test]
    fn a_link_to_a_missing_file_or_anchor_is_an_offence() {
        let files = [
            ("index.html", r##"<a href="in/page.html#there"><a href="#top" id="top">"##),
            ("in/page.html", r#"<b id="there"><a href="../index.html"><img src="p.svg">"#),
            ("in/p.svg", ""),
            ("404.html", r#"<base href="/"><a href="in/page.html">"#),
        ];
        let whole = Folder::with("book-whole", &files);
        assert_eq!(check(&whole.0).unwrap(), "3 pages, 5 links within the book");

        let broken = [
            ("index.html", r##"<a href="in/page.html#their"><a href="#up">"##),
            ("in/page.html", r#"<b id="there"><a href="index.html"><a href="../../x">"#),
        ];
        let broken = Folder::with("book-broken", &broken);
        let offences = check(&broken.0).unwrap_err();
        let expected = [
            "in/page.html: `../../x`: it leads out of the book",
            "in/page.html: `index.html`: there is no in/index.html",
            "index.html: `#up`: index.html has no `up`",
            "index.html: `in/page.html#their`: in/page.html has no `their`",
        ];
        assert_eq!(offences.lines().collect::<Vec<_>>(), expected);
        assert!(check(&Folder::with("book-empty", &[("x.txt", "")]).0).is_err());
    }
}

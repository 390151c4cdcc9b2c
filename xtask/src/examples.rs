//! Checks that examples in the documentation name the crate that the reader has.
//!
//! Users have only `nearq`, which exports what our other crates define. An example that imports one of those crates does not compile in a
//! user's program. A hidden line can say what `nearq` is inside these crates: `# use nearq_core as nearq;`.
//!
//! The examples on the pages of docs must also be compiled: `examples/src/pages.rs` lists these pages.

use std::fs;
use std::path::Path;

use crate::sources;

/// Files and folders all of whose documentation is read by users of `nearq`.
const OF_USERS: [&str; 8] = [
    "nearq/src",
    "nearq-core/src",
    "nearq-topology/src",
    "nearq-home/src/weights.rs",
    "nearq-control/src/attend.rs",
    "nearq-control/src/metrics.rs",
    "nearq-control/src/protocol/process.rs",
    "nearq-control/src/server/process.rs",
];
/// The crates that users of `nearq` do not have.
const INNER: [&str; 8] = [
    "nearq_control",
    "nearq_core",
    "nearq_home",
    "nearq_lock",
    "nearq_model",
    "nearq_platform",
    "nearq_sim",
    "nearq_topology",
];
/// Users of the locks have only `nearq_lock`.
const OF_LOCKS: &str = "nearq-lock/src";

/// The pages for users, and the list of those whose examples are compiled.
const PAGES: &str = "docs";
const COMPILED: &str = "examples/src/pages.rs";

/// The lines of examples that name a crate which the reader does not have.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut offences = Vec::new();
    for folder in OF_USERS {
        sources::each(&root.join("crates").join(folder), &mut |path, text| {
            offend(path, text, "nearq", &mut offences);
        })?;
    }
    sources::each(&root.join("crates").join(OF_LOCKS), &mut |path, text| {
        offend(path, text, "nearq_lock", &mut offences);
    })?;
    let read = |path: &Path| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("{}: {error}", path.display()))
    };
    let list = read(Path::new(COMPILED))?;
    for page in sources::files(root)? {
        let Ok(name) = page.strip_prefix(PAGES) else { continue };
        if name.extension().is_some_and(|extension| extension == "md") {
            let text = read(&page)?;
            let name = name.display();
            for line in foreign_in(&text, "nearq") {
                offences.push(format!("{PAGES}/{name}: `{line}`: an example names nearq alone"));
            }
            if has_example(&text) && !list.contains(&format!("\"{name}\"")) {
                offences.push(format!("{PAGES}/{name}: {COMPILED} does not list its examples"));
            }
        }
    }
    Ok(offences)
}

/// Whether a page has an example that can be compiled.
fn has_example(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("```rust") && !line.contains("ignore"))
}

fn offend(path: &Path, text: &str, own_crate: &str, offences: &mut Vec<String>) {
    for line in foreign(text, own_crate) {
        offences.push(format!("{}: `{line}`: an example names {own_crate} alone", path.display()));
    }
}

/// The visible lines of a file's examples that name a crate of ours other than `own_crate`.
fn foreign(text: &str, own_crate: &str) -> Vec<String> {
    let written = text.lines().map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).unwrap_or("```end")
    });
    let documentation: Vec<&str> = written.collect();
    foreign_in(&documentation.join("\n"), own_crate)
}

/// The same for a text that consists of documentation.
pub(crate) fn foreign_in(documentation: &str, own_crate: &str) -> Vec<String> {
    let names_another = |line: &&str| {
        let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        words.any(|word| word != own_crate && INNER.contains(&word))
    };
    visible_lines(documentation).filter(names_another).map(str::to_owned).collect()
}

/// The lines of the examples in a text, except the hidden ones. Code blocks in other languages are not examples.
fn visible_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    let mut is_rust = false;
    text.lines().map(str::trim).filter(move |line| {
        if let Some(language) = line.strip_prefix("```") {
            // The end of a documentation comment also ends its code block.
            inside = !inside && language != "end";
            let words = ["", "rust", "no_run", "ignore", "should_panic", "compile_fail"];
            is_rust = language.split(',').all(|word| words.contains(&word.trim()));
            return false;
        }
        inside && is_rust && *line != "#" && !line.starts_with("# ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_that_are_left_out_need_not_be_listed() {
        assert!(has_example("# T\n\n```rust,no_run\nfn main() {}\n```\n"));
        assert!(!has_example("# T\n\n```rust,ignore\nlet x\n```\n\n```sh\nrust\n```\n"));
    }

    #[test]
    fn the_examples_of_every_page_are_compiled() {
        let root = sources::root();
        assert_eq!(check(&root), Ok(Vec::new()));
    }

    #[test]
    fn a_visible_line_that_names_an_inner_crate_is_found() {
        let text = "/// Says.\n///\n/// ```\n/// # use nearq_core as nearq;\n/// use nearq::Work;\n\
                    /// use nearq_core::AffinityScope;\n/// ```\n/// [`nearq_core`] is no example.\nuse nearq_core::Work;\n";
        assert_eq!(foreign(text, "nearq"), ["use nearq_core::AffinityScope;"]);
        assert_eq!(foreign(text, "nearq_core"), [""; 0]);
        assert_eq!(foreign("//! ```text\n//! nearq_core\n//! ```\n", "nearq"), [""; 0]);
        assert_eq!(
            foreign("//! ```rust,no_run\n//! nearq_sim::x()\n//! ```\n", "nearq"),
            ["nearq_sim::x()"]
        );
    }
}

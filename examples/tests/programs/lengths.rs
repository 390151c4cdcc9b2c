//! No program is longer than the same program on another library, and the pages that show programs show them as they are.

use std::fs;

/// Each program, and the same program on another library.
const PAIRS: [[&str; 2]; 3] = [
    ["hash_files", "hash_files_with_rayon"],
    ["service", "service_with_tokio"],
    ["deliver", "deliver_with_tokio"],
];

/// All programs.
const PROGRAMS: [&str; 7] = [
    "hash_files",
    "hash_files_with_rayon",
    "service",
    "service_with_tokio",
    "deliver",
    "deliver_with_tokio",
    "tokio_per_pod",
];

/// The pages that show programs, and how many.
const PAGES: [(&str, usize); 2] = [("side-by-side.md", 6), ("tokio.md", 1)];

fn source(program: &str) -> String {
    let path = format!("{}/src/bin/{program}.rs", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).expect(&path)
}

/// The lines of a program that are neither empty nor a comment.
fn length(program: &str) -> usize {
    let text = source(program);
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn no_program_is_longer_than_on_another_library() {
    for [own, other] in PAIRS {
        assert!(length(own) <= length(other), "{own}: {}, {other}: {}", length(own), length(other));
    }
}

/// A page with the programs put in where it names them, and their lengths, if it has a table of them.
fn updated(page: &str) -> String {
    let mut page = page.to_owned();
    for program in PROGRAMS {
        let beginning = format!("<!-- {program} -->\n");
        let Some((before, after)) = page.split_once(&beginning) else { continue };
        let (_, after) = after.split_once("\n```\n").expect(program);
        page = format!("{before}{beginning}```rust,ignore\n{}```\n{after}", source(program));
    }
    let Some((before, after)) = page.split_once("<!-- lengths -->\n") else { return page };
    let (_, after) = after.split_once("\n\n").expect("a paragraph after the table");
    let row = |[own, other]: [&str; 2]| {
        format!("| `{own}` | {} | `{other}` | {} |\n", length(own), length(other))
    };
    let rows: String = PAIRS.map(row).concat();
    format!(
        "{before}<!-- lengths -->\n| on nearq | lines | on another library | lines |\n|---|---|---|---|\n{rows}\n{after}"
    )
}

#[test]
fn the_pages_show_the_programs_as_they_are() {
    for (name, count) in PAGES {
        let path = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        let page = fs::read_to_string(&path).expect(&path);
        let shown = PROGRAMS.iter().filter(|it| page.contains(&format!("<!-- {it} -->\n"))).count();
        assert_eq!(shown, count, "{name}");
        let updated = updated(&page);
        if std::env::var("NEARQ_FREEZE").as_deref() == Ok("write") {
            fs::write(&path, updated).expect(&path);
        } else {
            let how = "NEARQ_FREEZE=write cargo test -p nearq-examples lengths";
            assert!(page == updated, "`{how}` puts the programs into docs/{name}");
        }
    }
}

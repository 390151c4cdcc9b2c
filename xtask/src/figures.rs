//! Checks that every figure in the prose is a recorded result or is listed as given. `docs/results/figures` lists the sentences and table
//! rows that quote results, and where each figure is recorded. This check computes each figure again, and refuses any number that the file
//! does not list.
//!
//! The file is a list of lines:
//!
//! ```text
//! # a comment
//! document README.md
//! : text of a sentence or row, with {} for each figure that is computed and {32 parameter} for one that is given
//! : a second line of the same text
//! = [dispatch | outside | nearq spawn | ns_per_item]
//! given hardware
//! : 2x EPYC 7551
//! ```
//!
//! `: ` begins a text, or continues the one on the line before. Each `=` line gives the figure for the next `{}` ([`expression`] says how).
//! A figure agrees if it is the computed value rounded to the digits that are written, or to the unit that ends the line (`to 1000`).
//! `given CATEGORY` begins a list of phrases, one a line, whose numbers come from elsewhere; `document` ends the list. A list that begins
//! before the first `document` applies to all documents.
//!
//! After new results are recorded, `--write` puts the changed figures into the prose. It does not touch the words around them,
//! so read those sentences again.

mod entries;
mod expression;
mod prose;
mod records;

use crate::sources;
use entries::{Entry, Part};
use prose::Prose;
use records::Records;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// The lists of sentences, and of results with their commands.
const ENTRIES: &str = "docs/results/figures";
const COMMANDS: &str = "docs/results/commands";
/// The folder of the results. Its page has a table of all results, each with its command.
const RESULTS: &str = "docs/results";
const TABLE: &str = "docs/results/README.md";
/// A page of that folder which a command makes of recorded files, figures and all; a test of nearq-bench makes it again and compares.
const MADE: &str = "validation.md";
/// The prose outside of the folder of results.
const OTHERS: [&str; 5] = [
    "README.md",
    "docs/documents.md",
    "docs/scopes.md",
    "docs/when-not.md",
    "compat/rayon-core/README.md",
];

/// The outcome of comparing documents with results.
#[derive(Default)]
struct Outcome {
    findings: Vec<String>,
    /// Figures that have changed.
    corrections: Vec<Correction>,
    /// How many figures were computed.
    computed: usize,
}

/// A figure that has changed.
struct Correction {
    /// The document's place in the list.
    document: usize,
    /// Where it is in the document's source.
    range: Range<usize>,
    figure: String,
    problem: String,
}

/// Checks all documents and the table of results; with `write`, changed figures are written into the documents.
pub(crate) fn check(write: bool) -> Result<String, String> {
    let root = sources::root();
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let (mut documents, mut sources) = (Vec::new(), Vec::new());
    for name in names(&root, "md")?
        .iter()
        .filter(|name| *name != MADE)
        .map(|name| format!("{RESULTS}/{name}"))
        .chain(OTHERS.map(String::from))
    {
        let text = read(&name)?;
        documents.push(Prose::new(&name, &text));
        sources.push(text);
    }
    let entries = entries::parse(&read(ENTRIES)?).map_err(|error| format!("{ENTRIES}:{error}"))?;
    let mut records = Records::new(&root.join(RESULTS));
    let Outcome { mut findings, corrections, computed } =
        compare(&documents, &entries, &mut records);
    if write {
        let changed = write_into(&mut sources, corrections);
        for number in changed {
            let name = &documents[number].name;
            std::fs::write(root.join(name), &sources[number])
                .map_err(|error| format!("{name}: {error}"))?;
            println!("{name}: figures written; read the words beside them again");
        }
    } else {
        findings.extend(corrections.into_iter().map(|correction| correction.problem));
    }
    let files = ["txt", "json", "svg"].map(|extension| names(&root, extension));
    let files = files.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    findings.extend(table(&read(COMMANDS)?, &read(TABLE)?, &files));
    if findings.is_empty() {
        Ok(format!(
            "{computed} figures of {} documents are those of the recorded results",
            documents.len()
        ))
    } else {
        Err(findings.join("\n"))
    }
}

/// Writes the figures into the documents' texts. Returns which documents were changed.
fn write_into(sources: &mut [String], mut corrections: Vec<Correction>) -> BTreeSet<usize> {
    // From the end to the beginning, so that the positions of earlier figures stay valid.
    corrections.sort_by_key(|correction| Reverse(correction.range.start));
    let mut changed = BTreeSet::new();
    for Correction { document, range, figure, .. } in corrections {
        sources[document].replace_range(range, &figure);
        changed.insert(document);
    }
    changed
}

/// The files in the folder of results that have this extension, in order.
fn names(root: &Path, extension: &str) -> Result<Vec<String>, String> {
    let folder =
        std::fs::read_dir(root.join(RESULTS)).map_err(|error| format!("{RESULTS}: {error}"))?;
    let mut names = Vec::new();
    for file in folder {
        let path = file.map_err(|error| format!("{RESULTS}: {error}"))?.path();
        if path.extension().is_some_and(|found| found == extension) {
            names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// What is wrong in the documents.
fn compare(documents: &[Prose], entries: &[Entry], records: &mut Records) -> Outcome {
    let mut outcome = Outcome::default();
    let mut covered: Vec<Vec<Range<usize>>> = vec![Vec::new(); documents.len()];
    for entry in entries {
        let mut places = 0;
        for (number, (document, covered)) in documents.iter().zip(&mut covered).enumerate() {
            if entry.document.as_ref().is_some_and(|name| *name != document.name) {
                continue;
            }
            for place in document.find(&entry.parts) {
                places += 1;
                for (part, range) in entry.parts.iter().zip(place) {
                    match part {
                        Part::Text(_) if entry.given => covered.push(range),
                        Part::Text(_) => {}
                        Part::Given(_) => covered.push(range),
                        Part::Figure(figure) => {
                            outcome.computed += 1;
                            let at = format!("{}:{}", document.name, document.line(range.start));
                            match agrees(figure, document.text(&range), records) {
                                Ok(None) => {}
                                Ok(Some((figure, problem))) => {
                                    outcome.corrections.push(Correction {
                                        document: number,
                                        range: document.source(&range),
                                        figure,
                                        problem: format!("{at}: {problem}"),
                                    });
                                }
                                Err(problem) => outcome.findings.push(format!("{at}: {problem}")),
                            }
                            covered.push(range);
                        }
                    }
                }
            }
        }
        let problem = match places {
            0 => "is not in",
            2.. if !entry.given => "is more than once in",
            _ => continue,
        };
        let place = entry.document.as_deref().unwrap_or("any document");
        outcome.findings.push(format!(
            "{ENTRIES}:{}: this text {problem} {place}: {}",
            entry.line, entry.source
        ));
    }
    for (document, covered) in documents.iter().zip(&covered) {
        for number in document.numbers() {
            if !covered.iter().any(|range| range.start <= number.start && number.end <= range.end) {
                let (line, figure) = (document.line(number.start), document.text(&number));
                let around = document.around(&number);
                outcome.findings.push(format!(
                    "{}:{line}: {figure} has no recorded result and is not listed as given: … {around} …",
                    document.name
                ));
            }
        }
    }
    outcome
}

/// Nothing if a figure as it is written is the computed one, rounded. Otherwise returns the correct figure, and a message that says what is
/// wrong.
fn agrees(
    figure: &entries::Figure,
    written: &str,
    records: &mut Records,
) -> Result<Option<(String, String)>, String> {
    let value = figure.expression.value(records).map_err(|error| format!("{written}: {error}"))?;
    let number = prose::value(written).ok_or_else(|| format!("{written} is no number"))?;
    let decimals = written.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let unit =
        figure.unit.unwrap_or_else(|| 0.1_f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX)));
    // A value exactly half-way between two figures may be rounded up or down.
    if (number - value).abs() <= unit * 0.500_000_1 {
        return Ok(None);
    }
    let right = prose::written_as(written, value, unit);
    let problem = format!("{written} is written, {right} is recorded ({value}): {}", figure.source);
    Ok(Some((right, problem)))
}

/// What is wrong with the table of results: each command in the list must have a row that names its text, its JSON and its picture, all of
/// which must exist, and each existing file must be named in a row.
fn table(commands: &str, table: &str, files: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    for line in commands.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, _, arguments @ ..] = words.as_slice() else {
            findings.push(format!("{COMMANDS}: no command: {line}"));
            continue;
        };
        let (file, command) = (format!("({name}.txt)"), format!("`nearq {}`", arguments.join(" ")));
        if !table.lines().any(|row| row.contains(&file) && row.contains(&command)) {
            findings.push(format!("{TABLE}: no row of the table has {file} with {command}"));
        }
        for extension in ["txt", "json", "svg"] {
            let file = format!("{name}.{extension}");
            if !files.contains(&file) {
                findings.push(format!("{COMMANDS}: {name} is not recorded: there is no {file}"));
            }
        }
    }
    for file in files {
        if !table.lines().any(|row| row.starts_with('|') && row.contains(&format!("({file})"))) {
            findings.push(format!("{TABLE}: no row of the table has ({file})"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# Costs\n\nA spawn takes 77 ns,\n-12.5 % less than the 88 of others, with `--threads 2` on an EPYC 7551.\n";
    const ENTRIES: &str = "\
given hardware
: EPYC 7551
document costs.md
: A spawn takes {} ns, {} % less than the {88 published} of others
= [dispatch | outside | nearq spawn | ns_per_item]
= ([dispatch | outside | nearq spawn | ns_per_item] / 88 - 1) * 100
";

    fn records() -> Records {
        let mut records = Records::new(Path::new("/nowhere"));
        let row = |median: f64| serde_json::json!({"scenario": "outside", "row": "nearq spawn", "metric": "ns_per_item", "median": median});
        records.insert("dispatch", serde_json::json!({"parameters": {}, "rows": [row(77.0)]}));
        records
    }

    fn findings(document: &str, entries: &str) -> Vec<String> {
        let entries = entries::parse(entries).expect("entries");
        let outcome = compare(&[Prose::new("costs.md", document)], &entries, &mut records());
        let problems = outcome.corrections.into_iter().map(|correction| correction.problem);
        problems.chain(outcome.findings).collect()
    }

    #[test]
    fn figures_that_are_recorded_are_accepted() {
        assert_eq!(findings(DOCUMENT, ENTRIES), Vec::<String>::new());
    }

    #[test]
    fn a_wrong_figure_is_found_with_its_line_and_the_recorded_one() {
        let found = findings(&DOCUMENT.replace("-12.5", "-13.5"), ENTRIES);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("costs.md:4: -13.5 is written, -12.5 is recorded"),
            "{found:?}"
        );
    }

    #[test]
    fn a_record_that_changed_makes_the_prose_wrong() {
        let entries = entries::parse(ENTRIES).expect("entries");
        let mut records = records();
        let row = serde_json::json!({"scenario": "outside", "row": "nearq spawn", "metric": "ns_per_item", "median": 80.0});
        records.insert("dispatch", serde_json::json!({"rows": [row]}));
        let outcome = compare(&[Prose::new("costs.md", DOCUMENT)], &entries, &mut records);
        assert_eq!((outcome.corrections.len(), outcome.computed), (2, 2));
        assert_eq!(outcome.findings, Vec::<String>::new());
        let mut sources = [DOCUMENT.to_owned()];
        write_into(&mut sources, outcome.corrections);
        let right = DOCUMENT.replace("77 ns", "80 ns").replace("-12.5 %", "-9.1 %");
        assert_eq!(sources, [right]);
    }

    #[test]
    fn a_number_that_no_entry_accounts_for_is_found() {
        let found = findings(&format!("{DOCUMENT}\nFour runs took 3.5 s.\n"), ENTRIES);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("costs.md:6: 3.5 has no recorded result"), "{found:?}");
    }

    #[test]
    fn an_entry_whose_text_is_gone_is_found() {
        let found = findings(&DOCUMENT.replace("A spawn takes", "Spawning takes"), ENTRIES);
        assert!(
            found[0].starts_with("docs/results/figures:4: this text is not in costs.md"),
            "{found:?}"
        );
        // Its figures are no longer accounted for either.
        assert_eq!(found.len(), 4, "{found:?}");
    }

    #[test]
    fn a_given_phrase_covers_no_part_of_a_longer_number() {
        let found =
            findings("8 writers, 48 writers, 1.8 writers.", "given parameter\n: 8 writers\n");
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_result_without_a_row_in_the_table_or_without_a_file_is_found() {
        let commands = "lock  here  bench lock\nnuma  here  bench numa --files 12\n";
        let row = |name: &str| {
            format!(
                "| [a]({name}.txt), [b]({name}.json), [c]({name}.svg) | `nearq bench {name}` |\n"
            )
        };
        let rows = row("lock") + &row("numa");
        let files = ["lock.txt", "lock.json", "lock.svg", "numa.txt", "numa.json", "old.txt"];
        let found = table(commands, &rows, &files.map(String::from));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].contains("`nearq bench numa --files 12`")
                && found[1].ends_with("there is no numa.svg")
                && found[2].contains("(old.txt)"),
            "{found:?}"
        );
    }
}

//! The file that lists the sentences and their figures.

use super::expression::Expression;
use super::prose::value;

/// Why a number may stand in the prose without a recorded result.
const CATEGORIES: [&str; 8] =
    ["parameter", "date", "version", "published", "hardware", "goal", "constant", "name"];

/// A text that a document quotes.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its line in the file.
    pub(super) line: usize,
    /// As it stands in the file.
    pub(super) source: String,
    /// The document that must have it; any document if none is named.
    pub(super) document: Option<String>,
    /// Whether the numbers in its text count as given.
    pub(super) given: bool,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    /// A number that is computed.
    Figure(Figure),
    /// A number that is given, as it is written.
    Given(String),
}

#[derive(Debug)]
pub(super) struct Figure {
    /// As it stands in the file.
    pub(super) source: String,
    pub(super) expression: Expression,
    /// The unit that it is rounded to, if that is coarser than its last digit.
    pub(super) unit: Option<f64>,
}

/// A text and its figures while they are read.
struct Draft {
    line: usize,
    text: String,
    figures: Vec<Figure>,
}

/// Parses the file. An error message begins with the line number.
pub(super) fn parse(source: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut document = None;
    let mut given = false;
    let mut draft: Option<Draft> = None;
    for (line, text) in (1..).zip(source.lines()) {
        let at = |error: String| format!("{line}: {error}");
        let continues = draft.as_ref().is_some_and(|draft| draft.figures.is_empty()) && !given;
        match text.split_once(' ').unwrap_or((text, "")) {
            (":", text) if continues => {
                let draft = draft.as_mut().ok_or_else(|| at("nothing to continue".into()))?;
                draft.text = format!("{} {text}", draft.text);
            }
            (":", text) => {
                finish(
                    draft.replace(Draft { line, text: text.into(), figures: Vec::new() }),
                    document.as_ref(),
                    given,
                    &mut entries,
                )?;
            }
            ("=", text) => {
                let draft = draft.as_mut().ok_or_else(|| at("a figure without a text".into()))?;
                draft.figures.push(figure(text).map_err(at)?);
            }
            (word, rest) => {
                finish(draft.take(), document.as_ref(), given, &mut entries)?;
                match word {
                    "document" => {
                        document = Some(rest.to_owned());
                        given = false;
                    }
                    "given" if CATEGORIES.contains(&rest) => given = true,
                    "given" => {
                        return Err(at(format!("a category is one of {}", CATEGORIES.join(", "))));
                    }
                    _ if word.is_empty() || word.starts_with('#') => {}
                    _ => return Err(at(format!("cannot be read: {text}"))),
                }
            }
        }
    }
    finish(draft, document.as_ref(), given, &mut entries)?;
    Ok(entries)
}

fn finish(
    draft: Option<Draft>,
    document: Option<&String>,
    given: bool,
    entries: &mut Vec<Entry>,
) -> Result<(), String> {
    let Some(Draft { line, text, figures }) = draft else { return Ok(()) };
    let at = |error: &str| format!("{line}: {error}: {text}");
    let mut figures = figures.into_iter();
    let mut parts = Vec::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, after) = after.split_once('}').ok_or_else(|| at("no } after {"))?;
        parts.push(Part::Text(before.into()));
        parts.push(match inside.split_once(' ') {
            None if inside.is_empty() => {
                Part::Figure(figures.next().ok_or_else(|| at("more {} than lines with ="))?)
            }
            Some((number, category)) if CATEGORIES.contains(&category) => {
                Part::Given(number.into())
            }
            _ => return Err(at("expected {} or {NUMBER CATEGORY}")),
        });
        rest = after;
    }
    parts.push(Part::Text(rest.into()));
    if figures.next().is_some() {
        return Err(at("fewer {} than lines with ="));
    }
    if !given && document.is_none() {
        return Err(at("no document before this text"));
    }
    entries.push(Entry { line, source: text.clone(), document: document.cloned(), given, parts });
    Ok(())
}

/// `EXPRESSION` or `EXPRESSION to UNIT`.
fn figure(text: &str) -> Result<Figure, String> {
    let (source, unit) = match text.rsplit_once(" to ") {
        Some((source, unit)) if !unit.contains(']') => {
            (source, Some(value(unit).ok_or_else(|| format!("{unit} is no unit"))?))
        }
        _ => (text, None),
    };
    let (source, expression) = (source.trim().to_owned(), Expression::parse(source)?);
    if !expression.is_recorded() {
        return Err(format!("nothing recorded is in {source}"));
    }
    Ok(Figure { source, expression, unit })
}

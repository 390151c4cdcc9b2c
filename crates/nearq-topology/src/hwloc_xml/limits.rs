//! Refuses a text before it is parsed as XML if parsing would take too long or need too much memory. The file of a real machine is never
//! refused.
//!
//! The parser compares the attributes of an element with each other, and copies the name spaces of an element to the elements inside it;
//! entities can stand for far more text than the file has.

use crate::error::quoted;
use crate::regular::MAX_FILE;

/// The most elements, texts and comments.
pub(super) const MOST_PARTS: u32 = 500_000;

/// The most attributes of one element. hwloc writes 20 at most.
const MOST_ATTRIBUTES: usize = 64;

/// The deepest nesting of elements. hwloc writes about 20.
const MOST_DEPTH: usize = 256;

/// Checks whether the text may be parsed. Text that is not XML passes: the parser refuses it.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.len() > MAX_FILE {
        return Err(format!("it has more than {} MiB, the most that is read", MAX_FILE >> 20));
    }
    if text.contains("<!ENTITY") {
        return Err("it declares entities, which are not read".into());
    }
    let mut depth = 0;
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        // Parts that may contain '<' and '>' as plain characters.
        let skipped = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")]
            .iter()
            .find_map(|(begin, end)| rest.strip_prefix(begin).map(|after| (after, end)));
        if let Some((after, end)) = skipped {
            rest = after.find(end).map_or("", |at| &after[at + end.len()..]);
            continue;
        }
        let tag = tag(rest);
        if tag.attributes > MOST_ATTRIBUTES {
            let name: String = rest.chars().take(20).collect();
            return Err(format!(
                "an element has more than {MOST_ATTRIBUTES} attributes, the most that are read, at {}",
                quoted(&name)
            ));
        }
        if tag.has_name_space {
            return Err("it declares name spaces, which are not read".into());
        }
        if tag.has_subset {
            return Err("it declares a document type of its own, which is not read".into());
        }
        if rest.starts_with("</") {
            depth -= 1;
        } else if !rest.starts_with("<!") && !rest[..tag.length].ends_with("/>") {
            depth += 1;
            if depth > MOST_DEPTH as isize {
                return Err(format!(
                    "elements are nested more than {MOST_DEPTH} deep, the most that is read"
                ));
            }
        }
        rest = &rest[tag.length..];
    }
    Ok(())
}

struct Tag {
    /// The length in bytes, from `<` to `>`.
    length: usize,
    attributes: usize,
    has_name_space: bool,
    /// A document type's own declarations.
    has_subset: bool,
}

/// The tag at the beginning of a text.
fn tag(text: &str) -> Tag {
    let mut tag =
        Tag { length: text.len(), attributes: 0, has_name_space: false, has_subset: false };
    let mut quote = None;
    let mut word = 0;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) => quote = Some(open).filter(|open| *open != byte),
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'=') => {
                tag.attributes += 1;
                tag.has_name_space |= text[word..].starts_with("xmlns");
            }
            (None, b'[') => tag.has_subset = true,
            (None, b'>') => {
                tag.length = at + 1;
                break;
            }
            (None, byte) if byte.is_ascii_whitespace() => word = at + 1,
            _ => {}
        }
    }
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_no_machine_file_has_is_refused_at_once() {
        let many = |count: usize, part: &dyn Fn(usize) -> String| -> String {
            (0..count).map(part).collect()
        };
        for (text, reason) in [
            (" ".repeat(MAX_FILE + 1), "more than 16 MiB"),
            ("<!DOCTYPE a [<!ENTITY b 'c'>]><a/>".into(), "entities"),
            (
                format!("<a {}/>", many(200_000, &|i| format!("b{i}='' "))),
                "more than 64 attributes",
            ),
            (
                format!("<a b='>' {}/>", many(65, &|i| format!("\nb{i} = \"<>\""))),
                "more than 64 attributes",
            ),
            (many(200_000, &|_| "<a>".into()), "nested more than 256 deep"),
            ("<!DOCTYPE a [<!-- ' -->]><a/>".into(), "document type of its own"),
            ("<a\txmlns:b='c'/>".into(), "name spaces"),
            ("<a xmlns='c'/>".into(), "name spaces"),
        ] {
            let error = check(&text).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
        let fine = format!(
            "<?xml version='1.0'?><!DOCTYPE a SYSTEM \"b.dtd\"><a x='/>'>{}<!-- <b <c --><![CDATA[<<]]></a>",
            "<b x=\"xmlns=\"><c/></b>".repeat(1000)
        );
        assert_eq!(check(&fine), Ok(()));
        // The rest is left to the parser.
        for text in ["", "<", "<a", "<!--", "é<é='", "</a></a>"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }
}

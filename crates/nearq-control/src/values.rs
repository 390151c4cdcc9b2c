//! Values as text: which texts `Set` takes, and how values are shown. All code that answers for a setting parses it with these functions,
//! so that all tools accept the same values.
//!
//! The forms are the kernel's, as in its sysfs files, with one difference: CPUs are a list (`0-3,8`) unless they are plainly a mask,
//! and they are shown as both. White space around a value is not part of it. Refusals say what is wrong and what is allowed, and leave
//! out the key and the value, which [`Refusal::BadValue`](crate::protocol::Refusal::BadValue) names itself.

use std::ops::RangeInclusive;

use nearq_platform::SWITCH;
use nearq_topology::{AffinityScope, CpuSet, ParseError};

/// Hexadecimal digits of a group in a mask.
const GROUP: usize = 8;
/// Bytes of a text with CPUs at most. Every second CPU of the largest supported machine takes less, even with the mask beside it.
const LONGEST: usize = 16 * 1024;
const CPUS: &str =
    "a list of CPUs such as 0-3,8, a mask such as 0xff or 000000ff,ffffffff, or nothing for all";

/// Parses CPUs; `None` means all CPUs, given as an empty text or `all`.
///
/// A text is a mask if it begins with `0x`, or consists of groups of 8 hexadecimal digits, with commas between them if there are
/// several (only the first may then be shorter): the form of the kernel's files. Everything else is a list, `10` for example. A list with its
/// mask in parentheses, as [`show_cpus`] writes it, is read as well.
///
/// # Errors
/// The text has none of these forms, contains a CPU whose number is too large, or contains no CPU at all.
///
/// ```
/// use nearq_control::values::parse_cpus;
///
/// let list = |text: &str| parse_cpus(text).map(|cpus| cpus.map_or("all".into(), |cpus| cpus.to_list()));
/// assert_eq!(list("0-3,8")?, "0-3,8");
/// assert_eq!(list("10")?, "10");
/// assert_eq!(list("0x10")?, "4");
/// assert_eq!(list("00000010")?, "4");
/// assert_eq!(list("1,00000000")?, "32");
/// assert_eq!(list("")?, "all");
/// # Ok::<(), String>(())
/// ```
pub fn parse_cpus(text: &str) -> Result<Option<CpuSet>, String> {
    let text = text.trim();
    if text.is_empty() || text == "all" {
        return Ok(None);
    }
    if text.len() > LONGEST {
        return Err(format!("longer than {LONGEST} bytes; give {CPUS}"));
    }
    let wrong = |error: &ParseError| format!("{}; give {CPUS}", error.reason());
    let cpus = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((list, mask)) => {
            let cpus = CpuSet::parse_list(list).map_err(|error| wrong(&error))?;
            if cpus != parse_mask(mask).map_err(|error| wrong(&error))? {
                return Err(format!(
                    "the list and the mask in parentheses name different CPUs; give {CPUS}"
                ));
            }
            cpus
        }
        None if is_mask(text) => parse_mask(text).map_err(|error| wrong(&error))?,
        None => CpuSet::parse_list(text).map_err(|error| wrong(&error))?,
    };
    if cpus.is_empty() {
        return Err(format!("it names no CPU; give {CPUS}"));
    }
    Ok(Some(cpus))
}

/// Whether a text is plainly a mask.
fn is_mask(text: &str) -> bool {
    let hexadecimal = |group: &str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let whole = |group: &str| group.len() == GROUP && hexadecimal(group);
    match text.split_once(',') {
        _ if text.starts_with("0x") => true,
        None => whole(text),
        Some((first, rest)) => {
            (1..=GROUP).contains(&first.len())
                && hexadecimal(first)
                && rest.split(',').all(|group| whole(group.trim_end()))
        }
    }
}

/// A mask in the kernel's form, or with `0x` and any number of digits.
fn parse_mask(text: &str) -> Result<CpuSet, ParseError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.contains(',') || !digits.is_ascii() || digits.len() <= GROUP {
        return CpuSet::parse_mask(text);
    }
    let mut groups: Vec<&str> = Vec::new();
    let mut rest = digits;
    while !rest.is_empty() {
        let (head, group) = rest.split_at(rest.len().saturating_sub(GROUP));
        groups.push(group);
        rest = head;
    }
    groups.reverse();
    CpuSet::parse_mask(&groups.join(","))
}

/// CPUs as a list and as the kernel's mask: `0-3,8 (0000010f)`; `none` if there are none.
pub fn show_cpus(cpus: &CpuSet) -> String {
    if cpus.is_empty() {
        return "none".to_owned();
    }
    format!("{cpus} ({})", show_mask(cpus))
}

/// CPUs as the kernel's files have them: hexadecimal, in groups of 8 digits, the highest CPUs first.
pub fn show_mask(cpus: &CpuSet) -> String {
    let mask = cpus.to_mask();
    let first = mask.find(',').unwrap_or(mask.len());
    format!("{}{mask}", "0".repeat(GROUP.saturating_sub(first)))
}

/// A switch: 0 or 1, or a word, as variables of the environment have it ([`nearq_platform::parse_switch`]). Any other whole number counts
/// as 1, as in the kernel's files.
///
/// # Errors
/// The text is neither a number nor such a word.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match nearq_platform::parse_switch(text) {
        Some(on) => Ok(on),
        None if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(digits.bytes().any(|byte| byte != b'0'))
        }
        None => Err(format!("not a switch; give {SWITCH}")),
    }
}

/// A nice value.
///
/// # Errors
/// The text is not a whole number from -20 to 19.
pub fn parse_nice(text: &str) -> Result<i32, String> {
    let nice = text.trim().parse().ok().filter(|nice| (-20..=19).contains(nice));
    nice.ok_or_else(|| {
        "not a nice value; give a whole number from -20 (most favoured) to 19".to_owned()
    })
}

/// A scope by its exact name; `None` means `default`, if that is allowed.
///
/// # Errors
/// No scope has that name.
pub fn parse_scope(text: &str, default_allowed: bool) -> Result<Option<AffinityScope>, String> {
    let text = text.trim();
    if text == "default" && default_allowed {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_: ParseError| {
        let default = if default_allowed { "default, " } else { "" };
        format!("no such scope; give one of {default}{}", AffinityScope::names())
    })
}

/// A whole number within bounds; `unit` appears in the refusal, and may be empty.
///
/// # Errors
/// The text is not a whole number, or the number is out of bounds.
///
/// ```
/// use nearq_control::values::parse_number;
///
/// assert_eq!(parse_number("512", 16..=2048, ""), Ok(512));
/// assert_eq!(
///     parse_number("5s", 0..=60, "seconds").unwrap_err(),
///     "not allowed; give a whole number of seconds from 0 to 60"
/// );
/// ```
pub fn parse_number(text: &str, bounds: RangeInclusive<u64>, unit: &str) -> Result<u64, String> {
    let number = text.trim().parse().ok().filter(|number| bounds.contains(number));
    number.ok_or_else(|| {
        let of = if unit.is_empty() { String::new() } else { format!(" of {unit}") };
        format!("not allowed; give a whole number{of} from {} to {}", bounds.start(), bounds.end())
    })
}

/// One of several words; returns its index among them.
///
/// # Errors
/// The text is none of these words.
pub fn parse_word(text: &str, words: &[&str]) -> Result<usize, String> {
    let place = words.iter().position(|word| *word == text.trim());
    place.ok_or_else(|| format!("not allowed; give one of {}", words.join(", ")))
}

#[cfg(test)]
mod tests;

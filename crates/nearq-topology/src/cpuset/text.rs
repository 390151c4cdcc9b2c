//! CPU sets as text: the kernel's list format (`0-3,8`) and its mask format (`ff,00000001`).

use super::{BITS, CPU_ID_LIMIT, CpuSet};
use crate::ParseError;
use std::fmt::{self, Write as _};
use std::str::FromStr;

const LIST: &str = "a CPU list such as \"0-3,8\" or \"0-31:2/4\"";
const MASK: &str = "a CPU mask such as \"ff,00000001\": hexadecimal words of up to 8 digits, the highest CPUs first";

/// Hexadecimal digits in one word of the mask format.
const WORD_DIGITS: usize = 8;

impl CpuSet {
    /// The set in the kernel's list format: `"0-3,8"`, `""` when empty.
    pub fn to_list(&self) -> String {
        self.to_string()
    }

    /// The set in the kernel's mask format, without leading zeros: `"ff,00000001"`, `"0"` when empty.
    pub fn to_mask(&self) -> String {
        let halves = self.words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
        let mut halves: Vec<u32> = halves.collect();
        while halves.last() == Some(&0) {
            halves.pop();
        }
        let mut text = format!("{:x}", halves.pop().unwrap_or(0));
        for half in halves.iter().rev() {
            let _ = write!(text, ",{half:08x}");
        }
        text
    }

    /// Reads the kernel's list format: numbers and ranges separated by commas, where `0-31:2/4` takes the
    /// first 2 of every 4 CPUs of the range. White space around the items is ignored; an empty text is the
    /// empty set.
    ///
    /// # Errors
    /// If an item is not a number or a range, a range runs backwards, a CPU is not below [`CPU_ID_LIMIT`], or the ranges together name more
    /// CPUs than that.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::CpuSet;
    ///
    /// assert_eq!(CpuSet::parse_list("0-7:2/4, 16")?.to_list(), "0-1,4-5,16");
    /// assert!(CpuSet::parse_list("0-99999999999").is_err());
    /// # Ok::<(), nearq::topology::ParseError>(())
    /// ```
    pub fn parse_list(text: &str) -> Result<Self, ParseError> {
        let mut set = Self::new();
        let mut named = 0;
        if text.trim().is_empty() {
            return Ok(set);
        }
        for item in text.trim().split(',') {
            let fail = |reason: &str| ParseError::new(text, item.trim(), reason, LIST);
            let (range, stride) = match item.trim().split_once(':') {
                Some((range, stride)) => (range, Some(stride)),
                None => (item.trim(), None),
            };
            let number = |digits: &str| {
                let digits = digits.trim();
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(fail("not a number or a range of numbers"));
                }
                // A number that does not even fit a machine word is too large as well.
                let number = digits.parse().ok().filter(|cpu| *cpu < CPU_ID_LIMIT);
                number.ok_or_else(|| fail(&format!("CPU numbers must be below {CPU_ID_LIMIT}")))
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(range)?, number(range)?),
            };
            if first > last {
                return Err(fail("the range runs backwards"));
            }
            let (used, group) = match stride.map(|stride| stride.split_once('/')) {
                None => (1, 1),
                Some(Some((used, group))) => (number(used)?, number(group)?),
                Some(None) => {
                    return Err(fail("the part after ':' must be USED/GROUP, as in \"0-31:2/4\""));
                }
            };
            if group == 0 || used > group {
                return Err(fail(
                    "in \":USED/GROUP\", GROUP must be at least 1 and USED at most GROUP",
                ));
            }
            // A short text of many long ranges would take a long time.
            named += last - first + 1;
            if named > CPU_ID_LIMIT {
                return Err(fail(&format!("the ranges name more than {CPU_ID_LIMIT} CPUs")));
            }
            set.extend((first..=last).filter(|cpu| (cpu - first) % group < used));
        }
        Ok(set)
    }

    /// Reads the kernel's mask format: hexadecimal words of 32 CPUs, separated by commas, the highest CPUs
    /// first. A leading `0x` of a word is ignored.
    ///
    /// # Errors
    /// If a word is not hexadecimal or has more than 8 digits, or a CPU is not below [`CPU_ID_LIMIT`].
    pub fn parse_mask(text: &str) -> Result<Self, ParseError> {
        let mut words = Vec::new();
        for (index, word) in text.trim().split(',').rev().enumerate() {
            let fail = |reason: &str| ParseError::new(text, word, reason, MASK);
            let digits = word.strip_prefix("0x").unwrap_or(word);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(fail("not a hexadecimal number"));
            }
            if digits.len() > WORD_DIGITS {
                return Err(fail("more than 8 digits between the commas"));
            }
            let value =
                u64::from_str_radix(digits, 16).map_err(|_| fail("not a hexadecimal number"))?;
            if value != 0 && index >= CPU_ID_LIMIT / 32 {
                return Err(fail(&format!("CPU numbers must be below {CPU_ID_LIMIT}")));
            }
            if index % 2 == 0 {
                words.push(value);
            } else if let Some(last) = words.last_mut() {
                *last |= value << (BITS / 2);
            }
        }
        Ok(Self::trimmed(words))
    }
}

impl fmt::Display for CpuSet {
    /// The list format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut cpus = self.iter().peekable();
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| *next == last + 1) {
                last = next;
            }
            if !text.is_empty() {
                text.push(',');
            }
            let _ = write!(text, "{first}");
            if last > first {
                let _ = write!(text, "-{last}");
            }
        }
        f.pad(&text)
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = ParseError;

    /// Reads the list format, as [`CpuSet::parse_list`] does.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse_list(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> String {
        CpuSet::parse_list(text).unwrap().to_list()
    }

    fn list_error(text: &str) -> String {
        CpuSet::parse_list(text).unwrap_err().to_string()
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        assert_eq!(list(""), "");
        assert_eq!(list("\n"), "");
        assert_eq!(list("0-3,8\n"), "0-3,8");
        assert_eq!(list("8,0-1,2,3"), "0-3,8");
        assert_eq!(list("0-31:2/4"), "0-1,4-5,8-9,12-13,16-17,20-21,24-25,28-29");
        assert_eq!(list("5-9:1/2"), "5,7,9");
        assert_eq!(list("4-5:0/1"), "");
    }

    #[test]
    fn bad_lists_name_the_value_and_what_is_allowed() {
        assert_eq!(
            list_error("0,x"),
            "\"x\" in \"0,x\": not a number or a range of numbers; give a CPU list such as \"0-3,8\" or \"0-31:2/4\""
        );
        for (text, part) in [
            ("0-99999999999", "must be below 65536"),
            ("99999999999999999999999", "must be below 65536"),
            ("65536", "must be below 65536"),
            ("3-1", "runs backwards"),
            ("0-", "not a number"),
            ("-1", "not a number"),
            ("1,,2", "not a number"),
            ("+1", "not a number"),
            ("0-3:4", "USED/GROUP"),
            ("0-3:2/0", "at least 1"),
            ("0-3:5/4", "at most GROUP"),
            ("0-65535,0-1", "the ranges name more than 65536 CPUs"),
        ] {
            assert!(list_error(text).contains(part), "{text}: {}", list_error(text));
        }
    }

    #[test]
    fn the_reason_names_the_part_where_there_is_more_than_that() {
        let reason = |text| CpuSet::parse_list(text).unwrap_err().reason();
        assert_eq!(reason("0,x"), "\"x\": not a number or a range of numbers");
        assert_eq!(reason(" 3-1\n"), "the range runs backwards");
    }

    #[test]
    fn masks_are_read_and_written_as_the_kernel_does() {
        for (text, cpus, back) in [
            ("0", "", "0"),
            ("00000000,00000000", "", "0"),
            ("ff,00000001\n", "0,32-39", "ff,00000001"),
            ("1,00000000,00000000", "64", "1,00000000,00000000"),
            ("80000000", "31", "80000000"),
            ("0x0000000f", "0-3", "f"),
        ] {
            let set = CpuSet::parse_mask(text).unwrap();
            assert_eq!((set.to_list().as_str(), set.to_mask().as_str()), (cpus, back), "{text}");
        }
        for (text, part) in [
            ("", "hexadecimal"),
            ("g", "hexadecimal"),
            ("1,,1", "hexadecimal"),
            ("123456789", "more than 8"),
        ] {
            let error = CpuSet::parse_mask(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let huge = format!("1{}", ",00000000".repeat(CPU_ID_LIMIT / 32));
        assert!(CpuSet::parse_mask(&huge).unwrap_err().to_string().contains("below 65536"));
    }
}

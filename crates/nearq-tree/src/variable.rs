//! The variable `NEARQ_TREE` in the environment of a member: where the table is, and what has already been done to the member.
//!
//! ```text
//! 1:4711:3:9f2c06a1d5e80b74:h:0f:ff
//! │ │    │ │                │ │  └ the widest mask of CPUs that the tree may have
//! │ │    │ │                │ └ the mask that the nearest ancestor with a home was given
//! │ │    │ │                └ `h`: there is one; `o`: an ancestor has taken CPUs of its own choice; `-`: neither
//! │ │    │ └ what the table repeats, so that another process of that number is noticed
//! │ │    └ its descriptor of the table
//! │ └ the process that keeps the table
//! └ the version of this text
//! ```
//!
//! The last letter and the mask have a fixed width and are overwritten in place, in the environment that the program will pass on. So a
//! program knows whether a mask that it inherited was that of a home, even through forks and shells that have no entry in the table, and
//! even when the table is gone. Nothing here allocates or panics.

use crate::layout::MAX_MASK_WORDS;

/// The variable's name.
pub const VARIABLE: &str = "NEARQ_TREE";
/// The variable by which a program's choice is set: `exec`, `fork` or `lazy`.
pub const CHOOSE: &str = "NEARQ_TREE_CHOOSE";
const VERSION: &[u8] = b"1";

/// CPUs as words of the kernel's mask.
pub type Mask = [u64; MAX_MASK_WORDS];

/// What is known about the CPUs that a program inherits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherited {
    /// The CPUs have not been narrowed.
    Nothing,
    /// The CPUs are those of a home.
    Home,
    /// The CPUs are a program's own choice.
    Own,
}

impl Inherited {
    #[inline]
    const fn letter(self) -> u8 {
        match self {
            Inherited::Nothing => b'-',
            Inherited::Home => b'h',
            Inherited::Own => b'o',
        }
    }
}

/// The parts of the variable's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeVariable<'a> {
    /// The process that keeps the table.
    pub supervisor: u32,
    /// Its descriptor of the table.
    pub descriptor: u32,
    /// The token, which the table repeats.
    pub token: u64,
    /// What is known about the inherited CPUs.
    pub inherited: Inherited,
    narrow: &'a [u8],
    widest: &'a [u8],
}

impl<'a> TreeVariable<'a> {
    /// `None` if the text is not such a value.
    #[inline]
    pub fn of(value: &'a [u8]) -> Option<Self> {
        let mut parts = value.split(|byte| *byte == b':');
        if parts.next()? != VERSION {
            return None;
        }
        let supervisor = decimal(parts.next()?)?;
        let descriptor = decimal(parts.next()?)?;
        let token = hexadecimal(parts.next()?)?;
        let inherited = match parts.next()? {
            b"-" => Inherited::Nothing,
            b"h" => Inherited::Home,
            b"o" => Inherited::Own,
            _ => return None,
        };
        let (narrow, widest) = (parts.next()?, parts.next()?);
        let parsed = TreeVariable { supervisor, descriptor, token, inherited, narrow, widest };
        (narrow.len() == widest.len() && parts.next().is_none()).then_some(parsed)
    }

    /// The mask that the nearest ancestor with a home was given.
    #[inline]
    pub fn narrow(&self) -> Option<Mask> {
        mask(self.narrow)
    }

    /// The widest mask that the tree may have.
    #[inline]
    pub fn widest(&self) -> Option<Mask> {
        mask(self.widest)
    }
}

/// The value of the variable for a tree with that table.
#[cfg(not(preloaded))]
pub fn value(supervisor: u32, descriptor: u32, token: u64, widest: &[u64]) -> String {
    let digits = digits_of(widest);
    let mut wide = vec![b'0'; digits];
    write_mask(&mut wide, widest);
    let wide = String::from_utf8_lossy(&wide);
    format!("1:{supervisor}:{descriptor}:{token:016x}:-:{}:{wide}", "0".repeat(digits))
}

/// Digits that hold the mask.
#[inline]
fn digits_of(mask: &[u64]) -> usize {
    let last = mask.iter().rposition(|word| *word != 0).unwrap_or(0);
    let word = mask.get(last).copied().unwrap_or(0);
    last * 16 + (64 - word.leading_zeros() as usize).div_ceil(4).max(1)
}

/// Writes into the value what is known about the CPUs from now on; `narrow` only for the CPUs of a home. Returns false and changes nothing
/// if the text is not such a value or the mask does not fit.
#[inline]
pub fn rewrite(value: &mut [u8], inherited: Inherited, narrow: &[u64]) -> bool {
    let Some(parsed) = TreeVariable::of(value) else { return false };
    let digits = parsed.narrow.len();
    if inherited == Inherited::Home && digits_of(narrow) > digits {
        return false;
    }
    // From the end: the widest mask, a colon, the narrow mask, a colon, the letter.
    let Some(at) = value.len().checked_sub(2 * digits + 1) else { return false };
    if let Some(letter) = at.checked_sub(2).and_then(|at| value.get_mut(at)) {
        *letter = inherited.letter();
    }
    if inherited == Inherited::Home
        && let Some(place) = value.get_mut(at..at + digits)
    {
        write_mask(place, narrow);
    }
    true
}

#[inline]
fn write_mask(place: &mut [u8], mask: &[u64]) {
    for (digit, byte) in place.iter_mut().rev().enumerate() {
        let word = mask.get(digit / 16).copied().unwrap_or(0);
        let value = (word >> (digit % 16 * 4) & 0xf) as u8;
        *byte = if value < 10 { b'0' + value } else { b'a' + value - 10 };
    }
}

#[inline]
fn mask(text: &[u8]) -> Option<Mask> {
    let mut mask = [0; MAX_MASK_WORDS];
    for (digit, byte) in text.iter().rev().enumerate() {
        let value = u64::from(hexadecimal_digit(*byte)?);
        *mask.get_mut(digit / 16)? |= value << (digit % 16 * 4);
    }
    (!text.is_empty()).then_some(mask)
}

#[inline]
fn hexadecimal_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[inline]
fn hexadecimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0, |number, byte| Some(number << 4 | u64::from(hexadecimal_digit(*byte)?)))
}

/// A decimal number without a sign.
#[inline]
pub fn decimal(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u32, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u32::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(words: &[u64]) -> Mask {
        let mut mask = [0; MAX_MASK_WORDS];
        mask[..words.len()].copy_from_slice(words);
        mask
    }

    #[test]
    fn written_values_can_be_read() {
        let text = value(4711, 3, 0x9f2c, &[0xff, 0]);
        assert_eq!(text, "1:4711:3:0000000000009f2c:-:00:ff");
        let parsed = TreeVariable::of(text.as_bytes()).unwrap();
        assert_eq!((parsed.supervisor, parsed.descriptor, parsed.token), (4711, 3, 0x9f2c));
        assert_eq!(parsed.inherited, Inherited::Nothing);
        assert_eq!(parsed.widest(), Some(long(&[0xff])));
    }

    #[test]
    fn a_home_can_be_overwritten_in_place() {
        let widest = [u64::MAX, 0xffff];
        let mut text = value(1, 2, 3, &widest).into_bytes();
        assert!(rewrite(&mut text, Inherited::Home, &[0xf0, 0xf]));
        let parsed = TreeVariable::of(&text).unwrap();
        assert_eq!(parsed.inherited, Inherited::Home);
        assert_eq!(parsed.narrow(), Some(long(&[0xf0, 0xf])));
        assert_eq!(parsed.widest(), Some(long(&widest)));
        assert!(!rewrite(&mut text, Inherited::Home, &[0, 0, 1]), "it does not fit");
        assert!(rewrite(&mut text, Inherited::Own, &[]));
        assert_eq!(TreeVariable::of(&text).unwrap().inherited, Inherited::Own);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "1",
            "2:1:2:3:-:0:1",
            "1:1:2:3:-:00:1",
            "1:1:2:3:x:0:1",
            "1:1:2:3:-:0:1:",
            "1:-1:2:3:-:0:1",
            "1:1:2:g:-:0:1",
            "1:99999999999:2:3:-:0:1",
            "1:1:2::-:0:1",
            "1:1:2:12345678901234567:-:0:1",
        ] {
            assert_eq!(TreeVariable::of(text.as_bytes()), None, "{text}");
            assert!(!rewrite(&mut text.as_bytes().to_vec(), Inherited::Own, &[]), "{text}");
        }
        let parsed = TreeVariable::of(b"1:1:2:3:-:g:1").unwrap();
        assert_eq!((parsed.narrow(), parsed.widest()), (None, Some(long(&[1]))));
        let too_long = format!("1:1:2:3:-:{0}:{0}", "1".repeat(MAX_MASK_WORDS * 16 + 1));
        assert_eq!(TreeVariable::of(too_long.as_bytes()).unwrap().widest(), None);
    }
}

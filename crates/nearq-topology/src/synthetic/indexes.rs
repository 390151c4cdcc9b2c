//! The numbers that the operating system gives to CPUs and nodes: `indexes=...` of a synthetic description.

use super::grammar::{Level, kind};
use crate::assemble::number;
use crate::error::quoted;
use std::collections::BTreeSet;

/// The operating system's numbers of `count` parts, all below `end`. They are given either as a list of all of them, or as the kinds of
/// parts to loop over, the fastest loop first.
pub(super) fn indexes(
    text: &str,
    levels: &[Level<'_>],
    count: usize,
    end: usize,
) -> Result<Vec<usize>, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let numbers: Vec<usize> = text.split(',').map(number).collect::<Result<_, _>>()?;
        let distinct: BTreeSet<usize> = numbers.iter().copied().collect();
        if numbers.len() != count || distinct.len() != count {
            return Err(format!("{} distinct numbers are given for {count}", distinct.len()));
        }
        if numbers.iter().any(|number| *number >= end) {
            return Err(format!("numbers must be below {end}"));
        }
        return Ok(numbers);
    }
    // The totals of the loops, in the order in which they are given, the fastest first.
    let mut loops = Vec::new();
    for name in text.split(':') {
        let found = kind(name).and_then(|kind| levels.iter().find(|level| level.kind == kind));
        let found = found
            .ok_or_else(|| format!("{} in indexes is not a part of this machine", quoted(name)))?;
        if count % found.total != 0 || loops.contains(&found.total) && found.total != 1 {
            return Err(format!("{} in indexes cannot be enumerated", quoted(name)));
        }
        loops.push(found.total);
    }
    loops.push(count);
    let digit = |index: usize, total: usize| {
        let outer = loops.iter().copied().filter(|other| *other < total).max().unwrap_or(1);
        (index / (count / total) % (total / outer), total / outer)
    };
    let number = |index: usize| {
        let mut seen = Vec::new();
        let (mut number, mut step) = (0, 1);
        for total in &loops {
            if seen.contains(total) {
                continue;
            }
            seen.push(*total);
            let (value, size) = digit(index, *total);
            number += value * step;
            step *= size;
        }
        number
    };
    Ok((0..count).map(number).collect())
}

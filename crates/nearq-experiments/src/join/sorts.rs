//! Programs that sort, with a grain below which they do not fork.

use super::pools::Pool;

/// Numbers that one closure sorts.
const GRAIN: usize = 4096;

/// Sorts `numbers` by merging; `space` is as long.
pub(super) fn merge_sort<P: Pool>(
    scope: &mut P::Scope<'_>,
    numbers: &mut [u32],
    space: &mut [u32],
) {
    sort_into::<P>(scope, numbers, space, false);
}

/// Sorts what `numbers` has, into `space` if `moves`.
fn sort_into<P: Pool>(
    scope: &mut P::Scope<'_>,
    numbers: &mut [u32],
    space: &mut [u32],
    moves: bool,
) {
    if numbers.len() <= GRAIN {
        numbers.sort_unstable();
        if moves {
            space.copy_from_slice(numbers);
        }
        return;
    }
    let middle = numbers.len() / 2;
    {
        let (low, high) = numbers.split_at_mut(middle);
        let (low_space, high_space) = space.split_at_mut(middle);
        P::join(
            scope,
            |scope| sort_into::<P>(scope, low, low_space, !moves),
            |scope| sort_into::<P>(scope, high, high_space, !moves),
        );
    }
    let (from, to) = if moves { (numbers, space) } else { (space, numbers) };
    let (low, high) = from.split_at(middle);
    merge::<P>(scope, low, high, to);
}

/// Merges two sorted slices: the middle of the longer one divides both.
fn merge<P: Pool>(scope: &mut P::Scope<'_>, a: &[u32], b: &[u32], to: &mut [u32]) {
    if to.len() <= GRAIN {
        let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
        for place in to {
            let from_a = b.peek().is_none_or(|b| a.peek().is_some_and(|a| a <= b));
            let next = if from_a { a.next() } else { b.next() };
            *place = *next.expect("there are as many as places");
        }
        return;
    }
    let (longer, shorter) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let (low, high) = longer.split_at(longer.len() / 2);
    let (other_low, other_high) = shorter.split_at(shorter.partition_point(|one| *one < high[0]));
    let (to_low, to_high) = to.split_at_mut(low.len() + other_low.len());
    P::join(
        scope,
        |scope| merge::<P>(scope, low, other_low, to_low),
        |scope| merge::<P>(scope, high, other_high, to_high),
    );
}

/// Sorts by dividing at the median of three numbers.
pub(super) fn quick_sort<P: Pool>(scope: &mut P::Scope<'_>, numbers: &mut [u32]) {
    if numbers.len() <= GRAIN {
        return numbers.sort_unstable();
    }
    let (low, high) = divide(numbers);
    P::join(scope, |scope| quick_sort::<P>(scope, low), |scope| quick_sort::<P>(scope, high));
}

/// The numbers below a pivot, and those above it.
fn divide(numbers: &mut [u32]) -> (&mut [u32], &mut [u32]) {
    let last = numbers.len() - 1;
    let mut three = [0, last / 2, last];
    three.sort_unstable_by_key(|&at| numbers[at]);
    numbers.swap(three[1], last);
    let pivot = numbers[last];
    let mut below = 0;
    for at in 0..last {
        // Without a branch that depends on random numbers.
        numbers.swap(at, below);
        below += usize::from(numbers[below] < pivot);
    }
    numbers.swap(below, last);
    let (low, rest) = numbers.split_at_mut(below);
    (low, &mut rest[1..])
}

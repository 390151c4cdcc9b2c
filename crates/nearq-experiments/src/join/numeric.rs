//! Programs that compute over ranges and blocks, with a grain below which they do not fork.

use super::pools::Pool;
use crate::scopes::mixed;
use std::ops::Range;

/// Rows and columns of a block of a matrix that is not divided.
const BLOCK: usize = 32;

/// Adds the product of two square matrices to a third. A matrix is its four quarters, one after the other, each stored in the same way; a
/// block of [`BLOCK`] rows is stored by rows.
pub(super) fn add_product<P: Pool>(
    scope: &mut P::Scope<'_>,
    sum: &mut [f32],
    a: &[f32],
    b: &[f32],
) {
    if sum.len() == BLOCK * BLOCK {
        return add_block(sum, a, b);
    }
    let quarter = sum.len() / 4;
    let of = |number: usize| quarter * number..quarter * (number + 1);
    let (top, bottom) = sum.split_at_mut(2 * quarter);
    let (c0, c1) = top.split_at_mut(quarter);
    let (c2, c3) = bottom.split_at_mut(quarter);
    // A quarter of the result is the sum of two products, the second of which is added after the first.
    for inner in 0..2 {
        let (upper, lower) = (&a[of(inner)], &a[of(2 + inner)]);
        let (left, right) = (&b[of(2 * inner)], &b[of(2 * inner + 1)]);
        let (c0, c1, c2, c3) = (&mut *c0, &mut *c1, &mut *c2, &mut *c3);
        P::join(
            scope,
            |scope| {
                P::join(
                    scope,
                    |scope| add_product::<P>(scope, c0, upper, left),
                    |scope| add_product::<P>(scope, c1, upper, right),
                )
            },
            |scope| {
                P::join(
                    scope,
                    |scope| add_product::<P>(scope, c2, lower, left),
                    |scope| add_product::<P>(scope, c3, lower, right),
                )
            },
        );
    }
}

fn add_block(sum: &mut [f32], a: &[f32], b: &[f32]) {
    for (sum, a) in sum.chunks_exact_mut(BLOCK).zip(a.chunks_exact(BLOCK)) {
        for (factor, b) in a.iter().zip(b.chunks_exact(BLOCK)) {
            for (sum, b) in sum.iter_mut().zip(b) {
                *sum += factor * b;
            }
        }
    }
}

/// A body: where it is, how it moves, and its mass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) place: [f64; 3],
    pub(super) speed: [f64; 3],
    pub(super) mass: f64,
}

/// Bodies that one closure moves.
const BODIES: usize = 16;
/// The length of a step.
const STEP: f64 = 0.01;
/// Added to each squared distance, so that bodies that meet do not leave each other at any speed.
const SOFTENING: f64 = 0.01;

/// One step of bodies that attract each other: `after` is what becomes of the bodies from `first` on.
pub(super) fn move_bodies<P: Pool>(
    scope: &mut P::Scope<'_>,
    before: &[Body],
    first: usize,
    after: &mut [Body],
) {
    if after.len() <= BODIES {
        for (body, after) in before[first..].iter().zip(after) {
            *after = moved(*body, before);
        }
        return;
    }
    let middle = after.len() / 2;
    let (low, high) = after.split_at_mut(middle);
    P::join(
        scope,
        |scope| move_bodies::<P>(scope, before, first, low),
        |scope| move_bodies::<P>(scope, before, first + middle, high),
    );
}

fn moved(mut body: Body, all: &[Body]) -> Body {
    let mut pull = [0.0; 3];
    for other in all {
        let mut distance = [0.0; 3];
        for (axis, distance) in distance.iter_mut().enumerate() {
            *distance = other.place[axis] - body.place[axis];
        }
        let squared = distance.iter().map(|one| one * one).sum::<f64>() + SOFTENING;
        let factor = other.mass / (squared * squared.sqrt());
        for (pull, distance) in pull.iter_mut().zip(distance) {
            *pull += factor * distance;
        }
    }
    for (axis, pull) in pull.into_iter().enumerate() {
        body.speed[axis] += pull * STEP;
        body.place[axis] += body.speed[axis] * STEP;
    }
    body
}

/// Odd numbers that one closure sieves: as many bytes as a first-level cache has.
const SEGMENT: usize = 32 << 10;

/// The number of primes below `end`.
pub(super) fn primes<P: Pool>(scope: &mut P::Scope<'_>, end: usize) -> u64 {
    let small = small_primes(end.isqrt() + 1);
    // 2, and 1 in the place of which it counts: the odd numbers are 2 i + 1.
    sieve::<P>(scope, &small, 0..end / 2)
}

/// The odd primes up to `last`.
fn small_primes(last: usize) -> Vec<usize> {
    let odd = (3..=last).step_by(2);
    odd.filter(|number| (3..=number.isqrt()).step_by(2).all(|by| number % by != 0)).collect()
}

/// How many of the odd numbers `2 i + 1` with `i` in a range are not divisible by a smaller one of the primes.
fn sieve<P: Pool>(scope: &mut P::Scope<'_>, primes: &[usize], range: Range<usize>) -> u64 {
    if range.len() > SEGMENT {
        let middle = range.start.midpoint(range.end);
        let (a, b) = P::join(
            scope,
            |scope| sieve::<P>(scope, primes, range.start..middle),
            |scope| sieve::<P>(scope, primes, middle..range.end),
        );
        return a + b;
    }
    let mut composite = vec![false; range.len()];
    for &prime in primes {
        // From the square on, as the smaller multiples have smaller divisors; `i` grows by the prime from one odd multiple to the next.
        let square = prime * prime / 2;
        let first = if square >= range.start {
            square - range.start
        } else {
            (prime - (range.start - square) % prime) % prime
        };
        for at in (first..composite.len()).step_by(prime) {
            composite[at] = true;
        }
    }
    composite.iter().filter(|one| !**one).count() as u64
}

/// Numbers that one closure sums up.
const NUMBERS: usize = 4096;

/// The sum of a hash of each number.
pub(super) fn map_reduce<P: Pool>(scope: &mut P::Scope<'_>, numbers: &[u64]) -> u64 {
    if numbers.len() <= NUMBERS {
        return numbers.iter().fold(0, |sum, number| sum.wrapping_add(mixed(*number)));
    }
    let (low, high) = numbers.split_at(numbers.len() / 2);
    let (a, b) =
        P::join(scope, |scope| map_reduce::<P>(scope, low), |scope| map_reduce::<P>(scope, high));
    a.wrapping_add(b)
}

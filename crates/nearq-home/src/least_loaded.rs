//! The choice among nodes that functions describe.
//!
//! The crate `nearq-tree` compiles this file too: its library makes the same choice in a program before its `main`. So the file uses
//! nothing, not even the standard library.

/// The index of the node where something new has its home, among `count` nodes. The functions return for each node its load and the
/// capacity of its CPUs together, both in thousandths, and its distance. It neither allocates nor panics, whatever the functions return, so a process can use it
/// before it has begun its program.
///
/// ```
/// assert_eq!(nearq_home::least_loaded(3, |index| [1500, 800, 900][index], |_| 4000, |_| 0), 1);
/// ```
#[inline]
pub fn least_loaded(
    count: usize,
    load: impl Fn(usize) -> u64,
    capacity: impl Fn(usize) -> u32,
    distance: impl Fn(usize) -> u32,
) -> usize {
    // The load with one more task.
    let load = |index: usize| load(index).saturating_add(1000);
    let mut best = 0;
    for index in 1..count {
        // load / capacity, compared without dividing.
        let ours = load(index).saturating_mul(u64::from(capacity(best)));
        let theirs = load(best).saturating_mul(u64::from(capacity(index)));
        if ours < theirs || ours == theirs && distance(index) < distance(best) {
            best = index;
        }
    }
    best
}

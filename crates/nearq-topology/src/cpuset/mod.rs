//! A set of CPU ids: a bit mask of any length, with the set operations the runtime needs.
//!
//! The words are those of `sched_setaffinity`: bit `c % 64` of word `c / 64` is CPU `c`. Trailing zero words
//! are always trimmed, so that equality and hashing go by content alone.

mod text;

use crate::CpuIdTooLarge;
use std::cmp::Ordering;
use std::ops::{BitAnd, BitOr, Range, Sub};

/// The end of the range of CPU ids: every id in a [`CpuSet`] is below this. A text that names a larger one is an error, not a huge
/// allocation.
///
/// Sixteen times what the largest kernel configuration allows. How many CPUs a machine may have is
/// [`MAX_CPU_COUNT`](crate::MAX_CPU_COUNT).
pub const CPU_ID_LIMIT: usize = 65536;

const BITS: usize = u64::BITS as usize;

/// A set of CPU ids, each below [`CPU_ID_LIMIT`].
///
/// Ordered as the sequence of its members, smallest first. Displays and parses in the kernel's list format. It allocates a bit for each id
/// up to the largest one in the set.
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// use nearq::topology::CpuSet;
///
/// let some: CpuSet = "0-3,8".parse()?;
/// assert_eq!(some.len(), 5);
/// assert!(some.contains(8) && !some.contains(4));
/// assert_eq!(some.to_mask(), "10f");
/// assert_eq!((&some - &CpuSet::from_range(1..4)).to_string(), "0,8");
/// # Ok::<(), nearq::topology::ParseError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set. Allocates nothing.
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// The set of one CPU.
    ///
    /// # Panics
    /// If `cpu` is not below [`CPU_ID_LIMIT`].
    pub fn single(cpu: usize) -> Self {
        let mut set = Self::new();
        set.insert(cpu);
        set
    }

    /// The CPUs of a range of ids.
    ///
    /// # Panics
    /// If the range ends above [`CPU_ID_LIMIT`].
    pub fn from_range(cpus: Range<usize>) -> Self {
        cpus.collect()
    }

    /// The CPUs `0..count`.
    ///
    /// # Panics
    /// If `count` is above [`CPU_ID_LIMIT`].
    pub fn all(count: usize) -> Self {
        Self::from_range(0..count)
    }

    /// The set whose members are the bits of `words`: bit `c % 64` of word `c / 64` is CPU `c`.
    ///
    /// # Panics
    /// If a CPU is not below [`CPU_ID_LIMIT`].
    pub fn from_words(words: &[u64]) -> Self {
        let set = Self::trimmed(words.to_vec());
        assert!(set.words.len() <= CPU_ID_LIMIT / BITS, "CPU numbers must be below {CPU_ID_LIMIT}");
        set
    }

    /// The set as words, the last of them not zero: bit `c % 64` of word `c / 64` is CPU `c`.
    pub fn as_words(&self) -> &[u64] {
        &self.words
    }

    fn trimmed(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// Adds a CPU; true if it was not a member. For ids from outside the program use [`try_insert`](Self::try_insert).
    ///
    /// # Panics
    /// If `cpu` is not below [`CPU_ID_LIMIT`].
    pub fn insert(&mut self, cpu: usize) -> bool {
        self.try_insert(cpu).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Adds a CPU; true if it was not a member.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CPU_ID_LIMIT, CpuSet};
    ///
    /// let mut set = CpuSet::new();
    /// assert_eq!((set.try_insert(3), set.try_insert(3)), (Ok(true), Ok(false)));
    /// let error = set.try_insert(CPU_ID_LIMIT).unwrap_err();
    /// assert_eq!(error.to_string(), "CPU 65536: CPU numbers must be below 65536");
    /// ```
    ///
    /// # Errors
    /// If `cpu` is not below [`CPU_ID_LIMIT`]. The set is unchanged then.
    pub fn try_insert(&mut self, cpu: usize) -> Result<bool, CpuIdTooLarge> {
        if cpu >= CPU_ID_LIMIT {
            return Err(CpuIdTooLarge(cpu));
        }
        let (index, bit) = (cpu / BITS, 1 << (cpu % BITS));
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        let fresh = self.words[index] & bit == 0;
        self.words[index] |= bit;
        Ok(fresh)
    }

    /// Removes a CPU; true if it was a member.
    pub fn remove(&mut self, cpu: usize) -> bool {
        let there = self.contains(cpu);
        if there {
            self.words[cpu / BITS] &= !(1 << (cpu % BITS));
            while self.words.last() == Some(&0) {
                self.words.pop();
            }
        }
        there
    }

    /// Whether `cpu` is a member. Any number is allowed, ids that are too large included.
    pub fn contains(&self, cpu: usize) -> bool {
        self.word(cpu / BITS) >> (cpu % BITS) & 1 == 1
    }

    /// Whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The smallest member.
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// The largest member.
    pub fn last(&self) -> Option<usize> {
        let word = self.words.last()?;
        Some(self.words.len() * BITS - 1 - word.leading_zeros() as usize)
    }

    /// The members, smallest first.
    pub fn iter(&self) -> Iter<'_> {
        Iter { words: &self.words, index: 0, rest: self.word(0) }
    }

    /// The CPUs in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let length = self.words.len().max(other.words.len());
        Self::trimmed((0..length).map(|i| self.word(i) | other.word(i)).collect())
    }

    /// The CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::trimmed(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// The CPUs of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let words = self.words.iter().enumerate();
        Self::trimmed(words.map(|(i, word)| word & !other.word(i)).collect())
    }

    /// Whether some CPU is in both sets.
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether every CPU of this set is also in `of`.
    pub fn is_subset(&self, of: &Self) -> bool {
        self.words.iter().enumerate().all(|(i, word)| word & !of.word(i) == 0)
    }
}

/// The members of a [`CpuSet`], smallest first.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    words: &'a [u64],
    index: usize,
    rest: u64,
}

impl Iterator for Iter<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while self.rest == 0 {
            self.index += 1;
            self.rest = *self.words.get(self.index)?;
        }
        let bit = self.rest.trailing_zeros() as usize;
        self.rest &= self.rest - 1;
        Some(self.index * BITS + bit)
    }
}

impl<'a> IntoIterator for &'a CpuSet {
    type Item = usize;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl FromIterator<usize> for CpuSet {
    /// # Panics
    /// If a CPU is not below [`CPU_ID_LIMIT`].
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = Self::new();
        set.extend(cpus);
        set
    }
}

impl Extend<usize> for CpuSet {
    /// # Panics
    /// If a CPU is not below [`CPU_ID_LIMIT`].
    fn extend<I: IntoIterator<Item = usize>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

impl Ord for CpuSet {
    fn cmp(&self, other: &Self) -> Ordering {
        let length = self.words.len().max(other.words.len());
        let Some(at) = (0..length).find(|at| self.word(*at) != other.word(*at)) else {
            return Ordering::Equal;
        };
        // The smallest CPU that only one of the sets has: it is the next member of that set, and the next member of the other set is larger
        // or does not exist.
        let bit = (self.word(at) ^ other.word(at)).trailing_zeros();
        let has = self.word(at) >> bit & 1 == 1;
        let lacking = if has { other } else { self };
        let goes_on = lacking.word(at) >> bit != 0 || lacking.words.len() > at + 1;
        if has == goes_on { Ordering::Less } else { Ordering::Greater }
    }
}

impl PartialOrd for CpuSet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl BitAnd for &CpuSet {
    type Output = CpuSet;

    fn bitand(self, other: Self) -> CpuSet {
        self.intersection(other)
    }
}

impl BitOr for &CpuSet {
    type Output = CpuSet;

    fn bitor(self, other: Self) -> CpuSet {
        self.union(other)
    }
}

impl Sub for &CpuSet {
    type Output = CpuSet;

    fn sub(self, other: Self) -> CpuSet {
        self.difference(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_and_hash_ignore_how_the_set_was_made() {
        let mut a = CpuSet::single(3);
        a.insert(500);
        assert!(a.remove(500));
        assert!(!a.remove(500));
        assert_eq!(a, CpuSet::single(3));
        assert_eq!(a.as_words(), [8]);
        assert_eq!(CpuSet::from_words(&[8, 0, 0]), a);
        assert_eq!(CpuSet::from_words(&[0]), CpuSet::new());
    }

    #[test]
    fn members_first_and_last_cross_words() {
        let set: CpuSet = [130, 0, 63, 64].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 130]);
        assert_eq!((set.first(), set.last(), set.len()), (Some(0), Some(130), 4));
        let empty = CpuSet::new();
        assert_eq!((empty.first(), empty.last(), empty.len()), (None, None, 0));
        assert!(!set.contains(usize::MAX));
    }

    #[test]
    fn set_algebra() {
        let (a, b) = (CpuSet::from_range(0..70), CpuSet::from_range(60..200));
        assert_eq!(&a & &b, CpuSet::from_range(60..70));
        assert_eq!(&a | &b, CpuSet::all(200));
        assert_eq!(&a - &b, CpuSet::all(60));
        assert!(a.intersects(&b) && !a.intersects(&CpuSet::single(100)));
        assert!((&a & &b).is_subset(&a) && !b.is_subset(&a));
        assert!(CpuSet::new().is_subset(&CpuSet::new()));
    }

    #[test]
    fn sets_are_ordered_by_their_members() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        assert!(set("0-3") < set("1") && set("0") < set("0,100") && set("") < set("0"));
    }

    #[test]
    #[should_panic(expected = "CPU 65536: CPU numbers must be below 65536")]
    fn a_cpu_number_that_is_too_large_panics() {
        CpuSet::single(CPU_ID_LIMIT);
    }
}

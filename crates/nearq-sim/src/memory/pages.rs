//! The pages of declared memory: on which node each lives, which process it counts for, and which caches hold which
//! of its lines.

use std::collections::BTreeMap;

use super::caches::{Caches, CpuPosition};
use super::{AddressMap, LINE, PAGE};

/// What a cache holds of a page.
#[derive(Clone, Copy, Debug)]
struct Holding {
    cache: u32,
    /// When the first of the lines came in; all of them are forgotten together.
    stamp: u64,
    /// A bit for each line.
    lines: u64,
    /// A bit for each of these lines that was written and has not gone back to memory. Only in a last-level cache.
    written: u64,
}

/// A page that has been touched.
#[derive(Debug)]
pub(super) struct Page {
    /// The node it lives on.
    home: u32,
    /// The process that it counts for.
    process: u64,
    holdings: Vec<Holding>,
}

/// The lines of an access, by where they are. A line is in one of the four sets; lines in `elsewhere` may also be in the CPU's own caches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// In the CPU's private cache.
    pub(super) private: u64,
    /// In another cache below the same last-level one, or in the last-level cache itself, or in both.
    pub(super) llc: u64,
    /// In another private cache below the same last-level one.
    pub(super) neighbour: u64,
    /// Under another last-level cache.
    pub(super) elsewhere: u64,
    /// The lines of `elsewhere` whose newest content memory does not have.
    pub(super) newer: u64,
    /// The nearest cache that has some of `elsewhere`, and the latency.
    pub(super) nearest: (u64, u32),
    /// The latency of the farthest.
    pub(super) farthest: u64,
}

impl Page {
    pub(super) fn home(&self) -> u32 {
        self.home
    }

    /// Where the lines in `mask` are; `latency` gives the distance to another cache. Drops what caches have
    /// forgotten.
    pub(super) fn find(
        &mut self,
        mask: u64,
        position: CpuPosition,
        caches: &Caches,
        latency: impl Fn(u32) -> u64,
    ) -> Found {
        let mut found = Found::default();
        let mut at = 0;
        while let Some(&holding) = self.holdings.get(at) {
            let cache = holding.cache;
            if !caches.holds(cache, holding.stamp) {
                self.holdings.swap_remove(at);
                continue;
            }
            at += 1;
            let lines = holding.lines & mask;
            if cache == position.private {
                found.private = lines;
            } else if caches.llc_of(cache).0 == position.llc {
                found.llc |= lines;
                if cache != position.llc {
                    found.neighbour |= lines;
                }
            } else if lines != 0 {
                let away = (latency(cache), cache);
                if found.elsewhere == 0 || away < found.nearest {
                    found.nearest = away;
                }
                found.farthest = found.farthest.max(away.0);
                found.elsewhere |= lines;
                found.newer |= holding.written & lines;
            }
        }
        found
    }

    /// Takes the lines in `mask` away from all caches except a CPU's own.
    pub(super) fn take_away(&mut self, mask: u64, position: CpuPosition, caches: &mut Caches) {
        let home = self.home;
        self.holdings.retain_mut(|holding| {
            if holding.cache == position.private || holding.cache == position.llc {
                return true;
            }
            let written = holding.written & mask;
            if written != 0 {
                caches.unwrite(holding.cache, holding.stamp, home, bytes(written));
            }
            holding.lines &= !mask;
            holding.written &= !mask;
            holding.lines != 0
        });
    }

    /// Brings the lines in `mask` into a cache. The bytes that must be written back for this are added to `leaving`.
    pub(super) fn bring(
        &mut self,
        mask: u64,
        cache: u32,
        write: bool,
        caches: &mut Caches,
        leaving: &mut Vec<(u32, u64)>,
    ) {
        let stamp = caches.stamp(cache);
        let place = self.holdings.iter().position(|holding| holding.cache == cache);
        let place = place.unwrap_or_else(|| {
            self.holdings.push(Holding { cache, stamp, lines: 0, written: 0 });
            self.holdings.len() - 1
        });
        let holding = &mut self.holdings[place];
        if write && mask & !holding.written != 0 {
            caches.write(cache, holding.stamp, self.home, bytes(mask & !holding.written));
            holding.written |= mask;
        }
        let new = mask & !holding.lines;
        if new != 0 {
            holding.lines |= mask;
            caches.bring(cache, bytes(new), leaving);
        }
    }

    /// Takes the page out of all caches, and discards what was written in them.
    fn drop_out(&mut self, caches: &mut Caches) {
        for holding in self.holdings.drain(..) {
            if holding.written != 0 && caches.holds(holding.cache, holding.stamp) {
                let bytes = bytes(holding.written);
                caches.unwrite(holding.cache, holding.stamp, self.home, bytes);
            }
        }
    }
}

/// The bytes of lines.
pub(super) fn bytes(lines: u64) -> u64 {
    u64::from(lines.count_ones()) * LINE as u64
}

/// The lines of one page that a range touches.
pub(super) fn lines(start: usize, end: usize) -> u64 {
    let first = start % PAGE / LINE;
    let count = (end - 1) % PAGE / LINE - first + 1;
    (u64::MAX >> (64 - count)) << first
}

/// All pages that have been touched, by number.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: AddressMap<Page>,
    /// By process: how many there are on each node.
    resident: BTreeMap<u64, Vec<usize>>,
    nodes: usize,
    /// How often a page was removed or moved to another node.
    changes: u64,
}

impl Pages {
    pub(super) fn new(nodes: usize) -> Self {
        Pages { nodes, ..Pages::default() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Checks that caches and pages agree on which lines are written, as far as neither has forgotten them, and that a line is written in
    /// at most one cache.
    #[cfg(test)]
    pub(super) fn check(&self, caches: &Caches) {
        let mut written = BTreeMap::new();
        for page in self.pages.values() {
            let mut newest = 0;
            for holding in &page.holdings {
                assert_eq!(newest & holding.written, 0, "written in two caches: {page:?}");
                assert_eq!(holding.written & !holding.lines, 0, "not even there: {page:?}");
                newest |= holding.written;
                if holding.written != 0 && caches.holds(holding.cache, holding.stamp) {
                    let piece = caches.piece(holding.cache, holding.stamp);
                    if piece.is_some() {
                        *written.entry((holding.cache, piece, page.home)).or_insert(0) +=
                            bytes(holding.written);
                    }
                }
            }
        }
        assert_eq!(caches.all_written(), written);
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.pages.capacity()
    }

    pub(super) fn get_mut(&mut self, page: usize) -> Option<&mut Page> {
        self.pages.get_mut(&page)
    }

    /// While this number stays the same, each existing page stays on its node.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn home(&self, page: usize) -> Option<u32> {
        self.pages.get(&page).map(|page| page.home)
    }

    /// Adds a page that is touched for the first time.
    pub(super) fn add(&mut self, page: usize, home: u32, process: u64) -> &mut Page {
        let nodes = self.nodes;
        let resident = self.resident.entry(process).or_insert_with(|| vec![0; nodes]);
        resident[home as usize] += 1;
        self.pages.entry(page).or_insert(Page { home, process, holdings: Vec::new() })
    }

    /// Moves a page to another node. No cache holds it afterwards, because it has another place in memory.
    pub(super) fn change_home(&mut self, page: usize, home: u32, caches: &mut Caches) {
        let Some(page) = self.pages.get_mut(&page) else { return };
        self.changes += 1;
        page.drop_out(caches);
        if let Some(resident) = self.resident.get_mut(&page.process) {
            resident[page.home as usize] -= 1;
            resident[home as usize] += 1;
        }
        page.home = home;
    }

    /// Forgets the pages with numbers from `first` to below `end`.
    pub(super) fn forget(&mut self, first: usize, end: usize, caches: &mut Caches) {
        let before = self.pages.len();
        if end - first <= self.pages.len() {
            for number in first..end {
                if let Some(mut page) = self.pages.remove(&number) {
                    gone(&mut page, &mut self.resident, caches);
                }
            }
        } else if !self.pages.is_empty() {
            self.retain(|number, _| !(first..end).contains(number), caches);
        }
        self.changes += u64::from(self.pages.len() != before);
        self.shrink();
    }

    /// Forgets the pages of a process.
    pub(super) fn forget_process(&mut self, process: u64, caches: &mut Caches) {
        if self.resident.contains_key(&process) {
            self.retain(|_, page| page.process != process, caches);
            self.resident.remove(&process);
            self.changes += 1;
            self.shrink();
        }
    }

    /// Walks the table; the order has no effect, because removing a page only lowers sums.
    fn retain(&mut self, keep: impl Fn(&usize, &Page) -> bool, caches: &mut Caches) {
        let resident = &mut self.resident;
        self.pages.retain(|number, page| {
            let keep = keep(number, page);
            if !keep {
                gone(page, resident, caches);
            }
            keep
        });
    }

    /// Gives memory back after many pages have gone.
    fn shrink(&mut self) {
        if self.pages.capacity() > 1024 && self.pages.len() < self.pages.capacity() / 8 {
            self.pages.shrink_to(2 * self.pages.len());
        }
    }

    /// How many pages of a process are on each node.
    pub(super) fn resident(&self, process: u64) -> Vec<usize> {
        self.resident.get(&process).cloned().unwrap_or_else(|| vec![0; self.nodes])
    }
}

/// Removes a page from the sums.
fn gone(page: &mut Page, resident: &mut BTreeMap<u64, Vec<usize>>, caches: &mut Caches) {
    page.drop_out(caches);
    if let Some(resident) = resident.get_mut(&page.process) {
        resident[page.home as usize] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_lines_of_a_page_are_counted() {
        assert_eq!(lines(4096, 8192), u64::MAX);
        assert_eq!(lines(4096, 4097), 1);
        assert_eq!(lines(4096 + 63, 4096 + 65), 0b11);
        assert_eq!(lines(8191, 8192), 1 << 63);
        assert_eq!(bytes(lines(64, 4096)), 4032);
    }
}

//! Copies of lines that a CPU has asked for and does not need yet: on machines with `store_buffer`.
//!
//! A CPU executes reads that do not depend on each other side by side: it asks for the second line before the first has come. The simulator
//! executes a program one access after the other, so the program says which reads are independent
//! ([`fetch_ahead`](crate::fetch_ahead)): the copy is on its way while the CPU goes on, and a read waits for the rest of the way.

/// By CPU: lines, and when the copy of each is there.
#[derive(Debug, Default)]
pub(super) struct Coming {
    by_cpu: Vec<Vec<(usize, u64)>>,
}

impl Coming {
    /// The copy of a line is on its way to a CPU.
    pub(super) fn add(&mut self, cpu: usize, line: usize, now: u64, arrives: u64) {
        if self.by_cpu.len() <= cpu {
            self.by_cpu.resize_with(cpu + 1, Vec::new);
        }
        let coming = &mut self.by_cpu[cpu];
        coming.retain(|(_, at)| *at > now);
        coming.push((line, arrives));
    }

    /// When the copy of a line that a CPU has asked for is there; `now` if none is on its way.
    #[inline]
    pub(super) fn arrival(&self, cpu: usize, line: usize, now: u64) -> u64 {
        let coming = self.by_cpu.get(cpu).map_or(&[][..], Vec::as_slice);
        let arrives = coming.iter().filter(|(of, _)| *of == line).map(|(_, at)| *at);
        arrives.max().map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_waits_for_what_is_left_of_the_way_of_its_own_copies() {
        let mut coming = Coming::default();
        coming.add(1, 7, 10, 50);
        coming.add(1, 8, 20, 60);
        assert_eq!((coming.arrival(1, 7, 30), coming.arrival(1, 8, 30)), (50, 60));
        assert_eq!((coming.arrival(0, 7, 30), coming.arrival(1, 9, 30)), (30, 30));
        assert_eq!(coming.arrival(1, 7, 55), 55, "it is there");
        coming.add(1, 9, 55, 90);
        assert_eq!(coming.by_cpu[1], [(8, 60), (9, 90)]);
    }
}

//! How long a CPU keeps a line that it got for writing, and the order in which other CPUs get it then: off unless the machine's costs have
//! `capture`.
//!
//! Without capture, a line goes to the next CPU as soon as the access is over for which it was fetched. With it, the CPU that has the line
//! may access it again for some nanoseconds, however many others want it: so a compare-exchange that has failed succeeds when it is repeated
//! at once.
//!
//! A CPU that wants a captured line joins the line's queue, and tries again when its turn should have come. The queue is in order of
//! arrival. A CPU that does not come back at that time has another thread now, and loses its place.

use std::collections::VecDeque;

/// The capture of a line, and the CPUs that wait for its end.
#[derive(Debug, Default)]
pub(super) struct Capture {
    /// When it ends.
    until: u64,
    /// CPUs, and when each tries again.
    queue: VecDeque<(usize, u64)>,
}

impl Capture {
    /// A CPU has got the line for writing, and keeps it until then.
    pub(super) fn begin(&mut self, until: u64) {
        self.until = until;
    }

    /// When a CPU that does not have the line must try again; none if it gets the line now. `turn` is about how long each CPU before it will
    /// have the line.
    pub(super) fn wait(&mut self, cpu: usize, now: u64, turn: u64) -> Option<u64> {
        while self.queue.front().is_some_and(|(front, at)| *front != cpu && *at < now) {
            self.queue.pop_front();
        }
        let place = self.queue.iter().position(|(of, _)| *of == cpu);
        let ahead = place.unwrap_or(self.queue.len());
        if ahead == 0 && now >= self.until {
            if place.is_some() {
                self.queue.pop_front();
            }
            return None;
        }
        let again = now.max(self.until) + (ahead as u64 * turn).max(u64::from(now >= self.until));
        match place {
            Some(place) => self.queue[place].1 = again,
            None => self.queue.push_back((cpu, again)),
        }
        Some(again)
    }

    /// A CPU that has the line accesses it: it does not wait.
    pub(super) fn has(&mut self, cpu: usize) {
        if !self.queue.is_empty() {
            self.queue.retain(|(of, _)| *of != cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_line_is_given_away_in_order_of_arrival() {
        let mut capture = Capture::default();
        assert_eq!(capture.wait(0, 10, 50), None, "nobody has captured it");
        capture.begin(100);
        assert_eq!(capture.wait(1, 20, 50), Some(100));
        assert_eq!(capture.wait(2, 30, 50), Some(150));
        assert_eq!(capture.wait(1, 100, 50), None);
        capture.begin(180);
        assert_eq!(capture.wait(3, 110, 50), Some(230), "behind CPU 2");
        assert_eq!(capture.wait(2, 150, 50), Some(180));
        assert_eq!(capture.wait(2, 180, 50), None);
    }

    #[test]
    fn a_cpu_that_does_not_come_back_loses_its_place() {
        let mut capture = Capture::default();
        capture.begin(100);
        assert_eq!(capture.wait(1, 20, 50), Some(100));
        assert_eq!(capture.wait(2, 20, 50), Some(150));
        assert_eq!(capture.wait(2, 150, 50), None, "CPU 1 was to come at 100");
        capture.begin(300);
        assert_eq!(capture.wait(1, 160, 50), Some(300));
        capture.has(1);
        assert_eq!(capture.wait(2, 300, 50), None, "CPU 1 has got it in another way");
    }
}

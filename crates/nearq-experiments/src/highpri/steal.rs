//! How much time the host took from one CPU: the eighth number of its line in `/proc/stat`.
//!
//! It counts in hundredths of a second. A sample is marked when the count grew between a look before it and one after it:
//! the host took time then, though a part of that hundredth may have been taken before.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Room for the lines of some CPUs; a longer file is read on.
const FIRST_BYTES: usize = 4096;

/// Looks at one CPU's stolen time.
#[derive(Debug)]
pub struct StealClock {
    file: Option<File>,
    line: String,
    buffer: Vec<u8>,
}

impl StealClock {
    /// For that CPU. Where `/proc` is not there, nothing is ever stolen.
    pub(crate) fn of(cpu: usize) -> Self {
        Self {
            file: File::open("/proc/stat").ok(),
            line: format!("cpu{cpu} "),
            buffer: vec![0; FIRST_BYTES],
        }
    }

    /// Hundredths of a second so far.
    pub(crate) fn read(&mut self) -> u64 {
        let Some(file) = &self.file else { return 0 };
        loop {
            let Ok(length) = file.read_at(&mut self.buffer, 0) else { return 0 };
            // The CPUs' lines come first; what follows is cut off, and so may their last one be.
            let whole = length < self.buffer.len();
            let text = String::from_utf8_lossy(&self.buffer[..length]);
            if let Some(steal) = steal_of(&text, &self.line, whole) {
                return steal;
            }
            if whole {
                return 0;
            }
            let longer = self.buffer.len() * 2;
            self.buffer.resize(longer, 0);
        }
    }
}

/// The stolen time of the CPU whose line begins so; none if there is no such line, or not all of it.
fn steal_of(text: &str, line: &str, whole: bool) -> Option<u64> {
    // user nice system idle iowait irq softirq steal
    const STEAL: usize = 7;
    let mut lines = text.split_inclusive('\n');
    let found = lines
        .find_map(|found| found.strip_prefix(line).filter(|rest| whole || rest.ends_with('\n')))?;
    found.split_whitespace().nth(STEAL)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "cpu  1 2 3 4 5 6 7 80 9 0\n\
                        cpu1 1 2 3 4 5 6 7 30 9 0\n\
                        cpu10 1 2 3 4 5 6 7 50 9 0\nintr 1";

    #[test]
    fn a_cpu_is_found_by_its_whole_number() {
        assert_eq!(steal_of(TEXT, "cpu1 ", false), Some(30));
        assert_eq!(steal_of(TEXT, "cpu10 ", false), Some(50));
        assert_eq!(steal_of(TEXT, "cpu2 ", true), None);
    }

    #[test]
    fn a_line_that_is_cut_off_is_not_believed() {
        let cut = &TEXT[..=TEXT.find("50").unwrap()];
        assert_eq!(steal_of(cut, "cpu10 ", false), None, "5 is not the number");
        assert_eq!(steal_of("cpu1 1 2 3", "cpu1 ", true), None);
    }

    #[test]
    fn this_machine_s_count_does_not_fall() {
        let mut clock = StealClock::of(0);
        let before = clock.read();
        assert!(clock.read() >= before);
        assert_eq!(StealClock::of(99_999).read(), 0);
    }
}

//! What the kernel says of CPUs, threads and memory in `/proc`: parsers of its texts, and the few files that are read.
//!
//! Processes come and go while they are read: what is gone is `None` or missing from a list, never an error.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// A tick of the times in `/proc`, which are in hundredths of a second on every kernel, whatever its own tick is.
pub const TICK: Duration = Duration::from_millis(10);

/// How long a thread or a CPU's tasks ran, and how long they waited for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// On a CPU.
    pub ran: Duration,
    /// Runnable, and on none.
    pub waited: Duration,
}

impl Clock {
    /// What has come since an earlier one.
    #[must_use]
    pub fn since(self, earlier: Clock) -> Clock {
        Clock {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

/// What `/proc/PID/stat` says that is of use here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R` if it runs or waits for a CPU, `Z` if it has ended and nobody has asked how.
    pub state: char,
    /// The process that started it, or that has it now.
    pub parent: u32,
    /// The session: the process that began it, or 0 where that one is out of sight of this PID namespace, as in a container
    /// that was entered from outside. Of those there may be several, all of them 0.
    pub session: u32,
    /// Whether it is a thread of the kernel's own.
    pub is_kernel: bool,
    /// CPU time so far, user and system, in the kernel's ticks.
    pub ticks: u64,
    /// When it started, in ticks after the machine's start: with its number, it names a process for good.
    pub started: u64,
    /// The CPU that it ran on last.
    pub cpu: usize,
}

impl Stat {
    /// Whether it has ended, and is still there for who asks how.
    pub fn has_ended(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// CPU time so far.
    pub fn cpu_time(self) -> Duration {
        TICK * u32::try_from(self.ticks).unwrap_or(u32::MAX)
    }
}

/// The flag `PF_KTHREAD` among those of `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Reads the text of `/proc/PID/stat`. The name in it may hold anything, parentheses and lines too.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    // The first of these is field 3 of the manual.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: number(4)? as u32,
        session: number(6)? as u32,
        is_kernel: number(9)? & KERNEL_THREAD != 0,
        ticks: number(14)? + number(15)?,
        started: number(22)?,
        cpu: number(39)? as usize,
    })
}

/// Reads the text of `/proc/PID/schedstat`: nanoseconds on a CPU, nanoseconds runnable without one, and how often.
pub fn parse_clock(text: &str) -> Option<Clock> {
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    let mut nanos = || Some(Duration::from_nanos(fields.next()?.ok()?));
    Some(Clock { ran: nanos()?, waited: nanos()? })
}

/// Reads the text of `/proc/schedstat`: what the tasks of each CPU have run and waited. `None` if it is of a version that is
/// not known.
pub fn parse_cpu_clocks(text: &str) -> Option<Vec<(usize, Clock)>> {
    let version: u32 = text.strip_prefix("version ")?.lines().next()?.trim().parse().ok()?;
    // Until 14 the fields had other places.
    if version < 15 {
        return None;
    }
    let cpus = text.lines().filter_map(|line| {
        let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu = fields.next()?.parse().ok()?;
        // The seventh and the eighth after the name.
        let mut nanos = fields.skip(6).map(str::parse);
        let mut next = || Some(Duration::from_nanos(nanos.next()?.ok()?));
        Some((cpu, Clock { ran: next()?, waited: next()? }))
    });
    Some(cpus.collect())
}

/// Reads the text of `/proc/PID/numa_maps`: bytes for each node, by the kernel's number.
pub fn parse_numa_maps(text: &str) -> Vec<(usize, u64)> {
    let mut bytes: Vec<(usize, u64)> = Vec::new();
    for line in text.lines() {
        let size = line
            .split_ascii_whitespace()
            .find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok())
            .unwrap_or(4);
        for word in line.split_ascii_whitespace() {
            let pages = word.strip_prefix('N').and_then(|rest| rest.split_once('='));
            let Some((node, pages)) = pages else { continue };
            let (Ok(node), Ok(pages)) = (node.parse::<usize>(), pages.parse::<u64>()) else {
                continue;
            };
            match bytes.iter_mut().find(|(known, _)| *known == node) {
                Some((_, sum)) => *sum += pages * size * 1024,
                None => bytes.push((node, pages * size * 1024)),
            }
        }
    }
    bytes.sort_unstable();
    bytes
}

/// Reads the text of `/proc/meminfo`: bytes that can be had without swapping.
pub fn parse_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Bytes that can be had without swapping.
pub fn available_memory() -> Option<u64> {
    parse_available(&read("/proc/meminfo".to_owned())?)
}

/// All processes, by number.
pub fn all() -> Vec<u32> {
    let mut all = numbers("/proc");
    all.sort_unstable();
    all
}

/// What `/proc/PID/stat` says of a process.
pub fn stat(process: u32) -> Option<Stat> {
    parse_stat(&read(format!("/proc/{process}/stat"))?)
}

/// What `/proc/PID/task/TID/stat` says of a thread.
pub fn thread_stat(process: u32, thread: u32) -> Option<Stat> {
    parse_stat(&read(format!("/proc/{process}/task/{thread}/stat"))?)
}

/// How long a thread ran and waited. `None` if it is gone, or the kernel was built without `SCHED_INFO`.
pub fn thread_clock(process: u32, thread: u32) -> Option<Clock> {
    parse_clock(&read(format!("/proc/{process}/task/{thread}/schedstat"))?)
}

/// The threads of a process; none if it is gone.
pub fn threads(process: u32) -> Vec<u32> {
    numbers(&format!("/proc/{process}/task"))
}

/// The entries of a folder that are numbers.
fn numbers(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The processes that a thread has started and that live.
pub fn children(process: u32, thread: u32) -> Vec<u32> {
    let text = read(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// A process and all that it has started, with their threads, parents first; without those in `others` and what these have started. What
/// is gone is left out.
pub fn tree(process: u32, others: &BTreeSet<u32>) -> Vec<(u32, Vec<u32>)> {
    let mut seen = BTreeSet::from([process]);
    let mut found = vec![process];
    let mut all = Vec::new();
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        next += 1;
        let threads = threads(process);
        for thread in &threads {
            let started = children(process, *thread).into_iter();
            found.extend(started.filter(|child| !others.contains(child) && seen.insert(*child)));
        }
        if !threads.is_empty() {
            all.push((process, threads));
        }
    }
    all
}

/// All that a process has started, and what those have, with their threads, parents first.
pub fn descendants(process: u32) -> Vec<(u32, Vec<u32>)> {
    let mut all = tree(process, &BTreeSet::new());
    all.retain(|(other, _)| *other != process);
    all
}

/// Bytes of a process on each node, by the kernel's number. Takes some 13 ms for each GiB. `None` if it is gone, or belongs to
/// somebody else.
pub fn resident(process: u32) -> Option<Vec<(usize, u64)>> {
    Some(parse_numa_maps(&read(format!("/proc/{process}/numa_maps"))?))
}

/// What the tasks of each CPU have run and waited since the machine started.
pub fn cpu_clocks() -> Option<Vec<(usize, Clock)>> {
    parse_cpu_clocks(&read("/proc/schedstat".to_owned())?)
}

/// Names may be any bytes.
fn read(path: String) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn nanos(ran: u64, waited: u64) -> Clock {
        Clock { ran: Duration::from_nanos(ran), waited: Duration::from_nanos(waited) }
    }

    #[test]
    fn a_name_may_hold_anything() {
        let tail = "1 6 7 0 -1 4194304 1 2 3 4 30 12 0 0 20 0 1 0 5555 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 17 3 0 0";
        for name in ["sh", "a) R 1 (b", "x\ny z"] {
            let stat = parse_stat(&format!("42 ({name}) S {tail}")).unwrap();
            let expected = Stat {
                state: 'S',
                parent: 1,
                session: 7,
                is_kernel: false,
                ticks: 42,
                started: 5555,
                cpu: 3,
            };
            assert_eq!(stat, expected, "{name}");
        }
        let kernel = parse_stat(
            "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 12 0 0 20 0 1 0 5 0 0 1 2 3 4 5 6 7 8 9 10 11 12 0 0 1 0",
        );
        assert!(kernel.unwrap().is_kernel);
        assert_eq!(parse_stat("42 (sh"), None);
        assert_eq!(parse_stat("42 (sh) S 1 2"), None);
    }

    #[test]
    fn clocks_of_threads_and_cpus() {
        assert_eq!(parse_clock("664692294 148928490 401\n"), Some(nanos(664_692_294, 148_928_490)));
        assert_eq!(parse_clock("664692294"), None);
        let text = "version 17\ntimestamp 4294892944\ncpu0 0 0 0 0 0 0 664692294 148928490 401\n\
                    domain0 MC 03 0 0 0\ncpu12 0 0 0 0 0 0 5 6 7\n";
        let clocks = vec![(0, nanos(664_692_294, 148_928_490)), (12, nanos(5, 6))];
        assert_eq!(parse_cpu_clocks(text), Some(clocks));
        assert_eq!(parse_cpu_clocks("version 14\ncpu0 1 2 3 4 5 6 7 8 9\n"), None);
    }

    #[test]
    fn memory_is_counted_in_bytes_of_each_node() {
        let text = "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n\
                    7f10 prefer:1 file=/tmp/N5=x anon=1 N1=1 kernelpagesize_kB=2048\n\
                    7f20 default\n";
        assert_eq!(parse_numa_maps(text), [(0, 4096), (1, 2 * 4096 + (2 << 20))]);
    }

    #[test]
    fn what_can_be_had_is_in_bytes() {
        let text = "MemTotal:       24684000 kB\nMemAvailable:   23075000 kB\n";
        assert_eq!(parse_available(text), Some(23_075_000 * 1024));
        assert_eq!(parse_available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn who_has_ended_is_known_and_how_long_it_ran() {
        let stat = stat(std::process::id()).unwrap();
        let ended = |state| Stat { state, ..stat }.has_ended();
        assert_eq!(
            ['R', 'S', 'D', 'T', 'I', 'Z', 'X'].map(ended),
            [false, false, false, false, false, true, true]
        );
        assert_eq!(Stat { ticks: 250, ..stat }.cpu_time(), Duration::from_millis(2500));
    }

    #[test]
    fn this_process_can_be_read() {
        let process = std::process::id();
        assert!(threads(process).contains(&process));
        let stat = stat(process).unwrap();
        assert!(matches!(stat.state, 'R' | 'S') && stat.started > 0);
        assert_eq!(thread_stat(process, process).unwrap().started, stat.started);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let ours = threads(process).into_iter().flat_map(|thread| children(process, thread));
        assert!(ours.collect::<Vec<_>>().contains(&child.id()));
        let is_child = |found: &(u32, Vec<u32>)| *found == (child.id(), vec![child.id()]);
        assert!(descendants(process).iter().any(is_child));
        let (first, _) = tree(process, &BTreeSet::new()).swap_remove(0);
        assert_eq!(first, process);
        assert!(!tree(process, &BTreeSet::from([child.id()])).iter().any(is_child));
        let all = all();
        assert!(all.is_sorted() && [process, child.id()].iter().all(|number| all.contains(number)));
        assert!(available_memory().unwrap() > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(super::stat(child.id()).is_none() && threads(child.id()).is_empty());
        if let Some(clocks) = cpu_clocks() {
            assert!(!clocks.is_empty());
            assert!(thread_clock(process, process).unwrap().ran > Duration::ZERO);
        }
    }
}

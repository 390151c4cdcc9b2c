//! What the kernel says about CPUs, threads and memory in `/proc`: parsers of the texts, and functions that read the few files needed.
//!
//! Processes start and end while they are read: a process that is gone is `None` or missing from a list, never an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

/// Bytes that are read of a process's small files: `stat`, `comm`, and clocks.
pub const LONGEST: u64 = 64 << 10;
/// Bytes that are read of `status`: with all groups that a process can have it is three quarters of that.
pub const LONGEST_STATUS: u64 = 1 << 20;
/// Bytes that are read of `environ`. The kernel starts no program with more, but a program can have any part of its memory shown there.
const LONGEST_ENVIRONMENT: u64 = 8 << 20;
/// Bytes that are read of a command line, which is shown.
pub const LONGEST_COMMAND: u64 = 4 << 10;
/// Bytes that are read of the lists of a process's mappings, of which there are 65,530 at most unless the system allows more.
pub const LONGEST_MAPS: u64 = 64 << 20;

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
    /// The increase since an earlier measurement.
    #[must_use]
    pub fn since(self, earlier: Clock) -> Clock {
        Clock {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

/// The parts of `/proc/PID/stat` that are of use here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R` if it runs or waits for a CPU, `Z` if it has ended and has not been waited for.
    pub state: char,
    /// Its parent: the process that started it, or that has adopted it since.
    pub parent: u32,
    /// The session: the number of the process that began it, or 0 if that process is not visible in this PID namespace, as in a container
    /// that was entered from outside. There may be several such sessions, all with the number 0.
    pub session: u32,
    /// Whether it is a kernel thread.
    pub is_kernel: bool,
    /// CPU time so far, user and system, in the kernel's ticks.
    pub ticks: u64,
    /// When it started, in ticks after the machine's start: together with its number, this identifies a process permanently.
    pub started: u64,
    /// The CPU that it ran on last.
    pub cpu: usize,
}

impl Stat {
    /// Whether it has ended and has not been waited for.
    pub fn has_ended(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether a signal has stopped it, or a debugger.
    pub fn is_stopped(self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// CPU time so far.
    pub fn cpu_time(self) -> Duration {
        TICK * u32::try_from(self.ticks).unwrap_or(u32::MAX)
    }
}

/// The flag `PF_KTHREAD` among those of `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Whether the numbers in `/proc` are those of this process's PID namespace. They are not if the folder belongs to another PID namespace.
pub fn is_of_this_namespace() -> bool {
    let this_process = std::process::id().to_string();
    fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == this_process.as_str())
}

/// Reads the text of `/proc/PID/stat`. The name in it may contain anything, even parentheses and line breaks.
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

/// Reads the text of `/proc/schedstat`: how long the tasks of each CPU have run and waited. `None` if its version is not known.
pub fn parse_cpu_clocks(text: &str) -> Option<Vec<(usize, Clock)>> {
    let version: u32 = text.strip_prefix("version ")?.lines().next()?.trim().parse().ok()?;
    // Before version 15 the fields were in other positions.
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

/// Reads `/proc/PID/numa_maps`, line by line: bytes for each node, by the kernel's number.
fn count_mappings(mut from: impl BufRead) -> Option<Vec<(usize, u64)>> {
    let (mut bytes, mut line) = (BTreeMap::new(), Vec::new());
    while from.read_until(b'\n', &mut line).ok()? > 0 {
        add_mapping(&String::from_utf8_lossy(&line), &mut bytes);
        line.clear();
    }
    Some(bytes.into_iter().collect())
}

/// Adds one line of the file.
fn add_mapping(line: &str, bytes: &mut BTreeMap<usize, u64>) {
    let size = line
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok())
        .unwrap_or(4);
    for word in line.split_ascii_whitespace() {
        let pages = word.strip_prefix('N').and_then(|rest| rest.split_once('='));
        let Some((node, pages)) = pages else { continue };
        let (Ok(node), Ok(pages)) = (node.parse(), pages.parse::<u64>()) else { continue };
        let sum = bytes.entry(node).or_default();
        *sum = pages.saturating_mul(size).saturating_mul(1024).saturating_add(*sum);
    }
}

/// Reads the text of `/proc/meminfo`: bytes that can be allocated without swapping.
pub fn parse_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Bytes that can be allocated without swapping.
pub fn available_memory() -> Option<u64> {
    parse_available(&read("/proc/meminfo", LONGEST)?)
}

/// All processes, by number.
pub fn all() -> Vec<u32> {
    let mut all = numbers("/proc");
    all.sort_unstable();
    all
}

/// What `/proc/PID/stat` says about a process.
pub fn stat(process: u32) -> Option<Stat> {
    parse_stat(&read(format!("/proc/{process}/stat"), LONGEST)?)
}

/// The effective user of a process. The owner of its folder in `/proc` is root if the process has made itself undumpable.
pub fn user(process: u32) -> Option<u32> {
    let status = read(format!("/proc/{process}/status"), LONGEST_STATUS)?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What `/proc/PID/task/TID/stat` says about a thread.
pub fn thread_stat(process: u32, thread: u32) -> Option<Stat> {
    parse_stat(&read(format!("/proc/{process}/task/{thread}/stat"), LONGEST)?)
}

/// How long a thread ran and waited. `None` if it is gone, or the kernel was built without `SCHED_INFO`.
pub fn thread_clock(process: u32, thread: u32) -> Option<Clock> {
    parse_clock(&read(format!("/proc/{process}/task/{thread}/schedstat"), LONGEST)?)
}

/// The variables of a process, each followed by a zero byte. A process that has ended and has not been waited for has none.
pub(crate) fn environment(process: u32) -> io::Result<Vec<u8>> {
    read_bytes(format!("/proc/{process}/environ"), LONGEST_ENVIRONMENT)
}

/// The threads of a process; empty if it is gone.
pub fn threads(process: u32) -> Vec<u32> {
    numbers(&format!("/proc/{process}/task"))
}

/// The entries of a folder that are numbers.
fn numbers(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The live processes that a thread has started.
pub fn children(process: u32, thread: u32) -> Vec<u32> {
    let text =
        read(format!("/proc/{process}/task/{thread}/children"), LONGEST_MAPS).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// A process and all processes that it has started, with their threads, parents first; without the processes in `others` and all that those
/// have started. Processes that are gone are left out.
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

/// All processes that a process has started, directly or not, with their threads, parents first.
pub fn descendants(process: u32) -> Vec<(u32, Vec<u32>)> {
    let mut all = tree(process, &BTreeSet::new());
    all.retain(|(other, _)| *other != process);
    all
}

/// Bytes of a process on each node, by the kernel's number. Takes some 13 ms for each GiB. `None` if it is gone, or belongs to
/// another user.
pub fn resident(process: u32) -> Option<Vec<(usize, u64)>> {
    let file = File::open(format!("/proc/{process}/numa_maps")).ok()?;
    count_mappings(BufReader::new(file.take(LONGEST_MAPS)))
}

/// How long the tasks of each CPU have run and waited since the machine started.
pub fn cpu_clocks() -> Option<Vec<(usize, Clock)>> {
    parse_cpu_clocks(&read("/proc/schedstat", LONGEST_MAPS)?)
}

/// The beginning of a file, up to `most` bytes: a process may make its own files arbitrarily long, and names may be any bytes.
pub fn read(path: impl AsRef<Path>, most: u64) -> Option<String> {
    Some(String::from_utf8_lossy(&read_bytes(path, most).ok()?).into_owned())
}

/// The same, as raw bytes.
pub(crate) fn read_bytes(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn nanos(ran: u64, waited: u64) -> Clock {
        Clock { ran: Duration::from_nanos(ran), waited: Duration::from_nanos(waited) }
    }

    #[test]
    fn a_process_name_can_contain_any_character() {
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
    fn thread_and_cpu_clocks_are_parsed() {
        assert_eq!(parse_clock("664692294 148928490 401\n"), Some(nanos(664_692_294, 148_928_490)));
        assert_eq!(parse_clock("664692294"), None);
        let text = "version 17\ntimestamp 4294892944\ncpu0 0 0 0 0 0 0 664692294 148928490 401\n\
                    domain0 MC 03 0 0 0\ncpu12 0 0 0 0 0 0 5 6 7\n";
        let clocks = vec![(0, nanos(664_692_294, 148_928_490)), (12, nanos(5, 6))];
        assert_eq!(parse_cpu_clocks(text), Some(clocks));
        assert_eq!(parse_cpu_clocks("version 14\ncpu0 1 2 3 4 5 6 7 8 9\n"), None);
    }

    #[test]
    fn memory_is_counted_in_bytes_by_node() {
        let text = "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n\
                    7f10 prefer:1 file=/tmp/N5=x anon=1 N1=1 kernelpagesize_kB=2048\n\
                    7f20 default\n";
        let bytes = count_mappings(text.as_bytes()).unwrap();
        assert_eq!(bytes, [(0, 4096), (1, 2 * 4096 + (2 << 20))]);
    }

    #[test]
    fn reads_stop_at_the_limit() {
        assert_eq!(read("/dev/zero", 100_000).unwrap().len(), 100_000);
        assert!(read("/proc/self/stat", 10).is_some_and(|text| text.len() == 10));
    }

    #[test]
    fn available_memory_is_in_bytes() {
        let text = "MemTotal:       24684000 kB\nMemAvailable:   23075000 kB\n";
        assert_eq!(parse_available(text), Some(23_075_000 * 1024));
        assert_eq!(parse_available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn an_ended_process_is_recognized_with_its_run_time() {
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
        let children_of_test =
            threads(process).into_iter().flat_map(|thread| children(process, thread));
        assert!(children_of_test.collect::<Vec<_>>().contains(&child.id()));
        let is_child = |found: &(u32, Vec<u32>)| *found == (child.id(), vec![child.id()]);
        assert!(descendants(process).iter().any(is_child));
        let (first, _) = tree(process, &BTreeSet::new()).swap_remove(0);
        assert_eq!(first, process);
        assert!(!tree(process, &BTreeSet::from([child.id()])).iter().any(is_child));
        let all = all();
        assert!(all.is_sorted() && [process, child.id()].iter().all(|number| all.contains(number)));
        assert!(available_memory().unwrap() > 0);
        // SAFETY: no pointers.
        assert_eq!(user(process), Some(unsafe { libc::geteuid() }));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(super::stat(child.id()).is_none() && threads(child.id()).is_empty());
        if let Some(clocks) = cpu_clocks() {
            assert!(!clocks.is_empty());
            assert!(thread_clock(process, process).unwrap().ran > Duration::ZERO);
        }
    }
}

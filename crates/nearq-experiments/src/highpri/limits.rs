//! Which limit keeps a process from having more threads: the kernel's answer is the same number for most of them.

use std::fs;
use std::path::Path;

/// A limit, how much of it is used, and where it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    what: &'static str,
    used: u64,
    most: u64,
}

/// Mappings that a thread takes: its stack, the standard library's stack for signals, and a guard page below each.
const MAPPINGS: u64 = 4;
/// Address space that a thread takes, in KiB, and what the C library sets aside for threads that allocate.
const THREAD_KIB: u64 = 96;
const ARENAS_KIB: u64 = 1 << 20;

/// So close to a limit it is reached: a thread takes several mappings, and other programs start and end threads.
const MARGIN: u64 = 16;

/// The limits that are reached now, in words; none if nothing of what is known is.
pub(crate) fn reached() -> Vec<String> {
    limits(Path::new("/")).iter().filter(|limit| limit.is_reached()).map(Limit::describe).collect()
}

/// How many threads there is memory for, by the limit that allows the fewest, and which that is. To be known beforehand: a thread
/// that lacks memory at its start ends the process. None where neither limit can be read.
pub(crate) fn room() -> Option<(usize, String)> {
    room_in(&limits(Path::new("/")))
}

fn room_in(limits: &[Limit]) -> Option<(usize, String)> {
    let rooms = limits.iter().filter_map(|limit| {
        let left = limit.most.saturating_sub(limit.used);
        let threads = match limit.what {
            MAPS => left.saturating_sub(MARGIN * MAPPINGS) / MAPPINGS,
            SPACE => left.saturating_sub(ARENAS_KIB) / THREAD_KIB,
            _ => return None,
        };
        let text = format!("{} is {}, of which {} are used", limit.what, limit.most, limit.used);
        Some((usize::try_from(threads).unwrap_or(usize::MAX), text))
    });
    rooms.min_by_key(|(threads, _)| *threads)
}

const MAPS: &str = "the number of memory mappings (vm.max_map_count)";
const SPACE: &str = "the address space in KiB (RLIMIT_AS, ulimit -v)";

impl Limit {
    fn is_reached(&self) -> bool {
        self.used + MARGIN >= self.most
    }

    fn describe(&self) -> String {
        format!("{} is reached ({} of {})", self.what, self.used, self.most)
    }
}

fn limits(root: &Path) -> Vec<Limit> {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let number = |path: &str| text(path)?.trim().parse::<u64>().ok();
    let mut limits = Vec::new();
    let mut add = |what, used: Option<u64>, most: Option<u64>| {
        if let (Some(used), Some(most)) = (used, most) {
            limits.push(Limit { what, used, most });
        }
    };
    let all = text("proc/loadavg").and_then(|text| threads_of_all(&text));
    add(
        "the kernel's number of threads (kernel.threads-max)",
        all,
        number("proc/sys/kernel/threads-max"),
    );
    add("the kernel's last thread id (kernel.pid_max)", all, number("proc/sys/kernel/pid_max"));
    let maps = text("proc/self/maps").map(|text| text.lines().count() as u64);
    add(MAPS, maps, number("proc/sys/vm/max_map_count"));
    let limit = |name: &str| text("proc/self/limits").and_then(|text| soft_limit(&text, name));
    let size = text("proc/self/status").and_then(|text| field(&text, "VmSize:"));
    // What a thread's stack takes with what surrounds it, in KiB.
    const STACK_KIB: u64 = 256;
    add(
        SPACE,
        size.map(|size| size + STACK_KIB),
        limit("Max address space").map(|bytes| bytes / 1024),
    );
    add(
        "the user's number of threads (RLIMIT_NPROC, ulimit -u)",
        text("proc/self/status").and_then(|text| threads_of_user(root, field(&text, "Uid:")?)),
        limit("Max processes"),
    );
    for folder in pids_folders(&text("proc/self/cgroup").unwrap_or_default()) {
        add(
            "the control group's number of threads (pids.max)",
            number(&format!("{folder}/pids.current")),
            number(&format!("{folder}/pids.max")),
        );
    }
    limits
}

/// `0.1 0.2 0.3 2/345 6789`: 345 threads.
fn threads_of_all(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// The soft limit of a line of `/proc/self/limits`; none where it is unlimited.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The first number of a line of `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Threads of all processes of a user that can be seen.
fn threads_of_user(root: &Path, user: u64) -> Option<u64> {
    let processes = fs::read_dir(root.join("proc")).ok()?;
    let threads = processes.flatten().filter_map(|process| {
        let status = fs::read_to_string(process.path().join("status")).ok()?;
        if field(&status, "Uid:")? == user { field(&status, "Threads:") } else { None }
    });
    Some(threads.sum())
}

/// The folders of the group, and of all groups that it is in, in which a limit may stand: of version 1 and of version 2.
fn pids_folders(cgroup: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let top = match controllers {
            "" => "sys/fs/cgroup",
            list if list.split(',').any(|one| one == "pids") => "sys/fs/cgroup/pids",
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        folders.push(format!("{top}{path}"));
        while let Some((above, _)) = path.rsplit_once('/') {
            path = above;
            folders.push(format!("{top}{path}"));
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root folder with files, removed at the end.
    struct Root(std::path::PathBuf);

    impl Root {
        fn new(files: &[(&str, &str)]) -> Self {
            let name = format!("nearq-limits-{}", std::process::id());
            let root = Self(std::env::temp_dir().join(name));
            for (path, text) in files {
                let path = root.0.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            root
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_limit_that_is_reached_is_named_with_its_numbers() {
        let root = Root::new(&[
            ("proc/loadavg", "0.1 0.2 0.3 2/345 6789\n"),
            ("proc/sys/kernel/threads-max", "1000\n"),
            ("proc/sys/kernel/pid_max", "32768\n"),
            (
                "proc/self/limits",
                "Limit   Soft Limit  Hard Limit  Units\nMax processes   250   500   processes\n\
                                  Max address space   unlimited   unlimited   bytes\n",
            ),
            (
                "proc/self/status",
                "Name:\tnearq\nUid:\t7\t7\t7\t7\nThreads:\t200\nVmSize:\t 9000 kB\n",
            ),
            ("proc/11/status", "Uid:\t7\t7\t7\t7\nThreads:\t45\n"),
            ("proc/12/status", "Uid:\t8\t8\t8\t8\nThreads:\t400\n"),
            ("proc/self/cgroup", "1:cpu,pids:/a/b\n0::/\n"),
            ("sys/fs/cgroup/pids/a/pids.current", "90\n"),
            ("sys/fs/cgroup/pids/a/pids.max", "100\n"),
            ("sys/fs/cgroup/pids/a/b/pids.max", "max\n"),
        ]);
        let found = limits(&root.0);
        let reached: Vec<_> = found.iter().filter(|limit| limit.is_reached()).collect();
        let words: Vec<_> = reached.iter().map(|limit| limit.describe()).collect();
        // The user's own: 45 here and 200 of /proc/self, which is a process of the folder too.
        assert_eq!(
            words,
            [
                "the user's number of threads (RLIMIT_NPROC, ulimit -u) is reached (245 of 250)",
                "the control group's number of threads (pids.max) is reached (90 of 100)"
            ]
        );
        assert_eq!(found.len(), 4, "those without a limit are left out: {found:?}");
    }

    #[test]
    fn there_is_room_for_as_many_threads_as_the_tighter_limit_allows() {
        let maps = Limit { what: MAPS, used: 1_000, most: 65_000 };
        let space = Limit { what: SPACE, used: 0, most: ARENAS_KIB + 96 * 200 };
        let (threads, text) = room_in(std::slice::from_ref(&maps)).unwrap();
        assert_eq!(threads, 15_984);
        assert!(text.ends_with("(vm.max_map_count) is 65000, of which 1000 are used"), "{text}");
        assert_eq!(room_in(&[maps, space]).unwrap().0, 200);
        assert_eq!(room_in(&[]), None);
    }

    #[test]
    fn every_group_above_may_have_a_limit() {
        assert_eq!(
            pids_folders("0::/user/a\n"),
            ["sys/fs/cgroup/user/a", "sys/fs/cgroup/user", "sys/fs/cgroup"]
        );
        assert!(pids_folders("3:cpuset:/\nnonsense").is_empty());
    }
}

//! Tests of `crowd`: which limit keeps a process from having more threads.

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
fn the_limit_reached_is_named_with_its_numbers() {
    let root = Root::new(&[
        ("proc/loadavg", "0.1 0.2 0.3 2/345 6789\n"),
        ("proc/sys/kernel/threads-max", "1000\n"),
        ("proc/sys/kernel/pid_max", "32768\n"),
        (
            "proc/self/limits",
            "Limit   Soft Limit  Hard Limit  Units\nMax processes   250   500   processes\n\
                              Max address space   unlimited   unlimited   bytes\n",
        ),
        ("proc/self/status", "Name:\tnearq\nUid:\t7\t7\t7\t7\nThreads:\t200\nVmSize:\t 9000 kB\n"),
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
    assert_eq!(found.len(), 4, "groups without a limit are left out: {found:?}");
}

#[test]
fn the_tighter_limit_decides_how_many_threads_fit() {
    let maps = Limit { what: MAPS, used: 1_000, most: 65_000 };
    let space = Limit { what: SPACE, used: 0, most: ARENAS_KIB + 96 * 200 };
    let (threads, text) = thread_capacity_in(std::slice::from_ref(&maps)).unwrap();
    assert_eq!(threads, 15_984);
    assert!(text.ends_with("(vm.max_map_count) is 65000, of which 1000 are used"), "{text}");
    assert_eq!(thread_capacity_in(&[maps, space]).unwrap().0, 200);
    assert_eq!(thread_capacity_in(&[]), None);
}

#[test]
fn limits_of_all_parent_groups_count() {
    assert_eq!(
        pids_folders("0::/user/a\n"),
        ["sys/fs/cgroup/user/a", "sys/fs/cgroup/user", "sys/fs/cgroup"]
    );
    assert!(pids_folders("3:cpuset:/\nnonsense").is_empty());
}

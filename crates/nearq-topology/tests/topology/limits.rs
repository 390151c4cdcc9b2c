//! What the control groups allow: versions 1 and 2, chains of parents, namespaces, and what is broken.

use crate::common::Folder;
use nearq_topology::{CpuSet, Limits};

const GROUPS: &str = "sys/fs/cgroup";

/// A machine of 8 CPUs with these lines in the two files that say where the groups are.
fn machine(name: &str, memberships: &str, mounts: &[&str]) -> Folder {
    let folder = Folder::new(&format!("limits-{name}"));
    folder
        .file("sys/devices/system/cpu/online", "0-7\n")
        .file("proc/self/cgroup", memberships)
        .file(
            "proc/self/mountinfo",
            &format!("22 1 0:5 / /proc rw - proc proc rw\n{}\n", mounts.join("\n")),
        );
    folder
}

fn version_2(root: &str) -> String {
    format!("31 23 0:28 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate")
}

fn version_1(root: &str, controllers: &str) -> String {
    format!(
        "32 23 0:29 {root} /sys/fs/cgroup/{controllers} rw shared:5 - cgroup cgroup rw,{controllers}"
    )
}

fn read(folder: &Folder) -> Limits {
    Limits::read(&folder.path, CpuSet::new())
}

fn quota(limits: &Limits, folder: &Folder) -> Option<(f64, String)> {
    let quota = limits.quota.as_ref()?;
    let source = quota.source.strip_prefix(&folder.path).expect("below the root");
    Some((quota.cpus, source.to_string_lossy().into_owned()))
}

fn noted(limits: &Limits, part: &str) {
    assert!(limits.notes().iter().any(|note| note.contains(part)), "{part}: {:?}", limits.notes());
}

#[test]
fn version_2_takes_the_smallest_quota_of_the_chain() {
    let folder = machine("v2-chain", "0::/a/b/c\n", &[&version_2("/")]);
    folder
        .file(&format!("{GROUPS}/a/cpu.max"), "150000 100000\n")
        .file(&format!("{GROUPS}/a/b/cpu.max"), "200000 50000\n")
        .file(&format!("{GROUPS}/a/b/c/cpu.max"), "max 100000\n")
        .file(&format!("{GROUPS}/a/b/c/cpuset.cpus.effective"), "2-5\n")
        .file(&format!("{GROUPS}/a/cpuset.cpus.effective"), "0-6\n");
    let limits = read(&folder);
    assert_eq!(quota(&limits, &folder), Some((1.5, format!("{GROUPS}/a/cpu.max"))));
    assert_eq!((limits.effective().to_list().as_str(), limits.parallelism()), ("2-5", 2));
    assert_eq!(limits.notes(), [""; 0]);
}

#[test]
fn version_2_without_limits() {
    let folder = machine("v2-none", "0::/a\n", &[&version_2("/")]);
    folder
        .file(&format!("{GROUPS}/a/cpu.max"), "max 100000\n")
        .file(&format!("{GROUPS}/cgroup.procs"), "1\n");
    let limits = read(&folder);
    assert_eq!(
        (limits.quota.as_ref(), limits.cpuset.as_ref(), limits.parallelism()),
        (None, None, 8)
    );
    assert_eq!(limits.notes(), [""; 0]);
}

#[test]
fn the_cpuset_of_the_nearest_group_counts() {
    let folder = machine("v2-cpuset", "0::/a/b\n", &[&version_2("/")]);
    folder
        .file(&format!("{GROUPS}/a/b/cpu.max"), "max\n")
        .file(&format!("{GROUPS}/a/cpuset.cpus.effective"), "1-3\n")
        .file(&format!("{GROUPS}/cpuset.cpus.effective"), "0-7\n");
    assert_eq!(read(&folder).cpuset.map(|set| set.to_list()), Some("1-3".to_owned()));
}

#[test]
fn version_1_takes_the_smallest_quota_of_the_chain() {
    let mounts =
        [version_1("/", "cpu,cpuacct"), version_1("/", "cpuset"), version_1("/", "memory")];
    let lines = "4:memory:/x\n3:cpuset:/set\n2:cpu,cpuacct:/a/b\n1:name=systemd:/a\n0::/a\n";
    let folder = machine("v1-chain", lines, &mounts.each_ref().map(String::as_str));
    let cpu = format!("{GROUPS}/cpu,cpuacct");
    folder
        .file(&format!("{cpu}/cpu.cfs_quota_us"), "-1\n")
        .file(&format!("{cpu}/cpu.cfs_period_us"), "100000\n")
        .file(&format!("{cpu}/a/cpu.cfs_quota_us"), "50000\n")
        .file(&format!("{cpu}/a/cpu.cfs_period_us"), "20000\n")
        .file(&format!("{cpu}/a/b/cpu.cfs_quota_us"), "400000\n")
        .file(&format!("{cpu}/a/b/cpu.cfs_period_us"), "100000\n")
        .file(&format!("{GROUPS}/cpuset/set/cpuset.effective_cpus"), "4-7\n")
        .file(&format!("{GROUPS}/cpuset/set/cpuset.cpus"), "0-7\n");
    let limits = read(&folder);
    assert_eq!(quota(&limits, &folder), Some((2.5, format!("{cpu}/a/cpu.cfs_quota_us"))));
    assert_eq!((limits.effective().to_list().as_str(), limits.parallelism()), ("4-7", 3));
}

#[test]
fn a_container_without_a_namespace_sees_its_own_group_as_the_mounts_root() {
    let mount = version_1("/docker/abc", "cpu");
    let folder = machine("v1-docker", "2:cpu:/docker/abc/inner\n", &[&mount]);
    folder
        .file(&format!("{GROUPS}/cpu/cpu.cfs_quota_us"), "100000\n")
        .file(&format!("{GROUPS}/cpu/cpu.cfs_period_us"), "100000\n")
        .file(&format!("{GROUPS}/cpu/inner/cpu.cfs_quota_us"), "-1\n")
        .file(&format!("{GROUPS}/cpu/docker/abc/inner/cpu.cfs_quota_us"), "1\n")
        .file(&format!("{GROUPS}/cpu/docker/abc/inner/cpu.cfs_period_us"), "1000000\n");
    let limits = read(&folder);
    assert_eq!(quota(&limits, &folder), Some((1.0, format!("{GROUPS}/cpu/cpu.cfs_quota_us"))));
}

#[test]
fn inside_a_namespace_the_group_is_the_root_and_its_own_limit_counts() {
    let folder = machine("v2-namespace", "0::/\n", &[&version_2("/")]);
    folder
        .file(&format!("{GROUPS}/cpu.max"), "250000 100000\n")
        .file(&format!("{GROUPS}/cpuset.cpus.effective"), "3\n");
    let limits = read(&folder);
    assert_eq!(quota(&limits, &folder), Some((2.5, format!("{GROUPS}/cpu.max"))));
    assert_eq!((limits.effective().to_list().as_str(), limits.parallelism()), ("3", 1));
}

#[test]
fn a_mount_from_outside_the_namespace_shows_the_limits_of_a_parent() {
    let folder = machine("v2-outer-mount", "0::/\n", &[&version_2("/../..")]);
    folder
        .file(&format!("{GROUPS}/cpu.max"), "300000 100000\n")
        .file(&format!("{GROUPS}/other/cpu.max"), "1000 100000\n");
    let limits = read(&folder);
    assert_eq!(quota(&limits, &folder), Some((3.0, format!("{GROUPS}/cpu.max"))));
    noted(&limits, "its name there is hidden");
}

#[test]
fn a_process_moved_outside_its_namespace_is_found_if_the_mount_shows_it() {
    let folder = machine("v2-sibling", "0::/../other\n", &[&version_2("/..")]);
    folder.file(&format!("{GROUPS}/other/cpu.max"), "50000 100000\n");
    let limits = read(&folder);
    assert_eq!(quota(&limits, &folder), Some((0.5, format!("{GROUPS}/other/cpu.max"))));
    assert_eq!(limits.parallelism(), 1);

    let folder = machine("v2-unseen", "0::/../other\n", &[&version_2("/")]);
    folder.file(&format!("{GROUPS}/cpu.max"), "50000 100000\n");
    let limits = read(&folder);
    assert_eq!(limits.quota, None);
    noted(&limits, "the cpu group /../other is not visible here");
}

#[test]
fn the_mount_that_shows_the_most_parents_is_read() {
    let inner = version_2("/a/b").replace("/sys/fs/cgroup", "/inner");
    let folder = machine("v2-mounts", "0::/a/b\n", &[&inner, &version_2("/"), &version_2("/zzz")]);
    folder.file("inner/cpu.max", "max\n").file(&format!("{GROUPS}/a/cpu.max"), "100000 100000\n");
    folder.file(&format!("{GROUPS}/a/b/cpu.max"), "max\n");
    assert_eq!(quota(&read(&folder), &folder), Some((1.0, format!("{GROUPS}/a/cpu.max"))));
}

#[test]
fn a_hybrid_machine_has_its_controllers_in_version_1() {
    let unified = version_2("/").replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified");
    let lines = "2:cpu:/job\n1:cpuset:/\n0::/job\n";
    let folder =
        machine("hybrid", lines, &[&version_1("/", "cpu"), &version_1("/", "cpuset"), &unified]);
    folder
        .file(&format!("{GROUPS}/cpu/job/cpu.cfs_quota_us"), "700000\n")
        .file(&format!("{GROUPS}/cpu/job/cpu.cfs_period_us"), "100000\n")
        .file(&format!("{GROUPS}/unified/job/cgroup.procs"), "1\n")
        .file(&format!("{GROUPS}/cpuset/cpuset.cpus"), "0-7\n");
    let limits = read(&folder);
    assert_eq!((limits.parallelism(), limits.notes().len()), (7, 0), "{:?}", limits.notes());
}

#[test]
fn white_space_in_a_mount_point_is_escaped_by_the_kernel() {
    let mount = version_2("/").replace("/sys/fs/cgroup", "/my\\040groups");
    let folder = machine("v2-space", "0::/\n", &[&mount]);
    folder.file("my groups/cpu.max", "100000 100000\n");
    assert_eq!(read(&folder).parallelism(), 1);
}

#[test]
fn broken_limits_are_noted_and_the_rest_still_counts() {
    let folder = machine("broken", "garbage\n0::/a/b\n", &["nonsense", &version_2("/")]);
    folder
        .file(&format!("{GROUPS}/a/b/cpu.max"), "plenty\n")
        .file(&format!("{GROUPS}/a/b/cpuset.cpus.effective"), "0-x\n")
        .file(&format!("{GROUPS}/a/cpu.max/x"), "")
        .file(&format!("{GROUPS}/cpu.max"), "400000 100000\n");
    let limits = read(&folder);
    assert_eq!((limits.parallelism(), limits.cpuset.as_ref()), (4, None));
    noted(&limits, "a/b/cpu.max is ignored");
    noted(&limits, "a/cpu.max cannot be read");
    noted(&limits, "a/b/cpuset.cpus.effective is ignored");
}

#[test]
fn a_missing_group_has_the_limits_of_its_parents() {
    let folder = machine("v2-gone", "0::/a/gone\n", &[&version_2("/")]);
    folder.file(&format!("{GROUPS}/a/cpu.max"), "200000 100000\n");
    let limits = read(&folder);
    assert_eq!(limits.parallelism(), 2);
    noted(&limits, "a/gone does not exist");
}

#[test]
fn without_any_files_only_the_mask_counts_and_a_note_says_so() {
    let folder = Folder::new("limits-nothing");
    let limits = Limits::read(&folder.path, "1-3".parse().expect("a list"));
    assert_eq!((limits.effective().to_list().as_str(), limits.parallelism()), ("1-3", 3));
    noted(&limits, "does not say which CPUs are online");
    noted(&limits, "no control groups are mounted");
    let limits = Limits::read(&folder.path, CpuSet::new());
    assert_eq!((limits.effective().len(), limits.parallelism()), (0, 1));
}

#[test]
fn the_affinity_mask_counts_whatever_the_files_say() {
    let folder = machine("empty", "0::/\n", &[&version_2("/")]);
    folder.file(&format!("{GROUPS}/cpuset.cpus.effective"), "6-7\n");
    let effective = |folder: &Folder, affinity: &str| {
        let limits = Limits::read(&folder.path, affinity.parse().expect("a list"));
        (limits.effective().to_list(), limits)
    };
    let (cpus, limits) = effective(&folder, "0-1");
    assert_eq!((cpus.as_str(), &limits.cpuset), ("0-1", &None));
    noted(&limits, "the cpuset (6-7) leaves out CPUs 0-1");
    // A container's own list of CPUs, which always begins at 0.
    folder.file("sys/devices/system/cpu/online", "0-1\n");
    let (cpus, limits) = effective(&folder, "6-7");
    assert_eq!((cpus.as_str(), limits.parallelism(), limits.notes().len()), ("6-7", 2, 1));
    noted(&limits, "online leaves out CPUs 6-7");
    let (cpus, limits) = effective(&folder, "0,6");
    assert_eq!((cpus.as_str(), limits.parallelism()), ("0,6", 2));
    // If the files list more CPUs, they are ignored.
    let (cpus, limits) = effective(&folder, "");
    assert_eq!(
        (cpus.as_str(), limits.notes()),
        ("0-1", &["the cpuset (6-7) would leave no CPU of 0-1: it is ignored".to_owned()][..])
    );
}

/// What the process's group is limited to if a hierarchy is mounted at two points, `first` before `second`.
fn mounted_twice(name: &str, lines: [&str; 3], limited: &str) {
    let folder = machine(name, "0::/job\n", &lines);
    folder.file(&format!("{limited}/cgroup.procs"), "1\n");
    folder.file(&format!("{limited}/job/cgroup.procs"), "1\n");
    folder.file(&format!("{limited}/job/cpu.max"), "150000 100000\n");
    let limits = read(&folder);
    assert_eq!(quota(&limits, &folder), Some((1.5, format!("{limited}/job/cpu.max"))), "{name}");
    assert_eq!(limits.notes(), [""; 0], "{name}");
}

#[test]
fn if_a_hierarchy_is_mounted_twice_the_uncovered_mount_counts() {
    const CGROUP: &str = "- cgroup2 cgroup2 rw";
    const OTHER: &str = "- tmpfs tmpfs rw";
    let line = |ids: &str, point: &str, kind: &str| format!("{ids} 0:28 / {point} rw {kind}");
    let first = line("31 23", "/sys/fs/cgroup", CGROUP);
    let second = line("32 23", "/mnt/groups", CGROUP);
    // Mounted over its root; over a folder above; over the mount that it is in.
    let on_it = line("33 31", "/sys/fs/cgroup", OTHER);
    let above = line("33 23", "/sys/fs", OTHER);
    let in_it = line("31 22", "/sys/fs/cgroup", CGROUP);
    let covered = line("33 22", "/sys", OTHER).replace("33 22", "33 21");
    for (name, lines) in
        [("on-it", [&first, &second, &on_it]), ("above", [&first, &second, &above])]
    {
        mounted_twice(&format!("twice-{name}"), lines.map(String::as_str), "mnt/groups");
    }
    let sys = line("22 21", "/sys", "- sysfs sysfs rw");
    let root_and_cover = format!("{sys}\n{}", covered.replace("33 21", "33 22"));
    mounted_twice("twice-within", [&root_and_cover, &in_it, &second], "mnt/groups");
    // The mount that covers it looks like a group without limits: an empty one, of another hierarchy.
    let folder = machine(
        "twice-other",
        "0::/job\n",
        &[&first, &second, &on_it.replace(OTHER, CGROUP).replace(" / /sys", " /elsewhere /sys")],
    );
    folder
        .file(&format!("{GROUPS}/job/cpu.max"), "max 100000\n")
        .file("mnt/groups/job/cpu.max", "150000 100000\n");
    assert_eq!(read(&folder).parallelism(), 2);
    // No line says that the mount is covered, but the group does not exist in it.
    mounted_twice("twice-silent", [&first, &second, ""], "mnt/groups");
    // Other mounts at a point whose path begins the same, or inside it, cover nothing.
    let beside = line("33 23", "/sys/fs/cgroup-old", OTHER);
    let inside = line("34 31", "/sys/fs/cgroup/job/deep", OTHER);
    mounted_twice("twice-beside", [&first, &beside, &inside], GROUPS);
}

#[test]
fn the_uncovered_mount_counts_in_version_1_too() {
    let cpu = "32 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
    let again = "33 23 0:29 / /mnt/cpu rw - cgroup cgroup rw,cpu";
    let over = "34 32 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,memory";
    let folder = machine("v1-twice", "2:cpu:/\n", &[cpu, again, over]);
    folder
        .file(&format!("{GROUPS}/cpu/cgroup.procs"), "1\n")
        .file("mnt/cpu/cpu.cfs_quota_us", "250000\n")
        .file("mnt/cpu/cpu.cfs_period_us", "100000\n");
    assert_eq!(quota(&read(&folder), &folder), Some((2.5, "mnt/cpu/cpu.cfs_quota_us".to_owned())));
    // The root of a name space, seen from outside.
    let outer = "32 23 0:28 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
    let other = outer.replace("32 23", "33 23").replace("/sys/fs/cgroup", "/mnt/outer");
    let folder = machine("outer-twice", "0::/\n", &[outer, &other]);
    folder.file("mnt/outer/cpu.max", "300000 100000\n").file(&format!("{GROUPS}/empty"), "");
    assert_eq!(read(&folder).parallelism(), 3);
}

#[test]
fn isolated_cpus_are_those_of_the_command_line_and_of_partitions() {
    let cpus = "sys/devices/system/cpu";
    let folder = machine("isolated", "0::/a\n", &[&version_2("/")]);
    folder.file(&format!("{GROUPS}/a/cgroup.procs"), "1\n");
    assert_eq!(read(&folder).isolated, CpuSet::new(), "no file");
    folder
        .file(&format!("{cpus}/isolated"), "6\n")
        .file(&format!("{cpus}/nohz_full"), "(null)\n")
        .file(&format!("{GROUPS}/cpuset.cpus.isolated"), "\n");
    let limits = read(&folder);
    assert_eq!((limits.isolated.to_list().as_str(), limits.notes()), ("6", &[][..]));
    folder
        .file(&format!("{cpus}/nohz_full"), "5-6\n")
        .file(&format!("{GROUPS}/cpuset.cpus.isolated"), "3\n");
    let limits = read(&folder);
    assert_eq!(limits.isolated.to_list(), "3,5-6");
    assert_eq!(
        (limits.effective().len(), limits.housekeeping().to_list().as_str()),
        (8, "0-2,4,7")
    );
    // A group below the root has no such file; where one is, it is not the system's.
    folder.file(&format!("{GROUPS}/a/cpuset.cpus.isolated"), "0\n");
    assert_eq!(read(&folder).isolated.to_list(), "3,5-6");
    folder.file(&format!("{cpus}/isolated"), "some\n");
    noted(&read(&folder), "isolated is ignored");
}

//! What exists and cannot be read is distinguished from what does not exist, and a reading that lacks something does not replace one that
//! has it.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures real time")]

use crate::common::Folder;
use nearq_topology::{CpuSet, Limits, Topology, Unread};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

const CPUS: &str = "sys/devices/system/cpu";
/// "Too many levels of symbolic links", which lasts.
const ELOOP: i32 = 40;
/// "Input or output error", which may pass.
const EIO: i32 = 5;

/// Makes the file exist but be unreadable for any user, root included: a link to itself, or to memory that does not exist.
fn damage(folder: &Folder, name: &str, errno: i32) {
    let path = folder.path.join(name);
    if path.symlink_metadata().is_ok() {
        folder.remove(name);
    }
    let target = if errno == ELOOP { path.as_path() } else { Path::new("/proc/self/mem") };
    symlink(target, &path).expect("a new link");
}

fn read(folder: &Folder) -> Topology {
    Topology::from_sysfs(&folder.path).expect("a machine")
}

fn set(list: &str) -> CpuSet {
    list.parse().expect("a list")
}

#[test]
fn an_unreadable_file_is_reported_with_path_and_error_number() {
    let folder = Folder::machine("unread");
    assert!(read(&folder).is_whole());
    folder.remove(&format!("{CPUS}/cpu5/cache/index1/size"));
    assert!(read(&folder).is_whole(), "missing files do not count as unread");
    for file in ["cpu1/topology/core_cpus", "cpu2/topology/core_cpus", "cpu3/cache"] {
        damage(&folder, &format!("{CPUS}/{file}"), ELOOP);
    }
    damage(&folder, &format!("{CPUS}/cpu4/topology/core_cpus"), EIO);
    let machine = read(&folder);
    let unread: Vec<_> =
        machine.unread().iter().map(|u| (u.errno(), u.count(), u.may_pass())).collect();
    assert_eq!(unread, [(ELOOP, 3, false), (EIO, 1, true)]);
    assert_eq!(machine.unread()[0].path(), folder.path.join(CPUS).join("cpu1/topology/core_cpus"));
    let text = machine.unread()[0].to_string();
    assert!(
        text.ends_with("core_cpus: Too many levels of symbolic links (os error 40) (and 2 more)"),
        "{text}"
    );
    assert!(!machine.is_whole());
}

#[test]
fn an_unreadable_machine_is_not_a_machine_without_cpus() {
    // The lists of CPUs and the folder itself, as if the process had no descriptors left.
    let folder = Folder::new("closed");
    folder.file(&format!("{CPUS}/kernel_max"), "7\n");
    for list in ["possible", "present", "online"] {
        damage(&folder, &format!("{CPUS}/{list}"), EIO);
    }
    let error = Topology::from_sysfs(&folder.path).expect_err("no machine");
    assert_eq!(
        (error.errno(), error.path()),
        (Some(EIO), Some(&*folder.path.join(CPUS).join("possible")))
    );
    // And a folder whose parent cannot be entered.
    let folder = Folder::new("closed-way");
    symlink(folder.path.join("sys"), folder.path.join("sys")).expect("a new link");
    let error = Topology::from_sysfs(&folder.path).expect_err("no machine");
    assert_eq!((error.errno(), error.path()), (Some(ELOOP), Some(&*folder.path.join(CPUS))));
    let stand_in = Topology::of_cpus(&set("0-2,5"), &error).expect("a machine");
    assert_eq!((stand_in.possible(), stand_in.online()), (&set("0-2,5"), &set("0-2,5")));
    assert_eq!((stand_in.llcs().len(), stand_in.nodes().len(), stand_in.cores().len()), (1, 1, 4));
    assert_eq!(stand_in.unread().iter().map(Unread::errno).collect::<Vec<_>>(), [ELOOP]);
    assert!(
        stand_in.notes()[0].contains("Too many levels of symbolic links"),
        "{:?}",
        stand_in.notes()
    );
    assert!(Topology::of_cpus(&CpuSet::new(), &error).is_err());
}

#[test]
fn errors_of_the_library_do_not_mention_a_command() {
    let folder = Folder::new("no-remedy");
    let errors = [
        Topology::from_sysfs(&folder.path).unwrap_err(),
        Topology::from_sysfs(&folder.path.join("none")).unwrap_err(),
        Topology::from_hwloc_xml("no").unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(
            !text.contains("give ") && !text.contains("lstopo") && !text.contains("--on"),
            "{text}"
        );
    }
}

#[test]
fn while_the_same_cpus_are_online_no_file_of_a_cpu_is_read() {
    let folder = Folder::machine("same-cpus");
    let machine = read(&folder);
    folder.remove("sys");
    assert_eq!(machine.reread(&folder.path, &set("0-7")).expect("nothing is missed"), None);
    let error =
        machine.reread(&folder.path, &set("0-6")).expect_err("it is read, and is not there");
    assert!(error.to_string().contains("neither"), "{error}");
}

#[test]
fn cpus_that_go_offline_and_online_are_followed() {
    let folder = Folder::machine("hotplug");
    let machine = read(&folder);
    folder.file(&format!("{CPUS}/online"), "0-6\n");
    let smaller = machine.reread(&folder.path, &set("0-6")).unwrap().expect("it has changed");
    assert_eq!(smaller, read(&folder));
    folder.file(&format!("{CPUS}/online"), "0-7\n");
    assert_eq!(smaller.reread(&folder.path, &set("0-7")).unwrap(), Some(machine));
}

#[test]
fn a_machine_that_is_read_in_part_does_not_replace_a_whole_one() {
    let folder = Folder::machine("half");
    let machine = read(&folder);
    let cache = format!("{CPUS}/cpu0/cache/index2/shared_cpu_map");
    for errno in [EIO, ELOOP] {
        for cpu in 0..7 {
            damage(&folder, &format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_map"), errno);
        }
        folder.file(&format!("{CPUS}/online"), "0-6\n");
        assert_ne!(read(&folder).llcs().len(), 2, "alone it would be taken for another machine");
        let kept = machine
            .reread(&folder.path, &set("0-6"))
            .unwrap()
            .expect("the set of CPUs has changed");
        assert_eq!(
            (kept.llcs(), kept.caches(), kept.online()),
            (machine.llcs(), machine.caches(), &set("0-6"))
        );
        assert_eq!(kept.is_whole(), errno == ELOOP);
        let warning = kept.warning().expect("there is a warning");
        let what =
            ["cpu0/cache/index2/shared_cpu_map: ", "and 6 more", "what was known before stands"];
        assert!(what.iter().all(|part| warning.contains(part)), "{warning}");
        // The machine is read again each time, while the reason may pass.
        assert_eq!(kept.reread(&folder.path, &set("0-6")).unwrap(), None);
    }
    // The reason passes.
    for cpu in 0..7 {
        damage(&folder, &format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_map"), EIO);
    }
    let kept =
        machine.reread(&folder.path, &set("0-6")).unwrap().expect("the set of CPUs has changed");
    for cpu in 0..7 {
        folder.remove(&cache.replace("cpu0", &format!("cpu{cpu}")));
        folder.file(
            &cache.replace("cpu0", &format!("cpu{cpu}")),
            if cpu % 4 < 2 { "33\n" } else { "cc\n" },
        );
    }
    assert_eq!(kept.reread(&folder.path, &set("0-6")).unwrap(), Some(read(&folder)));
    assert_eq!(read(&folder).warning(), None);
}

#[test]
fn a_machine_that_was_read_in_part_is_replaced_by_a_whole_one() {
    let folder = Folder::machine("whole-later");
    let whole = read(&folder);
    damage(&folder, &format!("{CPUS}/cpu3/topology/core_cpus"), EIO);
    let half = read(&folder);
    assert_eq!(half.reread(&folder.path, half.online()).unwrap(), None);
    folder.remove(&format!("{CPUS}/cpu3/topology/core_cpus"));
    folder.file(&format!("{CPUS}/cpu3/topology/core_cpus"), "88\n");
    assert_eq!(half.reread(&folder.path, half.online()).unwrap(), Some(whole.clone()));
    let error = Topology::from_sysfs(Path::new("/nonexistent")).unwrap_err();
    let stand_in = Topology::of_cpus(&set("0-7"), &error).unwrap();
    assert_eq!(stand_in.reread(&folder.path, &set("0-7")).unwrap(), Some(whole));
}

#[test]
fn a_stand_in_machine_is_replaced_by_one_that_is_read_in_part() {
    let folder = Folder::machine("part-later");
    let error = Topology::from_sysfs(&folder.path.join("none")).unwrap_err();
    let stand_in = Topology::of_cpus(&set("0-7"), &error).unwrap();
    let warning = stand_in.warning().expect("there is a warning");
    assert!(warning.contains("none: No such file or directory (os error 2)"), "{warning}");
    damage(&folder, &format!("{CPUS}/cpu3/topology/core_cpus"), ELOOP);
    let part = stand_in.reread(&folder.path, &set("0-7")).unwrap().expect("more is known");
    assert_eq!((&part, part.is_whole(), part.nodes().len()), (&read(&folder), false, 2));
    let warning = part.warning().expect("there is a warning");
    assert!(warning.contains("cpu3/topology/core_cpus: Too many levels"), "{warning}");
    // If there is no machine in a folder, the error says what should be there.
    let empty = Folder::new("no-machine");
    let error = Topology::from_sysfs(&empty.path).unwrap_err();
    let warning =
        Topology::of_cpus(&set("0"), &error).unwrap().warning().expect("there is a warning");
    assert!(warning.contains("sys/devices/system/cpu: No such file or directory"), "{warning}");
}

#[test]
fn limits_stay_if_they_become_unreadable() {
    let folder = Folder::machine("limits-kept");
    let group = "sys/fs/cgroup/work";
    folder
        .file("proc/self/cgroup", "0::/work\n")
        .file("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .file(&format!("{group}/cpu.max"), "150000 100000\n")
        .file(&format!("{group}/cpuset.cpus.effective"), "0-3\n");
    let limits = Limits::read(&folder.path, set("0-3"));
    assert_eq!((limits.parallelism(), limits.unread().len()), (2, 0));
    assert_eq!(limits.reread(&folder.path, set("0-3")), limits);
    damage(&folder, "proc/self/cgroup", EIO);
    let kept = limits.reread(&folder.path, set("1-3"));
    assert_eq!(
        (&kept.quota, &kept.cpuset, &kept.affinity),
        (&limits.quota, &limits.cpuset, &set("1-3"))
    );
    // What was kept is replaced by what the kernel says now.
    assert_eq!(limits.reread(&folder.path, set("1-5")).effective(), set("1-5"));
    assert_eq!(
        Limits::read(&folder.path, set("0-3")).parallelism(),
        4,
        "alone it would have no quota"
    );
    damage(&folder, &format!("{CPUS}/online"), EIO);
    assert_eq!(limits.reread(&folder.path, set("0-3")), limits);
    folder.remove("proc/self/cgroup").remove(&format!("{CPUS}/online"));
    folder.file("proc/self/cgroup", "0::/\n").file(&format!("{CPUS}/online"), "0-6\n");
    let followed = limits.reread(&folder.path, set("0-6"));
    assert_eq!((followed.quota, followed.cpuset, followed.online), (None, None, set("0-6")));
}

/// What one check of a large machine costs: `cargo test -p nearq-topology --test topology -- --ignored --nocapture large`.
#[test]
#[ignore = "a measurement"]
fn checking_a_large_machine_costs() {
    const COUNT: usize = 512;
    let folder = Folder::machine("large");
    for list in ["possible", "present", "online"] {
        folder.file(&format!("{CPUS}/{list}"), &format!("0-{}\n", COUNT - 1));
    }
    let mask = |cpus: &CpuSet| format!("{}\n", cpus.to_list());
    for cpu in 0..COUNT {
        let core = CpuSet::from_range(cpu / 2 * 2..cpu / 2 * 2 + 2);
        let llc = CpuSet::from_range(cpu / 16 * 16..cpu / 16 * 16 + 16);
        let path = format!("{CPUS}/cpu{cpu}");
        let _ = std::fs::remove_dir_all(folder.path.join(&path));
        for (name, cpus) in
            [("core_cpus_list", &core), ("package_cpus_list", &llc), ("die_cpus_list", &llc)]
        {
            folder.file(&format!("{path}/topology/{name}"), &mask(cpus));
        }
        folder.file(&format!("{path}/topology/physical_package_id"), &format!("{}\n", cpu / 16));
        for (index, level, kind, cpus) in [
            (0, 1, "Data", &core),
            (1, 1, "Instruction", &core),
            (2, 2, "Unified", &core),
            (3, 3, "Unified", &llc),
        ] {
            let cache = format!("{path}/cache/index{index}");
            folder
                .file(&format!("{cache}/level"), &format!("{level}\n"))
                .file(&format!("{cache}/type"), &format!("{kind}\n"))
                .file(&format!("{cache}/size"), "32K\n")
                .file(&format!("{cache}/shared_cpu_list"), &mask(cpus));
        }
    }
    for node in 0..2 {
        let cpus = CpuSet::from_range(node * 256..node * 256 + 256);
        let path = format!("sys/devices/system/node/node{node}");
        folder.remove(&format!("{path}/cpumap")).file(&format!("{path}/cpulist"), &mask(&cpus));
    }
    folder
        .file("sys/devices/system/node/online", "0-1\n")
        .file("proc/self/cgroup", "0::/a/b/c\n")
        .file("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .file("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    let times = |what: &str, act: &mut dyn FnMut()| {
        let (rounds, begin) = (20, Instant::now());
        (0..rounds).for_each(|_| act());
        println!("{what}: {:?}", begin.elapsed() / rounds);
    };
    let (machine, limits) = (read(&folder), Limits::read(&folder.path, CpuSet::all(COUNT)));
    assert_eq!((machine.llcs().len(), machine.is_whole()), (COUNT / 16, true));
    times("the whole machine", &mut || drop(read(&folder)));
    times("the limits", &mut || drop(Limits::read(&folder.path, CpuSet::all(COUNT))));
    times("again", &mut || {
        let limits = limits.reread(&folder.path, CpuSet::all(COUNT));
        assert_eq!(machine.reread(&folder.path, &limits.online).expect("readable"), None);
    });
}

//! Files made to keep a reader waiting, to fill its memory, or to make it work for minutes: each is refused at once.

use crate::common::Folder;
use nearq_topology::{AffinityScope, Topology};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const CPUS: &str = "sys/devices/system/cpu";

fn fifo(path: &Path) {
    let _ = fs::remove_file(path);
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo is in every system");
    assert!(made.success());
}

fn refused(text: &str) -> String {
    Topology::from_description(text).expect_err("refused").to_string()
}

fn refused_xml(inside: &str) -> String {
    let text = format!(r#"<topology version="2.0">{inside}</topology>"#);
    Topology::from_hwloc_xml(&text).expect_err("refused").to_string()
}

#[test]
fn only_regular_files_are_read() {
    let folder = Folder::machine("hostile-kinds");
    let path = folder.path.join("pipe");
    fifo(&path);
    let path = path.display();
    for text in [path.to_string(), "/dev/zero".into()] {
        assert!(refused(&text).contains("it is not a regular file"), "{}", refused(&text));
    }
    assert!(refused(&format!("sysfs:{path}")).contains("Not a directory"));
    // In a folder of files they become notes.
    let file = |name: &str| folder.path.join(CPUS).join(name);
    fifo(&file("online"));
    fifo(&file("cpu0/topology/core_cpus"));
    fs::remove_file(file("cpu0/cache/index2/size")).expect("it was there");
    symlink("/dev/zero", file("cpu0/cache/index2/size")).expect("a new link");
    fifo(&folder.path.join("proc/cpuinfo"));
    let large = File::create(file("cpu2/topology/physical_package_id")).expect("a new file");
    large.set_len(1 << 40).expect("a sparse file");
    let machine = Topology::from_sysfs(&folder.path).expect("a machine");
    assert_eq!((machine.cpus().len(), machine.cores().len(), machine.model_name()), (8, 4, None));
    for (part, count) in [("it is not a regular file", 4), ("it has more than 16 MiB", 1)] {
        let notes = machine.notes().iter().filter(|note| note.contains(part));
        assert_eq!(notes.count(), count, "{:?}", machine.notes());
    }
    let unread: Vec<_> = machine.unread().iter().map(|u| (u.count(), u.may_pass())).collect();
    assert_eq!(unread, [(4, false), (1, false)]);
    let large = format!("{}/large.xml", folder.path.display());
    File::create(&large).expect("a new file").set_len(1 << 40).expect("a sparse file");
    assert!(refused(&large).contains("it has more than 16 MiB"), "{}", refused(&large));
}

#[test]
fn xml_that_takes_a_parser_minutes_is_refused_at_once() {
    let many =
        |count: usize, part: &dyn Fn(usize) -> String| (0..count).map(part).collect::<String>();
    let bomb = many(40, &|i| format!("<!ENTITY a{} '&a{i};&a{i};'>", i + 1));
    let bomb = format!(
        "<!DOCTYPE topology [<!ENTITY a0 'x'>{bomb}]><topology version=\"2.0\">&a40;</topology>"
    );
    let error = Topology::from_hwloc_xml(&bomb).expect_err("refused").to_string();
    assert!(error.contains("entities"), "{error}");
    let attributes = many(200_000, &|i| format!("a{i}='' "));
    let nodes = many(200_000, &|i| format!("<object type='NUMANode' os_index='{i}'/>"));
    let objects = many(500_000, &|_| "<a/>".into());
    let indexes = many(2000, &|i| format!("{i} "));
    let distances = format!(
        "<object type='PU' os_index='0'/><distances2 type='NUMANode' kind='5'><indexes>{indexes}</indexes></distances2>"
    );
    for (inside, part) in [
        (format!("<object {attributes}/>"), "more than 64 attributes"),
        (nodes, "no os_index below 1024"),
        (many(200_000, &|_| "<a>".into()), "nested more than 256 deep"),
        (objects, "more than 500000 parts"),
        (distances, "0 distances are given between 2000 nodes"),
    ] {
        let error = refused_xml(&inside);
        assert!(error.contains(part) && error.len() < 300, "{part}: {error}");
    }
}

#[test]
fn many_identical_parts_are_read_quickly() {
    // Every cache covers all CPUs except a few, every kind covers all CPUs, and names are long.
    let mask = vec!["0xffffffff"; 128].join(",");
    let mut inside = format!("<object type='Machine' cpuset='{mask}'>");
    let name = "x".repeat(100_000);
    inside += &format!("<info name='CPUModel' value='{name}'/>");
    for cpu in 0..4096 {
        inside += &format!("<object type='PU' os_index='{cpu}'/>");
    }
    for cache in 0..4000 {
        let mut words = vec!["0xffffffff"; 128];
        let word = format!("0x{:x}", u32::MAX - (1 << (cache % 32)));
        words[cache / 32] = &word;
        let (level, cpus) = (3 + cache % 9, words.join(","));
        inside +=
            &format!("<object type='LCache' depth='{level}' cache_type='0' cpuset='{cpus}'/>");
    }
    inside += "</object>";
    for kind in 0..4000 {
        inside += &format!(
            "<cpukind cpuset='{mask}'><info name='CoreType' value='{kind}{name}'/></cpukind>",
            name = &name[..1000]
        );
    }
    let text = format!(r#"<topology version="2.0">{inside}</topology>"#);
    let machine = Topology::from_hwloc_xml(&text).expect("a machine");
    assert_eq!((machine.cpus().len(), machine.llcs().len()), (4096, 2));
    assert!(machine.notes().len() < 30, "{:?}", machine.notes());
    assert_eq!(machine.model_name().map(str::len), Some(200));
    assert!(
        machine.cpus().iter().all(|cpu| cpu.kind.as_ref().is_some_and(|kind| kind.len() == 200))
    );
}

#[test]
fn an_oversized_tree_is_read_in_part_or_refused() {
    let folder = Folder::machine("hostile-counts");
    for index in 3..100 {
        let cache = format!("{CPUS}/cpu0/cache/index{index}");
        folder
            .file(&format!("{cache}/level"), &format!("{index}\n"))
            .file(&format!("{cache}/type"), "Unified\n")
            .file(&format!("{cache}/shared_cpu_map"), "ff\n");
    }
    for node in [1024, 4_000_000_000_u64] {
        folder.file(&format!("sys/devices/system/node/node{node}/cpulist"), "0\n");
    }
    // A short text of a billion numbers.
    folder.file(&format!("{CPUS}/cpu1/topology/core_cpus"), "none\n");
    folder.file(
        &format!("{CPUS}/cpu1/topology/core_cpus_list"),
        &vec!["0-65535:1/2"; 20_000].join(","),
    );
    let machine = Topology::from_sysfs(&folder.path).expect("a machine");
    assert_eq!((machine.nodes().len(), machine.llcs().len(), machine.cores().len()), (2, 2, 4));
    for part in [
        "cpu0/cache has 100 caches: only the first 16",
        "from 1024 on are left out",
        "name more than 65536 CPUs",
    ] {
        assert!(
            machine.notes().iter().any(|note| note.contains(part)),
            "{part}: {:?}",
            machine.notes()
        );
    }
    for &scope in AffinityScope::ALL {
        assert!(machine.pods(scope, 8).pods.iter().all(|pod| !pod.cpus.is_empty()));
    }
    // As much as may be read for one machine, and a little more.
    let folder = Folder::machine("hostile-bytes");
    let path = folder.path.join("large");
    File::create(&path).expect("a new file").set_len(16 << 20).expect("a sparse file");
    for cpu in 0..8 {
        for name in ["topology/core_cpus", "topology/package_cpus", "topology/die_id"] {
            let name = folder.path.join(format!("{CPUS}/cpu{cpu}/{name}"));
            let _ = fs::remove_file(&name);
            symlink(&path, name).expect("a new link");
        }
    }
    let error = refused(&folder.path.display().to_string());
    assert!(error.ends_with("more than 256 MiB, the most that is read for a machine"), "{error}");
}

#[test]
fn archives_and_other_binary_files_are_named() {
    let folder = Folder::new("archives");
    let path = |name: &str| folder.path.join(name).display().to_string();
    folder.file("machine/sys/x", "x");
    for (name, option) in [("m.tar.bz2", "-cjf"), ("m.tar.gz", "-czf"), ("m.tar", "-cf")] {
        let arguments = [option, &path(name), "-C", &path(""), "machine"];
        assert!(Command::new("tar").args(arguments).status().expect("tar").success());
    }
    for (name, bytes) in [
        ("m.xz", &b"\xfd7zXZ\0.."[..]),
        ("m.zst", b"\x28\xb5\x2f\xfd.."),
        ("m.zip", b"PK\x03\x04.."),
        ("m.7z", b"7z\xbc\xaf\x27\x1c.."),
    ] {
        fs::write(path(name), bytes).expect("a new file");
    }
    for (name, by) in [
        ("m.tar.bz2", "bzip2"),
        ("m.tar.gz", "gzip"),
        ("m.tar", "tar"),
        ("m.xz", "xz"),
        ("m.zst", "zstd"),
        ("m.zip", "zip"),
        ("m.7z", "7-Zip"),
    ] {
        for text in [path(name), format!("sysfs:{}", path(name))] {
            let error = refused(&text);
            assert!(
                error.contains(&format!("made by {by}, so it must be unpacked first")),
                "{error}"
            );
        }
    }
    fs::write(path("noise"), b"\xff\xfe\x00").expect("a new file");
    assert!(refused(&path("noise")).contains("it is not a text"), "{}", refused(&path("noise")));
    // A folder that holds the folder of a machine, as archives do.
    let inner = Folder::machine("archives-inner");
    let outer =
        inner.path.parent().expect("a folder").join(format!("outer-{}", std::process::id()));
    fs::create_dir_all(&outer).expect("a new folder");
    fs::rename(&inner.path, outer.join("machine")).expect("moved");
    let error = refused(&outer.display().to_string());
    fs::remove_dir_all(&outer).expect("removed");
    assert!(error.ends_with(&format!("; {} does", outer.join("machine").display())), "{error}");
}

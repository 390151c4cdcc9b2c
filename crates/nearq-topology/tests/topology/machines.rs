//! A real machine must be the same whether this crate or hwloc reads it.
//!
//! The machines are those of hwloc's own test suite, below the folder that `NEARQ_MACHINES` names. The expected values come from hwloc's
//! tools: for unpacked `/sys` files the sets of every object, for XML files (which our own reader reads) the counts and sets that
//! `hwloc-calc` reports, so that the XML reader is not its own judge.
//!
//! hwloc shows online CPUs only, so everything is compared on those.

use crate::common::Folder;
use crate::skipped::skipped;
use nearq_topology::{CpuSet, Limits, Topology};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Intended differences: the machine, what differs, and why.
const KNOWN: [(&str, &str, &str); 2] = [
    (
        "20em64t-hybrid-1p6c2t+2ca4co1t",
        "clusters",
        "hwloc leaves out a cluster that is the same CPUs as an L2 cache; for the distance between cores it counts",
    ),
    (
        "64amd64-4s2n4ca2co",
        "cores",
        "the two halves of a Bulldozer module share their front end and floating point unit; hwloc calls each a core, \
         the kernel calls them SMT siblings, and the scope `smt` follows the kernel",
    ),
];

fn machines(kind: &str, ending: &str) -> Vec<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/machines");
    let folder = std::env::var_os("NEARQ_MACHINES").map_or(default, PathBuf::from).join(kind);
    let Ok(entries) = fs::read_dir(&folder) else {
        let why = format!("there are none in {}", folder.display());
        skipped("real machines", why, "set NEARQ_MACHINES to their folder");
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("the folder can be listed").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no {ending}", folder.display());
    paths
}

fn has_hwloc() -> bool {
    let found = Command::new("hwloc-calc").arg("--version").output().is_ok();
    if !found {
        skipped("real machines beside hwloc", "it is not installed", "apt-get install hwloc");
    }
    found
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// hwloc leaves out words of zeros.
fn hwloc_mask(text: &str) -> CpuSet {
    let words: Vec<&str> =
        text.trim().split(',').map(|word| if word.is_empty() { "0" } else { word }).collect();
    CpuSet::parse_mask(&words.join(",")).expect("a mask")
}

/// An unpacked machine.
struct Unpacked {
    name: String,
    root: PathBuf,
    _folder: Folder,
}

fn unpacked(prefix: &str) -> Vec<Unpacked> {
    let unpack = |archive: &PathBuf| {
        let name = archive.file_name().expect("a file").to_string_lossy().replace(".tar.bz2", "");
        let folder = Folder::new(&format!("{prefix}-{name}"));
        run("tar", &["-xjf", &archive.to_string_lossy(), "-C", &folder.path.to_string_lossy()]);
        let mut inside = fs::read_dir(&folder.path).expect("the folder just made");
        let root = inside.next().expect("something was unpacked").expect("an entry").path();
        Unpacked { name, root, _folder: folder }
    };
    machines("sysfs", ".tar.bz2").iter().map(unpack).collect()
}

/// What is compared: pairs of a name and a value.
fn facts(machine: &Topology) -> Vec<(&'static str, String)> {
    let online = machine.online();
    let sets = |sets: &mut dyn Iterator<Item = &CpuSet>| {
        let sets: BTreeSet<CpuSet> =
            sets.map(|set| set & online).filter(|set| !set.is_empty()).collect();
        format!("{sets:?}")
    };
    let caches: BTreeSet<_> = machine
        .caches()
        .iter()
        .map(|cache| (cache.level, cache.kind, &cache.cpus & online, cache.size, cache.line))
        .collect();
    let nodes: Vec<_> =
        machine.nodes().iter().map(|node| (node.id, &node.cpus & online, node.memory)).collect();
    let count = machine.nodes().len();
    let row = |a| (0..count).map(|b| machine.distance(a, b)).collect::<Vec<_>>();
    vec![
        ("online", online.to_list()),
        ("cores", sets(&mut machine.cores().iter().map(|core| &core.cpus))),
        ("last-level caches", sets(&mut machine.llcs().iter().map(|llc| &llc.cpus))),
        ("clusters", sets(&mut machine.clusters().iter().map(|group| &group.cpus))),
        ("dies", sets(&mut machine.dies().iter().map(|group| &group.cpus))),
        ("packages", sets(&mut machine.packages().iter().map(|group| &group.cpus))),
        ("caches", format!("{caches:?}")),
        ("nodes", format!("{nodes:?}")),
        ("distances", format!("{:?}", (0..count).map(row).collect::<Vec<_>>())),
    ]
}

#[test]
fn unpacked_machines_are_what_hwloc_sees() {
    if !has_hwloc() {
        return;
    }
    let mut wrong = String::new();
    for Unpacked { name, root, .. } in &unpacked("oracle") {
        let ours = Topology::from_sysfs(root).unwrap_or_else(|error| panic!("{name}: {error}"));
        let root = root.to_string_lossy();
        check_counts(name, &ours, &["--input", &root, "--if", "fsroot", "--disallowed"]);
        let xml = run(
            "lstopo-no-graphics",
            &["--input", &root, "--if", "fsroot", "--disallowed", "--of", "xml"],
        );
        let theirs =
            Topology::from_hwloc_xml(&xml).unwrap_or_else(|error| panic!("{name}: {error}"));
        for ((what, ours), (_, theirs)) in facts(&ours).into_iter().zip(facts(&theirs)) {
            let known =
                KNOWN.iter().any(|(machine, fact, _)| (*machine, *fact) == (name.as_str(), what));
            if (ours == theirs) == known {
                let verdict = if known { "no longer differs" } else { "differs" };
                wrong += &format!("{name}: {what} {verdict}\n  ours   {ours}\n  hwloc  {theirs}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn synthetic_descriptions_mean_the_same_to_hwloc() {
    if !has_hwloc() {
        return;
    }
    for text in [
        "pack:2 numa:2 l3:2 core:4 pu:2",
        "package:2 numanode:1 l3cache:3 l2:2 l1d:1 core:1 pu:4",
        "pack:2 [numa(memory=2GB)] die:2 l3:1(size=32MB) core:3 pu:2",
        "numa:3 pack:1 l2:4 core:2 pu:1",
        "l3:4 core:3 pu:2(indexes=core)",
        "pack:2 l3:2 core:3 pu:2(indexes=pack:core)",
        "pack:2 l3:2 core:3 pu:2(indexes=core:pack)",
        "pack:2 l3:2 core:3 pu:2(indexes=l3:pack)",
        "pack:2 l3:2 core:3 pu:2(indexes=pu:core:pack)",
        "numa:2(indexes=5,3) core:2 pu:2(indexes=0,2,4,6,1,3,5,7)",
    ] {
        let ours = Topology::from_synthetic(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let xml = run("lstopo-no-graphics", &["-i", text, "--of", "xml"]);
        let theirs =
            Topology::from_hwloc_xml(&xml).unwrap_or_else(|error| panic!("{text}: {error}"));
        // hwloc makes up sizes for caches and memory that the description leaves open.
        for ((what, ours), (_, theirs)) in facts(&ours).into_iter().zip(facts(&theirs)) {
            assert!(
                ours == theirs || matches!(what, "caches" | "nodes"),
                "{text}: {what}\n{ours}\n{theirs}"
            );
        }
        let bare = |machine: &Topology| -> (Vec<_>, BTreeSet<_>) {
            let nodes = machine.nodes().iter().map(|node| (node.id, node.cpus.clone())).collect();
            let caches = machine.caches().iter();
            (nodes, caches.map(|cache| (cache.level, cache.kind, cache.cpus.clone())).collect())
        };
        assert_eq!(bare(&ours), bare(&theirs), "{text}");
    }
}

#[test]
fn xml_files_hold_what_hwloc_reads_in_them() {
    if !has_hwloc() {
        return;
    }
    for path in machines("xml", ".xml") {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let ours = Topology::from_description(&path.to_string_lossy())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        // hwloc 2 refuses files of hwloc 3 by their version, although it understands everything that is compared here.
        let folder = Folder::new(&format!("xml-{name}"));
        let text = fs::read_to_string(&path)
            .expect("a text")
            .replace("<topology version=\"3.0\">", "<topology version=\"2.0\">");
        folder.file("machine.xml", &text);
        let copy = folder.path.join("machine.xml");
        let input = ["--input", &copy.to_string_lossy(), "--if", "xml", "--disallowed"];
        check_counts(&name, &ours, &input);
        // hwloc numbers objects along the tree; the sets, put in order, must be ours.
        let sets = |kind: &str, count: usize| -> BTreeSet<CpuSet> {
            let set = |index: usize| {
                run("hwloc-calc", &[&input[..], &[&format!("{kind}:{index}")]].concat())
            };
            (0..count).map(|index| hwloc_mask(&set(index))).collect()
        };
        let packages: BTreeSet<CpuSet> =
            ours.packages().iter().map(|group| group.cpus.clone()).collect();
        assert_eq!(packages, sets("package", packages.len()), "{name}");
        let of_level_3: BTreeSet<CpuSet> = ours
            .caches()
            .iter()
            .filter(|cache| cache.level == 3)
            .map(|cache| cache.cpus.clone())
            .collect();
        assert_eq!(of_level_3, sets("l3", of_level_3.len()), "{name}");
        if !of_level_3.is_empty() {
            let llcs: BTreeSet<CpuSet> = ours.llcs().iter().map(|llc| llc.cpus.clone()).collect();
            assert_eq!(llcs, of_level_3, "{name}");
        }
    }
}

/// Compares the number of things with hwloc's.
fn check_counts(name: &str, ours: &Topology, input: &[&str]) {
    let online = |sets: &mut dyn Iterator<Item = &CpuSet>| {
        sets.filter(|set| set.intersects(ours.online())).count()
    };
    let level = |level: u32| {
        let caches = ours.caches().iter().filter(|cache| cache.level == level);
        let mut sets: BTreeSet<&CpuSet> = BTreeSet::new();
        sets.extend(
            caches
                .filter(|cache| cache.kind != nearq_topology::CacheKind::Instruction)
                .map(|cache| &cache.cpus),
        );
        sets.len()
    };
    for (kind, count) in [
        ("pu", ours.online().len()),
        ("core", online(&mut ours.cores().iter().map(|core| &core.cpus))),
        ("package", online(&mut ours.packages().iter().map(|group| &group.cpus))),
        ("numanode", ours.nodes().len()),
        ("l1", level(1)),
        ("l2", level(2)),
        ("l3", level(3)),
    ] {
        let theirs = run("hwloc-calc", &[input, &["-N", kind, "all"]].concat());
        // hwloc's calculator says nothing about kinds that the machine lacks.
        let theirs =
            if theirs.trim().is_empty() { 0 } else { theirs.trim().parse().expect("a number") };
        let known = KNOWN
            .iter()
            .any(|(machine, fact, _)| *machine == name && fact.trim_end_matches('s') == kind);
        assert!((theirs == count) != known, "{name}: {count} of {kind}, by hwloc {theirs}");
    }
}

#[test]
fn cpusets_of_unpacked_machines_are_what_hwloc_allows() {
    if !has_hwloc() {
        return;
    }
    let mut limited = 0;
    for Unpacked { name, root, .. } in &unpacked("limits") {
        let limits = Limits::read(root, CpuSet::new());
        let input = ["--input", &root.to_string_lossy(), "--if", "fsroot", "all"];
        let theirs = hwloc_mask(&run("hwloc-calc", &input));
        let effective = if limits.online.is_empty() && limits.cpuset.is_none() {
            Topology::from_sysfs(root).expect("a machine").online().clone()
        } else {
            limits.effective()
        };
        assert_eq!(effective, theirs, "{name}: {:?}", limits.explain());
        limited += usize::from(limits.cpuset.is_some());
    }
    assert!(limited > 0 || machines("sysfs", ".tar.bz2").is_empty(), "no machine has a cpuset");
}

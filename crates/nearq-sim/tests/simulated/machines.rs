//! The built-in machines: every cost has a source, and shapes and numbers make sense together.
//!
//! One machine is compared with the description of a real machine, below the folder that `NEARQ_MACHINES` names.

use std::path::{Path, PathBuf};

use nearq_sim::{Costs, Machine, Origin, Source};
use nearq_topology::{CpuSet, Topology};

use crate::skipped::skipped;

fn machines() -> impl Iterator<Item = Machine> {
    Machine::NAMES.iter().map(|name| Machine::named(name).expect("listed"))
}

fn source<'a>(machine: &'a Machine, cost: &str) -> &'a Source {
    machine.sources().iter().find(|source| source.cost == cost).expect("every cost has one")
}

/// Whether a text contains a year: four digits from 1990 to 2029, without further digits.
fn has_year(text: &str) -> bool {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    numbers.any(|number| number.len() == 4 && ("1990"..="2029").contains(&number))
}

#[test]
fn machine_names_round_trip() {
    for name in Machine::NAMES {
        assert_eq!(Machine::named(name).expect("listed").name(), *name);
        assert_eq!(Machine::described(name).expect("listed").name(), *name);
    }
}

#[test]
fn a_built_in_machine_is_what_its_file_describes_to_a_user() {
    for built_in in machines() {
        let file = format!("{}/machines/{}.json", env!("CARGO_MANIFEST_DIR"), built_in.name());
        let read = Machine::described(&file).expect("a machine file");
        assert_eq!(read.name(), file);
        assert_eq!(read.about(), built_in.about());
        assert_eq!(read.sources(), built_in.sources());
        assert_eq!(read.costs(), built_in.costs());
        assert_eq!(format!("{:?}", read.topology()), format!("{:?}", built_in.topology()));
    }
}

#[test]
fn a_file_that_is_damaged_is_refused_with_its_name() {
    let name = "strix-point";
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("damaged-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a new folder");
    let built_in = format!("{}/machines/{name}", env!("CARGO_MANIFEST_DIR"));
    let whole = std::fs::read(format!("{built_in}.json")).expect("in the repository");
    let path = folder.join("damaged.json");
    let file = path.to_str().expect("a name of this test");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("a new file");
        let text = Machine::described(file).expect_err("damaged").to_string();
        assert!(text.contains(file), "{text}");
        text
    };
    for cut in (0..whole.len() - 2).step_by(97) {
        refused(&whole[..cut]);
    }
    assert!(refused(&[0xff; 100]).contains("not a text"));
    let text = refused(&whole);
    assert!(text.contains("shape: ") && text.contains("strix-point.xml"), "not beside it: {text}");
    assert!(text.ends_with("docs/machines.md describes such files"), "{text}");
    std::fs::copy(format!("{built_in}.xml"), folder.join("strix-point.xml")).expect("a new file");
    assert!(Machine::described(file).is_ok());
    std::fs::remove_dir_all(&folder).expect("its own folder");
}

#[test]
fn every_cost_has_a_source() {
    for machine in machines() {
        let name = machine.name();
        let listed: Vec<&str> = machine.sources().iter().map(|source| source.cost).collect();
        let expected: Vec<&str> = Costs::NAMES.iter().copied().chain(["clock_mhz"]).collect();
        assert_eq!(listed, expected, "{name}");
        assert_eq!(source(&machine, "clock_mhz").value, machine.clock_mhz(), "{name}");
        for Source { cost, value, origin, text, .. } in machine.sources() {
            let held = machine.costs().get(cost).unwrap_or(machine.clock_mhz());
            assert_eq!(held, *value, "{name} {cost}");
            assert!(text.len() >= 10, "{name} {cost}: {origin} {text:?} says too little");
            assert_ne!(*origin, Origin::Given, "{name} {cost}");
            if *origin == Origin::Measured {
                let cited = has_year(text) || text.contains("https://");
                assert!(cited, "{name} {cost}: {text:?} names no publication");
            }
        }
        // For two machines only the shape was published; their costs come from related ones.
        let relatives = ["kh-40000-2s", "tx7-itanium2"].contains(&name);
        let measured =
            machine.sources().iter().filter(|source| source.origin == Origin::Measured).count();
        assert_eq!(measured == 0, relatives, "{name}: {measured} measurements");
    }
}

#[test]
fn farther_transfers_cost_no_less() {
    for machine in machines() {
        let (name, c) = (machine.name(), machine.costs());
        let lines =
            [c.own_line, c.same_core, c.same_llc, c.other_llc, c.same_package, c.other_package];
        assert!(lines.is_sorted(), "{name}: {lines:?}");
        let memory = [c.memory, c.memory_same_package, c.memory_other_package];
        assert!(memory.is_sorted(), "{name}: {memory:?}");
        let streams = [c.memory_stream, c.l3_stream, c.l2_stream];
        assert!(streams.is_sorted(), "{name}: {streams:?}");
        assert!(
            c.memory_stream <= c.llc_bandwidth,
            "{name}: one CPU streams no more than its cache"
        );
        assert!(c.memory_stream <= c.node_bandwidth, "{name}: nor than its node's memory");
    }
}

#[test]
fn costs_differ_where_the_distances_differ() {
    for machine in machines() {
        let (name, c, topology) = (machine.name(), machine.costs(), machine.topology());
        let has_smt = topology.cores().iter().any(|core| core.cpus.len() > 1);
        let has_shared_llc = topology.llcs().iter().any(|llc| llc.core_indices.len() > 1);
        let (llcs, nodes) = (topology.llcs().len(), topology.nodes().len());
        assert!((50..=100).contains(&c.smt_percent), "{name}");
        assert_eq!(c.smt_percent == 100, !has_smt, "{name}");
        assert!(!has_shared_llc || c.same_core < c.same_llc, "{name}");
        assert!(llcs == nodes || c.same_llc < c.other_llc, "{name}");
        assert!(nodes == 1 || c.other_llc < c.other_package, "{name}");
        assert!(nodes == 1 || c.memory < c.memory_other_package, "{name}");
    }
}

/// What no machine has unless it is asked for.
const NOISE: [&str; 5] =
    ["timer_interrupt", "timer_slack", "tick", "deep_idle_exit", "deep_idle_after"];

#[test]
fn costs_are_of_the_right_order_of_magnitude() {
    for machine in machines() {
        let (name, c) = (machine.name(), machine.costs());
        for cost in Costs::NAMES {
            let value = c.get(cost).expect("listed");
            let range = match Costs::unit(cost) {
                "MB/s" => 1_000..=1_000_000,
                "bytes" => 128 << 10..=128 << 20,
                "%" => 50..=100,
                // What they add to a wake-up or a transfer, which has it already if the machine's file does not say.
                _ if ["interrupt", "far_atomic", "capture"].contains(cost)
                    || cost.starts_with("home_") =>
                {
                    0..=100_000
                }
                "stores" => 0..=256,
                _ if NOISE.contains(cost) => 0..=0,
                _ => 1..=100_000_000,
            };
            assert!(range.contains(&value), "{name} {cost}: {value}");
        }
        assert!(c.own_line <= 3 && c.other_package < 500 && c.memory_other_package < 500, "{name}");
        assert!(c.system_call < c.wake_up && c.context_switch < c.spawn, "{name}");
        assert!(c.spawn < c.fork && c.fork < c.exec && c.page_fault < c.page_move, "{name}");
        assert!(c.l2_size < c.llc_size, "{name}");
    }
}

/// CPUs, cores, last-level caches, nodes, packages.
fn counts(machine: &Machine) -> [usize; 5] {
    let topology = machine.topology();
    [
        topology.possible().len(),
        topology.cores().len(),
        topology.llcs().len(),
        topology.nodes().len(),
        topology.packages().len(),
    ]
}

#[test]
fn machine_shapes_match_the_vendors_data() {
    let shapes = [
        ("ryzen-3900x", [24, 12, 4, 1, 1]),
        ("epyc-7551-2s", [128, 64, 16, 8, 2]),
        ("epyc-9654-2s", [384, 192, 24, 2, 2]),
        ("kh-40000-2s", [64, 64, 16, 2, 2]),
        ("grace-72", [72, 72, 1, 1, 1]),
        ("tx7-itanium2", [8, 8, 8, 4, 8]),
        ("opteron-2s", [12, 12, 2, 2, 2]),
        ("strix-point", [24, 12, 2, 1, 1]),
    ];
    assert_eq!(shapes.map(|(name, _)| name).as_slice(), Machine::NAMES);
    for (name, expected) in shapes {
        let machine = Machine::named(name).expect("listed");
        assert_eq!(counts(&machine), expected, "{name}");
        assert!(machine.topology().model_name().is_some(), "{name}");
        for llc in machine.topology().llcs() {
            let cache = llc.cache_index.map(|cache| &machine.topology().caches()[cache]);
            let size = cache.and_then(|cache| cache.size).expect("given");
            assert!(size <= machine.costs().llc_size, "{name}");
        }
    }
}

#[test]
fn the_kaisheng_is_as_in_hwlocs_collection() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/machines");
    let folder = std::env::var_os("NEARQ_MACHINES").map_or(default, PathBuf::from);
    let path = folder.join("xml/Zhaoxin-2xCentaurHauls-KaiSheng-KH-40000.xml");
    let Ok(text) = std::fs::read_to_string(&path) else {
        let why = format!("there is no {}", path.display());
        let how = "set NEARQ_MACHINES to the folder of machines";
        return skipped("a real machine beside the built-in one", why, how);
    };
    let real = Topology::from_hwloc_xml(&text).expect("hwloc's own");
    let built = Machine::named("kh-40000-2s").expect("listed");
    let sets = |topology: &Topology| -> [Vec<CpuSet>; 3] {
        [
            topology.cores().iter().map(|core| core.cpus.clone()).collect(),
            topology.llcs().iter().map(|llc| llc.cpus.clone()).collect(),
            topology.packages().iter().map(|package| package.cpus.clone()).collect(),
        ]
    };
    assert_eq!(sets(built.topology()), sets(&real));
    assert_eq!(built.topology().model_name(), real.model_name());
    let size = |level| real.caches().iter().find(|cache| cache.level == level).and_then(|c| c.size);
    assert_eq!(size(2), Some(built.costs().l2_size));
    assert_eq!(size(3), Some(built.costs().llc_size));
}

#[test]
fn distances_match_the_firmware_tables() {
    let naples = Machine::named("epyc-7551-2s").expect("listed");
    let row: Vec<u32> = (0..8).map(|node| naples.topology().distance(1, node)).collect();
    assert_eq!(row, [16, 10, 16, 16, 32, 32, 32, 32]);
    let genoa = Machine::named("epyc-9654-2s").expect("listed");
    assert_eq!((genoa.topology().distance(0, 0), genoa.topology().distance(0, 1)), (10, 32));
    let itanium = Machine::named("tx7-itanium2").expect("listed");
    assert_eq!((itanium.topology().distance(0, 3), itanium.topology().distance(2, 1)), (16, 16));
    for machine in machines() {
        let notes = machine.topology().notes();
        let nodes = machine.topology().nodes().len();
        let unknown = notes.iter().any(|note| note.contains("distances"));
        assert!(nodes == 1 || !unknown, "{}: {notes:?}", machine.name());
    }
}

#[test]
fn little_cores_have_less_capacity() {
    let strix = Machine::named("strix-point").expect("listed");
    let topology = strix.topology();
    assert!(topology.is_hybrid());
    let lists: Vec<String> = topology.llcs().iter().map(|llc| llc.cpus.to_list()).collect();
    assert_eq!(lists, ["0-3,12-15", "4-11,16-23"]);
    for cpu in topology.cpus() {
        let expected = if cpu.llc_index == 0 { 1024 } else { 656 };
        assert_eq!(cpu.capacity, Some(expected), "CPU {}", cpu.id);
    }
    for machine in machines().filter(|machine| machine.name() != "strix-point") {
        assert!(!machine.topology().is_hybrid(), "{}", machine.name());
    }
}

#[test]
fn siblings_are_numbered_as_linux_does() {
    let ryzen = Machine::named("ryzen-3900x").expect("listed");
    assert_eq!(ryzen.topology().cores()[0].cpus.to_list(), "0,12");
    assert_eq!(ryzen.topology().llcs()[1].cpus.to_list(), "3-5,15-17");
    let naples = Machine::named("epyc-7551-2s").expect("listed");
    assert_eq!(naples.topology().nodes()[0].cpus.to_list(), "0-7,64-71");
    assert_eq!(naples.topology().nodes()[7].cpus.to_list(), "56-63,120-127");
    let genoa = Machine::named("epyc-9654-2s").expect("listed");
    assert_eq!(genoa.topology().nodes()[1].cpus.to_list(), "96-191,288-383");
}

#[test]
fn descriptions_have_default_costs_and_say_so() {
    let described = Machine::described("numa:2 core:4 pu:2").expect("well formed");
    assert!(described.sources().iter().all(|source| source.origin == Origin::Given));
    assert_eq!(*described.costs(), Costs::DEFAULT);
    let mut costs = *described.costs();
    costs.spawn += 1;
    let changed = Machine::named("ryzen-3900x").expect("listed").with_costs(costs);
    assert_eq!(source(&changed, "spawn").origin, Origin::Given);
    assert_eq!(source(&changed, "spawn").value, costs.spawn);
}

#[test]
fn the_table_names_every_cost() {
    let text = Machine::named("ryzen-3900x").expect("listed").describe();
    assert!(text.starts_with("ryzen-3900x: AMD Ryzen 9 3900X"), "{text}");
    assert!(text.contains("CPUs 24, cores 12, last-level caches 4, nodes 1, packages 1"), "{text}");
    for cost in Costs::NAMES {
        let mut lines = text.lines().filter(|line| line.split(' ').next() == Some(cost));
        let line = lines.next().expect("one line each");
        assert!(line.contains(Costs::unit(cost)) && lines.next().is_none(), "{line}");
    }
}

/// A machine file in the folder for temporary files, removed at the end.
struct MachineFile(PathBuf);

impl MachineFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nearq-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a folder for temporary files");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for MachineFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_costs_of_a_file_can_be_given_to_another_shape() {
    let text = include_str!("../../machines/epyc-7551-2s.json");
    let file = MachineFile::new("costs.machine", text);
    let whole = Machine::described(file.path()).expect("a machine file");
    assert_eq!(whole.topology().possible().len(), 128);
    let other = Machine::described(&format!("pack:2 l3:2 core:2@{}", file.path()))
        .expect("both are well formed");
    assert_eq!((other.topology().possible().len(), other.topology().llcs().len()), (8, 4));
    assert_eq!(other.costs().other_package, whole.costs().other_package);
    assert_eq!(other.costs().smt_percent, whole.costs().smt_percent);
    let built_in =
        Machine::described(&format!("ryzen-3900x@{}", file.path())).expect("a built-in shape");
    assert_eq!(built_in.topology(), Machine::named("ryzen-3900x").expect("listed").topology());
    assert_eq!(built_in.costs().same_llc, whole.costs().same_llc);
    // Without its shape, the file has costs only.
    let fields = text.replacen("\"shape\"", "\"model\"", 1).replacen(
        "\"model\": \"AMD EPYC",
        "\"about\": \"AMD EPYC",
        1,
    );
    let lines = fields.lines().filter(|line| !line.starts_with("  \"about\": \"2 x"));
    let only_costs = MachineFile::new("only-costs.json", &lines.collect::<Vec<_>>().join("\n"));
    assert!(Machine::described(&format!("core:4@{}", only_costs.path())).is_ok());
    let named = Machine::described("core:1@opteron-2s").expect("its costs");
    let opteron = Machine::named("opteron-2s").expect("listed");
    assert_eq!(named.topology().possible().len(), 1);
    assert_eq!(named.costs().system_call, opteron.costs().system_call);
    let alone = Machine::described(only_costs.path()).expect_err("no shape").to_string();
    assert!(alone.contains("`shape`") && alone.contains("SHAPE@FILE"), "{alone}");
}

#[test]
fn a_shape_with_a_distance_that_the_file_has_no_cost_for_is_refused() {
    let file = format!("{}/machines/grace-72.json", env!("CARGO_MANIFEST_DIR"));
    let error = Machine::described(&format!("pack:2 numa:1 l3:2 core:2@{file}"))
        .expect_err("grace has one cache");
    let text = error.to_string();
    assert!(text.contains("grace-72.json") && text.contains("other_llc"), "{text}");
    let error =
        Machine::described(&format!("core:0@{file}")).expect_err("no such shape").to_string();
    assert!(error.contains("core:0"), "{error}");
    let error = Machine::described("core:2@/no/such.machine").expect_err("no file").to_string();
    assert!(error.contains("/no/such.machine"), "{error}");
}

#[test]
fn a_file_may_have_hwlocs_xml_as_its_shape() {
    let text = include_str!("../../machines/grace-72.json");
    let xml = r"<topology version='2.0'><object type='Machine' cpuset='0x3' complete_cpuset='0x3'><object type='PU' os_index='0' cpuset='0x1'/><object type='PU' os_index='1' cpuset='0x2'/></object></topology>";
    let start = text.find("\"shape\": \"").expect("a shape") + "\"shape\": \"".len();
    let end = start + text[start..].find('"').expect("its end");
    let file = MachineFile::new("xml.machine", &format!("{}{xml}{}", &text[..start], &text[end..]));
    let machine = Machine::described(file.path()).expect("well formed");
    assert_eq!(machine.topology().possible().to_list(), "0-1");
}

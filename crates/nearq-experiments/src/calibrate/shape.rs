//! The shape of this machine as text, for a machine file: hwloc's synthetic form if that can say it, else hwloc's XML.
//!
//! The text is read again and compared, so that a file never has another shape than the machine.

use nearq_topology::{Cache, CacheKind, CpuSet, Topology};
use std::fmt::Write as _;

/// The text that describes the shape. None if no text does.
pub(super) fn describe(topology: &Topology) -> Option<String> {
    let is_right = |text: &String| {
        let read = if text.starts_with('<') {
            Topology::from_hwloc_xml(text)
        } else {
            Topology::from_synthetic(text)
        };
        read.is_ok_and(|read| is_same(&read, topology))
    };
    synthetic(topology).filter(is_right).or_else(|| Some(xml(topology)).filter(is_right))
}

/// Whether the simulated machine would be the same.
fn is_same(a: &Topology, b: &Topology) -> bool {
    let sets = |of: &Topology| {
        let all: [Vec<CpuSet>; 3] = [
            of.cores().iter().map(|core| core.cpus.clone()).collect(),
            of.llcs().iter().map(|llc| llc.cpus.clone()).collect(),
            of.nodes().iter().map(|node| node.cpus.clone()).collect(),
        ];
        all
    };
    let packages = |of: &Topology| {
        let several = |cpus: &CpuSet| !cpus.is_empty();
        of.packages().iter().map(|one| one.cpus.clone()).filter(several).collect::<Vec<_>>()
    };
    a.possible() == b.possible() && sets(a) == sets(b) && packages(a) == packages(b)
}

/// The data cache of a level that a CPU has.
fn cache_of(topology: &Topology, cpu: usize, level: u32) -> Option<&Cache> {
    let is_it = |cache: &&Cache| {
        cache.level == level && cache.kind != CacheKind::Instruction && cache.cpus.contains(cpu)
    };
    topology.caches().iter().find(is_it)
}

/// The caches that a CPU has above the first level, the nearest first.
pub(super) fn caches(topology: &Topology, cpu: usize) -> Vec<&Cache> {
    (2..=4).filter_map(|level| cache_of(topology, cpu, level)).collect()
}

/// In hwloc's synthetic form, for machines whose parts are all alike.
fn synthetic(topology: &Topology) -> Option<String> {
    let first = topology.possible().first()?;
    let mut text = String::new();
    let mut outer = topology.possible().clone();
    let mut level = |name: &str, cpus: &CpuSet, more: String| {
        if cpus.is_empty() || !outer.len().is_multiple_of(cpus.len()) {
            return None;
        }
        write!(text, "{name}:{}{more} ", outer.len() / cpus.len()).ok()?;
        outer = cpus.clone();
        Some(())
    };
    let none = String::new;
    if let Some(package) = topology.packages().iter().find(|one| one.cpus.contains(first)) {
        level("pack", &package.cpus, none())?;
    }
    let node = topology.nodes().iter().find(|node| node.cpus.contains(first))?;
    level("numa", &node.cpus, none())?;
    let mut caches = caches(topology, first);
    caches.reverse();
    for cache in caches {
        let size = cache.size.map_or_else(none, |size| format!("(size={size})"));
        level(&format!("l{}", cache.level), &cache.cpus, size)?;
    }
    let core = topology.cores().iter().find(|core| core.cpus.contains(first))?;
    level("core", &core.cpus, none())?;
    // The CPUs in the order of the parts that they are in.
    let mut order: Vec<usize> = topology.possible().iter().collect();
    let parts = |cpu: usize| {
        let size = |cache: &Cache| cache.cpus.first();
        let inner: Vec<_> = self::caches(topology, cpu).into_iter().rev().map(size).collect();
        (
            topology.package_index(cpu),
            topology.node_index(cpu),
            inner,
            topology.core_index(cpu),
            cpu,
        )
    };
    order.sort_by_cached_key(|&cpu| parts(cpu));
    let numbers: Vec<String> = order.iter().map(ToString::to_string).collect();
    let in_order = order.iter().enumerate().all(|(at, cpu)| at == *cpu);
    let indexes = if in_order { none() } else { format!("(indexes={})", numbers.join(",")) };
    level("pu", &CpuSet::single(first), indexes)?;
    Some(text.trim_end().to_owned())
}

/// A set of CPUs as hwloc writes it: words of 32 bits, the highest first.
fn set(cpus: &CpuSet) -> String {
    let words: Vec<String> = cpus
        .as_words()
        .iter()
        .flat_map(|word| [*word as u32, (*word >> 32) as u32])
        .map(|word| format!("0x{word:08x}"))
        .rev()
        .collect();
    words.join(",")
}

/// As hwloc's XML: every object carries its CPUs, so that they need not be nested.
fn xml(topology: &Topology) -> String {
    let all = set(topology.possible());
    let mut text = format!(
        "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" cpuset=\"{all}\" complete_cpuset=\"{all}\">"
    );
    let mut object = |kind: &str, index: usize, cpus: &CpuSet, more: &str| {
        let cpus = set(cpus);
        text += &format!("<object type=\"{kind}\" os_index=\"{index}\" cpuset=\"{cpus}\"{more}/>");
    };
    for (at, package) in topology.packages().iter().enumerate() {
        object("Package", package.id.unwrap_or(at), &package.cpus, "");
    }
    for node in topology.nodes() {
        object(
            "NUMANode",
            node.id,
            &node.cpus,
            &format!(" nodeset=\"0x{:x}\"", 1_u128 << node.id.min(127)),
        );
    }
    for cache in topology.caches().iter().filter(|cache| cache.level >= 2) {
        let size = cache.size.map_or_else(String::new, |size| format!(" cache_size=\"{size}\""));
        let more = format!("{size} depth=\"{}\" cache_type=\"0\"", cache.level);
        object(&format!("L{}Cache", cache.level), 0, &cache.cpus, &more);
    }
    for (at, core) in topology.cores().iter().enumerate() {
        object("Core", at, &core.cpus, "");
    }
    for cpu in topology.possible() {
        object("PU", cpu, &CpuSet::single(cpu), "");
    }
    text + "</object></topology>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_is_described_by_a_text_that_gives_it_again() {
        for name in nearq_sim::Machine::NAMES {
            let machine = nearq_sim::Machine::named(name).unwrap();
            assert!(describe(machine.topology()).is_some(), "{name}");
        }
        let described = |text: &str| describe(&Topology::from_synthetic(text).unwrap());
        assert_eq!(described("core:2").as_deref(), Some("pack:1 numa:1 core:2 pu:1"));
        let text = "pack:2 numa:2 l3:2(size=1048576) l2:2(size=65536) core:1 pu:2(indexes=core)";
        let text = described(text).unwrap();
        assert!(
            text.starts_with(
                "pack:2 numa:2 l3:2(size=1048576) l2:2(size=65536) core:1 pu:2(indexes=0,16,"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_machine_of_unequal_parts_is_described_as_xml() {
        let topology = Topology::from_synthetic("numa:2 l3:1(size=1MB) core:2 pu:2").unwrap();
        let text = xml(&topology).replace(
            "<object type=\"Core\" os_index=\"3\"",
            "<object type=\"Group\" os_index=\"3\"",
        );
        let unequal = Topology::from_hwloc_xml(&text).unwrap();
        assert_eq!((unequal.cores().len(), unequal.possible().len()), (5, 8));
        assert_eq!(
            synthetic(&unequal)
                .filter(|text| is_same(&Topology::from_synthetic(text).unwrap(), &unequal)),
            None
        );
        assert!(describe(&unequal).unwrap().starts_with("<topology"));
    }

    #[test]
    fn this_machine_is_described() {
        let here = nearq_report::Machine::here().unwrap();
        assert!(describe(here.topology()).is_some());
    }
}

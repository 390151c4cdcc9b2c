//! Machines from hwloc's XML format, versions 2 and 3: what `lstopo machine.xml` writes.
//!
//! Every object carries the set of CPUs it covers, so the tree itself need not be followed. A node covers the CPUs of the object that it is
//! attached to; if several nodes have the same CPUs (slow and fast memory), the node with the lowest number gets them. `devices` reads the
//! devices, whose place in the tree counts.

mod devices;
mod limits;

use crate::assemble::{Draft, cache_level, number};
use crate::error::quoted;
use crate::{CPU_ID_LIMIT, CacheKind, CpuSet, Device, MAX_NODES, Node, Topology, TopologyError};
use roxmltree::{Document, Node as Element, ParsingOptions};
use std::collections::BTreeMap;

/// The most kinds of cores; further ones are left out.
const MOST_KINDS: usize = 64;

/// A distance matrix holds latencies if this bit of its kind is set.
const KIND_LATENCY: u64 = 4;

impl Topology {
    /// Reads an hwloc XML file, as `lstopo machine.xml` writes it, from its text.
    ///
    /// # Errors
    /// If the text is not XML or not in hwloc's format of version 2 or later, if it contradicts itself, or if it has no CPU or more than
    /// [`MAX_CPU_COUNT`](crate::MAX_CPU_COUNT). Also if it is larger than any machine's: more than 16 MiB, half a million parts, 64
    /// attributes of one element or 256 elements inside each other. Entities and name spaces are refused.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::Topology;
    ///
    /// let machine = Topology::from_hwloc_xml(
    ///     r#"<topology version="2.0"><object type="Machine" cpuset="0x3" complete_cpuset="0x3">
    ///          <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>
    ///        </object></topology>"#,
    /// )?;
    /// assert_eq!(machine.online().to_list(), "0-1");
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn from_hwloc_xml(text: &str) -> Result<Self, TopologyError> {
        let (draft, devices) = read(text).map_err(|reason| TopologyError::Xml { reason })?;
        Ok(devices::place(draft.finish()?, devices))
    }
}

fn read(text: &str) -> Result<(Draft, Vec<(Device, CpuSet)>), String> {
    limits::check(text)?;
    // hwloc's files contain a document type declaration, which the parser refuses by default.
    let options = ParsingOptions {
        allow_dtd: true,
        nodes_limit: limits::MOST_PARTS,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options).map_err(|error| match error {
        roxmltree::Error::NodesLimitReached => {
            format!("it has more than {} parts, the most that are read", limits::MOST_PARTS)
        }
        error => quoted_error(&error),
    })?;
    let root = document.root_element();
    if root.tag_name().name() != "topology" {
        return Err(format!(
            "the outermost element is {}, not \"topology\"",
            quoted(root.tag_name().name())
        ));
    }
    let major = root.attribute("version").and_then(|version| version.split('.').next());
    let major = major.and_then(|major| major.parse::<u32>().ok()).filter(|major| *major >= 2);
    let major =
        major.ok_or("its version is older than 2; convert it with `lstopo -i old.xml new.xml`")?;
    let mut draft = Draft { place: "the XML file".into(), ..Draft::default() };
    let mut nodes_by_gp = BTreeMap::new();
    let mut seen = CpuSet::new();
    for element in document.descendants().filter(|element| element.has_tag_name("object")) {
        object(&mut draft, element, &mut nodes_by_gp, &mut seen)?;
    }
    if draft.possible.is_empty() {
        draft.possible = seen.clone();
    }
    draft.online = seen;
    let kinds = document.descendants().filter(|element| element.has_tag_name("cpukind"));
    for kind in kinds.take(MOST_KINDS) {
        cpu_kind(&mut draft, kind)?;
    }
    for matrix in document.descendants().filter(|element| element.has_tag_name("distances2")) {
        distances(&mut draft, matrix, &nodes_by_gp)?;
    }
    Ok((draft, devices::read(&document, major)?))
}

/// The parser's message: on one line, with long quoted texts shortened, and without characters that would control a terminal.
fn quoted_error(error: &roxmltree::Error) -> String {
    let text = error.to_string();
    if text.chars().count() > 200 {
        return quoted(&text);
    }
    let mut shown = String::new();
    for character in text.chars() {
        match character {
            '\'' | '"' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

/// One object of the machine.
fn object(
    draft: &mut Draft,
    element: Element<'_, '_>,
    nodes_by_gp: &mut BTreeMap<u64, usize>,
    seen: &mut CpuSet,
) -> Result<(), String> {
    let Some(kind) = element.attribute("type") else {
        return Err("an object has no type".into());
    };
    let cpus = attribute(element, "cpuset", mask)?;
    let id = attribute(element, "os_index", number::<usize>)?;
    let is_listed = cpus.is_some();
    let cpus = cpus.unwrap_or_default();
    match kind {
        "Machine" => draft.possible = attribute(element, "complete_cpuset", mask)?.unwrap_or(cpus),
        "Package" => draft.packages.add_whole(cpus, id),
        "Die" => draft.dies.add_whole(cpus, id),
        "Group" if element.attribute("subtype") == Some("Cluster") => {
            draft.clusters.add_whole(cpus, id)
        }
        "NUMANode" => {
            let id = id.filter(|id| *id < MAX_NODES);
            let id = id.ok_or_else(|| format!("a NUMANode has no os_index below {MAX_NODES}"))?;
            if draft.nodes.iter().any(|node| node.id == id) {
                return Err(format!("two NUMANodes have the os_index {id}"));
            }
            if let Some(gp) = attribute(element, "gp_index", number)? {
                nodes_by_gp.insert(gp, id);
            }
            let memory = attribute(element, "local_memory", number)?;
            draft.unlisted.extend((!is_listed).then_some(id));
            draft.nodes.push(Node { id, cpus, memory });
        }
        "Core" => draft.cores.add_whole(cpus, id),
        "PU" => {
            let id = id.filter(|id| *id < CPU_ID_LIMIT);
            seen.insert(id.ok_or_else(|| format!("a PU has no os_index below {CPU_ID_LIMIT}"))?);
        }
        // L1Cache and L1iCache, but not MemCache, which is in front of memory and not shared by CPUs.
        _ if kind.starts_with('L') && kind.ends_with("Cache") => cache(draft, element, cpus)?,
        _ => {}
    }
    let model = info(element, "CPUModel").filter(|model| !model.is_empty());
    draft.model = draft.model.take().or_else(|| model.map(str::to_owned));
    Ok(())
}

fn cache(draft: &mut Draft, element: Element<'_, '_>, cpus: CpuSet) -> Result<(), String> {
    let level = attribute(element, "depth", cache_level)?.ok_or("a cache has no depth")?;
    let kind = match element.attribute("cache_type") {
        Some("0") => CacheKind::Unified,
        Some("1") => CacheKind::Data,
        Some("2") => CacheKind::Instruction,
        other => return Err(format!("{} is no cache_type", quoted(other.unwrap_or_default()))),
    };
    let size = attribute(element, "cache_size", number)?.filter(|size: &u64| *size > 0);
    let line = attribute(element, "cache_linesize", number)?.filter(|line: &u32| *line > 0);
    draft.caches.shared(level, kind).add_whole(cpus, (size, line));
    Ok(())
}

/// A kind of cores of a hybrid machine.
fn cpu_kind(draft: &mut Draft, element: Element<'_, '_>) -> Result<(), String> {
    let cpus = attribute(element, "cpuset", mask)?.unwrap_or_default();
    if let Some(Ok(capacity)) = info(element, "LinuxCapacity").map(number::<u32>) {
        draft.capacities.extend(cpus.iter().map(|cpu| (cpu, capacity)));
    }
    if let Some(name) = info(element, "CoreType") {
        draft.kinds.push((name.to_owned(), cpus));
    }
    Ok(())
}

/// A matrix of distances, if it holds latencies between all the nodes.
fn distances(
    draft: &mut Draft,
    element: Element<'_, '_>,
    by_gp: &BTreeMap<u64, usize>,
) -> Result<(), String> {
    let kind = attribute(element, "kind", number::<u64>)?.unwrap_or(0);
    if element.attribute("type") != Some("NUMANode")
        || kind & KIND_LATENCY == 0
        || !draft.distances.is_empty()
    {
        return Ok(());
    }
    let by_gp = if element.attribute("indexing") == Some("gp") { Some(by_gp) } else { None };
    let ids: Vec<usize> = numbers(element, "indexes")?
        .into_iter()
        .map(|index| by_gp.map_or(Some(index as usize), |by_gp| by_gp.get(&index).copied()))
        .collect::<Option<_>>()
        .ok_or("the distances are between nodes that do not exist")?;
    let values = numbers(element, "u64values")?;
    if ids.len() > MAX_NODES || values.len() != ids.len() * ids.len() {
        return Err(format!("{} distances are given between {} nodes", values.len(), ids.len()));
    }
    // The assembled machine has its nodes in order of their numbers.
    let mut order: Vec<usize> = draft.nodes.iter().map(|node| node.id).collect();
    order.sort_unstable();
    let places: Option<Vec<usize>> =
        order.iter().map(|id| ids.iter().position(|other| other == id)).collect();
    let Some(places) = places else {
        draft.note("the distances given are not those between all the nodes: they are not used");
        return Ok(());
    };
    let value = |a: usize, b: usize| u32::try_from(values[a * ids.len() + b]).unwrap_or(u32::MAX);
    draft.distances =
        places.iter().map(|a| places.iter().map(|b| value(*a, *b)).collect()).collect();
    Ok(())
}

/// The numbers in all children of one name.
fn numbers(element: Element<'_, '_>, name: &str) -> Result<Vec<u64>, String> {
    let children = element.children().filter(|child| child.has_tag_name(name));
    children
        .flat_map(|child| child.text().unwrap_or_default().split_whitespace())
        .map(number)
        .collect()
}

fn info<'a>(element: Element<'a, '_>, name: &str) -> Option<&'a str> {
    let mut infos = element.children().filter(|child| child.has_tag_name("info"));
    infos.find(|info| info.attribute("name") == Some(name))?.attribute("value")
}

fn attribute<T>(
    element: Element<'_, '_>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    element
        .attribute(name)
        .map(|text| parse(text).map_err(|reason| format!("{name}: {reason}")))
        .transpose()
}

/// hwloc's mask format: the kernel's mask format with `0x` before each word and nothing for a zero word.
fn mask(text: &str) -> Result<CpuSet, String> {
    let words: Vec<&str> =
        text.split(',').map(|word| if word.trim().is_empty() { "0" } else { word }).collect();
    CpuSet::parse_mask(&words.join(",")).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(inside: &str) -> Result<Topology, TopologyError> {
        Topology::from_hwloc_xml(&format!(
            r#"<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">{inside}</topology>"#
        ))
    }

    #[test]
    fn nodes_caches_kinds_and_distances_are_read() {
        let found = machine(
            r#"<object type="Machine" cpuset="0x1f" complete_cpuset="0x2f">
                 <object type="NUMANode" os_index="7" gp_index="3" cpuset="0x3" local_memory="4096"/>
                 <object type="NUMANode" os_index="2" gp_index="9" cpuset="0xc"/>
                 <object type="L3Cache" depth="3" cache_type="0" cache_size="1024" cache_linesize="64" cpuset="0x3">
                   <object type="Core" cpuset="0x3"><object type="PU" os_index="0"/><object type="PU" os_index="1"/></object>
                 </object>
                 <object type="L3Cache" depth="3" cache_type="0" cache_size="0" cpuset="0xc">
                   <object type="PU" os_index="2"/><object type="PU" os_index="3"/>
                 </object>
               </object>
               <distances2 type="NUMANode" kind="5" indexing="gp"><indexes>3 9</indexes>
                 <u64values>10 30</u64values><u64values>40 10</u64values></distances2>
               <cpukind cpuset="0x3"><info name="CoreType" value="IntelAtom"/></cpukind>"#,
        )
        .unwrap();
        assert_eq!(
            (found.possible().to_list().as_str(), found.online().to_list().as_str()),
            ("0-3,5", "0-3")
        );
        assert_eq!(found.nodes().iter().map(|node| node.id).collect::<Vec<_>>(), [2, 7]);
        assert_eq!((found.distance(0, 1), found.distance(1, 0)), (40, 30));
        assert_eq!(
            (found.cores().len(), found.llcs().len(), found.cpus()[0].kind.as_deref()),
            (4, 3, Some("IntelAtom"))
        );
        assert_eq!((found.caches()[0].size, found.caches()[1].size), (Some(1024), None));
        assert_eq!(found.node_index(5), None);
    }

    #[test]
    fn masks_of_hwloc() {
        assert_eq!(mask("0x00000001,,0x0000000f").unwrap().to_list(), "0-3,64");
        assert_eq!(mask("0x0").unwrap().to_list(), "");
        assert!(mask("0xf...f").is_err());
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| Topology::from_hwloc_xml(text).unwrap_err().to_string();
        assert!(error("").contains("hwloc's XML format"), "{}", error(""));
        assert!(error("<html/>").contains("\"html\", not \"topology\""));
        assert!(error("<topology/>").contains("older than 2"));
        assert!(error(r#"<topology version="2.0"/>"#).contains("no CPU found in the XML file"));
        for (inside, part) in [
            ("<object/>", "no type"),
            (r#"<object type="PU"/>"#, "no os_index"),
            (r#"<object type="NUMANode" os_index="1024"/>"#, "no os_index below 1024"),
            (r#"<object type="PU" os_index="65536"/>"#, "no os_index below 65536"),
            (r#"<object type="Core" cpuset="0xg"/>"#, "cpuset: \"0xg\": not a hexadecimal number"),
            (
                r#"<object type="L3Cache" depth="16" cache_type="0"/>"#,
                "depth: 16 is not a cache level, which is 1 to 15",
            ),
            (r#"<object type="L3Cache" depth="3" cache_type="7"/>"#, "\"7\" is no cache_type"),
            (
                r#"<object type="NUMANode" os_index="0"/><object type="NUMANode" os_index="0"/>"#,
                "two NUMANodes",
            ),
            (
                r#"<distances2 type="NUMANode" kind="5" indexing="os"><indexes>0 1</indexes></distances2>"#,
                "0 distances",
            ),
        ] {
            let text = machine(inside).unwrap_err().to_string();
            assert!(text.contains(part), "{inside}: {text}");
        }
        let mut pus = String::new();
        for cpu in 0..4097 {
            pus += &format!(r#"<object type="PU" os_index="{cpu}"/>"#);
        }
        assert!(machine(&pus).unwrap_err().to_string().contains("4097 CPUs: more than the 4096"));
    }
}

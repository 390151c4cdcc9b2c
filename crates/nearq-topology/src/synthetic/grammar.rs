//! The grammar of synthetic descriptions: items, their names and attributes, and which may be nested in
//! which.

use crate::assemble::number;
use crate::error::quoted;
use crate::{CacheKind, MAX_CPU_COUNT, MAX_NODES, TopologyError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Machine,
    Package,
    Node,
    Die,
    Group,
    Cluster,
    Cache(u32, CacheKind),
    Core,
    Cpu,
}

const NAMES: &str = "machine, package (pack, socket), numanode (numa, node), die, cluster, group, l1 to l5, core and pu";

/// One item of the description.
#[derive(Debug)]
pub(super) struct Level<'a> {
    pub kind: Kind,
    /// How many of this item there are in each item of the level before.
    pub arity: usize,
    /// How many of this item there are in the machine.
    pub total: usize,
    /// Whether it is attached to the level before, instead of holding the levels after it.
    pub attached: bool,
    /// Memory or size in bytes.
    pub bytes: Option<u64>,
    pub indexes: Option<&'a str>,
    pub text: &'a str,
}

/// The items of a description, and whether each was in square brackets.
pub(super) fn items(text: &str) -> Result<Vec<(&str, bool)>, String> {
    let mut items = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let end = inside.find(']').ok_or("'[' without ']'")?;
            items.push((inside[..end].trim(), true));
            rest = inside[end + 1..].trim_start();
            continue;
        }
        let mut depth = 0;
        let end = rest.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth <= 0 && (c.is_whitespace() || *c == '[')
        });
        let end = end.map_or(rest.len(), |(at, _)| at);
        items.push((&rest[..end], false));
        rest = rest[end..].trim_start();
    }
    if items.is_empty() {
        return Err("the description is empty".into());
    }
    Ok(items)
}

pub(super) fn level(text: &str, attached: bool) -> Result<Level<'_>, String> {
    let (head, attributes) = match text.split_once('(') {
        Some((head, rest)) => (head, rest.strip_suffix(')').ok_or("'(' without ')'")?),
        None => (text, ""),
    };
    let (name, count) = match head.split_once(':') {
        Some((name, count)) => (name, Some(count)),
        None => (head, None),
    };
    let kind =
        kind(name).ok_or_else(|| format!("not a part of a machine; the parts are {NAMES}"))?;
    if attached && kind != Kind::Node {
        return Err("only a node may be in square brackets".into());
    }
    let arity = match count {
        Some(count) => number(count)?,
        None if attached => 1,
        None => return Err(format!("a count is missing, as in {}", quoted(&format!("{name}:2")))),
    };
    if arity == 0 {
        return Err("a count must be at least 1".into());
    }
    let mut level = Level { kind, arity, total: 0, attached, bytes: None, indexes: None, text };
    for attribute in attributes.split_whitespace() {
        match attribute.split_once('=') {
            Some(("memory" | "size", value)) => level.bytes = Some(bytes(value)?),
            Some(("indexes", value)) => level.indexes = Some(value),
            Some(("memorysidecachesize", _)) => {}
            _ => {
                return Err(
                    "unknown attribute; the attributes are memory=, size= and indexes=".into()
                );
            }
        }
    }
    Ok(level)
}

pub(super) fn kind(name: &str) -> Option<Kind> {
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "machine" | "system" => Kind::Machine,
        "pack" | "package" | "socket" => Kind::Package,
        "numa" | "numanode" | "node" => Kind::Node,
        "die" => Kind::Die,
        "group" => Kind::Group,
        "cluster" => Kind::Cluster,
        "core" => Kind::Core,
        "pu" | "cpu" | "thread" => Kind::Cpu,
        _ => {
            let rest = name.strip_prefix('l')?;
            let rest = rest.strip_suffix("cache").unwrap_or(rest);
            let level = rest.get(..1)?.parse().ok().filter(|level| (1..=5).contains(level))?;
            let kind = match rest.get(1..)? {
                "" | "u" => CacheKind::Unified,
                "d" => CacheKind::Data,
                "i" => CacheKind::Instruction,
                _ => return None,
            };
            // As in hwloc: a first-level cache without a letter holds data.
            let kind =
                if level == 1 && kind == CacheKind::Unified { CacheKind::Data } else { kind };
            Kind::Cache(level, kind)
        }
    })
}

/// `64GB`, `512KiB`, `4096`: bytes.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (value, unit) = text.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "kib" => 1 << 10,
        "mb" => 1_000_000,
        "mib" => 1 << 20,
        "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        "tb" => 1_000_000_000_000,
        "tib" => 1 << 40,
        _ => {
            return Err(format!(
                "{} is not a unit of memory; the units are kB, kiB, MB, MiB, GB, GiB, TB and TiB",
                quoted(unit)
            ));
        }
    };
    number::<u64>(value)?
        .checked_mul(factor)
        .ok_or_else(|| format!("{} is more memory than can be counted", quoted(text)))
}

pub(super) fn count(levels: &mut Vec<Level<'_>>) -> Result<(), TopologyError> {
    let mut total = 1_usize;
    for level in levels.iter_mut() {
        let here = total.saturating_mul(level.arity);
        if level.kind == Kind::Node && here > MAX_NODES {
            return Err(TopologyError::TooManyNodes { count: here });
        }
        if here > MAX_CPU_COUNT {
            return Err(TopologyError::TooManyCpus { count: here });
        }
        level.total = here;
        if !level.attached {
            total = here;
        }
    }
    if levels.iter().rfind(|level| !level.attached).is_none_or(|level| level.kind != Kind::Cpu) {
        let (kind, arity, attached, text) = (Kind::Cpu, 1, false, "pu:1");
        levels.push(Level { kind, arity, total, attached, bytes: None, indexes: None, text });
    }
    Ok(())
}

/// Checks that nothing is nested where it must not be.
pub(super) fn check<'a>(levels: &[Level<'a>]) -> Result<(), (&'a str, String)> {
    let rank = |kind| match kind {
        Kind::Machine => 0,
        Kind::Package => 1,
        Kind::Node | Kind::Die | Kind::Group | Kind::Cluster => 2,
        Kind::Cache(..) => 3,
        Kind::Core => 4,
        Kind::Cpu => 5,
    };
    for (index, level) in levels.iter().enumerate() {
        for outer in &levels[..index] {
            let wrong = match (outer.kind, level.kind) {
                (Kind::Cpu, _) => true,
                _ if level.attached || outer.attached => false,
                (Kind::Group, Kind::Group) => false,
                (a, b) if a == b => true,
                (Kind::Cache(a, _), Kind::Cache(b, _)) => a < b,
                // An L3 may span nodes or clusters, but nothing else; nodes and groups may hold packages; a
                // core may have caches inside.
                (Kind::Cache(..), Kind::Node | Kind::Group | Kind::Cluster)
                | (Kind::Node | Kind::Group, Kind::Package)
                | (Kind::Core, Kind::Cache(..)) => false,
                (a, b) => rank(a) > rank(b),
            };
            if wrong {
                return Err((level.text, format!("cannot be inside {}", quoted(outer.text))));
            }
        }
        if level.indexes.is_some() && !matches!(level.kind, Kind::Cpu | Kind::Node) {
            return Err((level.text, "only pu and numa may have indexes".into()));
        }
        if level.kind == Kind::Machine && level.arity != 1 {
            return Err((level.text, "there can be only one machine".into()));
        }
    }
    let nodes = levels.iter().filter(|level| level.kind == Kind::Node);
    if nodes.count() > 1 {
        return Err((levels[0].text, "nodes may be described only once".into()));
    }
    Ok(())
}

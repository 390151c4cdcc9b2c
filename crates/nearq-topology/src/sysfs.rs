//! Machines from the files that a Linux kernel publishes below `/sys` (and `/proc/cpuinfo` for the name).
//!
//! Works for kernels from 2.6 on, so most things are looked for in two places. What is missing is left out of
//! the draft; `assemble` fills the gaps and says so.

use crate::assemble::{Draft, number};
use crate::error::quoted;
use crate::files::{CPU_FOLDER, Files, NODE_FOLDER, Roots};
use crate::topology::STANDS;
use crate::unread::{self, Unread};
use crate::{Cache, CacheKind, CpuSet, Group, MAX_CPU, MAX_CPUS, Node, Topology, TopologyError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl Topology {
    /// Reads a machine from the folder that holds its `sys` (and `proc`): `/` for this machine, or one that
    /// a copy of these files was unpacked into. A folder that is itself the `sys` is accepted too.
    ///
    /// Whatever is missing degrades to what is known, and [`Topology::notes`] says so; what is there and could not be read is listed in
    /// [`Topology::unread`] as well. Two things do not degrade:
    ///
    /// # Errors
    /// If there is no `sys/devices/system/cpu`, or it shows no CPU or more than [`MAX_CPUS`]. Where it shows none because it cannot be
    /// read, the error says which path and why ([`TopologyError::path`], [`TopologyError::errno`]).
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::Topology;
    /// use std::path::Path;
    ///
    /// let here = Topology::from_sysfs(Path::new("/"))?;
    /// assert!(!here.online().is_empty());
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn from_sysfs(root: &Path) -> Result<Self, TopologyError> {
        let roots = Roots::find(root)?;
        let cpu_root = roots.sys.join(CPU_FOLDER);
        let draft = Draft { place: cpu_root.display().to_string(), ..Draft::default() };
        let mut reader =
            Reader { roots, cpu_root, files: Files::default(), draft, lonely: CpuSet::new() };
        reader.cpus();
        for cpu in &reader.draft.possible.clone() {
            reader.cpu(cpu);
        }
        if !reader.lonely.is_empty() {
            let cpus = &reader.lonely;
            reader.draft.note(format!(
                "some caches of CPUs {cpus} do not say who shares them: they count as the CPU's own"
            ));
        }
        reader.nodes();
        reader.kinds();
        reader.model();
        let Reader { mut files, mut draft, .. } = reader;
        if let Some(unread) = files.unread.first()
            && draft.possible.is_empty()
        {
            return Err(TopologyError::Unreadable {
                path: unread.path().into(),
                source: std::io::Error::from_raw_os_error(unread.errno()),
            });
        }
        draft.unread = std::mem::take(&mut files.unread);
        draft.notes.extend(files.into_notes());
        draft.finish()
    }

    /// Reads the machine again if it may have changed: `self` is what was read before, `online` are the CPUs that are online now, as
    /// [`Limits::read`](crate::Limits::read) found them; empty if that is not known. `None` if there is nothing new.
    ///
    /// While the same CPUs and the same nodes are online, one file is read (`node/online`), however large the machine is. Changes that
    /// leave both lists as they were are not seen: memory that is added to or removed from a node, other distances or capacities, a CPU
    /// that is plugged in and stays offline, and CPUs or nodes that go offline and come back between two looks.
    ///
    /// The new reading replaces the old one only if nothing is missing that was there before. Otherwise only the online CPUs are updated,
    /// the rest stays as it was, and there is a [warning](Self::warning). If the reason may pass, the machine is read again next time; so
    /// is one that was read only in part before, for such a reason. What [stands in](Self::of_cpus) for a machine knows nothing of it: the
    /// machine is read again each time, and any reading replaces the stand-in.
    ///
    /// # Errors
    /// As of [`from_sysfs`](Self::from_sysfs); what was known stands.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::Topology;
    /// use std::path::Path;
    ///
    /// let here = Topology::from_sysfs(Path::new("/"))?;
    /// assert!(!here.is_whole() || here.reread(Path::new("/"), here.online())?.is_none());
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn reread(&self, root: &Path, online: &CpuSet) -> Result<Option<Self>, TopologyError> {
        let online = if online.is_empty() { &self.online } else { online };
        let same = self.online == *online && self.has_online_nodes(root) && !self.stands_in();
        if same && !self.outdated && !self.unread.iter().any(Unread::may_pass) {
            return Ok(None);
        }
        let new = Self::from_sysfs(root)?;
        if self.stands_in() || unread::is_as_whole(&new.unread, &self.unread) {
            return Ok((new != *self).then_some(new));
        }
        let mut kept = self.clone().with_online(online);
        kept.notes.retain(|note| !note.ends_with(STANDS));
        kept.notes.push(format!("{}: {STANDS}", unread::list(&new.unread)));
        // What lasts would be read in vain each time.
        kept.outdated = new.unread.iter().any(Unread::may_pass);
        Ok((kept != *self).then_some(kept))
    }

    /// Whether the nodes are those that are online now; true if the system does not tell.
    fn has_online_nodes(&self, root: &Path) -> bool {
        let roots = Roots::find(root);
        let path = roots.map(|roots| roots.sys.join(NODE_FOLDER).join("online"));
        let online = path.ok().and_then(|path| Files::default().list(&path));
        online.is_none_or(|online| online == self.nodes.iter().map(|node| node.id).collect())
    }
}

struct Reader {
    roots: Roots,
    cpu_root: PathBuf,
    files: Files,
    draft: Draft,
    /// CPUs with a cache that does not say who shares it.
    lonely: CpuSet,
}

impl Reader {
    /// Possible, present and online CPUs.
    fn cpus(&mut self) {
        let folders: CpuSet = self
            .files
            .numbered(&self.cpu_root, "cpu")
            .into_iter()
            .filter(|cpu| *cpu < MAX_CPU)
            .collect();
        let mut list =
            |name: &str| self.files.list(&self.cpu_root.join(name)).filter(|set| !set.is_empty());
        let (possible, present, online) = (list("possible"), list("present"), list("online"));
        let present = present.unwrap_or_else(|| folders.clone());
        let mut possible = possible.unwrap_or_else(|| {
            self.draft.notes.push(format!(
                "the machine does not list its possible CPUs: the {} present ones are used",
                present.len()
            ));
            &present | &folders
        });
        if possible.len() > MAX_CPUS && !present.is_empty() && present.len() <= MAX_CPUS {
            self.draft.notes.push(format!(
                "{} CPUs are possible, more than the {MAX_CPUS} that are supported: only the {} present ones are used",
                possible.len(),
                present.len()
            ));
            possible = present.clone();
        }
        // An older kernel says it CPU by CPU; CPU 0 often cannot go offline and has no such file.
        let online = online.unwrap_or_else(|| {
            let mut shut = |cpu: &usize| {
                self.files.number::<u8>(&self.cpu_root.join(format!("cpu{cpu}/online"))) == Some(0)
            };
            let open: CpuSet = present.iter().filter(|cpu| !shut(cpu)).collect();
            self.draft.notes.push(
                "the machine does not list its online CPUs: those not switched off are used".into(),
            );
            open
        });
        (self.draft.possible, self.draft.present, self.draft.online) = (possible, present, online);
    }

    /// What one CPU's folder tells: its core, its groups, its caches.
    fn cpu(&mut self, cpu: usize) {
        let folder = self.cpu_root.join(format!("cpu{cpu}"));
        if !self.draft.online.contains(cpu) || !self.files.is_folder(&folder) {
            return;
        }
        if let Some(capacity) = self.files.number(&folder.join("cpu_capacity")) {
            self.draft.capacities.insert(cpu, capacity);
        }
        self.groups(cpu, &folder.join("topology"));
        self.caches(cpu, &folder.join("cache"));
    }

    fn groups(&mut self, cpu: usize, folder: &Path) {
        let files = &mut self.files;
        // A set that leaves out its own CPU cannot be believed.
        let mut set = |mask: &str, list: &str| {
            files.set(folder, mask, list).filter(|cpus| cpus.contains(cpu))
        };
        let core = set("core_cpus", "core_cpus_list")
            .or_else(|| set("thread_siblings", "thread_siblings_list"));
        let package = set("package_cpus", "package_cpus_list")
            .or_else(|| set("core_siblings", "core_siblings_list"));
        let die = set("die_cpus", "die_cpus_list");
        let cluster = set("cluster_cpus", "cluster_cpus_list")
            .filter(|cluster| Some(cluster) != core.as_ref());
        // -1 or 65535: the firmware does not tell.
        let mut id = |name: &str| {
            files
                .parsed(&folder.join(name), number::<i64>)
                .and_then(|id| usize::try_from(id).ok())
                .filter(|id| *id != 65535)
        };
        let (package_id, die_id, cluster_id) =
            (id("physical_package_id"), id("die_id"), id("cluster_id"));
        if let Some(cpus) = core
            && self.draft.cores.last() != Some(&cpus)
        {
            self.draft.cores.push(cpus);
        }
        add_group(&mut self.draft.packages, package_id, package);
        if die_id.is_some() {
            add_group(&mut self.draft.dies, die_id, die);
        }
        if cluster_id.is_some() {
            add_group(&mut self.draft.clusters, cluster_id, cluster);
        }
    }

    fn caches(&mut self, cpu: usize, folder: &Path) {
        for index in self.files.numbered(folder, "index") {
            let folder = folder.join(format!("index{index}"));
            let Some(level) = self.files.number::<u32>(&folder.join("level")) else {
                continue;
            };
            let kind = self.files.parsed(&folder.join("type"), |text| match text {
                "Data" => Ok(CacheKind::Data),
                "Instruction" => Ok(CacheKind::Instruction),
                "Unified" => Ok(CacheKind::Unified),
                _ => Err(format!("{} is none of Data, Instruction and Unified", quoted(text))),
            });
            let Some(kind) = kind else { continue };
            let shared = self.files.set(&folder, "shared_cpu_map", "shared_cpu_list");
            let cpus = shared.filter(|cpus| cpus.contains(cpu)).unwrap_or_else(|| {
                self.lonely.insert(cpu);
                CpuSet::single(cpu)
            });
            let known = self.draft.caches.iter().rev().take(4096);
            if known
                .into_iter()
                .any(|cache| (cache.level, cache.kind) == (level, kind) && cache.cpus == cpus)
            {
                continue;
            }
            let size = self.files.parsed(&folder.join("size"), size).filter(|size| *size > 0);
            let line = self
                .files
                .number::<u32>(&folder.join("coherency_line_size"))
                .filter(|line| *line > 0);
            self.draft.caches.push(Cache { level, kind, size, line, cpus });
        }
    }

    /// Nodes, their memory and distances.
    fn nodes(&mut self) {
        let root = self.roots.sys.join(NODE_FOLDER);
        let ids = self.files.numbered(&root, "node");
        let mut placed = CpuSet::new();
        for id in &ids {
            let folder = root.join(format!("node{id}"));
            let cpus = self.files.set(&folder, "cpumap", "cpulist").unwrap_or_default();
            let memory =
                self.files.text(&folder.join("meminfo")).and_then(|text| total_memory(&text));
            placed = &placed | &cpus;
            self.draft.nodes.push(Node { id: *id, cpus, memory });
        }
        // The lists name online CPUs only; offline ones still have a link to their node.
        for cpu in &(&self.draft.possible - &placed) {
            let links = self.files.numbered(&self.cpu_root.join(format!("cpu{cpu}")), "node");
            if let Some(node) =
                links.first().and_then(|id| self.draft.nodes.iter_mut().find(|node| node.id == *id))
            {
                node.cpus.insert(cpu);
            }
        }
        let row = |text: &str| text.split_whitespace().map(number).collect::<Result<Vec<u32>, _>>();
        let rows: Option<Vec<Vec<u32>>> = ids
            .iter()
            .map(|id| self.files.parsed(&root.join(format!("node{id}/distance")), row))
            .collect();
        self.draft.distances = rows.unwrap_or_default();
    }

    /// The kinds of cores that a hybrid machine has a performance counter unit for.
    fn kinds(&mut self) {
        for (name, unit) in
            [("core", "cpu_core"), ("atom", "cpu_atom"), ("lowpower", "cpu_lowpower")]
        {
            if let Some(cpus) =
                self.files.list(&self.roots.sys.join("devices").join(unit).join("cpus"))
            {
                self.draft.kinds.push((name.into(), cpus));
            }
        }
    }

    fn model(&mut self) {
        let text = self.files.text(&self.roots.proc.join("cpuinfo")).unwrap_or_default();
        let fields: BTreeMap<&str, &str> = text
            .lines()
            .rev()
            .filter_map(|line| line.split_once(':'))
            .map(|(key, value)| (key.trim(), value.trim()))
            .collect();
        let names = ["model name", "cpu model", "cpu", "Processor", "family", "Model", "Hardware"];
        let name = names.iter().find_map(|key| fields.get(key).filter(|value| !value.is_empty()));
        self.draft.model = name.map(|name| (*name).to_owned());
    }
}

/// Adds a group unless it is there: CPUs that name the same set, or the same number if they name no set.
fn add_group(groups: &mut Vec<Group>, id: Option<usize>, cpus: Option<CpuSet>) {
    let Some(cpus) = cpus else { return };
    if !groups.iter().any(|group| group.cpus == cpus) {
        groups.push(Group { id, cpus });
    }
}

/// `32K`, `8M`: the size of a cache in bytes.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (value, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("{} is not a size such as 32K", quoted(text))),
    };
    let bytes = number::<u64>(value)?.checked_mul(1 << shift);
    bytes.ok_or_else(|| format!("{} is not a size in range", quoted(text)))
}

/// The memory of a node in bytes, from its `meminfo`.
fn total_memory(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("MemTotal:"))?;
    let value = line.split("MemTotal:").nth(1)?.split_whitespace().next()?;
    value.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests;

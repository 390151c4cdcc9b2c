//! Machines from the files that a Linux kernel publishes below `/sys` (and `/proc/cpuinfo` for the name).
//!
//! Works for kernels from 2.6 on, so most things are searched for in two places. What is missing is left out of the draft; `assemble` fills
//! the gaps and notes them.

use crate::assemble::{Claims, Draft, cache_level, number};
use crate::error::quoted;
use crate::files::{CPU_FOLDER, Files, NODE_FOLDER, Roots};
use crate::isolated;
use crate::topology::STANDS;
use crate::unread::{self, Unread};
use crate::{
    CPU_ID_LIMIT, CacheKind, CpuSet, MAX_CPU_COUNT, MAX_NODES, Node, Topology, TopologyError,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl Topology {
    /// Reads a machine from the folder that holds its `sys` (and `proc`): `/` for this machine, or a folder
    /// that a copy of these files was unpacked into. A folder that is itself the `sys` is accepted too.
    ///
    /// If a file is missing, the machine is described without it, and [`Topology::notes`] says what is not known; if a file exists and
    /// cannot be read, [`Topology::unread`] lists it as well. A path that is not a regular file, and a file of more than 16 MiB, are not
    /// read.
    ///
    /// # Errors
    /// If there is no `sys/devices/system/cpu`, or it shows no CPU or more than [`MAX_CPU_COUNT`]. If no CPU is shown because something
    /// cannot be read, the error says which path and why ([`TopologyError::path`], [`TopologyError::errno`]). Also if there is far more to
    /// read than any machine has: a million files and folders, or 256 MiB.
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
        Self::from_sysfs_of(root, &CpuSet::new())
    }

    /// As [`from_sysfs`](Self::from_sysfs), but the CPUs in `online` count as online, whatever the files say: the caller has this from the
    /// kernel itself, for example from an affinity mask. In a container, the files that list CPUs may be made up to look like a smaller
    /// machine.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, Topology};
    /// use std::path::Path;
    ///
    /// let here = Topology::from_sysfs_of(Path::new("/"), &CpuSet::single(0))?;
    /// assert!(here.online().contains(0));
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    ///
    /// # Errors
    /// As for [`from_sysfs`](Self::from_sysfs).
    pub fn from_sysfs_of(root: &Path, online: &CpuSet) -> Result<Self, TopologyError> {
        let roots = Roots::find(root)?;
        let cpu_root = roots.sys.join(CPU_FOLDER);
        let draft = Draft { place: cpu_root.display().to_string(), ..Draft::default() };
        let mut reader = Reader { roots, cpu_root, files: Files::default(), draft };
        reader.cpus(online);
        if reader.draft.possible.len() <= MAX_CPU_COUNT {
            for cpu in &reader.draft.possible.clone() {
                reader.cpu(cpu);
            }
            reader.nodes();
            reader.kinds();
            reader.model();
            reader.draft.isolated = isolated::of_machine(&reader.roots.sys, &mut reader.files);
        }
        let Reader { mut files, mut draft, .. } = reader;
        if let Some(reason) = files.too_much() {
            return Err(TopologyError::TooLarge { path: root.into(), reason });
        }
        if let Some(unread) = files.unread.first().filter(|_| draft.possible.is_empty()) {
            return Err(TopologyError::Unreadable {
                path: unread.path().into(),
                source: unread.error(),
            });
        }
        draft.unread = std::mem::take(&mut files.unread);
        draft.notes.extend(files.into_notes());
        draft.finish()
    }

    /// Reads the machine again if it may have changed: `self` is the earlier reading, and `online` are the CPUs that are online now, as
    /// [`Limits::read`](crate::Limits::read) found them, or empty if that is not known. `None` if nothing is new.
    ///
    /// While the same CPUs and the same nodes are online, one file is read (`node/online`), however large the machine is. Changes that
    /// leave both lists as they were are not seen: memory that is added to or removed from a node, changed distances, capacities or isolated
    /// CPUs, a CPU that is plugged in and stays offline, and CPUs or nodes that go offline and come back between two readings.
    ///
    /// The new reading replaces the old one only if nothing that was there before is missing. Otherwise only the online CPUs are updated,
    /// the rest stays as it was, and there is a [warning](Self::warning). If the reason may pass, the machine is read again next time; so
    /// is a machine that was read only in part before, for such a reason. A [stand-in](Self::of_cpus) for a machine knows nothing about it:
    /// the machine is read again each time, and any reading replaces the stand-in.
    ///
    /// # Errors
    /// As for [`from_sysfs`](Self::from_sysfs). `self` stays the best description then.
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
        let mut new = Self::from_sysfs_of(root, online)?;
        if !self.devices.is_empty() {
            new = new.with_devices_of(root);
        }
        if self.stands_in() || unread::is_as_whole(&new.unread, &self.unread) {
            return Ok((new != *self).then_some(new));
        }
        let mut kept = self.clone().with_online(online);
        kept.notes.retain(|note| !note.ends_with(STANDS));
        kept.notes.push(format!("{}: {STANDS}", unread::list(&new.unread)));
        // If the reason lasts, reading again each time would be useless.
        kept.outdated = new.unread.iter().any(Unread::may_pass);
        Ok((kept != *self).then_some(kept))
    }

    /// Whether the nodes are those that are online now; true if the system does not say.
    fn has_online_nodes(&self, root: &Path) -> bool {
        let roots = Roots::find(root);
        let path = roots.map(|roots| roots.sys.join(NODE_FOLDER).join("online"));
        let online = path.ok().and_then(|path| Files::default().list(&path));
        online.is_none_or(|online| online == self.nodes.iter().map(|node| node.id).collect())
    }
}

/// The most caches that are read for one CPU.
const MOST_CACHES: usize = 16;

struct Reader {
    roots: Roots,
    cpu_root: PathBuf,
    files: Files,
    draft: Draft,
}

impl Reader {
    /// The CPUs that are plugged in, those that are online, and the slots for more. `running`: CPUs that are online for certain.
    fn cpus(&mut self, running: &CpuSet) {
        let mut list =
            |name: &str| self.files.list(&self.cpu_root.join(name)).filter(|set| !set.is_empty());
        let (possible, present, online) = (list("possible"), list("present"), list("online"));
        // The kernel has a folder for each CPU that is plugged in.
        let present = present.unwrap_or_else(|| {
            let folders = self.files.numbered(&self.cpu_root, "cpu");
            let folders: CpuSet = folders.into_iter().filter(|cpu| *cpu < CPU_ID_LIMIT).collect();
            self.draft.notes.push(format!(
                "the machine does not list its present CPUs: the {} that have a folder are used",
                folders.len()
            ));
            folders
        });
        if present.is_empty() && online.is_none() {
            // No file names any CPU: nothing was read.
            return;
        }
        let present = &present | running;
        // An older kernel says this for each CPU; CPU 0 often cannot go offline and has no such file.
        let online = online.unwrap_or_else(|| {
            let mut shut = |cpu: &usize| {
                self.files.number::<u8>(&self.cpu_root.join(format!("cpu{cpu}/online"))) == Some(0)
            };
            let open: CpuSet = present.iter().filter(|cpu| !shut(cpu)).collect();
            self.draft.notes.push(
                "the machine does not list its online CPUs: those that are not switched off are used".into(),
            );
            open
        });
        let hidden = running - &online;
        if !hidden.is_empty() {
            self.draft.notes.push(format!(
                "{} leaves out CPUs {hidden}, which the kernel allows this process: it is a container's own list",
                self.cpu_root.join("online").display()
            ));
        }
        self.draft.slots = possible.unwrap_or_default();
        self.draft.online = &online | running;
        self.draft.possible = present;
    }

    /// Reads one CPU's folder: its core, its groups, its caches.
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
        // A CPU's own set that does not contain the CPU cannot be right.
        let mut set = |mask: &str, list: &str| files.set_with(cpu, folder, mask, list);
        let core = set("core_cpus", "core_cpus_list")
            .or_else(|| set("thread_siblings", "thread_siblings_list"));
        let package = set("package_cpus", "package_cpus_list")
            .or_else(|| set("core_siblings", "core_siblings_list"));
        let die = set("die_cpus", "die_cpus_list");
        let cluster = set("cluster_cpus", "cluster_cpus_list")
            .filter(|cluster| Some(cluster) != core.as_ref());
        // -1 or 65535: the firmware does not say.
        let mut id = |name: &str| {
            files
                .parsed(&folder.join(name), number::<i64>)
                .and_then(|id| usize::try_from(id).ok())
                .filter(|id| *id != 65535)
        };
        let (package_id, die_id, cluster_id) =
            (id("physical_package_id"), id("die_id"), id("cluster_id"));
        let by = CpuSet::single(cpu);
        let add = |claims: &mut Claims<Option<usize>>, cpus: Option<CpuSet>, id: Option<usize>| {
            if let Some(cpus) = cpus {
                claims.add(cpus, &by, || id);
            }
        };
        add(&mut self.draft.cores, core, None);
        add(&mut self.draft.packages, package, package_id);
        add(&mut self.draft.dies, die.filter(|_| die_id.is_some()), die_id);
        add(&mut self.draft.clusters, cluster.filter(|_| cluster_id.is_some()), cluster_id);
    }

    fn caches(&mut self, cpu: usize, folder: &Path) {
        let by = CpuSet::single(cpu);
        let indexes = self.files.numbered(folder, "index");
        if indexes.len() > MOST_CACHES {
            let (folder, count) = (folder.display(), indexes.len());
            self.files.note(format!(
                "{folder} has {count} caches: only the first {MOST_CACHES} are used"
            ));
        }
        for index in indexes.into_iter().take(MOST_CACHES) {
            let folder = folder.join(format!("index{index}"));
            let Some(level) = self.files.parsed(&folder.join("level"), cache_level) else {
                continue;
            };
            let kind = self.files.parsed(&folder.join("type"), |text| match text {
                "Data" => Ok(CacheKind::Data),
                "Instruction" => Ok(CacheKind::Instruction),
                "Unified" => Ok(CacheKind::Unified),
                _ => Err(format!("{} is not Data, Instruction or Unified", quoted(text))),
            });
            let Some(kind) = kind else { continue };
            let shared = self.files.set_with(cpu, &folder, "shared_cpu_map", "shared_cpu_list");
            let files = &mut self.files;
            let mut shape = || {
                let size = files.parsed(&folder.join("size"), size).filter(|size| *size > 0);
                let line = files.number::<u32>(&folder.join("coherency_line_size"));
                (size, line.filter(|line| *line > 0))
            };
            match shared {
                Some(cpus) => self.draft.caches.shared(level, kind).add(cpus, &by, shape),
                None => self.draft.caches.add_alone(level, kind, cpu, shape()),
            }
        }
    }

    /// Reads the nodes, their memory and distances.
    fn nodes(&mut self) {
        let root = self.roots.sys.join(NODE_FOLDER);
        let mut ids = self.files.numbered(&root, "node");
        if ids.last().is_some_and(|last| *last >= MAX_NODES) {
            ids.retain(|id| *id < MAX_NODES);
            self.draft.note(format!(
                "nodes with numbers from {MAX_NODES} on are left out: no kernel has them"
            ));
        }
        for id in &ids {
            let folder = root.join(format!("node{id}"));
            let cpus = self.files.set(&folder, "cpumap", "cpulist");
            let memory =
                self.files.text(&folder.join("meminfo")).and_then(|text| total_memory(&text));
            self.draft.unlisted.extend(cpus.is_none().then_some(*id));
            self.draft.nodes.push(Node { id: *id, cpus: cpus.unwrap_or_default(), memory });
        }
        self.follow_links();
        let row = |text: &str| text.split_whitespace().map(number).collect::<Result<Vec<u32>, _>>();
        let rows: Option<Vec<Vec<u32>>> = ids
            .iter()
            .map(|id| self.files.parsed(&root.join(format!("node{id}/distance")), row))
            .collect();
        self.draft.distances = rows.unwrap_or_default();
    }

    /// A CPU that is listed by no node or by several is on the node that its own folder links to: the lists name online CPUs only, and
    /// offline ones still have the link.
    fn follow_links(&mut self) {
        let (mut once, mut several) = (CpuSet::new(), CpuSet::new());
        // Nodes that list the same CPUs are really one node, for example if the kernel was configured to fake nodes.
        let lists: BTreeSet<&CpuSet> = self.draft.nodes.iter().map(|node| &node.cpus).collect();
        for cpus in lists {
            several = &several | &(&once & cpus);
            once = &once | cpus;
        }
        let mut moved = CpuSet::new();
        for cpu in &(&(&self.draft.possible - &once) | &(&several & &self.draft.possible)) {
            let links = self.files.numbered(&self.cpu_root.join(format!("cpu{cpu}")), "node");
            let [link] = links.as_slice() else { continue };
            if !self.draft.nodes.iter().any(|node| node.id == *link) {
                continue;
            }
            for node in &mut self.draft.nodes {
                if node.id == *link {
                    node.cpus.insert(cpu);
                } else if node.cpus.remove(cpu) {
                    moved.insert(cpu);
                }
            }
        }
        if !moved.is_empty() {
            self.draft.note(format!(
                "several nodes list CPUs {moved}: each is put on the node that its own folder names"
            ));
        }
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
        let names = ["model name", "cpu model", "cpu", "Processor", "family", "Model", "Hardware"];
        let mut found = [None; 7];
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            if let Some(at) = names.iter().position(|name| *name == key.trim()) {
                found[at] = found[at].or(Some(value.trim()).filter(|value| !value.is_empty()));
            }
        }
        let name = found.into_iter().flatten().next();
        self.draft.model = name.map(str::to_owned);
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

//! The cpuset and the CPU quota that the process's control groups impose, of version 1 and version 2.
//!
//! Two files say where the limits are. `/proc/self/cgroup` gives the path *P* of the process's group in each
//! hierarchy, `/proc/self/mountinfo` where a hierarchy is mounted and which group *R* of it is the mount's
//! root. Both paths are written as seen from the process's cgroup namespace, so both may begin with `/..`:
//!
//! | R is | so the group is | and we read |
//! |---|---|---|
//! | a prefix of P | at the rest of P below the mount | that group and each parent up to the mount |
//! | above the namespace (`/../..`) | below the mount, under a name that we do not see | the mount's root, which is one of its parents |
//! | anything else | outside the mount | nothing |
//!
//! A parent's quota limits all groups below it, so the smallest quota counts. The cpuset is that of the nearest group that has one. The CPUs
//! of isolated partitions are in a file of the hierarchy's root, whatever the process's group is.
//!
//! A hierarchy may be mounted several times, and something else may be mounted over one of them. Of the mounts that nothing covers, the one
//! that shows the most parents is used if the group exists in it; otherwise the next one is tried.

use super::Quota;
use crate::CpuSet;
use crate::files::{Files, Roots};
use crate::isolated;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What the control groups impose.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub cpuset: Option<CpuSet>,
    pub quota: Option<Quota>,
    /// The CPUs of isolated partitions.
    pub isolated: CpuSet,
}

/// One mounted hierarchy.
#[derive(Debug, PartialEq)]
struct Mount {
    /// Whether something else is mounted over it.
    is_covered: bool,
    /// The group that is the mount's root.
    root: String,
    point: String,
    /// `cgroup`, `cgroup2` or `cpuset`.
    kind: String,
    /// The controllers of version 1.
    options: Vec<String>,
}

/// Where the process's group is in one mount.
#[derive(Debug, PartialEq)]
enum InMount {
    /// At this path below the mount's root.
    Below(Vec<String>),
    /// Somewhere below the mount's root.
    Hidden,
    Outside,
}

pub(super) fn read(roots: &Roots, files: &mut Files) -> Found {
    let base = roots.proc.parent().unwrap_or(Path::new("/")).to_owned();
    let mounts = mounts(roots, files);
    let memberships = memberships(roots, files);
    if mounts.is_empty() || memberships.is_empty() {
        let what = if mounts.is_empty() { "are mounted" } else { "this process is in" };
        files.note(format!("no control groups {what}: their limits, if any, are not known"));
        return Found::default();
    }
    let mut found = Found::default();
    for mount in mounts.iter().filter(|mount| mount.kind == "cgroup2" && !mount.is_covered) {
        let point = base.join(mount.point.trim_start_matches('/'));
        found.isolated = &found.isolated | &isolated::of_partitions(&point, files);
    }
    for (controller, path) in memberships {
        let wanted: Vec<&str> = match controller.as_str() {
            "" => vec!["cpu", "cpuset"],
            list => list.split(',').filter(|name| matches!(*name, "cpu" | "cpuset")).collect(),
        };
        for name in wanted {
            let fits = |mount: &&Mount| match mount.kind.as_str() {
                "cgroup2" => controller.is_empty(),
                "cpuset" => name == "cpuset" && !controller.is_empty(),
                _ => !controller.is_empty() && mount.options.iter().any(|option| option == name),
            };
            let fitting: Vec<&Mount> = mounts.iter().filter(fits).collect();
            let Some(groups) = groups(&base, &fitting, &path, name, files) else {
                continue;
            };
            if name == "cpu" {
                quota(&groups, controller.is_empty(), files, &mut found);
            } else {
                cpuset(&groups, files, &mut found);
            }
        }
    }
    found
}

/// The mounted hierarchies, from `mountinfo` or, in incomplete copies of a machine, from `mounts`.
fn mounts(roots: &Roots, files: &mut Files) -> Vec<Mount> {
    let is_ours = |mount: &Mount| matches!(mount.kind.as_str(), "cgroup" | "cgroup2" | "cpuset");
    if let Some(text) = files.text(&roots.proc.join("self/mountinfo")) {
        let all: Vec<(Ids, Mount)> = text.lines().filter_map(mount_of_mountinfo).collect();
        let covered = covered(&all);
        let mounts = all
            .into_iter()
            .map(|(ids, mount)| Mount { is_covered: covered.contains(&ids.id), ..mount });
        return mounts.filter(is_ours).collect();
    }
    let text = files.text(&roots.proc.join("mounts")).unwrap_or_default();
    text.lines().filter_map(mount_of_mounts).filter(is_ours).collect()
}

/// The numbers of a mount and of the mount that it is mounted in.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ids {
    id: u64,
    parent: u64,
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - cgroup cgroup rw,cpu,cpuacct`
fn mount_of_mountinfo(line: &str) -> Option<(Ids, Mount)> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let ids = Ids { id: left.next()?.parse().ok()?, parent: left.next()?.parse().ok()? };
    let (root, point) = (unescaped(left.nth(1)?), unescaped(left.next()?));
    let mut right = right.split(' ');
    let kind = right.next()?.to_owned();
    let options = right.nth(1).unwrap_or_default().split(',').map(str::to_owned).collect();
    Some((ids, Mount { is_covered: false, root, point, kind, options }))
}

/// The numbers of the mounts that cannot be reached: another mount is on their root, or beside them on a folder above, or they are mounted
/// inside such a mount.
fn covered(all: &[(Ids, Mount)]) -> BTreeSet<u64> {
    let point = |mount: &Mount| mount.point.trim_end_matches('/').to_owned();
    let mount_points: BTreeMap<u64, String> =
        all.iter().map(|(ids, mount)| (ids.id, point(mount))).collect();
    // For each mount, the points of the mounts inside it.
    let mut within: BTreeMap<u64, BTreeMap<String, u64>> = BTreeMap::new();
    for (ids, mount) in all.iter().filter(|(ids, _)| ids.id != ids.parent) {
        within.entry(ids.parent).or_default().insert(point(mount), ids.id);
    }
    let has_cover = |ids: &Ids, at: &str| {
        let on_it = within.get(&ids.id).is_some_and(|inner| inner.contains_key(at));
        let beside = within.get(&ids.parent).is_some_and(|others| {
            let floor = mount_points.get(&ids.parent).map_or(0, String::len);
            let above = at.char_indices().filter(|(end, c)| *c == '/' && *end > floor);
            above.into_iter().any(|(end, _)| others.contains_key(&at[..end]))
        });
        on_it || beside
    };
    let mut covered: BTreeSet<u64> = BTreeSet::new();
    let mut open: Vec<u64> = all
        .iter()
        .filter(|(ids, mount)| has_cover(ids, &point(mount)))
        .map(|(ids, _)| ids.id)
        .collect();
    // Everything mounted inside a covered mount, except the mount that covers it.
    while let Some(mount) = open.pop() {
        if covered.insert(mount) {
            let mount_point = mount_points.get(&mount);
            let inner = within.get(&mount).into_iter().flatten();
            open.extend(inner.filter(|(at, _)| Some(*at) != mount_point).map(|(_, inner)| *inner));
        }
    }
    covered
}

/// `none /cgroup/memory cgroup rw,relatime,memory 0 0`
fn mount_of_mounts(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(1);
    let (point, kind) = (unescaped(fields.next()?), fields.next()?.to_owned());
    let options = fields.next().unwrap_or_default().split(',').map(str::to_owned).collect();
    Some(Mount { is_covered: false, root: "/".into(), point, kind, options })
}

/// The kernel writes white space and backslashes in these files as three octal digits.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        match rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) => {
                plain.push(char::from(code));
                rest = &rest[at + 4..];
            }
            None => {
                plain.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    plain + rest
}

/// The controllers and paths of the groups that the process is in; no controllers means version 2.
fn memberships(roots: &Roots, files: &mut Files) -> Vec<(String, String)> {
    if let Some(text) = files.text(&roots.proc.join("self/cgroup")) {
        let fields = text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
        });
        return fields.collect();
    }
    // Incomplete copies of a machine: only the cpuset's path, of either version.
    let path = files.text(&roots.proc.join("self/cpuset"));
    path.map(|path| vec![("cpuset".to_owned(), path.clone()), (String::new(), path)])
        .unwrap_or_default()
}

/// The folders of the process's group and of its parents up to the mount, nearest first.
fn groups(
    base: &Path,
    mounts: &[&Mount],
    path: &str,
    name: &str,
    files: &mut Files,
) -> Option<Vec<PathBuf>> {
    let under = |mount: &Mount| base.join(mount.point.trim_start_matches('/'));
    let mut below: Vec<(&Mount, Vec<String>)> = Vec::new();
    let mut hidden = Vec::new();
    for mount in mounts {
        match in_mount(path, &mount.root) {
            InMount::Below(rest) => below.push((mount, rest)),
            InMount::Hidden => hidden.push(*mount),
            InMount::Outside => {}
        }
    }
    below.sort_by_key(|(mount, rest)| (mount.is_covered, Reverse(rest.len())));
    hidden.sort_by_key(|mount| mount.is_covered);
    let chains = below.iter().map(|(mount, rest)| -> Vec<PathBuf> {
        let point = under(mount);
        (0..=rest.len()).rev().map(|depth| point.join(rest[..depth].join("/"))).collect()
    });
    // The first mount in which the group exists; otherwise the first in which a parent exists.
    let mut parents = None;
    for chain in chains {
        if is_group(&chain[0], files) {
            return Some(chain);
        }
        let from = chain.iter().position(|folder| is_group(folder, files));
        parents = parents.or(from.map(|from| (chain[0].clone(), chain[from..].to_vec())));
    }
    if let Some((group, parents)) = parents {
        files.note(format!(
            "{} does not exist: only the limits of its visible parents are known",
            group.display()
        ));
        return Some(parents);
    }
    if let Some(point) = hidden.into_iter().map(under).find(|point| is_group(point, files)) {
        files.note(format!(
            "the {name} group {path} is below {}, but its name there is hidden: only the limits there are known",
            point.display()
        ));
        return Some(vec![point]);
    }
    if !mounts.is_empty() || path != "/" {
        files
            .note(format!("the {name} group {path} is not visible here: its limits are not known"));
    }
    None
}

/// Whether a folder is a control group, and not part of something that is mounted over it.
fn is_group(folder: &Path, files: &mut Files) -> bool {
    // The first file is in every group; copies of a machine may have only the others.
    let names = ["cgroup.procs", "tasks", "cpu.max", "cpu.cfs_quota_us"];
    names.iter().chain(&CPUSETS).any(|name| files.is_file(&folder.join(name)))
}

/// The CPUs of a group: first the files of the CPUs that are in force, of versions 2 and 1; then the file of the requested CPUs, which old
/// kernels also have.
const CPUSETS: [&str; 4] =
    ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus", "cpus"];

/// The position of the group `path` in a mount whose root is the group `root`.
fn in_mount(path: &str, root: &str) -> InMount {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
    };
    let (path, root) = (parts(path), parts(root));
    if let Some(rest) = path.strip_prefix(root.as_slice()) {
        return if rest.iter().any(|part| part == "..") {
            InMount::Outside
        } else {
            InMount::Below(rest.to_vec())
        };
    }
    let ups = |parts: &[String]| parts.iter().take_while(|part| *part == "..").count();
    if ups(&root) == root.len() && root.len() > ups(&path) {
        InMount::Hidden
    } else {
        InMount::Outside
    }
}

fn quota(groups: &[PathBuf], version_2: bool, files: &mut Files, found: &mut Found) {
    for group in groups {
        let source = group.join(if version_2 { "cpu.max" } else { "cpu.cfs_quota_us" });
        let cpus = if version_2 {
            files.parsed(&source, cpu_max).flatten()
        } else {
            let quota = files.number::<i64>(&source).filter(|quota| *quota > 0);
            let period =
                files.number::<i64>(&group.join("cpu.cfs_period_us")).filter(|period| *period > 0);
            quota.zip(period).map(|(quota, period)| quota as f64 / period as f64)
        };
        let smallest = found.quota.as_ref().map_or(f64::INFINITY, |quota| quota.cpus);
        if let Some(cpus) = cpus.filter(|cpus| *cpus < smallest) {
            found.quota = Some(Quota::new(cpus, source));
        }
    }
}

/// `max 100000` or `150000 100000`: quota and period in microseconds.
fn cpu_max(text: &str) -> Result<Option<f64>, String> {
    let mut fields = text.split_whitespace();
    let quota = fields.next().unwrap_or_default();
    if quota == "max" {
        return Ok(None);
    }
    let number = |field: &str| field.parse::<u64>().ok().filter(|number| *number > 0);
    let period = fields.next().unwrap_or("100000");
    let both = number(quota).zip(number(period));
    let (quota, period) =
        both.ok_or_else(|| format!("{text:?} is not a quota and a period in microseconds"))?;
    Ok(Some(quota as f64 / period as f64))
}

fn cpuset(groups: &[PathBuf], files: &mut Files, found: &mut Found) {
    for group in groups {
        let set = CPUSETS
            .iter()
            .find_map(|name| files.list(&group.join(name)).filter(|set| !set.is_empty()));
        if let Some(set) = set {
            found.cpuset =
                Some(found.cpuset.as_ref().map_or_else(|| set.clone(), |other| other & &set));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(parts: &[&str]) -> InMount {
        InMount::Below(parts.iter().map(|part| (*part).to_owned()).collect())
    }

    #[test]
    fn groups_are_located_in_a_mount() {
        assert_eq!(in_mount("/", "/"), below(&[]));
        assert_eq!(in_mount("/a/b", "/"), below(&["a", "b"]));
        assert_eq!(in_mount("/docker/abc/x", "/docker/abc"), below(&["x"]));
        assert_eq!(in_mount("/docker/abc", "/docker/abc"), below(&[]));
        assert_eq!(in_mount("/docker/abcd", "/docker/abc"), InMount::Outside);
        assert_eq!(in_mount("/../other", "/.."), below(&["other"]));
        assert_eq!(in_mount("/../other", "/"), InMount::Outside);
        assert_eq!(in_mount("/", "/.."), InMount::Hidden);
        assert_eq!(in_mount("/x", "/../.."), InMount::Hidden);
        assert_eq!(in_mount("/../x", "/../.."), InMount::Hidden);
        assert_eq!(in_mount("/../../x", "/.."), InMount::Outside);
        assert_eq!(in_mount("/", "/../other"), InMount::Outside);
        assert_eq!(in_mount("/", "/a"), InMount::Outside);
    }

    #[test]
    fn mountinfo_lines() {
        let line =
            r"36 35 98:0 /a /sys/fs/my\040cgroup rw,noatime shared:1 - cgroup none rw,cpu,cpuacct";
        let (ids, mount) = mount_of_mountinfo(line).unwrap();
        assert_eq!(ids, Ids { id: 36, parent: 35 });
        assert_eq!(
            (mount.root.as_str(), mount.point.as_str(), mount.kind.as_str()),
            ("/a", "/sys/fs/my cgroup", "cgroup")
        );
        assert_eq!(mount.options, ["rw", "cpu", "cpuacct"]);
        assert_eq!(mount_of_mountinfo("36 35 98:0 /a"), None);
        assert_eq!(unescaped(r"a\04"), r"a\04");
    }

    #[test]
    fn cpu_max_lines() {
        assert_eq!(cpu_max("max 100000"), Ok(None));
        assert_eq!(cpu_max("150000 100000"), Ok(Some(1.5)));
        assert_eq!(cpu_max("50000"), Ok(Some(0.5)));
        assert!(
            cpu_max("150000 0").is_err() && cpu_max("").is_err() && cpu_max("-1 100000").is_err()
        );
    }
}

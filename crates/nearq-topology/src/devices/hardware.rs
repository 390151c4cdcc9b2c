//! What is below a device that is only software: the interfaces of a bond or a bridge, the disks of a RAID or a logical volume, the disk of
//! a file system. Or why nothing is.

use super::DeviceKind;
use super::sysfs::Tree;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The most layers of software above a device.
const MOST_LAYERS: usize = 8;

/// The folders of hardware below a device, or why there are none.
type Below = Result<BTreeSet<PathBuf>, String>;

impl Tree<'_> {
    /// The hardware below the interface or disk in `folder`.
    pub(super) fn hardware(&mut self, kind: DeviceKind, folder: &Path, layers: usize) -> Below {
        if !self.is_virtual(folder) {
            return Ok(BTreeSet::from([folder.to_owned()]));
        }
        let controllers = self.controllers(folder);
        if !controllers.is_empty() {
            return Ok(controllers.into_iter().collect());
        }
        if layers == MOST_LAYERS {
            return Err(format!(
                "more than {MOST_LAYERS} layers of virtual devices are below it; name the device itself"
            ));
        }
        let below = match kind {
            DeviceKind::Network => self.lower(folder),
            _ => self.slaves(folder),
        };
        // A bridge may have interfaces of virtual machines beside those with hardware.
        let (mut all, mut refused) = (BTreeSet::new(), None);
        for below in below {
            match self.hardware(kind, &below, layers + 1) {
                Ok(found) => all.extend(found),
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        if !all.is_empty() {
            return Ok(all);
        }
        if let Some(why) = refused {
            return Err(why);
        }
        if let Some(file) = self.files.text(&folder.join("loop/backing_file")) {
            return self.below_file(Path::new(&file), layers + 1);
        }
        Err(match kind {
            DeviceKind::Network => "it is a virtual interface with no hardware below it, so it is near no node; name an interface of the \
                                    machine, as `nearq topo` lists them",
            _ => "it is a virtual disk with no hardware below it, so it is near no node; name a disk of the machine, as `nearq topo` \
                  lists them",
        }
        .into())
    }

    /// The interfaces below a virtual one: those of a bond, a bridge, a team, or a VLAN.
    fn lower(&mut self, folder: &Path) -> Vec<PathBuf> {
        let names = self.files.names(folder);
        let lower = names.iter().filter(|name| name.starts_with("lower_"));
        lower.filter_map(|name| self.device_folder(&folder.join(name))).collect()
    }

    /// The disks below a virtual one, or below the one that it is a partition of.
    fn slaves(&mut self, folder: &Path) -> Vec<PathBuf> {
        let whole = if self.files.text(&folder.join("partition")).is_some() {
            folder.parent().unwrap_or(folder)
        } else {
            folder
        };
        let list = whole.join("slaves");
        let names = self.files.names(&list);
        names.iter().filter_map(|name| self.device_folder(&list.join(name))).collect()
    }

    /// The hardware below the file system of a file of this machine; for the file of a device, that device.
    pub(super) fn below_file(&mut self, path: &Path, layers: usize) -> Below {
        let cannot = |error: std::io::Error| {
            format!("{} cannot be looked at: {error}; give a file that exists", path.display())
        };
        let metadata = fs::metadata(path).map_err(cannot)?;
        let kind = metadata.file_type();
        if kind.is_char_device() {
            return Err("it is a character device, which is on no disk; name the hardware, as `nearq topo` lists it".into());
        }
        let number = if kind.is_block_device() { metadata.rdev() } else { metadata.dev() };
        if let Some(folder) = self.by_number(number) {
            return self.hardware(DeviceKind::Block, &folder, layers);
        }
        if kind.is_block_device() {
            return Err(
                "it is a disk that the machine does not list; name one with block:NAME".into()
            );
        }
        self.below_mount(path, layers)
    }

    /// The disk or partition with this number.
    fn by_number(&mut self, number: u64) -> Option<PathBuf> {
        let (major, minor) = (libc::major(number), libc::minor(number));
        let entry = self.sys.join("dev/block").join(format!("{major}:{minor}"));
        self.device_folder(&entry)
    }

    /// The hardware below a file system that has no number of a device of its own. btrfs has several disks or one; the others have none.
    fn below_mount(&mut self, path: &Path, layers: usize) -> Below {
        let mount = mount_of(path).ok_or(
            "the machine does not say which file system it is on; name the disk with block:NAME",
        )?;
        let Mount { kind, source, options } = mount;
        let disk =
            Path::new(&source).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if kind == "btrfs" && !disk.is_empty() {
            let folders = self.disks_of_btrfs(disk);
            let mut all = BTreeSet::new();
            for folder in folders {
                all.extend(self.hardware(DeviceKind::Block, &folder, layers + 1)?);
            }
            if !all.is_empty() {
                return Ok(all);
            }
        }
        let what = match kind.as_str() {
            "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" | "proc" | "sysfs" => {
                format!("it is on {kind}, which is in memory and on no disk; name a node, or another device")
            }
            "overlay" => "it is on overlay, as in a container, which does not say on which disk its files are; name the disk with \
                          block:NAME, or a file on a volume"
                .into(),
            kind if kind.starts_with("nfs") || ["cifs", "smb3", "ceph", "9p", "virtiofs", "lustre", "afs"].contains(&kind) => {
                let server = options.split(',').find_map(|option| option.strip_prefix("addr="));
                let server = server.map_or("netdev:NAME".into(), |address| format!("ip:{address}"));
                format!("it is on {kind}, which comes from {source}; name the network interface with {server}")
            }
            _ => format!("it is on {kind} ({source}), which has no disk that the machine names; name the disk with block:NAME"),
        };
        Err(what)
    }

    /// The disks of the btrfs that one of them belongs to.
    fn disks_of_btrfs(&mut self, disk: &str) -> Vec<PathBuf> {
        let all = self.sys.join("fs/btrfs");
        for name in self.files.names(&all) {
            let list = all.join(name).join("devices");
            let disks = self.files.names(&list);
            if disks.iter().any(|other| other == disk) {
                return disks
                    .iter()
                    .filter_map(|disk| self.device_folder(&list.join(disk)))
                    .collect();
            }
        }
        Vec::new()
    }
}

/// A mounted file system, as `/proc/self/mountinfo` describes it.
struct Mount {
    kind: String,
    source: String,
    options: String,
}

/// The file system that has this file.
fn mount_of(path: &Path) -> Option<Mount> {
    // Where it is, and no more: that needs no right to read it, and does not wait for the other end of a FIFO.
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    // After a lone dash: the kind, the source, the options of the file system.
    let mut fields = mount.split(" - ").nth(1)?.splitn(3, ' ').map(str::to_owned);
    Some(Mount {
        kind: fields.next()?,
        source: fields.next()?,
        options: fields.next().unwrap_or_default(),
    })
}

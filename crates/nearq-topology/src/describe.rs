//! Machines as users name them on a command line.

use crate::{Topology, TopologyError, regular};
use std::io;
use std::path::Path;

/// The first bytes of packed or compressed files, and the program that makes them. Uncompressed archives have their mark further inside.
const PACKED: [(&[u8], &str); 6] = [
    (b"BZh", "bzip2"),
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
];

/// The mark of an uncompressed archive, and its offset.
const ARCHIVE: (&[u8], usize) = (b"ustar", 257);

impl Topology {
    /// Reads the machine that a user names on a command line: `sysfs:DIR` or the path of a folder that holds a machine's `/sys`
    /// ([`from_sysfs`](Self::from_sysfs)), a synthetic description ([`from_synthetic`](Self::from_synthetic)), or, with the feature
    /// `hwloc`, the path of an hwloc XML file. It has its [devices](Self::devices) too.
    ///
    /// # Errors
    /// If it is none of these, or what it names cannot be read.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::Topology;
    ///
    /// assert_eq!(Topology::from_description("core:4 pu:2")?.cpus().len(), 8);
    /// let error = Topology::from_description("nosuch.xml").unwrap_err();
    /// assert!(error.to_string().contains("no such file"));
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn from_description(text: &str) -> Result<Self, TopologyError> {
        let name = text.trim();
        if let Some(folder) = name.strip_prefix("sysfs:").filter(|folder| !folder.is_empty()) {
            let folder = Path::new(folder);
            if folder.is_file() {
                text_of(folder)?;
            }
            return with_devices(folder);
        }
        let path = Path::new(name);
        if path.is_dir() {
            return with_devices(path);
        }
        // This includes a link that leads nowhere, or in a circle: the error says so.
        if path.symlink_metadata().is_ok() || name.starts_with('/') {
            return from_file(path);
        }
        // A description always says how many of something, so a text without ':' or one that looks like a path is a
        // mistake.
        let is_file_name = path.extension().is_some() || name.contains('/');
        if name.contains(':') && !is_file_name && name != "sysfs:" {
            return Self::from_synthetic(name);
        }
        Err(TopologyError::Description { text: name.into() })
    }
}

fn with_devices(folder: &Path) -> Result<Topology, TopologyError> {
    Ok(Topology::from_sysfs(folder)?.with_devices_of(folder))
}

#[cfg(feature = "hwloc")]
fn from_file(path: &Path) -> Result<Topology, TopologyError> {
    Topology::from_hwloc_xml(&text_of(path)?)
}

#[cfg(not(feature = "hwloc"))]
fn from_file(path: &Path) -> Result<Topology, TopologyError> {
    text_of(path)?;
    let reason = "the program is built without the feature hwloc, which reads such files".into();
    Err(TopologyError::Xml { reason })
}

/// The text of a file that describes a machine. Hidden: it is for the crates of this workspace.
///
/// # Errors
/// If it cannot be read, or is packed, too large, or not a text.
pub fn text_of(path: &Path) -> Result<String, TopologyError> {
    let unreadable = |source| TopologyError::Unreadable { path: path.into(), source };
    let bytes = regular::read(path).map_err(unreadable)?;
    let is_archive = bytes.get(ARCHIVE.1..).is_some_and(|rest| rest.starts_with(ARCHIVE.0));
    let packed = PACKED.iter().find(|(mark, _)| bytes.starts_with(mark)).map(|(_, by)| *by);
    if let Some(by) = packed.or(is_archive.then_some("tar")) {
        return Err(TopologyError::Packed { path: path.into(), by });
    }
    String::from_utf8(bytes).map_err(|_| {
        let reason = "it is not a text, so it describes no machine";
        unreadable(io::Error::new(io::ErrorKind::InvalidData, reason))
    })
}

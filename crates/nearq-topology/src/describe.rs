//! Machines as users name them on a command line.

use crate::{Topology, TopologyError};
use std::fs;
use std::path::Path;

impl Topology {
    /// Reads whatever a user may name: `sysfs:DIR` with a folder that holds a machine's `/sys`, the path of an
    /// hwloc XML file, or a synthetic description.
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
        if let Some(folder) = name.strip_prefix("sysfs:") {
            return Self::from_sysfs(Path::new(folder));
        }
        let path = Path::new(name);
        if path.is_dir() {
            return Self::from_sysfs(path);
        }
        if path.exists() || name.starts_with('/') {
            let text = fs::read_to_string(path)
                .map_err(|source| TopologyError::Unreadable { path: path.into(), source })?;
            return Self::from_hwloc_xml(&text);
        }
        // A description always says how many of something; what has no ':' or looks like a path is a mistake.
        let is_file_name = path.extension().is_some() || name.contains('/');
        if name.contains(':') && !is_file_name {
            return Self::from_synthetic(name);
        }
        Err(TopologyError::Description { text: name.into() })
    }
}

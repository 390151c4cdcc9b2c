//! The isolated CPUs: those that the system keeps free of work that is bound to no CPU, so that threads which are pinned there run
//! undisturbed. Three files say which they are; the CPUs of any count:
//!
//! | file | which CPUs |
//! |---|---|
//! | `devices/system/cpu/isolated` | `isolcpus=` of the kernel's command line; in newer kernels isolated partitions too |
//! | `devices/system/cpu/nohz_full` | `nohz_full=` of the command line: CPUs without a tick |
//! | `cpuset.cpus.isolated`, in the root of the control groups of version 2 | the cpuset partitions of the kind `isolated` |
//!
//! The first two describe the machine ([`Topology::isolated`](crate::Topology::isolated)). The third may change at any time and is not
//! visible in a container ([`Limits::isolated`](crate::Limits::isolated) has all three). A missing file names no CPU.

use crate::CpuSet;
use crate::files::{CPU_FOLDER, Files};
use std::path::Path;

/// What a kernel without `nohz_full=` writes for a list that it does not have.
const NO_LIST: &str = "(null)";

/// The CPUs that the machine's own files name.
pub(crate) fn of_machine(sys: &Path, files: &mut Files) -> CpuSet {
    let folder = sys.join(CPU_FOLDER);
    &list(&folder.join("isolated"), files) | &list(&folder.join("nohz_full"), files)
}

/// The CPUs of the isolated partitions. `root` is a folder in which control groups of version 2 are mounted: only the root of all groups
/// has the file.
pub(crate) fn of_partitions(root: &Path, files: &mut Files) -> CpuSet {
    list(&root.join("cpuset.cpus.isolated"), files)
}

fn list(path: &Path, files: &mut Files) -> CpuSet {
    let parse = |text: &str| match text {
        NO_LIST => Ok(CpuSet::new()),
        list => CpuSet::parse_list(list).map_err(|error| error.to_string()),
    };
    files.parsed(path, parse).unwrap_or_default()
}

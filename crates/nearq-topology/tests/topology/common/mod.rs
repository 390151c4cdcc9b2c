//! A folder of files below the build's temporary folder, removed when dropped; and how many cases properties have.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::ProptestConfig;

/// How many cases of a property are tested: `usual`, or `long` if the environment has the variable `NEARQ_LONG`.
pub(crate) fn cases(usual: u32, long: u32) -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("NEARQ_LONG").is_some() { long } else { usual })
}

/// A folder that looks like the root of some machine.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

impl Folder {
    /// An empty folder; `name` must be used by one test alone.
    pub(crate) fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the build's temporary folder can be written");
        Self { path }
    }

    /// Writes a file and the folders it is in.
    pub(crate) fn file(&self, name: &str, text: &str) -> &Self {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a new folder");
        fs::write(&path, text).expect("a new file");
        self
    }

    /// Removes a file or folder.
    pub(crate) fn remove(&self, name: &str) -> &Self {
        let path = self.path.join(name);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
            .expect("it was there");
        self
    }

    /// A machine of 2 packages, each of them a node of 2 cores of 2 CPUs; the numbers of siblings differ by 4.
    pub(crate) fn machine(name: &str) -> Self {
        let folder = Self::new(name);
        let cpu_root = "sys/devices/system/cpu";
        for list in ["possible", "present", "online"] {
            folder.file(&format!("{cpu_root}/{list}"), "0-7\n");
        }
        for cpu in 0..8 {
            let (core, package) = (cpu % 4, cpu % 4 / 2);
            let siblings = format!("{:x}\n", 0x11 << core);
            let neighbours = format!("{:02x}\n", 0x33 << (2 * package));
            let path = format!("{cpu_root}/cpu{cpu}");
            folder
                .file(&format!("{path}/topology/core_cpus"), &siblings)
                .file(&format!("{path}/topology/package_cpus"), &neighbours)
                .file(&format!("{path}/topology/physical_package_id"), &format!("{package}\n"));
            for (index, level, kind, size, cpus) in [
                (0, 1, "Data", "32K", &siblings),
                (1, 1, "Instruction", "32K", &siblings),
                (2, 3, "Unified", "16M", &neighbours),
            ] {
                let cache = format!("{path}/cache/index{index}");
                folder
                    .file(&format!("{cache}/level"), &format!("{level}\n"))
                    .file(&format!("{cache}/type"), &format!("{kind}\n"))
                    .file(&format!("{cache}/size"), &format!("{size}\n"))
                    .file(&format!("{cache}/coherency_line_size"), "64\n")
                    .file(&format!("{cache}/shared_cpu_map"), cpus);
            }
        }
        for node in 0..2 {
            let path = format!("sys/devices/system/node/node{node}");
            folder
                .file(&format!("{path}/cpumap"), &format!("{:02x}\n", 0x33 << (2 * node)))
                .file(&format!("{path}/distance"), ["10 21\n", "21 10\n"][node])
                .file(
                    &format!("{path}/meminfo"),
                    &format!("Node {node} MemTotal:  4096 kB\nNode {node} MemFree: 1 kB\n"),
                );
        }
        folder.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Example  CPU @ 2GHz\n");
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

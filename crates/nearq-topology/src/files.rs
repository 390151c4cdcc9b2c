//! Reading the small text files of `/sys` and `/proc` below some root, noting what could not be read.
//!
//! The root may be a folder from an untrusted source. So only regular files are read, each up to a size, and there is a limit on everything
//! that is accessed below one root: beyond it, nothing more is found, and [`Files::too_much`] says why.

use crate::error::quoted;
use crate::regular;
use crate::unread::{self, Unread, is_absent};
use crate::{CpuSet, TopologyError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of the CPUs, below a `/sys`.
pub(crate) const CPU_FOLDER: &str = "devices/system/cpu";

/// The folder of the nodes, below a `/sys`.
pub(crate) const NODE_FOLDER: &str = "devices/system/node";

/// The number of entries of a folder that are searched for a machine if the folder itself is not one.
const MOST_INSIDE: usize = 100;

/// The most files, folders and entries of folders that are accessed for one machine. A machine of 4096 CPUs has some 300,000.
const MAX_ACCESSES: usize = 1_000_000;

/// The most bytes that are read for one machine. A machine of 4096 CPUs has some 60 MiB.
const MOST_BYTES: usize = 256 << 20;

/// Where a machine's `/sys` and `/proc` are.
#[derive(Debug)]
pub(crate) struct Roots {
    pub sys: PathBuf,
    pub proc: PathBuf,
}

impl Roots {
    /// Below `root`, which holds `sys` or is itself the `sys`.
    pub(crate) fn find(root: &Path) -> Result<Self, TopologyError> {
        let has_cpus = |sys: &Path| {
            let path = sys.join(CPU_FOLDER);
            is_folder(&path).map_err(|source| TopologyError::Unreadable { path, source })
        };
        let whole = Self::below(root);
        if has_cpus(&whole.sys)? {
            return Ok(whole);
        }
        if has_cpus(root)? {
            return Ok(Self { sys: root.into(), proc: root.join("../proc") });
        }
        // The error says why if the folder does not exist or may not be opened.
        accessed();
        let entries = fs::read_dir(root)
            .map_err(|source| TopologyError::Unreadable { path: root.into(), source })?;
        // An archive of a machine often holds a single folder with everything else inside.
        let paths = entries.take(MOST_INSIDE).flatten().map(|entry| entry.path());
        let inside =
            paths.filter(|path| is_folder(&path.join("sys").join(CPU_FOLDER)).unwrap_or(false));
        Err(TopologyError::NotSysfs { path: root.into(), inside: inside.min() })
    }

    /// `root/sys` and `root/proc`.
    pub(crate) fn below(root: &Path) -> Self {
        Self { sys: root.join("sys"), proc: root.join("proc") }
    }
}

/// Counts, in tests, that a file or folder is about to be accessed.
#[inline]
fn accessed() {
    #[cfg(test)]
    ACCESSES.set(ACCESSES.get() + 1);
}

#[cfg(test)]
thread_local! {
    /// How many files and folders this thread has accessed.
    pub(crate) static ACCESSES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Whether the folder exists.
fn is_folder(path: &Path) -> io::Result<bool> {
    accessed();
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A reader of files that remembers, in plain words, what it could not understand.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub notes: Vec<String>,
    /// How many notes were left out.
    suppressed: usize,
    /// What exists and could not be read.
    pub unread: Vec<Unread>,
    accesses: usize,
    bytes: usize,
}

/// The most notes about single files; more would be of no use.
const MAX_NOTES: usize = 8;

impl Files {
    pub(crate) fn note(&mut self, text: String) {
        if self.notes.contains(&text) {
            return;
        }
        if self.notes.len() < MAX_NOTES {
            self.notes.push(text);
        } else {
            self.suppressed += 1;
        }
    }

    /// What exceeds the limits for one machine. If so, only a part was found.
    pub(crate) fn too_much(&self) -> Option<String> {
        if self.accesses > MAX_ACCESSES {
            Some(format!(
                "more than {MAX_ACCESSES} files and folders, the most that are read for a machine"
            ))
        } else if self.bytes > MOST_BYTES {
            Some(format!("more than {} MiB, the most that is read for a machine", MOST_BYTES >> 20))
        } else {
            None
        }
    }

    /// Counts an access, and says whether another one is allowed.
    fn may_access(&mut self) -> bool {
        accessed();
        self.accesses += 1;
        self.accesses <= MAX_ACCESSES && self.bytes <= MOST_BYTES
    }

    /// Records that something exists and cannot be read.
    fn cannot_read(&mut self, path: &Path, error: &io::Error) {
        unread::add(&mut self.unread, path, error);
        self.note(format!("{} cannot be read: {error}", path.display()));
    }

    /// Whether the folder exists; false, with a note, if that cannot be determined.
    pub(crate) fn is_folder(&mut self, path: &Path) -> bool {
        self.accesses += 1;
        is_folder(path).unwrap_or_else(|error| {
            self.cannot_read(path, &error);
            false
        })
    }

    /// Whether a file of any kind exists at the path; false, with a note, if that cannot be determined.
    pub(crate) fn is_file(&mut self, path: &Path) -> bool {
        self.may_access()
            && fs::symlink_metadata(path).map(|metadata| !metadata.is_dir()).unwrap_or_else(
                |error| {
                    if !is_absent(&error) {
                        self.cannot_read(path, &error);
                    }
                    false
                },
            )
    }

    /// The notes, and how many more there would be.
    pub(crate) fn into_notes(mut self) -> Vec<String> {
        if self.suppressed > 0 {
            self.notes.push(format!(
                "{} more files could not be used, for reasons like these",
                self.suppressed
            ));
        }
        self.notes
    }

    /// The text of a file; `None` if there is no such file, or, with a note, if it cannot be read.
    pub(crate) fn text(&mut self, path: &Path) -> Option<String> {
        if !self.may_access() {
            return None;
        }
        match regular::read(path) {
            // Copies of such files may be padded with zero bytes.
            Ok(bytes) => {
                self.bytes += bytes.len();
                let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                Some(String::from_utf8_lossy(bytes).trim().to_owned())
            }
            Err(error) => {
                if !is_absent(&error) {
                    self.cannot_read(path, &error);
                }
                None
            }
        }
    }

    /// The result of `parse` for a file's text; `None` as for [`text`](Self::text), or, with a note, if it fails.
    pub(crate) fn parsed<T>(
        &mut self,
        path: &Path,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(path)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(reason) => {
                self.note(format!("{} is ignored: {reason}", path.display()));
                None
            }
        }
    }

    /// A number in a file.
    pub(crate) fn number<T: std::str::FromStr>(&mut self, path: &Path) -> Option<T> {
        self.parsed(path, |text| {
            text.parse().map_err(|_| format!("{} is not a number in range", quoted(text)))
        })
    }

    /// A file in the list format.
    pub(crate) fn list(&mut self, path: &Path) -> Option<CpuSet> {
        self.parsed(path, |text| CpuSet::parse_list(text).map_err(|error| error.to_string()))
    }

    /// A set of CPUs that the kernel writes as a mask and, since 2.6.26, also as a list: the first of the two that is not empty.
    pub(crate) fn set(&mut self, folder: &Path, mask: &str, list: &str) -> Option<CpuSet> {
        let parse = |text: &str| CpuSet::parse_mask(text).map_err(|error| error.to_string());
        let set = self.parsed(&folder.join(mask), parse);
        if set.as_ref().is_some_and(|set| !set.is_empty()) {
            return set;
        }
        self.list(&folder.join(list)).or(set)
    }

    /// As [`set`](Self::set), but only a set that contains `cpu` is returned.
    pub(crate) fn set_with(
        &mut self,
        cpu: usize,
        folder: &Path,
        mask: &str,
        list: &str,
    ) -> Option<CpuSet> {
        let parse = |text: &str| CpuSet::parse_mask(text).map_err(|error| error.to_string());
        let holds = |set: &CpuSet| set.contains(cpu);
        let set = self.parsed(&folder.join(mask), parse).filter(holds);
        set.or_else(|| self.list(&folder.join(list)).filter(holds))
    }

    /// The numbers of the entries of `folder` named `prefix` and a number, ascending.
    pub(crate) fn numbered(&mut self, folder: &Path, prefix: &str) -> Vec<usize> {
        let number = |name: &str| -> Option<usize> {
            name.strip_prefix(prefix)
                .filter(|rest| rest.bytes().all(|b| b.is_ascii_digit()))?
                .parse()
                .ok()
        };
        let mut numbers: Vec<usize> =
            self.names(folder).iter().filter_map(|name| number(name)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The names of the entries of `folder` that are text, in no order; none if there is no such folder, or, with a note, if it cannot be
    /// read.
    pub(crate) fn names(&mut self, folder: &Path) -> Vec<String> {
        if !self.may_access() {
            return Vec::new();
        }
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                if !is_absent(&error) {
                    self.cannot_read(folder, &error);
                }
                return Vec::new();
            }
        };
        let mut names = Vec::new();
        for entry in entries.take(MAX_ACCESSES + 1 - self.accesses) {
            self.accesses += 1;
            match entry {
                Ok(entry) => names.extend(entry.file_name().into_string()),
                Err(error) => {
                    self.cannot_read(folder, &error);
                    return Vec::new();
                }
            }
        }
        names
    }

    /// The path with all links followed, if it leads somewhere.
    pub(crate) fn real(&mut self, path: &Path) -> Option<PathBuf> {
        if !self.may_access() {
            return None;
        }
        match fs::canonicalize(path) {
            Ok(path) => Some(path),
            Err(error) => {
                if !is_absent(&error) {
                    self.cannot_read(path, &error);
                }
                None
            }
        }
    }
}

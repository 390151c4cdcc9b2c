//! The errors of this crate: each names the value and what is wrong with it. An error about a text that the caller gave also says what is
//! allowed in such a text; for an error about a path, the command says what the user can do.

use crate::files::CPU_FOLDER;
use crate::unread::{self, Unread};
use crate::{CPU_ID_LIMIT, MAX_CPU_COUNT, MAX_NODES};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A text that is not a [`CpuSet`](crate::CpuSet) or an [`AffinityScope`](crate::AffinityScope). Displays as a sentence that names the part
/// of the text, and what is allowed.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    part: String,
    reason: String,
    expected: String,
}

/// The most characters of a text in a message; longer texts are cut.
const SHOWN: usize = 60;

/// `text` in quotes, cut to a length that fits a message.
pub(crate) fn quoted(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= SHOWN {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(SHOWN).collect();
    format!("{head:?}...")
}

impl ParseError {
    pub(crate) fn new(text: &str, part: &str, reason: &str, expected: &str) -> Self {
        Self {
            text: text.into(),
            part: part.into(),
            reason: reason.into(),
            expected: expected.into(),
        }
    }

    /// What is wrong, without the whole text and without what is allowed: for callers that say both in their own words.
    pub fn reason(&self) -> String {
        if self.part.trim() == self.text.trim() {
            return self.reason.clone();
        }
        format!("{}: {}", quoted(&self.part), self.reason)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", quoted(&self.part))?;
        if self.part.trim() != self.text.trim() {
            write!(f, " in {}", quoted(&self.text))?;
        }
        write!(f, ": {}; give {}", self.reason, self.expected)
    }
}

crate::debug_as_display!(ParseError);

impl std::error::Error for ParseError {}

/// A number that is not below [`CPU_ID_LIMIT`], so it cannot be a CPU's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CpuIdTooLarge(pub(crate) usize);

impl fmt::Display for CpuIdTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}: CPU numbers must be below {CPU_ID_LIMIT}", self.0)
    }
}

crate::debug_as_display!(CpuIdTooLarge);

impl std::error::Error for CpuIdTooLarge {}

/// A machine that could not be read. Displays as a sentence that says what is wrong, and where.
#[non_exhaustive]
pub enum TopologyError {
    /// A file or folder cannot be read. `source` says whether it does not exist, or exists and cannot be opened.
    Unreadable {
        /// What should have been read.
        path: PathBuf,
        /// Why it could not be read.
        source: io::Error,
    },
    /// A folder holds no `sys/devices/system/cpu`.
    NotSysfs {
        /// The folder.
        path: PathBuf,
        /// A folder in it that does hold one.
        inside: Option<PathBuf>,
    },
    /// A file is packed or compressed, so it is not the text of a machine.
    Packed {
        /// The file.
        path: PathBuf,
        /// The program that made it, such as `bzip2`.
        by: &'static str,
    },
    /// The files of a machine exceed the limits for reading one machine.
    TooLarge {
        /// The folder that holds them.
        path: PathBuf,
        /// What exceeds its limit, and the limit.
        reason: String,
    },
    /// A text is not hwloc XML, or lacks something indispensable.
    Xml {
        /// What is wrong.
        reason: String,
    },
    /// A synthetic description that is not understood.
    Synthetic {
        /// The whole description.
        text: String,
        /// The part that is not understood.
        part: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A machine description that is neither a file, nor `sysfs:DIR`, nor a synthetic description.
    Description {
        /// The description.
        text: String,
    },
    /// The machine has no CPU.
    NoCpus {
        /// Where CPUs were searched for.
        place: String,
    },
    /// The machine has more than [`MAX_CPU_COUNT`] CPUs.
    TooManyCpus {
        /// How many it has.
        count: usize,
    },
    /// The machine has more than [`MAX_NODES`] nodes.
    TooManyNodes {
        /// How many it has.
        count: usize,
    },
    /// Node distances that do not fit the machine; see [`Topology::with_distances`](crate::Topology::with_distances).
    Distances {
        /// What is wrong.
        reason: String,
    },
}

impl TopologyError {
    /// The path that could not be read, or that holds no machine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unreadable { path, .. }
            | Self::NotSysfs { path, .. }
            | Self::Packed { path, .. }
            | Self::TooLarge { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The system's error number (`errno.h`) if something could not be read.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Unreadable { source, .. } => Some(unread::errno(source)),
            _ => None,
        }
    }

    /// What could not be read. For a folder that holds no machine: the folder that should be in it.
    pub(crate) fn unread(&self) -> Option<Unread> {
        match self {
            Self::Unreadable { path, source } => Some(Unread::new(path, source)),
            Self::NotSysfs { path, .. } => {
                let path = path.join("sys").join(CPU_FOLDER);
                Some(Unread::new(&path, &io::Error::from_raw_os_error(libc::ENOENT)))
            }
            _ => None,
        }
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, source } => {
                write!(f, "cannot read {}: {source}", path.display())
            }
            Self::NotSysfs { path, inside } => {
                let text = "holds neither sys/devices/system/cpu nor devices/system/cpu";
                write!(f, "{}: {text}", path.display())?;
                inside.as_ref().map_or(Ok(()), |inside| write!(f, "; {} does", inside.display()))
            }
            Self::Packed { path, by } => {
                write!(f, "{}: made by {by}, so it must be unpacked first", path.display())
            }
            Self::TooLarge { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Xml { reason } => {
                write!(f, "not a machine in hwloc's XML format (version 2): {reason}")
            }
            Self::Synthetic { text, part, reason } => {
                write!(f, "{}", quoted(part))?;
                if part != text {
                    write!(f, " in {}", quoted(text))?;
                }
                write!(
                    f,
                    ": {reason}; give a description such as \"pack:2 numa:2 l3:2 core:4 pu:2\""
                )
            }
            Self::Description { text } => write!(
                f,
                "{}: no such file, and not a description of a machine; give the path of an hwloc XML file, \
                 sysfs:DIR with a folder that holds a machine's /sys, or a synthetic description such as \
                 \"pack:2 numa:2 l3:2 core:4 pu:2\"",
                quoted(text)
            ),
            Self::NoCpus { place } => {
                write!(f, "no CPU found in {place}; a machine needs at least one")
            }
            Self::TooManyCpus { count } => {
                write!(
                    f,
                    "{count} CPUs: more than the {MAX_CPU_COUNT} that are supported; describe a smaller machine"
                )
            }
            Self::TooManyNodes { count } => {
                write!(
                    f,
                    "{count} nodes: more than the {MAX_NODES} that are supported; describe a smaller machine"
                )
            }
            Self::Distances { reason } => {
                write!(
                    f,
                    "{reason}; give one row and one column for each node, with 10 from a node to itself"
                )
            }
        }
    }
}

crate::debug_as_display!(TopologyError);

impl std::error::Error for TopologyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}

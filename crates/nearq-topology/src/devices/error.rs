//! Why a name leads to no node.

use super::{DeviceKind, DeviceName};
use crate::ParseError;
use std::fmt;

/// The most devices that a message lists.
const LISTED: usize = 16;

/// A device of which no node is known. Displays as a sentence that says why, and what can be given in place of it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// A text that is not the name of a device.
    Name(ParseError),
    /// The machine has no such device.
    Unknown {
        /// What was named.
        name: DeviceName,
        /// The kind of device that it should be.
        kind: DeviceKind,
        /// The names of those that the machine has.
        known: Vec<String>,
    },
    /// There is no hardware behind the name, or it cannot be found.
    NoHardware {
        /// What was named.
        name: DeviceName,
        /// Why there is none, and what can be given in place of it.
        reason: String,
    },
    /// The machine does not say which node the device is near.
    NoNode {
        /// What was named.
        name: DeviceName,
        /// What it is, if it has another name.
        device: String,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => write!(f, "{error}"),
            Self::Unknown { name, kind, known } => {
                let what = match kind {
                    DeviceKind::Gpu => "GPU",
                    DeviceKind::Network => "network interface",
                    DeviceKind::Block => "disk",
                    DeviceKind::Pci => "PCI device",
                };
                if known.is_empty() {
                    return write!(
                        f,
                        "{name}: this machine has no {what}; `nearq topo` shows its devices"
                    );
                }
                let shown = known[..known.len().min(LISTED)].join(", ");
                let more = match known.len().saturating_sub(LISTED) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                write!(f, "{name}: there is no such {what}; this machine has {shown}{more}")
            }
            Self::NoHardware { name, reason } => write!(f, "{name}: {reason}"),
            Self::NoNode { name, device } => write!(
                f,
                "{name}: the machine does not say which node {device} is near, and neither does the root of its PCI bus; give the number of a node in place of the device"
            ),
        }
    }
}

crate::debug_as_display!(DeviceError);

impl std::error::Error for DeviceError {}

impl From<ParseError> for DeviceError {
    fn from(error: ParseError) -> Self {
        Self::Name(error)
    }
}

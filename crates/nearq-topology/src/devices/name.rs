//! Names of devices, as users write them: a kind, a colon, and which one.

use super::gpu::PciAddress;
use crate::ParseError;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// What a name may be, for messages.
const ALLOWED: &str =
    "gpu:0, pci:0000:41:00.0, netdev:eth0, block:nvme0n1, file:/data/x or ip:10.0.0.1";

/// The name of a device: which one is meant, and not whether it exists. Parses and displays as users write it.
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// use nearq::topology::DeviceName;
///
/// assert_eq!("gpu:3".parse(), Ok(DeviceName::Gpu(3)));
/// // The domain and the function may be left out.
/// assert_eq!("pci:41:00".parse::<DeviceName>()?.to_string(), "pci:0000:41:00.0");
/// assert!("gpu3".parse::<DeviceName>().is_err());
/// # Ok::<(), nearq::topology::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceName {
    /// `gpu:0`: a GPU or another accelerator, by its number in the order of PCI addresses.
    Gpu(usize),
    /// `pci:0000:41:00.0`: any PCI device, by its address.
    Pci(String),
    /// `netdev:eth0`: a network interface.
    Network(String),
    /// `block:nvme0n1`: a disk, a partition, or what is built on disks.
    Block(String),
    /// `file:/data/x`: the disk that has this file.
    File(PathBuf),
    /// `ip:10.0.0.1`: the network interface through which this address is reached.
    Ip(IpAddr),
}

impl FromStr for DeviceName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refused = |part: &str, reason: &str| ParseError::new(text, part, reason, ALLOWED);
        let Some((kind, which)) = text.split_once(':') else {
            return Err(refused(text, "no kind of device and colon"));
        };
        // It becomes a part of a path.
        let is_name =
            !which.is_empty() && which != "." && which != ".." && !which.contains(['/', '\0']);
        let wrong = |reason: &str| Err(refused(which, reason));
        match kind {
            "gpu" => match which.parse() {
                Ok(number) if !which.starts_with('+') => Ok(Self::Gpu(number)),
                _ => wrong("not the number of a GPU"),
            },
            "pci" => match PciAddress::parse(which) {
                Some(address) => Ok(Self::Pci(address.to_string())),
                None => wrong("not a PCI address"),
            },
            "netdev" if is_name => Ok(Self::Network(which.into())),
            "netdev" => wrong("not the name of a network interface"),
            "block" => {
                // The kernel writes `!` for `/` in a name.
                let which = which.strip_prefix("/dev/").unwrap_or(which).replace('/', "!");
                match which.as_str() {
                    "" | "." | ".." => wrong("not the name of a disk"),
                    _ => Ok(Self::Block(which)),
                }
            }
            "file" if !which.is_empty() => Ok(Self::File(which.into())),
            "file" => wrong("not the path of a file"),
            "ip" => match which.parse() {
                Ok(address) => Ok(Self::Ip(address)),
                Err(_) if which.contains('%') => {
                    wrong("an address with an interface behind `%`; name the interface itself")
                }
                Err(_) => wrong("not an IP address"),
            },
            _ => Err(refused(kind, "no kind of device")),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(number) => write!(f, "gpu:{number}"),
            Self::Pci(address) => write!(f, "pci:{address}"),
            Self::Network(name) => write!(f, "netdev:{name}"),
            Self::Block(name) => write!(f, "block:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Ip(address) => write!(f, "ip:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_displayed_as_they_are_written() {
        for text in [
            "gpu:0",
            "pci:0001:41:00.0",
            "netdev:eth0.5",
            "block:cciss!c0d0",
            "file:/data/a:b",
            "ip:10.0.0.1",
            "ip:fe80::1",
        ] {
            assert_eq!(text.parse::<DeviceName>().unwrap().to_string(), text);
        }
        assert_eq!("block:/dev/cciss/c0d0".parse(), Ok(DeviceName::Block("cciss!c0d0".into())));
    }

    #[test]
    fn mistakes_are_named_and_the_kinds_are_listed() {
        for (text, reason) in [
            ("gpu", "no kind of device and colon"),
            ("gpu:", "not the number of a GPU"),
            ("gpu:+1", "not the number of a GPU"),
            ("gpu:-1", "not the number of a GPU"),
            ("pci:eth0", "not a PCI address"),
            ("netdev:../eth0", "not the name of a network interface"),
            ("block:..", "not the name of a disk"),
            ("file:", "not the path of a file"),
            ("ip:host", "not an IP address"),
            ("ip:fe80::1%eth0", "name the interface itself"),
            ("cpu:1", "no kind of device"),
        ] {
            let error = text.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("netdev:eth0"), "{text}: {error}");
        }
    }
}

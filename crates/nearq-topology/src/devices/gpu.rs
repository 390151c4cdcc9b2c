//! Which PCI devices are GPUs, and in which order they are numbered.
//!
//! A GPU is a display controller of a vendor that makes GPUs for computing, or a processing accelerator. Other display controllers, such as
//! the one of a server's management processor, have no number. GPUs are numbered in the order of their PCI addresses: CUDA does the same if
//! `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`.

use super::{Device, DeviceKind};

/// The base class of display controllers, and the class of processing accelerators.
const DISPLAY: u32 = 0x03;
const ACCELERATOR: u32 = 0x1200;

const NVIDIA: u16 = 0x10de;
const AMD: u16 = 0x1002;
const INTEL: u16 = 0x8086;

/// The name of a vendor that makes GPUs for computing.
pub(super) fn vendor_name(vendor: u16) -> Option<&'static str> {
    match vendor {
        NVIDIA => Some("NVIDIA"),
        AMD => Some("AMD"),
        INTEL => Some("Intel"),
        _ => None,
    }
}

/// Whether a PCI device is a GPU. `class` has the base class and the subclass: 16 bits.
pub(crate) fn is_gpu(class: u32, vendor: u16) -> bool {
    class == ACCELERATOR || (class >> 8 == DISPLAY && vendor_name(vendor).is_some())
}

/// A PCI address, in an order that is that of the bus: domain, bus, device, function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PciAddress(u32, u8, u8, u8);

impl PciAddress {
    /// `0000:41:00.0`; the domain and the function may be missing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = |text: &str, most: usize| {
            let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
            (is_hex && (1..=most).contains(&text.len()))
                .then(|| u32::from_str_radix(text, 16).ok())?
        };
        let byte = |text: &str| number(text, 2).and_then(|byte| u8::try_from(byte).ok());
        let (place, function) = text.split_once('.').unwrap_or((text, "0"));
        let mut parts = place.rsplit(':');
        let (device, bus) = (byte(parts.next()?)?, byte(parts.next()?)?);
        let domain = parts.next().map_or(Some(0), |domain| number(domain, 8))?;
        let function = byte(function).filter(|function| *function < 8)?;
        (parts.next().is_none() && device < 32).then_some(Self(domain, bus, device, function))
    }
}

impl std::fmt::Display for PciAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.0, self.1, self.2, self.3)
    }
}

/// Sorts devices: GPUs in the order of their PCI addresses, and numbered so; then the others, by kind and name.
pub(crate) fn number(devices: &mut [Device]) {
    let address = |device: &Device| device.address.as_deref().and_then(PciAddress::parse);
    devices.sort_by(|a, b| {
        let by_address = if a.kind == DeviceKind::Gpu {
            address(a).cmp(&address(b))
        } else {
            std::cmp::Ordering::Equal
        };
        a.kind.cmp(&b.kind).then(by_address).then_with(|| natural(&a.name).cmp(&natural(&b.name)))
    });
    let gpus = devices.iter_mut().filter(|device| device.kind == DeviceKind::Gpu);
    for (number, gpu) in gpus.enumerate() {
        gpu.name = number.to_string();
    }
}

/// A name such that `nvme2n1` is before `nvme10n1`: the pieces of it, numbers by their length first.
fn natural(name: &str) -> Vec<(usize, &str)> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        pieces.push((if is_digit { end } else { 0 }, &rest[..end]));
        rest = &rest[end..];
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_accelerators_and_the_display_controllers_of_three_vendors() {
        assert!(is_gpu(0x0302, NVIDIA) && is_gpu(0x0380, AMD) && is_gpu(0x0300, INTEL));
        // Any vendor's accelerator, but not the display of a management processor, nor an NVSwitch or the sound of a GPU.
        assert!(is_gpu(0x1200, 0x1da3) && !is_gpu(0x0300, 0x1a03));
        assert!(!is_gpu(0x0680, NVIDIA) && !is_gpu(0x0403, NVIDIA));
    }

    #[test]
    fn addresses_are_those_of_pci() {
        let shown = |text: &str| PciAddress::parse(text).map(|address| address.to_string());
        assert_eq!(shown("0000:41:00.0").as_deref(), Some("0000:41:00.0"));
        assert_eq!(shown("41:1F").as_deref(), Some("0000:41:1f.0"));
        assert_eq!(shown("10000:e1:00.7").as_deref(), Some("10000:e1:00.7"));
        for wrong in
            ["", "41", "0:41:20.0", "41:00.8", "0000:0000:41:00.0", "41:+1.0", "141:00.0", "../.."]
        {
            assert_eq!(PciAddress::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_in_names_are_ordered_as_numbers() {
        let mut names = ["nvme10n1", "nvme2n1", "sda", "nvme2n10", "eth0"];
        names.sort_by(|a, b| natural(a).cmp(&natural(b)));
        assert_eq!(names, ["eth0", "nvme2n1", "nvme2n10", "nvme10n1", "sda"]);
    }
}

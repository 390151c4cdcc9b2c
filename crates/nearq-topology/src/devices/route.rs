//! From an IP address to the network interfaces that reach it, by the kernel's main routing table as `/proc/net` shows it.
//!
//! Rules that choose another table by source or mark are not followed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Flags of a route (`linux/route.h`, `linux/ipv6_route.h`): it is usable; it refuses; it is this machine's own address.
const UP: u32 = 1;
const REJECT: u32 = 0x200;
const LOCAL: u32 = 0x8000_0000;

/// A route: how many bits of the address it fixes, its metric, and its interface; `None` if it refuses.
type Route<'a> = (u32, u32, Option<&'a str>);

/// The file that has the routes for such an address.
pub(super) fn file(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "net/route",
        IpAddr::V6(_) => "net/ipv6_route",
    }
}

/// The interfaces through which the address is reached, from the text of that file: several if their routes are equally good. None if there
/// is no route, or if the first of the best ones refuses.
pub(super) fn interfaces(table: &str, address: IpAddr) -> Vec<&str> {
    let routes = table.lines().filter_map(|line| match address {
        IpAddr::V4(address) => route4(line, address),
        IpAddr::V6(address) => route6(line, address),
    });
    let routes: Vec<Route<'_>> = routes.collect();
    // The most specific route counts, and of those the one with the least metric.
    let rank = |&(bits, metric, _): &Route<'_>| (std::cmp::Reverse(bits), metric);
    let best = routes.iter().map(rank).min();
    let mut interfaces = Vec::new();
    for route in routes.iter().filter(|route| Some(rank(route)) == best) {
        match route.2 {
            None if interfaces.is_empty() => return Vec::new(),
            Some(interface) if !interfaces.contains(&interface) => interfaces.push(interface),
            _ => {}
        }
        // In this version the kernel takes the first of equal routes; in the other one it spreads connections over them.
        if address.is_ipv4() {
            break;
        }
    }
    interfaces
}

/// Whether the address means another machine on each link, so that it says nothing without an interface (`fe80::/10`).
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments()[0] & 0xffc0 == 0xfe80)
}

/// The route on a line of `net/route`, if it applies: interface, destination, gateway, flags, two counts, metric, mask.
fn route4(line: &str, address: Ipv4Addr) -> Option<Route<'_>> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // The kernel prints the bytes of an address as a number of its own byte order.
    let word = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    let bytes = |at: usize| Some(u32::from_be_bytes(word(at)?.to_ne_bytes()));
    let (destination, mask, flags) = (bytes(1)?, bytes(7)?, word(3)?);
    let metric = fields.get(6)?.parse().ok()?;
    let applies = address.to_bits() & mask == destination;
    route(flags, applies, mask.count_ones(), metric, fields.first()?)
}

/// The route on a line of `net/ipv6_route`, if it applies: destination, its length, source, its length, gateway, metric, two counts,
/// flags, interface.
fn route6(line: &str, address: Ipv6Addr) -> Option<Route<'_>> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let word = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    let destination = u128::from_str_radix(fields.first()?, 16).ok()?;
    let (bits, metric, flags) = (word(1)?, word(5)?, word(8)?);
    let mask = u128::MAX.checked_shl(128_u32.checked_sub(bits)?).unwrap_or(0);
    let applies = address.to_bits() & mask == destination && flags & LOCAL == 0;
    route(flags, applies, bits, metric, fields.get(9)?)
}

fn route(flags: u32, applies: bool, bits: u32, metric: u32, interface: &str) -> Option<Route<'_>> {
    let refuses = flags & REJECT != 0;
    (applies && (refuses || flags & UP != 0)).then_some((
        bits,
        metric,
        (!refuses).then_some(interface),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(target_endian = "big", ignore = "the table is that of a little-endian machine")]
    fn the_most_specific_route_with_the_least_metric_counts() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     wlan0\t00000000\t0100000A\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                     ib0\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
                     *\t0007010A\t00000000\t0200\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let by = |address: &str| interfaces(table, address.parse().unwrap());
        assert_eq!(by("8.8.8.8"), ["eth0"]);
        assert_eq!(by("10.1.2.3"), ["ib0"]);
        assert!(by("10.1.7.3").is_empty(), "the route refuses");
        assert!(interfaces("", "8.8.8.8".parse().unwrap()).is_empty());
    }

    #[test]
    fn routes_of_the_sixth_version_leave_out_own_addresses() {
        let line = |to: &str, bits: &str, metric: &str, flags: &str, by: &str| {
            let zero = "0".repeat(32);
            format!("{to} {bits} {zero} 00 {zero} {metric} 00000001 00000000 {flags} {by}\n")
        };
        let net = format!("20010db8{}", "0".repeat(24));
        let own = format!("20010db8{}1", "0".repeat(23));
        let table = [
            line(&net, "40", "00000100", "00000001", "eth1"),
            line(&own, "80", "00000000", "80200001", "lo"),
            line(&"0".repeat(32), "00", "ffffffff", "00200200", "lo"),
            line(&"0".repeat(32), "00", "00000400", "00000003", "eth0"),
        ]
        .concat();
        let by = |table: &str, address: &str| interfaces(table, address.parse().unwrap()).join(" ");
        assert_eq!(by(&table, "2001:db8::1"), "eth1");
        assert_eq!(by(&table, "2001:4860::8"), "eth0");
        let second = line(&"0".repeat(32), "00", "00000400", "00000003", "eth2");
        assert_eq!(by(&(table.clone() + &second), "2001:4860::8"), "eth0 eth2", "both are as good");
        assert_eq!(by(&(table + &second), "2001:db8::1"), "eth1");
    }
}

//! The costs of a machine, from what was measured on it: which quantity gives which cost, and what is subtracted.

use super::places::{Class, Home};
use super::shape::caches;
use nearq_sim::{Calibration, Costs, Measurement};
use nearq_topology::Topology;

/// One cost, as it goes into the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) name: &'static str,
    pub(super) value: u64,
    pub(super) unit: &'static str,
    pub(super) origin: &'static str,
    pub(super) source: String,
}

/// The names of the measurements from which costs follow: drift counts for them.
pub(super) fn names() -> Vec<&'static str> {
    let fixed = [
        "cycle",
        "read, latency",
        "fetch_add",
        "fence",
        "look",
        "read, throughput",
        "write, throughput",
        "l2 stream",
        "l3 stream",
        "memory stream",
        "llc bandwidth",
        "node bandwidth",
        "link bandwidth",
        "memory latency",
        "memory latency same_package",
        "memory latency other_package",
        "smt share",
        "counter",
        "clock",
        "wake call own CPU",
        "system call",
        "context switch",
        "migration",
        "spawn",
        "page fault",
        "read machine",
    ];
    let by_class = [
        "bounce same_core",
        "bounce same_llc",
        "bounce other_llc",
        "bounce same_package",
        "bounce other_package",
        "bounce other_llc, home same_package",
        "bounce other_llc, home other_package",
        "bounce same_package, home same_package",
        "bounce same_package, home other_package",
        "bounce other_package, home same_package",
        "bounce other_package, home other_package",
        "wake call same_core",
        "wake call same_llc",
        "wake call other_llc",
        "wake call same_package",
        "wake call other_package",
        "wake to running same_core",
        "wake to running same_llc",
        "wake to running other_llc",
        "wake to running same_package",
        "wake to running other_package",
    ];
    [&fixed[..], &by_class[..]].concat()
}

/// A measurement, as a source names it.
fn measured(of: &Measurement) -> String {
    let [first, median, third] = of.quartiles;
    let unit = &of.unit;
    format!("{}: {median:.1} {unit} (quartiles {first:.1} and {third:.1})", of.name)
}

/// The clock and all costs that the measurements give.
pub(super) fn of(calibration: &Calibration, topology: &Topology) -> Vec<Cost> {
    let find = |name: &str| calibration.find(name);
    let mut all: Vec<Cost> = Vec::new();
    let mut put = |name: &'static str, unit: &'static str, value: f64, source: String| {
        let value = value.round().max(1.0) as u64;
        all.push(Cost { name, value, unit, origin: "measured", source });
    };
    if let Some(cycle) = find("cycle") {
        put(
            "clock_mhz",
            "MHz",
            1000.0 / cycle.median(),
            format!("an addition takes one cycle; {}", measured(cycle)),
        );
    }
    let plain = [
        ("own_line", "read, latency"),
        ("fence", "fence"),
        ("look", "look"),
        ("l2_stream", "l2 stream"),
        ("l3_stream", "l3 stream"),
        ("memory_stream", "memory stream"),
        ("memory", "memory latency"),
        ("memory_same_package", "memory latency same_package"),
        ("memory_other_package", "memory latency other_package"),
        ("llc_bandwidth", "llc bandwidth"),
        ("node_bandwidth", "node bandwidth"),
        ("link_bandwidth", "link bandwidth"),
        ("smt_percent", "smt share"),
        ("clock", "clock"),
        ("counter", "counter"),
        ("system_call", "system call"),
        ("context_switch", "context switch"),
        ("migration", "migration"),
        ("spawn", "spawn"),
        ("page_fault", "page fault"),
        ("read_machine", "read machine"),
    ];
    for (cost, name) in plain {
        if let Some(found) = find(name) {
            put(cost, Costs::unit(cost), found.median(), measured(found));
        }
    }
    // An increment in memory is one of each.
    if let (Some(read), Some(write)) = (find("read, throughput"), find("write, throughput")) {
        let source = format!("the mean of two, {} and {}", measured(read), measured(write));
        put("own_line_ps", "ps", (read.median() + write.median()) * 500.0, source);
    }
    // What a read-modify-write takes beyond an access to an own line.
    if let (Some(both), Some(read)) = (find("fetch_add"), find("read, latency")) {
        let source = format!("{}, less {}", measured(both), measured(read));
        put("read_modify_write", "ns", both.median() - read.median(), source);
    }
    for class in Class::ALL {
        if let Some(bounce) = find(&format!("bounce {}", class.cost())) {
            put(class.cost(), "bounce", bounce.median(), measured(bounce));
        }
    }
    for (cost, way, source) in ways(calibration) {
        put(cost, "ns", way, source);
    }
    // A wake-up of the nearest distance: of another core, if there is one, because a sibling shares its core's speed.
    let order =
        [Class::SameLlc, Class::OtherLlc, Class::SamePackage, Class::OtherPackage, Class::SameCore];
    let distance = order.into_iter().find_map(|class| {
        let (call, running) = (
            find(&format!("wake call {}", class.cost()))?,
            find(&format!("wake to running {}", class.cost()))?,
        );
        Some((call, running))
    });
    if let (Some((call, running)), Some(here), Some(system)) =
        (distance, find("wake call own CPU"), find("system call"))
    {
        let source = format!("{}, less {}", measured(here), measured(system));
        put("wake_up", "ns", here.median() - system.median(), source);
        let source = format!("{}, less {}", measured(call), measured(here));
        put("interrupt", "ns", call.median() - here.median(), source);
        let source = format!("{}, less {}", measured(running), measured(here));
        put("idle_exit", "ns", running.median() - here.median(), source);
    }
    sizes(topology, &mut all);
    all
}

/// What a line takes longer for each CPU whose node is not its home: the costs `home_same_package` and `home_other_package`, each from the
/// nearest distance for which it was measured. If it is less than half a nanosecond, the home does not count, and there is no cost.
///
/// A transfer goes from one CPU to the home, to the other, and back. Two CPUs of one node have two equal ways to a home elsewhere. Two nodes
/// of a package have a way to each other less: what is left of two ways to a third one is one of them. Of two packages, each distance to
/// the home that is not the one between them comes on top.
fn ways(calibration: &Calibration) -> Vec<(&'static str, f64, String)> {
    let mut found: Vec<(&'static str, f64, String)> = Vec::new();
    let homes =
        [(Home::SamePackage, "home_same_package"), (Home::OtherPackage, "home_other_package")];
    for (home, cost) in homes {
        let of_class = |class: Class| {
            let near = calibration.find(&format!("bounce {}", class.cost()))?;
            let far = calibration.find(&format!("bounce {}{}", class.cost(), home.suffix()))?;
            Some((class, near, far))
        };
        let classes = [Class::OtherLlc, Class::SamePackage, Class::OtherPackage];
        let Some((class, near, far)) = classes.into_iter().find_map(of_class) else { continue };
        let longer = far.median() - near.median();
        let between = found.first().map_or(0.0, |(_, way, _)| *way);
        let (way, how) = match (class, home) {
            (Class::OtherLlc, _) => (longer / 2.0, "half of"),
            (Class::SamePackage, Home::OtherPackage) => {
                (f64::midpoint(longer, between), "with home_same_package, half of")
            }
            _ => (longer, "the difference:"),
        };
        if way >= 0.5 {
            found.push((cost, way, format!("{how} {}, less {}", measured(far), measured(near))));
        }
    }
    found
}

/// The sizes of the caches, which the machine tells.
fn sizes(topology: &Topology, all: &mut Vec<Cost>) {
    let (inner, last) = cache_sizes(topology);
    for (name, size) in [("l2_size", inner), ("llc_size", last)] {
        let default = Costs::DEFAULT.get(name).unwrap_or(1);
        let (origin, source) = match size {
            Some(_) => ("specified", "the machine's own description (/sys)"),
            None => ("given", "the machine does not tell: a round number"),
        };
        let value = size.unwrap_or(default);
        all.push(Cost { name, value, unit: "bytes", origin, source: source.into() });
    }
}

/// Bytes of a core's private cache and of a last-level cache, of the first CPU. If there is only one of the two, it counts for both.
pub(super) fn cache_sizes(topology: &Topology) -> (Option<u64>, Option<u64>) {
    let Some(cpu) = topology.possible().first() else { return (None, None) };
    let caches = caches(topology, cpu);
    let size = |cache: Option<&&nearq_topology::Cache>| cache.and_then(|cache| cache.size);
    (size(caches.first()), size(caches.last()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(name: &str, median: f64) -> Measurement {
        let quartiles = [median - 1.0, median, median + 1.0];
        let (unit, medians) = ("ns".into(), [median; 2]);
        Measurement { name: name.into(), unit, quartiles, medians, samples: 8 }
    }

    #[test]
    fn each_cost_is_its_measurement_less_what_it_contains() {
        let named = [
            ("cycle", 0.25),
            ("read, latency", 1.2),
            ("fetch_add", 7.4),
            ("bounce same_llc", 61.0),
            ("system call", 90.0),
            ("wake call own CPU", 590.0),
            ("wake call same_core", 500.0),
            ("wake to running same_core", 900.0),
            ("wake call same_llc", 1090.0),
            ("wake to running same_llc", 3090.0),
        ];
        let measurements = named.map(|(name, median)| measurement(name, median)).to_vec();
        let calibration = Calibration { measurements, ..Calibration::default() };
        let all = of(
            &calibration,
            &Topology::from_synthetic("l3:1(size=8MiB) l2:2(size=1MiB) core:1").unwrap(),
        );
        let value = |name: &str| all.iter().find(|cost| cost.name == name).map(|cost| cost.value);
        assert_eq!(value("clock_mhz"), Some(4000));
        assert_eq!((value("own_line"), value("read_modify_write")), (Some(1), Some(6)));
        assert_eq!((value("same_llc"), value("other_llc")), (Some(61), None));
        assert_eq!((value("wake_up"), value("interrupt")), (Some(500), Some(500)));
        assert_eq!(value("idle_exit"), Some(2500));
        assert_eq!((value("l2_size"), value("llc_size")), (Some(1 << 20), Some(8 << 20)));
        assert!(
            named.iter().all(|(name, _)| names().contains(name)),
            "drift counts for all of them"
        );
    }

    #[test]
    fn the_way_to_a_home_follows_from_what_a_bounce_takes_longer_there() {
        let ways = |named: &[(&str, f64)]| {
            let measurements = named.iter().map(|(name, median)| measurement(name, *median));
            let calibration =
                Calibration { measurements: measurements.collect(), ..Calibration::default() };
            let found = super::ways(&calibration);
            assert!(found.iter().all(|(.., source)| source.contains(", less bounce")), "{found:?}");
            found.into_iter().map(|(cost, way, _)| (cost, way)).collect::<Vec<_>>()
        };
        // Two EPYC 7601: the other caches of a die tell both.
        let naples = [
            ("bounce other_llc", 128.0),
            ("bounce other_llc, home same_package", 216.0),
            ("bounce other_llc, home other_package", 336.0),
            ("bounce same_package", 211.0),
            ("bounce same_package, home same_package", 255.0),
            ("bounce same_package, home other_package", 375.0),
            ("bounce other_package", 336.0),
            ("bounce other_package, home same_package", 380.0),
        ];
        let expected = [("home_same_package", 44.0), ("home_other_package", 104.0)];
        assert_eq!(ways(&naples), expected);
        assert_eq!(ways(&naples[3..]), expected, "with one cache a node");
        assert_eq!(ways(&naples[6..]), expected[..1], "with one node of each package");
        let four =
            [("bounce other_package", 336.0), ("bounce other_package, home other_package", 440.0)];
        assert_eq!(ways(&four), expected[1..], "four packages");
        assert_eq!(ways(&naples[..1]), [], "one node");
        let equal = [("bounce other_llc", 90.0), ("bounce other_llc, home other_package", 90.4)];
        assert_eq!(ways(&equal), [], "the home does not count");
        assert!(naples.iter().chain(&four).all(|(name, _)| names().contains(name)), "drift");
    }
}

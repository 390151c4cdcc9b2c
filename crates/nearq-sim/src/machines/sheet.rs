//! A machine in the making: a shape, a clock, and a cost after the other, each with its source.

use nearq_topology::Topology;

use super::derive;
use crate::costs::Costs;
use crate::machine::Machine;
use crate::source::{Origin, Source};

/// What is known of a machine so far.
pub(super) struct Sheet {
    name: &'static str,
    about: &'static str,
    topology: Topology,
    clock_mhz: u64,
    sources: Vec<Source>,
}

impl Sheet {
    /// A machine of this shape, of which nothing else is known but its clock.
    pub(super) fn new(
        name: &'static str,
        about: &'static str,
        topology: Topology,
        clock_mhz: u64,
        text: &'static str,
    ) -> Self {
        let clock = Source { cost: "clock_mhz", value: clock_mhz, origin: Origin::Specified, text };
        Sheet { name, about, topology, clock_mhz, sources: vec![clock] }
    }

    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The cost of that name, if it is known yet.
    pub(super) fn get(&self, cost: &str) -> Option<u64> {
        self.sources.iter().find(|source| source.cost == cost).map(|source| source.value)
    }

    /// A cost with its source.
    ///
    /// # Panics
    /// There is no such cost, or it is known already.
    pub(super) fn put(
        mut self,
        cost: &'static str,
        value: u64,
        origin: Origin,
        text: &'static str,
    ) -> Self {
        assert!(Costs::NAMES.contains(&cost), "{}: {cost} is no cost", self.name);
        assert!(self.get(cost).is_none(), "{}: {cost} is there twice", self.name);
        self.sources.push(Source { cost, value, origin, text });
        self
    }

    /// A cost that was measured on this hardware.
    pub(super) fn measured(self, cost: &'static str, value: u64, text: &'static str) -> Self {
        self.put(cost, value, Origin::Measured, text)
    }

    /// A cost that the vendor states.
    pub(super) fn specified(self, cost: &'static str, value: u64, text: &'static str) -> Self {
        self.put(cost, value, Origin::Specified, text)
    }

    /// A cost that follows from a measurement of other hardware, or of another quantity, as the text says.
    pub(super) fn derived(self, cost: &'static str, value: u64, text: &'static str) -> Self {
        self.put(cost, value, Origin::Derived, text)
    }

    /// So many cycles of this clock, in nanoseconds, rounded, at least one.
    pub(super) fn cycles(&self, cycles: u64) -> u64 {
        ((cycles * 1_000 + self.clock_mhz / 2) / self.clock_mhz).max(1)
    }

    /// So many hundredths of a byte a cycle, in MB/s.
    pub(super) fn bytes_a_cycle(&self, hundredths: u64) -> u64 {
        hundredths * self.clock_mhz / 100
    }

    /// The transfer in a bounce of `ns`: two CPUs in turn take one line by a compare-exchange, `ns` each time. The
    /// compare-exchange itself is `read_modify_write`, which must be known.
    pub(super) fn transfer(&self, ns: u64) -> u64 {
        let atomic = self.get("read_modify_write").expect("read_modify_write comes first");
        ns.saturating_sub(atomic).max(self.get("own_line").unwrap_or(1))
    }

    /// The machine; what is not known is derived.
    pub(super) fn finish(self) -> Machine {
        let sheet = derive::complete(self);
        let mut machine = Machine::of(sheet.name, sheet.topology).expect("not too large");
        sheet.about.clone_into(&mut machine.about);
        machine.clock_mhz = sheet.clock_mhz;
        for source in &mut machine.sources {
            *source = (sheet.sources.iter().find(|known| known.cost == source.cost))
                .unwrap_or_else(|| panic!("{}: {} is missing", sheet.name, source.cost))
                .clone();
            if let Some(cost) = machine.costs.get_mut(source.cost) {
                *cost = source.value;
            }
        }
        machine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(shape: &str) -> Sheet {
        let topology = Topology::from_synthetic(shape).expect("well formed");
        Sheet::new("some", "some machine", topology, 2_500, "a test")
    }

    #[test]
    fn quantities_of_the_clock() {
        let sheet = sheet("core:2");
        // 0.4 ns a cycle.
        assert_eq!([1, 2, 4, 10].map(|cycles| sheet.cycles(cycles)), [1, 1, 2, 4]);
        assert_eq!(sheet.bytes_a_cycle(3_200), 80_000);
    }

    #[test]
    fn a_bounce_holds_one_atomic() {
        let sheet = sheet("core:2").specified("own_line", 2, "a test");
        let sheet = sheet.measured("read_modify_write", 7, "a test");
        assert_eq!([50, 8].map(|ns| sheet.transfer(ns)), [43, 2]);
    }

    #[test]
    fn distances_that_do_not_exist_are_the_next_nearer() {
        let sheet = sheet("pack:2 numa:1 l3:2 core:2")
            .specified("own_line", 2, "a test")
            .specified("read_modify_write", 7, "a test")
            .measured("same_llc", 40, "a test")
            .measured("other_llc", 100, "a test")
            .measured("other_package", 300, "a test")
            .measured("memory", 80, "a test");
        let sheet = derive::complete(sheet);
        assert_eq!(sheet.get("same_core"), Some(2), "no SMT");
        assert_eq!(sheet.get("same_package"), Some(100), "one node a package");
        assert_eq!(sheet.get("memory_same_package"), Some(80));
        assert_eq!(sheet.get("memory_other_package"), Some(280), "80 and 300 less 100");
        assert_eq!(sheet.get("smt_percent"), Some(100));
        assert_eq!(sheet.get("slice"), Some(2_800_000), "8 CPUs");
        assert_eq!(sheet.get("link_bandwidth"), None, "a link nobody described is not made up");
    }

    #[test]
    #[should_panic(expected = "some: same_llc is missing")]
    fn what_no_rule_gives_must_be_given() {
        drop(
            sheet("core:2")
                .specified("own_line", 1, "a test")
                .specified("read_modify_write", 1, "a test")
                .finish(),
        );
    }
}

//! The store of a simulated machine: a drive that takes its time and keeps nothing.
//!
//! A block's memory stays where it is (a drive reads and writes it by itself, the CPU copies nothing); its transfer ends after the drive's
//! latency, and transfers queue up for the drive's bandwidth, which all lanes share. A CPU's cost is the system call that starts a
//! transfer, and one system call for each check for transfers that ended. An issuer that waits is woken at the end of its first transfer.
//!
//! The figures are those of the document's drive, a Samsung SSD 980 PRO of 1 TB, from the manufacturer's data sheet:
//! 7,000 MB/s reading and 5,000 MB/s writing in sequence, and, at a queue depth of one, 22,000 random reads and 60,000
//! random writes a second, so a latency of 45 us and 17 us. At the document's 1,160 MiB/s in each direction the drive is
//! busy for 42 % of the time: it is not the limit, as it was not in the document. A machine with more CPUs than the
//! document's gets proportionally more drives, side by side.
//!
//! Two effects are not simulated: the interrupt, and that memory written by the drive is no longer in any cache.

use super::{Direction, Lane, Store, Transfer};
use crate::Error;
use crate::harness::ParkBell;
use crate::payload::BLOCK_BYTES;
use nearq_platform::{Instant, LockPlatform as _};
use nearq_sim::Sim;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes a microsecond.
const READ_RATE: u64 = 7_000;
const WRITE_RATE: u64 = 5_000;
/// Nanoseconds of a single transfer.
const READ_LATENCY: u64 = 1_000_000_000 / 22_000;
const WRITE_LATENCY: u64 = 1_000_000_000 / 60_000;

/// CPUs of the document's machine, for which one drive was enough.
const CPUS_OF_A_DRIVE: usize = 24;

/// A simulated drive, or several side by side.
#[derive(Debug)]
pub struct Drive {
    places: u64,
    drives: u64,
    system_call: Duration,
    /// The time until which its bandwidth is taken, in virtual nanoseconds. No thread calls the platform while holding
    /// it.
    busy: Arc<Mutex<u64>>,
}

impl Drive {
    /// Drives for `places` blocks, on a machine with that many CPUs and that cost of a system call.
    pub fn new(places: u64, cpus: usize, system_call: Duration) -> Self {
        let drives = cpus.div_ceil(CPUS_OF_A_DRIVE).max(1) as u64;
        Self { places, drives, system_call, busy: Arc::default() }
    }
}

impl Store<Sim> for Drive {
    fn places(&self) -> u64 {
        self.places
    }

    fn describe(&self) -> String {
        let many = if self.drives == 1 { "a".to_owned() } else { self.drives.to_string() };
        format!("{many} simulated Samsung 980 PRO (7,000 and 5,000 MB/s, 45 and 17 us)")
    }

    fn lane(
        &self,
        places: Range<u64>,
        _in_flight: usize,
        _bell: &ParkBell,
    ) -> Result<Box<dyn Lane>, Error> {
        assert!(places.end <= self.places, "the lane is outside the store");
        let (busy, system_call) = (Arc::clone(&self.busy), self.system_call);
        let under_way = VecDeque::new();
        Ok(Box::new(DriveLane { busy, drives: self.drives, system_call, under_way }))
    }
}

#[derive(Debug)]
struct DriveLane {
    busy: Arc<Mutex<u64>>,
    drives: u64,
    system_call: Duration,
    /// By their ends.
    under_way: VecDeque<(Instant, Transfer)>,
}

impl Lane for DriveLane {
    fn start(&mut self, transfer: Transfer) -> Result<Option<Transfer>, Error> {
        Sim::charge(self.system_call);
        let now = Sim::now().as_nanos();
        let (rate, latency) = match transfer.direction {
            Direction::Read => (READ_RATE, READ_LATENCY),
            Direction::Write => (WRITE_RATE, WRITE_LATENCY),
        };
        let free = {
            let mut busy = self.busy.lock().expect("no thread panics while holding it");
            *busy = (*busy).max(now) + BLOCK_BYTES as u64 * 1000 / (rate * self.drives);
            *busy
        };
        let end = Instant::from_nanos(free + latency);
        let at = self.under_way.partition_point(|(other, _)| *other <= end);
        self.under_way.insert(at, (end, transfer));
        Ok(None)
    }

    fn reap(&mut self, finished: &mut Vec<Transfer>) -> Result<(), Error> {
        if self.under_way.is_empty() {
            return Ok(());
        }
        Sim::charge(self.system_call);
        let now = Sim::now();
        while self.under_way.front().is_some_and(|(end, _)| *end <= now) {
            finished.extend(self.under_way.pop_front().map(|(_, transfer)| transfer));
        }
        Ok(())
    }

    fn next_end(&self) -> Option<Instant> {
        self.under_way.front().map(|(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Bell as _;
    use crate::store::Buffer;
    use nearq_sim::Simulation;
    use nearq_topology::Topology;

    fn transfer(direction: Direction, slot: usize) -> Transfer {
        Transfer { direction, slot, place: 0, data: Buffer::new() }
    }

    #[test]
    fn transfers_end_after_their_latency_and_share_the_bandwidth() {
        let machine = Topology::from_synthetic("core:2").unwrap();
        let ends = Simulation::new(machine, 1).run(|| {
            let drive = Drive::new(8, 2, Duration::from_nanos(100));
            let mut lane = drive.lane(0..4, 4, &ParkBell::new().unwrap()).unwrap();
            let mut other = drive.lane(4..8, 4, &ParkBell::new().unwrap()).unwrap();
            let begin = Sim::now();
            assert!(lane.start(transfer(Direction::Read, 0)).unwrap().is_none());
            assert!(lane.start(transfer(Direction::Write, 1)).unwrap().is_none());
            assert!(other.start(transfer(Direction::Write, 2)).unwrap().is_none());
            let mut ended = Vec::new();
            lane.reap(&mut ended).unwrap();
            assert!(ended.is_empty(), "nothing ends at once");
            let mut slots = Vec::new();
            while let Some(end) = lane.next_end() {
                Sim::sleep(end - Sim::now());
                lane.reap(&mut ended).unwrap();
                slots.extend(
                    ended.drain(..).map(|transfer| (transfer.slot, (end - begin).as_nanos())),
                );
            }
            (slots, (other.next_end().unwrap() - begin).as_nanos())
        });
        let (slots, third) = ends.expect();
        let near = |measured: u128, expected: u128| {
            assert!((expected..expected + 2000).contains(&measured), "{measured} ns")
        };
        // The write overtakes the read, whose latency is longer, but waits for its bandwidth: 4.7 us, then 6.6 us each.
        assert_eq!((slots[0].0, slots[1].0), (1, 0));
        near(slots[0].1, 16_666 + 4_681 + 6_553);
        near(slots[1].1, 45_454 + 4_681);
        near(third, 16_666 + 4_681 + 2 * 6_553);
    }
}

//! Issuers on a queue for some seconds, and the throughput in that time.

use super::configuration::Scenario;
use super::payload::{Blocks, Cipher, Payload};
use crate::Error;
use crate::harness::{Census, Host, Role};
use crate::mailbox::Mailbox;
use crate::payload::{BLOCK_BYTES, SECTORS_PER_BLOCK};
use crate::scopes::{Counts, Executor, Item};
use crate::store::{Buffer, Direction, Lane, Store, Transfer};
use nearq_platform::{
    Atomic as _, AtomicInt as _, Instant, LockPlatform, Ordering, ThreadSpec, Threads,
};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

// An issuer: a thread that generates blocks, has them encrypted, stored, read back and decrypted, and verifies
// that it got its own data back.
//
// The path of a block, always with the same memory:
//
// ```text
// generate, SHA-512 ─► item: encrypt ─► write ─► read ─► item: decrypt ─► SHA-512, compare ─► generate ...
// issuer              worker       store    store       worker            issuer
// ```

/// An item or transfer that has not come back after this time never will.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(30);

/// What the issuers of a run share with the thread that watches it.
pub(super) struct Shared<H: Host> {
    /// Blocks that went the whole way and verified.
    verified: H::AtomicU64,
    /// If this is not zero, no new blocks are begun.
    stop: H::AtomicU32,
}

impl<H: Host> Shared<H> {
    pub(super) fn new() -> Self {
        Self { verified: H::AtomicU64::new(0), stop: H::AtomicU32::new(0) }
    }

    /// Blocks that went the whole way and verified so far.
    pub(super) fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// Makes the issuers begin no new blocks.
    pub(super) fn stop(&self) {
        self.stop.store(1, Ordering::Relaxed);
    }

    /// Whether the run is over.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockState {
    Idle,
    Encrypting,
    Writing,
    Reading,
    Decrypting,
}

/// A block that an issuer has in flight.
struct Slot<L: Payload> {
    state: BlockState,
    place: u64,
    proof: Proof<L>,
    cargo: Arc<Mutex<Cargo>>,
    encrypt: Box<dyn Item>,
    decrypt: Box<dyn Item>,
}

/// The items' part.
type CipherOf<L> = <<L as Payload>::Blocks as Blocks>::Cipher;
/// What a block is verified by.
type Proof<L> = <<L as Payload>::Blocks as Blocks>::Proof;

/// What items work on. The lock is never contended, because a block is in one place at a time; so it may be held while time passes on a
/// simulated machine.
struct Cargo {
    data: Option<Buffer>,
    first_sector: u64,
}

/// The cargo of a block, locked by the thread that has the block.
fn open(cargo: &Mutex<Cargo>) -> MutexGuard<'_, Cargo> {
    cargo.try_lock().expect("a block is in one place at a time, and items do not panic")
}

/// An issuer.
pub(super) struct Issuer<L: Payload> {
    shared: Arc<Shared<L::Host>>,
    blocks: L::Blocks,
    mailbox: Mailbox<L::Host>,
    slots: Vec<Slot<L>>,
    /// Places of the store that each slot chooses from.
    places_per_slot: u64,
    first_place: u64,
    lane: Box<dyn Lane>,
    in_flight: usize,
}

impl<L: Payload> Issuer<L> {
    /// An issuer with `in_flight` blocks that go to `places` of `store`.
    pub(super) fn new(
        shared: Arc<Shared<L::Host>>,
        executor: &dyn Executor,
        store: &dyn Store<L::Host>,
        places: Range<u64>,
        in_flight: usize,
        blocks: L::Blocks,
    ) -> Result<Self, Error> {
        let mailbox = Mailbox::new(in_flight)?;
        let cipher = blocks.cipher();
        let slots =
            (0..in_flight).map(|index| Slot::new(index, executor, &cipher, &mailbox)).collect();
        let places_per_slot = (places.end - places.start) / in_flight as u64;
        assert!(places_per_slot > 0, "the store has fewer places than blocks in flight");
        let lane = store.lane(places.clone(), in_flight, mailbox.bell())?;
        Ok(Self {
            shared,
            blocks,
            mailbox,
            slots,
            places_per_slot,
            first_place: places.start,
            lane,
            in_flight: 0,
        })
    }

    /// Runs until it is asked to stop and everything in flight is back, or until something fails; in that case the other issuers are asked
    /// to stop.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let result = self.circulate();
        if result.is_err() {
            self.shared.stop();
        }
        result
    }

    fn circulate(&mut self) -> Result<(), Error> {
        for slot in 0..self.slots.len() {
            self.begin(slot)?;
        }
        let mut transfers = Vec::new();
        while self.in_flight > 0 {
            let mut idle = true;
            while let Some(slot) = self.mailbox.take() {
                self.item_done(slot)?;
                idle = false;
            }
            self.lane.reap(&mut transfers)?;
            for transfer in transfers.drain(..) {
                self.transfer_done(transfer)?;
                idle = false;
            }
            if idle {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// Waits for a message, or for the end of a transfer.
    fn wait(&self) -> Result<(), Error> {
        match self.lane.next_end() {
            Some(end) => {
                self.mailbox.wait(end - <L::Host as nearq_platform::LockPlatform>::now());
                Ok(())
            }
            None if self.mailbox.wait(LOST_AFTER) => Ok(()),
            None => Err(self.lost()),
        }
    }

    fn lost(&self) -> Error {
        let seconds = LOST_AFTER.as_secs();
        let stuck: Vec<String> =
            self.slots.iter().map(|slot| format!("{:?}", slot.state)).collect();
        Error::run(format!(
            "no block came back for {seconds} s; {} blocks are: {}",
            self.in_flight,
            stuck.join(" ")
        ))
    }

    /// Generates the next block of a slot and queues its encryption, unless the run is over.
    fn begin(&mut self, index: usize) -> Result<(), Error> {
        let slot = &mut self.slots[index];
        slot.state = BlockState::Idle;
        if self.shared.stopped() {
            return Ok(());
        }
        let first = self.first_place + index as u64 * self.places_per_slot;
        slot.place = first + self.blocks.below(self.places_per_slot);
        {
            let mut cargo = open(&slot.cargo);
            cargo.first_sector = slot.place * SECTORS_PER_BLOCK;
            slot.proof = self.blocks.generate(cargo.data.as_mut().expect("the block is back"));
        }
        self.in_flight += 1;
        slot.queue(BlockState::Encrypting)
    }

    fn item_done(&mut self, index: usize) -> Result<(), Error> {
        match self.slots[index].state {
            BlockState::Encrypting => self.transfer(index, Direction::Write),
            BlockState::Decrypting => {
                self.in_flight -= 1;
                self.check(index)?;
                self.begin(index)
            }
            state => unreachable!("an item reported a block that is {state:?}"),
        }
    }

    fn transfer(&mut self, index: usize, direction: Direction) -> Result<(), Error> {
        let slot = &mut self.slots[index];
        slot.state =
            if direction == Direction::Write { BlockState::Writing } else { BlockState::Reading };
        let data = open(&slot.cargo).data.take().expect("the item is done");
        match self.lane.start(Transfer { direction, slot: index, place: slot.place, data })? {
            Some(transfer) => self.transfer_done(transfer),
            None => Ok(()),
        }
    }

    fn transfer_done(&mut self, transfer: Transfer) -> Result<(), Error> {
        let index = transfer.slot;
        let slot = &mut self.slots[index];
        open(&slot.cargo).data = Some(transfer.data);
        match transfer.direction {
            Direction::Write => self.transfer(index, Direction::Read),
            Direction::Read => slot.queue(BlockState::Decrypting),
        }
    }

    fn check(&mut self, index: usize) -> Result<(), Error> {
        let slot = &self.slots[index];
        let cargo = open(&slot.cargo);
        if !self.blocks.verify(cargo.data.as_ref().expect("the item is done"), &slot.proof) {
            let place = slot.place;
            return Err(Error::run(format!(
                "block {place} did not verify: the data read differs from the data written"
            )));
        }
        self.shared.verified.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl<L: Payload> Slot<L> {
    fn new(
        index: usize,
        executor: &dyn Executor,
        cipher: &CipherOf<L>,
        mailbox: &Mailbox<L::Host>,
    ) -> Self {
        let cargo = Arc::new(Mutex::new(Cargo { data: Some(Buffer::new()), first_sector: 0 }));
        let item = |work: fn(&CipherOf<L>, &mut Buffer, u64)| {
            let (cargo, cipher, post) = (Arc::clone(&cargo), cipher.clone(), mailbox.post());
            executor.item(Box::new(move || {
                let mut opened = open(&cargo);
                let first = opened.first_sector;
                work(&cipher, opened.data.as_mut().expect("the issuer put it there"), first);
                drop(opened);
                post.send(index);
            }))
        };
        let (encrypt, decrypt) = (item(Cipher::encrypt), item(Cipher::decrypt));
        Self {
            state: BlockState::Idle,
            place: 0,
            proof: Default::default(),
            cargo,
            encrypt,
            decrypt,
        }
    }

    fn queue(&mut self, state: BlockState) -> Result<(), Error> {
        self.state = state;
        let item = if state == BlockState::Encrypting { &self.encrypt } else { &self.decrypt };
        if item.queue() {
            return Ok(());
        }
        Err(Error::run(format!(
            "an item that had run counts as queued still, {state:?} block {}",
            self.place
        )))
    }
}

// One run: issuers on a queue for some seconds, and what went through in that time.

/// How long the watching thread sleeps between checks, at most.
const TICK: Duration = Duration::from_millis(20);

/// What a run measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Verified data per second of wall time, in MiB/s.
    pub throughput_mib_s: f64,
    /// CPU time of the process in percent of `cpus`.
    pub cpu_percent: f64,
    /// CPU time of an issuer in percent of wall time.
    pub issuer_cpu_percent: f64,
    /// How many of a hundred items were run by workers of other pods, and how often per hundred items a worker was brought back into its
    /// pod; `None` if the queue does not count.
    pub moved_percent: Option<(f64, f64)>,
}

/// A run to make.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    /// The time before the counted one that is not counted.
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
    /// The CPUs to which [`Measured::cpu_percent`] refers.
    pub(super) cpus: usize,
    pub(super) seed: u64,
}

/// What the issuers' threads share with the thread that watches them.
struct Crew<L: Payload> {
    shared: Arc<Shared<L::Host>>,
    executor: Arc<dyn Executor>,
    store: Arc<dyn Store<L::Host>>,
    payload: L,
    census: Census<L::Host>,
    /// Issuers that have not begun.
    missing: <L::Host as nearq_platform::LockPlatform>::AtomicU32,
    errors: Mutex<Vec<Error>>,
}

/// Makes a run on `executor`, whose workers enter `census`.
pub(super) fn run<L: Payload>(
    executor: Arc<dyn Executor>,
    store: Arc<dyn Store<L::Host>>,
    payload: L,
    census: Census<L::Host>,
    plan: &Plan,
) -> Result<Measured, Error> {
    let issuers = plan.scenario.issuers as u32;
    let crew = Arc::new(Crew {
        shared: Arc::new(Shared::new()),
        executor,
        store,
        payload,
        census,
        missing: <L::Host as nearq_platform::LockPlatform>::AtomicU32::new(issuers),
        errors: Mutex::default(),
    });
    let mut threads = Vec::new();
    for number in 0..u64::from(issuers) {
        let (issuing_crew, plan) = (Arc::clone(&crew), plan.clone());
        let spec = ThreadSpec { name: format!("issuer/{number}"), ..ThreadSpec::default() };
        match L::Host::spawn(spec, move || issuing_crew.issue(number, &plan)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                crew.fail(Error::run(format!("issuer {number} cannot be started: {error}")));
                (number..u64::from(issuers)).for_each(|_| crew.arrive());
                break;
            }
        }
    }
    crew.all_have_begun();
    crew.wait(plan.warm_up);
    let start = crew.reading();
    crew.wait(plan.duration);
    let end = crew.reading();
    crew.shared.stop();
    threads.into_iter().for_each(L::Host::join);
    let error = crew.errors.lock().expect("no thread panics while holding it").drain(..).next();
    error.map_or_else(|| Ok(end.since(&start, plan)), Err)
}

impl<L: Payload> Crew<L> {
    /// The body of an issuer's thread.
    fn issue(&self, number: u64, plan: &Plan) {
        let mut arrival = Arrival { crew: self, begun: false, ended: false };
        self.census.enter(Role::Issuer);
        let (issuers, in_flight) = (plan.scenario.issuers as u64, plan.scenario.in_flight);
        let places = self.store.places() / issuers;
        let own_places = number * places..(number + 1) * places;
        let blocks = self.payload.blocks(plan.seed ^ (number << 32));
        // The issuer is made by its own thread, so that its memory is close to that thread.
        let (shared, executor) = (Arc::clone(&self.shared), &*self.executor);
        let issuer =
            Issuer::<L>::new(shared, executor, &*self.store, own_places, in_flight, blocks);
        arrival.begun();
        if let Err(error) = issuer.and_then(Issuer::run) {
            self.fail(error);
        }
        arrival.ended = true;
    }

    /// Records that one more issuer has begun.
    fn arrive(&self) {
        // Release: pairs with the acquire in `all_have_begun`.
        if self.missing.fetch_sub(1, Ordering::Release) == 1 {
            L::Host::wake(&raw const self.missing, 1);
        }
    }

    /// Waits until every issuer has begun, or failed to.
    fn all_have_begun(&self) {
        loop {
            let missing = self.missing.load(Ordering::Acquire);
            if missing == 0 {
                return;
            }
            L::Host::wait(&self.missing, missing, None);
        }
    }

    /// Keeps the error, and ends the run.
    fn fail(&self, error: Error) {
        // No thread calls the platform while holding the lock.
        self.errors.lock().expect("no thread panics while holding it").push(error);
        self.shared.stop();
    }

    /// Waits for `duration`, or until the run is over.
    fn wait(&self, duration: Duration) {
        let end = L::Host::now() + duration;
        while !self.shared.stopped() {
            let left = end - L::Host::now();
            if left.is_zero() {
                return;
            }
            L::Host::sleep(left.min(TICK));
        }
    }

    fn reading(&self) -> Reading {
        Reading {
            at: L::Host::now(),
            cpu: self.census.cpu_time(),
            issuers_cpu: self.census.issuers_cpu_time(),
            counts: self.executor.counts(),
            blocks: self.shared.verified(),
        }
    }
}

/// An issuer's promise to begin and to end; an issuer that panics keeps it as well.
struct Arrival<'c, L: Payload> {
    crew: &'c Crew<L>,
    begun: bool,
    ended: bool,
}

impl<L: Payload> Arrival<'_, L> {
    fn begun(&mut self) {
        self.begun = true;
        self.crew.arrive();
    }
}

impl<L: Payload> Drop for Arrival<'_, L> {
    fn drop(&mut self) {
        if !self.ended {
            self.crew.fail(Error::run("an issuer panicked"));
        }
        if !self.begun {
            self.crew.arrive();
        }
    }
}

/// Time, CPU time and progress at one moment.
struct Reading {
    at: Instant,
    cpu: Duration,
    issuers_cpu: Duration,
    counts: Option<Counts>,
    blocks: u64,
}

impl Reading {
    fn since(&self, start: &Self, plan: &Plan) -> Measured {
        let wall = (self.at - start.at).as_secs_f64();
        let mib = (self.blocks - start.blocks) as f64 * BLOCK_BYTES as f64 / f64::from(1 << 20);
        let percent = |cpu: Duration, before: Duration, of: usize| {
            cpu.saturating_sub(before).as_secs_f64() / wall / of as f64 * 100.0
        };
        let moved = self.counts.zip(start.counts).map(|(end, start)| {
            let items = (end.completed - start.completed).max(1) as f64;
            let percent = |end: u64, start: u64| (end - start) as f64 / items * 100.0;
            let repatriated = percent(end.repatriated, start.repatriated);
            (percent(end.helped, start.helped), repatriated)
        });
        Measured {
            throughput_mib_s: mib / wall,
            cpu_percent: percent(self.cpu, start.cpu, plan.cpus),
            issuer_cpu_percent: percent(self.issuers_cpu, start.issuers_cpu, plan.scenario.issuers),
            moved_percent: moved,
        }
    }
}

#[cfg(test)]
#[path = "tests/run.rs"]
mod run_tests;

//! An issuer: a thread that generates blocks, has them encrypted, stored, read back and decrypted, and verifies
//! that it got its own data back.
//!
//! A block's way, always with the same memory:
//!
//! ```text
//! generate, SHA-512 ─► item: encrypt ─► write ─► read ─► item: decrypt ─► SHA-512, compare ─► generate ...
//!     issuer              worker       store    store       worker            issuer
//! ```

use crate::Error;
use crate::executor::{Executor, Item};
use crate::mailbox::Mailbox;
use crate::payload::{Digest, Generator, SECTORS_PER_BLOCK, Xts, digest, verify};
use crate::store::{Buffer, Direction, Lane, Store, Transfer};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An item or transfer that has not come back for this long never will.
const LOST_AFTER: Duration = Duration::from_secs(30);

/// What the issuers of a run share with the one who watches it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Blocks that went the whole way and verified.
    pub verified: AtomicU64,
    /// No new blocks are begun.
    pub stop: AtomicBool,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Encrypting,
    Writing,
    Reading,
    Decrypting,
}

/// A block that an issuer has in flight.
struct Slot {
    stage: Stage,
    place: u64,
    digest: Digest,
    cargo: Arc<Mutex<Cargo>>,
    encrypt: Box<dyn Item>,
    decrypt: Box<dyn Item>,
}

/// What items work on. The lock is never contended: a block is in one place at a time.
struct Cargo {
    data: Option<Buffer>,
    first_sector: u64,
}

/// An issuer.
pub(super) struct Issuer<'r> {
    shared: &'r Shared,
    generator: Generator,
    mailbox: Mailbox,
    slots: Vec<Slot>,
    /// Places of the store that each slot chooses from.
    places_per_slot: u64,
    first_place: u64,
    lane: Box<dyn Lane>,
    in_flight: usize,
}

impl<'r> Issuer<'r> {
    /// An issuer with `in_flight` blocks, whose data depends on `seed` and whose blocks go to `places` of `store`.
    pub(super) fn new(
        shared: &'r Shared,
        executor: &dyn Executor,
        store: &dyn Store,
        places: Range<u64>,
        in_flight: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        let mailbox = Mailbox::new().map_err(|error| Error::run(format!("eventfd: {error}")))?;
        let mut generator = Generator::new(seed);
        let mut keys = [[0; 32]; 2];
        generator.fill(keys.as_flattened_mut());
        let xts = Xts::new(&keys[0], &keys[1]);
        let slots =
            (0..in_flight).map(|index| Slot::new(index, executor, &xts, &mailbox)).collect();
        let places_per_slot = (places.end - places.start) / in_flight as u64;
        assert!(places_per_slot > 0, "the store has fewer places than blocks in flight");
        let lane = store.lane(places.clone(), in_flight, mailbox.bell())?;
        Ok(Self {
            shared,
            generator,
            mailbox,
            slots,
            places_per_slot,
            first_place: places.start,
            lane,
            in_flight: 0,
        })
    }

    /// Runs until told to stop and everything in flight is back, or until something fails; then the others are
    /// told to stop.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let result = self.circulate();
        if result.is_err() {
            self.shared.stop.store(true, Ordering::Relaxed);
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
            if idle && !self.mailbox.wait(LOST_AFTER) {
                return Err(self.lost());
            }
        }
        Ok(())
    }

    fn lost(&self) -> Error {
        let seconds = LOST_AFTER.as_secs();
        let stuck: Vec<String> =
            self.slots.iter().map(|slot| format!("{:?}", slot.stage)).collect();
        Error::run(format!(
            "nothing came back for {seconds} s; {} blocks are: {}",
            self.in_flight,
            stuck.join(" ")
        ))
    }

    /// Generates the next block of a slot and has it encrypted, unless the run is over.
    fn begin(&mut self, index: usize) -> Result<(), Error> {
        let slot = &mut self.slots[index];
        slot.stage = Stage::Idle;
        if self.shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let first = self.first_place + index as u64 * self.places_per_slot;
        slot.place = first + self.generator.below(self.places_per_slot);
        {
            let mut cargo = slot.cargo.lock().expect("items do not panic");
            cargo.first_sector = slot.place * SECTORS_PER_BLOCK;
            let data = cargo.data.as_mut().expect("the block is back");
            self.generator.fill(data);
            slot.digest = digest(data);
        }
        self.in_flight += 1;
        slot.queue(Stage::Encrypting)
    }

    fn item_done(&mut self, index: usize) -> Result<(), Error> {
        match self.slots[index].stage {
            Stage::Encrypting => self.transfer(index, Direction::Write),
            Stage::Decrypting => {
                self.in_flight -= 1;
                self.check(index)?;
                self.begin(index)
            }
            stage => unreachable!("an item reported a block that is {stage:?}"),
        }
    }

    fn transfer(&mut self, index: usize, direction: Direction) -> Result<(), Error> {
        let slot = &mut self.slots[index];
        slot.stage = if direction == Direction::Write { Stage::Writing } else { Stage::Reading };
        let data =
            slot.cargo.lock().expect("items do not panic").data.take().expect("the item is done");
        match self.lane.start(Transfer { direction, slot: index, place: slot.place, data })? {
            Some(transfer) => self.transfer_done(transfer),
            None => Ok(()),
        }
    }

    fn transfer_done(&mut self, transfer: Transfer) -> Result<(), Error> {
        let index = transfer.slot;
        let slot = &mut self.slots[index];
        slot.cargo.lock().expect("items do not panic").data = Some(transfer.data);
        match transfer.direction {
            Direction::Write => self.transfer(index, Direction::Read),
            Direction::Read => slot.queue(Stage::Decrypting),
        }
    }

    fn check(&mut self, index: usize) -> Result<(), Error> {
        let slot = &self.slots[index];
        let cargo = slot.cargo.lock().expect("items do not panic");
        if !verify(cargo.data.as_ref().expect("the item is done"), &slot.digest) {
            let place = slot.place;
            return Err(Error::run(format!(
                "block {place} did not verify: its SHA-512 is not that of the data written"
            )));
        }
        self.shared.verified.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Slot {
    fn new(index: usize, executor: &dyn Executor, xts: &Xts, mailbox: &Mailbox) -> Self {
        let cargo = Arc::new(Mutex::new(Cargo { data: Some(Buffer::new()), first_sector: 0 }));
        let item = |cipher: fn(&Xts, &mut [u8], u64)| {
            let (cargo, xts, post) = (Arc::clone(&cargo), xts.clone(), mailbox.post());
            executor.item(Box::new(move || {
                let mut locked = cargo.lock().expect("items do not panic");
                let first = locked.first_sector;
                cipher(&xts, locked.data.as_mut().expect("the issuer put it there"), first);
                drop(locked);
                post.send(index);
            }))
        };
        let (encrypt, decrypt) = (item(Xts::encrypt), item(Xts::decrypt));
        Self { stage: Stage::Idle, place: 0, digest: [0; 64], cargo, encrypt, decrypt }
    }

    fn queue(&mut self, stage: Stage) -> Result<(), Error> {
        self.stage = stage;
        let item = if stage == Stage::Encrypting { &self.encrypt } else { &self.decrypt };
        if item.queue() {
            return Ok(());
        }
        Err(Error::run(format!(
            "an item that had run counts as queued still, {stage:?} block {}",
            self.place
        )))
    }
}

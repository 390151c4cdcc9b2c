//! How an issuer learns that items and transfers are done: a bit for each block, and a bell to wait for.
//!
//! # Protocol
//!
//! A block is in one place at a time, so it has at most one message in flight: a bit is enough. The issuer takes messages without waiting;
//! if there are none, it sets `asleep`, checks once more, and waits for the bell. An item sets its bit and then, if `asleep` is set, clears
//! it and rings. All four accesses are `SeqCst`: of "set the bit, read `asleep`" and "set `asleep`, check" at least one sees the other, so
//! no message is missed during sleep. On Linux the kernel rings the same bell when a transfer ends.

use crate::Error;
use crate::harness::{Bell as _, Host};
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// What an item reports: the slot whose block it is done with.
pub type Message = usize;

/// Messages of a word.
const BITS: usize = u64::BITS as usize;

/// The receiving end, one for each issuer.
pub struct Mailbox<H: Host> {
    shared: Arc<Shared<H>>,
    /// Bits taken out of the word `at` and not yet given out.
    taken: u64,
    at: usize,
}

/// The sending end, one for each item.
pub struct Post<H: Host>(Arc<Shared<H>>);

struct Shared<H: Host> {
    words: Box<[H::AtomicU64]>,
    asleep: H::AtomicU32,
    bell: H::Bell,
}

impl<H: Host> Mailbox<H> {
    /// An empty mailbox for the messages below `slots`.
    pub fn new(slots: usize) -> Result<Self, Error> {
        let words = (0..slots.div_ceil(BITS).max(1)).map(|_| H::AtomicU64::new(0)).collect();
        let shared = Shared { words, asleep: H::AtomicU32::new(0), bell: H::Bell::new()? };
        Ok(Self { shared: Arc::new(shared), taken: 0, at: 0 })
    }

    /// A sending end.
    pub fn post(&self) -> Post<H> {
        Post(Arc::clone(&self.shared))
    }

    /// The bell, for transfers to ring.
    pub fn bell(&self) -> &H::Bell {
        &self.shared.bell
    }

    /// The next message, if there is one. Words are read in turn, so that no message waits without end.
    pub fn take(&mut self) -> Option<Message> {
        let words = &self.shared.words;
        for _ in 0..words.len() {
            if self.taken != 0 {
                break;
            }
            self.at = (self.at + 1) % words.len();
            let word = &words[self.at];
            // Relaxed: this read only avoids a swap; a read that sees nothing is repeated before the issuer sleeps.
            if word.load(Ordering::Relaxed) != 0 {
                // Acquire: pairs with the item's `fetch_or`; the item's changes of the block are visible.
                self.taken = word.swap(0, Ordering::Acquire);
            }
        }
        if self.taken == 0 {
            return None;
        }
        let bit = self.taken.trailing_zeros() as usize;
        self.taken &= self.taken - 1;
        Some(self.at * BITS + bit)
    }

    /// Waits until there is a message or the bell rang; false if neither happened within `longest`.
    pub fn wait(&self, longest: Duration) -> bool {
        let shared = &*self.shared;
        shared.asleep.store(1, Ordering::SeqCst);
        let waiting =
            self.taken != 0 || shared.words.iter().any(|word| word.load(Ordering::SeqCst) != 0);
        let rang = waiting || shared.bell.wait(longest);
        shared.asleep.store(0, Ordering::Relaxed);
        rang
    }
}

impl<H: Host> Post<H> {
    /// Sends a message, and wakes the issuer if it sleeps.
    ///
    /// # Panics
    /// If the same message was sent before and has not been taken: a block was in two places.
    pub fn send(&self, message: Message) {
        let bit = 1 << (message % BITS);
        let before = self.0.words[message / BITS].fetch_or(bit, Ordering::SeqCst);
        assert!(before & bit == 0, "block {message} was reported twice");
        let asleep = &self.0.asleep;
        if asleep.load(Ordering::SeqCst) != 0 && asleep.swap(0, Ordering::Relaxed) != 0 {
            self.0.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::{Linux, ThreadSpec};
    use nearq_sim::{Sim, Simulation};
    use nearq_topology::Topology;

    /// Two threads send many messages, each once; all arrive, each once.
    fn all_arrive<H: Host>(messages: usize) {
        let mut mailbox = Mailbox::<H>::new(messages * 2).unwrap();
        let send = |sender| {
            let post = mailbox.post();
            let main = move || (0..messages).for_each(|message| post.send(message * 2 + sender));
            H::spawn(ThreadSpec::default(), main).unwrap()
        };
        let senders = [send(0), send(1)];
        let mut seen = vec![false; messages * 2];
        let mut missing = seen.len();
        while missing > 0 {
            if let Some(message) = mailbox.take() {
                assert!(!std::mem::replace(&mut seen[message], true), "{message} came twice");
                missing -= 1;
            } else {
                assert!(mailbox.wait(Duration::from_secs(10)), "{missing} messages are missing");
            }
        }
        assert_eq!(mailbox.take(), None);
        senders.into_iter().for_each(H::join);
    }

    #[test]
    fn no_message_is_missed_by_a_sleeping_receiver() {
        all_arrive::<Linux>(20_000);
        for seed in 0..20 {
            let machine = Topology::from_synthetic("core:4").unwrap();
            Simulation::new(machine, seed).run(|| all_arrive::<Sim>(500)).expect();
        }
    }

    #[test]
    fn waiting_without_a_message_times_out() {
        let mut mailbox = Mailbox::<Linux>::new(70).unwrap();
        assert!(!mailbox.wait(Duration::from_millis(1)));
        mailbox.post().send(69);
        assert!(mailbox.wait(Duration::from_millis(1)));
        assert_eq!((mailbox.take(), mailbox.take()), (Some(69), None));
    }

    #[test]
    #[should_panic(expected = "block 3 was reported twice")]
    fn a_block_reported_twice_is_detected() {
        let mailbox = Mailbox::<Linux>::new(4).unwrap();
        mailbox.post().send(3);
        mailbox.post().send(3);
    }
}

//! The storm on a simulated machine: hackbench, of simulated processes.
//!
//! In each group every sender sends so many messages of 100 bytes to every receiver, in turn, each by a system call; a
//! receiver takes what there is for it and sleeps when there is nothing. What a message costs is a system call on each side and
//! the transfers of its socket's line between them; copying 100 bytes is in the system call.

use super::plan::Storm;
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering, Platform as _};
use nearq_sim::{AtomicU32, Sim};
use std::sync::Arc;
use std::time::Duration;

/// Messages that fit into a socket: `net.core.wmem_default`, 212,992 bytes, by the 768 that the kernel counts for a small one.
const ROOM: u32 = 277;

/// A socket: how many messages are in it. Who finds it full or empty waits on that number.
struct Socket(AtomicU32);

impl Socket {
    /// Puts a message in; waits while there is no room.
    fn send(&self) {
        loop {
            // Relaxed, here and below: the number is all that is shared.
            let before = self.0.load(Ordering::Relaxed);
            if before < ROOM {
                break;
            }
            Sim::wait(&self.0, before, None);
        }
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            Sim::wake(&raw const self.0, usize::MAX);
        }
    }

    /// Takes all messages out, at least one: how many.
    fn receive(&self) -> u32 {
        loop {
            let taken = self.0.swap(0, Ordering::Relaxed);
            if taken >= ROOM {
                Sim::wake(&raw const self.0, usize::MAX);
            }
            if taken > 0 {
                return taken;
            }
            Sim::wait(&self.0, 0, None);
        }
    }
}

/// Runs all of it, as the process that the others are children of; a system call takes so long.
pub(super) fn run(storm: Storm, call: Duration) {
    let mut children = Vec::with_capacity(storm.processes());
    for _ in 0..storm.groups {
        let sockets: Arc<[Socket]> = (0..storm.pairs).map(|_| Socket(AtomicU32::new(0))).collect();
        for receiver in 0..storm.pairs {
            let sockets = Arc::clone(&sockets);
            children.push(Sim::fork("receiver", move || {
                let mut left = storm.pairs * storm.messages;
                while left > 0 {
                    let taken = sockets[receiver].receive();
                    Sim::charge(call * taken);
                    left -= taken as usize;
                }
            }));
        }
        for _ in 0..storm.pairs {
            let sockets = Arc::clone(&sockets);
            children.push(Sim::fork("sender", move || {
                for _ in 0..storm.messages {
                    for socket in &*sockets {
                        Sim::charge(call);
                        socket.send();
                    }
                }
            }));
        }
    }
    // Nothing limits the number of simulated processes, so that none is refused.
    children.into_iter().flatten().for_each(Sim::wait_process);
}

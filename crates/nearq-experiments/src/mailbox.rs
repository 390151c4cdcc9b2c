//! How an issuer learns that items and transfers are done: a queue of small messages and a bell to wait for.
//!
//! # Protocol
//!
//! The issuer takes messages without waiting; when there are none it sets `asleep`, looks once more, and reads the
//! bell (an eventfd), which blocks until somebody rang. An item sends its message and then, if `asleep` is set,
//! clears it and rings. The fences order "send, read `asleep`" against "set `asleep`, look": at least one of the
//! two sides sees the other, so no message is slept over. The kernel rings the same bell when a transfer ends.

use crossbeam_channel::{Receiver, Sender};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// What an item reports: the slot whose block it is done with.
pub type Message = usize;

/// The receiving end, one for each issuer.
#[derive(Debug)]
pub struct Mailbox {
    messages: Receiver<Message>,
    post: Post,
}

/// The sending end, one for each item.
#[derive(Clone, Debug)]
pub struct Post {
    messages: Sender<Message>,
    bell: Bell,
}

/// What wakes the issuer.
#[derive(Clone, Debug)]
pub struct Bell(Arc<BellInner>);

#[derive(Debug)]
struct BellInner {
    asleep: AtomicBool,
    eventfd: File,
}

impl Mailbox {
    /// An empty mailbox.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes two integers and returns a new descriptor or -1.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let bell = Bell(Arc::new(BellInner {
            asleep: AtomicBool::new(false),
            eventfd: File::from(descriptor),
        }));
        let (sender, messages) = crossbeam_channel::unbounded();
        Ok(Self { messages, post: Post { messages: sender, bell } })
    }

    /// A sending end.
    pub fn post(&self) -> Post {
        self.post.clone()
    }

    /// The bell, for transfers to ring.
    pub fn bell(&self) -> &Bell {
        &self.post.bell
    }

    /// The next message, if there is one.
    pub fn take(&self) -> Option<Message> {
        self.messages.try_recv().ok()
    }

    /// Waits until there is a message or the bell rang; false when neither happened within `longest`.
    pub fn wait(&self, longest: Duration) -> bool {
        let bell = &self.post.bell.0;
        bell.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `Post::send`.
        fence(Ordering::SeqCst);
        let rang = !self.messages.is_empty() || bell.wait(longest);
        bell.asleep.store(false, Ordering::Relaxed);
        rang
    }
}

impl Post {
    /// Sends a message, and wakes the issuer if it sleeps.
    pub fn send(&self, message: Message) {
        // The mailbox is gone only after a failed run, when nobody waits for the message.
        let _ = self.messages.send(message);
        // Pairs with the fence in `Mailbox::wait`.
        fence(Ordering::SeqCst);
        let bell = &self.bell.0;
        if bell.asleep.load(Ordering::Relaxed) && bell.asleep.swap(false, Ordering::Relaxed) {
            // An eventfd that refuses to count means that the counter is full: the issuer will wake.
            let _ = (&bell.eventfd).write(&1_u64.to_ne_bytes());
        }
    }
}

impl BellInner {
    fn wait(&self, longest: Duration) -> bool {
        let mut poll =
            libc::pollfd { fd: self.eventfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one live pollfd, and the count says one.
        let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        if ready <= 0 {
            return ready < 0; // Interrupted by a signal: look again.
        }
        let _ = (&self.eventfd).read(&mut [0; 8]);
        true
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn no_message_is_slept_over() {
        const MESSAGES: usize = 20_000;
        let mailbox = Mailbox::new().unwrap();
        thread::scope(|scope| {
            for sender in 0..2 {
                let post = mailbox.post();
                scope.spawn(move || {
                    (0..MESSAGES).for_each(|message| post.send(message * 2 + sender))
                });
            }
            let mut seen = vec![false; MESSAGES * 2];
            let mut missing = seen.len();
            while missing > 0 {
                match mailbox.take() {
                    Some(message) => {
                        assert!(
                            !std::mem::replace(&mut seen[message], true),
                            "{message} came twice"
                        );
                        missing -= 1;
                    }
                    None => assert!(
                        mailbox.wait(Duration::from_secs(10)),
                        "{missing} messages are missing"
                    ),
                }
            }
        });
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn waiting_for_nothing_ends() {
        let mailbox = Mailbox::new().unwrap();
        assert!(!mailbox.wait(Duration::from_millis(1)));
        mailbox.post().send(3);
        assert!(mailbox.wait(Duration::from_millis(1)));
        assert_eq!(mailbox.take(), Some(3));
    }
}

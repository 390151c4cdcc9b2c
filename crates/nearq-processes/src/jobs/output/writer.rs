//! Writes the output of jobs to standard output and standard error, in a thread of its own, so that a slow reader delays nothing else.
//!
//! If the reader has closed its end, the program ends as if by SIGPIPE; other errors are reported.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::Around;

/// Why nothing more can be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The reader of standard output has closed it.
    Reader,
    /// Another error, in words.
    Failed(String),
}

/// A part of what a job has printed.
#[derive(Debug)]
struct Piece {
    is_error: bool,
    bytes: Vec<u8>,
}

/// The state that this thread shares with other threads.
#[derive(Debug)]
struct Shared {
    /// Bytes that have been handed over and not printed yet. A thread that finds that they are fewer finds `broken`, too, if it was set by
    /// then: released and acquired.
    waiting: AtomicU64,
    broken: OnceLock<Broken>,
    /// Becomes readable after each piece.
    event: OwnedFd,
}

/// The thread that prints, once it is started, and the state that it shares with other threads.
pub(super) struct Writer {
    shared: Arc<Shared>,
    sender: Option<Sender<Piece>>,
    around: Around,
    /// Everything goes to standard error.
    to_error: bool,
    /// How many bytes have been handed over in all.
    sent: u64,
}

impl Writer {
    pub(super) fn new(around: Around, to_error: bool) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared { waiting: AtomicU64::new(0), broken: OnceLock::new(), event };
        Ok(Self { shared: Arc::new(shared), sender: None, around, to_error, sent: 0 })
    }

    /// Passes the bytes on, to be written after everything that was sent before.
    pub(super) fn send(&mut self, stream: usize, bytes: Vec<u8>) {
        self.sent += bytes.len() as u64;
        // Relaxed: only this thread adds.
        self.shared.waiting.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let piece = Piece { is_error: stream == 1, bytes };
        if self.sender.is_none() {
            let (sender, receiver) = mpsc::channel::<Piece>();
            let (shared, around) = (Arc::clone(&self.shared), Arc::clone(&self.around));
            let to_error = self.to_error;
            let all = move || receiver.iter().for_each(|it| shared.print(&it, &around, to_error));
            if thread::Builder::new().name("printer".into()).spawn(all).is_ok() {
                self.sender = Some(sender);
            }
        }
        match &self.sender {
            // The thread lives as long as there is a sender.
            Some(sender) => drop(sender.send(piece)),
            // The jobs have reached a limit on processes; the next call may succeed in starting the thread.
            None => self.shared.print(&piece, &self.around, self.to_error),
        }
    }

    /// How many bytes have been handed over and not printed yet.
    pub(super) fn waiting(&self) -> u64 {
        // Acquire: pairs with the release in `print`.
        self.shared.waiting.load(Ordering::Acquire)
    }

    /// How many bytes have been handed over in all.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn broken(&self) -> Option<&Broken> {
        self.shared.broken.get()
    }

    /// Resets the descriptor, after it became readable.
    pub(super) fn noted(&self) {
        let mut count = [0; 8];
        // If it is not readable, there is nothing to reset.
        let _ = rustix::io::read(&self.shared.event, &mut count);
    }
}

impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl Shared {
    fn print(&self, piece: &Piece, around: &Around, to_error: bool) {
        if self.broken.get().is_none() {
            let (written, name) = if to_error || piece.is_error {
                (write(&io::stderr().lock(), &piece.bytes, around), "error")
            } else {
                (write(&io::stdout().lock(), &piece.bytes, around), "output")
            };
            let broken = match written {
                Ok(()) => None,
                // If no process reads standard error, the run continues.
                Err(Errno::PIPE) if piece.is_error => None,
                Err(Errno::PIPE) => Some(Broken::Reader),
                Err(error) => {
                    let error = io::Error::from(error);
                    Some(Broken::Failed(format!("standard {name} cannot be written: {error}")))
                }
            };
            if let Some(broken) = broken {
                // Only the first reason is kept.
                let _ = self.broken.set(broken);
            }
        }
        // Release: pairs with the acquire in `waiting`.
        self.waiting.fetch_sub(piece.bytes.len() as u64, Ordering::Release);
        // The count is far from overflowing.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// Writes to a terminal at once, and hides a progress bar on it meanwhile. The bar is not hidden while writing to a pipe, because a pipe
/// may block the thread.
fn write(to: &(impl AsFd + IsTerminal), bytes: &[u8], around: &Around) -> Result<(), Errno> {
    if !to.is_terminal() {
        return write_all(to.as_fd(), bytes);
    }
    let mut result = Ok(());
    around(&mut || result = write_all(to.as_fd(), bytes));
    result
}

/// Writes all bytes, even if another program has made the file non-blocking.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // After an interruption, the loop only tries again.
                let _ = poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;

    #[test]
    fn a_full_disk_is_an_error_and_a_non_blocking_file_is_not() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(write_all(full.as_fd(), b"x"), Err(Errno::NOSPC));
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
        let bytes = vec![7; 1 << 20];
        let sent = bytes.clone();
        let thread = thread::spawn(move || write_all(writer.as_fd(), &sent));
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(()));
        assert!(got == bytes);
    }
}

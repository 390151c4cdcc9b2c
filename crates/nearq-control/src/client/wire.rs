//! Bytes to and from a process, with one deadline for all that belongs to one answer: a process that sends a byte now and then is as
//! late as one that sends nothing.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A connection that never waits beyond its deadline.
#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    /// When it stops waiting; never if not set.
    pub(super) deadline: Option<Instant>,
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Wire { stream, deadline: None })
    }

    /// Does it as soon as it can be done.
    fn when(
        &mut self,
        what: PollFlags,
        mut attempt: impl FnMut(&mut UnixStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            // Checked even if there is always something to do.
            let left =
                self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match attempt(&mut self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => return done,
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.stream, what)], left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Wire {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.when(PollFlags::IN, |stream| stream.read(to))
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.when(PollFlags::OUT, |stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

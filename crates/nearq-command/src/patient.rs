//! Standard output and standard error, written completely even if they are non-blocking.
//!
//! A program that shares the descriptor (`ssh`, an event loop, an earlier job) may have made it non-blocking (`O_NONBLOCK`). Then the rest
//! of a long text is refused as soon as a pipe is full, and the standard library treats that as an error. The standard library also hides
//! that a descriptor is closed (`>&-`): before `main` it opens `/dev/null` in its place.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Whether standard output was closed when the program started. Written before there is a second thread.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the loader, and therefore before the standard library opens anything.
// SAFETY: the section has pointers to functions of this type, and this function needs nothing that is initialised later.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK_STDOUT: extern "C" fn() = {
    extern "C" fn check_stdout() {
        // SAFETY: numbers only.
        let is_closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
        // Relaxed: there is one thread.
        CLOSED.store(is_closed, Ordering::Relaxed);
    }
    check_stdout
};

/// A descriptor of this process, without a buffer; writing waits until it is possible.
#[derive(Debug)]
pub struct Patient(File);

impl Patient {
    /// The same open file as this descriptor.
    ///
    /// # Errors
    /// The descriptor is closed, or no further descriptor is available.
    pub fn of(descriptor: &impl AsFd) -> io::Result<Self> {
        let descriptor: BorrowedFd<'_> = descriptor.as_fd();
        Ok(Self(descriptor.try_clone_to_owned()?.into()))
    }

    /// Standard output.
    ///
    /// # Errors
    /// The same as of [`Patient::of`].
    pub fn stdout() -> io::Result<Self> {
        // Relaxed: written before this thread began.
        if CLOSED.load(Ordering::Relaxed) {
            return Err(Errno::BADF.into());
        }
        Self::of(&io::stdout())
    }

    /// Standard error: text that cannot be written there is lost.
    pub fn write_stderr(text: &str) {
        let _ = Self::of(&io::stderr()).and_then(|mut error| error.write_all(text.as_bytes()));
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None) {
                        // A signal interrupted the wait: the text is written nevertheless, as with a blocking descriptor.
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::thread;

    #[test]
    fn a_non_blocking_pipe_gets_the_whole_text() {
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let text = vec![b'x'; 1 << 20];
        let mut out = Patient::of(&writer).unwrap();
        drop(writer);
        let length = text.len();
        let writes = thread::spawn(move || out.write_all(&text));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        writes.join().unwrap().unwrap();
        assert_eq!(read.len(), length);
    }
}

//! The storm on the real machine: hackbench, rewritten. Groups of processes that send each other small messages through socket
//! pairs: in each group every sender sends `messages` messages to every receiver, in turn.
//!
//! The process that runs this has one thread, so its children may do anything after `fork`; they do nothing but read, write
//! and exit. Each ends by itself when all its messages are through, and is killed with its parent.

use super::super::plan::Storm;
use super::child::end_with_parent;
use crate::Error;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

/// Starts all processes, lets them go, and waits for them.
pub(super) fn run(groups: usize, pairs: usize, messages: usize) -> Result<(), Error> {
    let failed = |what: &'static str| {
        move |error: io::Error| {
            Error::run(format!(
                "a storm of {} processes: {what}: {error}; raise the limit on processes and open files, or use --quick",
                groups * pairs * 2
            ))
        }
    };
    // A process that reads from this pipe goes on when the last process that could write has closed it.
    let (gate, opener) = io::pipe().map_err(failed("pipe"))?;
    let mut children = Vec::with_capacity(groups * pairs * 2);
    for _ in 0..groups {
        let sockets: Vec<(UnixStream, UnixStream)> = (0..pairs)
            .map(|_| UnixStream::pair())
            .collect::<io::Result<_>>()
            .map_err(failed("socketpair"))?;
        for member in 0..2 * pairs {
            // SAFETY: this process has one thread, see the top of the file.
            let child = unsafe { libc::fork() };
            if child < 0 {
                return Err(failed("fork")(io::Error::last_os_error()));
            }
            if child == 0 {
                end_with_parent();
                drop(opener);
                let _ = (&gate).read(&mut [0]);
                let all = pairs * messages;
                let done = match sockets.get(member) {
                    Some((_, receiver)) => receive(receiver, all),
                    None => send(&sockets, messages),
                };
                // SAFETY: this ends the child at once: no code of the parent may run in it, and no buffer of the parent may be written.
                unsafe { libc::_exit(i32::from(done.is_err())) };
            }
            children.push(child);
        }
    }
    drop(opener);
    for child in children {
        let mut status = 0;
        // SAFETY: waits for a child of ours; the status is a live integer.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if ended < 0 || status != 0 {
            return Err(failed("a process failed")(io::Error::from(io::ErrorKind::BrokenPipe)));
        }
    }
    Ok(())
}

fn receive(mut from: &UnixStream, messages: usize) -> io::Result<()> {
    let mut message = [0; Storm::MESSAGE];
    (0..messages).try_for_each(|_| from.read_exact(&mut message))
}

fn send(to: &[(UnixStream, UnixStream)], messages: usize) -> io::Result<()> {
    let message = [0; Storm::MESSAGE];
    for _ in 0..messages {
        for (sender, _) in to {
            (&*sender).write_all(&message)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_every_sender_is_received() {
        let sockets: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        std::thread::scope(|scope| {
            for (_, receiver) in &sockets {
                scope.spawn(|| receive(receiver, 2 * 500).unwrap());
            }
            (0..2).for_each(|_| drop(scope.spawn(|| send(&sockets, 500).unwrap())));
        });
        for (_, receiver) in &sockets {
            receiver.set_nonblocking(true).unwrap();
            let more = { receiver }.read(&mut [0]).unwrap_err();
            assert_eq!(more.kind(), io::ErrorKind::WouldBlock, "nothing is left");
        }
    }
}

//! Properties of a Linux process that the traits do not cover: the rights that it was started with, its end, and its sockets' peers.

use std::io;
use std::os::fd::AsFd;

use super::Linux;
use crate::sys;

/// The process at the other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The number of the process that connected, or that listens, in the caller's namespace of processes; 0 if it has no number there.
    pub pid: u32,
    /// Its effective user at that time.
    pub user: u32,
}

impl Linux {
    /// Whether the program has more rights than the process that started it (set-user-ID, capabilities of its file): then the
    /// environment cannot be trusted.
    #[inline]
    pub fn has_more_rights() -> bool {
        sys::has_more_rights()
    }

    /// Calls `hook` when the program ends by `exit` or by returning from `main`, also in children of a fork that end in this way. Other
    /// threads may be running then.
    ///
    /// # Errors
    /// The C library has no memory to note it.
    pub fn at_exit(hook: extern "C" fn()) -> io::Result<()> {
        Ok(sys::at_exit(hook)?)
    }

    /// The process at the other end of a connected Unix socket.
    ///
    /// # Errors
    /// It is not a connected Unix socket.
    pub fn peer(socket: &impl AsFd) -> io::Result<Peer> {
        let (pid, user) = sys::peer(socket.as_fd())?;
        Ok(Peer { pid, user })
    }

    /// Whether the process that [`peer`](Self::peer) names still lives. If it does not, another process may have its number.
    ///
    /// # Errors
    /// The kernel does not know: it is older than Linux 6.5.
    pub fn peer_lives(socket: &impl AsFd) -> io::Result<bool> {
        Ok(sys::peer_lives(socket.as_fd())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know who a socket's peer is")]
    fn the_peer_of_a_pair_is_the_caller() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Linux::peer(&one).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert!(Linux::peer(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know who a socket's peer is")]
    fn an_exited_peer_is_detected() {
        let folder = std::env::temp_dir().join(format!("nearq-peer-{}", std::process::id()));
        let _ = std::fs::remove_file(&folder);
        let listener = std::os::unix::net::UnixListener::bind(&folder).unwrap();
        // SAFETY: the child makes one system call and ends; both are allowed after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // The peer is the process that listened last.
            // SAFETY: numbers only.
            unsafe {
                libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 1);
                libc::_exit(0);
            }
        }
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        let stream = UnixStream::connect(&folder).unwrap();
        std::fs::remove_file(&folder).unwrap();
        let (socket, _peer) = UnixStream::pair().unwrap();
        match Linux::peer_lives(&stream) {
            Ok(lives) => assert_eq!((lives, Linux::peer_lives(&socket).unwrap()), (false, true)),
            Err(_) => crate::skipped::skipped(
                "a socket whose process has ended",
                "this kernel does not report it",
                "Linux 6.5 or newer",
            ),
        }
    }
}

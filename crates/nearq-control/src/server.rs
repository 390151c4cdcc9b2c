//! The server: one thread per process, `nq/control`, which costs nothing while no client asks, and little whatever clients ask.
//!
//! | module | what it does |
//! |---|---|
//! | `process` | the process's own server: starts it, reports its status, follows forks, tidies up at the end |
//! | `service` | the thread: which connection is served next, and which has had enough |
//! | `connection` | one connection: bytes in, calls, bytes out |
//! | `answer` | from a call to its answer |
//! | `call` | what a call is, and how it is refused |
//! | `undo` | what is taken back when a connection ends |
//! | `budget` | CPU time |
//! | `limits` | the numbers |
//! | `descriptor` | open files that a fork's child must not keep |
//! | `interface` | what the server says about itself to varlink's tools |
//!
//! # Who may ask
//! The same user (effective) and root; the kernel identifies the caller. Others get `org.varlink.service.PermissionDenied`. Root may change
//! settings; others may if the access is [`Access::Full`].
//!
//! # What a client can do to the process
//! A client cannot slow down a worker: the thread takes no lock for longer than the target's own calls do, and is one ordinary thread with
//! 64 KiB of stack. A client cannot make the process use much CPU time: the thread pauses to make up for what clients cost beyond 5 % of a
//! CPU (`budget`), and connections are served in turn. A client cannot make the process use much memory: calls are bounded, and while 256
//! KiB of answers in all are unread, no further call is served. A client cannot keep other clients out: a call must be complete in 5 s, an
//! answer must be read, and when there are 16 connections, a new connection takes the place of one that was answered or never called
//! (`service`).

mod answer;
mod budget;
mod call;
mod connection;
mod descriptor;
mod interface;
mod limits;
mod process;
mod service;
mod undo;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

pub use process::{Status, ensure, status};

use crate::control_target::ControlTarget;
use crate::protocol::Access;
use crate::socket::Directory;
use service::{Listener, Service};

/// What a server allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What the server allows to users other than root.
    pub access: Access,
}

/// A separate server beside the process's own: for tests, and for programs that have something else to inspect. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    listener: Arc<Listener>,
    path: PathBuf,
    thread: Option<<Linux as Threads>::JoinHandle>,
    epoch: u64,
}

impl Server {
    /// Listens on a socket named by the process's number, in a directory of its own. The directory is made if needed; an existing directory
    /// must belong to the user and be closed to other users. No environment variable is read.
    ///
    /// # Errors
    /// The directory or the socket cannot be made, or the thread cannot be started; the error says which, in words.
    pub fn start(
        directory: &Path,
        target: Box<dyn ControlTarget>,
        options: Options,
    ) -> Result<Server, String> {
        descriptor::follow_forks();
        let listener = Arc::new(Listener::open(Directory::make(directory)?, |_| false)?);
        let path = listener.name().path();
        let served = Arc::clone(&listener);
        let main = move || {
            Service::new(served, target, options.access).run();
        };
        let thread = Linux::spawn(thread_spec(), main).map_err(|refused| {
            listener.name().remove();
            refused.to_string()
        })?;
        Ok(Server { listener, path, thread: Some(thread), epoch: Linux::fork_epoch() })
    }

    /// The path of the socket on which it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if Linux::fork_epoch() == self.epoch {
            self.listener.stop();
            Linux::join(thread);
        } else {
            // In the child of a fork: the thread belongs to the parent.
            std::mem::forget(thread);
        }
    }
}

fn thread_spec() -> ThreadSpec {
    ThreadSpec {
        name: "nq/control".into(),
        stack_size: Some(limits::STACK),
        ..ThreadSpec::default()
    }
}

/// Returns what a server answers to a client that has sent these pieces, until it closes the connection. Works without a socket, a thread
/// and a clock, for tests of what clients may send.
pub fn converse<'a>(
    target: Box<dyn ControlTarget>,
    access: Access,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    connection::converse(answer::Host::new(target, access), access, pieces)
}

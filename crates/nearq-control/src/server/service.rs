//! The server's thread: decides which connection is served next, and which is closed.
//!
//! While no client is connected it sleeps in `poll` without a time-out. Otherwise each turn reads the traces if it is time, serves one
//! connection and accepts one more. Then it waits until the CPU time that it has used is paid for (`budget`). `connections` is in the order
//! in which the connections were served: the first connection that needs service is served, and moves to the end. So a flood of calls or of
//! connections gets no more turns than other clients.
//!
//! # Sixteen connections
//! A further connection takes the place of the connection that was served longest ago: among those that never called, or else those without
//! a call under way, or else any that was answered before. Connections whose end undoes something keep their places; there are at most 12
//! of them. A connection whose first call or whose answer is under way also keeps its place: new connections wait in the kernel until it is
//! served, or until it has read nothing for too long. A new connection is read before the next is accepted, so a client that calls at once
//! is answered, whichever clients connect next.
//!
//! # What waits for what
//! Calls wait while answers of 256 KiB in all are unread. Then, and while there are sixteen connections, readers have half a second instead
//! of a minute.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearq_platform::Linux;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Stat;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketFlags};

use super::answer::Host;
use super::budget::{Budget, own_cpu_time};
use super::call::Error;
use super::connection::Connection;
use super::descriptor::Descriptor;
use super::limits::{ACCEPT_PAUSE, MOST_UNREAD, TRACE_INTERVAL};
use crate::control_target::ControlTarget;
use crate::protocol::{Access, MOST_CONNECTIONS, Refusal};
use crate::socket::{Directory, same};

/// The file of a socket.
#[derive(Debug)]
pub(super) struct Name {
    directory: Directory,
    name: String,
    made: Option<Stat>,
    pid: u32,
}

impl Name {
    /// The path of the file.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Removes the file, if it is still the one that was made, and this process has made it.
    pub(super) fn remove(&self) {
        let found = self.directory.stat(&self.name);
        if let (Some(made), Some(found)) = (&self.made, found) {
            if same(made, &found) && self.pid == std::process::id() {
                self.directory.remove(&self.name);
            }
        }
    }
}

/// A socket that is listened on.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Descriptor,
    name: Arc<Name>,
}

impl Listener {
    /// Listens on a socket named by the process's number. `gives_way` as for [`Directory::listen`].
    pub(super) fn open(
        directory: Directory,
        gives_way: impl FnOnce(UnixStream) -> bool,
    ) -> Result<Self, String> {
        let pid = std::process::id();
        let name = pid.to_string();
        directory.clean();
        let socket = Descriptor::open(crate::socket::new_socket)
            .map_err(|error| format!("cannot create a socket: {error}"))?;
        directory.listen(&name, &socket, gives_way)?;
        let made = directory.stat(&name);
        Ok(Listener { socket, name: Arc::new(Name { directory, name, made, pid }) })
    }

    pub(super) fn name(&self) -> &Arc<Name> {
        &self.name
    }

    /// Ends the thread that serves it.
    pub(super) fn stop(&self) {
        if self.socket.is_unchanged() {
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }
}

/// Why the thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was asked to end.
    Stopped,
    /// The program has closed the socket.
    Lost,
}

/// The thread's state.
pub(super) struct Service {
    listener: Arc<Listener>,
    host: Host,
    /// The connections; the one that was served longest ago is first.
    connections: Vec<Connection>,
    budget: Budget,
    /// The time until which no connection is accepted.
    paused: Option<Instant>,
    /// When traces are read next.
    traced: Instant,
}

impl Service {
    /// Makes the state. Must be called by the thread that will serve.
    pub(super) fn new(
        listener: Arc<Listener>,
        target: Box<dyn ControlTarget>,
        access: Access,
    ) -> Self {
        let now = Instant::now();
        Service {
            listener,
            host: Host::new(target, access),
            connections: Vec::new(),
            budget: Budget::new(now, own_cpu_time()),
            paused: None,
            traced: now,
        }
    }

    /// Serves until it is asked to stop.
    pub(super) fn run(mut self) -> End {
        let end = loop {
            let done = match self.budget.pause(Instant::now(), own_cpu_time()) {
                // Only a request to end is noticed.
                Some(pause) => {
                    let listener = PollFd::new(&self.listener.socket, PollFlags::empty());
                    self.poll(&mut [listener], Some(pause))
                }
                None => self.turn(),
            };
            if let Err(end) = done {
                break end;
            }
        };
        for connection in &mut self.connections {
            self.host.end(&mut connection.session);
        }
        match end {
            End::Stopped => self.listener.name.remove(),
            // The numbers of the descriptors belong to the program now.
            End::Lost => std::mem::forget(self),
        }
        end
    }

    /// Waits until there is something to do, and does one thing of each kind.
    fn turn(&mut self) -> Result<(), End> {
        self.send_traces();
        let (accept, events) = self.wait()?;
        let now = Instant::now();
        let (may_call, crowded) = (self.may_call(), self.is_crowded());
        let mut next = None;
        for (index, (connection, event)) in self.connections.iter_mut().zip(events).enumerate() {
            if event.contains(PollFlags::NVAL) {
                connection.close();
            } else if connection.has_call() && may_call
                || !connection.poll_flags().is_empty() && !event.is_empty()
            {
                next.get_or_insert(index);
            } else if !event.is_empty() {
                // The client has gone away while its calls had to wait.
                connection.close();
            } else if connection.deadline(crowded).is_some_and(|deadline| deadline <= now) {
                connection.expire();
            }
        }
        if let Some(index) = next {
            self.connections[index].step(&mut self.host, may_call);
            self.connections[index..].rotate_left(1);
        }
        self.sweep();
        // The connection that was to be replaced may have called since.
        if accept && self.can_admit() { self.accept() } else { Ok(()) }
    }

    /// Whether few enough bytes are unread for calls to be served.
    fn may_call(&self) -> bool {
        self.connections.iter().map(Connection::unread).sum::<usize>() < MOST_UNREAD
    }

    /// Whether other clients may be waiting for capacity.
    fn is_crowded(&self) -> bool {
        self.is_full() || !self.may_call()
    }

    fn is_full(&self) -> bool {
        self.connections.len() >= MOST_CONNECTIONS
    }

    fn can_admit(&self) -> bool {
        !self.is_full() || self.replaceable().is_some()
    }

    /// The connection that a new one replaces.
    fn replaceable(&self) -> Option<usize> {
        let candidates = self.connections.iter().enumerate();
        let candidates = candidates.filter_map(|(index, one)| Some((one.gives_way()?, index)));
        candidates.min().map(|(_, index)| index)
    }

    /// Waits for events of the listening socket and of the connections. Returns whether a client wants to connect, and the events of each
    /// connection.
    fn wait(&mut self) -> Result<(bool, Vec<PollFlags>), End> {
        let now = Instant::now();
        self.paused = self.paused.filter(|until| *until > now);
        let accepts = self.can_admit() && self.paused.is_none();
        let accept = if accepts { PollFlags::IN } else { PollFlags::empty() };
        let mut wanted = vec![PollFd::new(&self.listener.socket, accept)];
        let connections = self.connections.iter();
        wanted.extend(connections.map(|one| PollFd::new(one.socket(), one.poll_flags())));
        self.poll(&mut wanted, self.timeout(now))?;
        let mut events = wanted.iter().map(PollFd::revents);
        let accept = events.next().is_some_and(|event| !event.is_empty());
        Ok((accept, events.collect()))
    }

    /// Waits for any of these, of which the first is the listening socket.
    fn poll(&self, wanted: &mut [PollFd<'_>], time: Option<Duration>) -> Result<(), End> {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        if let Err(error) = rustix::event::poll(wanted, time.as_ref()) {
            // The call was interrupted, by a debugger for example, or there was no memory: continue as if nothing had happened, but not at
            // once.
            if error != Errno::INTR {
                std::thread::sleep(TRACE_INTERVAL);
            }
            wanted.iter_mut().for_each(PollFd::clear_revents);
        }
        if wanted[0].revents().intersects(PollFlags::NVAL | PollFlags::HUP) {
            return Err(if self.listener.socket.is_unchanged() { End::Stopped } else { End::Lost });
        }
        Ok(())
    }

    /// How long the thread has nothing to do unless a socket becomes ready.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        let (may_call, crowded) = (self.may_call(), self.is_crowded());
        let connections = self.connections.iter().filter_map(|connection| {
            if connection.has_call() && may_call { Some(now) } else { connection.deadline(crowded) }
        });
        let next = connections.chain(self.next_trace()).chain(self.paused).min();
        next.map(|next| next.saturating_duration_since(now))
    }

    fn next_trace(&self) -> Option<Instant> {
        (self.host.tracing() > 0).then_some(self.traced)
    }

    fn send_traces(&mut self) {
        let now = Instant::now();
        if self.next_trace().is_none_or(|next| next > now) {
            return;
        }
        let mut more = false;
        for index in 0..self.connections.len() {
            more |= self.may_call() && self.connections[index].trace();
        }
        self.traced = if more { now } else { now + TRACE_INTERVAL };
    }

    fn accept(&mut self) -> Result<(), End> {
        let listener = &self.listener.socket;
        if !listener.is_unchanged() {
            return Err(End::Lost);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match Descriptor::open(|| rustix::net::accept_with(listener, flags)) {
            Ok(socket) => self.admit(socket),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            // No file or no memory is available.
            Err(_) => self.paused = Some(Instant::now() + ACCEPT_PAUSE),
        }
        Ok(())
    }

    /// Handles a new connection: determines its user, finds a place for it, and reads what the client may have sent already.
    fn admit(&mut self, socket: Descriptor) {
        let Ok(peer) = Linux::peer(&socket) else { return };
        let Some(allowed) = self.host.allowed(peer.user) else {
            // The answer fits, because nothing was sent before.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(&socket, &Error::PermissionDenied.message(), flags);
            return;
        };
        if self.is_full() {
            if let Some(index) = self.replaceable() {
                let why = "this connection was idle while others wanted to connect".to_owned();
                self.connections[index].part(&Error::Refused(Refusal::Busy { why }));
                self.sweep();
            }
        }
        let mut connection = Connection::new(socket, allowed);
        connection.step(&mut self.host, false);
        self.connections.push(connection);
        self.sweep();
    }

    /// Removes the connections that must be closed.
    fn sweep(&mut self) {
        self.connections.retain_mut(|connection| {
            if connection.is_over() {
                self.host.end(&mut connection.session);
                self.paused = None;
            }
            !connection.is_over()
        });
    }
}

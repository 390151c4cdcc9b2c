//! The thread: who is served next, who has had enough.
//!
//! While nobody is connected it sleeps in `poll` without a time-out. Otherwise each turn serves one: of those that have something to be
//! done, the one that has cost least so far. To accept a connection is one of these things, with an account of its own. So a flood of
//! calls or of connections takes its share and no more; one who comes seldom is served next. An account that lies idle saves no more than
//! [`LAG`].
//!
//! # Sixteen connections
//! A connection more makes room for itself: the one gives way that has never called and is the oldest of those; else the one that was
//! quiet for longest, if that is a second, or a quarter of one with an answer that it does not read, or a minute where its end takes
//! something back. Where there is none, new ones are left waiting in the kernel for two seconds, then told `Busy`. At most 12 can be such that their end takes something back. A new
//! connection is read before the next is accepted, so one that asks at once is answered, whoever else comes.
//!
//! # What waits for what
//! Calls wait while answers of 256 KiB in all lie unread. Then, and while sixteen are connected, readers have half a second, not ten. A
//! connection has 200 calls a second. Everything but traces waits while the CPU time is in debt.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearq_platform::Linux;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Stat;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};

use super::answer::Host;
use super::budget::{Budget, Meter};
use super::call::Error;
use super::connection::{Connection, Wants};
use super::descriptor::Descriptor;
use super::limits::{
    ACCEPT_PAUSE, MOST_READ, MOST_UNREAD, ROOM_PATIENCE, ROOM_PAUSE, TRACE_INTERVAL,
};
use crate::protocol::{Access, MOST_CONNECTIONS, Refusal};
use crate::socket::{Directory, same};
use crate::subject::Subject;

/// CPU time that one account may be behind the others: what it would be served in one go.
const LAG: Duration = Duration::from_millis(5);

/// The file of a socket.
#[derive(Debug)]
pub(super) struct Name {
    directory: Directory,
    name: String,
    made: Option<Stat>,
    pid: u32,
}

impl Name {
    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Removes the file, if it is still the one that was made, and this process has made it.
    pub(super) fn remove(&self) {
        let found = self.directory.stat(&self.name);
        if let (Some(made), Some(found)) = (&self.made, found)
            && same(made, &found)
            && self.pid == std::process::id()
        {
            self.directory.remove(&self.name);
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
            .map_err(|error| format!("cannot make a socket: {error}"))?;
        directory.listen(&name, &socket, gives_way)?;
        let made = directory.stat(&name);
        Ok(Listener { socket, name: Arc::new(Name { directory, name, made, pid }) })
    }

    pub(super) fn name(&self) -> &Arc<Name> {
        &self.name
    }
}

/// Why the thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was told to.
    Stopped,
    /// The program has closed the socket.
    Lost,
}

/// What there is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Accept,
    Connection(usize),
}

/// The thread's state.
pub(super) struct Service {
    listener: Listener,
    stop: Option<Descriptor>,
    host: Host,
    connections: Vec<Connection>,
    meter: Meter,
    budget: Budget,
    trace_budget: Budget,
    /// What accepting has cost.
    accepting: Duration,
    /// What the account that was served last had cost.
    pace: Duration,
    /// Until when nothing is accepted.
    paused: Option<Instant>,
    /// Since when there is no room for who wants to connect.
    without_room: Option<Instant>,
    /// When traces are looked at next.
    traced: Instant,
    scratch: Vec<u8>,
}

impl Service {
    pub(super) fn new(
        listener: Listener,
        stop: Option<Descriptor>,
        subject: Box<dyn Subject>,
        access: Access,
    ) -> Self {
        let now = Instant::now();
        Service {
            listener,
            stop,
            host: Host::new(subject, access),
            connections: Vec::new(),
            meter: Meter::new(),
            budget: Budget::new(now),
            trace_budget: Budget::new(now),
            accepting: Duration::ZERO,
            pace: Duration::ZERO,
            paused: None,
            without_room: None,
            traced: now,
            scratch: Vec::new(),
        }
    }

    /// Serves until it is told to stop.
    pub(super) fn run(mut self) -> End {
        // The clock of the thread that runs, which need not be the one that made it.
        self.meter = Meter::new();
        let end = loop {
            self.look_at_traces();
            let now = Instant::now();
            if let Some(debt) = self.budget.debt(now) {
                if self.rest(now, debt) {
                    break End::Stopped;
                }
                continue;
            }
            match self.turn(now) {
                Ok(()) => {}
                Err(end) => break end,
            }
        };
        for connection in &mut self.connections {
            self.host.end(&mut connection.session);
        }
        match end {
            End::Stopped => self.listener.name.remove(),
            // Its numbers are the program's now.
            End::Lost => std::mem::forget(self),
        }
        end
    }

    /// Waits without looking at any connection. True if told to stop.
    fn rest(&self, now: Instant, debt: Duration) -> bool {
        let wake = [Some(now + debt), self.next_trace()].into_iter().flatten().min();
        let time = wake.map(|wake| wake.saturating_duration_since(now));
        let mut stop: Vec<_> =
            self.stop.iter().map(|stop| PollFd::new(stop, PollFlags::IN)).collect();
        let rung = rustix::event::poll(&mut stop, time.and_then(timespec).as_ref());
        rung.is_ok_and(|count| count > 0)
    }

    /// Waits until there is something to be done, and does one thing.
    fn turn(&mut self, now: Instant) -> Result<(), End> {
        let events = self.wait(now)?;
        let now = Instant::now();
        let (full, crowded) = (self.is_full(), self.is_crowded());
        let mut ready = Vec::with_capacity(self.connections.len() + 1);
        if events.accept {
            ready.push((self.accepting, Next::Accept));
        }
        for (index, connection) in self.connections.iter_mut().enumerate() {
            let event = events.connections[index];
            let can_be_served =
                connection.has_call() && !crowded && connection.resting(now).is_none();
            let wants = connection.wants();
            if event.contains(PollFlags::NVAL) {
                connection.close();
            } else if can_be_served || wants != Wants::Nothing && !event.is_empty() {
                ready.push((connection.charged, Next::Connection(index)));
            } else if !event.is_empty() {
                // It has gone while its calls had to wait.
                connection.close();
            } else if connection.deadline(crowded || full).is_some_and(|deadline| deadline <= now) {
                connection.expire(now);
            }
        }
        let next = ready.into_iter().min_by_key(|(charged, _)| *charged);
        self.charge();
        if let Some((charged, next)) = next {
            self.pace = self.pace.max(charged);
            self.serve(next)?;
        }
        self.sweep();
        self.charge();
        Ok(())
    }

    /// Takes what was used since the last look out of the budget.
    fn charge(&mut self) -> Duration {
        let spent = self.meter.spent();
        self.budget.charge(spent);
        spent
    }

    fn serve(&mut self, next: Next) -> Result<(), End> {
        let account = self.pace.saturating_sub(LAG);
        match next {
            Next::Accept => {
                self.accept()?;
                let cost = self.charge();
                self.accepting = self.accepting.max(account) + cost;
            }
            Next::Connection(index) => {
                let may_call = !self.is_crowded();
                let connection = &mut self.connections[index];
                connection.step(&mut self.host, &mut self.scratch, may_call);
                let cost = self.charge();
                let connection = &mut self.connections[index];
                connection.charged = connection.charged.max(account) + cost;
            }
        }
        Ok(())
    }

    /// Whether so much lies unread that no call is served.
    fn is_crowded(&self) -> bool {
        self.unread() >= MOST_UNREAD
    }

    /// Whether somebody else may be waiting for a place.
    fn is_full(&self) -> bool {
        self.connections.len() >= MOST_CONNECTIONS
    }

    fn unread(&self) -> usize {
        self.connections.iter().map(Connection::unread).sum()
    }

    /// Waits for whatever there is to wait for.
    fn wait(&self, now: Instant) -> Result<Events, End> {
        let mut wanted = Vec::with_capacity(self.connections.len() + 2);
        let accept = if self.paused.is_none_or(|until| until <= now) {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        wanted.push(PollFd::new(&self.listener.socket, accept));
        for connection in &self.connections {
            let flags = match connection.wants() {
                Wants::Bytes => PollFlags::IN,
                Wants::End => PollFlags::RDHUP,
                Wants::Sending => PollFlags::OUT,
                Wants::Nothing => PollFlags::empty(),
            };
            wanted.push(PollFd::new(connection.socket(), flags));
        }
        wanted.extend(self.stop.iter().map(|stop| PollFd::new(stop, PollFlags::IN)));
        let timeout = self.timeout(now).and_then(timespec);
        match rustix::event::poll(&mut wanted, timeout.as_ref()) {
            Ok(_) => {}
            // Somebody's debugger.
            Err(Errno::INTR) => wanted.iter_mut().for_each(PollFd::clear_revents),
            // No memory for it: as if nothing had happened, but not at once.
            Err(_) => {
                std::thread::sleep(TRACE_INTERVAL);
                wanted.iter_mut().for_each(PollFd::clear_revents);
            }
        }
        let events: Vec<PollFlags> = wanted.iter().map(PollFd::revents).collect();
        if events[0].contains(PollFlags::NVAL) {
            return Err(End::Lost);
        }
        let connections = self.connections.len();
        if events[connections + 1..].iter().any(|event| !event.is_empty()) {
            return Err(End::Stopped);
        }
        Ok(Events { accept: !events[0].is_empty(), connections: events[1..=connections].to_vec() })
    }

    /// How long nothing will have to be done unless a socket tells.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        let (full, crowded) = (self.is_full(), self.is_crowded());
        let connections = self.connections.iter().flat_map(|connection| {
            let serve =
                (connection.has_call() && !crowded).then(|| connection.resting(now).unwrap_or(now));
            [serve, connection.deadline(crowded || full)]
        });
        let paused = self.paused.filter(|until| *until > now);
        let next = connections.chain([self.next_trace(), paused]).flatten().min();
        next.map(|next| next.saturating_duration_since(now))
    }

    fn next_trace(&self) -> Option<Instant> {
        (self.host.tracing() > 0).then_some(self.traced)
    }

    fn look_at_traces(&mut self) {
        let now = Instant::now();
        if self.next_trace().is_none_or(|next| next > now) {
            return;
        }
        self.charge();
        for index in 0..self.connections.len() {
            let room = MOST_UNREAD.saturating_sub(self.unread());
            let connection = &mut self.connections[index];
            if room > 0 && connection.session.is_tracing() {
                connection.trace(room);
            }
        }
        self.trace_budget.charge(self.meter.spent());
        let debt = self.trace_budget.debt(now).unwrap_or_default();
        self.traced = now + debt.max(TRACE_INTERVAL);
    }

    fn accept(&mut self) -> Result<(), End> {
        self.paused = None;
        if self.leaves_waiting(Instant::now()) {
            return Ok(());
        }
        let listener = &self.listener.socket;
        if !listener.is_ours() {
            return Err(End::Lost);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match Descriptor::open(|| rustix::net::accept_with(listener, flags)) {
            Ok(socket) => self.admit(socket),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            // No file or no memory is to be had.
            Err(_) => self.paused = Some(Instant::now() + ACCEPT_PAUSE),
        }
        Ok(())
    }

    /// Whether who wants to connect is to wait for a connection to give way. They wait in the kernel, in their order.
    fn leaves_waiting(&mut self, now: Instant) -> bool {
        let room = !self.is_full()
            || self.connections.iter().any(|connection| connection.gives_way(now).is_some());
        if room {
            self.without_room = None;
            return false;
        }
        let since = *self.without_room.get_or_insert(now);
        let waits = now.saturating_duration_since(since) < ROOM_PATIENCE;
        if waits {
            self.paused = Some(now + ROOM_PAUSE);
        }
        waits
    }

    /// A new connection: asks who it is, finds a place for it, and serves what it may have sent already.
    fn admit(&mut self, socket: Descriptor) {
        let Ok(peer) = Linux::peer(&socket) else { return };
        let Some(allowed) = self.host.allowed(peer.user) else {
            turn_away(&socket, &Error::PermissionDenied);
            return;
        };
        let now = Instant::now();
        if self.is_full() && !self.make_room(now) {
            let why = format!(
                "{MOST_CONNECTIONS} connections are open, as many as may be, and all in use"
            );
            turn_away(&socket, &Error::Refused(Refusal::Busy { why }));
            return;
        }
        self.scratch.resize(MOST_READ, 0);
        let mut connection = Connection::new(socket, allowed, now);
        connection.charged = self.pace;
        let may_call = !self.is_crowded();
        connection.step(&mut self.host, &mut self.scratch, may_call);
        self.connections.push(connection);
    }

    /// Closes the connection that can be spared most, if one can.
    fn make_room(&mut self, now: Instant) -> bool {
        let spare = self.connections.iter_mut().filter_map(|connection| {
            let order = connection.gives_way(now)?;
            Some((order, connection))
        });
        let Some((_, connection)) = spare.min_by_key(|(order, _)| *order) else { return false };
        let why = "others wanted to connect, and this connection was idle".to_owned();
        connection.part(&Error::Refused(Refusal::Busy { why }), now);
        connection.close();
        self.sweep();
        true
    }

    /// Takes leave of those that are to be closed.
    fn sweep(&mut self) {
        let mut index = 0;
        while index < self.connections.len() {
            if self.connections[index].is_over() {
                let mut connection = self.connections.swap_remove(index);
                self.host.end(&mut connection.session);
                self.paused = None;
            } else {
                index += 1;
            }
        }
        if self.connections.is_empty() {
            self.scratch = Vec::new();
        }
    }
}

/// What has happened to each socket.
struct Events {
    accept: bool,
    connections: Vec<PollFlags>,
}

/// Says why, and hopes that it is read: the connection is closed by who drops it.
fn turn_away(socket: &Descriptor, error: &Error) {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(socket, &error.message(), flags);
}

fn timespec(time: Duration) -> Option<Timespec> {
    Timespec::try_from(time).ok()
}

//! One connection: bytes in, calls, bytes out.
//!
//! A call is served once the answer to the previous call has been sent, so a connection has at most one pending answer. Nothing is read
//! while a whole call waits or an answer must be sent: anything else that a client sends stays in the kernel, which then blocks the client.

use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::answer::{Host, Session};
use super::call::Error;
use super::descriptor::Descriptor;
use super::limits::{CALL_PATIENCE, CROWDED_PATIENCE, MOST_READ, READ_PATIENCE};
use crate::protocol::{Access, LONGEST_CALL, Refusal};

/// The bytes received: up to a whole call, and what was read together with its end.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// Leading bytes known to hold no zero byte.
    searched: usize,
    /// When the first byte of a call arrived.
    begun: Option<Instant>,
}

impl Input {
    /// How many bytes may still be read.
    fn space(&self) -> usize {
        LONGEST_CALL - self.bytes.len()
    }

    fn add(&mut self, bytes: &[u8], now: Instant) {
        self.begun.get_or_insert(now);
        self.bytes.extend_from_slice(bytes);
        self.search();
    }

    fn search(&mut self) {
        let end = self.bytes[self.searched..].iter().position(|&byte| byte == 0);
        self.searched = end.map_or(self.bytes.len(), |end| self.searched + end);
    }

    /// Whether there is a whole call.
    fn is_whole(&self) -> bool {
        self.searched < self.bytes.len()
    }

    /// The first whole call, without its zero byte.
    fn take(&mut self, now: Instant) -> Option<Vec<u8>> {
        if !self.is_whole() {
            return None;
        }
        let rest = self.bytes.split_off(self.searched + 1);
        let mut call = std::mem::replace(&mut self.bytes, rest);
        call.pop();
        self.begun = (!self.bytes.is_empty()).then_some(now);
        self.searched = 0;
        self.search();
        Some(call)
    }
}

/// One connection.
pub(super) struct Connection {
    socket: Descriptor,
    input: Input,
    output: Vec<u8>,
    /// How many bytes of the output were sent.
    sent: usize,
    /// When something was last queued for sending, or sent.
    progress: Instant,
    pub(super) session: Session,
    /// Whether the client has made a call before.
    called: bool,
    /// Whether the other end has stopped sending.
    ended: bool,
    /// Whether the connection must be closed now.
    over: bool,
}

impl Connection {
    pub(super) fn new(socket: Descriptor, allowed: Access) -> Self {
        Connection {
            socket,
            input: Input::default(),
            output: Vec::new(),
            sent: 0,
            progress: Instant::now(),
            session: Session::new(allowed),
            called: false,
            ended: false,
            over: false,
        }
    }

    pub(super) fn socket(&self) -> &Descriptor {
        &self.socket
    }

    /// Whether it must be closed.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn close(&mut self) {
        self.over = true;
    }

    /// Bytes of the answer that were not read.
    pub(super) fn unread(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether a whole call has been received and nothing in this connection prevents serving it.
    pub(super) fn has_call(&self) -> bool {
        self.unread() == 0 && !self.session.is_tracing() && self.input.is_whole()
    }

    /// What the connection waits for: space for an answer, the other end closing, or bytes; nothing while a whole call has to wait.
    pub(super) fn poll_flags(&self) -> PollFlags {
        if self.unread() > 0 {
            PollFlags::OUT
        } else if self.session.is_tracing() {
            PollFlags::RDHUP
        } else if self.input.is_whole() || self.ended {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    /// The deadline for the current step; `None` if the connection may stay as it is.
    pub(super) fn deadline(&self, crowded: bool) -> Option<Instant> {
        if self.unread() > 0 {
            return Some(self.progress + if crowded { CROWDED_PATIENCE } else { READ_PATIENCE });
        }
        let partial = !self.session.is_tracing() && !self.input.is_whole();
        let begun = self.input.begun.filter(|_| partial);
        begun.map(|begun| begun + CALL_PATIENCE)
    }

    /// Handles a deadline that has passed without progress.
    pub(super) fn expire(&mut self) {
        if self.unread() > 0 {
            self.over = true;
        } else {
            let why = format!("a call must be complete within {} seconds", CALL_PATIENCE.as_secs());
            self.part(&Error::Refused(Refusal::BadCall { why }));
        }
    }

    /// Whether this connection may be closed to make room for a new one, and in which order: first a connection that never called, then one
    /// without a call under way. A connection keeps its place if its end undoes something, or while its first call or its answer is under
    /// way.
    pub(super) fn gives_way(&self) -> Option<(bool, bool)> {
        let (called, calls) = (self.called, self.has_call());
        let stays = self.session.holds_something() || self.unread() > 0 || calls && !called;
        (!stays).then_some((called, calls))
    }

    /// Reads, serves one call if that is allowed, and sends.
    pub(super) fn step(&mut self, host: &mut Host, may_call: bool) {
        if !self.socket.is_unchanged() {
            // The program has closed the descriptor; the file that has the number now must not be touched.
            self.over = true;
        } else if self.unread() > 0 {
            self.send();
        } else if self.session.is_tracing() {
            // Nothing else was polled, so only one event is possible.
            self.over = true;
        } else {
            if !self.input.is_whole() && !self.ended {
                self.read();
            }
            if may_call {
                self.serve(host);
            }
        }
        self.over |= self.ended && self.unread() == 0 && !self.input.is_whole();
    }

    fn read(&mut self) {
        let mut bytes = [0; MOST_READ];
        let most = self.input.space().min(MOST_READ);
        match rustix::net::recv(&self.socket, &mut bytes[..most], RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.ended = true,
            Ok((count, _)) => {
                let now = Instant::now();
                self.input.add(&bytes[..count.min(most)], now);
                if self.input.is_whole() {
                    return;
                }
                if self.input.space() == 0 {
                    self.part(&too_long());
                } else if self.deadline(false).is_some_and(|deadline| deadline <= now) {
                    self.expire();
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.over = true,
        }
    }

    fn serve(&mut self, host: &mut Host) {
        if !self.has_call() {
            return;
        }
        let Some(call) = self.input.take(Instant::now()) else { return };
        self.called = true;
        let outcome = host.answer(&mut self.session, &call);
        self.put(outcome.bytes);
        self.over |= outcome.close;
    }

    /// Sends the events of a trace. Returns whether there are more.
    pub(super) fn trace(&mut self) -> bool {
        if self.over || self.unread() > 0 {
            return false;
        }
        match self.session.batch() {
            Ok(Some((bytes, more))) => {
                self.put(bytes);
                more
            }
            Ok(None) => false,
            Err(()) => {
                self.over = true;
                false
            }
        }
    }

    /// Sends the reason why the connection is closed, and closes it.
    pub(super) fn part(&mut self, error: &Error) {
        self.input = Input::default();
        self.put(error.message());
        self.over = true;
    }

    fn put(&mut self, bytes: Vec<u8>) {
        self.output = bytes;
        self.sent = 0;
        self.progress = Instant::now();
        self.send();
        self.output.shrink_to_fit();
    }

    fn send(&mut self) {
        while self.unread() > 0 {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, &self.output[self.sent..], flags) {
                Ok(count) => {
                    self.sent += count;
                    self.progress = Instant::now();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.over = true;
                    return;
                }
            }
        }
        self.output = Vec::new();
        self.sent = 0;
    }
}

/// Returns what a client receives that sends these pieces and reads everything.
pub(super) fn converse<'a>(
    mut host: Host,
    allowed: Access,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let (mut input, mut session) = (Input::default(), Session::new(allowed));
    let mut answers = Vec::new();
    let now = Instant::now();
    'closed: for mut piece in pieces {
        while !piece.is_empty() {
            let (next, later) = piece.split_at(piece.len().min(input.space()).min(MOST_READ));
            input.add(next, now);
            piece = later;
            while let Some(call) = input.take(now) {
                let outcome = host.answer(&mut session, &call);
                answers.extend(outcome.bytes);
                if outcome.close || session.is_tracing() {
                    break 'closed;
                }
            }
            if input.space() == 0 {
                answers.extend(too_long().message());
                break 'closed;
            }
        }
    }
    host.end(&mut session);
    answers
}

fn too_long() -> Error {
    let why = format!("a call must have at most {LONGEST_CALL} bytes, including its zero byte");
    Error::Refused(Refusal::BadCall { why })
}

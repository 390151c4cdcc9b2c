//! One connection: bytes in, calls, bytes out.
//!
//! A call is served when the answer to the one before was sent, so a connection has one answer at most. Nothing is read while there is a
//! whole call that waits, or an answer to be sent: what a client sends further stays in the kernel, which stops it.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::answer::{Host, Session};
use super::call::Error;
use super::descriptor::Descriptor;
use super::limits::{
    ANSWER_PATIENCE, CALL_PATIENCE, CLOSING_PATIENCE, CROWDED_PATIENCE, IDLE, LONG_IDLE,
    MOST_BATCHES, MOST_CALLS_PER_SECOND, MOST_READ, SLOWEST_READER, STUCK, TRACE_PATIENCE,
};
use crate::protocol::{Access, LONGEST_CALL, Refusal};

/// Bytes that have come, up to a whole call and what came with its end.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// Bytes that hold no zero byte.
    looked: usize,
    /// When the first byte of a call came.
    begun: Option<Instant>,
}

impl Input {
    /// How much may come.
    fn space(&self) -> usize {
        LONGEST_CALL - self.bytes.len()
    }

    fn add(&mut self, bytes: &[u8], now: Instant) {
        self.begun.get_or_insert(now);
        self.bytes.extend_from_slice(bytes);
        self.look();
    }

    fn look(&mut self) {
        let end = self.bytes[self.looked..].iter().position(|&byte| byte == 0);
        self.looked = end.map_or(self.bytes.len(), |end| self.looked + end);
    }

    /// Whether there is a whole call.
    fn is_whole(&self) -> bool {
        self.looked < self.bytes.len()
    }

    /// The first whole call, without its zero byte.
    fn take(&mut self, now: Instant) -> Option<Vec<u8>> {
        if !self.is_whole() {
            return None;
        }
        let rest = self.bytes.split_off(self.looked + 1);
        let mut call = std::mem::replace(&mut self.bytes, rest);
        call.pop();
        self.begun = (!self.bytes.is_empty()).then_some(now);
        self.looked = 0;
        self.look();
        Some(call)
    }
}

/// Bytes to be sent.
#[derive(Debug)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// When they were to be sent, and when something was sent last.
    begun: Instant,
    progress: Instant,
}

impl Output {
    fn left(&self) -> usize {
        self.bytes.len() - self.sent
    }
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Bytes, or the other end's end.
    Bytes,
    /// The other end's end alone.
    End,
    /// Room for an answer.
    Sending,
    /// Nothing that a socket tells: it has a whole call that must wait.
    Nothing,
}

/// One connection.
pub(super) struct Connection {
    socket: Descriptor,
    input: Input,
    output: Output,
    pub(super) session: Session,
    opened: Instant,
    /// When the last call came.
    called: Option<Instant>,
    /// The second in which calls are counted, and how many there were.
    second: (Instant, u32),
    /// The other end sends nothing any more.
    ended: bool,
    /// To be closed when the output is sent.
    closing: bool,
    /// To be closed now.
    over: bool,
    /// CPU time that it has cost, for the order in which connections are served.
    pub(super) charged: Duration,
}

impl Connection {
    pub(super) fn new(socket: Descriptor, allowed: Access, now: Instant) -> Self {
        Connection {
            socket,
            input: Input::default(),
            output: Output { bytes: Vec::new(), sent: 0, begun: now, progress: now },
            session: Session::new(allowed),
            opened: now,
            called: None,
            second: (now, 0),
            ended: false,
            closing: false,
            over: false,
            charged: Duration::ZERO,
        }
    }

    pub(super) fn socket(&self) -> &Descriptor {
        &self.socket
    }

    /// Whether it is to be closed.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn close(&mut self) {
        self.over = true;
    }

    /// Bytes of the answer that were not read.
    pub(super) fn unread(&self) -> usize {
        self.output.left()
    }

    /// Whether a whole call is there and nothing of its own keeps it from being served.
    pub(super) fn has_call(&self) -> bool {
        self.unread() == 0 && !self.closing && !self.session.is_tracing() && self.input.is_whole()
    }

    /// Until when it has called often enough.
    pub(super) fn resting(&self, now: Instant) -> Option<Instant> {
        let (begin, calls) = self.second;
        let end = begin + Duration::from_secs(1);
        (calls >= MOST_CALLS_PER_SECOND && now < end).then_some(end)
    }

    pub(super) fn wants(&self) -> Wants {
        if self.unread() > 0 {
            Wants::Sending
        } else if self.session.is_tracing() {
            Wants::End
        } else if self.input.is_whole() || self.ended {
            Wants::Nothing
        } else {
            Wants::Bytes
        }
    }

    /// When it has had enough time for what it is doing; none where it may stay as it is.
    pub(super) fn deadline(&self, crowded: bool) -> Option<Instant> {
        if self.unread() > 0 {
            let patience = if self.closing {
                CLOSING_PATIENCE
            } else if crowded {
                CROWDED_PATIENCE
            } else if self.session.is_tracing() {
                TRACE_PATIENCE
            } else {
                ANSWER_PATIENCE
            };
            let whole = self.output.bytes.len() as u64 / SLOWEST_READER;
            let at_all = self.output.begun + patience + Duration::from_secs(whole);
            return Some(at_all.min(self.output.progress + patience));
        }
        let partial = !self.session.is_tracing() && !self.input.is_whole();
        let begun = self.input.begun.filter(|_| partial);
        begun.map(|begun| begun + CALL_PATIENCE)
    }

    /// Its deadline has come and nothing with it.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.unread() > 0 {
            self.over = true;
        } else {
            let why = format!("a call must be complete within {} seconds", CALL_PATIENCE.as_secs());
            self.part(&Error::Refused(Refusal::BadCall { why }), now);
        }
    }

    /// Whether it may have to give way to a new one, and in which order: first those that never called, the oldest first; then those that
    /// have called or read longest ago. Not while it waits for an answer itself.
    pub(super) fn gives_way(&self, now: Instant) -> Option<(bool, Instant)> {
        if self.has_call() {
            return None;
        }
        let Some(called) = self.called else { return Some((false, self.opened)) };
        let (since, least) = if self.session.is_tracing() {
            return None;
        } else if self.unread() > 0 {
            (self.output.progress, STUCK)
        } else if self.session.holds_something() {
            (called, LONG_IDLE)
        } else {
            (called, IDLE)
        };
        (now.saturating_duration_since(since) >= least).then_some((true, since))
    }

    /// Reads, serves one call where that is allowed, and sends.
    pub(super) fn step(&mut self, host: &mut Host, scratch: &mut [u8], may_call: bool) {
        if !self.socket.is_ours() {
            // The program has closed it; whatever has the number now is not to be touched.
            self.over = true;
            return;
        }
        let now = Instant::now();
        if self.unread() > 0 {
            self.send(now);
        } else if self.session.is_tracing() {
            // Nothing else can be asked, so there is one thing that can have happened.
            self.over = true;
        } else {
            if !self.input.is_whole() && !self.ended {
                self.read(scratch, now);
            }
            if may_call && self.resting(now).is_none() {
                self.serve(host, now);
            }
        }
        if self.unread() == 0 && (self.closing || self.ended && !self.input.is_whole()) {
            self.over = true;
        }
    }

    fn read(&mut self, scratch: &mut [u8], now: Instant) {
        let most = self.input.space().min(MOST_READ).min(scratch.len());
        match rustix::net::recv(&self.socket, &mut scratch[..most], RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.ended = true,
            Ok((count, _)) => {
                self.input.add(&scratch[..count.min(most)], now);
                if self.input.is_whole() {
                    return;
                }
                if self.input.space() == 0 {
                    self.part(&too_long(), now);
                } else if self.deadline(false).is_some_and(|deadline| deadline <= now) {
                    self.expire(now);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.over = true,
        }
    }

    fn serve(&mut self, host: &mut Host, now: Instant) {
        if !self.has_call() {
            return;
        }
        let Some(call) = self.input.take(now) else { return };
        let (begin, calls) = self.second;
        self.second =
            if now >= begin + Duration::from_secs(1) { (now, 1) } else { (begin, calls + 1) };
        self.called = Some(now);
        let outcome = host.answer(&mut self.session, &call);
        self.closing |= outcome.close;
        self.put(outcome.bytes, Instant::now());
    }

    /// Sends what a trace has to say.
    pub(super) fn trace(&mut self, room: usize) {
        let mut sent = 0;
        for _ in 0..MOST_BATCHES {
            if self.over || self.unread() > 0 || sent > room {
                return;
            }
            match self.session.batch() {
                Ok(Some((bytes, more))) => {
                    sent += bytes.len();
                    self.put(bytes, Instant::now());
                    if !more {
                        return;
                    }
                }
                Ok(None) => return,
                Err(()) => self.over = true,
            }
        }
    }

    /// Tells why the connection is closed, and closes.
    pub(super) fn part(&mut self, error: &Error, now: Instant) {
        self.closing = true;
        self.input = Input::default();
        self.put(error.message(), now);
        self.over |= self.unread() == 0;
    }

    fn put(&mut self, bytes: Vec<u8>, now: Instant) {
        self.output = Output { bytes, sent: 0, begun: now, progress: now };
        self.send(now);
        self.output.bytes.shrink_to_fit();
    }

    fn send(&mut self, now: Instant) {
        while self.unread() > 0 {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, &self.output.bytes[self.output.sent..], flags) {
                Ok(count) => {
                    self.output.sent += count;
                    self.output.progress = now;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.over = true;
                    return;
                }
            }
        }
        self.output.bytes = Vec::new();
        self.output.sent = 0;
    }
}

/// What is answered to a client that sends these pieces and reads everything.
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
    let why = format!("a call has at most {LONGEST_CALL} bytes, its zero byte included");
    Error::Refused(Refusal::BadCall { why })
}

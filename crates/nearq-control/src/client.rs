//! A client that queries a process: one connection, one call after the other.

mod wire;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nearq_topology::safe_text;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use crate::find::ConnectError;
use crate::find::{self, reach};
use crate::protocol::{INTERFACE, LONGEST_REFUSAL, Refusal, Request};
use wire::Wire;

/// How long an answer may take as a whole, unless set otherwise: a process whose threads all wait for a CPU is slow, not gone.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an unknown error, or of what is wrong with an answer, that are reported.
const LONGEST_REASON: usize = 512;

/// Why a call has no answer.
#[non_exhaustive]
pub enum ClientError {
    /// The process refused the call, and says why.
    Refused(Refusal),
    /// The process refused the call with an error that varlink itself defines: its name and parameters.
    Protocol(String),
    /// The answer is longer than the client reads for this call.
    TooLong {
        /// The number of bytes that the client reads.
        most: usize,
    },
    /// The received message is not a valid answer, for this reason.
    Garbled(String),
    /// The connection failed.
    Io(io::Error),
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::Refused(refusal) => refusal.fmt(f),
            ClientError::Protocol(what) => write!(
                f,
                "the process answered {what}; it has another version of nearq: use the command of that version"
            ),
            ClientError::TooLong { most } => write!(
                f,
                "the answer is longer than the limit of {most} bytes; the process has too many queues, or does not use nearq"
            ),
            ClientError::Garbled(why) => write!(
                f,
                "the answer of the process cannot be understood: {why}; it has another version of nearq, or does not use nearq"
            ),
            ClientError::Io(error) => match error.kind() {
                io::ErrorKind::TimedOut => f.write_str(
                    "no complete answer came in time; the process may be stopped or overloaded: try again",
                ),
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset => {
                    f.write_str(
                        "the process closed the connection before it answered; `nearq ps` says whether it still runs",
                    )
                }
                io::ErrorKind::NotConnected => {
                    f.write_str("the connection failed earlier; connect again")
                }
                _ => write!(f, "the connection to the process failed: {error}"),
            },
        }
    }
}

nearq_topology::debug_as_display!(ClientError);

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        ClientError::Io(error)
    }
}

#[derive(Serialize)]
struct Call<'a, R> {
    method: &'a str,
    parameters: &'a R,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

#[derive(Deserialize)]
struct Answer<'a> {
    /// The parameters are parsed only once their type is known: a batch of events is parsed straight into the events.
    #[serde(borrow, default)]
    parameters: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    continues: bool,
}

/// A connection to a process.
///
/// Whatever the process does, a call takes no longer than the patience that was set, and the client reads no more than the longest valid
/// answer to that call ([`Request::LONGEST_REPLY`]). After a call that failed this way, the connection is no longer usable.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Wire>,
    patience: Duration,
    /// Whether a call has failed: then the next message need not be the answer to the next call.
    failed: bool,
}

impl Client {
    /// Connects to a process, which may be in a container.
    ///
    /// # Errors
    /// There is no such process, it belongs to another user, or it does not listen.
    pub fn connect(pid: u32) -> Result<Self, ConnectError> {
        Self::connect_within(pid, PATIENCE)
    }

    /// Connects as [`connect`](Self::connect) does; neither connecting nor any later answer takes longer than `patience`.
    ///
    /// # Errors
    /// The same as of [`connect`](Self::connect), or the process accepts no connection for that long.
    pub fn connect_within(pid: u32, patience: Duration) -> Result<Self, ConnectError> {
        let (stream, socket) = find::connect(pid, Instant::now() + patience)?;
        let client = Self::over(stream);
        let mut client =
            client.map_err(|error| ConnectError::Unreachable { pid, socket, error })?;
        client.patience = patience;
        Ok(client)
    }

    /// Connects to a socket.
    ///
    /// # Errors
    /// No process listens there, or the caller may not connect.
    pub fn connect_to(socket: &Path) -> io::Result<Self> {
        Self::over(reach::connect_to(socket, Instant::now() + PATIENCE)?)
    }

    /// Uses an existing connection, which is made non-blocking.
    ///
    /// # Errors
    /// The connection no longer works.
    pub fn over(stream: UnixStream) -> io::Result<Self> {
        Ok(Client { stream: BufReader::new(Wire::new(stream)?), patience: PATIENCE, failed: false })
    }

    /// Sets how long to wait for each whole answer, from the first byte of the call on; [`PATIENCE`] unless this is called.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Calls, and waits for the answer.
    ///
    /// # Errors
    /// The process refuses, or does not answer.
    pub fn call<R: Request>(&mut self, request: &R) -> Result<R::Reply, ClientError> {
        self.send(request, false)?;
        let (reply, _) = self.receive(R::LONGEST_REPLY)?;
        Ok(reply)
    }

    /// Makes a call that has many answers. No other call can be made over this connection afterwards. The first answer must arrive in time,
    /// as always. Later answers begin when there is something to report, and each must then arrive within the same time.
    ///
    /// # Errors
    /// The connection fails. A refusal by the process comes as the first answer.
    pub fn stream<R: Request>(mut self, request: &R) -> Result<Replies<R>, ClientError> {
        self.send(request, true)?;
        Ok(Replies { client: Some(self), is_first: true, request: PhantomData })
    }

    /// Sets the time by which the next answer must arrive.
    fn start_deadline(&mut self) {
        self.stream.get_mut().deadline = Some(Instant::now() + self.patience);
    }

    fn send<R: Request>(&mut self, request: &R, more: bool) -> Result<(), ClientError> {
        if self.failed {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        }
        let method = format!("{INTERFACE}.{}", R::METHOD);
        let call = Call { method: &method, parameters: request, more };
        let mut bytes = serde_json::to_vec(&call).map_err(io::Error::from)?;
        bytes.push(0);
        self.start_deadline();
        let sent = self.stream.get_mut().write_all(&bytes);
        sent.map_err(|error| {
            let refusal = self.closing_refusal();
            self.failed = true;
            refusal.unwrap_or(ClientError::Io(error))
        })
    }

    /// Why the process has closed the connection, if it has sent a reason.
    fn closing_refusal(&mut self) -> Option<ClientError> {
        match self.receive::<serde::de::IgnoredAny>(LONGEST_REFUSAL) {
            Err(refusal @ (ClientError::Refused(_) | ClientError::Protocol(_))) => Some(refusal),
            _ => None,
        }
    }

    /// Waits without a time limit until something arrives.
    fn wait(&mut self) -> io::Result<()> {
        self.stream.get_mut().deadline = None;
        self.stream.fill_buf()?;
        self.start_deadline();
        Ok(())
    }

    fn receive<T: serde::de::DeserializeOwned>(
        &mut self,
        longest: usize,
    ) -> Result<(T, bool), ClientError> {
        let received = self.read(longest).and_then(|bytes| parse_reply(&bytes, longest));
        let in_step =
            matches!(received, Ok(_) | Err(ClientError::Refused(_) | ClientError::Protocol(_)));
        self.failed |= !in_step;
        received
    }

    /// A whole message, without its zero byte.
    fn read(&mut self, longest: usize) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        let most = longest.max(LONGEST_REFUSAL);
        (&mut self.stream).take(most as u64).read_until(0, &mut bytes)?;
        match bytes.pop() {
            Some(0) => Ok(bytes),
            Some(_) if bytes.len() + 1 == most => Err(ClientError::TooLong { most: longest }),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

/// Parses a message: a reply, and whether more follow.
fn parse_reply<T: serde::de::DeserializeOwned>(
    bytes: &[u8],
    longest: usize,
) -> Result<(T, bool), ClientError> {
    let garbled = |error: serde_json::Error| ClientError::Garbled(shortened(error.to_string()));
    let answer: Answer<'_> = serde_json::from_slice(bytes).map_err(garbled)?;
    let parameters = answer.parameters.map_or("{}", RawValue::get);
    match answer.error {
        None if bytes.len() > longest => Err(ClientError::TooLong { most: longest }),
        None => Ok((serde_json::from_str(parameters).map_err(garbled)?, answer.continues)),
        Some(_) if bytes.len() > LONGEST_REFUSAL => {
            Err(ClientError::TooLong { most: LONGEST_REFUSAL })
        }
        Some(name) => Err(refusal(&name, parameters)),
    }
}

/// The beginning of a text that another process sent.
fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_REASON {
        text.truncate(safe_text::beginning(&text, LONGEST_REASON).len());
        text.push('…');
    }
    text
}

/// The error with this name and these parameters.
fn refusal(name: &str, parameters: &str) -> ClientError {
    let known = || {
        let name = name.strip_prefix(INTERFACE)?.strip_prefix('.')?;
        let name = serde_json::to_string(name).ok()?;
        let known = format!(r#"{{"error":{name},"parameters":{parameters}}}"#);
        serde_json::from_str(&known).ok()
    };
    match known() {
        Some(refusal) => ClientError::Refused(refusal),
        None => ClientError::Protocol(shortened(format!("{name} {parameters}"))),
    }
}

/// Answers that come one after the other, until the connection is closed.
#[derive(Debug)]
pub struct Replies<R> {
    client: Option<Client>,
    is_first: bool,
    request: PhantomData<fn() -> R>,
}

impl<R: Request> Iterator for Replies<R> {
    type Item = Result<R::Reply, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let client = self.client.as_mut()?;
        let ready = if std::mem::take(&mut self.is_first) { Ok(()) } else { client.wait() };
        let received =
            ready.map_err(ClientError::Io).and_then(|()| client.receive(R::LONGEST_REPLY));
        if !matches!(received, Ok((_, true))) {
            self.client = None;
        }
        Some(received.map(|(reply, _)| reply))
    }
}

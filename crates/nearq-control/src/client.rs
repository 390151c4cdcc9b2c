//! Asking a process: one connection, one call after the other.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use crate::find::ConnectError;
use crate::protocol::{INTERFACE, Refusal, Request};
use crate::{find, socket};

/// How long an answer may take: a process whose threads all wait for a CPU is slow, not gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer at most.
const LONGEST_ANSWER: u64 = 64 << 20;

/// Why a call has no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The process refused it, and says why.
    Refused(Refusal),
    /// The process refused it by an error of varlink's own: its name and parameters.
    Protocol(String),
    /// The connection failed.
    Io(io::Error),
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::Refused(refusal) => refusal.fmt(f),
            ClientError::Protocol(what) => write!(f, "the process answered {what}"),
            ClientError::Io(error) => match error.kind() {
                io::ErrorKind::WouldBlock => f.write_str(
                    "no answer came in time; the process may be stopped or overloaded: try again",
                ),
                io::ErrorKind::UnexpectedEof => {
                    f.write_str("the process closed the connection before it had answered")
                }
                _ => error.fmt(f),
            },
        }
    }
}

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
    /// Read when it is known what it is: the counts of hundreds of queues are long.
    #[serde(default, borrow)]
    parameters: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    continues: bool,
}

/// A connection to a process.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to a process, in a container too.
    ///
    /// # Errors
    /// There is no such process, it is another user's, or it does not listen.
    pub fn connect(pid: u32) -> Result<Self, ConnectError> {
        let stream = find::connect(pid)?;
        // Refused where the connection is none any more only: the first call says so.
        let _ = set_patience(&stream, PATIENCE);
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Connects to a socket.
    ///
    /// # Errors
    /// Nobody listens there, or the caller may not.
    pub fn connect_to(socket: &Path) -> io::Result<Self> {
        Self::over(socket::connect(socket)?)
    }

    /// Speaks over a connection that there is.
    ///
    /// # Errors
    /// The connection is none any more.
    pub fn over(stream: UnixStream) -> io::Result<Self> {
        set_patience(&stream, PATIENCE)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Waits no longer than that for each answer; 10 s unless this is called.
    ///
    /// # Errors
    /// The connection is none any more, or the time is 0.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        set_patience(self.stream.get_ref(), patience)
    }

    /// Calls, and waits for the answer.
    ///
    /// # Errors
    /// The process refuses, or does not answer.
    pub fn call<R: Request>(&mut self, request: &R) -> Result<R::Reply, ClientError> {
        self.send(request, false)?;
        let (reply, _) = self.receive()?;
        Ok(reply)
    }

    /// Calls for many answers. Nothing else can be asked over this connection afterwards.
    ///
    /// # Errors
    /// The connection fails. What the process refuses comes as the first answer.
    pub fn stream<R: Request>(mut self, request: &R) -> Result<Replies<R::Reply>, ClientError> {
        self.send(request, true)?;
        // Where nothing happens, there is nothing to tell.
        self.stream.get_ref().set_read_timeout(None)?;
        Ok(Replies { client: Some(self), reply: PhantomData })
    }

    fn send<R: Request>(&mut self, request: &R, more: bool) -> Result<(), ClientError> {
        let method = format!("{INTERFACE}.{}", R::METHOD);
        let call = Call { method: &method, parameters: request, more };
        let mut bytes = serde_json::to_vec(&call).map_err(io::Error::from)?;
        bytes.push(0);
        let sent = self.stream.get_mut().write_all(&bytes);
        sent.map_err(|error| self.parting_words().unwrap_or(ClientError::Io(error)))
    }

    /// Why the process has closed the connection, if it has said so.
    fn parting_words(&mut self) -> Option<ClientError> {
        match self.receive::<serde_json::Value>() {
            Ok(_) | Err(ClientError::Io(_)) => None,
            Err(told) => Some(told),
        }
    }

    fn receive<T: serde::de::DeserializeOwned>(&mut self) -> Result<(T, bool), ClientError> {
        let mut bytes = Vec::new();
        let mut limited = self.stream.by_ref().take(LONGEST_ANSWER);
        limited.read_until(0, &mut bytes)?;
        if bytes.pop() != Some(0) {
            return Err(ClientError::Io(io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
        let answer: Answer<'_> = serde_json::from_slice(&bytes).map_err(io::Error::from)?;
        let parameters = answer.parameters.map_or("{}", RawValue::get);
        match answer.error {
            None => {
                let reply = serde_json::from_str(parameters).map_err(io::Error::from)?;
                Ok((reply, answer.continues))
            }
            Some(name) => {
                let parameters = serde_json::from_str(parameters).map_err(io::Error::from)?;
                Err(refusal(&name, parameters))
            }
        }
    }
}

fn set_patience(stream: &UnixStream, patience: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}

/// What an error's name and parameters stand for.
fn refusal(name: &str, parameters: serde_json::Value) -> ClientError {
    let text = format!("{name} {parameters}");
    let own = name.strip_prefix(INTERFACE).and_then(|name| name.strip_prefix('.'));
    let known = own.map(|name| serde_json::json!({ "error": name, "parameters": parameters }));
    match known.map(serde_json::from_value) {
        Some(Ok(refusal)) => ClientError::Refused(refusal),
        _ => ClientError::Protocol(text),
    }
}

/// Answers that come one after the other, until the connection is closed.
#[derive(Debug)]
pub struct Replies<T> {
    client: Option<Client>,
    reply: PhantomData<T>,
}

impl<T: serde::de::DeserializeOwned> Iterator for Replies<T> {
    type Item = Result<T, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let client = self.client.as_mut()?;
        match client.receive() {
            Ok((reply, continues)) => {
                if !continues {
                    self.client = None;
                }
                Some(Ok(reply))
            }
            Err(error) => {
                self.client = None;
                Some(Err(error))
            }
        }
    }
}

//! The clients of `service`, and what they ask for.
//!
//! A client sends lines, and gets a line for each: `hash ROUNDS TEXT` is answered with the SHA-256 of the text, applied that many times.
//! A client that closes its side of the connection has left, and no answer is written to it.

use std::error::Error;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::digest::digest;

/// The longest line that a client may send, in bytes.
const LONGEST: usize = 4 << 10;
/// How long no client is accepted after the system has refused to accept one, for instance for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The arguments of the program: `[ADDRESS [PLACES [SECONDS]]]`.
#[derive(Debug)]
pub struct Options {
    address: String,
    /// How many requests are queued or computed at any time: by default as many as there are CPUs.
    pub places: usize,
    /// How long the program waits for requests when it ends: by default ten seconds.
    pub deadline: Duration,
}

impl Options {
    /// Reads the arguments.
    ///
    /// # Errors
    /// One of them is not a number, or a number that is not possible.
    pub fn from_arguments() -> Result<Self, Box<dyn Error>> {
        let mut arguments = std::env::args().skip(1);
        let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7878".into());
        let places = match arguments.next() {
            Some(places) => places.parse::<std::num::NonZero<usize>>()?,
            None => std::thread::available_parallelism()?,
        };
        let seconds = arguments.next().map_or(Ok(10.0), |seconds| seconds.parse())?;
        let deadline = Duration::try_from_secs_f64(seconds)?;
        Ok(Options { address, places: places.get(), deadline })
    }

    /// Begins to listen, and says on which address.
    ///
    /// # Errors
    /// The address cannot be used.
    pub async fn listen(&self) -> io::Result<Listener> {
        let listener = TcpListener::bind(&self.address).await?;
        println!("listening on {}", listener.local_addr()?);
        Ok(Listener(listener))
    }
}

/// Where clients connect.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// The next client. Dropping the future loses none.
    pub async fn accept(&self) -> Client {
        loop {
            match self.0.accept().await {
                Ok((stream, _)) => return Client { stream, unread: Vec::new() },
                Err(error) => eprintln!("a client was not accepted: {error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// A connected client.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// What it has sent, and has not been looked at.
    unread: Vec<u8>,
}

impl Client {
    /// The client's next request; none if it has left, or after `stop`.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn request(&mut self, stop: impl Future<Output = ()>) -> io::Result<Option<Request>> {
        tokio::select! {
            biased;
            () = stop => Ok(None),
            request = self.next() => request,
        }
    }

    async fn next(&mut self) -> io::Result<Option<Request>> {
        loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                match String::from_utf8_lossy(&line).parse::<Request>() {
                    Ok(request) => {
                        println!("received {request}");
                        return Ok(Some(request));
                    }
                    Err(error) => self.answer(error).await?,
                }
            } else if self.unread.len() >= LONGEST {
                let error = format!("error: a line has at most {LONGEST} bytes");
                return self.answer(&error).await.map(|()| None);
            } else if self.stream.read_buf(&mut self.unread).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Ends when the client has left. Dropping the future loses nothing of what the client has sent.
    pub async fn left(&mut self) {
        // No more is read than may be kept. Then only the answer finds out.
        while self.unread.len() < LONGEST {
            if !matches!(self.stream.read_buf(&mut self.unread).await, Ok(1..)) {
                println!("a client has left");
                return;
            }
        }
        std::future::pending().await
    }

    /// Sends a line.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn answer(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(format!("{line}\n").as_bytes()).await
    }
}

/// What a client asks for.
#[derive(Debug)]
pub struct Request {
    rounds: u64,
    text: String,
}

impl Request {
    /// Computes for as long as the client has asked for, and returns the line that is its answer. Ends early if `is_cancelled`.
    #[must_use]
    pub fn run(self, is_cancelled: impl Fn() -> bool) -> String {
        println!("begins {self}");
        let answer = digest(&self.text, self.rounds, is_cancelled);
        println!("{} {self}", if answer.is_some() { "ends" } else { "cancelled" });
        answer.unwrap_or_else(|| "error: cancelled".into())
    }
}

impl FromStr for Request {
    type Err = &'static str;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.trim_end().splitn(3, ' ');
        match (words.next(), words.next().map(str::parse), words.next()) {
            (Some("hash"), Some(Ok(rounds)), Some(text)) => {
                Ok(Request { rounds, text: text.into() })
            }
            _ => Err("error: a request is: hash ROUNDS TEXT"),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whatever the client has sent does not reach a terminal as it is.
        write!(f, "hash {} {:?}", self.rounds, self.text)
    }
}

//! What `deliver` delivers, to where, and the messages that control it meanwhile.
//!
//! Each line of a file is a record. It is sent to a collector with its digest: one connection for each attempt, a line there, and the line
//! `ok` back. Without arguments, records are made, and a collector that refuses some attempts is a thread of the program.
//!
//! Outcomes are printed on standard output, answers to control messages on standard error.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::digest::digest;

/// How many records are under way at any time: read, and their outcome not printed.
pub const UNDER_WAY: usize = 64;

/// How often the digest is taken: a millisecond or so of CPU time.
const ROUNDS: u64 = 5_000;
/// After so many attempts a record is given up.
const ATTEMPTS: u32 = 8;
/// The time between the first two attempts. It doubles each time.
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// How long the collector may take.
const PATIENCE: Duration = Duration::from_mins(1);
const TAKEN: &str = "ok\n";
/// How many records are made if there is no file.
const MADE: usize = 200;

static READ: AtomicUsize = AtomicUsize::new(0);
static ATTEMPTED: AtomicUsize = AtomicUsize::new(0);
static LOGGED: AtomicUsize = AtomicUsize::new(0);

/// Adds one to a count that is only displayed.
fn count(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The deliveries that the arguments `[FILE COLLECTOR]` ask for. The file is read as the caller asks for more.
///
/// # Errors
/// The file cannot be read, or the second argument is not an address.
pub fn deliveries() -> Result<impl Iterator<Item = io::Result<Delivery>>, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (lines, collector): (Box<dyn BufRead>, _) = match (arguments.next(), arguments.next()) {
        (None, _) => {
            let made = (0..MADE).fold(String::new(), |text, number| text + &format!("{number}\n"));
            (Box::new(io::Cursor::new(made)), unreliable_collector()?)
        }
        (Some(_), None) => return Err("the arguments are: [FILE COLLECTOR]".into()),
        (Some(file), Some(address)) => {
            (Box::new(BufReader::new(File::open(file)?)), address.parse()?)
        }
    };
    Ok(lines.lines().map(move |line| {
        count(&READ);
        Ok(Delivery { record: line?, collector, message: None, attempts: 0 })
    }))
}

/// A record on its way.
#[derive(Debug)]
pub struct Delivery {
    record: String,
    collector: SocketAddr,
    message: Option<String>,
    attempts: u32,
}

/// What comes after an attempt.
#[derive(Debug)]
pub enum Next {
    /// The outcome, which is to be logged.
    Log(String),
    /// Another attempt, after this time.
    Retry(Duration),
}

impl Delivery {
    /// Computes what is sent, if it has not been computed.
    pub fn prepare(&mut self) {
        self.message.get_or_insert_with(|| {
            digest(&self.record, ROUNDS, || false).expect("it is not cancelled")
        });
    }

    /// Sends the record, and blocks until the collector has answered.
    pub fn attempt(&mut self) -> Next {
        self.prepare();
        let sent = self.send();
        self.next(sent)
    }

    /// As [`attempt`](Self::attempt), of what is prepared, on tokio.
    pub async fn attempt_on_tokio(&mut self) -> Next {
        let sent = tokio::time::timeout(PATIENCE, self.send_on_tokio()).await;
        let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        self.next(sent)
    }

    fn line(&self) -> String {
        format!("{} {}\n", self.message.as_deref().unwrap_or_default(), self.record)
    }

    fn send(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.collector, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(self.line().as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        accepted(&answer)
    }

    async fn send_on_tokio(&self) -> io::Result<()> {
        let mut stream = tokio::net::TcpStream::connect(self.collector).await?;
        stream.write_all(self.line().as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        accepted(&answer)
    }

    fn next(&mut self, sent: io::Result<()>) -> Next {
        count(&ATTEMPTED);
        self.attempts += 1;
        let Delivery { record, attempts, .. } = self;
        match sent {
            Ok(()) => Next::Log(format!("{record}: delivered by attempt {attempts}")),
            Err(error) if *attempts == ATTEMPTS => {
                Next::Log(format!("{record}: given up: {error}"))
            }
            Err(_) => Next::Retry(FIRST_DELAY * 2_u32.pow(*attempts - 1)),
        }
    }
}

fn accepted(answer: &str) -> io::Result<()> {
    if answer == TAKEN { Ok(()) } else { Err(io::Error::other("the collector has refused it")) }
}

/// Prints an outcome; an error is that of a record that was lost.
pub fn log(outcome: Result<String, impl fmt::Display>) {
    println!("{}", outcome.unwrap_or_else(|error| format!("lost: {error}")));
    count(&LOGGED);
}

/// A control message: a line on standard input.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// Asks how far the program has come.
    Status,
    /// Asks that no attempt is made any more.
    Pause,
    /// Asks that attempts are made again.
    Resume,
}

impl FromStr for Command {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        match line {
            "status" => Ok(Command::Status),
            "pause" => Ok(Command::Pause),
            "resume" => Ok(Command::Resume),
            _ => Err(()),
        }
    }
}

/// The control messages, each as soon as it comes. Blocks until then.
pub fn commands() -> impl Iterator<Item = Command> {
    let lines = io::stdin().lines().map_while(Result::ok);
    lines.filter_map(|line| {
        let command = line.parse();
        if command.is_err() {
            eprintln!("a control message is status, pause or resume");
        }
        command.ok()
    })
}

/// How far the program has come, as the answer to a control message.
pub fn report(state: &str) {
    let [read, attempted, logged] =
        [&READ, &ATTEMPTED, &LOGGED].map(|it| it.load(Ordering::Relaxed));
    eprintln!("{state}: {read} read, {attempted} attempts, {logged} logged");
}

/// A collector that refuses the first attempts of most records, up to three; which, their digests decide.
fn unreliable_collector() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        let mut attempts: HashMap<String, u32> = HashMap::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            if BufReader::new(&stream).read_line(&mut line).is_err() {
                continue;
            }
            let attempt = attempts.entry(line.clone()).or_default();
            *attempt += 1;
            if *attempt > u32::from(line.as_bytes().first().copied().unwrap_or_default() % 4) {
                // A program that has left needs no answer.
                drop((&stream).write_all(TAKEN.as_bytes()));
            }
        }
    });
    Ok(address)
}

//! What jobs print, kept together: each writes into memory files of its own, which are copied out when it has ended.
//!
//! The copying is a thread's, so that a reader who takes his time stops nothing else; it begins with the first output. Who waits
//! for other things polls the printer's descriptor: it becomes readable when something has been printed, or cannot be any more.
//! With `Order::Input` what ends early is held until everything before it has been printed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, OFlags, memfd_create};

/// How much may wait to be printed before no other job starts: the memory is the machine's.
const MOST_WAITING: u64 = 256 << 20;

/// How much is copied at once.
const CHUNK: u64 = 64 * 1024;

/// In which order outputs come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As jobs end, each whole.
    #[default]
    End,
    /// As their inputs came, each whole.
    Input,
    /// As they are written: jobs have the caller's own output.
    None,
}

/// What is done around each piece of printing on a terminal: a bar there steps aside.
pub type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// Where a job's output goes while it runs: standard output, standard error.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) files: [File; 2],
}

impl Kept {
    pub(crate) fn new() -> io::Result<Self> {
        let file = |name: &str| {
            let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
            // Who opens it once more (`> /dev/stderr` in a script) writes from its beginning; the others still write behind that.
            rustix::fs::fcntl_setfl(&file, OFlags::RDWR | OFlags::APPEND)?;
            Ok::<_, io::Error>(file.into())
        };
        Ok(Self { files: [file("nearq-stdout")?, file("nearq-stderr")?] })
    }

    /// How much there is in each of the two.
    pub(crate) fn lengths(&self) -> [u64; 2] {
        // A memory file has a length.
        [0, 1].map(|index| self.files[index].metadata().map_or(0, |metadata| metadata.len()))
    }
}

/// What the thread and the others both touch.
#[derive(Debug)]
struct Shared {
    /// Bytes that have been handed over and not been printed. Relaxed: a count; the event orders.
    waiting: AtomicU64,
    /// The reader has gone. Set by the thread before the event is (release), read after it (acquire).
    broken: AtomicBool,
    event: OwnedFd,
}

/// Prints.
pub(crate) struct Printer {
    order: Order,
    next: u64,
    held: BTreeMap<u64, Option<Kept>>,
    shared: Arc<Shared>,
    /// To the thread, once it has begun.
    sender: Option<Sender<Kept>>,
    around: Around,
    to_error: bool,
}

impl Printer {
    /// Prints to standard output and standard error, or with `to_error` all to the latter.
    pub(crate) fn new(order: Order, around: Around, to_error: bool) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared { waiting: AtomicU64::new(0), broken: AtomicBool::new(false), event };
        Ok(Self {
            order,
            next: 1,
            held: BTreeMap::new(),
            shared: Arc::new(shared),
            sender: None,
            around,
            to_error,
        })
    }

    /// The job of that number has ended.
    pub(crate) fn ended(&mut self, number: u64, kept: Option<Kept>) {
        let kept = kept.filter(|kept| kept.lengths() != [0, 0]);
        if let Some(kept) = &kept {
            self.shared.waiting.fetch_add(kept.lengths().iter().sum(), Ordering::Relaxed);
        }
        if self.order != Order::Input {
            if let Some(kept) = kept {
                self.hand_over(kept);
            }
            return;
        }
        self.held.insert(number, kept);
        while let Some(kept) = self.held.remove(&self.next) {
            self.next += 1;
            if let Some(kept) = kept {
                self.hand_over(kept);
            }
        }
    }

    fn hand_over(&mut self, kept: Kept) {
        if self.sender.is_none() {
            let (sender, receiver) = mpsc::channel();
            let (shared, around) = (Arc::clone(&self.shared), Arc::clone(&self.around));
            let to_error = self.to_error;
            let all = move || {
                for kept in receiver {
                    print_one(&kept, &shared, &around, to_error);
                }
            };
            if thread::Builder::new().name("printer".into()).spawn(all).is_ok() {
                self.sender = Some(sender);
            }
        }
        match &self.sender {
            // The thread lives as long as there is a sender.
            Some(sender) => drop(sender.send(kept)),
            // A limit on processes, which jobs have reached: the next time, perhaps.
            None => print_one(&kept, &self.shared, &self.around, self.to_error),
        }
    }

    /// Whether so much waits that no other job should start.
    pub(crate) fn is_behind(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) > MOST_WAITING
    }

    /// Whether all has been printed that was handed over.
    pub(crate) fn is_done(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) == 0
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.shared.broken.load(Ordering::Acquire)
    }

    /// Takes note of what was printed, after the descriptor became readable.
    pub(crate) fn noted(&self) {
        let mut count = [0; 8];
        // It is readable, or there was nothing.
        let _ = rustix::io::read(&self.shared.event, &mut count);
    }
}

impl AsFd for Printer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

fn print_one(kept: &Kept, shared: &Shared, around: &Around, to_error: bool) {
    let length: u64 = kept.lengths().iter().sum();
    // Who has no reader any more prints nothing, and is told so by what follows.
    if !shared.broken.load(Ordering::Relaxed) {
        let [output, error] = &kept.files;
        let copied = if to_error {
            copy(output, &mut io::stderr().lock(), around)
        } else {
            copy(output, &mut io::stdout().lock(), around)
        };
        if copied.is_err() {
            shared.broken.store(true, Ordering::Release);
        }
        // Standard error that nobody reads is no reason to end.
        let _ = copy(error, &mut io::stderr().lock(), around);
    }
    shared.waiting.fetch_sub(length, Ordering::Relaxed);
    // The count is far from its end.
    let _ = rustix::io::write(&shared.event, &1_u64.to_ne_bytes());
}

/// Around what goes to a terminal, which takes it at once; a reader of a pipe may let us wait, and a bar must not wait with us.
fn copy(from: &File, to: &mut (impl Write + IsTerminal), around: &Around) -> io::Result<()> {
    if from.metadata()?.len() == 0 {
        return Ok(());
    }
    if !to.is_terminal() {
        return copy_all(from, to);
    }
    let mut result = Ok(());
    around(&mut || result = copy_all(from, to));
    result
}

/// As long as it is now: what a job left behind may still be writing, at the place in the file that it shares with us.
fn copy_all(from: &File, to: &mut impl Write) -> io::Result<()> {
    let length = from.metadata()?.len();
    let mut buffer = vec![0; length.min(CHUNK) as usize];
    let mut at = 0;
    while at < length {
        let most = buffer.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
        let read = from.read_at(&mut buffer[..most], at)?;
        if read == 0 {
            // Somebody has cut it meanwhile.
            break;
        }
        to.write_all(&buffer[..read])?;
        at += read as u64;
    }
    to.flush()
}

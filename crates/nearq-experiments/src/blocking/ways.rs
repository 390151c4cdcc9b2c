//! How an item is blocked: asleep, in a futex, in a pipe, or in a read from a disk.

use crate::Error;
use crate::store::Buffer;
use nearq_platform::{Linux, Parker, Platform};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

// The ways in which an item can be blocked.

/// A way to be blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// It sleeps, and the system's timer wakes it.
    Sleep,
    /// It waits in a futex until another thread wakes it.
    Futex,
    /// It reads from a pipe into which another thread writes.
    Pipe,
    /// It reads a page of a file, bypassing the page cache; how long that takes depends on the disk.
    Disk,
}

impl Way {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Sleep, Self::Futex, Self::Pipe, Self::Disk];

    /// The scenario's name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Futex => "futex",
            Self::Pipe => "pipe",
            Self::Disk => "disk",
        }
    }

    /// The way of that name.
    pub(super) fn named(name: &str) -> Result<Self, Error> {
        let names = Self::ALL.map(Self::name);
        Self::ALL.into_iter().find(|way| way.name() == name).ok_or_else(|| {
            Error::input(format!("--way {name:?}: give one of {}", names.join(", ")))
        })
    }
}

/// The means that block the calling thread.
pub trait Block: Send + Sync {
    /// Blocks the calling thread once.
    fn block(&self) -> io::Result<()>;
}

/// The plain sleep, on any platform.
#[derive(Debug)]
pub struct Sleeps<P>(Duration, PhantomData<fn() -> P>);

impl<P> Sleeps<P> {
    /// A sleep of that length.
    pub fn new(time: Duration) -> Self {
        Self(time, PhantomData)
    }
}

impl<P: Platform> Block for Sleeps<P> {
    fn block(&self) -> io::Result<()> {
        P::sleep(self.0);
        Ok(())
    }
}

struct Futex(Alarm);

impl Block for Futex {
    fn block(&self) -> io::Result<()> {
        let parker = Arc::new(Parker::<Linux>::new());
        let waker = Arc::clone(&parker);
        self.0.ask(move || waker.unpark());
        while !parker.park(None) {}
        Ok(())
    }
}

struct Pipe(Alarm);

impl Block for Pipe {
    fn block(&self) -> io::Result<()> {
        let (mut reader, mut writer) = io::pipe()?;
        self.0.ask(move || {
            // The write fails only if the reader is gone, but the reader waits for this byte.
            let _ = writer.write_all(&[1]);
        });
        reader.read_exact(&mut [0])
    }
}

impl Block for Disk {
    fn block(&self) -> io::Result<()> {
        self.read()
    }
}

/// How items are blocked, and how long a read of the disk takes.
pub(super) type Prepared = (Arc<dyn Block>, Option<f64>);

/// Prepares what a way needs; `Ok(Err(_))` says why the way is not available on this machine.
pub(super) fn prepare(
    way: Way,
    time: Duration,
    folder: &Path,
) -> Result<Result<Prepared, String>, Error> {
    let mut read_us = None;
    let block: Arc<dyn Block> = match way {
        Way::Sleep => Arc::new(Sleeps::<Linux>::new(time)),
        Way::Futex => Arc::new(Futex(Alarm::start(time)?)),
        Way::Pipe => Arc::new(Pipe(Alarm::start(time)?)),
        Way::Disk => match Disk::make(folder) {
            Err(reason) => return Ok(Err(reason)),
            Ok(disk) => {
                read_us = Some(disk.read_us()?);
                Arc::new(disk)
            }
        },
    };
    Ok(Ok((block, read_us)))
}

// A thread that does something for other threads after a while: the other thread that wakes a blocked item.

type Action = Box<dyn FnOnce() + Send>;

/// The thread. All callers ask it for the same delay, so the first to ask is the first to be served.
#[derive(Debug)]
pub(super) struct Alarm {
    delay: Duration,
    /// Taken when this value is dropped: the thread ends when no other thread can ask any more.
    sender: Option<Sender<(Instant, Action)>>,
    thread: Option<JoinHandle<()>>,
}

impl Alarm {
    /// Starts the thread.
    pub(super) fn start(delay: Duration) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel::<(Instant, Action)>();
        let body = move || {
            for (at, action) in receiver {
                thread::sleep(at.saturating_duration_since(Instant::now()));
                action();
            }
        };
        let thread = thread::Builder::new()
            .name("alarm".into())
            .spawn(body)
            .map_err(|error| Error::run(format!("no thread to wake items up: {error}")))?;
        Ok(Self { delay, sender: Some(sender), thread: Some(thread) })
    }

    /// Calls `action` after the delay.
    pub(super) fn ask(&self, action: impl FnOnce() + Send + 'static) {
        let sender = self.sender.as_ref().expect("taken in drop alone");
        let request = (Instant::now() + self.delay, Box::new(action) as Action);
        assert!(sender.send(request).is_ok(), "the thread ends after the sender");
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

// A file that is read bypassing the page cache: each read goes to the disk.

/// Bytes of one read: a page.
const READ: usize = 4096;
/// Pages of the file: 64 MiB, more than the cache of a disk's controller keeps for long.
const PAGES: u64 = 16 << 10;
/// The step from one read to the next, coprime with the number of pages: every page is read in turn, and consecutive reads are far from
/// each other.
const STRIDE: u64 = 7_919;
/// The number of reads that measure how long a read takes.
const TRIALS: usize = 101;

/// The file; it is unlinked at once, so that nothing is left behind, however the run ends.
#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    next: AtomicU64,
}

impl Disk {
    /// Makes the file in `folder` and fills it. If that, or reading the file directly, is impossible, the text says why.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let path = folder.join(format!("nearq-blocking-{}", std::process::id()));
        let explain = |error: io::Error| match error.raw_os_error() {
            Some(libc::EINVAL) => {
                format!("the file system of {} refuses O_DIRECT", folder.display())
            }
            _ => format!("{}: {error}", path.display()),
        };
        let made = Self::fill(&path)
            .and_then(|()| OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path));
        let _ = fs::remove_file(&path);
        let disk = Self { file: made.map_err(explain)?, next: AtomicU64::new(0) };
        // Some file systems accept the flag but refuse the read.
        disk.read().map_err(explain)?;
        Ok(disk)
    }

    fn fill(path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let page: Vec<u8> = (0..READ).map(|at| (at % 251) as u8).collect();
        for number in 0..PAGES {
            file.write_all(&number.to_ne_bytes())?;
            file.write_all(&page[8..])?;
        }
        file.sync_all()
    }

    /// Reads a page that was not read lately.
    pub(super) fn read(&self) -> io::Result<()> {
        let page = self.next.fetch_add(STRIDE, Ordering::Relaxed) % PAGES;
        let mut buffer = Buffer::new();
        self.file.read_exact_at(&mut buffer[..READ], page * READ as u64)?;
        let found = u64::from_ne_bytes(buffer[..8].try_into().expect("eight bytes"));
        if found == page {
            Ok(())
        } else {
            Err(io::Error::other("a page holds another page's bytes"))
        }
    }

    /// How long a read takes, in microseconds: the median of some.
    pub(super) fn read_us(&self) -> Result<f64, Error> {
        let mut trials = Vec::with_capacity(TRIALS);
        for _ in 0..TRIALS {
            let start = Instant::now();
            self.read().map_err(|error| Error::run(format!("reading the disk: {error}")))?;
            trials.push(start.elapsed().as_secs_f64() * 1e6);
        }
        trials.sort_by(f64::total_cmp);
        Ok(trials[TRIALS / 2])
    }
}

#[cfg(test)]
#[path = "tests/ways.rs"]
mod ways_tests;

#[cfg(test)]
#[path = "tests/alarm.rs"]
mod alarm_tests;

#[cfg(test)]
#[path = "tests/disk.rs"]
mod disk_tests;

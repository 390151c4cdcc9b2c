//! The ways in which an item can be blocked.

use super::alarm::Alarm;
use super::disk::Disk;
use crate::Error;
use nearq_platform::{Linux, Parker, Platform};
use std::io::{self, Read as _, Write as _};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A way to be blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// It sleeps, and the system's timer wakes it.
    Sleep,
    /// It waits in a futex until another thread wakes it.
    Futex,
    /// It reads from a pipe into which another thread writes.
    Pipe,
    /// It reads a page of a file past the page cache; that takes as long as it takes.
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

/// What blocks the calling thread.
pub trait Block: Send + Sync {
    /// Blocks it once.
    fn block(&self) -> io::Result<()>;
}

/// The plain sleep, on any platform.
#[derive(Debug)]
pub struct Sleeps<P>(Duration, PhantomData<fn() -> P>);

impl<P> Sleeps<P> {
    /// For so long.
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
            // Nobody reads only if the reader is gone, and it waits for this byte.
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

/// How items are blocked, and what a read of the disk takes.
pub(super) type Prepared = (Arc<dyn Block>, Option<f64>);

/// Makes ready what a way needs; `Ok(Err(_))` says why it cannot be gone here.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn whoever_is_blocked_comes_back_after_the_time_and_has_used_none_of_the_cpu() {
        let time = Duration::from_millis(20);
        for way in [Way::Sleep, Way::Futex, Way::Pipe] {
            let (block, _) = prepare(way, time, Path::new("/")).unwrap().unwrap();
            let cpu_time = || Linux::cpu_time(Linux::current_thread()).unwrap();
            let (start, used) = (Instant::now(), cpu_time());
            block.block().unwrap();
            let (waited, used) = (start.elapsed(), cpu_time().saturating_sub(used));
            assert!(waited >= time && used < time / 4, "{}: {waited:?}, {used:?}", way.name());
        }
    }

    #[test]
    fn names_are_unique_and_others_are_refused() {
        for way in Way::ALL {
            assert_eq!(Way::named(way.name()).unwrap(), way);
        }
        let error = Way::named("nap").unwrap_err();
        assert_eq!(error.to_string(), "--way \"nap\": give one of sleep, futex, pipe, disk");
    }
}

//! A store in a file or on a block device, with Linux AIO.

use super::{Direction, Lane, Store, Transfer};
use crate::Error;
use crate::harness::EventBell;
use crate::payload::BLOCK_BYTES;
use nearq_platform::Linux;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

// A file or a block device as the store: direct, asynchronous input and output if the system grants it.

/// A regular file made for the run, or a block device (a disk, a partition, a dm-crypt mapping).
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    file: Arc<File>,
    places: u64,
    kind: Kind,
    /// Why the page cache is in between, if it is.
    buffered: Option<String>,
    /// Why transfers are made one by one by the issuer's thread, if they are.
    synchronous: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Made by us and unlinked at once: nothing stays behind, however the run ends.
    Made,
    /// An empty file of the user's; it is emptied again.
    Empty,
    Device,
}

impl FileStore {
    /// Opens `path` for at least `least` and at most `most` blocks. A file that holds something is refused; a
    /// block device is overwritten.
    pub fn open(path: &Path, least: u64, most: u64) -> Result<Self, Error> {
        let refused = |reason: &str| {
            Error::input(format!(
                "--file {}: {reason}; give a new or empty file, or a block device (which is overwritten)",
                path.display()
            ))
        };
        let kind = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kind::Made,
            Err(error) => return Err(refused(&error.to_string())),
            Ok(data) if data.file_type().is_block_device() => Kind::Device,
            Ok(data) if !data.is_file() => {
                return Err(refused("it is neither a file nor a block device"));
            }
            Ok(data) if data.len() > 0 => {
                return Err(refused(&format!("it holds {} bytes already", data.len())));
            }
            Ok(_) => Kind::Empty,
        };
        let cannot_write = |error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY) => refused("it is in use, perhaps mounted"),
            _ => refused(&format!("cannot be written: {error}")),
        };
        let (mut file, buffered) = open_direct(path, kind).map_err(cannot_write)?;
        if kind == Kind::Made {
            fs::remove_file(path).map_err(cannot_write)?;
        }
        let places = if kind == Kind::Device {
            let bytes = file.seek(SeekFrom::End(0)).map_err(cannot_write)?;
            (bytes / BLOCK_BYTES as u64).min(most)
        } else {
            reserve(&file, most * BLOCK_BYTES as u64).map_err(|error| {
                refused(&format!(
                    "{} MiB cannot be reserved: {error}",
                    (most * BLOCK_BYTES as u64) >> 20
                ))
            })?;
            most
        };
        if places < least {
            let reason =
                format!("it has room for {places} blocks of 32 KiB, but {least} are needed");
            return Err(refused(&reason));
        }
        let file = Arc::new(file);
        let synchronous = AioLane::probe().err().map(|error| error.to_string());
        Ok(Self { path: path.into(), file, places, kind, buffered, synchronous })
    }
}

fn open_direct(path: &Path, kind: Kind) -> io::Result<(File, Option<String>)> {
    let open = |flags: i32| {
        // On a block device, O_EXCL makes the call fail if the device is mounted or otherwise in use.
        let exclusive = if kind == Kind::Device { libc::O_EXCL } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags | exclusive);
        options.create_new(kind == Kind::Made).open(path)
    };
    match open(libc::O_DIRECT) {
        Ok(file) => Ok((file, None)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            if kind == Kind::Made {
                // Systems that make the file before they check the flag have made it by now.
                let _ = fs::remove_file(path);
            }
            Ok((open(0)?, Some("the file system refuses O_DIRECT".into())))
        }
        Err(error) => Err(error),
    }
}

/// Gives the file its size, and reserves its space if the file system can.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open for the whole call, and no memory is passed.
    let result = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
    match result {
        0 => Ok(()),
        libc::EOPNOTSUPP | libc::EINVAL => file.set_len(bytes),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Store<Linux> for FileStore {
    fn places(&self) -> u64 {
        self.places
    }

    fn describe(&self) -> String {
        let what = if self.kind == Kind::Device { "block device" } else { "file" };
        let how = match &self.buffered {
            None => "O_DIRECT".to_owned(),
            Some(reason) => format!("through the page cache: {reason}"),
        };
        let when = match &self.synchronous {
            None => "asynchronous (Linux AIO, as fio's libaio)".to_owned(),
            Some(reason) => {
                format!("one transfer at a time for each issuer: no Linux AIO ({reason})")
            }
        };
        format!("{what} {}, {how}, {when}", self.path.display())
    }

    fn lane(
        &self,
        places: Range<u64>,
        in_flight: usize,
        bell: &EventBell,
    ) -> Result<Box<dyn Lane>, Error> {
        assert!(places.end <= self.places, "the lane is outside the store");
        if self.synchronous.is_some() {
            return Ok(Box::new(SynchronousLane { file: Arc::clone(&self.file) }));
        }
        let lane = AioLane::new(Arc::clone(&self.file), in_flight, bell.clone())
            .map_err(|error| Error::run(format!("{}: {error}", self.path.display())))?;
        Ok(Box::new(lane))
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        if self.kind == Kind::Empty {
            let _ = self.file.set_len(0);
        }
    }
}

/// The fallback: the issuer's thread waits for each transfer.
#[derive(Debug)]
struct SynchronousLane {
    file: Arc<File>,
}

impl Lane for SynchronousLane {
    fn start(&mut self, mut transfer: Transfer) -> Result<Option<Transfer>, Error> {
        let offset = transfer.place * BLOCK_BYTES as u64;
        match transfer.direction {
            Direction::Write => self.file.write_all_at(&transfer.data, offset),
            Direction::Read => self.file.read_exact_at(&mut transfer.data, offset),
        }
        .map_err(|error| failed(&transfer, &error.to_string()))?;
        Ok(Some(transfer))
    }
}

/// The error of a transfer that failed.
pub(super) fn failed(transfer: &Transfer, reason: &str) -> Error {
    let verb = if transfer.direction == Direction::Write { "written" } else { "read" };
    Error::run(format!("block {} of the store cannot be {verb}: {reason}", transfer.place))
}

// Linux AIO, the interface under fio's libaio: an issuer submits a transfer and goes on; the end of the transfer
// rings its bell.

/// From the kernel's `linux/aio_abi.h`, of which libc has only a part, and not for every C library.
const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb` of `linux/aio_abi.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Iocb {
    data: u64,
    /// The kernel's key and flags of the call, in an order that depends on the byte order; zero here.
    key_and_rw_flags: u64,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_descriptor: u32,
}

const _: () = assert!(size_of::<Iocb>() == 64, "as the kernel checks");

/// `struct io_event` of `linux/aio_abi.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct IoEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

/// A lane whose transfers the kernel makes while the issuer goes on.
#[derive(Debug)]
pub(super) struct AioLane {
    context: Context,
    file: Arc<File>,
    bell: EventBell,
    /// The transfers in flight, with the memory that the kernel uses; the index is the transfer's slot. Dropped after `context`, whose drop
    /// waits for the kernel to be done with that memory.
    pending: Vec<Option<Transfer>>,
    events: Vec<IoEvent>,
}

impl AioLane {
    /// Whether the system grants AIO at all.
    pub(super) fn probe() -> io::Result<()> {
        Context::new(1).map(drop)
    }

    pub(super) fn new(file: Arc<File>, in_flight: usize, bell: EventBell) -> io::Result<Self> {
        let pending = (0..in_flight).map(|_| None).collect();
        let events = vec![IoEvent::default(); in_flight];
        Ok(Self { context: Context::new(in_flight)?, file, bell, pending, events })
    }
}

impl Lane for AioLane {
    fn start(&mut self, mut transfer: Transfer) -> Result<Option<Transfer>, Error> {
        let slot = transfer.slot;
        assert!(self.pending[slot].is_none(), "slot {slot} has a transfer on its way");
        let mut control = Iocb {
            data: slot as u64,
            opcode: match transfer.direction {
                Direction::Write => IOCB_CMD_PWRITE,
                Direction::Read => IOCB_CMD_PREAD,
            },
            descriptor: self.file.as_raw_fd() as u32,
            buffer: transfer.data.as_mut_ptr().expose_provenance() as u64,
            bytes: BLOCK_BYTES as u64,
            offset: (transfer.place * BLOCK_BYTES as u64) as i64,
            flags: IOCB_FLAG_RESFD,
            result_descriptor: self.bell.as_raw_fd() as u32,
            ..Iocb::default()
        };
        // SAFETY: the buffer is a block long. It moves into `pending` without moving in memory (it is boxed),
        // and stays there until the kernel reports the end of the transfer or the context is destroyed.
        if let Err(error) = unsafe { self.context.submit(&mut control) } {
            return Err(failed(&transfer, &error.to_string()));
        }
        self.pending[slot] = Some(transfer);
        Ok(None)
    }

    fn reap(&mut self, finished: &mut Vec<Transfer>) -> Result<(), Error> {
        let count = self
            .context
            .events(&mut self.events)
            .map_err(|error| Error::run(format!("io_getevents: {error}")))?;
        for event in &self.events[..count] {
            let transfer = self.pending[event.data as usize]
                .take()
                .expect("the kernel returns what it was given");
            match event.res {
                whole if whole == BLOCK_BYTES as i64 => finished.push(transfer),
                negative if negative < 0 => {
                    let error = io::Error::from_raw_os_error(-negative as i32);
                    return Err(failed(&transfer, &error.to_string()));
                }
                part => {
                    return Err(failed(
                        &transfer,
                        &format!("only {part} of {BLOCK_BYTES} bytes were moved"),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// An AIO context of the kernel.
#[derive(Debug)]
struct Context(libc::c_ulong);

impl Context {
    fn new(in_flight: usize) -> io::Result<Self> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's id through the pointer, which is to a live local.
        let result = unsafe {
            libc::syscall(libc::SYS_io_setup, in_flight as libc::c_uint, ptr::from_mut(&mut id))
        };
        check(result)?;
        Ok(Self(id))
    }

    /// # Safety
    ///
    /// The memory that `control` names must stay valid, and untouched, until the transfer has ended.
    unsafe fn submit(&self, control: &mut Iocb) -> io::Result<()> {
        let mut controls = [ptr::from_mut(control)];
        // SAFETY: one pointer to one control block, both live during the call, which copies the block; the memory
        // that it names is the caller's promise.
        let result = unsafe {
            libc::syscall(libc::SYS_io_submit, self.0, 1 as libc::c_long, controls.as_mut_ptr())
        };
        check(result).map(drop)
    }

    /// Takes the completions that have arrived, without waiting.
    fn events(&self, events: &mut [IoEvent]) -> io::Result<usize> {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes at most `events.len()` events into that slice, and reads a live timespec.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                0 as libc::c_long,
                events.len() as libc::c_long,
                events.as_mut_ptr(),
                ptr::from_ref(&now),
            )
        };
        check(result)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the id is that of a context of ours. The call returns when no transfer is in flight any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
#[path = "tests/file.rs"]
mod file_tests;

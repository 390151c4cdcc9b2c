//! Linux AIO, the interface under fio's libaio: an issuer submits a transfer and goes on; the end of the transfer
//! rings its bell.

use super::file::failed;
use super::{Direction, Lane, Transfer};
use crate::Error;
use crate::harness::EventBell;
use crate::payload::BLOCK_BYTES;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::Arc;

/// From the kernel's `linux/aio_abi.h`, of which libc has a part, and that not for every C library.
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
    /// What is on its way, with the memory that the kernel uses; the index is the transfer's slot. Dropped after
    /// `context`, whose drop waits for the kernel to be done with that memory.
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

    /// Takes the ends of transfers that are there, without waiting.
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
        // SAFETY: the id is that of a context of ours. The call returns when no transfer is on its way any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

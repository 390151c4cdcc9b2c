//! A little more time before being preempted: the extension of time slices by the rseq area, since Linux 7.0.
//!
//! A thread that has turned it on says in its area that it *requests* time. If it would be preempted while that stands there, the
//! kernel takes the request away, says that it has *granted* time, and preempts the thread some microseconds later; sooner if
//! the thread makes a system call.

use core::ffi::{c_int, c_long, c_ulong};
use core::ptr::NonNull;

use super::{Errno, Result, SavedErrno, check, cpu};

/// `PR_RSEQ_SLICE_EXTENSION` of the kernel's `include/uapi/linux/prctl.h`, its commands `_GET` and `_SET`, and
/// `PR_RSEQ_SLICE_EXT_ENABLE`.
const SLICE_EXTENSION: c_int = 79;
const GET: c_ulong = 1;
const SET: c_ulong = 2;
const ENABLE: c_ulong = 1;

/// `rseq_slice_yield`: the same number on all processors; where it is not, that of a call that there is not.
const SLICE_YIELD: c_long = 471;

/// Where `flags` are in `struct rseq` of the kernel's `include/uapi/linux/rseq.h`, and the bit `RSEQ_CS_FLAG_SLICE_EXT_AVAILABLE`.
const FLAGS: usize = 16;
const AVAILABLE: u32 = 1 << 4;

/// Where `slice_ctrl` is there: a byte for the request, one for the grant,
/// and two that are zero.
const CONTROL: usize = 28;
const CONTROL_SIZE: usize = 4;
const GRANTED: usize = 1;

fn control(command: c_ulong, argument: c_ulong) -> Result<()> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let zero: c_ulong = 0;
    let _saved = SavedErrno::new();
    // SAFETY: validity: numbers. Aliasing: none. Thread: changes the caller alone.
    check(unsafe { libc::prctl(SLICE_EXTENSION, command, argument, zero, zero) }).map(drop)
}

/// Gives back the time that was granted and is left.
fn slice_yield() {
    let _saved = SavedErrno::new();
    // SAFETY: validity: no arguments. Aliasing: none. Thread: concerns the caller alone. An error says that nothing was granted.
    unsafe { libc::syscall(SLICE_YIELD) };
}

/// Where a thread makes its requests. Of the thread that found it alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceControl(NonNull<u8>);

impl SliceControl {
    /// The caller's; the kernel heeds its requests from now on. `ENXIO` where the C library has not registered an area for which the
    /// kernel does that.
    pub(crate) fn enable() -> Result<Self> {
        control(GET, 0)?;
        let area = cpu::rseq_area(CONTROL + CONTROL_SIZE).ok_or(Errno::NXIO)?;
        // SAFETY: validity: a field of the area, which is large enough, and aligned as the area is. Aliasing: written by the kernel,
        // while this thread does not run, hence volatile. Thread: the caller's own.
        let flags = unsafe { area.add(FLAGS).cast::<u32>().read_volatile() };
        // To ask for what is not available is taken for an attack, and ends the program.
        if flags & AVAILABLE == 0 {
            return Err(Errno::NXIO);
        }
        control(SET, ENABLE)?;
        // SAFETY: within the area, which is that large.
        Ok(SliceControl(unsafe { area.add(CONTROL) }))
    }

    fn granted(self) -> bool {
        // SAFETY: validity: the second byte of the field, in the area that is the thread's until it ends. Aliasing: written by the
        // kernel, while this thread does not run, hence volatile. Thread: the caller's own.
        unsafe { self.0.add(GRANTED).read_volatile() != 0 }
    }

    fn set_request(self, request: u8) {
        // SAFETY: as above; the first byte.
        unsafe { self.0.write_volatile(request) }
    }

    /// Requests time from now on; not while some is granted, when the kernel insists that there is no request.
    pub(crate) fn request(self) {
        if !self.granted() {
            self.set_request(1);
        }
    }

    /// Takes the request away, and gives back the time that was granted.
    pub(crate) fn withdraw(self) {
        self.set_request(0);
        if self.granted() {
            slice_yield();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_of(bytes: &mut [u8; CONTROL_SIZE]) -> SliceControl {
        SliceControl(NonNull::from(bytes).cast())
    }

    /// What the kernel writes is written by hand here. That a yield without a grant, or where there is no such call, does nothing
    /// is the kernel's promise.
    #[test]
    #[cfg_attr(miri, ignore = "a system call that Miri does not know")]
    fn a_request_is_made_and_withdrawn_and_never_made_beside_a_grant() {
        let mut bytes = [0; CONTROL_SIZE];
        made_of(&mut bytes).request();
        assert_eq!(bytes, [1, 0, 0, 0]);
        made_of(&mut bytes).withdraw();
        assert_eq!(bytes, [0; 4]);
        // Granted: the kernel has taken the request away.
        bytes = [0, 1, 0, 0];
        made_of(&mut bytes).request();
        assert_eq!(bytes, [0, 1, 0, 0]);
        made_of(&mut bytes).withdraw();
        assert_eq!(bytes, [0, 1, 0, 0], "the kernel takes the grant away");
    }
}

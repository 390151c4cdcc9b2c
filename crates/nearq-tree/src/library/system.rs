//! The system calls that the library makes, as functions. They bypass the C library, except for its `syscall`.
//!
//! `errno` belongs to the program: code that makes calls while the program runs preserves it (`SavedErrno`).

use core::ffi::{CStr, c_int, c_long, c_ulong, c_void};
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::AtomicU64;

use super::kernel::common::{
    AT_EXECFN, AT_FDCWD, AT_SECURE, CLOCK_BOOTTIME, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SHRINK,
    MAP_SHARED, MPOL_DEFAULT, MPOL_PREFERRED, O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDWR, PROT_READ,
    PROT_WRITE, SEEK_END,
};
use super::kernel::{
    __errno_location, SYS_clock_gettime, SYS_close, SYS_fcntl, SYS_get_mempolicy, SYS_getcpu,
    SYS_getpid, SYS_lseek, SYS_mmap, SYS_openat, SYS_readlinkat, SYS_sched_getaffinity,
    SYS_sched_setaffinity, SYS_set_mempolicy, getauxval, pthread_atfork, syscall,
};
use crate::layout::MAX_MASK_WORDS;
use crate::variable::Mask;

/// Whether the program has more rights than the process that started it: then its environment cannot be trusted.
pub(crate) fn has_more_rights() -> bool {
    // SAFETY: no pointers.
    unsafe { getauxval(AT_SECURE) != 0 }
}

/// Restores `errno` when it is dropped.
pub(crate) struct SavedErrno(c_int);

impl SavedErrno {
    pub(crate) fn new() -> Self {
        // SAFETY: the C library's address of this thread's `errno`; it is read at once.
        SavedErrno(unsafe { *__errno_location() })
    }
}

impl Drop for SavedErrno {
    fn drop(&mut self) {
        // SAFETY: the C library's address of this thread's `errno`; it is written at once.
        unsafe { *__errno_location() = self.0 };
    }
}

/// The path with which the program was started.
pub(crate) fn started_as() -> &'static [u8] {
    // SAFETY: no pointers.
    let path = unsafe { getauxval(AT_EXECFN) };
    if path == 0 {
        return &[];
    }
    // SAFETY: the kernel's text above the stack, which ends in a zero byte and stays.
    unsafe { CStr::from_ptr(ptr::with_exposed_provenance(path as usize)) }.to_bytes()
}

/// The number of the process.
pub(crate) fn pid() -> c_long {
    // SAFETY: no pointers.
    unsafe { syscall(SYS_getpid) }
}

/// The CPU on which this thread runs.
pub(crate) fn cpu() -> Option<usize> {
    let mut cpu: u32 = 0;
    let nowhere = ptr::null_mut::<c_void>();
    // SAFETY: the place is ours; nothing else is asked for.
    let returned = unsafe { syscall(SYS_getcpu, &raw mut cpu, nowhere, nowhere) };
    (returned == 0).then_some(cpu as usize)
}

/// The clock that also counts while the machine sleeps, in nanoseconds.
pub(crate) fn now() -> u64 {
    // A `timespec`: both parts are 64 bits wide on these machines.
    let mut time = [0_i64; 2];
    // SAFETY: the place is ours.
    unsafe { syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &raw mut time) };
    let [seconds, nanoseconds] = time;
    (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanoseconds as u64)
}

/// What a symbolic link points to, as much of it as fits.
pub(crate) fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    let (from, to) = (path.as_ptr(), buffer.as_mut_ptr());
    // SAFETY: the path ends in a zero byte, and no more is written than fits.
    let length = unsafe { syscall(SYS_readlinkat, AT_FDCWD, from, to, buffer.len()) };
    buffer.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default()
}

/// The CPUs that the thread may run on; none if there are more than fit.
pub(crate) fn affinity() -> Option<Mask> {
    let mut mask = [0_u64; MAX_MASK_WORDS];
    let place = mask.as_mut_ptr();
    // SAFETY: no more is written than fits.
    let returned = unsafe { syscall(SYS_sched_getaffinity, 0, size_of::<Mask>(), place) };
    (returned > 0).then_some(mask)
}

/// Restricts the thread to these CPUs; false if that is refused.
pub(crate) fn set_affinity(mask: &Mask) -> bool {
    let place = mask.as_ptr();
    // SAFETY: no more is read than the mask has.
    let returned = unsafe { syscall(SYS_sched_setaffinity, 0, size_of::<Mask>(), place) };
    returned == 0
}

/// Makes the thread's memory come from a node first, or from where the system takes it by default; false if that is refused.
pub(crate) fn set_memory(node: Option<u32>) -> bool {
    const BITS: usize = c_ulong::BITS as usize;
    let mut nodes: [c_ulong; 1024 / BITS] = [0; 1024 / BITS];
    let (mode, mask, bits) = match node {
        None => (MPOL_DEFAULT, ptr::null(), 0),
        Some(node) => {
            let Some(word) = nodes.get_mut(node as usize / BITS) else { return false };
            *word = 1 << (node as usize % BITS);
            // One more than the number of bits: the kernel subtracts one.
            (MPOL_PREFERRED, nodes.as_ptr(), 1024 + 1)
        }
    };
    // SAFETY: no mask, or as many bits as the mask has.
    let returned = unsafe { syscall(SYS_set_mempolicy, mode, mask, bits) };
    returned == 0
}

/// Whether the memory policy is the system's default: no policy has been set for this process.
pub(crate) fn has_usual_memory() -> bool {
    let mut mode: c_int = MPOL_DEFAULT as c_int;
    let nowhere = ptr::null_mut::<c_void>();
    // SAFETY: the place is ours; nodes are not asked for, and no address is used.
    let returned =
        unsafe { syscall(SYS_get_mempolicy, &raw mut mode, nowhere, 0_usize, nowhere, 0_usize) };
    returned != 0 || c_long::from(mode) == MPOL_DEFAULT
}

/// Seals without which the file could be truncated under us.
const SEALS: c_long = (F_SEAL_SHRINK | F_SEAL_GROW) as c_long;

/// Maps the file for as long as the program runs; none unless it is one of memory whose length is fixed.
pub(crate) fn map(path: &CStr) -> Option<&'static [AtomicU64]> {
    let flags = O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    // SAFETY: the path ends in a zero byte.
    let file = unsafe { syscall(SYS_openat, AT_FDCWD, path.as_ptr(), flags, 0) };
    if file < 0 {
        return None;
    }
    let mapped = map_file(file);
    // SAFETY: it was opened above, and nothing else knows it.
    unsafe { syscall(SYS_close, file) };
    mapped
}

fn map_file(file: c_long) -> Option<&'static [AtomicU64]> {
    // SAFETY: numbers only.
    let seals = unsafe { syscall(SYS_fcntl, file, F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS {
        return None;
    }
    // SAFETY: numbers only.
    let length = unsafe { syscall(SYS_lseek, file, 0_usize, SEEK_END) };
    let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
    let (anywhere, access) = (ptr::null_mut::<c_void>(), PROT_READ | PROT_WRITE);
    // SAFETY: a new mapping, at an address that the system chooses.
    let address = unsafe { syscall(SYS_mmap, anywhere, length, access, MAP_SHARED, file, 0_usize) };
    if address == -1 {
        return None;
    }
    let words: *const AtomicU64 = ptr::with_exposed_provenance(address as usize);
    // SAFETY: validity: mapped, page-aligned, of that length, which the seals keep; it is never unmapped. Aliasing: other processes write
    // it too, so all of it is atomic.
    Some(unsafe { core::slice::from_raw_parts(words, length / size_of::<AtomicU64>()) })
}

/// Makes each fork call `child` in its child from now on.
pub(crate) fn follow_forks(child: unsafe extern "C" fn()) {
    // SAFETY: a function that lives as long as the program: the library is never unloaded.
    unsafe { pthread_atfork(None, None, Some(child)) };
}

//! The system calls that the library makes, as functions. They bypass the C library, except for its `syscall`.
//!
//! `errno` belongs to the program: code that makes calls while the program runs preserves it (`SavedErrno`).

use core::ffi::{CStr, c_long, c_ulong, c_void};
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::AtomicU64;

use nearq_processes::tree::MAX_MASK_WORDS;
use nearq_processes::tree::variable::Mask;

/// The path with which the program was started.
pub(crate) fn started_as() -> &'static [u8] {
    // SAFETY: no pointers.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) };
    if path == 0 {
        return &[];
    }
    // SAFETY: the kernel's text above the stack, which ends in a zero byte and stays.
    unsafe { CStr::from_ptr(ptr::with_exposed_provenance(path as usize)) }.to_bytes()
}

/// The number of the process.
pub(crate) fn pid() -> c_long {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_getpid) }
}

/// The CPU on which this thread runs.
pub(crate) fn cpu() -> Option<usize> {
    let mut cpu: u32 = 0;
    let nowhere = ptr::null_mut::<c_void>();
    // SAFETY: the place is ours; nothing else is asked for.
    let returned = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, nowhere, nowhere) };
    (returned == 0).then_some(cpu as usize)
}

/// The clock that also counts while the machine sleeps, in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is ours.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_BOOTTIME, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// What a symbolic link points to, as much of it as fits.
pub(crate) fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    let (from, to) = (path.as_ptr(), buffer.as_mut_ptr());
    // SAFETY: the path ends in a zero byte, and no more is written than fits.
    let length =
        unsafe { libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, from, to, buffer.len()) };
    buffer.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default()
}

/// The CPUs that the thread may run on; none if there are more than fit.
pub(crate) fn affinity() -> Option<Mask> {
    let mut mask = [0_u64; MAX_MASK_WORDS];
    let place = mask.as_mut_ptr();
    // SAFETY: no more is written than fits.
    let returned =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<Mask>(), place) };
    (returned > 0).then_some(mask)
}

/// Restricts the thread to these CPUs; false if that is refused.
pub(crate) fn set_affinity(mask: &Mask) -> bool {
    let place = mask.as_ptr();
    // SAFETY: no more is read than the mask has.
    let returned =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<Mask>(), place) };
    returned == 0
}

/// Makes the thread's memory come from a node first, or from where the system takes it by default; false if that is refused.
pub(crate) fn set_memory(node: Option<u32>) -> bool {
    const BITS: usize = c_ulong::BITS as usize;
    let mut nodes: [c_ulong; 1024 / BITS] = [0; 1024 / BITS];
    let (mode, mask, bits) = match node {
        None => (libc::MPOL_DEFAULT, ptr::null(), 0),
        Some(node) => {
            let Some(word) = nodes.get_mut(node as usize / BITS) else { return false };
            *word = 1 << (node as usize % BITS);
            // One more than the number of bits: the kernel subtracts one.
            (libc::MPOL_PREFERRED, nodes.as_ptr(), 1024 + 1)
        }
    };
    // SAFETY: no mask, or as many bits as the mask has.
    let returned =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, c_long::from(mode), mask, bits) };
    returned == 0
}

/// Seals without which the file could be truncated under us.
const SEALS: c_long = (libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) as c_long;

/// Maps the file for as long as the program runs; none unless it is one of memory whose length is fixed.
pub(crate) fn map(path: &CStr) -> Option<&'static [AtomicU64]> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the path ends in a zero byte.
    let file = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    if file < 0 {
        return None;
    }
    let mapped = map_file(file);
    // SAFETY: it was opened above, and nothing else knows it.
    unsafe { libc::syscall(libc::SYS_close, file) };
    mapped
}

fn map_file(file: c_long) -> Option<&'static [AtomicU64]> {
    // SAFETY: numbers only.
    let seals = unsafe { libc::syscall(libc::SYS_fcntl, file, libc::F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS {
        return None;
    }
    // SAFETY: numbers only.
    let length = unsafe { libc::syscall(libc::SYS_lseek, file, 0_usize, libc::SEEK_END) };
    let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
    let (anywhere, access) = (ptr::null_mut::<c_void>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping, at an address that the system chooses.
    let address = unsafe {
        libc::syscall(libc::SYS_mmap, anywhere, length, access, libc::MAP_SHARED, file, 0_usize)
    };
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
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

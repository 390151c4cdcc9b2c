//! Finds the CPU that the caller runs on, as cheaply as possible.
//!
//! The kernel keeps the number of the current CPU in each thread's *rseq area*, four bytes that it rewrites
//! whenever the thread moves. The GNU C library (2.35 and later) registers an area for every thread and
//! publishes where it is: `__rseq_offset` bytes from the thread pointer, the same for all threads. Reading it
//! is one load, below 1 ns.
//!
//! Without such an area, the C library is called, which calls into the vDSO (3 to 30 ns, by processor). This happens with other C
//! libraries, an older one, programs linked statically, registration turned off (`GLIBC_TUNABLES=glibc.pthread.rseq=0`) or refused by the
//! kernel or a tool such as valgrind.
//!
//! # Where it is looked up
//! `AREA` holds what is known of the offset: not looked up, no area, or the offset itself. Areas are aligned to
//! 32 bytes, so odd numbers are free to stand for the first two.

use core::sync::atomic::{AtomicIsize, Ordering};

/// Not looked up yet.
const UNKNOWN: isize = 1;
/// Looked up: there is none.
const ABSENT: isize = 3;

/// The offset of the rseq area from the thread pointer, or `UNKNOWN` or `ABSENT`.
///
/// Relaxed everywhere: every thread that looks it up finds the same constant, and nothing else is published
/// with it.
static AREA: AtomicIsize = AtomicIsize::new(UNKNOWN);

/// The CPU that the caller runs on, or ran on a moment ago.
#[inline]
pub(crate) fn current_cpu() -> usize {
    let area = AREA.load(Ordering::Relaxed);
    if area & 1 == 0 {
        // Negative: the thread's registration failed, or was undone.
        if let Ok(cpu) = usize::try_from(area::cpu_id(area)) {
            return cpu;
        }
    }
    current_cpu_slow()
}

#[cold]
fn current_cpu_slow() -> usize {
    if AREA.load(Ordering::Relaxed) == UNKNOWN {
        let found = area::find().filter(|offset| offset & 1 == 0);
        AREA.store(found.unwrap_or(ABSENT), Ordering::Relaxed);
    }
    if cfg!(miri) {
        return 0;
    }
    // SAFETY: validity: no arguments. Aliasing: none. Thread: answers for the thread that calls.
    let cpu = unsafe { libc::sched_getcpu() };
    // Negative only if the kernel lacks the call; then every thread counts as being on the first CPU.
    usize::try_from(cpu).unwrap_or(0)
}

/// The area of glibc, on the processors whose thread pointer we know how to read.
#[cfg(all(
    target_env = "gnu",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(target_feature = "crt-static"),
    not(miri),
))]
mod area {
    use core::arch::asm;
    use core::ffi::{CStr, c_uint};

    /// Where `cpu_id` ends in `struct rseq` of the kernel's `include/uapi/linux/rseq.h`: `cpu_id_start` at 0, `cpu_id` at 4.
    const END_OF_CPU_ID: c_uint = 8;

    /// The offset of the area from the thread pointer, if there is an area that has a `cpu_id`.
    pub(super) fn find() -> Option<isize> {
        let offset = symbol::<isize>(c"__rseq_offset");
        let size = symbol::<c_uint>(c"__rseq_size");
        if offset.is_null() || size.is_null() {
            return None; // an older C library
        }
        // SAFETY: validity: the symbol is `const unsigned int __rseq_size` of <sys/rseq.h>, set before any
        // code of the program runs. Aliasing: it is a constant. Thread: it never changes.
        let size = unsafe { size.read() };
        if size < END_OF_CPU_ID {
            return None; // no area was registered, or a smaller one
        }
        // SAFETY: validity: the symbol is `const ptrdiff_t __rseq_offset` of <sys/rseq.h>, set before any code of the program runs.
        // Aliasing: it is a constant. Thread: it never changes.
        Some(unsafe { offset.read() })
    }

    /// The variable of that name; null if the C library has none. The caller must know its type.
    fn symbol<T>(name: &CStr) -> *const T {
        // SAFETY: validity: the name ends in a zero byte and lives for the whole call. Aliasing: it is only
        // read. Thread: the dynamic linker locks for itself.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast_const().cast() }
    }

    /// The caller's `cpu_id`. `offset` must come from [`find`].
    #[inline(always)]
    pub(super) fn cpu_id(offset: isize) -> i32 {
        let cpu_id: i32;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: validity: the C library promises an area at this offset from the thread pointer (fs) of
        // every thread, for all its life. Aliasing: four aligned bytes that only the kernel writes, while
        // this thread does not run. Thread: the area is the caller's own.
        unsafe {
            asm!(
                "mov {cpu_id:e}, dword ptr fs:[{offset} + 4]",
                offset = in(reg) offset,
                cpu_id = lateout(reg) cpu_id,
                options(nostack, preserves_flags, readonly),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: validity: the C library promises an area at this offset from the thread pointer (tpidr_el0) of every thread, for all
        // its life. Aliasing: four aligned bytes that only the kernel writes, while this thread does not run. Thread: the area is the
        // caller's own.
        unsafe {
            asm!(
                "mrs {area}, tpidr_el0",
                "add {area}, {area}, {offset}",
                "ldr {cpu_id:w}, [{area}, #4]",
                offset = in(reg) offset,
                area = out(reg) _,
                cpu_id = lateout(reg) cpu_id,
                options(nostack, preserves_flags, readonly),
            );
        }
        cpu_id
    }
}

/// No area that we know of.
#[cfg(not(all(
    target_env = "gnu",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(target_feature = "crt-static"),
    not(miri),
)))]
mod area {
    pub(super) fn find() -> Option<isize> {
        None
    }

    /// Never called, because [`find`] finds no area.
    #[inline(always)]
    pub(super) fn cpu_id(_offset: isize) -> i32 {
        -1
    }
}

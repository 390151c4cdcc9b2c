//! Filters of the kernel that refuse system calls, as in many containers. Test programs of several crates include this file by its path.

#![allow(dead_code, reason = "each test program uses its part")]

/// What a filter sees of a call, in words of 32 bits: its number, and the part of an argument that holds small numbers.
const NUMBER: u32 = 0;
const fn argument(at: u32) -> u32 {
    16 + 8 * at + if cfg!(target_endian = "big") { 4 } else { 0 }
}

/// From now on the kernel refuses these calls with `EPERM` if the caller, which must be a separate thread, makes them. Returns whether the
/// kernel has such filters.
pub(crate) fn refuse(calls: &[libc::c_long]) -> bool {
    let mut filter = vec![load(NUMBER)];
    for call in calls {
        filter.extend([unless(*call as u32, 1), end(refusal(libc::EPERM))]);
    }
    set(filter)
}

/// From now on this socket option appears unknown to the kernel for the caller, which must be a separate thread. Returns whether that is
/// possible.
pub(crate) fn forget_option(option: libc::c_int) -> bool {
    set(vec![
        load(NUMBER),
        unless(libc::SYS_getsockopt as u32, 3),
        load(argument(2)),
        unless(option as u32, 1),
        end(refusal(libc::ENOPROTOOPT)),
    ])
}

fn step(code: u32, value: u32, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: no, k: value }
}

fn load(word: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, word, 0)
}

/// Skips that many steps unless the word matches.
fn unless(word: u32, steps: u8) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, word, steps)
}

fn end(answer: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, answer, 0)
}

fn refusal(errno: libc::c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// Calls that no step decides are allowed.
fn set(mut filter: Vec<libc::sock_filter>) -> bool {
    filter.push(end(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: validity: numbers alone. Thread: it is of the caller, which ends with its test.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: validity: the program and its steps live until the call returns, and are only read. Thread: it is of the caller, which
    // ends with its test.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    (bound, set) == (0, 0)
}

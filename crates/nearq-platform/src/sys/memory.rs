//! Which node memory comes from, and where it is.

use core::ffi::{c_int, c_long, c_ulong, c_void};
use core::ptr;

use super::{Errno, Result, check};

/// Node numbers are below this. The kernel takes masks of up to eight pages of bits and has at most 1024 nodes.
const MAX_NODES: usize = 1024;

/// `MPOL_MF_MOVE` of the kernel's `include/uapi/linux/mempolicy.h`: move the pages that only this process uses.
const MPOL_MF_MOVE: libc::c_uint = 1 << 1;

/// How the nodes of a policy are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryMode {
    /// The kernel's default. Takes no nodes.
    Default,
    /// The node of the CPU that touches the page. Takes no nodes.
    Local,
    /// The given node first, other nodes when it is full.
    Preferred,
    /// Only the given nodes.
    Bind,
    /// The given nodes in turn.
    Interleave,
}

impl MemoryMode {
    pub(super) fn as_raw(self) -> c_int {
        match self {
            MemoryMode::Default => libc::MPOL_DEFAULT,
            MemoryMode::Local => libc::MPOL_LOCAL,
            MemoryMode::Preferred => libc::MPOL_PREFERRED,
            MemoryMode::Bind => libc::MPOL_BIND,
            MemoryMode::Interleave => libc::MPOL_INTERLEAVE,
        }
    }

    fn from_raw(mode: c_int) -> Option<Self> {
        let all = [
            MemoryMode::Default,
            MemoryMode::Local,
            MemoryMode::Preferred,
            MemoryMode::Bind,
            MemoryMode::Interleave,
        ];
        all.into_iter().find(|known| known.as_raw() == mode)
    }
}

const BITS: usize = c_ulong::BITS as usize;

/// A mask of nodes as the kernel reads it.
pub(super) struct NodeMask([c_ulong; MAX_NODES / BITS]);

impl NodeMask {
    /// `EINVAL` for a node that no kernel has.
    pub(super) fn new(nodes: &[usize]) -> Result<Self> {
        let mut words = [0; MAX_NODES / BITS];
        for &node in nodes {
            *words.get_mut(node / BITS).ok_or(Errno::INVAL)? |= 1 << (node % BITS);
        }
        Ok(NodeMask(words))
    }

    /// The pointer and the length in bits, plus the one that the kernel takes off again; null without nodes.
    pub(super) fn as_argument(&self) -> (*const c_ulong, c_ulong) {
        if self.0.iter().all(|word| *word == 0) {
            (ptr::null(), 0)
        } else {
            (self.0.as_ptr(), MAX_NODES as c_ulong + 1)
        }
    }
}

/// `set_mempolicy`: where the pages come from that the caller touches first.
pub(crate) fn set_default_policy(mode: MemoryMode, nodes: &[usize]) -> Result<()> {
    let mask = NodeMask::new(nodes)?;
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let (words, bits) = mask.as_argument();
    // SAFETY: validity: `words` is null with no bits, or that many bits of `mask`, which lives on. Aliasing:
    // only read. Thread: changes the calling thread's policy alone.
    let returned =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, c_long::from(mode.as_raw()), words, bits) };
    check(returned).map(drop)
}

/// `get_mempolicy`: where the pages come from that the caller touches first; none for a mode that is not known here.
pub(crate) fn default_policy() -> Result<Option<(MemoryMode, Vec<usize>)>> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let mut mode: c_int = 0;
    let mut mask = NodeMask([0; MAX_NODES / BITS]);
    // SAFETY: validity: room for a number, and for as many bits as are named (less the one that the kernel takes off again).
    // Aliasing: the only references to both are those passed. Thread: reads the calling thread's policy.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            mask.0.as_mut_ptr(),
            MAX_NODES as c_ulong + 1,
            ptr::null::<c_void>(),
            0 as c_ulong,
        )
    };
    check(returned)?;
    let nodes = (0..MAX_NODES).filter(|node| mask.0[node / BITS] >> (node % BITS) & 1 != 0);
    Ok(MemoryMode::from_raw(mode).map(|mode| (mode, nodes.collect())))
}

/// `mbind`: where the whole pages inside `range` come from; those partly inside are left alone.
pub(crate) fn bind_range(
    range: &[u8],
    mode: MemoryMode,
    nodes: &[usize],
    move_pages: bool,
) -> Result<()> {
    let mask = NodeMask::new(nodes)?;
    let page = page_size();
    let start = range.as_ptr().addr().next_multiple_of(page);
    let end = range.as_ptr().addr().saturating_add(range.len()) / page * page;
    if start >= end {
        return Ok(());
    }
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let (words, bits) = mask.as_argument();
    let flags = if move_pages { MPOL_MF_MOVE } else { 0 };
    // SAFETY: validity: the pages are inside `range`, so they are mapped; `words` is null with no bits, or
    // that many bits of `mask`. Aliasing: the contents of the pages stay as they are, only the memory behind
    // them changes, which no program can see. Thread: any thread may bind, the kernel locks the mapping.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            range.as_ptr().with_addr(start),
            end - start,
            c_long::from(mode.as_raw()),
            words,
            bits,
            flags,
        )
    };
    check(returned).map(drop)
}

/// `move_pages` without a destination: the node of each page, or a negative error number.
///
/// `pages` holds one address in each page.
pub(crate) fn page_nodes(pages: &[*const c_void]) -> Result<Vec<i32>> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let mut nodes = vec![0_i32; pages.len()];
    // SAFETY: validity: `pages` and `nodes` have the length that is passed; the addresses in `pages` are
    // looked up, not followed; without destinations (null) nothing is moved. Aliasing: the only reference to
    // `nodes` is the one passed. Thread: any thread may ask about its own process (0).
    let returned = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            ptr::null::<c_int>(),
            nodes.as_mut_ptr(),
            0,
        )
    };
    check(returned).map(|_| nodes)
}

/// Bytes in a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: validity: a number. Aliasing: none. Thread: any thread may ask.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // Every Linux has a page size; 4096 is the smallest there is.
    usize::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_one_bit_for_each_node() {
        let mask = NodeMask::new(&[0, 3, 64]).unwrap();
        assert_eq!(mask.0.iter().map(|word| word.count_ones()).sum::<u32>(), 3);
        assert_eq!(mask.0[0] & 0b1001, 0b1001);
        assert_eq!(mask.as_argument().1, 1025);
    }

    #[test]
    fn no_nodes_is_no_mask() {
        let mask = NodeMask::new(&[]).unwrap();
        assert_eq!(mask.as_argument(), (ptr::null(), 0));
    }

    #[test]
    fn a_node_beyond_any_kernels_limit_is_refused() {
        assert_eq!(NodeMask::new(&[MAX_NODES]).err(), Some(Errno::INVAL));
    }

    #[test]
    fn less_than_a_page_binds_nothing() {
        let few = [0_u8; 16];
        assert_eq!(bind_range(&few, MemoryMode::Local, &[], false), Ok(()));
    }
}

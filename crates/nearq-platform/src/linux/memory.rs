//! Memory policies in the kernel's words, and where memory is.

use core::ffi::c_void;
use core::ops::Range;
use core::ptr;
use std::borrow::Cow;

use super::refusal::{self, refused};
use crate::sys::{self, Errno, MemoryMode};
use crate::{MemoryPolicy, OsError, Residency};

pub(super) fn set_default_policy(policy: &MemoryPolicy) -> Result<(), OsError> {
    let mode = match policy {
        // Not `MemoryMode::Local`, which would also keep the kernel from balancing this thread's pages between nodes.
        MemoryPolicy::Local => MemoryMode::Default,
        other => mode(other),
    };
    sys::set_default_policy(mode, nodes(policy)).map_err(|error| {
        let what = format!("have the thread's memory come from {}", text(policy));
        refused(what, error, refusal::memory(error))
    })
}

pub(super) fn bind(range: &[u8], policy: &MemoryPolicy, move_pages: bool) -> Result<(), OsError> {
    sys::bind_range(range, mode(policy), nodes(policy), move_pages).map_err(|error| {
        let what = format!("have {} bytes come from {}", range.len(), text(policy));
        refused(what, error, refusal::memory(error))
    })
}

pub(super) fn default_policy() -> Result<MemoryPolicy, OsError> {
    let what = || "find out where the thread's memory comes from".to_owned();
    let known =
        sys::default_policy().map_err(|error| refused(what(), error, refusal::memory(error)))?;
    let Some((mode, nodes)) = known else {
        return Err(refused(
            what(),
            Errno::OPNOTSUPP,
            Cow::Borrowed("it is a policy of another kind, which is not changed"),
        ));
    };
    Ok(match mode {
        MemoryMode::Default | MemoryMode::Local => MemoryPolicy::Local,
        MemoryMode::Preferred => {
            nodes.first().map_or(MemoryPolicy::Local, |node| MemoryPolicy::Preferred(*node))
        }
        MemoryMode::Bind => MemoryPolicy::Bind(nodes),
        MemoryMode::Interleave => MemoryPolicy::Interleave(nodes),
    })
}

pub(super) fn residency(range: Range<usize>, samples: usize) -> Result<Residency, OsError> {
    let page_size = sys::page_size();
    let mut residency = Residency { pages: Vec::new(), absent: 0, page_size };
    let bytes = range.len();
    let pages = sample(range, samples, page_size);
    if pages.is_empty() {
        return Ok(residency);
    }
    let nodes = sys::page_nodes(&pages).map_err(|error| {
        let what = format!("find out where {bytes} bytes are");
        refused(what, error, refusal::memory(error))
    })?;
    for node in nodes {
        match usize::try_from(node) {
            Ok(node) => {
                if residency.pages.len() <= node {
                    residency.pages.resize(node + 1, 0);
                }
                residency.pages[node] += 1;
            }
            // ENOENT: the page has no memory, or is swapped out. EFAULT: the page was only read so far, so that it shares the kernel's page
            // of zeros. Other errors (EBUSY) mean pages that are being moved: they count as absent too.
            Err(_) => residency.absent += 1,
        }
    }
    Ok(residency)
}

/// At most `samples` addresses in different pages of the range, from the first page on, evenly.
fn sample(range: Range<usize>, samples: usize, page_size: usize) -> Vec<*const c_void> {
    if range.is_empty() {
        return Vec::new();
    }
    let first = range.start / page_size;
    let last = (range.end - 1) / page_size;
    let pages = last - first + 1;
    let taken = pages.min(samples);
    (0..taken)
        .map(|index| {
            // This is `index * pages / taken`, computed so that it works for ranges of any size.
            let page = (index as u128 * pages as u128 / taken as u128) as usize;
            ptr::without_provenance((first + page) * page_size)
        })
        .collect()
}

pub(super) fn mode(policy: &MemoryPolicy) -> MemoryMode {
    match policy {
        MemoryPolicy::Local => MemoryMode::Local,
        MemoryPolicy::Preferred(_) => MemoryMode::Preferred,
        MemoryPolicy::Bind(_) => MemoryMode::Bind,
        MemoryPolicy::Interleave(_) => MemoryMode::Interleave,
    }
}

pub(super) fn nodes(policy: &MemoryPolicy) -> &[usize] {
    match policy {
        MemoryPolicy::Local => &[],
        MemoryPolicy::Preferred(node) => core::slice::from_ref(node),
        MemoryPolicy::Bind(nodes) | MemoryPolicy::Interleave(nodes) => nodes,
    }
}

pub(super) fn text(policy: &MemoryPolicy) -> String {
    match policy {
        MemoryPolicy::Local => "the node of the CPU that first touches it".to_owned(),
        MemoryPolicy::Preferred(node) => format!("node {node} first"),
        MemoryPolicy::Bind(nodes) => format!("nodes {nodes:?} only"),
        MemoryPolicy::Interleave(nodes) => format!("nodes {nodes:?} in turn"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    const PAGE: usize = 4096;

    fn offsets(range: &[u8], samples: usize) -> Vec<usize> {
        let start = range.as_ptr().addr();
        let first = start / PAGE;
        sample(start..start + range.len(), samples, PAGE)
            .iter()
            .map(|page| page.addr() / PAGE - first)
            .collect()
    }

    #[test]
    fn samples_are_evenly_spread_and_never_exceed_the_pages() {
        let memory = vec![0_u8; 12 * PAGE];
        let aligned = memory.as_ptr().align_offset(PAGE);
        let range = &memory[aligned..aligned + 10 * PAGE];
        assert_eq!(offsets(range, 100), (0..10).collect::<Vec<_>>());
        assert_eq!(offsets(range, 5), [0, 2, 4, 6, 8]);
        assert_eq!(offsets(range, 3), [0, 3, 6]);
        assert_eq!(offsets(range, 1), [0]);
        assert!(offsets(range, 0).is_empty());
        assert!(offsets(&[], 5).is_empty());
        // Two bytes in two pages.
        assert_eq!(offsets(&range[PAGE - 1..=PAGE], 5), [0, 1]);
    }

    #[test]
    fn a_nonexistent_node_is_refused_and_the_error_lists_the_nodes() {
        if cfg!(miri) {
            return;
        }
        let refused = set_default_policy(&MemoryPolicy::Bind(vec![1_000_000])).unwrap_err();
        assert_eq!(refused.errno(), libc::EINVAL);
        let text = refused.to_string();
        assert!(text.contains("[1000000]"), "{text}");
        assert!(text.contains("may use memory of nodes"), "{text}");
    }

    #[test]
    fn an_empty_range_is_on_no_node() {
        let residency = residency(0..0, 10).unwrap();
        assert_eq!(residency.absent, 0);
        assert!(residency.pages.is_empty());
        assert!(residency.page_size >= PAGE);
    }

    #[test]
    fn a_memory_policy_reads_back_as_set() {
        if cfg!(miri) {
            return;
        }
        const WHAT: &str = "a thread's memory policy";
        const HOW: &str = "a kernel with CONFIG_NUMA, and no filter on its calls";
        // The policy is that of a separate thread, which ends with the test.
        let main = || {
            let Ok(before) = default_policy() else {
                return skipped(WHAT, "it cannot be read", HOW);
            };
            for policy in [MemoryPolicy::Preferred(0), MemoryPolicy::Interleave(vec![0]), before] {
                match set_default_policy(&policy) {
                    Ok(()) => assert_eq!(default_policy(), Ok(policy)),
                    Err(refused) => return skipped(WHAT, refused, HOW),
                }
            }
        };
        std::thread::spawn(main).join().unwrap();
    }
}

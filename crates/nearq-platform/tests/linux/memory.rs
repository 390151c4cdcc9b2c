//! Where memory is: policies, binding, and counting pages by node.
//!
//! A container may forbid these calls; then the tests check that the refusal says so.

use std::ptr;

use crate::common::in_thread;
use nearq_platform::{
    Linux, LockPlatform, MemoryPolicy, OsError, Placement, Residency, ThreadSpec,
};

const PAGES: usize = 64;

/// Fresh pages that have not been touched, without huge ones.
struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    fn new() -> Self {
        let page = Linux::residency(&[], 0).unwrap().page_size;
        let length = PAGES * page;
        // SAFETY: validity: a new mapping, wherever the kernel likes. Aliasing: it is ours. Thread: any.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: validity: the mapping above. Aliasing: contents stay. Thread: any.
        unsafe { libc::madvise(start, length, libc::MADV_NOHUGEPAGE) };
        Mapping { start: start.cast(), length }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: validity: mapped, zero where untouched. Aliasing: `touch` takes `&mut`. Thread: the borrow keeps other writers away.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    fn touch(&mut self, pages: usize) {
        let page = self.length / PAGES;
        for index in 0..pages {
            // SAFETY: validity: inside the mapping. Aliasing and thread: `self` is borrowed exclusively.
            unsafe { self.start.add(index * page).write_volatile(1) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: validity: the mapping of `new`. Aliasing: nothing else refers to it any more. Thread: any.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// The value; or nothing if the system forbids the call and says what would allow it.
fn permitted<T>(outcome: Result<T, OsError>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(refused) => {
            assert!([libc::EPERM, libc::ENOSYS].contains(&refused.errno()), "{refused}");
            assert!(refused.remedy().contains("seccomp"), "{refused}");
            eprintln!("not tried: {refused}");
            None
        }
    }
}

fn present(residency: &Residency) -> usize {
    residency.pages.iter().sum()
}

#[test]
fn only_touched_pages_have_a_node() {
    let mut mapping = Mapping::new();
    let Some(fresh) = permitted(Linux::residency(mapping.bytes(), PAGES)) else {
        return;
    };
    assert_eq!((present(&fresh), fresh.absent), (0, PAGES));
    mapping.touch(PAGES / 2);
    let half = Linux::residency(mapping.bytes(), usize::MAX).unwrap();
    assert_eq!((present(&half), half.absent), (PAGES / 2, PAGES / 2));
    let sampled = Linux::residency(mapping.bytes(), 8).unwrap();
    assert_eq!((present(&sampled), sampled.absent), (4, 4));
}

#[test]
fn a_page_that_was_only_read_is_absent() {
    let mapping = Mapping::new();
    assert!(mapping.bytes().iter().all(|&byte| byte == 0));
    let Some(read) = permitted(Linux::residency(mapping.bytes(), PAGES)) else {
        return;
    };
    assert_eq!((present(&read), read.absent), (0, PAGES));
}

fn node_with_memory() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    list.trim().split(['-', ',']).next().and_then(|node| node.parse().ok()).unwrap_or(0)
}

#[test]
fn bound_memory_comes_from_its_node() {
    let node = node_with_memory();
    let policies = [
        MemoryPolicy::Bind(vec![node]),
        MemoryPolicy::Preferred(node),
        MemoryPolicy::Interleave(vec![node]),
        MemoryPolicy::Local,
    ];
    for policy in policies {
        for move_pages in [false, true] {
            let mut mapping = Mapping::new();
            mapping.touch(PAGES / 4);
            let bound = Linux::bind_memory(mapping.bytes(), &policy, move_pages);
            if permitted(bound).is_none() {
                return;
            }
            mapping.touch(PAGES);
            let Some(after) = permitted(Linux::residency(mapping.bytes(), PAGES)) else {
                return;
            };
            assert_eq!(present(&after), PAGES, "{policy:?}");
            if policy == MemoryPolicy::Bind(vec![node]) {
                assert_eq!(after.pages[node], PAGES);
            }
        }
    }
}

#[test]
fn a_thread_policy_chooses_the_node_of_its_pages() {
    let node = node_with_memory();
    in_thread(ThreadSpec::default(), move || {
        let bound = Linux::set_memory_policy(&MemoryPolicy::Bind(vec![node]));
        if permitted(bound).is_none() {
            return;
        }
        let mut mapping = Mapping::new();
        mapping.touch(PAGES);
        if let Some(after) = permitted(Linux::residency(mapping.bytes(), PAGES)) {
            assert_eq!(after.pages[node], PAGES);
        }
        Linux::set_memory_policy(&MemoryPolicy::Interleave(vec![node])).unwrap();
        Linux::set_memory_policy(&MemoryPolicy::Preferred(node)).unwrap();
        Linux::set_memory_policy(&MemoryPolicy::Local).unwrap();
    });
}

#[test]
fn nonexistent_nodes_are_refused() {
    let mapping = Mapping::new();
    for nodes in [vec![], vec![1023], vec![usize::MAX]] {
        for policy in [MemoryPolicy::Bind(nodes.clone()), MemoryPolicy::Interleave(nodes.clone())] {
            let refused = Linux::bind_memory(mapping.bytes(), &policy, false).unwrap_err();
            assert!(!refused.remedy().is_empty(), "{refused}");
            let refused = Linux::set_memory_policy(&policy).unwrap_err();
            assert!(!refused.remedy().is_empty(), "{refused}");
        }
    }
}

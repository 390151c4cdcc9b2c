//! The names that users give to items.
//!
//! A name is a part of the item's table (`Name`), so neither the item nor a worker that runs it needs room for it, and an observer reads
//! it without touching the item. A table with a given name is a copy of the type's own table. It is made when the name is first used with that type,
//! and never freed: there are as many as the program has pairs of a type and a name.
//!
//! # The lists
//! Each bucket is a list that only grows. A thread that finds no table pushes one by compare-exchange; if another thread was faster, it
//! searches what is new. Release when an entry is pushed, Acquire when the list is read: a thread that sees an entry sees what it points
//! to. There is no lock, so a fork leaves nothing behind. The lists belong to the process, and not to a platform, so their atomics are
//! those of the language.
#![expect(clippy::disallowed_types, reason = "statics of the process")]

use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use nearq_platform::Platform;

use crate::item::owned::Pending;
use crate::item::{ItemVtable, Name};

/// A table with a given name.
struct Entry {
    /// The type's own table, to compare.
    base: *const (),
    /// As the user has given it.
    name: &'static str,
    /// An `ItemVtable<P>` of the same `P` as the base.
    table: *const (),
    next: *mut Entry,
}

static BUCKETS: [AtomicPtr<Entry>; 64] = [const { AtomicPtr::new(null_mut()) }; 64];

/// The table of items that are like those of `base` but have that name; `base` itself if the name is empty.
pub(crate) fn table<P: Platform>(
    base: &'static ItemVtable<P>,
    name: &'static str,
) -> &'static ItemVtable<P> {
    let Some(last) = name.as_bytes().last() else { return base };
    let key = from_ref(base).cast::<()>();
    // Not by the address of the name: the same name may be at several.
    let mixed = (key.addr() >> 4) ^ (name.len() * 7) ^ (usize::from(*last) * 31);
    let bucket = &BUCKETS[mixed % BUCKETS.len()];
    let mut made: Option<Box<Entry>> = None;
    let mut searched = null_mut();
    // Acquire: pairs with the push below.
    let mut head = bucket.load(Ordering::Acquire);
    loop {
        let mut next = head;
        while next != searched {
            // SAFETY: an entry of the list, which is never freed or changed.
            let entry = unsafe { &*next };
            if entry.base == key && entry.name == name {
                if let Some(made) = made {
                    // SAFETY: from `Box::into_raw` below; no other thread has seen it.
                    drop(unsafe { Box::from_raw(made.table.cast_mut().cast::<ItemVtable<P>>()) });
                }
                // SAFETY: made below from a table with the address of `base`, so for the same `P`; never freed.
                return unsafe { &*entry.table.cast::<ItemVtable<P>>() };
            }
            next = entry.next;
        }
        searched = head;
        let mut entry = made.take().unwrap_or_else(|| {
            let table = ItemVtable { name: Name::Given(printable(name)), ..*base };
            let table = Box::into_raw(Box::new(table)).cast_const().cast();
            Box::new(Entry { base: key, name, table, next: null_mut() })
        });
        entry.next = head;
        let raw = Box::into_raw(entry);
        // Release: the entry and its table. Acquire: what another thread has pushed.
        match bucket.compare_exchange(head, raw, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: made above for this `P`; never freed.
            Ok(_) => return unsafe { &*(*raw).table.cast::<ItemVtable<P>>() },
            Err(found) => {
                // SAFETY: not pushed, so still ours.
                made = Some(unsafe { Box::from_raw(raw) });
                head = found;
            }
        }
    }
}

impl<P: Platform> Pending<P> {
    /// Gives the item a name for display.
    ///
    /// # Safety
    /// The caller has made the item, and no other thread can reach it yet.
    pub(crate) unsafe fn rename(&mut self, name: &'static str) {
        let table = table(self.table(), name);
        // SAFETY: the pointer is that of the whole allocation, which the caller says only this thread uses; no borrow of the field outlives
        // the line above.
        unsafe { (&raw mut (*self.as_raw().as_ptr()).table).write(table) };
    }
}

/// The name on one line, whatever it contains.
fn printable(name: &'static str) -> &'static str {
    if name.contains(char::is_control) {
        return Box::leak(name.replace(char::is_control, " ").into_boxed_str());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{never_optional, never_refused};
    use nearq_platform::Linux;

    static BASE: ItemVtable<Linux> = ItemVtable {
        is_optional: never_optional,
        execute: |_| unreachable!(),
        free: |_| unreachable!(),
        parts: None,
        refuse: never_refused,
        name: Name::OfType(|| "of its type"),
    };
    static OTHER: ItemVtable<Linux> = ItemVtable { name: Name::Given("other"), ..BASE };

    #[test]
    fn a_name_has_one_table_for_each_type() {
        // The same name at another address.
        let text: &'static str = &"a scan"[2..];
        assert!(core::ptr::eq(table(&BASE, "scan"), table(&BASE, text)));
        assert!(!core::ptr::eq(table(&BASE, "scan"), table(&BASE, "span")));
        assert!(!core::ptr::eq(table(&BASE, "scan"), table(&OTHER, "scan")));
        assert!(core::ptr::eq(table(&BASE, ""), &raw const BASE));
        assert_eq!(table(&BASE, "scan").name.text(), "scan");
        assert_eq!(table(&BASE, "two\nlines").name.text(), "two lines");
        assert_eq!(BASE.name.text(), "of its type");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "of no platform")]
    fn threads_that_use_a_name_at_once_get_the_same_table() {
        const NAMES: [&str; 4] = ["north", "south", "east", "west"];
        let addresses = || NAMES.map(|name| from_ref(table(&OTHER, name)).addr());
        let all: Vec<[usize; 4]> = {
            let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(addresses)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        };
        assert!(all.iter().all(|found| *found == all[0]), "{all:?}");
    }
}

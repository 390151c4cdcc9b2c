//! The program's environment as the loader provides it, before any function of the C library may be called.

use core::ffi::{CStr, c_char};
use core::slice;

/// Variables of the program that is about to begin.
pub(crate) struct Environment {
    variables: *mut *mut c_char,
}

impl Environment {
    /// # Safety
    /// `variables` is a list of texts that ends in a null pointer; nothing else accesses them while this value lives.
    pub(crate) unsafe fn of(variables: *mut *mut c_char) -> Self {
        Self { variables }
    }

    /// The value of a variable, for reading and overwriting.
    pub(crate) fn get(&mut self, name: &str) -> Option<&mut [u8]> {
        let mut at = self.variables;
        loop {
            // SAFETY: by `of`, and it is not read beyond the null pointer.
            let text = unsafe { *at };
            if text.is_null() {
                return None;
            }
            if let Some((value, length)) = value_of(text, name) {
                // SAFETY: of that length, and writable, as the kernel has put it on the stack. Aliasing: by `of`, and the result borrows
                // `self`.
                return Some(unsafe { slice::from_raw_parts_mut(value, length) });
            }
            // SAFETY: this was not the null pointer, so there is another one.
            at = unsafe { at.add(1) };
        }
    }
}

/// What follows `name=`, and its length.
fn value_of(text: *mut c_char, name: &str) -> Option<(*mut u8, usize)> {
    // C's `char` is signed on some machines.
    let mut at: *mut u8 = text.cast();
    for byte in name.bytes().chain([b'=']) {
        // SAFETY: the text ends in a zero byte, which no name has: this goes no further than that.
        if unsafe { *at } != byte {
            return None;
        }
        // SAFETY: this was not the zero byte.
        at = unsafe { at.add(1) };
    }
    // SAFETY: the rest of a text that ends in a zero byte.
    let length = unsafe { CStr::from_ptr(at.cast()) }.count_bytes();
    Some((at, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_matched_by_its_whole_name() {
        let mut texts = [*b"NEARQ_TREE_CHOOSE=fork\0", *b"NEARQ_TREE=abc\0........"];
        let mut list: Vec<*mut c_char> =
            texts.iter_mut().map(|text| text.as_mut_ptr().cast()).collect();
        list.push(core::ptr::null_mut());
        // SAFETY: made above, and lives on.
        let mut environment = unsafe { Environment::of(list.as_mut_ptr()) };
        assert_eq!(environment.get("NEARQ_TREE_CHOOSE").as_deref(), Some(&b"fork"[..]));
        environment.get("NEARQ_TREE").unwrap()[1] = b'x';
        assert_eq!(environment.get("NEARQ_TREE").as_deref(), Some(&b"axc"[..]));
        assert_eq!(environment.get("NEARQ"), None);
    }
}

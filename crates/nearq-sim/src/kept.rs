//! What the locks of a program share: the machine keeps it, and frees it when the machine is dropped.

use nearq_platform::LockPlatform;

use crate::context;
use crate::platform::Sim;
use crate::thread::EndCallback;

/// A pointer that the program gave to keep, and the function that frees what it points to.
#[derive(Debug)]
pub(crate) struct Kept {
    pointer: *const (),
    end: unsafe fn(*const ()),
}

impl Kept {
    pub(crate) fn new(pointer: *const (), end: unsafe fn(*const ())) -> Self {
        Kept { pointer, end }
    }

    /// Null if the program has given no pointer.
    pub(crate) fn pointer(&self) -> *const () {
        self.pointer
    }
}

impl Default for Kept {
    fn default() -> Self {
        unsafe fn nothing(_pointer: *const ()) {}
        Kept { pointer: core::ptr::null(), end: nothing }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.pointer.is_null() {
            // SAFETY: the pointer was made for `end` (`LockPlatform::share`). Either it was not published, or the run is over and its
            // threads never go on.
            unsafe { (self.end)(self.pointer) };
        }
    }
}

/// The running thread ends: calls the function that it gave for that.
pub(crate) fn call_end_callback() {
    let callback = {
        let mut world = context::expect("a thread's end").world.borrow_mut();
        core::mem::replace(&mut world.me_mut().end_callback, EndCallback::Called)
    };
    let number = Sim::number();
    if let EndCallback::Set(end) = callback
        && number != 0
    {
        end(number);
    }
}

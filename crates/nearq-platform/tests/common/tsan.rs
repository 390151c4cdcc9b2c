//! What the thread sanitizer must not report: races inside the test harness and `std::thread`.
//!
//! Both come compiled without the sanitizer's instrumentation, so that it does not see their own synchronisation and reports three of their
//! hand-overs as races. The sanitizer asks a program for suppressions through the function below; nothing else calls it. Each pattern names
//! data of theirs that does not occur in the name of any frame of a test.

use core::ffi::{CStr, c_char};

const NOT_OURS: &CStr = c"race:test::event::CompletedTest
race:alloc::sync::Arc<std::sync::poison::mutex::Mutex<core::option::Option<test::run_test::
race:alloc::sync::Arc<std::thread::
";

/// A constant, so that the function below neither calls nor reads anything: it is called before the sanitizer has set itself up, when its
/// instrumentation would fail.
const TEXT: *const c_char = NOT_OURS.as_ptr();

// SAFETY: the name is the sanitizer's, which declares it so, and weak; no other definition is in the program.
#[unsafe(no_mangle)]
extern "C" fn __tsan_default_suppressions() -> *const c_char {
    TEXT
}

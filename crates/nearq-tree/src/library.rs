//! What only the library does, and what the loader calls.

mod arrive;
mod environment;
mod home_hint;
mod kernel;
mod system;

use core::ffi::{c_char, c_int};

use system::SavedErrno;

type Begin = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char);

#[cfg(preloaded)]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: Begin = begin;

#[cfg(preloaded)]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Called before the program's `main`.
extern "C" fn begin(_count: c_int, _arguments: *mut *mut c_char, variables: *mut *mut c_char) {
    if variables.is_null() || system::has_more_rights() {
        return;
    }
    let _saved = SavedErrno::new();
    // SAFETY: the loader's list, which ends in a null pointer; no other thread runs yet that could change it.
    let environment = unsafe { environment::Environment::of(variables) };
    arrive::arrive(environment);
}

/// Called when the program exits.
extern "C" fn end() {
    let _saved = SavedErrno::new();
    arrive::leave();
}

/// Nothing panics here. The compiler wants to know what would happen.
#[cfg(preloaded)]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

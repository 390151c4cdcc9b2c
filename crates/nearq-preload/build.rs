//! If the library were loaded while a program runs, it would replace the mutexes of only some of its parts, in the middle of their use; and
//! its thread-local values would have no fixed place (`cancel.rs`). So the loader refuses that.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodlopen");
}

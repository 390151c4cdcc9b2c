//! How the library is linked: small, since each program that is executed loads it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in [
        // Nothing in the library unwinds. The unwinding information would pull in everything that the standard library does on a panic, and
        // with it another library that each program would have to load.
        "-Wl,--defsym=rust_eh_personality=0",
        "-Wl,--no-eh-frame-hdr",
        // If it were loaded while a program runs, it would have nothing to do.
        "-Wl,-z,nodlopen",
        // The compiler's start and end code is not linked: the library has its own.
        "-nostartfiles",
        // This makes fewer segments in memory, and none whose protection changes after loading: each would cost a system call and a page
        // fault.
        "-Wl,-z,noseparate-code",
        "-Wl,-z,norelro",
        "-Wl,-Bsymbolic",
        "-Wl,--hash-style=gnu",
        "-Wl,--build-id=none",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}

//! If asked to, compiles the policy's header for user space, and has bindgen declare its functions.

fn main() {
    println!("cargo::rerun-if-changed=../../crates/nearq-scx-policy/policy");
    #[cfg(feature = "policy")]
    functions::write();
}

#[cfg(feature = "policy")]
mod functions {
    use std::env;
    use std::path::PathBuf;

    const HEADERS: &str = "../../crates/nearq-scx-policy/policy";

    /// Writes `functions.rs`. The structures are those of nearq-scx-policy.
    pub(super) fn write() {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        let wrappers = out.join("policy.c");
        let written = bindgen::builder()
            .header(format!("{HEADERS}/types.h"))
            .header(format!("{HEADERS}/policy.h"))
            .allowlist_function("nq_.*")
            // This function takes an array whose length the declaration does not say.
            .blocklist_function("nq_any_of")
            .allowlist_recursively(false)
            .rustified_enum("nq_(why|take)")
            .raw_line("use nearq_scx_policy::layout::header::*;")
            .generate_comments(false)
            .wrap_static_fns(true)
            .wrap_static_fns_path(&wrappers)
            .generate()
            .expect("libclang reads the header");
        std::fs::write(out.join("functions.rs"), safe(&written.to_string()))
            .expect("cargo's folder can be written");
        let mut library = cc::Build::new();
        if env::var_os("PROFILE").is_some_and(|profile| profile == "debug") {
            // Undefined behaviour in the C code ends the test.
            library.flag("-fsanitize=undefined").flag("-fsanitize-undefined-trap-on-error");
        }
        library.file(wrappers).include(".").opt_level(2).warnings(true).compile("nearq_policy");
    }

    /// The declarations with references in place of pointers, as safe functions: whatever the numbers in the arguments, the header's
    /// functions touch only what they are given, keep no pointer, and return no number that an enum lacks. Indices are masked, and loops
    /// end at structures' sizes or at numbers that only the description of the machine has written.
    fn safe(declarations: &str) -> String {
        declarations
            .replace("pub fn nq_", "pub safe fn nq_")
            .replace(": *mut ", ": &mut ")
            .replace(": *const ", ": &")
    }
}

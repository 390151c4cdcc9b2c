//! A package that links something must have a build script. This one also includes the unit tests of rayon's own crate, if
//! `RAYON_CORE_SOURCE` says where its source is.

use std::path::PathBuf;
use std::{env, fs};

/// The modules of rayon-core that have tests, with what the tests find in the module around them.
const MODULES: [(&str, &str); 7] = [
    ("test", ""),
    ("broadcast/test", ""),
    ("join/test", "use crate::{join, join_context, unwind};"),
    ("scope/test", ""),
    ("spawn/test", "use crate::{spawn, spawn_fifo};"),
    ("thread_pool/test", ""),
    ("compile_fail/mod", ""),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RAYON_CORE_SOURCE");
    println!("cargo::rustc-check-cfg=cfg(rayon_core_tests)");
    let Ok(source) = env::var("RAYON_CORE_SOURCE") else { return };
    let modules: String = MODULES
        .iter()
        .map(|(file, around)| {
            let name = file.replace('/', "_");
            format!(
                "mod {name} {{ #[allow(unused_imports)] {around} #[path = {:?}] mod tests; }}\n",
                format!("{source}/src/{file}.rs"),
            )
        })
        .collect();
    let modules = modules.replace("#[allow(unused_imports)]  ", "");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("tests.rs"), modules).expect("the build's folder can be written");
    println!("cargo::rustc-cfg=rayon_core_tests");
}

//! Compiles the part that the kernel runs, and writes its Rust bindings.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

use libbpf_cargo::SkeletonBuilder;

/// Older versions do not support weak kernel functions, which only some kernels have.
const OLDEST: u32 = 16;
/// The names that are tried, the newest first.
const NAMES: [&str; 8] =
    ["clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang"];

fn main() {
    for path in ["src/bpf", "../nearq-scx-policy/policy"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("main.skel.rs");
    let clang = clang().unwrap_or_else(|refused| give_up(&refused));
    let built = SkeletonBuilder::new()
        .source("src/bpf/main.bpf.c")
        .clang(clang)
        .clang_args(["-I../nearq-scx-policy/policy", "-Isrc/bpf", "-mcpu=v3", "-Wall", "-Werror"])
        .build_and_generate(out);
    if let Err(error) = built {
        give_up(&format!("{error:#}"));
    }
}

/// The compiler: the one that `CLANG` names, or the newest that is installed.
fn clang() -> Result<String, String> {
    let how = format!(
        "install clang {OLDEST} or later (Debian: apt-get install clang-19), or name one in CLANG"
    );
    if let Ok(named) = env::var("CLANG") {
        return match version(&named) {
            Some(version) if version >= OLDEST => Ok(named),
            Some(version) => Err(format!("CLANG={named}: this is version {version}; {how}")),
            None => Err(format!("CLANG={named}: this is no clang; {how}")),
        };
    }
    let found = NAMES.into_iter().find(|name| version(name).is_some_and(|found| found >= OLDEST));
    found.map(str::to_owned).ok_or_else(|| match version("clang") {
        Some(version) => format!("clang {version} is too old; {how}"),
        None => format!("there is no clang; {how}"),
    })
}

/// Which clang it is, if it is one.
fn version(name: &str) -> Option<u32> {
    let output = Command::new(name).arg("-dumpversion").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // Other compilers have the option too.
    let is_clang = Command::new(name).arg("--version").output().ok()?;
    if !String::from_utf8_lossy(&is_clang.stdout).contains("clang") {
        return None;
    }
    text.trim().split('.').next()?.parse().ok()
}

fn give_up(why: &str) -> ! {
    println!("cargo::error=nearq-scx: {why}");
    exit(1);
}

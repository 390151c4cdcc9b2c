//! Compiles this crate a second time, as the library that programs are loaded with. The usual build holds its bytes (`LIBRARY`), so that a
//! command that uses this crate needs no other file.
//!
//! The compiler is called directly, and not cargo: the crate has no dependencies, so one call is enough. It needs no network, no lock file
//! and no second target directory, and the flags are the same in every profile and for every user. The library is for programs of glibc, so
//! it is compiled for glibc also if the command itself is for musl.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The processors whose system calls `src/kernel.rs` has.
const PROCESSORS: [&str; 4] = ["x86_64", "aarch64", "riscv64", "loongarch64"];

/// How the library is linked: small, because each program that is executed loads it.
const LINK: [&str; 10] = [
    // Nothing in the library unwinds. The unwinding information would need the standard library's functions.
    "-Wl,--defsym=rust_eh_personality=0",
    "-Wl,--no-eh-frame-hdr",
    // If it were loaded while a program runs, it would have nothing to do.
    "-Wl,-z,nodlopen",
    // The compiler's start and end code is not linked: the library has its own.
    "-nostartfiles",
    // That code would define this symbol. On aarch64, `pthread_atfork` passes its address, by which the C library knows whose handlers
    // to forget when a library is unloaded; this one never is.
    "-Wl,--defsym=__dso_handle=0",
    // This makes fewer segments in memory, and none whose protection changes after loading: each would cost a system call and a page
    // fault.
    "-Wl,-z,noseparate-code",
    "-Wl,-z,norelro",
    "-Wl,-Bsymbolic",
    "-Wl,--hash-style=gnu",
    "-Wl,--build-id=none",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(preloaded)");
    println!("cargo::rustc-check-cfg=cfg(has_library)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let processor = variable("CARGO_CFG_TARGET_ARCH");
    let is_supported = variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_POINTER_WIDTH") == "64"
        && PROCESSORS.contains(&processor.as_str());
    if !is_supported {
        return;
    }
    let own = variable("TARGET");
    let is_own = variable("CARGO_CFG_TARGET_ENV") == "gnu";
    let target = if is_own { own.clone() } else { glibc_target(&processor) };
    match compile(&target, is_own) {
        Ok(()) => println!("cargo::rustc-cfg=has_library"),
        Err(why) if own == variable("HOST") => println!("cargo::error=libnearq_tree.so: {why}"),
        // For another machine there may be no linker, and `cargo check` needs none. The command says so too, if it needs the library.
        Err(why) => {
            println!("cargo::warning=`nearq run --tree` will have no library inside: {why}")
        }
    }
}

/// The target for glibc with that processor.
fn glibc_target(processor: &str) -> String {
    let processor = if processor == "riscv64" { "riscv64gc" } else { processor };
    format!("{processor}-unknown-linux-gnu")
}

fn compile(target: &str, is_own: bool) -> Result<(), String> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or("there is no OUT_DIR")?);
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["src/lib.rs", "--crate-name", "nearq_tree", "--edition", "2024"]);
    rustc.args(["--crate-type", "cdylib", "--cfg", "preloaded", "--cap-lints", "allow"]);
    rustc.args(["--target", target, "-Cpanic=abort", "-Copt-level=3", "-Ccodegen-units=1"]);
    rustc.args(["-Cstrip=symbols", "-Coverflow-checks=off", "-Cdebug-assertions=off"]);
    rustc.args(LINK.map(|argument| format!("-Clink-arg={argument}"))).arg("-Clink-arg=-lc");
    if let Some(linker) = linker(target, is_own) {
        rustc.arg("-C").arg({
            let mut option = std::ffi::OsString::from("linker=");
            option.push(linker);
            option
        });
    }
    rustc.arg("-o").arg(folder.join("libnearq_tree.so"));
    let output = rustc.output().map_err(|error| format!("the compiler: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("it cannot be compiled for {target}: {}", text.trim().replace('\n', " ")))
}

/// The linker that the user has set for the target; otherwise the compiler knows one.
fn linker(target: &str, is_own: bool) -> Option<std::ffi::OsString> {
    let name = format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase());
    println!("cargo::rerun-if-env-changed={name}");
    env::var_os(name).or_else(|| env::var_os("RUSTC_LINKER").filter(|_| is_own))
}

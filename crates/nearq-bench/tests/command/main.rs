//! `nearq bench` and `nearq sim`, as `nearq-bench` carries them out.

#[path = "../../../nearq-cli/tests/command/common.rs"]
mod common;

mod bench;
mod frozen;
mod refusals;
mod sim;
mod soak;
#[cfg(target_arch = "x86_64")]
mod virtual_machine;

/// The program that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_nearq-bench");

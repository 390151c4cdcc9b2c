//! Checks of the workspace that cargo does not do: `cargo xtask CHECK`.
//!
//! Exit status: 0 where all is well, 1 where a check found something, 2 for a check that there is not. A check that
//! cannot run here prints one line that begins with `skipped:`, and all is well.

mod figures;
mod house;
mod licences;
mod metadata;
mod mistakes;
mod slice;
mod spdx;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask CHECK
  licences   every package that is built has a licence that is allowed
  house      crates use each other only as the house's plan allows
  figures    every figure in the prose about results is one that is recorded, and every result is in the table
  mistakes   the quick tests find each mistake of .ci/mistakes, or those that are named, planted in the protocols
  slice      the platform costs at most 2 % more instructions than code written for Linux by hand (needs valgrind)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["licences"] => licences::check(),
        ["house"] => house::check(),
        ["figures"] => figures::check(),
        ["mistakes", names @ ..] => mistakes::check(names),
        ["slice"] => slice::check(),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(found) => {
            eprintln!("{found}");
            ExitCode::FAILURE
        }
    }
}

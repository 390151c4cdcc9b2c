//! Checks of the workspace that cargo does not do: `cargo xtask CHECK`.
//!
//! Exit status: 0 if nothing is wrong, 1 if a check found something, 2 if the arguments are wrong. A check that cannot run on
//! this machine prints one line that begins with `skipped:`, and exits with 0.

mod api;
mod book;
mod callgrind;
mod copyright;
mod counts;
mod errors;
mod examples;
mod figures;
mod folders;
mod layers;
mod links;
#[cfg(feature = "listing")]
mod listing;
mod metadata;
mod mistakes;
mod orderings;
mod paths;
mod sources;
mod words;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask CHECK
  api        every type that a public signature of nearq names can be reached under `nearq::` (needs the nightly toolchain)
  book       the book is built from docs without a warning, and every link and anchor in it leads somewhere (needs mdbook)
  copyright  MANIFEST TARGET CRATE...: prints the notices of the crates of others that these crates of a workspace link, as Debian's copyright
             files have them
  counts     queueing, spawning and locking take the instructions that .ci/counts records, within 5 and 1 % (needs valgrind); with
             --write, they are written there
  layers     crates use each other only as the plan in layers.rs allows; examples import `nearq`, not the crates inside; the `Debug`
             form of every error reads as its `Display` form; paths in ARCHITECTURE.md, CONTRIBUTING.md,
             docs/documents.md and docs/design exist
  figures    every figure in the prose is recorded or listed as given, and every result is in the table;
             with --write, changed figures are written into the prose
  links      every link of a document leads to a file of the checkout that exists and to a heading that it has, or to another site; if
             the text of a link is code, the file contains it
  listing    the public interface is what .ci/interface records, item by item; with --write, it is written there (needs the nightly
             toolchain, and `cargo run -p xtask --features listing -- listing`)
  mistakes   the quick tests find each mistake of .ci/mistakes, or only those that are named, when it is planted
  orderings  the models find it where a file's SeqCst orderings are weakened, or .ci/orderings says why not; FILE...: only these
  variants   the fault soak fails with each variant of the runtime in .ci/variants
  words      no word of .ci/retired-words is used";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["api"] => api::check(),
        ["book"] => book::check(),
        // What mdBook calls when it builds the book.
        ["book-pages", arguments @ ..] => book::prepare(arguments),
        ["copyright", manifest, target, names @ ..] => copyright::print(manifest, target, names),
        ["counts"] => counts::check(false),
        ["counts", "--write"] => counts::check(true),
        ["layers"] => layers::check(),
        ["links"] => links::check(),
        ["figures"] => figures::check(false),
        ["figures", "--write"] => figures::check(true),
        #[cfg(feature = "listing")]
        ["listing"] => listing::check(false),
        #[cfg(feature = "listing")]
        ["listing", "--write"] => listing::check(true),
        ["mistakes", names @ ..] => mistakes::check(names),
        ["words"] => words::check(),
        ["variants"] => mistakes::check_variants(),
        ["orderings", files @ ..] => orderings::check(files),
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

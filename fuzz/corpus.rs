//! What the fuzzer begins with, for the tests on the stable compiler.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of a target, in the order of their names.
pub(crate) fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(folder).expect("it is in the repository");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a name").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a file")).collect()
}

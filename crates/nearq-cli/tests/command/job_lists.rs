//! What the fuzzer begins with of job lists, on the stable compiler and in every run of the tests.

use std::fs;
use std::path::Path;

use crate::listed;

#[test]
fn every_list_of_the_corpus_makes_jobs_or_is_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/jobs");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 12, "{} files", files.len());
    let jobs: usize = files.iter().map(|file| listed::check(&fs::read(file).unwrap())).sum();
    assert!(jobs > 12, "{jobs} jobs");
}

//! Runs the fuzzer's initial job lists with the stable compiler, in every run of the tests.

#[path = "../../../../fuzz/corpus.rs"]
mod files;

use crate::listed;

#[test]
fn every_list_of_the_corpus_makes_jobs_or_is_refused() {
    let files = files::corpus("jobs");
    assert!(files.len() >= 12, "{} files", files.len());
    let jobs: usize = files.iter().map(|file| listed::check(file)).sum();
    assert!(jobs > 12, "{jobs} jobs");
}

//! What the fuzzer begins with, on the stable compiler and in every run of the tests.

use std::fs;
use std::path::Path;

use nearq_topology::Topology;

use crate::checked;
use crate::common::Folder;

/// The files of a target.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let named = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())
    };
    let mut files: Vec<_> = files.map(named).collect();
    files.sort();
    files
}

#[test]
fn every_xml_file_of_the_corpus_is_a_machine_or_is_refused() {
    let files = corpus("hwloc");
    let whole = |bytes: &[u8]| Topology::from_hwloc_xml(&String::from_utf8_lossy(bytes)).is_ok();
    let machines = files.iter().filter(|(_, bytes)| whole(bytes)).count();
    assert!(machines >= 4 && machines < files.len(), "{machines} of {}", files.len());
    for (_, bytes) in &files {
        checked::xml(bytes);
    }
}

#[test]
fn every_tree_of_the_corpus_is_a_machine_or_is_refused() {
    let folder = Folder::new("corpus");
    let mut machines = 0;
    let files = corpus("sysfs");
    for (_, bytes) in &files {
        checked::sysfs(bytes, &folder.path);
        machines += usize::from(Topology::from_sysfs(&folder.path).is_ok());
    }
    assert!(machines >= 4 && machines < files.len(), "{machines} of {}", files.len());
}

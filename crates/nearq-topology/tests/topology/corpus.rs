//! Tests the inputs that the fuzzer begins with, on the stable compiler and in every run of the tests.

#[path = "../../../../fuzz/corpus.rs"]
mod files;

use files::corpus;
use nearq_topology::Topology;

use crate::checked;
use crate::common::Folder;

#[test]
fn every_xml_file_of_the_corpus_is_a_machine_or_is_refused() {
    let files = corpus("hwloc");
    let whole = |bytes: &[u8]| Topology::from_hwloc_xml(&String::from_utf8_lossy(bytes)).is_ok();
    let machines = files.iter().filter(|bytes| whole(bytes)).count();
    assert!(machines >= 4 && machines < files.len(), "{machines} of {}", files.len());
    for bytes in &files {
        checked::xml(bytes);
    }
}

#[test]
fn every_tree_of_the_corpus_is_a_machine_or_is_refused() {
    let folder = Folder::new("corpus");
    let mut machines = 0;
    let files = corpus("sysfs");
    for bytes in &files {
        checked::sysfs(bytes, &folder.path);
        machines += usize::from(Topology::from_sysfs(&folder.path).is_ok());
    }
    assert!(machines >= 4 && machines < files.len(), "{machines} of {}", files.len());
}

//! `hash_files`: digests in the order of the paths.

use std::fs;

use crate::common::{From, Program};

const HASH_FILES: [&str; 2] =
    [env!("CARGO_BIN_EXE_hash_files"), env!("CARGO_BIN_EXE_hash_files_with_rayon")];

#[test]
fn files_are_hashed_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("b");
    fs::create_dir(&inner).unwrap();
    fs::write(folder.path().join("a"), "abc").unwrap();
    fs::write(inner.join("empty"), "").unwrap();
    // The published values for these inputs.
    let root = folder.path().to_str().unwrap();
    let expected = [
        format!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  {root}/a"),
        format!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  {root}/b/empty"),
    ];
    for path in HASH_FILES {
        let mut program = Program::start(path, &[root]);
        assert!(program.end().success());
        assert_eq!(program.seen(From::Output), expected, "{path}");
    }
}

#[test]
fn without_a_folder_a_hundred_files_are_hashed() {
    for path in HASH_FILES {
        let mut program = Program::start(path, &[]);
        assert!(program.end().success());
        assert_eq!(program.seen(From::Output).len(), 100, "{path}");
    }
}

#[test]
fn a_folder_that_does_not_exist_is_an_error() {
    for path in HASH_FILES {
        assert_eq!(Program::start(path, &["/nowhere"]).end().code(), Some(1), "{path}");
    }
}

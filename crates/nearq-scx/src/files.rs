//! For tests: the files from which a made-up machine is read.

use std::fs;
use std::path::PathBuf;

/// A folder with a machine's files, which is removed when this is dropped.
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    /// Files with their contents; only one test may use this `name`.
    pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("nearq-scx-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        Files(folder)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

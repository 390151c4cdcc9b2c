//! A made-up machine as the files that it is read from, for tests.

use std::fs;
use std::path::PathBuf;

/// A folder with a machine's files in it, gone at the end.
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    /// Files with what is in them; `name` must be used by one test alone.
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

//! The files that `hash_files` hashes, and the line that it prints for each.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::digest::hexadecimal;

/// The files of the tree that is made if no folder is given; each is longer than the one before.
const FILES: usize = 100;
/// Bytes by which each is longer.
const STEP: usize = 4 << 10;
/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;

/// A folder, which is removed when this is dropped if it was made here.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    _temporary: Option<TempDir>,
}

impl Tree {
    /// The folder that the first argument names, or a small one made for this run.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn from_arguments() -> io::Result<Self> {
        if let Some(folder) = std::env::args_os().nth(1) {
            return Ok(Tree { root: folder.into(), _temporary: None });
        }
        let temporary = tempfile::tempdir()?;
        for number in 0..FILES {
            let folder = temporary.path().join(format!("{}", number % 7));
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(format!("{number:03}")), vec![number as u8; number * STEP])?;
        }
        Ok(Tree { root: temporary.path().to_owned(), _temporary: Some(temporary) })
    }

    /// The regular files below the folder, sorted. Symbolic links are not followed.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    files.push(entry.path());
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

/// The file's SHA-256 and its path, as `sha256sum` prints them.
///
/// # Errors
/// The file cannot be read.
pub fn hash(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    let mut file = File::open(path)?;
    let mut state = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        state.update(&buffer[..length]);
    }
    Ok(format!("{}  {}", hexadecimal(state.finalize()), path.display()))
}

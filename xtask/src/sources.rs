//! The checkout and its files, and the Rust files of a folder.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder that has what cargo builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from)
}

/// Calls `see` with the path and the text of a Rust file, or of each one below a folder, in order.
pub(crate) fn each(path: &Path, see: &mut dyn FnMut(&Path, &str)) -> Result<(), String> {
    let cannot_read = |error| format!("cannot read {}: {error}", path.display());
    if path.is_dir() {
        let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(cannot_read)?.collect();
        let mut paths: Vec<_> =
            entries.map_err(cannot_read)?.iter().map(fs::DirEntry::path).collect();
        paths.sort();
        return paths.iter().try_for_each(|path| each(path, see));
    }
    if path.extension().is_some_and(|extension| extension == "rs") {
        see(path, &fs::read_to_string(path).map_err(cannot_read)?);
    }
    Ok(())
}

/// The files of a checkout, relative to its root: those that git tracks or does not ignore, without deleted ones.
pub(crate) fn files(root: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let names =
        output.stdout.split(|byte| *byte == 0).map(|name| Path::new(OsStr::from_bytes(name)));
    Ok(names.filter(|name| root.join(name).is_file()).map(Path::to_owned).collect())
}

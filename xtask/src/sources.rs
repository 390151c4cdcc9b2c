//! The Rust files of a folder.

use std::fs;
use std::path::Path;

/// Calls `see` with the path and the text of a Rust file, or of each one below a folder, in order.
pub(crate) fn each(place: &Path, see: &mut dyn FnMut(&Path, &str)) -> Result<(), String> {
    let told = |error| format!("cannot read {}: {error}", place.display());
    if place.is_dir() {
        let entries: Result<Vec<_>, _> = fs::read_dir(place).map_err(told)?.collect();
        let mut paths: Vec<_> = entries.map_err(told)?.iter().map(fs::DirEntry::path).collect();
        paths.sort();
        return paths.iter().try_for_each(|path| each(path, see));
    }
    if place.extension().is_some_and(|extension| extension == "rs") {
        see(place, &fs::read_to_string(place).map_err(told)?);
    }
    Ok(())
}

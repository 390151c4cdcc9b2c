//! Reading files that other users may have made: only regular files, and only up to a limit.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The most bytes that are read of one file.
pub(crate) const MAX_FILE: usize = 16 << 20;

/// The bytes of a regular file of at most [`MAX_FILE`] bytes.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_FILE {
        let reason = format!("it has more than {} MiB, the most that is read", MAX_FILE >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Opens a regular file, and nothing else.
fn open(path: &Path) -> io::Result<File> {
    // Opening a device may have an effect, so the kind is checked before opening. The path may then lead to another file by the time it is
    // opened: opening a FIFO must not block, and the kind is checked again.
    check(&fs::metadata(path)?)?;
    // Miri supports neither flag.
    let flags = if cfg!(miri) { 0 } else { libc::O_NONBLOCK | libc::O_NOCTTY };
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "devices")]
    fn only_regular_files_up_to_the_limit_are_read() {
        let error = |path: &str| read(Path::new(path)).unwrap_err().to_string();
        assert_eq!(error("/dev/zero"), "it is not a regular file");
        assert!(error("/dev").contains("Is a directory"), "{}", error("/dev"));
        let folder = std::env::temp_dir().join(format!("nearq-regular-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let large = folder.join("large");
        let file = File::create(&large).unwrap();
        file.set_len(MAX_FILE as u64).unwrap();
        assert_eq!(read(&large).unwrap().len(), MAX_FILE);
        file.set_len(MAX_FILE as u64 + 1).unwrap();
        let text = error(&large.to_string_lossy());
        assert!(text.contains("more than 16 MiB"), "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

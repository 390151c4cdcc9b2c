//! A file that is read past the page cache: each read is one of the disk.

use crate::Error;
use crate::store::Buffer;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of one read: a page.
const READ: usize = 4096;
/// Pages of the file: 64 MiB, more than the cache of a disk's controller keeps for long.
const PAGES: u64 = 16 << 10;
/// Coprime with the number of pages: every page's turn comes, and neighbours are far from each other.
const STRIDE: u64 = 7_919;
/// Reads that say how long one takes.
const TRIALS: usize = 101;

/// The file; unlinked at once, so that nothing stays behind however the run ends.
#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    next: AtomicU64,
}

impl Disk {
    /// Makes the file in `folder` and fills it; text that says why that, or reading it directly, is impossible.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let path = folder.join(format!("nearq-blocking-{}", std::process::id()));
        let explain = |error: io::Error| match error.raw_os_error() {
            Some(libc::EINVAL) => {
                format!("the file system of {} refuses O_DIRECT", folder.display())
            }
            _ => format!("{}: {error}", path.display()),
        };
        let made = Self::fill(&path)
            .and_then(|()| OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path));
        let _ = fs::remove_file(&path);
        let disk = Self { file: made.map_err(explain)?, next: AtomicU64::new(0) };
        // Some file systems take the flag and refuse the read.
        disk.read().map_err(explain)?;
        Ok(disk)
    }

    fn fill(path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let page: Vec<u8> = (0..READ).map(|at| (at % 251) as u8).collect();
        for number in 0..PAGES {
            file.write_all(&number.to_ne_bytes())?;
            file.write_all(&page[8..])?;
        }
        file.sync_all()
    }

    /// Reads a page that was not read lately.
    pub(super) fn read(&self) -> io::Result<()> {
        let page = self.next.fetch_add(STRIDE, Ordering::Relaxed) % PAGES;
        let mut buffer = Buffer::new();
        self.file.read_exact_at(&mut buffer[..READ], page * READ as u64)?;
        let found = u64::from_ne_bytes(buffer[..8].try_into().expect("eight bytes"));
        if found == page {
            Ok(())
        } else {
            Err(io::Error::other("a page holds another page's bytes"))
        }
    }

    /// What a read takes, in microseconds: the median of some.
    pub(super) fn read_us(&self) -> Result<f64, Error> {
        let mut trials = Vec::with_capacity(TRIALS);
        for _ in 0..TRIALS {
            let start = Instant::now();
            self.read().map_err(|error| Error::run(format!("reading the disk: {error}")))?;
            trials.push(start.elapsed().as_secs_f64() * 1e6);
        }
        trials.sort_by(f64::total_cmp);
        Ok(trials[TRIALS / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_found_where_it_was_written() {
        let Ok(disk) = Disk::make(&std::env::temp_dir()) else { return };
        for _ in 0..200 {
            disk.read().unwrap();
        }
        assert!(disk.read_us().unwrap() > 0.0);
    }

    #[test]
    fn the_stride_visits_every_page() {
        assert!(PAGES.is_power_of_two() && STRIDE % 2 == 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Disk::make(Path::new("/no such folder")).unwrap_err();
        assert!(error.contains("/no such folder"), "{error}");
    }
}

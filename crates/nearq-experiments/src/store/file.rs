//! A file or a block device as the store: direct, asynchronous input and output where the system grants it.

use super::aio::AioLane;
use super::{Direction, Lane, Store, Transfer};
use crate::Error;
use crate::harness::EventBell;
use crate::payload::BLOCK_BYTES;
use nearq_platform::Linux;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A regular file made for the run, or a block device (a disk, a partition, a dm-crypt mapping).
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    file: Arc<File>,
    places: u64,
    kind: Kind,
    /// Why the page cache is in between, if it is.
    buffered: Option<String>,
    /// Why transfers are made one by one by the issuer's thread, if they are.
    synchronous: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Made by us and unlinked at once: nothing stays behind, however the run ends.
    Made,
    /// An empty file of the user's; it is emptied again.
    Empty,
    Device,
}

impl FileStore {
    /// Opens `path` for at least `least` and at most `most` blocks. A file that holds something is refused; a
    /// block device is overwritten.
    pub fn open(path: &Path, least: u64, most: u64) -> Result<Self, Error> {
        let refused = |reason: &str| {
            Error::input(format!(
                "--file {}: {reason}; give a new or empty file, or a block device (which is overwritten)",
                path.display()
            ))
        };
        let kind = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kind::Made,
            Err(error) => return Err(refused(&error.to_string())),
            Ok(data) if data.file_type().is_block_device() => Kind::Device,
            Ok(data) if !data.is_file() => {
                return Err(refused("it is neither a file nor a block device"));
            }
            Ok(data) if data.len() > 0 => {
                return Err(refused(&format!("it holds {} bytes already", data.len())));
            }
            Ok(_) => Kind::Empty,
        };
        let cannot_write = |error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY) => refused("it is in use, perhaps mounted"),
            _ => refused(&format!("cannot be written: {error}")),
        };
        let (mut file, buffered) = open_direct(path, kind).map_err(cannot_write)?;
        if kind == Kind::Made {
            fs::remove_file(path).map_err(cannot_write)?;
        }
        let places = if kind == Kind::Device {
            let bytes = file.seek(SeekFrom::End(0)).map_err(cannot_write)?;
            (bytes / BLOCK_BYTES as u64).min(most)
        } else {
            reserve(&file, most * BLOCK_BYTES as u64).map_err(|error| {
                refused(&format!(
                    "{} MiB cannot be reserved: {error}",
                    (most * BLOCK_BYTES as u64) >> 20
                ))
            })?;
            most
        };
        if places < least {
            let reason =
                format!("it has room for {places} blocks of 32 KiB, and {least} are needed");
            return Err(refused(&reason));
        }
        let file = Arc::new(file);
        let synchronous = AioLane::probe().err().map(|error| error.to_string());
        Ok(Self { path: path.into(), file, places, kind, buffered, synchronous })
    }
}

fn open_direct(path: &Path, kind: Kind) -> io::Result<(File, Option<String>)> {
    let open = |flags: i32| {
        // On a block device O_EXCL refuses one that is mounted or otherwise in use.
        let exclusive = if kind == Kind::Device { libc::O_EXCL } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags | exclusive);
        options.create_new(kind == Kind::Made).open(path)
    };
    match open(libc::O_DIRECT) {
        Ok(file) => Ok((file, None)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            if kind == Kind::Made {
                // The file is there by now on systems that make it before they look at the flag.
                let _ = fs::remove_file(path);
            }
            Ok((open(0)?, Some("the file system refuses O_DIRECT".into())))
        }
        Err(error) => Err(error),
    }
}

/// Gives the file its size, and its space where the file system can promise it.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open for the whole call, and no memory is passed.
    let result = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
    match result {
        0 => Ok(()),
        libc::EOPNOTSUPP | libc::EINVAL => file.set_len(bytes),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Store<Linux> for FileStore {
    fn places(&self) -> u64 {
        self.places
    }

    fn describe(&self) -> String {
        let what = if self.kind == Kind::Device { "block device" } else { "file" };
        let how = match &self.buffered {
            None => "O_DIRECT".to_owned(),
            Some(reason) => format!("through the page cache: {reason}"),
        };
        let when = match &self.synchronous {
            None => "asynchronous (Linux AIO, as fio's libaio)".to_owned(),
            Some(reason) => {
                format!("one transfer at a time for each issuer: no Linux AIO ({reason})")
            }
        };
        format!("{what} {}, {how}, {when}", self.path.display())
    }

    fn lane(
        &self,
        places: Range<u64>,
        in_flight: usize,
        bell: &EventBell,
    ) -> Result<Box<dyn Lane>, Error> {
        assert!(places.end <= self.places, "the lane is outside the store");
        if self.synchronous.is_some() {
            return Ok(Box::new(SynchronousLane { file: Arc::clone(&self.file) }));
        }
        let lane = AioLane::new(Arc::clone(&self.file), in_flight, bell.clone())
            .map_err(|error| Error::run(format!("{}: {error}", self.path.display())))?;
        Ok(Box::new(lane))
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        if self.kind == Kind::Empty {
            let _ = self.file.set_len(0);
        }
    }
}

/// The fallback: the issuer's thread waits for each transfer.
#[derive(Debug)]
struct SynchronousLane {
    file: Arc<File>,
}

impl Lane for SynchronousLane {
    fn start(&mut self, mut transfer: Transfer) -> Result<Option<Transfer>, Error> {
        let offset = transfer.place * BLOCK_BYTES as u64;
        match transfer.direction {
            Direction::Write => self.file.write_all_at(&transfer.data, offset),
            Direction::Read => self.file.read_exact_at(&mut transfer.data, offset),
        }
        .map_err(|error| failed(&transfer, &error.to_string()))?;
        Ok(Some(transfer))
    }

    fn reap(&mut self, _finished: &mut Vec<Transfer>) -> Result<(), Error> {
        Ok(())
    }
}

/// The error of a transfer that failed.
pub(super) fn failed(transfer: &Transfer, reason: &str) -> Error {
    let verb = if transfer.direction == Direction::Write { "written" } else { "read" };
    Error::run(format!("block {} of the store cannot be {verb}: {reason}", transfer.place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::Mailbox;
    use crate::store::Buffer;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("nearq-store-{name}-{}", std::process::id()))
    }

    /// Writes and reads back four blocks at once through a lane.
    fn round_trip(lane: &mut dyn Lane, mailbox: &Mailbox<Linux>) {
        for direction in [Direction::Write, Direction::Read] {
            let mut finished = Vec::new();
            for slot in 0..4 {
                let mut data = Buffer::new();
                if direction == Direction::Write {
                    data.fill(slot as u8 + 1);
                }
                let transfer = Transfer { direction, slot, place: 4 + (slot as u64 ^ 1), data };
                finished.extend(lane.start(transfer).unwrap());
            }
            while finished.len() < 4 {
                lane.reap(&mut finished).unwrap();
                if finished.len() < 4 {
                    assert!(
                        mailbox.wait(std::time::Duration::from_secs(10)),
                        "transfers ring the bell"
                    );
                }
            }
            for transfer in &finished {
                assert!(
                    transfer.data.iter().all(|&byte| byte == transfer.slot as u8 + 1),
                    "{direction:?}"
                );
            }
        }
    }

    #[test]
    fn blocks_come_back_as_they_went_on_every_way() {
        let path = path("round-trip");
        let store = FileStore::open(&path, 8, 8).unwrap();
        assert!(!path.exists(), "the file is gone from its folder at once");
        let mailbox = Mailbox::new(4).unwrap();
        round_trip(&mut SynchronousLane { file: Arc::clone(&store.file) }, &mailbox);
        round_trip(&mut *store.lane(4..8, 4, mailbox.bell()).unwrap(), &mailbox);
        assert!(store.describe().contains("file"), "{}", store.describe());
    }

    #[test]
    fn reading_past_the_end_is_a_failed_run_that_names_the_block() {
        let store = FileStore::open(&path("short"), 1, 1).unwrap();
        let mailbox = Mailbox::<Linux>::new(4).unwrap();
        let mut lane = store.lane(0..1, 1, mailbox.bell()).unwrap();
        let transfer =
            Transfer { direction: Direction::Read, slot: 0, place: 9, data: Buffer::new() };
        let mut finished = Vec::new();
        let mut result = lane.start(transfer).map(|_| ());
        while result.is_ok() {
            assert!(mailbox.wait(std::time::Duration::from_secs(10)));
            result = lane.reap(&mut finished);
        }
        let error = result.unwrap_err();
        assert_eq!(error.exit_status(), 1);
        assert!(error.to_string().contains("block 9 of the store cannot be read"), "{error}");
    }

    #[test]
    fn an_empty_file_is_used_and_left_empty() {
        let path = path("empty");
        fs::write(&path, "").unwrap();
        drop(FileStore::open(&path, 1, 2).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_cannot_be_used_is_refused_in_one_line_and_left_alone() {
        let full = path("full");
        fs::write(&full, "precious").unwrap();
        for (path, reason) in [
            (full.as_path(), "it holds 8 bytes already"),
            (Path::new("/no such folder/store"), "cannot be written"),
            (Path::new("/"), "it is neither a file nor a block device"),
            (Path::new("/dev/null"), "it is neither a file nor a block device"),
        ] {
            let error = FileStore::open(path, 1, 1).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            let text = error.to_string();
            assert!(text.contains(reason) && text.contains(&path.display().to_string()), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
        assert_eq!(fs::read_to_string(&full).unwrap(), "precious");
        fs::remove_file(&full).unwrap();
    }
}

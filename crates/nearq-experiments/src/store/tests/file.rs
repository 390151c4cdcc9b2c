//! Tests of `file`: a file or a block device as the store.

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
fn blocks_are_read_as_written_on_every_path() {
    let path = path("round-trip");
    let store = FileStore::open(&path, 8, 8).unwrap();
    assert!(!path.exists(), "the file is unlinked at once");
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
    let transfer = Transfer { direction: Direction::Read, slot: 0, place: 9, data: Buffer::new() };
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
fn unusable_files_are_refused_in_one_line_and_not_changed() {
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

//! `deliver`: outcomes in order, growing delays, and control messages that do not wait behind records. The tests are the collector.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{From, LONG, Program};

const DELIVER: [&str; 2] =
    [env!("CARGO_BIN_EXE_deliver"), env!("CARGO_BIN_EXE_deliver_with_tokio")];

/// A connection to the collector: for which record, and when it was made.
struct Attempt {
    record: String,
    at: Instant,
    stream: TcpStream,
}

impl Attempt {
    fn accept(mut self) {
        // A program that has been killed needs no answer.
        drop(self.stream.write_all(b"ok\n"));
    }
}

/// Where records are delivered. Each attempt is passed to `answer`; one that is dropped is refused.
fn collector(mut answer: impl FnMut(Attempt) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let is_whole = BufReader::new(&stream).read_line(&mut line).is_ok();
            if let (true, Some((digest, record))) = (is_whole, line.trim_end().split_once(' ')) {
                assert_eq!(digest.len(), 64);
                answer(Attempt { record: record.into(), at: Instant::now(), stream });
            }
        }
    });
    address
}

/// A file with these records.
fn file(folder: &Path, records: impl Iterator<Item = usize>) -> PathBuf {
    let path = folder.join("records");
    let lines: Vec<String> = records.map(|number| number.to_string()).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

fn start(path: &str, file: &Path, collector: SocketAddr) -> Program {
    Program::start(path, &[file.to_str().unwrap(), &collector.to_string()])
}

#[test]
fn outcomes_are_logged_in_order_whatever_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let records = file(folder.path(), 0..150);
    // Of four records one is refused once, one twice, and one three times: all of these are delivered after their successors.
    let refusals = |record: usize| 3 - record % 4;
    for path in DELIVER {
        let mut attempts: HashMap<String, usize> = HashMap::new();
        let collector = collector(move |attempt| {
            let count = attempts.entry(attempt.record.clone()).or_default();
            *count += 1;
            if *count > refusals(attempt.record.parse().unwrap()) {
                attempt.accept();
            }
        });
        let mut program = start(path, &records, collector);
        assert!(program.end().success(), "{path}");
        let line = |it| format!("{it}: delivered by attempt {}", refusals(it) + 1);
        assert_eq!(program.seen(From::Output), (0..150).map(line).collect::<Vec<_>>(), "{path}");
    }
}

#[test]
fn the_time_to_the_next_attempt_doubles_until_the_record_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let records = file(folder.path(), 0..1);
    for path in DELIVER {
        let (sender, times) = mpsc::channel();
        let mut program = start(path, &records, collector(move |it| sender.send(it.at).unwrap()));
        assert_eq!(program.until(From::Output, "0: given up: "), "the collector has refused it");
        assert!(program.end().success(), "{path}");
        let times: Vec<Instant> = times.try_iter().collect();
        assert_eq!(times.len(), 8, "{path}");
        // A timer is never early, and an attempt is seen before it is refused. So load makes these times only longer.
        for (number, pair) in (0..).zip(times.windows(2)) {
            let delay = Duration::from_millis(10 << number);
            assert!(pair[1] - pair[0] >= delay, "{path}: {number}: {:?}", pair[1] - pair[0]);
        }
    }
}

#[test]
fn without_arguments_made_records_are_delivered() {
    for path in DELIVER {
        let mut program = Program::start(path, &[]);
        assert!(program.end().success(), "{path}");
        let lines = program.seen(From::Output);
        assert_eq!(lines.len(), 200, "{path}");
        for (number, line) in lines.iter().enumerate() {
            assert!(
                line.starts_with(&format!("{number}: delivered by attempt ")),
                "{path}: {line}"
            );
        }
        assert!(lines.iter().any(|line| line.ends_with(" 4")), "{path}: some are refused");
    }
}

/// Records without end, until they are stopped: a pipe with a name, and the thread that writes them.
struct Endless {
    path: PathBuf,
    is_stopped: Arc<AtomicBool>,
    writer: thread::JoinHandle<usize>,
}

impl Endless {
    fn new(folder: &Path) -> Self {
        let path = folder.join("pipe");
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the text ends with a zero, and lives until the end of the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let writer = thread::spawn({
            let (path, is_stopped) = (path.clone(), Arc::clone(&is_stopped));
            move || {
                // Waits until the program opens it. Each record is so long that the pipe holds few of them.
                let mut pipe = File::options().write(true).open(path).unwrap();
                let numbers = (0_usize..).take_while(|_| !is_stopped.load(Ordering::Relaxed));
                numbers.inspect(|number| writeln!(pipe, "{number:01000}").unwrap()).count()
            }
        });
        Endless { path, is_stopped, writer }
    }

    /// How many there were.
    fn stop(self) -> usize {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.writer.join().unwrap()
    }
}

/// Asks how far the program has come: records read, attempts, and records logged.
fn status(program: &mut Program) -> [usize; 3] {
    program.write("status");
    numbers(&program.until(From::Errors, "status: "))
}

fn numbers(answer: &str) -> [usize; 3] {
    let numbers = answer.split(' ').filter_map(|word| word.parse().ok());
    numbers.collect::<Vec<_>>().try_into().expect(answer)
}

#[test]
fn control_messages_do_not_wait_behind_records() {
    for path in DELIVER {
        let folder = tempfile::tempdir().unwrap();
        let records = Endless::new(folder.path());
        // At first the collector keeps every attempt waiting.
        let (open, is_open) = mpsc::channel::<()>();
        let collector = collector(move |attempt| {
            assert!(is_open.recv().is_err());
            attempt.accept();
        });
        let mut program = start(path, &records.path, collector);
        // As many as may be under way are read, and none of them has ended; yet each message is answered.
        let begin = Instant::now();
        while status(&mut program)[0] < 64 {
            assert!(begin.elapsed() < LONG, "{path}: it reads no more");
        }
        let [read, attempts, logged] = status(&mut program);
        assert!((64..=66).contains(&read) && attempts == 0 && logged == 0, "{path}: {read}");

        // Then all are paused in the midst of records without end: no record runs, and still each message is answered.
        drop(open);
        program.write("pause");
        let paused = numbers(&program.until(From::Errors, "paused: "));
        let is_waiting = |[read, _, logged]: [usize; 3]| read >= logged + 64;
        let (mut messages, begin) = (0, Instant::now());
        while messages < 100 {
            let now = status(&mut program);
            assert!(begin.elapsed() < LONG, "{path}: {now:?}");
            assert_eq!(now[1], paused[1], "{path}: attempts");
            messages += usize::from(is_waiting(now));
        }

        // Nothing is lost.
        program.write("resume");
        program.until(From::Errors, "resumed: ");
        let count = records.stop();
        assert!(program.end().success(), "{path}");
        let line = |number| format!("{number:01000}: delivered by attempt 1");
        assert_eq!(program.seen(From::Output), (0..count).map(line).collect::<Vec<_>>(), "{path}");
    }
}

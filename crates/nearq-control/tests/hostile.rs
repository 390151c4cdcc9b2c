//! Thousands of hostile clients, many at a time: measures what they cost the process, and whether other clients are answered.
//!
//! The server is another process (this program again), so that its memory and its thread's CPU time can be read separately.
//! `NEARQ_HOSTILE` says how many connections to make.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

mod common;

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use common::{Folder, Shared, until};
use nearq_control::client::{Client, ClientError};
use nearq_control::protocol::{Access, GetProcess, GetStatistics, Refusal};
use nearq_control::server::{Options, Server};

const PART: &str = "NEARQ_TEST_PART";
/// How long a hostile client waits for an answer that does not come.
const HOLD: Duration = Duration::from_millis(50);
/// Connections that a hostile thread keeps open at once.
const KEPT: usize = 6;
const THREADS: u64 = 16;
/// Queues to report. Without optimisation, reporting 200 takes a second at 5 % of a CPU.
const QUEUES: u64 = if cfg!(debug_assertions) { 20 } else { 200 };

/// The process that is attacked.
struct Victim {
    process: Child,
    thread: PathBuf,
    socket: PathBuf,
}

impl Victim {
    fn start(folder: &Folder) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_victim", "--nocapture", "--test-threads=1"]);
        command.env(PART, folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let socket = loop {
            let line = lines.next().expect("the victim listens").unwrap();
            if let Some((_, path)) = line.split_once("<listening> ") {
                break PathBuf::from(path);
            }
        };
        let thread = || {
            let threads = fs::read_dir(format!("/proc/{}/task", process.id())).unwrap().flatten();
            threads.map(|thread| thread.path()).find(|thread| {
                fs::read_to_string(thread.join("comm")).is_ok_and(|name| name == "nq/control\n")
            })
        };
        // The thread names itself when it begins.
        until("a thread with that name", || thread().is_some());
        let thread = thread().unwrap();
        Victim { process, thread, socket }
    }

    /// CPU time of the thread.
    fn cpu_time(&self) -> Duration {
        let text = fs::read_to_string(self.thread.join("schedstat")).unwrap();
        Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
    }

    fn kilobytes(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
    }

    /// Resets the peak of the process's memory.
    fn reset_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5").unwrap();
    }

    fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The part that the other process plays.
#[test]
fn the_victim() {
    let Some(folder) = std::env::var_os(PART) else { return };
    let shared = Shared::new();
    {
        let mut world = shared.world();
        world.queues = QUEUES;
        world.events = 100;
    }
    let folder = Path::new(&folder).join("nearq");
    let options = Options { access: Access::Full };
    let server = Server::start(&folder, shared.target(), options).unwrap();
    println!("<listening> {}", server.path().display());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Numbers that look random, by seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // An xorshift generator (Marsaglia 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

const STATISTICS: &[u8] =
    b"{\"method\":\"nearq.control1.GetStatistics\",\"parameters\":{\"timing\":true}}\0";
const TRACE: &[u8] = b"{\"method\":\"nearq.control1.Trace\",\"more\":true}\0";
const SET: &[u8] = b"{\"method\":\"nearq.control1.Set\",\"oneway\":true,\
    \"parameters\":{\"queue\":\"crypt\",\"changes\":{\"nice\":\"3\"},\"until_closed\":true}}\0";

/// Makes one hostile connection. The returned stream stays open for a while.
fn attack(socket: &Path, random: &mut Random, traces: bool) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(HOLD)).unwrap();
    stream.set_write_timeout(Some(HOLD)).unwrap();
    match random.below(if traces { 12 } else { 11 }) {
        // Connects and disconnects.
        0 => return None,
        // Says nothing.
        1 => {}
        // Garbage, with and without ends.
        2 => {
            let bytes: Vec<u8> = (0..random.below(5000)).map(|_| random.next() as u8).collect();
            let _ = stream.write_all(&bytes);
            let _ = stream.read(&mut [0; 4096]);
        }
        // Half a message.
        3 => {
            let _ = stream.write_all(&STATISTICS[..random.below(STATISTICS.len() as u64) as usize]);
        }
        // A flood of calls whose answers are not read.
        4 => {
            for _ in 0..100 {
                if stream.write_all(STATISTICS).is_err() {
                    break;
                }
            }
        }
        // A line of a gigabyte.
        5 => {
            let piece = vec![b'x'; 64 * 1024];
            for _ in 0..(1 << 30) / piece.len() {
                if stream.write_all(&piece).is_err() {
                    break;
                }
            }
        }
        // A slow reader.
        6 => {
            let _ = stream.write_all(STATISTICS);
            for _ in 0..5 {
                let _ = stream.read(&mut [0; 100]);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // A value nested as deep as a call is long.
        7 => {
            let deep = b"[".repeat(60_000);
            let call =
                [b"{\"method\":\"nearq.control1.GetDump\",\"parameters\":", &deep[..], b"}\0"];
            let _ = stream.write_all(&call.concat());
            let _ = stream.read(&mut [0; 4096]);
        }
        // As many parameters as fit.
        8 => {
            let many: Vec<String> = (0..6000).map(|at| format!("\"{at:x}\":[]")).collect();
            let many = many.join(",");
            let call = format!("{{\"method\":\"nearq.control1.Set\",\"parameters\":{{{many}}}}}\0");
            let _ = stream.write_all(call.as_bytes());
            let _ = stream.read(&mut [0; 4096]);
        }
        // A flood of changes that must be undone at the end.
        9 => {
            for _ in 0..100 {
                if stream.write_all(SET).is_err() {
                    break;
                }
            }
        }
        // A flood of zero bytes.
        10 => {
            let _ = stream.write_all(&[0; 10_000]);
        }
        // A trace that is not read.
        _ => {
            let _ = stream.write_all(TRACE);
        }
    }
    Some(stream)
}

/// How an honest client fared.
#[derive(Default)]
struct HonestClients {
    answered: AtomicU64,
    busy: AtomicU64,
    failed: AtomicU64,
    longest_ms: AtomicU64,
}

impl HonestClients {
    fn try_once(&self, socket: &Path) {
        let begin = Instant::now();
        let outcome = Client::connect_to(socket)
            .map_err(ClientError::Io)
            .and_then(|mut client| client.call(&GetProcess {}));
        let counter = match outcome {
            Ok(_) => {
                let took = begin.elapsed().as_millis() as u64;
                self.longest_ms.fetch_max(took, Ordering::Relaxed);
                &self.answered
            }
            Err(ClientError::Refused(Refusal::Busy { .. })) => &self.busy,
            Err(error) => {
                println!("an honest client: {error} after {:?}", begin.elapsed());
                &self.failed
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Connections to make: 10,000 with optimisation, otherwise as many as take some five seconds at 5 % of a CPU.
fn connections() -> u64 {
    let usual = if cfg!(debug_assertions) { 600 } else { 10_000 };
    std::env::var("NEARQ_HOSTILE").map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn hostile_clients_cost_little_and_do_not_block_others() {
    run_attack("hostile", connections(), false);
}

#[test]
fn unread_traces_cost_no_more() {
    run_attack("traces", connections() / 5, true);
}

/// Attacks a process, with or without traces.
fn run_attack(test: &str, connections: u64, traces: bool) {
    let folder = Folder::new(test);
    let victim = Victim::start(&folder);
    let (memory, files) = (victim.kilobytes("VmRSS"), victim.open_files());
    victim.reset_peak();
    let (begin, cpu) = (Instant::now(), victim.cpu_time());
    let (made, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let honest = HonestClients::default();
    std::thread::scope(|scope| {
        let attackers: Vec<_> = (1..=THREADS)
            .map(|seed| {
                let (socket, made) = (&victim.socket, &made);
                scope.spawn(move || {
                    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    let mut kept = VecDeque::new();
                    while made.fetch_add(1, Ordering::Relaxed) < connections {
                        kept.extend(attack(socket, &mut random, traces));
                        if kept.len() > KEPT {
                            kept.pop_front();
                        }
                    }
                })
            })
            .collect();
        let (honest, over, socket) = (&honest, &over, &victim.socket);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                honest.try_once(socket);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let ends: Vec<_> = attackers.into_iter().map(ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok), "an attacker panicked");
    });
    // The next client is answered, however much was requested before. On a slow machine a client may give up before the process has made up
    // for the CPU time that it has used.
    let after = Instant::now();
    until("the next one is answered", || {
        let asked =
            Client::connect_to(&victim.socket).map_err(ClientError::Io).and_then(|mut client| {
                client.call(&GetProcess {})?;
                client.call(&GetStatistics::default())
            });
        match asked {
            Ok(reply) => {
                assert_eq!(reply.statistics.queues.len() as u64, QUEUES);
                true
            }
            Err(ClientError::Io(error)) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    });
    let after = after.elapsed();
    let (wall, cpu) = (begin.elapsed(), victim.cpu_time().checked_sub(cpu).unwrap());
    let grown = victim.kilobytes("VmHWM").saturating_sub(memory);
    let share = cpu.as_secs_f64() / wall.as_secs_f64() * 100.0;
    println!(
        "{test}: {connections} hostile connections in {wall:.1?}: {cpu:.1?} of CPU time ({share:.2} %), \
         {grown} kB more memory at most; honest clients: {} answered, {} told that it is busy, {} failed, \
         the longest after {} ms; the one after it all after {after:.1?}",
        honest.answered.load(Ordering::Relaxed),
        honest.busy.load(Ordering::Relaxed),
        honest.failed.load(Ordering::Relaxed),
        honest.longest_ms.load(Ordering::Relaxed),
    );
    // 5 % and the burst; the thread may not have paused yet for what it used last.
    let allowed = wall.mul_f64(0.05) + Duration::from_millis(150);
    assert!(cpu <= allowed, "{cpu:?} of {wall:?}");
    assert!(grown <= 8 * 1024, "{grown} kB");
    assert!(honest.answered.load(Ordering::Relaxed) > 0);
    until("everything is closed", || victim.open_files() <= files);
}

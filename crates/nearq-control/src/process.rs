//! The information that this process gives about itself.

use std::fs;
use std::time::Duration;

use nearq_topology::safe_text;

use crate::protocol::{Access, Process};

/// Bytes of a command line that are reported.
const LONGEST_COMMAND: usize = 256;

/// Describes this process, without queues; the server adds what a caller may do. `since` is the time since the server began to answer.
pub(crate) fn this_process(since: Duration) -> Process {
    Process {
        pid: std::process::id(),
        command: command(&fs::read("/proc/self/cmdline").unwrap_or_default()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        control: Access::default(),
        allowed: Access::default(),
        since_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        runtime: false,
        queues: 0,
        workers: 0,
    }
}

/// A command line, in which the system ends each word by a zero byte, on one line.
fn command(words: &[u8]) -> String {
    let words = words.strip_suffix(&[0]).unwrap_or(words);
    let line = String::from_utf8_lossy(&words[..words.len().min(4 * LONGEST_COMMAND)])
        .replace(|letter: char| letter.is_control(), " ");
    safe_text::beginning(&line, LONGEST_COMMAND).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described_as_in_proc() {
        let process = this_process(Duration::from_secs(2));
        assert_eq!((process.pid, process.since_ns), (std::process::id(), 2_000_000_000));
        let program = std::env::args().next().expect("a test has a name");
        let beginning = safe_text::beginning(&program, LONGEST_COMMAND);
        assert!(process.command.starts_with(beginning), "{process:?}");
    }

    #[test]
    fn a_command_is_one_line_of_limited_length() {
        assert_eq!(command(b"sort\0-n\0a\nb\0"), "sort -n a b");
        assert_eq!(command(b""), "");
        let long = command("ö".repeat(1000).as_bytes());
        assert_eq!(long, "ö".repeat(128));
        assert_eq!(command(&[0xff; 1000]).len(), 255);
    }
}

//! Reads the job log of an earlier run, of nearq or of GNU parallel: which jobs need not run again, and which commands failed.
//!
//! A line has nine columns, of which the first is the job's number, the seventh and the eighth are its exit status and its signal, and the
//! last is its command, with a zero byte for each line break. nearq adds ten columns, the first of which begins with `#`. A run that is
//! killed may leave a last line without its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Which jobs of an earlier run are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Those that are not in the log.
    Missing,
    /// Those that are not in the log, and those that never succeeded.
    MissingAndFailed,
    /// Those that are in the log and never succeeded; their commands are taken from the log.
    Failed,
}

/// What the log of an earlier run says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// The numbers of the jobs that are not run.
    pub left_out: BTreeSet<u64>,
    /// With [`Again::Failed`]: the number and the command of each job that is run, in the order of numbers.
    pub failed: Vec<(u64, Vec<u8>)>,
    /// How many bytes of the log are whole lines. What follows is a part of a line that says nothing, and is overwritten.
    pub whole: u64,
    /// Whether the last of these lines lacks its line break.
    pub lacks_end: bool,
    /// Whether its lines have the columns that only nearq writes.
    pub has_own_columns: bool,
}

/// Why a file is not the log of an earlier run.
#[derive(Clone, PartialEq, Eq)]
pub enum BadLog {
    /// Its first line is not that of a job log.
    Head,
    /// The line of that number does not describe a job.
    Line(usize),
    /// The line of that number, the last one, has the beginning of a command.
    CutCommand(usize),
}

impl fmt::Display for BadLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => write!(
                f,
                "its first line is not that of a job log, which begins with Seq, Host, Starttime; give the log of the earlier run"
            ),
            Self::Line(line) => write!(
                f,
                "line {line} does not describe a job; delete that line, and its job runs again"
            ),
            Self::CutCommand(line) => write!(
                f,
                "line {line} has no end, so its command may be incomplete; delete that line, or complete it"
            ),
        }
    }
}

nearq_topology::debug_as_display!(BadLog);

impl std::error::Error for BadLog {}

/// What the first line of a log begins with.
const HEAD: &[u8] = b"Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand";

/// How many columns nearq adds.
const OWN_COLUMNS: usize = 10;

/// The greatest number of a job: beyond it a number of the log is not exact.
const GREATEST: u64 = 1 << 53;

impl Earlier {
    /// Reads a log.
    ///
    /// ```
    /// use nearq_processes::jobs::{Again, Earlier};
    ///
    /// let log = b"Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n\
    ///             2\t:\t1700000000.000\t     0.004\t0\t0\t0\t0\ttrue b\n";
    /// let earlier = Earlier::read(log, Again::Missing).unwrap();
    /// assert_eq!(earlier.left_out, [2].into());
    /// ```
    ///
    /// # Errors
    /// The text is not a job log, or a line of it does not describe a job.
    pub fn read(log: &[u8], again: Again) -> Result<Self, BadLog> {
        let mut earlier = Self::default();
        // The last line that says something about each job, and whether any line says that it succeeded.
        let mut jobs: BTreeMap<u64, (Job<'_>, bool)> = BTreeMap::new();
        for (index, line) in log.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let text = line.strip_suffix(b"\n");
            earlier.lacks_end = text.is_none();
            let text = text.unwrap_or(line);
            if index == 0 {
                if !text.starts_with(HEAD) {
                    return Err(BadLog::Head);
                }
                earlier.has_own_columns = text.len() > HEAD.len();
            } else {
                match Job::of(text) {
                    Some(job) if earlier.lacks_end && again == Again::Failed && !job.succeeded => {
                        return Err(BadLog::CutCommand(index + 1));
                    }
                    Some(job) => {
                        let entry = jobs.entry(job.number).or_insert((job, false));
                        *entry = (job, entry.1 || job.succeeded);
                    }
                    None if earlier.lacks_end => {
                        earlier.lacks_end = false;
                        break;
                    }
                    None => return Err(BadLog::Line(index + 1)),
                }
            }
            earlier.whole += line.len() as u64;
        }
        match again {
            Again::Missing => earlier.left_out.extend(jobs.keys()),
            Again::MissingAndFailed => {
                let succeeded = jobs.iter().filter(|(_, (_, succeeded))| *succeeded);
                earlier.left_out.extend(succeeded.map(|(number, _)| number));
            }
            Again::Failed => {
                let failed = jobs.iter().filter(|(_, (_, succeeded))| !*succeeded);
                earlier.failed.extend(failed.map(|(number, (job, _))| (*number, job.command())));
            }
        }
        Ok(earlier)
    }
}

/// What a line says about a job.
#[derive(Clone, Copy, Debug)]
struct Job<'a> {
    number: u64,
    succeeded: bool,
    /// As it stands there.
    command: &'a [u8],
}

impl<'a> Job<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut columns = line.splitn(9, |&byte| byte == b'\t');
        let mut number = |column: usize| {
            let text = std::str::from_utf8(columns.nth(column)?).ok()?;
            text.trim_start().parse::<f64>().ok()
        };
        let first = number(0)?;
        // The host is any text.
        let figures = [number(1)?, number(0)?, number(0)?, number(0)?, number(0)?, number(0)?];
        let number = first as u64;
        let is_number = first.fract() == 0.0 && (1..=GREATEST).contains(&number);
        let succeeded = figures[4..] == [0.0, 0.0];
        Some(Self { number, succeeded, command: columns.next()? }).filter(|_| is_number)
    }

    /// The command, as a shell must be given it.
    fn command(&self) -> Vec<u8> {
        let tabs = self.command.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\t');
        let own = tabs.map(|(at, _)| at).nth(OWN_COLUMNS - 1);
        // The command itself may have tabs and signs of comments: then the ten columns are still the last ones.
        let end = own.filter(|at| self.command.get(at + 1) == Some(&b'#'));
        let command = &self.command[..end.unwrap_or(self.command.len())];
        command.iter().map(|&byte| if byte == 0 { b'\n' } else { byte }).collect()
    }
}

/// Reserves a log for this process until the file is closed. Returns false if another process has it.
///
/// # Errors
/// The file system has no locks.
pub fn lock(log: &File) -> io::Result<bool> {
    match flock(log, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[(u64, i32, i32, &str)]) -> Vec<u8> {
        let mut text = [HEAD, b"\n"].concat();
        for (number, status, signal, command) in lines {
            let line =
                format!("{number}\t:\t1.500\t     2.250\t0\t7\t{status}\t{signal}\t{command}\n");
            text.extend_from_slice(line.as_bytes());
        }
        text
    }

    fn left_out(log: &[u8], again: Again) -> Vec<u64> {
        Earlier::read(log, again).unwrap().left_out.into_iter().collect()
    }

    #[test]
    fn jobs_are_left_out_by_what_their_lines_say() {
        let log = log(&[
            (1, 0, 0, "a"),
            (4, 3, 0, "b"),
            (2, 0, 9, "c"),
            (6, -1, 15, "d"),
            (2, 0, 0, "c"),
        ]);
        assert_eq!(left_out(&log, Again::Missing), [1, 2, 4, 6]);
        assert_eq!(left_out(&log, Again::MissingAndFailed), [1, 2]);
        let earlier = Earlier::read(&log, Again::Failed).unwrap();
        assert_eq!(earlier.failed, [(4, b"b".to_vec()), (6, b"d".to_vec())]);
        assert_eq!((earlier.whole, earlier.lacks_end), (log.len() as u64, false));
    }

    #[test]
    fn of_several_lines_any_success_counts_and_the_last_command() {
        let log = log(&[(1, 0, 0, "a"), (1, 1, 0, "a")]);
        assert_eq!(left_out(&log, Again::MissingAndFailed), [1]);
        assert_eq!(Earlier::read(&log, Again::Failed).unwrap().failed, []);
        let log = self::log(&[(1, 1, 0, "a"), (1, 1, 0, "b")]);
        assert_eq!(Earlier::read(&log, Again::Failed).unwrap().failed, [(1, b"b".to_vec())]);
    }

    #[test]
    fn own_columns_are_not_part_of_the_command() {
        let own = "\t#1\t1\t0\t1.000\t0.020\t4096\t0:4,1:8\t2\t1\t1";
        for command in ["x y", "x\t#\ty", "x\0y # z"] {
            for columns in ["", own] {
                let log = log(&[(1, 1, 0, &format!("{command}{columns}"))]);
                let failed = Earlier::read(&log, Again::Failed).unwrap().failed;
                assert_eq!(failed, [(1, command.replace('\0', "\n").into_bytes())]);
            }
        }
    }

    #[test]
    fn a_last_line_that_was_cut_is_overwritten_or_completed() {
        let whole = log(&[(1, 0, 0, "a"), (2, 0, 0, "b c")]);
        let first = log(&[(1, 0, 0, "a")]).len();
        for length in first..whole.len() {
            let cut = &whole[..length];
            let earlier = Earlier::read(cut, Again::Missing).unwrap();
            // From the tab before the command on, the line says how the job ended.
            let says = length >= whole.len() - "b c\n".len();
            assert_eq!(earlier.left_out.contains(&2), says, "{length}");
            assert_eq!(earlier.whole, if says { length } else { first } as u64);
            assert_eq!(earlier.lacks_end, says);
        }
        let failed = log(&[(1, 1, 0, "rm -r x/y")]);
        let cut = &failed[..failed.len() - 3];
        assert_eq!(Earlier::read(cut, Again::Failed), Err(BadLog::CutCommand(2)));
        assert_eq!(left_out(cut, Again::MissingAndFailed), [0; 0]);
    }

    #[test]
    fn other_files_are_refused() {
        let read = |text: &[u8]| Earlier::read(text, Again::Missing);
        assert_eq!(read(b"a,b\n1,2\n"), Err(BadLog::Head));
        assert_eq!(read(&[HEAD, b"\n", b"x\ty\n"].concat()), Err(BadLog::Line(2)));
        for number in ["0", "-1", "1.5", "1e300", "nan"] {
            let line = format!("\n{number}\t:\t1.5\t2\t0\t7\t0\t0\ta\n");
            assert_eq!(read(&[HEAD, line.as_bytes()].concat()), Err(BadLog::Line(2)), "{number}");
        }
        assert_eq!(read(b"").unwrap(), Earlier::default());
    }
}

//! The job log: a file with a line for each job that has ended, and what it says about an earlier run.

#![allow(clippy::disallowed_types, reason = "a Linux program")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use nearq_command::file;
use nearq_command::screen::or_dash;
use nearq_home::Nodes;
use nearq_processes::jobs::{Again, Earlier, End, Report, lock, most};

use super::account;
use crate::output::Failure;

/// The columns of the job log, those of GNU parallel first. Everything from the `#` on is a comment for a shell, and `parallel
/// --retry-failed` passes the rest of a line to a shell.
const JOBLOG: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\t\
                      #Home\tMost\tLast\tUser\tSystem\tMaxRssKiB\tMemoryKiB\tMigrations\tLetOut\tBroughtHome\n";

/// The log of an earlier run, and what it says.
pub(super) struct EarlierLog {
    file: File,
    pub(super) earlier: Earlier,
}

impl EarlierLog {
    /// Reads the log that `--joblog` names, for the option `option`; `None` if there is none, or an empty one. No other run can write it as
    /// long as this one has it.
    pub(super) fn read(option: &str, path: &Path, again: Again) -> Result<Option<Self>, Failure> {
        let named =
            |text: String| Failure::input(format!("{option}: --joblog {}: {text}", path.display()));
        if !file::is_ordinary(path)
            .map_err(|error| Failure::input(file::refusal("--joblog", path, &error)))?
        {
            return Err(named(
                "it is no ordinary file, so nothing can be read from it; give a file".into(),
            ));
        }
        let opened = File::options().read(true).append(true).open(path);
        let mut file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| named(format!("cannot be read: {error}")))?,
        };
        reserve(&file, path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|error| named(format!("cannot be read: {error}")))?;
        if text.is_empty() {
            return Ok(None);
        }
        let earlier = Earlier::read(&text, again).map_err(|error| named(error.to_string()))?;
        Ok(Some(Self { file, earlier }))
    }
}

/// Keeps other runs from writing the log as long as the file is open. A file system without locks does not have it.
fn reserve(file: &File, path: &Path) -> Result<(), Failure> {
    if lock(file).unwrap_or(true) {
        return Ok(());
    }
    Err(Failure::input(format!(
        "--joblog {}: another run writes it; wait until that has ended, or give another file",
        path.display()
    )))
}

/// The job log. The file's previous contents are replaced, or continued, when the first job has ended.
pub(super) struct JobLog {
    path: PathBuf,
    file: Option<File>,
    /// The file that is replaced, which no other run can write meanwhile.
    previous: Option<File>,
    /// The log that is continued.
    earlier: Option<EarlierLog>,
    with_own_columns: bool,
}

impl JobLog {
    /// A new log.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let refused = |error| Failure::input(file::refusal("--joblog", path, &error));
        let mut log = Self {
            path: path.into(),
            file: None,
            previous: None,
            earlier: None,
            with_own_columns: true,
        };
        if !file::is_ordinary(path).map_err(refused)? {
            // A pipe or a device has no previous contents that could be lost.
            log.file = Some(file::begin(path, JOBLOG.as_bytes()).map_err(refused)?);
        } else if let Ok(previous) = File::open(path) {
            reserve(&previous, path)?;
            log.previous = Some(previous);
        }
        // Otherwise there is no file yet, or none that may be read.
        Ok(log)
    }

    /// A log that continues an earlier one.
    pub(super) fn after(path: &Path, earlier: EarlierLog) -> Self {
        let with_own_columns = earlier.earlier.has_own_columns;
        let (path, earlier) = (path.into(), Some(earlier));
        Self { path, file: None, previous: None, earlier, with_own_columns }
    }

    /// Begins the file, or makes it ready to be continued, if that has not happened yet.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        self.file = Some(match self.earlier.take() {
            Some(EarlierLog { mut file, earlier }) => {
                file.set_len(earlier.whole)?;
                if earlier.lacks_end {
                    file.write_all(b"\n")?;
                }
                file
            }
            None => begin_log(&self.path, self.previous.as_ref())?,
        });
        self.previous = None;
        Ok(())
    }

    /// Adds the line of a job that has ended.
    pub(super) fn report(&mut self, report: &Report, nodes: &Nodes) -> io::Result<()> {
        self.begin()?;
        let line = line(report, nodes, self.with_own_columns);
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(&line))
    }
}

/// Begins a log in place of `previous`. It fails if another run has begun the log since this one has started.
fn begin_log(path: &Path, previous: Option<&File>) -> io::Result<File> {
    let identity = |file: &File| file.metadata().ok().map(|data| (data.dev(), data.ino()));
    file::begin_if(path, JOBLOG.as_bytes(), |new| {
        // So no other run finds it unlocked. There may be no locks.
        let _ = lock(new);
        match File::open(path) {
            Ok(found)
                if previous.and_then(identity) != identity(&found)
                    && !lock(&found).unwrap_or(true) =>
            {
                Err(io::Error::other("another run writes it; give each run a log of its own"))
            }
            _ => Ok(()),
        }
    })
}

/// A line of the job log.
fn line(report: &Report, nodes: &Nodes, with_own_columns: bool) -> Vec<u8> {
    let (status, signal) = match report.end {
        // As GNU parallel writes it.
        End::Exit(_) if report.timed_out => (-1, 0),
        End::Signal(signal) if report.timed_out => (-1, signal),
        End::Exit(status) => (i32::from(status), 0),
        End::Signal(signal) => (0, signal),
    };
    let start = report.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let begin = format!(
        "{}\t:\t{:.3}\t{:10.3}\t0\t{}\t{status}\t{signal}\t",
        report.number,
        start.as_secs_f64(),
        report.elapsed.as_secs_f64(),
        report.printed,
    );
    let mut line = begin.into_bytes();
    // A job is always one line, as in GNU parallel.
    line.extend(report.command.iter().map(|&byte| if byte == b'\n' { 0 } else { byte }));
    if !with_own_columns {
        line.push(b'\n');
        return line;
    }
    let account = report.account.as_ref();
    let id = |index: Option<usize>| account::id(index, nodes);
    let memory = or_dash(account.map(|account| account::memory(account, nodes)));
    let counts = account.map(|account| [account.migrations, account.let_out, account.brought_home]);
    let [migrations, let_out, brought_home] = counts.unwrap_or_default();
    let end = format!(
        "\t#{}\t{}\t{}\t{:.3}\t{:.3}\t{}\t{memory}\t{migrations}\t{let_out}\t{brought_home}\n",
        id(account.map(|account| account.home)),
        id(account.and_then(most)),
        id(account.and_then(|account| account.last)),
        report.user.as_secs_f64(),
        report.system.as_secs_f64(),
        report.max_rss_kib,
    );
    line.extend_from_slice(end.as_bytes());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_processes::Account;
    use nearq_topology::CpuSet;
    use std::time::{Duration, SystemTime};

    fn report() -> Report {
        Report {
            number: 3,
            process: 17,
            command: b"echo 'a\nb'".to_vec(),
            end: End::Signal(9),
            stopped: false,
            timed_out: false,
            attempts: 1,
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
            elapsed: Duration::from_millis(2250),
            user: Duration::from_secs(1),
            system: Duration::from_millis(20),
            max_rss_kib: 4096,
            printed: 7,
            account: None,
            left_alone: false,
        }
    }

    #[test]
    fn job_log_lines_have_the_columns_of_the_header() {
        let mut report = report();
        let places: Vec<_> = (0..2).map(|node| (node, CpuSet::single(node))).collect();
        let nodes = Nodes::pretended(&places, &vec![vec![10; 2]; 2]);
        let text = |report: &Report| String::from_utf8(line(report, &nodes, true)).unwrap();
        let alone = text(&report);
        assert_eq!(
            alone,
            "3\t:\t1.500\t     2.250\t0\t7\t0\t9\techo 'a\0b'\t#-\t-\t-\t1.000\t0.020\t4096\t-\t0\t0\t0\n"
        );
        assert_eq!(alone.split('\t').count(), JOBLOG.split('\t').count());
        report.account = Some(Account {
            home: 1,
            last: Some(0),
            cpu_time: vec![Duration::ZERO, Duration::from_millis(5)],
            resident: vec![4096, 8192],
            migrations: 2,
            let_out: 1,
            brought_home: 1,
            ..Account::default()
        });
        assert!(text(&report).ends_with("\t#1\t1\t0\t1.000\t0.020\t4096\t0:4,1:8\t2\t1\t1\n"));
        report.timed_out = true;
        let nine = line(&report, &nodes, false);
        assert_eq!(nine, b"3\t:\t1.500\t     2.250\t0\t7\t-1\t9\techo 'a\0b'\n");
    }
}

//! The names of queues and threads: events have numbers only.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use nearq_control::protocol::TraceBatch;
use nearq_processes::proc::{self, LONGEST_STATUS};

/// How many names are kept, of queues and of threads each. If there are more, the earlier ones are dropped.
const MOST: usize = 1 << 16;

/// Names of queues, from the batches, and of threads, from the system.
#[derive(Debug)]
pub(crate) struct Names {
    /// The folder with a subfolder for each thread.
    tasks: PathBuf,
    queues: HashMap<u64, String>,
    threads: HashMap<u64, String>,
}

impl Names {
    /// Starts without names; threads are looked up in the process `pid`.
    pub(crate) fn of(pid: u32) -> Self {
        Self::in_folder(format!("/proc/{pid}/task").into())
    }

    /// As above, but looks up threads in a folder in place of `/proc/PID/task`.
    pub(super) fn in_folder(tasks: PathBuf) -> Self {
        Self { tasks, queues: HashMap::new(), threads: HashMap::new() }
    }

    /// Learns the names that are needed for a batch.
    pub(crate) fn learn(&mut self, batch: &TraceBatch) {
        if self.queues.len() + batch.queues.len() > MOST {
            self.queues.clear();
        }
        if self.threads.len() + batch.events.len() > MOST {
            self.threads.clear();
        }
        for queue in &batch.queues {
            self.queues.insert(queue.id, queue.name.clone());
        }
        let unknown = |thread: &u64| *thread != 0 && !self.threads.contains_key(thread);
        if batch.events.iter().any(|event| unknown(&event.thread)) {
            self.threads.extend(threads(&self.tasks));
        }
        // A thread that has already ended has no name; it is not looked up again.
        for event in batch.events.iter().filter(|event| event.thread != 0) {
            let number = event.thread;
            self.threads.entry(number).or_insert_with(|| format!("thread {number}"));
        }
    }

    /// A queue's name.
    pub(crate) fn queue(&self, id: u64) -> String {
        self.queues.get(&id).cloned().unwrap_or_else(|| format!("#{id}"))
    }

    /// A thread's name; empty for none.
    pub(crate) fn thread(&self, number: u64) -> &str {
        self.threads.get(&number).map_or("", String::as_str)
    }
}

/// The threads of a process by their own numbers, which in a container differ from those outside.
fn threads(tasks: &Path) -> HashMap<u64, String> {
    let Ok(entries) = fs::read_dir(tasks) else { return HashMap::new() };
    let status = |entry: fs::DirEntry| proc::read(entry.path().join("status"), LONGEST_STATUS);
    entries.flatten().take(MOST).filter_map(status).filter_map(|text| thread(&text)).collect()
}

/// A thread's own number and name, from its `status`.
fn thread(status: &str) -> Option<(u64, String)> {
    let field = |key: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
    };
    // A system without namespaces has no `NSpid`.
    let number = field("NSpid").or_else(|| field("Pid"))?.split_whitespace().last()?;
    Some((number.parse().ok()?, field("Name")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::{TraceEvent, TracedQueue};

    #[test]
    fn a_thread_in_a_container_is_found_by_its_inner_number() {
        let status = "Name:\tnq/u3:1\nUmask:\t0022\nTgid:\t900\nPid:\t901\nNSpid:\t901\t17\t5\n";
        assert_eq!(thread(status), Some((5, "nq/u3:1".into())));
        assert_eq!(thread("Name:\told\nPid:\t42\n"), Some((42, "old".into())));
        assert_eq!(thread("Name:\tbroken\n"), None);
    }

    #[test]
    fn names_come_from_batches_and_from_proc() {
        let mut names = Names::of(std::process::id());
        let me = std::fs::read_link("/proc/thread-self").unwrap();
        let me: u64 = me.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let event = |thread, queue| TraceEvent { thread, queue, ..TraceEvent::default() };
        names.learn(&TraceBatch {
            queues: vec![TracedQueue { id: 7, name: "crypt".into() }],
            // No system has a thread with the largest of all numbers.
            events: vec![event(0, 7), event(me, 7), event(u64::MAX, 8)],
            ..TraceBatch::default()
        });
        assert_eq!((names.queue(7), names.queue(8)), ("crypt".into(), "#8".into()));
        let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert_eq!(names.thread(me), comm.trim_end());
        assert_eq!(names.thread(u64::MAX), format!("thread {}", u64::MAX));
        assert_eq!(names.thread(0), "");
    }
}

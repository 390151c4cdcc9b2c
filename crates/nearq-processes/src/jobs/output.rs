//! Keeps the output of each job together: each job writes into pipes of its own, which are read as output arrives. The output is printed
//! when the job has ended.
//!
//! Pipes are used because the size of a file, even of one in memory, is limited (`ulimit -f`); a program's output into a pipe is not. The
//! output that is kept and the output that waits to be printed take at most [`limit`] together. Beyond it one job is printed while it runs:
//! with `Order::Input` the next in order, otherwise the one that has printed most. The other jobs are not read until there is space, so
//! they block when they print. With `Order::Input` the output of a job that ends early is held until everything before it has been printed.

mod writer;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::fs::OFlags;

use crate::proc;
pub(crate) use writer::Broken;
use writer::Writer;

/// The most and the least memory that outputs may take, and the share of the available memory.
const MOST: u64 = 256 << 20;
const LEAST: u64 = 64 << 20;
const PART: u64 = 8;

/// How many ended jobs may wait for their turn; beyond that no other job starts.
const MOST_HELD: usize = 65_536;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// How many pipes are read before something else is checked.
const AT_ONCE: usize = 64;

/// In which order outputs come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order in which jobs end, each job's output as a whole.
    #[default]
    End,
    /// In the order of inputs, each job's output as a whole.
    Input,
    /// In the order in which they are written: jobs have the caller's own output.
    None,
}

/// What is done before and after each piece is printed on a terminal: a progress bar on it is hidden meanwhile.
pub type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// How much memory outputs may take.
pub(crate) fn limit() -> u64 {
    proc::available_memory().map_or(LEAST, |available| available / PART).clamp(LEAST, MOST)
}

/// The output of a job that is not handed over yet: standard output and standard error.
#[derive(Debug)]
struct HeldOutput {
    /// What each line begins with.
    tag: Option<Vec<u8>>,
    /// Whether the last byte of the stream has ended a line.
    at_begin: [bool; 2],
    /// Where the output is stored in place of being printed.
    files: Option<[File; 2]>,
    pipes: [Option<PipeReader>; 2],
    text: [Vec<u8>; 2],
    /// The ends of all that was printed, each at least as long as they are kept.
    ends: [Vec<u8>; 2],
    /// The length of all of the job's standard output.
    printed: u64,
    ended: bool,
}

impl HeldOutput {
    fn len(&self) -> u64 {
        self.text.iter().map(|text| text.len() as u64).sum()
    }

    /// What is printed of a part of the output: it with the tag, or nothing if it is stored in files.
    fn accept<'b>(&mut self, stream: usize, bytes: &'b [u8]) -> io::Result<Cow<'b, [u8]>> {
        if let Some(files) = &mut self.files {
            return files[stream].write_all(bytes).map(|()| Cow::Borrowed(&[][..]));
        }
        let Some(tag) = &self.tag else { return Ok(bytes.into()) };
        let mut text = Vec::with_capacity(bytes.len() + tag.len() + 1);
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.at_begin[stream] {
                text.extend_from_slice(tag);
                text.push(b'\t');
            }
            text.extend_from_slice(line);
            self.at_begin[stream] = line.ends_with(b"\n");
        }
        Ok(text.into())
    }
}

/// Keeps output and prints it.
pub(crate) struct Printer {
    order: Order,
    limit: u64,
    jobs: BTreeMap<u64, HeldOutput>,
    /// The bytes of all kept outputs.
    kept: u64,
    /// The jobs that have begun and are not printed, if outputs are in the order of inputs, and the number of the last of them.
    begun: VecDeque<u64>,
    newest: u64,
    /// The jobs that have ended, if outputs are in the order of ends.
    ended: VecDeque<u64>,
    /// The job that is printed while it runs.
    live: Option<u64>,
    /// All pipes.
    pipes: Option<OwnedFd>,
    writer: Writer,
    /// Why outputs cannot be stored.
    not_stored: Option<Broken>,
    buffer: Vec<u8>,
    /// How many bytes of the end of each output are kept until the job has ended.
    keeps: [usize; 2],
    /// The jobs that were handed over, each with how many bytes had been handed over by then; until the engine knows that they are printed.
    handed_over: VecDeque<(u64, u64)>,
}

impl Printer {
    /// Prints to standard output and standard error, or with `to_error` all to the latter.
    pub(crate) fn new(
        order: Order,
        limit: u64,
        around: Around,
        to_error: bool,
        keeps: [usize; 2],
    ) -> io::Result<Self> {
        let pipes = match order {
            Order::None => None,
            _ => Some(epoll::create(epoll::CreateFlags::CLOEXEC)?),
        };
        Ok(Self {
            order,
            limit,
            jobs: BTreeMap::new(),
            kept: 0,
            begun: VecDeque::new(),
            newest: 0,
            ended: VecDeque::new(),
            live: None,
            pipes,
            writer: Writer::new(around, to_error)?,
            not_stored: None,
            buffer: vec![0; CHUNK],
            keeps,
            handed_over: VecDeque::new(),
        })
    }

    /// Pipes for a job's standard output and standard error; none if it has the caller's. Each line is printed after the tag; with files,
    /// the output is stored there instead.
    pub(crate) fn open(
        &mut self,
        number: u64,
        tag: Option<Vec<u8>>,
        files: Option<[File; 2]>,
    ) -> io::Result<Option<[PipeWriter; 2]>> {
        let Some(all) = &self.pipes else { return Ok(None) };
        let pipe = |stream: u64| {
            let (reader, writer) = io::pipe()?;
            rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK)?;
            let data = epoll::EventData::new_u64(number << 1 | stream);
            epoll::add(all, &reader, data, epoll::EventFlags::IN)?;
            Ok::<_, io::Error>((reader, writer))
        };
        let ((output, to_output), (error, to_error)) = (pipe(0)?, pipe(1)?);
        let pipes = [Some(output), Some(error)];
        let (text, ends) = <([Vec<u8>; 2], [Vec<u8>; 2])>::default();
        let at_begin = [true; 2];
        let kept = HeldOutput { tag, at_begin, files, pipes, text, ends, printed: 0, ended: false };
        self.jobs.insert(number, kept);
        // A job that is tried again has its place already.
        if self.order == Order::Input && number > self.newest {
            self.newest = number;
            self.begun.push_back(number);
        }
        Ok(Some([to_output, to_error]))
    }

    /// The job of that number did not start or has failed, and will be tried again: what it has printed is not printed here. What was
    /// printed while it ran stays.
    pub(crate) fn discard(&mut self, number: u64) {
        if let Some(kept) = self.jobs.remove(&number) {
            self.kept -= kept.len();
        }
        // Another job may be printed meanwhile.
        self.live = self.live.filter(|live| *live != number);
    }

    /// The job of that number is not tried again after all, so none waits for its output.
    pub(crate) fn forget(&mut self, number: u64) {
        self.begun.retain(|begun| *begun != number);
        self.flush();
    }

    /// The job of that number has ended. Returns how much it has printed on standard output, and the ends of both outputs, as far as they
    /// are kept.
    pub(crate) fn ended(&mut self, number: u64) -> (u64, [Vec<u8>; 2]) {
        for stream in [0, 1] {
            self.drain(number, stream);
        }
        let Some(kept) = self.jobs.get_mut(&number) else {
            // It has printed by itself.
            self.handed_over.push_back((number, self.writer.sent()));
            return Default::default();
        };
        kept.ended = true;
        let printed = kept.printed;
        let mut ends = std::mem::take(&mut kept.ends);
        for (end, keeps) in ends.iter_mut().zip(self.keeps) {
            end.drain(..end.len().saturating_sub(keeps));
        }
        if self.live == Some(number) {
            self.ended.push_front(number);
        } else if self.order == Order::End {
            self.ended.push_back(number);
        }
        self.flush();
        (printed, ends)
    }

    /// Reads what is in a pipe now, and no more: processes that the job left behind may write without end.
    fn drain(&mut self, number: u64, stream: usize) {
        let pipe = self.jobs.get_mut(&number).and_then(|kept| kept.pipes[stream].take());
        let Some(pipe) = pipe else { return };
        let mut left = rustix::io::ioctl_fionread(&pipe).unwrap_or(0);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            match rustix::io::read(&pipe, &mut self.buffer[..most]) {
                Ok(read) if read > 0 => {
                    left -= read as u64;
                    self.put(number, stream, read);
                }
                Err(rustix::io::Errno::INTR) => {}
                _ => return,
            }
        }
    }

    /// Takes the bytes at the beginning of the buffer.
    fn put(&mut self, number: u64, stream: usize, read: usize) {
        let Some(kept) = self.jobs.get_mut(&number) else { return };
        if stream == 0 {
            kept.printed += read as u64;
        }
        let keeps = self.keeps[stream];
        if keeps > 0 {
            let end = &mut kept.ends[stream];
            end.extend_from_slice(&self.buffer[..read]);
            // Seldom, so that each byte is moved about once.
            if end.len() > keeps * 2 + CHUNK {
                end.drain(..end.len() - keeps);
            }
        }
        let text = match kept.accept(stream, &self.buffer[..read]) {
            Ok(text) if text.is_empty() => return,
            Ok(text) => text,
            Err(error) => {
                let text =
                    format!("--results: the output of job {number} cannot be stored: {error}");
                self.not_stored.get_or_insert(Broken::Failed(text));
                return;
            }
        };
        if self.live == Some(number) {
            self.writer.send(stream, text.into_owned());
        } else {
            self.kept += text.len() as u64;
            kept.text[stream].extend_from_slice(&text);
        }
    }

    /// Hands over the outputs that are complete and whose turn it is.
    fn flush(&mut self) {
        loop {
            let turns = if self.order == Order::Input { &self.begun } else { &self.ended };
            let Some(&first) = turns.front() else { return };
            let is_next = self.live.is_none_or(|live| live == first);
            if !is_next || !self.jobs.get(&first).is_some_and(|kept| kept.ended) {
                return;
            }
            self.hand_over(first);
            self.handed_over.push_back((first, self.writer.sent()));
            self.jobs.remove(&first);
            self.live = None;
            self.ended.pop_front();
            self.begun.pop_front();
        }
    }

    fn hand_over(&mut self, number: u64) {
        let Some(kept) = self.jobs.get_mut(&number) else { return };
        self.kept -= kept.len();
        for stream in [0, 1] {
            let text = std::mem::take(&mut kept.text[stream]);
            if !text.is_empty() {
                self.writer.send(stream, text);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.kept + self.writer.waiting() >= self.limit
    }

    /// Whether space is short because of a slow reader.
    fn has_slow_reader(&self) -> bool {
        self.writer.waiting() >= self.limit / 2
    }

    /// If there is no space, begins to print a running job. Returns the job's number if its printing has just begun.
    pub(crate) fn print_live(&mut self) -> Option<u64> {
        if self.live.is_some() || !self.is_full() || self.has_slow_reader() {
            return None;
        }
        let longest = || Some(*self.jobs.iter().max_by_key(|(_, kept)| kept.len())?.0);
        let live =
            if self.order == Order::Input { self.begun.front().copied() } else { longest() }?;
        self.live = Some(live);
        self.hand_over(live);
        Some(live)
    }

    /// The descriptors to poll.
    pub(crate) fn wanted(&self) -> Vec<BorrowedFd<'_>> {
        let mut wanted = vec![self.writer.as_fd()];
        if !self.is_full() {
            wanted.extend(self.pipes.as_ref().map(|pipes| pipes.as_fd()));
        } else if let Some(kept) = self.live.and_then(|live| self.jobs.get(&live))
            && !self.has_slow_reader()
        {
            wanted.extend(kept.pipes.iter().flatten().map(|pipe| pipe.as_fd()));
        }
        wanted
    }

    /// Reads the available output, as far as there is space. Must be called after one of the polled descriptors became readable.
    pub(crate) fn take(&mut self) {
        self.writer.noted();
        let Some(pipes) = &self.pipes else { return };
        if self.is_full() {
            if let Some(live) = self.live.filter(|_| !self.has_slow_reader()) {
                self.read(live, 0);
                self.read(live, 1);
            }
            return;
        }
        let mut events = Vec::with_capacity(AT_ONCE);
        let now = rustix::event::Timespec::default();
        // After an interruption, the loop only checks again.
        let _ = epoll::wait(pipes, rustix::buffer::spare_capacity(&mut events), Some(&now));
        for event in events {
            if self.is_full() {
                return;
            }
            let data = event.data.u64();
            self.read(data >> 1, (data & 1) as usize);
        }
    }

    fn read(&mut self, number: u64, stream: usize) {
        let Some(kept) = self.jobs.get_mut(&number) else { return };
        let Some(pipe) = &kept.pipes[stream] else { return };
        match rustix::io::read(pipe, &mut self.buffer) {
            Ok(0) => kept.pipes[stream] = None,
            Ok(read) => self.put(number, stream, read),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => kept.pipes[stream] = None,
        }
    }

    /// Whether so much output waits that no other job should start.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_full() || self.jobs.len() >= MOST_HELD
    }

    /// A job that has ended and whose output has been printed or stored, or given up because printing is [`broken`](Self::broken); each is
    /// returned once.
    pub(crate) fn next_printed(&mut self) -> Option<u64> {
        let printed = self.writer.sent() - self.writer.waiting();
        let (number, _) = self.handed_over.pop_front_if(|(_, upto)| *upto <= printed)?;
        Some(number)
    }

    /// Whether everything that was handed over has been printed.
    pub(crate) fn is_done(&self) -> bool {
        self.writer.waiting() == 0
    }

    /// Why nothing more can be printed or stored; `None` if that is possible.
    pub(crate) fn broken(&self) -> Option<&Broken> {
        self.not_stored.as_ref().or_else(|| self.writer.broken())
    }
}

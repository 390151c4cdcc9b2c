//! The sources of inputs: lists among the arguments, or a file or pipe, which may deliver more inputs later.
//!
//! Nothing here waits for a stream: a thread that waits for other events anyway polls its descriptor and calls [`Inputs::fill`] when the
//! stream is readable. The stream is read ahead, up to [`READ_AHEAD_JOBS`] jobs or [`READ_AHEAD_BYTES`], so that the number of jobs is
//! known early. Combinations of lists are made one at a time.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use super::argument_space::{self, ArgumentSpace};
use super::source::{Job, Source};

/// How many jobs are read ahead: enough to count the remaining jobs, and bounded in case a program writes inputs without end.
const READ_AHEAD_JOBS: usize = 65_536;

/// How many bytes are read ahead, and how many bytes the inputs of one job may have.
const READ_AHEAD_BYTES: usize = 16 << 20;

/// About how much memory an input takes besides its bytes.
const INPUT_OVERHEAD: usize = 32;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// The inputs of one job.
pub type Group = Vec<Vec<u8>>;

/// What ends an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Separator {
    /// The byte that follows an input.
    pub byte: u8,
    /// Whether an input may be empty.
    pub keeps_empty: bool,
}

impl Separator {
    /// Inputs are lines that are not empty.
    pub const LINE: Self = Self { byte: b'\n', keeps_empty: false };
    /// Inputs end with a zero byte, as from `find -print0`.
    pub const NULL: Self = Self { byte: 0, keeps_empty: true };
}

/// How many inputs a job has: `inputs`, or fewer if they do not fit in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Each {
    /// The most inputs that a job has.
    pub inputs: usize,
    /// As many as fit in a command.
    pub space: ArgumentSpace,
}

impl Each {
    /// That many inputs per job, whether they fit or not.
    pub const fn of(inputs: usize) -> Self {
        Self { inputs, space: ArgumentSpace::UNLIMITED }
    }
}

/// The inputs of all jobs.
#[derive(Debug)]
pub struct Inputs {
    ready: VecDeque<Group>,
    /// The memory that the jobs in `ready` take.
    ready_bytes: usize,
    combinations: Option<Combinations>,
    stream: Option<Stream>,
    /// The number of the job that was taken or left out last.
    number: u64,
    /// The numbers of jobs that are left out, those that are to come.
    left_out: BTreeSet<u64>,
    /// The numbers of the jobs in `ready`, if they are not the next ones.
    numbers: Option<VecDeque<u64>>,
}

/// One job for each combination of lists.
#[derive(Debug)]
struct Combinations {
    lists: Vec<Vec<Vec<u8>>>,
    /// The number of the next combination, and how many there are.
    next: u64,
    all: u64,
}

/// Inputs that come from outside.
#[derive(Debug)]
struct Stream {
    file: File,
    separator: Separator,
    each: Each,
    /// An input whose end has not been read.
    begun: Vec<u8>,
    /// The inputs of a job that is not complete yet, and their bytes.
    group: Group,
    group_bytes: usize,
}

impl Inputs {
    /// One job for each combination of the lists, the last list changing fastest.
    ///
    /// ```
    /// use nearq_processes::jobs::Inputs;
    ///
    /// let lists = vec![vec![b"a".to_vec(), b"b".to_vec()], vec![b"1".to_vec(), b"2".to_vec()]];
    /// let mut inputs = Inputs::combinations(lists);
    /// assert_eq!(inputs.take(), Some(vec![b"a".to_vec(), b"1".to_vec()]));
    /// assert_eq!(inputs.take(), Some(vec![b"a".to_vec(), b"2".to_vec()]));
    /// assert_eq!(inputs.left(), (2, true));
    /// ```
    pub fn combinations(lists: Vec<Vec<Vec<u8>>>) -> Self {
        let lengths = lists.iter().map(|list| list.len() as u64);
        let all = lengths.fold(1, u64::saturating_mul);
        let combinations = Combinations { lists, next: 0, all };
        Self { combinations: Some(combinations), ..Self::of(VecDeque::new(), None) }
    }

    /// Jobs of inputs from one list; the last one may have fewer.
    pub fn list(list: Vec<Vec<u8>>, each: Each) -> Self {
        let mut ready = VecDeque::new();
        let mut group = Group::new();
        let mut bytes = 0;
        for input in list {
            add(input, &each, &mut group, &mut bytes, &mut ready);
        }
        if !group.is_empty() {
            ready.push_back(group);
        }
        Self::of(ready, None)
    }

    /// Jobs of one input each that have numbers of their own, in ascending order.
    pub fn numbered(jobs: Vec<(u64, Vec<u8>)>) -> Self {
        let (numbers, ready): (_, VecDeque<_>) =
            jobs.into_iter().map(|(number, input)| (number, vec![input])).unzip();
        Self { numbers: Some(numbers), ..Self::of(ready, None) }
    }

    /// Jobs of inputs that end with `separator`. The last input may lack the separator, and the last job may have fewer inputs.
    pub fn stream(file: File, separator: Separator, each: Each) -> Self {
        let (begun, group) = (Vec::new(), Group::new());
        Self::of(
            VecDeque::new(),
            Some(Stream { file, separator, each, begun, group, group_bytes: 0 }),
        )
    }

    fn of(ready: VecDeque<Group>, stream: Option<Stream>) -> Self {
        let ready_bytes = ready.iter().map(|group| memory(group)).sum();
        let (number, left_out) = (0, BTreeSet::new());
        Self { ready, ready_bytes, combinations: None, stream, number, left_out, numbers: None }
    }

    /// The same jobs with the same numbers, but without those of these numbers.
    ///
    /// ```
    /// use nearq_processes::jobs::{Each, Inputs};
    ///
    /// let list = vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
    /// let mut inputs = Inputs::list(list, Each::of(1)).without([2].into());
    /// assert_eq!((inputs.take(), inputs.number()), (Some(vec![b"a".to_vec()]), 1));
    /// assert_eq!((inputs.take(), inputs.number()), (Some(vec![b"c".to_vec()]), 3));
    /// ```
    #[must_use]
    pub fn without(mut self, numbers: BTreeSet<u64>) -> Self {
        self.left_out = numbers;
        self.forget_what_never_comes();
        self
    }

    /// The next job's inputs, if they have been read.
    pub fn take(&mut self) -> Option<Group> {
        loop {
            let group = match &mut self.combinations {
                Some(combinations) => combinations.take()?,
                None => {
                    let group = self.ready.pop_front()?;
                    self.ready_bytes -= memory(&group);
                    group
                }
            };
            self.number = match &mut self.numbers {
                Some(numbers) => numbers.pop_front()?,
                None => self.number + 1,
            };
            if !self.left_out.remove(&self.number) {
                return Some(group);
            }
        }
    }

    /// The number of the job that was taken last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many jobs are left as far as is known, and whether that number is final.
    pub fn left(&self) -> (u64, bool) {
        (self.known().saturating_sub(self.left_out.len() as u64), self.stream.is_none())
    }

    /// How many jobs are known that were not taken, those that are left out among them.
    fn known(&self) -> u64 {
        let combinations = self.combinations.as_ref().map_or(0, |all| all.all - all.next);
        self.ready.len() as u64 + combinations
    }

    /// Whether no job is left and none can come any more. After a [`take`](Self::take) that returned nothing, the answer is exact.
    pub fn is_over(&self) -> bool {
        self.known() == 0 && self.stream.is_none()
    }

    /// Forgets the numbers beyond the last job, once that one is known, so that the number of jobs that are left is exact.
    fn forget_what_never_comes(&mut self) {
        if self.stream.is_none() {
            self.left_out.split_off(&(self.number + self.known()).saturating_add(1));
        }
    }

    /// The descriptor to poll, if there may be more input and there is space for it.
    pub fn wanted(&self) -> Option<BorrowedFd<'_>> {
        let may_read = self.ready.len() < READ_AHEAD_JOBS && self.ready_bytes < READ_AHEAD_BYTES;
        let stream = self.stream.as_ref().filter(|_| may_read)?;
        Some(stream.file.as_fd())
    }

    /// Reads once. Must be called only when the stream is readable; otherwise the call blocks.
    ///
    /// # Errors
    /// The stream cannot be read, or an input is longer than any argument. No more is read from the stream then.
    pub fn fill(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let before = self.ready.len();
        let mut chunk = vec![0; CHUNK];
        let result = match stream.file.read(&mut chunk) {
            Ok(0) => stream.end(&mut self.ready).map(|()| false),
            Ok(read) => stream.take(&chunk[..read], &mut self.ready).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        };
        self.ready_bytes +=
            self.ready.iter().skip(before).map(|group| memory(group)).sum::<usize>();
        if !matches!(result, Ok(true)) {
            self.stream = None;
            self.forget_what_never_comes();
        }
        result.map(drop)
    }
}

impl Source for Inputs {
    fn take(&mut self, _places: usize) -> Option<Job> {
        let inputs = Inputs::take(self)?;
        Some(Job::of(self.number, inputs))
    }

    fn left(&self) -> (u64, bool) {
        Inputs::left(self)
    }

    fn is_over(&self) -> bool {
        Inputs::is_over(self)
    }

    fn wanted(&self, jobs: bool) -> Option<BorrowedFd<'_>> {
        Inputs::wanted(self).filter(|_| jobs)
    }

    fn fill(&mut self) -> Result<(), String> {
        Inputs::fill(self)
            .map_err(|error| format!("the inputs could not be read to their end: {error}"))
    }
}

impl Combinations {
    fn take(&mut self) -> Option<Group> {
        if self.next == self.all {
            return None;
        }
        let mut number = self.next;
        self.next += 1;
        let last_first = self.lists.iter().rev().map(|list| {
            let index = number % list.len() as u64;
            number /= list.len() as u64;
            list[index as usize].clone()
        });
        let mut group: Group = last_first.collect();
        group.reverse();
        Some(group)
    }
}

impl Stream {
    fn take(&mut self, mut bytes: &[u8], ready: &mut VecDeque<Group>) -> io::Result<()> {
        while let Some(end) = bytes.iter().position(|&byte| byte == self.separator.byte) {
            self.begun.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            self.finish(ready)?;
        }
        self.begun.extend_from_slice(bytes);
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        let longest = argument_space::longest();
        let text = if self.begun.len() > longest {
            format!("an input is longer than {longest} bytes, the limit for an argument")
        } else if self.group_bytes > READ_AHEAD_BYTES {
            let mib = READ_AHEAD_BYTES >> 20;
            format!("the inputs of one job take more than {mib} MiB; give fewer with --max-args N")
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }

    fn finish(&mut self, ready: &mut VecDeque<Group>) -> io::Result<()> {
        self.check()?;
        let input = std::mem::take(&mut self.begun);
        if !input.is_empty() || self.separator.keeps_empty {
            add(input, &self.each, &mut self.group, &mut self.group_bytes, ready);
        }
        Ok(())
    }

    fn end(&mut self, ready: &mut VecDeque<Group>) -> io::Result<()> {
        if !self.begun.is_empty() {
            self.finish(ready)?;
        }
        if !self.group.is_empty() {
            ready.push_back(std::mem::take(&mut self.group));
        }
        Ok(())
    }
}

/// Adds an input to the group of `bytes` bytes; a group that it completes goes to `ready`.
fn add(
    input: Vec<u8>,
    each: &Each,
    group: &mut Group,
    bytes: &mut usize,
    ready: &mut VecDeque<Group>,
) {
    let mut push = |group: &mut Group, bytes: &mut usize| {
        *bytes = 0;
        ready.push_back(std::mem::take(group));
    };
    // The bytes in memory are counted like those of the command: they are a few more.
    let length = input.len();
    let in_command = *bytes - group.len() * INPUT_OVERHEAD + length;
    if !group.is_empty() && !each.space.fits(group.len() + 1, in_command) {
        push(group, bytes);
    }
    *bytes += length + INPUT_OVERHEAD;
    group.push(input);
    if group.len() >= each.inputs {
        push(group, bytes);
    }
}

/// About how much memory a job's inputs take.
fn memory(group: &[Vec<u8>]) -> usize {
    group.iter().map(|input| input.len() + INPUT_OVERHEAD).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    fn all(text: &[u8], separator: Separator, each: Each) -> Vec<Vec<String>> {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(text).unwrap();
        drop(writer);
        let mut inputs = Inputs::stream(OwnedFd::from(reader).into(), separator, each);
        while !inputs.left().1 {
            inputs.fill().unwrap();
        }
        let text = |input: Vec<u8>| String::from_utf8(input).unwrap();
        std::iter::from_fn(|| inputs.take())
            .map(|group| group.into_iter().map(text).collect())
            .collect()
    }

    const ONE: Each = Each::of(1);

    #[test]
    fn every_non_empty_line_is_an_input() {
        assert_eq!(all(b"a\n\n b c \nd", Separator::LINE, ONE), [["a"], [" b c "], ["d"]]);
        assert!(all(b"", Separator::LINE, ONE).is_empty());
        assert!(all(b"\n\n", Separator::LINE, ONE).is_empty());
    }

    #[test]
    fn with_other_separators_empty_inputs_count() {
        assert_eq!(all(b"a\nb\0\0c", Separator::NULL, ONE), [["a\nb"], [""], ["c"]]);
        let comma = Separator { byte: b',', keeps_empty: true };
        assert_eq!(all(b"a,,b\n", comma, ONE), [["a"], [""], ["b\n"]]);
    }

    #[test]
    fn several_inputs_can_form_one_job() {
        assert_eq!(all(b"a\nb\nc\n", Separator::LINE, Each::of(2)), [vec!["a", "b"], vec!["c"]]);
    }

    #[test]
    fn inputs_that_exceed_one_command_are_split() {
        let space = ArgumentSpace { all: 30, word: 100, times: 1, besides: 9, in_word: [0, 0] };
        let each = Each { inputs: 5, space };
        let parts = [vec!["a", "b", "c"], vec!["d", "e"]];
        assert_eq!(all(b"a\nb\nc\nd\ne\n", Separator::LINE, each), parts);
        let list = |text: &str| text.bytes().map(|byte| vec![byte]).collect::<Vec<_>>();
        let mut inputs = Inputs::list(list("abcde"), each);
        assert_eq!([inputs.take(), inputs.take()], [Some(list("abc")), Some(list("de"))]);
        // An input that does not fit even alone is left for the kernel to refuse.
        let space = ArgumentSpace { all: 2, ..space };
        assert_eq!(all(b"a\nb", Separator::LINE, Each { inputs: 5, space }), [["a"], ["b"]]);
    }

    #[test]
    fn an_input_can_arrive_in_pieces() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut inputs = Inputs::stream(OwnedFd::from(reader).into(), Separator::LINE, ONE);
        writer.write_all(b"one\ntw").unwrap();
        inputs.fill().unwrap();
        assert_eq!((inputs.take(), inputs.take()), (Some(vec![b"one".to_vec()]), None));
        assert!(!inputs.is_over());
        writer.write_all(b"o\n").unwrap();
        inputs.fill().unwrap();
        assert_eq!(inputs.take(), Some(vec![b"two".to_vec()]));
        drop(writer);
        inputs.fill().unwrap();
        assert!(inputs.is_over());
    }

    /// Reads endless lines while they are wanted. Returns the number of bytes, and the error that ended the reading.
    fn read_ahead(line: &[u8], each: Each) -> (usize, Option<String>) {
        let (reader, mut writer) = io::pipe().unwrap();
        let line = line.to_vec();
        // The thread ends when the reader is gone.
        std::thread::spawn(move || while writer.write_all(&line).is_ok() {});
        let mut inputs = Inputs::stream(OwnedFd::from(reader).into(), Separator::LINE, each);
        while inputs.wanted().is_some() {
            if let Err(error) = inputs.fill() {
                return (inputs.ready_bytes, Some(error.to_string()));
            }
        }
        (inputs.ready_bytes, None)
    }

    #[test]
    fn reading_ahead_is_bounded() {
        let long = [vec![b'x'; 100_000], b"\n".to_vec()].concat();
        let (bytes, error) = read_ahead(&long, ONE);
        assert!(
            (READ_AHEAD_BYTES..READ_AHEAD_BYTES + 2 * CHUNK + long.len()).contains(&bytes),
            "{bytes}"
        );
        assert_eq!(error, None);
        let (bytes, error) = read_ahead(b"x", ONE);
        assert!(bytes == 0 && error.unwrap().contains("longer than"), "a line without an end");
        let (bytes, error) = read_ahead(&long, Each::of(usize::MAX));
        assert!(bytes == 0 && error.unwrap().contains("--max-args"), "a job without an end");
    }

    #[test]
    fn jobs_that_are_left_out_keep_their_numbers_and_are_not_counted() {
        let list = |count: u8| (0..count).map(|n| vec![b'a' + n]).collect::<Vec<_>>();
        let rest = |mut inputs: Inputs| {
            let left = inputs.left();
            let numbers: Vec<u64> =
                std::iter::from_fn(|| inputs.take().map(|_| inputs.number())).collect();
            assert!(inputs.is_over());
            (left.0, numbers)
        };
        let out: BTreeSet<u64> = [1, 3, 4, 99].into();
        assert_eq!(rest(Inputs::list(list(5), ONE).without(out.clone())), (2, vec![2, 5]));
        let combined = Inputs::combinations(vec![list(2), list(2)]).without(out.clone());
        assert_eq!(rest(combined), (1, vec![2]));
        let (reader, mut writer) = io::pipe().unwrap();
        let stream = Inputs::stream(OwnedFd::from(reader).into(), Separator::LINE, ONE);
        let mut stream = stream.without(out);
        writer.write_all(b"a\nb\nc\nd\ne\n").unwrap();
        drop(writer);
        while !stream.left().1 {
            stream.fill().unwrap();
        }
        assert_eq!(rest(stream), (2, vec![2, 5]));
    }

    #[test]
    fn lists_are_combined() {
        let list = |text: &str| text.bytes().map(|byte| vec![byte]).collect::<Vec<_>>();
        let mut inputs = Inputs::combinations(vec![list("ab"), list("xyz")]);
        assert_eq!(inputs.left(), (6, true));
        let all: Vec<Group> = std::iter::from_fn(|| inputs.take()).collect();
        assert_eq!(all, ["ax", "ay", "az", "bx", "by", "bz"].map(list));
        assert!(inputs.is_over());
        assert!(Inputs::combinations(vec![list("ab"), Vec::new()]).is_over());
    }

    #[test]
    fn combinations_are_made_lazily() {
        let list: Vec<Vec<u8>> = (0..1000).map(|n: u32| n.to_string().into_bytes()).collect();
        let mut inputs = Inputs::combinations(vec![list.clone(), list.clone(), list]);
        assert_eq!(inputs.left(), (1_000_000_000, true));
        assert_eq!(inputs.take(), Some(vec![b"0".to_vec(); 3]));
        let many = vec![vec![b"0".to_vec(), b"1".to_vec()]; 100];
        let mut inputs = Inputs::combinations(many);
        assert_eq!(inputs.left(), (u64::MAX, true));
        assert_eq!(inputs.take().unwrap().len(), 100);
    }
}

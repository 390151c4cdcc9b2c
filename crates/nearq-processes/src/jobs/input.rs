//! Where inputs come from: lists among the arguments, or a file or pipe that may have more to come.
//!
//! A stream is never waited for: who waits for other things anyway polls its descriptor and calls [`Inputs::fill`] when there is
//! something. It is read ahead, so that the number of jobs is known early, up to [`AHEAD`] jobs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};

/// How many jobs are read ahead: enough for a count of what is left, and bounded where a program writes inputs for ever.
const AHEAD: usize = 65_536;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// The inputs of one job.
pub type Group = Vec<Vec<u8>>;

/// The inputs of all jobs.
#[derive(Debug)]
pub struct Inputs {
    ready: VecDeque<Group>,
    stream: Option<Stream>,
}

/// Inputs that come from outside.
#[derive(Debug)]
struct Stream {
    file: File,
    separator: u8,
    /// How many inputs a job has.
    each: usize,
    /// An input of which the end has not been read.
    begun: Vec<u8>,
    /// The inputs of a job that has not all of its own.
    group: Group,
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
        let mut ready: Vec<Group> = vec![Vec::new()];
        for list in lists {
            let longer = ready.iter().flat_map(|begin| {
                list.iter().map(move |input| {
                    let mut group = begin.clone();
                    group.push(input.clone());
                    group
                })
            });
            ready = longer.collect();
        }
        Self { ready: ready.into(), stream: None }
    }

    /// Jobs of `each` inputs from one list; the last one may have fewer.
    pub fn list(list: Vec<Vec<u8>>, each: usize) -> Self {
        let groups = list.chunks(each.max(1)).map(<[_]>::to_vec);
        Self { ready: groups.collect(), stream: None }
    }

    /// Jobs of `each` inputs, which end with `separator`. Lines that are empty are none; where the separator is a zero byte, each
    /// counts. The last input may lack its separator, the last job some of its inputs.
    pub fn stream(file: File, separator: u8, each: usize) -> Self {
        let stream =
            Stream { file, separator, each: each.max(1), begun: Vec::new(), group: Vec::new() };
        Self { ready: VecDeque::new(), stream: Some(stream) }
    }

    /// The next job's inputs, where they have been read.
    pub fn take(&mut self) -> Option<Group> {
        self.ready.pop_front()
    }

    /// How many jobs are there yet, and whether that is all of them.
    pub fn left(&self) -> (usize, bool) {
        (self.ready.len(), self.stream.is_none())
    }

    /// Whether there is a job, or may be one some time.
    pub fn is_over(&self) -> bool {
        self.ready.is_empty() && self.stream.is_none()
    }

    /// What to poll, where there may be more and there is room for it.
    pub fn wanted(&self) -> Option<BorrowedFd<'_>> {
        let stream = self.stream.as_ref().filter(|_| self.ready.len() < AHEAD)?;
        Some(stream.file.as_fd())
    }

    /// Reads once. To be called when there is something, or it blocks.
    ///
    /// # Errors
    /// It cannot be read. Nothing more comes from it then.
    pub fn fill(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut chunk = vec![0; CHUNK];
        match stream.file.read(&mut chunk) {
            Ok(0) => {
                stream.end(&mut self.ready);
                self.stream = None;
                Ok(())
            }
            Ok(read) => {
                stream.take(&chunk[..read], &mut self.ready);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => {
                self.stream = None;
                Err(error)
            }
        }
    }
}

impl Stream {
    fn take(&mut self, mut bytes: &[u8], ready: &mut VecDeque<Group>) {
        while let Some(end) = bytes.iter().position(|&byte| byte == self.separator) {
            self.begun.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            self.finish(ready);
        }
        self.begun.extend_from_slice(bytes);
    }

    fn finish(&mut self, ready: &mut VecDeque<Group>) {
        let input = std::mem::take(&mut self.begun);
        if input.is_empty() && self.separator != 0 {
            return;
        }
        self.group.push(input);
        if self.group.len() == self.each {
            ready.push_back(std::mem::take(&mut self.group));
        }
    }

    fn end(&mut self, ready: &mut VecDeque<Group>) {
        if !self.begun.is_empty() {
            self.finish(ready);
        }
        if !self.group.is_empty() {
            ready.push_back(std::mem::take(&mut self.group));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    fn all(text: &[u8], separator: u8, each: usize) -> Vec<Vec<String>> {
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

    #[test]
    fn each_line_is_an_input_and_empty_ones_are_none() {
        assert_eq!(all(b"a\n\n b c \nd", b'\n', 1), [["a"], [" b c "], ["d"]]);
        assert!(all(b"", b'\n', 1).is_empty());
        assert!(all(b"\n\n", b'\n', 1).is_empty());
    }

    #[test]
    fn between_zero_bytes_everything_is_an_input() {
        assert_eq!(all(b"a\nb\0\0c", 0, 1), [["a\nb"], [""], ["c"]]);
    }

    #[test]
    fn several_inputs_make_a_job() {
        assert_eq!(all(b"a\nb\nc\n", b'\n', 2), [vec!["a", "b"], vec!["c"]]);
    }

    #[test]
    fn an_input_may_come_in_pieces() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut inputs = Inputs::stream(OwnedFd::from(reader).into(), b'\n', 1);
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

    #[test]
    fn lists_combine() {
        let list = |text: &str| text.bytes().map(|byte| vec![byte]).collect::<Vec<_>>();
        let mut inputs = Inputs::combinations(vec![list("ab"), list("xyz")]);
        assert_eq!(inputs.left(), (6, true));
        assert_eq!(inputs.take(), Some(list("ax")));
        assert!(Inputs::combinations(vec![list("ab"), Vec::new()]).is_over());
    }
}

//! How many inputs one command can be given: the kernel limits the arguments both in total and one by one.
//!
//! Arguments and environment share a quarter of the stack's limit, 6 MiB at most and 128 KiB at least, with a pointer for each text;
//! one text has at most 32 pages (`fs/exec.c`, `MAX_ARG_STRLEN`). `xargs` counts the same way.

use rustix::process::{Resource, getrlimit};

/// The most and the least that arguments and environment may take together.
const MOST: usize = 6 << 20;
const LEAST: usize = 128 << 10;

/// The space that is left unused, for the program's path and everything else that the kernel puts there.
const SPARE: usize = 4096;

/// The space that a text takes besides its bytes: the zero byte at its end and a pointer to it.
pub(crate) const TEXT_OVERHEAD: usize = 1 + size_of::<usize>();

/// The available space, and how much of it an input takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentSpace {
    /// The bytes for all inputs of one command together.
    pub(crate) all: usize,
    /// The bytes for inputs in the word that contains most of them.
    pub(crate) word: usize,
    /// How many times an input occurs in the command, and the space that each occurrence takes besides its bytes.
    pub(crate) times: usize,
    pub(crate) besides: usize,
    /// How many times an input's bytes occur in that word, and how many other bytes the word has.
    pub(crate) in_word: [usize; 2],
}

impl ArgumentSpace {
    /// No limit: a command that does not fit is left for the kernel to refuse.
    pub const UNLIMITED: Self =
        Self { all: usize::MAX, word: usize::MAX, times: 0, besides: 0, in_word: [0, 0] };

    /// Whether `inputs` inputs of `bytes` bytes in all fit.
    pub(crate) fn fits(&self, inputs: usize, bytes: usize) -> bool {
        let taken = |times: usize, besides: usize| {
            bytes.saturating_mul(times).saturating_add(inputs.saturating_mul(besides))
        };
        let [times, besides] = self.in_word;
        taken(self.times, self.besides.saturating_mul(self.times)) <= self.all
            && taken(times, besides) <= self.word
    }
}

/// The most bytes that one argument may have.
pub fn longest() -> usize {
    rustix::param::page_size() * 32 - 1
}

/// The bytes that programs started by this process have for arguments, besides its environment.
pub(crate) fn for_arguments() -> usize {
    let limit = getrlimit(Resource::Stack).current.map(|limit| usize::try_from(limit / 4));
    let all = limit.and_then(Result::ok).unwrap_or(MOST).clamp(LEAST, MOST);
    let environment: usize =
        std::env::vars_os().map(|(name, value)| name.len() + 1 + value.len() + TEXT_OVERHEAD).sum();
    all.saturating_sub(environment + SPARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_counts_once_for_each_placeholder() {
        let space = ArgumentSpace { all: 100, word: 50, times: 2, besides: 9, in_word: [1, 1] };
        assert!(space.fits(2, 32) && !space.fits(2, 33), "2 x (32 + 2 x 9) = 100");
        let space = ArgumentSpace { times: 1, besides: 0, ..space };
        assert!(space.fits(1, 49) && !space.fits(1, 50), "the word");
        assert!(ArgumentSpace::UNLIMITED.fits(usize::MAX, usize::MAX));
    }

    #[test]
    fn the_computed_space_is_close_to_the_kernels_limit() {
        let run = |word: usize, words: usize| {
            let mut command = std::process::Command::new("/bin/true");
            command.args(std::iter::repeat_n("x".repeat(word), words)).status().is_ok()
        };
        assert!(run(longest(), 1) && !run(longest() + 1, 1));
        let words = for_arguments() / (1000 + TEXT_OVERHEAD);
        assert!(run(1000, words) && !run(1000, words + 20));
    }
}

//! A text with placeholders that no shell and no program reads: the tag of a job's lines, the name of a file.

use super::template::{BadCommand, Job, Piece, check_inputs, has_placeholder, pieces};

/// A text with the placeholders of a [`Template`](super::Template).
#[derive(Clone, Debug)]
pub struct Text(Vec<Piece>);

impl Text {
    /// Makes it for jobs of at most `inputs` inputs.
    ///
    /// # Errors
    /// A placeholder asks for an input that no job has.
    pub fn new(text: &[u8], inputs: usize) -> Result<Self, BadCommand> {
        let words = vec![pieces(text)];
        check_inputs(&words, inputs)?;
        Ok(Self(words.into_iter().flatten().collect()))
    }

    /// Whether it has a placeholder: then it differs from job to job.
    pub fn has_placeholder(text: &[u8]) -> bool {
        has_placeholder(&[pieces(text)])
    }

    /// Whether it contains a job's input, or a part of one.
    pub fn has_input(text: &[u8]) -> bool {
        pieces(text).iter().any(|piece| matches!(piece, Piece::All(_) | Piece::One(..)))
    }

    /// The text for the job `number` (from 1) in slot `slot` (from 1).
    ///
    /// ```
    /// use nearq_processes::jobs::Text;
    ///
    /// let text = Text::new(b"{#}:{/.}", 1).unwrap();
    /// assert_eq!(text.expand(&["d/a b.c"], 7, 2), b"7:a b");
    /// ```
    pub fn expand<I: AsRef<[u8]>>(&self, inputs: &[I], number: u64, slot: usize) -> Vec<u8> {
        let mut text = Vec::new();
        let append = |text: &mut Vec<u8>, bytes: &[u8]| text.extend_from_slice(bytes);
        Job { inputs, number, slot }.write(&self.0, &mut text, append, append);
        text
    }
}

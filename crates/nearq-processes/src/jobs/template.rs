//! The template of a command: words with placeholders, and what they become for one job's inputs.
//!
//! | placeholder | stands for |
//! |---|---|
//! | `{}` | the input |
//! | `{.}` | without its extension |
//! | `{/}` | without its folders |
//! | `{//}` | its folder |
//! | `{/.}` | without its folders and its extension |
//! | `{1}`, `{2.}`, `{3/}`, ... | the same of the job's first, second, third input |
//! | `{#}` | the job's number, from 1 |
//! | `{%}` | the number of the slot that it runs in, from 1 to as many as run at a time |
//!
//! A word that is a placeholder and nothing else becomes one word for each of the job's inputs; inside a word, the inputs are joined with
//! blanks. If no word has a placeholder, the inputs are appended. Module `shell` handles a line for a shell.

use super::argument_space::{self, ArgumentSpace};
use super::quote::quote;
use super::shell::{self, Line, SHELL};

/// Which part of an input is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    NoExtension,
    Name,
    Folder,
    NameNoExtension,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Vec<u8>),
    /// All inputs of the job.
    All(Part),
    /// One of the inputs, by its index from 0.
    One(usize, Part),
    Number,
    Slot,
}

/// A command with placeholders.
#[derive(Clone, Debug)]
pub struct Template {
    words: Vec<Vec<Piece>>,
    kind: Kind,
}

/// What the words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The words of a command.
    Words,
    /// One line for a shell.
    Line,
    /// Nothing: each input is a line for a shell.
    Lines,
}

/// Why a command cannot be used.
#[derive(Clone, PartialEq, Eq)]
pub enum BadCommand {
    /// A placeholder has a number, and no job has that many inputs.
    NoSuchInput {
        /// The placeholder's number.
        asked: usize,
        /// How many inputs each job has.
        inputs: usize,
    },
    /// A placeholder of a shell's line is in a context in which an input would not be taken literally; the context, in words.
    Misplaced(&'static str),
}

impl std::fmt::Display for BadCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchInput { asked, inputs } => {
                let has = match inputs {
                    1 => "one input, {1}".to_owned(),
                    inputs => format!("{inputs} inputs, {{1}} to {{{inputs}}}"),
                };
                write!(
                    f,
                    "{{{asked}}}: each job has only {has}; give more with --max-args N or with more ::: lists"
                )
            }
            Self::Misplaced(context) => write!(
                f,
                "--shell: a placeholder is {context}, where an input cannot be passed safely (without any placeholder the input is \
                 appended); write it outside of quotes, where it is always one word, as in x={{}}; echo \"$x\""
            ),
        }
    }
}

nearq_topology::debug_as_display!(BadCommand);

impl std::error::Error for BadCommand {}

impl Template {
    /// Makes a template from `words`; each job has at most `inputs` inputs. With `shell`, the words are one line that a shell runs.
    ///
    /// # Errors
    /// A placeholder asks for an input that no job has, or is in a context in which a shell would not take the input literally.
    pub fn new<W: AsRef<[u8]>>(
        words: &[W],
        inputs: usize,
        shell: bool,
    ) -> Result<Self, BadCommand> {
        let mut words: Vec<Vec<Piece>> = words.iter().map(|word| pieces(word.as_ref())).collect();
        if !has_placeholder(&words) {
            words.push(vec![Piece::All(Part::Whole)]);
        }
        Self::of_words(words, inputs, shell)
    }

    /// As [`new`](Self::new) for jobs of one input, but if there is no placeholder, the input is not appended.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn repeated<W: AsRef<[u8]>>(words: &[W], shell: bool) -> Result<Self, BadCommand> {
        Self::of_words(words.iter().map(|word| pieces(word.as_ref())).collect(), 1, shell)
    }

    fn of_words(
        mut words: Vec<Vec<Piece>>,
        inputs: usize,
        shell: bool,
    ) -> Result<Self, BadCommand> {
        check_inputs(&words, inputs)?;
        if shell {
            let blank = Piece::Text(b" ".to_vec());
            let line: Vec<Piece> = words.join(&blank);
            shell::check(&line).map_err(BadCommand::Misplaced)?;
            words = vec![line];
        }
        Ok(Template { words, kind: if shell { Kind::Line } else { Kind::Words } })
    }

    /// A template for jobs whose input is a whole line for a shell, as a job log has it.
    pub fn of_lines() -> Self {
        Template { words: vec![vec![Piece::All(Part::Whole)]], kind: Kind::Lines }
    }

    /// The highest number of an input that the words name, as `{2}` does; 0 if they name none.
    pub fn named_inputs<W: AsRef<[u8]>>(words: &[W]) -> usize {
        let words: Vec<Vec<Piece>> = words.iter().map(|word| pieces(word.as_ref())).collect();
        named_inputs(&words)
    }

    /// Whether any of the words has a placeholder; if none has, inputs are appended.
    pub fn has_placeholder<W: AsRef<[u8]>>(words: &[W]) -> bool {
        let words: Vec<Vec<Piece>> = words.iter().map(|word| pieces(word.as_ref())).collect();
        has_placeholder(&words)
    }

    /// The space for inputs in one command. If placeholders have numbers, the inputs of a job cannot be split: inputs that do not fit are
    /// then an error of the job.
    pub fn space(&self) -> ArgumentSpace {
        let mut space = ArgumentSpace {
            all: argument_space::for_arguments(),
            word: argument_space::longest(),
            ..ArgumentSpace::UNLIMITED
        };
        for pieces in &self.words {
            let fixed: usize = pieces.iter().map(fixed).sum();
            let all = pieces.iter().filter(|piece| matches!(piece, Piece::All(_))).count();
            if pieces.iter().any(|piece| matches!(piece, Piece::One(..))) {
                return ArgumentSpace::UNLIMITED;
            }
            space.all = space.all.saturating_sub(fixed + argument_space::TEXT_OVERHEAD);
            space.times += all;
            if self.kind == Kind::Line {
                space.word = space.word.saturating_sub(fixed);
                space.in_word = [0, all * shell::VALUE_LENGTH];
                space.besides = argument_space::TEXT_OVERHEAD + shell::VALUE_LENGTH;
            } else {
                // A word that is only a placeholder becomes a word for each input. Elsewhere a blank separates them.
                space.besides = argument_space::TEXT_OVERHEAD;
                if !matches!(pieces.as_slice(), [Piece::All(_)]) && all > 0 {
                    space.word = space.word.min(argument_space::longest().saturating_sub(fixed));
                    space.in_word = space.in_word.map(|before| before.max(all));
                }
            }
        }
        space
    }

    /// The program, if it is the same for all jobs.
    pub fn program(&self) -> Option<&[u8]> {
        match self.words.first()?.as_slice() {
            _ if self.kind != Kind::Words => Some(SHELL),
            [Piece::Text(text)] => Some(text),
            [] => Some(b""),
            _ => None,
        }
    }

    /// The words of the job `number` (from 1) in slot `slot` (from 1).
    pub fn expand<I: AsRef<[u8]>>(&self, inputs: &[I], number: u64, slot: usize) -> Vec<Vec<u8>> {
        let job = Job { inputs, number, slot };
        if self.kind == Kind::Lines {
            let mut words = vec![SHELL.to_vec(), b"-c".to_vec()];
            words.extend(inputs.iter().map(|line| line.as_ref().to_vec()));
            return words;
        }
        if self.kind == Kind::Line {
            let mut line = Line::default();
            for pieces in &self.words {
                job.write(pieces, &mut line, Line::push_text, |line, input| {
                    line.push_value(input.to_vec());
                });
            }
            return line.words();
        }
        let mut words = Vec::with_capacity(self.words.len() + inputs.len());
        for pieces in &self.words {
            if let [Piece::All(part)] = pieces.as_slice() {
                words.extend(inputs.iter().map(|input| of(input.as_ref(), *part)));
            } else {
                let mut word = Vec::new();
                let append = |word: &mut Vec<u8>, text: &[u8]| word.extend_from_slice(text);
                job.write(pieces, &mut word, append, append);
                words.push(word);
            }
        }
        words
    }

    /// The command as a user would type it: one line for a shell, with the inputs in quotes.
    pub fn show<I: AsRef<[u8]>>(&self, inputs: &[I], number: u64, slot: usize) -> Vec<u8> {
        if self.kind == Kind::Lines {
            return inputs.iter().flat_map(|line| line.as_ref().to_vec()).collect();
        }
        if self.kind == Kind::Line {
            let job = Job { inputs, number, slot };
            let mut line = Vec::new();
            let append = |line: &mut Vec<u8>, text: &[u8]| line.extend_from_slice(text);
            for pieces in &self.words {
                job.write(pieces, &mut line, append, |line, input| quote(input, line));
            }
            return line;
        }
        let words = self.expand(inputs, number, slot);
        super::quote::quoted(words.iter().map(Vec::as_slice))
    }
}

/// What placeholders stand for.
pub(super) struct Job<'a, I> {
    pub(super) inputs: &'a [I],
    pub(super) number: u64,
    pub(super) slot: usize,
}

impl<I: AsRef<[u8]>> Job<'_, I> {
    /// Appends the pieces: with `text` the pieces that are part of the command, with `put` the pieces that come from inputs.
    pub(super) fn write<L>(
        &self,
        pieces: &[Piece],
        line: &mut L,
        text: impl Fn(&mut L, &[u8]),
        put: impl Fn(&mut L, &[u8]),
    ) {
        for piece in pieces {
            match piece {
                Piece::Text(bytes) => text(line, bytes),
                Piece::Number => text(line, self.number.to_string().as_bytes()),
                Piece::Slot => text(line, self.slot.to_string().as_bytes()),
                Piece::All(part) => {
                    for (index, input) in self.inputs.iter().enumerate() {
                        if index > 0 {
                            text(line, b" ");
                        }
                        put(line, &of(input.as_ref(), *part));
                    }
                }
                // The last job may have fewer inputs than the others.
                Piece::One(index, part) => {
                    if let Some(input) = self.inputs.get(*index) {
                        put(line, &of(input.as_ref(), *part));
                    }
                }
            }
        }
    }
}

/// The bytes of a piece that do not belong to an input: a number has at most 20 digits.
fn fixed(piece: &Piece) -> usize {
    match piece {
        Piece::Text(text) => text.len(),
        Piece::Number | Piece::Slot => 20,
        Piece::All(_) | Piece::One(..) => 0,
    }
}

/// Checks that no placeholder asks for an input that no job has.
pub(super) fn check_inputs(words: &[Vec<Piece>], inputs: usize) -> Result<(), BadCommand> {
    match named_inputs(words) {
        asked if asked > inputs => Err(BadCommand::NoSuchInput { asked, inputs }),
        _ => Ok(()),
    }
}

/// The highest number of an input that a placeholder names; 0 if none does.
fn named_inputs(words: &[Vec<Piece>]) -> usize {
    let numbers = words.iter().flatten().map(|piece| match piece {
        Piece::One(index, _) => index + 1,
        _ => 0,
    });
    numbers.max().unwrap_or(0)
}

pub(super) fn has_placeholder(words: &[Vec<Piece>]) -> bool {
    !words.iter().flatten().all(|piece| matches!(piece, Piece::Text(_)))
}

/// The word in pieces.
pub(super) fn pieces(word: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let end = if first == b'{' { after.iter().position(|&byte| byte == b'}') } else { None };
        if let Some((end, piece)) = end.and_then(|end| Some((end, placeholder(&after[..end])?))) {
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(piece);
            rest = &after[end + 1..];
        } else {
            text.push(first);
            rest = after;
        }
    }
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces
}

/// The placeholder with that text between its braces; `None` means ordinary text, such as `{print $1}`.
fn placeholder(inside: &[u8]) -> Option<Piece> {
    match inside {
        b"#" => return Some(Piece::Number),
        b"%" => return Some(Piece::Slot),
        _ => {}
    }
    let (digits, ending) = numbered(inside);
    let part = part(ending)?;
    if digits.is_empty() {
        return Some(Piece::All(part));
    }
    let number: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(Piece::One(number.checked_sub(1)?, part))
}

/// The digits that a placeholder begins with, and what follows them.
fn numbered(inside: &[u8]) -> (&[u8], &[u8]) {
    let digits = inside.iter().take_while(|byte| byte.is_ascii_digit()).count();
    inside.split_at(digits)
}

/// The part of an input that a placeholder's ending names.
fn part(ending: &[u8]) -> Option<Part> {
    Some(match ending {
        b"" => Part::Whole,
        b"." => Part::NoExtension,
        b"/" => Part::Name,
        b"//" => Part::Folder,
        b"/." => Part::NameNoExtension,
        _ => return None,
    })
}

/// The first placeholder in a word that GNU parallel supports and nearq does not. It would be passed on unchanged, and each job would get
/// the same text.
pub fn foreign_placeholder(word: &[u8]) -> Option<&[u8]> {
    let mut begins = word.iter().enumerate().filter(|(_, byte)| **byte == b'{');
    begins.find_map(|(begin, _)| {
        let end = begin + word[begin..].iter().position(|&byte| byte == b'}')?;
        is_foreign(&word[begin + 1..end]).then_some(&word[begin..=end])
    })
}

/// Whether the text between braces is such a placeholder: `..`, `/..`, `+/`, the same of one input, one from the end, or Perl.
fn is_foreign(inside: &[u8]) -> bool {
    match inside {
        [b'=', .., b'='] => true,
        [b'-', from_end @ ..] => {
            let (digits, ending) = numbered(from_end);
            !digits.is_empty() && part(ending).is_some()
        }
        _ => {
            let known: [&[u8]; 8] = [b"..", b"...", b"/..", b"/...", b"+/", b"+.", b"+..", b"+..."];
            known.contains(&numbered(inside).1)
        }
    }
}

/// That part of an input.
fn of(input: &[u8], part: Part) -> Vec<u8> {
    match part {
        Part::Whole => input,
        Part::NoExtension => without_extension(input),
        Part::Name => name(input),
        Part::Folder => folder(input),
        Part::NameNoExtension => without_extension(name(input)),
    }
    .to_vec()
}

/// Removes the slashes at its end, unless it consists only of slashes.
fn trimmed(path: &[u8]) -> &[u8] {
    let end =
        path.iter().rposition(|&byte| byte != b'/').map_or(path.len().min(1), |last| last + 1);
    &path[..end]
}

fn name(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) if path.len() > 1 => &path[slash + 1..],
        _ => path,
    }
}

fn folder(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => trimmed(&path[..=slash]),
        None => b".",
    }
}

/// A dot at the beginning of a name does not begin an extension.
fn without_extension(path: &[u8]) -> &[u8] {
    let begin = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match path[begin..].iter().rposition(|&byte| byte == b'.') {
        Some(dot) if dot > 0 => &path[..begin + dot],
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(words: &[&str], inputs: &[&str]) -> Vec<String> {
        let template = Template::new(words, inputs.len(), false).unwrap();
        let words = template.expand(inputs, 7, 2);
        words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    fn line(words: &[&str], inputs: &[&str]) -> String {
        let template = Template::new(words, inputs.len(), true).unwrap();
        let words = template.expand(inputs, 7, 2);
        assert_eq!(words[..2], [b"/bin/sh".to_vec(), b"-c".to_vec()]);
        String::from_utf8(template.show(inputs, 7, 2)).unwrap()
    }

    #[test]
    fn without_a_placeholder_the_input_is_appended() {
        assert_eq!(expanded(&["echo"], &["a b"]), ["echo", "a b"]);
        assert_eq!(expanded(&["echo", "-n"], &["a", "b"]), ["echo", "-n", "a", "b"]);
        assert_eq!(expanded(&["awk", "{print $1}"], &["f"]), ["awk", "{print $1}", "f"]);
    }

    #[test]
    fn a_number_can_be_a_placeholder() {
        assert_eq!(expanded(&["echo", "{#}-{%}"], &["a"]), ["echo", "7-2"]);
    }

    #[test]
    fn the_input_replaces_all_placeholders() {
        assert_eq!(expanded(&["cp", "{}", "x/{}.bak"], &["a b"]), ["cp", "a b", "x/a b.bak"]);
        assert_eq!(expanded(&["{}", "-V"], &["cc"]), ["cc", "-V"]);
        assert_eq!(expanded(&["echo", "{", "}", "{}{"], &["a"]), ["echo", "{", "}", "a{"]);
        assert_eq!(expanded(&["echo", "{{}}"], &["a"]), ["echo", "{a}"]);
    }

    #[test]
    fn several_inputs_become_words_or_are_joined() {
        assert_eq!(expanded(&["echo", "{}", "x{}y"], &["a", "b"]), ["echo", "a", "b", "xa by"]);
        assert_eq!(expanded(&["echo", "{2}", "{1.}"], &["a.c", "b"]), ["echo", "b", "a"]);
    }

    #[test]
    fn placeholders_can_name_parts_of_paths() {
        let parts = |input: &str| expanded(&["{.}", "{/}", "{//}", "{/.}"], &[input]);
        assert_eq!(parts("/a/b.c.d"), ["/a/b.c", "b.c.d", "/a", "b.c"]);
        assert_eq!(parts("x"), ["x", "x", ".", "x"]);
        assert_eq!(parts("a.b/c"), ["a.b/c", "c", "a.b", "c"]);
        assert_eq!(parts("d/.profile"), ["d/.profile", ".profile", "d", ".profile"]);
        assert_eq!(parts("d/y/"), ["d/y/", "y", "d", "y"]);
        assert_eq!(parts("/x"), ["/x", "x", "/", "x"]);
        assert_eq!(parts("/"), ["/", "/", "/", "/"]);
        assert_eq!(parts(""), ["", "", ".", ""]);
    }

    #[test]
    fn a_shell_gets_words_as_typed_and_inputs_quoted() {
        assert_eq!(
            line(&["echo {} | wc -c"], &["it's; rm -r /"]),
            r"echo 'it'\''s; rm -r /' | wc -c"
        );
        assert_eq!(line(&["cat", "{}", ">", "{.}.out"], &["a b.c"]), "cat 'a b.c' > 'a b'.out");
        assert_eq!(line(&["echo"], &["a b", "c"]), "echo 'a b' c");
        let template = Template::new(&["cat {} > {.}.out; cat {}"], 1, true).unwrap();
        let words = template.expand(&["a.b"], 7, 2).into_iter().map(String::from_utf8);
        let words: Vec<String> = words.map(Result::unwrap).collect();
        let script = "nearq_1=${1} nearq_2=${2} ; set --; \
                      cat \"$nearq_1\" > \"$nearq_2\".out; cat \"$nearq_1\"";
        assert_eq!(words, ["/bin/sh", "-c", script, "sh", "a.b", "a"]);
    }

    #[test]
    fn the_limit_on_inputs_matches_the_kernels() {
        let most = |words: &[&str], shell: bool, length: usize| {
            let template = Template::new(words, usize::MAX, shell).unwrap();
            let space = template.space();
            let (mut few, mut many) = (0, 10_000_000);
            while many - few > 1 {
                let inputs = usize::midpoint(few, many);
                let fits = space.fits(inputs, inputs * length);
                (few, many) = if fits { (inputs, many) } else { (few, inputs) };
            }
            let runs = |inputs: usize| {
                let inputs = vec!["x".repeat(length); inputs];
                let words = template.expand(&inputs, 1, 1);
                let words: Vec<_> =
                    words.iter().map(|word| std::str::from_utf8(word).unwrap()).collect();
                std::process::Command::new(words[0]).args(&words[1..]).status().is_ok()
            };
            assert!(runs(few), "{words:?}: {few}");
            (few, runs(few * 2 + 100))
        };
        let (alone, runs) = most(&["/bin/true"], false, 1000);
        assert!(alone > 100 && !runs, "{alone}");
        let (twice, runs) = most(&["/bin/true", "{}", "{.}"], false, 1000);
        assert!(twice > alone / 3 && twice <= alone / 2 && !runs, "{twice}");
        let (inside, runs) = most(&["/bin/true", "{}", "x{}y{}"], false, 100);
        assert!(inside > 100 && !runs, "{inside}");
        let (shell, _) = most(&["true {} {.}"], true, 5);
        assert!(shell > 100, "{shell}");
        let numbered = Template::new(&["echo", "{2}", "{1}"], 2, false).unwrap();
        assert_eq!(numbered.space(), ArgumentSpace::UNLIMITED);
    }

    #[test]
    fn the_program_is_known_in_advance_unless_it_is_an_input() {
        let program = |words: &[&str], shell| {
            let template = Template::new(words, 1, shell).unwrap();
            template.program().map(<[u8]>::to_vec)
        };
        assert_eq!(program(&["echo", "{}"], false), Some(b"echo".to_vec()));
        assert_eq!(program(&["{}", "-V"], false), None);
        assert_eq!(program(&["{}"], true), Some(b"/bin/sh".to_vec()));
        assert_eq!(program(&[""], false), Some(Vec::new()));
    }

    #[test]
    fn an_input_that_no_job_has_is_refused() {
        let error = Template::new(&["echo", "{3}"], 1, false).unwrap_err();
        assert_eq!(error, BadCommand::NoSuchInput { asked: 3, inputs: 1 });
        assert!(
            error.to_string().starts_with("{3}: each job has only one input, {1}; "),
            "{error}"
        );
        assert!(Template::new(&["echo", "{0}"], 1, false).is_ok(), "{{0}} is text");
    }
}

//! What is run: words with placeholders, and what becomes of them for one job's inputs.
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
//! | `{%}` | the number of the place that it runs in, from 1 to as many as run at a time |
//!
//! A word that is a placeholder and nothing else becomes one word for each of the job's inputs; inside a word they stand side by
//! side, with blanks between. Where no word has a placeholder, the inputs are appended.

use super::quote::quote;

/// What of an input is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    NoExtension,
    Name,
    Folder,
    NameNoExtension,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    /// All inputs of the job.
    All(Part),
    /// One of them, from 0.
    One(usize, Part),
    Number,
    Place,
}

/// A command with placeholders.
#[derive(Clone, Debug)]
pub struct Template {
    words: Vec<Vec<Piece>>,
    /// One line for a shell, rather than words.
    shell: bool,
}

/// Why a command cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchInput {
    /// The placeholder's number.
    pub asked: usize,
    /// How many inputs each job has.
    pub inputs: usize,
}

impl std::fmt::Display for NoSuchInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { asked, inputs } = self;
        let has = match inputs {
            1 => "one input, {1}".to_owned(),
            inputs => format!("{inputs} inputs, {{1}} to {{{inputs}}}"),
        };
        write!(
            f,
            "{{{asked}}}: each job has {has}; give more with --max-args N or with a ::: for each"
        )
    }
}

impl std::error::Error for NoSuchInput {}

impl Template {
    /// The command `words`, where each job has at most `inputs` inputs; with `shell` as one line that a shell runs.
    ///
    /// # Errors
    /// A placeholder asks for an input that no job has.
    pub fn new<W: AsRef<[u8]>>(
        words: &[W],
        inputs: usize,
        shell: bool,
    ) -> Result<Self, NoSuchInput> {
        let mut words: Vec<Vec<Piece>> = words.iter().map(|word| pieces(word.as_ref())).collect();
        let asked = words.iter().flatten().filter_map(|piece| match piece {
            Piece::One(index, _) => Some(index + 1),
            _ => None,
        });
        if let Some(asked) = asked.max().filter(|&asked| asked > inputs) {
            return Err(NoSuchInput { asked, inputs });
        }
        if words.iter().flatten().all(|piece| matches!(piece, Piece::Text(_))) {
            words.push(vec![Piece::All(Part::Whole)]);
        }
        Ok(Template { words, shell })
    }

    /// The program, where it is the same for all jobs.
    pub fn program(&self) -> Option<&[u8]> {
        match self.words.first()?.as_slice() {
            _ if self.shell => Some(SHELL),
            [Piece::Text(text)] => Some(text),
            [] => Some(b""),
            _ => None,
        }
    }

    /// The words of the job `number` (from 1) in place `place` (from 1).
    pub fn expand<I: AsRef<[u8]>>(&self, inputs: &[I], number: u64, place: usize) -> Vec<Vec<u8>> {
        let job = Job { inputs, number, place };
        if self.shell {
            return vec![SHELL.to_vec(), b"-c".to_vec(), self.line(&job)];
        }
        let mut words = Vec::with_capacity(self.words.len() + inputs.len());
        for pieces in &self.words {
            if let [Piece::All(part)] = pieces.as_slice() {
                words.extend(inputs.iter().map(|input| of(input.as_ref(), *part)));
            } else {
                let mut word = Vec::new();
                job.write(pieces, &mut word, |text, word| word.extend_from_slice(text));
                words.push(word);
            }
        }
        words
    }

    /// The command as somebody would type it: one line for a shell.
    pub fn show<I: AsRef<[u8]>>(&self, inputs: &[I], number: u64, place: usize) -> Vec<u8> {
        if self.shell {
            return self.line(&Job { inputs, number, place });
        }
        let words = self.expand(inputs, number, place);
        super::quote::quoted(words.iter().map(Vec::as_slice))
    }

    /// The words as they were typed, with blanks between and the inputs in quotes: they are data, and no part of the program.
    fn line<I: AsRef<[u8]>>(&self, job: &Job<'_, I>) -> Vec<u8> {
        let mut line = Vec::new();
        for (index, pieces) in self.words.iter().enumerate() {
            if index > 0 {
                line.push(b' ');
            }
            job.write(pieces, &mut line, quote);
        }
        line
    }
}

/// What runs lines.
const SHELL: &[u8] = b"/bin/sh";

struct Job<'a, I> {
    inputs: &'a [I],
    number: u64,
    place: usize,
}

impl<I: AsRef<[u8]>> Job<'_, I> {
    /// Appends the pieces, with `put` for what comes from inputs.
    fn write(&self, pieces: &[Piece], line: &mut Vec<u8>, put: impl Fn(&[u8], &mut Vec<u8>)) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => line.extend_from_slice(text),
                Piece::Number => line.extend_from_slice(self.number.to_string().as_bytes()),
                Piece::Place => line.extend_from_slice(self.place.to_string().as_bytes()),
                Piece::All(part) => {
                    for (index, input) in self.inputs.iter().enumerate() {
                        if index > 0 {
                            line.push(b' ');
                        }
                        put(&of(input.as_ref(), *part), line);
                    }
                }
                // The last job may have fewer inputs than the others.
                Piece::One(index, part) => {
                    if let Some(input) = self.inputs.get(*index) {
                        put(&of(input.as_ref(), *part), line);
                    }
                }
            }
        }
    }
}

/// The word in pieces.
fn pieces(word: &[u8]) -> Vec<Piece> {
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

/// The placeholder of that inside; `None` is ordinary text, such as `{print $1}`.
fn placeholder(inside: &[u8]) -> Option<Piece> {
    match inside {
        b"#" => return Some(Piece::Number),
        b"%" => return Some(Piece::Place),
        _ => {}
    }
    let digits = inside.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let part = match &inside[digits..] {
        b"" => Part::Whole,
        b"." => Part::NoExtension,
        b"/" => Part::Name,
        b"//" => Part::Folder,
        b"/." => Part::NameNoExtension,
        _ => return None,
    };
    if digits == 0 {
        return Some(Piece::All(part));
    }
    let number: usize = std::str::from_utf8(&inside[..digits]).ok()?.parse().ok()?;
    Some(Piece::One(number.checked_sub(1)?, part))
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

/// Without the slashes at its end, unless it is nothing else.
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

/// A dot at the beginning of a name begins no extension.
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
        assert_eq!(words[2], template.show(inputs, 7, 2));
        String::from_utf8(words[2].clone()).unwrap()
    }

    #[test]
    fn without_a_placeholder_the_input_is_appended() {
        assert_eq!(expanded(&["echo"], &["a b"]), ["echo", "a b"]);
        assert_eq!(expanded(&["echo", "-n"], &["a", "b"]), ["echo", "-n", "a", "b"]);
        assert_eq!(expanded(&["awk", "{print $1}"], &["f"]), ["awk", "{print $1}", "f"]);
    }

    #[test]
    fn a_number_is_a_placeholder_as_well() {
        assert_eq!(expanded(&["echo", "{#}-{%}"], &["a"]), ["echo", "7-2"]);
    }

    #[test]
    fn the_input_comes_where_the_placeholders_are() {
        assert_eq!(expanded(&["cp", "{}", "x/{}.bak"], &["a b"]), ["cp", "a b", "x/a b.bak"]);
        assert_eq!(expanded(&["{}", "-V"], &["cc"]), ["cc", "-V"]);
        assert_eq!(expanded(&["echo", "{", "}", "{}{"], &["a"]), ["echo", "{", "}", "a{"]);
        assert_eq!(expanded(&["echo", "{{}}"], &["a"]), ["echo", "{a}"]);
    }

    #[test]
    fn several_inputs_are_words_or_stand_side_by_side() {
        assert_eq!(expanded(&["echo", "{}", "x{}y"], &["a", "b"]), ["echo", "a", "b", "xa by"]);
        assert_eq!(expanded(&["echo", "{2}", "{1.}"], &["a.c", "b"]), ["echo", "b", "a"]);
    }

    #[test]
    fn parts_of_paths() {
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
    fn a_shell_sees_the_words_as_typed_and_the_inputs_quoted() {
        assert_eq!(
            line(&["echo {} | wc -c"], &["it's; rm -r /"]),
            r"echo 'it'\''s; rm -r /' | wc -c"
        );
        assert_eq!(line(&["cat", "{}", ">", "{.}.out"], &["a b.c"]), "cat 'a b.c' > 'a b'.out");
        assert_eq!(line(&["echo"], &["a b", "c"]), "echo 'a b' c");
    }

    #[test]
    fn the_program_is_known_beforehand_where_it_is_no_input() {
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
        assert_eq!(error, NoSuchInput { asked: 3, inputs: 1 });
        assert!(error.to_string().starts_with("{3}: each job has one input, {1}; "), "{error}");
        assert!(Template::new(&["echo", "{0}"], 1, false).is_ok(), "{{0}} is text");
    }
}

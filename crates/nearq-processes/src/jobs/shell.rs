//! `--shell`: a line that `/bin/sh` runs, in which inputs are arguments and never text.
//!
//! Each placeholder becomes a variable in double quotes, `"$nearq_1"`, and the values are arguments of the shell, which assigns them to
//! the variables before it reads the line. So no input is ever read as a command, whatever it contains.
//!
//! Outside of quotes, a placeholder therefore means what the user expects. In other contexts the result would be different, so [`check`]
//! refuses a placeholder in quotes, backticks, comments, here-documents, arithmetic and `${...}`, and after `$` or `\`. `check` reads the
//! line as a shell does, as far as needed; if it cannot be certain, it refuses the line too.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::template::Piece;

/// The shell that runs lines.
pub(super) const SHELL: &[u8] = b"/bin/sh";

/// The most bytes that a value takes in the text of the line: `nearq_100000=${100000}`, a blank, and its use.
pub(super) const VALUE_LENGTH: usize = 48;

/// Builds one job's line.
#[derive(Default)]
pub(super) struct Line {
    text: Vec<u8>,
    values: Vec<Vec<u8>>,
    /// The position of each placeholder.
    places: HashMap<Vec<u8>, usize>,
}

impl Line {
    pub(super) fn push_text(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
    }

    pub(super) fn push_value(&mut self, value: Vec<u8>) {
        let index = match self.places.entry(value) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.values.push(new.key().clone());
                *new.insert(self.values.len() - 1)
            }
        };
        self.text.extend_from_slice(format!("\"$nearq_{}\"", index + 1).as_bytes());
    }

    /// The words that are executed.
    pub(super) fn words(self) -> Vec<Vec<u8>> {
        let mut script = Vec::new();
        for number in 1..=self.values.len() {
            script.extend_from_slice(format!("nearq_{number}=${{{number}}} ").as_bytes());
        }
        if !self.values.is_empty() {
            // The line finds no arguments, as if it had been given none.
            script.extend_from_slice(b"; set --; ");
        }
        script.extend_from_slice(&self.text);
        let begin = [SHELL.to_vec(), b"-c".to_vec(), script, b"sh".to_vec()];
        begin.into_iter().chain(self.values).collect()
    }
}

/// The context in which something stands in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    Quotes,
    DoubleQuotes,
    Backticks,
    Comment,
    /// `$(...)`, and how many parentheses are open in it.
    Command(usize),
    Arithmetic(usize),
    /// `${...}`.
    Parameter,
    /// `[...]`, because `/bin/sh` may be a shell that evaluates its content: a subscript, or one pair of those of `[[...]]`.
    Brackets,
}

/// Checks that each placeholder is in a context in which an input may be; the error names the context of one that is not, in words.
pub(super) fn check(line: &[Piece]) -> Result<(), &'static str> {
    let mut reader = Reader::default();
    for piece in line {
        match piece {
            Piece::Text(text) => reader.read(text),
            // These are digits, which are literal in any context.
            Piece::Number | Piece::Slot => reader.read(b"0"),
            Piece::All(_) | Piece::One(..) => {
                reader.check()?;
                reader.read(b"x");
            }
        }
    }
    Ok(())
}

/// Reads a line as far as needed to know the context in which something stands.
#[derive(Default)]
struct Reader {
    contexts: Vec<Context>,
    /// The bytes so far.
    before: Vec<u8>,
    /// The byte before was a `\` that takes the meaning of the next one.
    escaped: bool,
    /// The byte before had lost its meaning this way.
    was_escaped: bool,
    /// How many `<<` there are, and whether a line follows one.
    here_documents: usize,
    in_here_document: bool,
    /// Why the context of what follows is not known.
    lost: Option<&'static str>,
}

impl Reader {
    fn check(&self) -> Result<(), &'static str> {
        if let Some(lost) = self.lost {
            return Err(lost);
        }
        let without_blanks = self.before.trim_ascii_end();
        let is_delimiter = [&b"<<"[..], b"<<-"].iter().any(|mark| without_blanks.ends_with(mark))
            && !without_blanks.ends_with(b"<<<");
        let text =
            match self.contexts.iter().find(|context| !matches!(context, Context::Command(_))) {
                Some(Context::Quotes) => "in single quotes",
                Some(Context::DoubleQuotes) => "in double quotes",
                Some(Context::Backticks) => "in backticks",
                Some(Context::Comment) => "in a comment",
                Some(Context::Arithmetic(_)) => "in arithmetic",
                Some(Context::Parameter) => "in ${...}",
                Some(Context::Brackets) => {
                    "in [[...]], $[...] or NAME[...], where some shells evaluate arithmetic"
                }
                _ if self.in_here_document || is_delimiter => "in a here-document, or after one",
                _ if self.escaped => "after a \\",
                _ if self.before.ends_with(b"$") => "after a $",
                _ => return Ok(()),
            };
        Err(text)
    }

    fn read(&mut self, text: &[u8]) {
        for &byte in text {
            if self.escaped && byte == b'\n' {
                // The two join lines: a shell reads on as if neither were there.
                self.escaped = false;
                self.before.pop();
                continue;
            }
            self.step(byte);
            self.before.push(byte);
        }
    }

    fn step(&mut self, byte: u8) {
        let follows_escaped = std::mem::take(&mut self.was_escaped);
        if std::mem::take(&mut self.escaped) {
            self.was_escaped = true;
            return;
        }
        // An escaped byte is part of a word, whatever it is.
        let last =
            self.before.last().copied().map(|last| if follows_escaped { b'x' } else { last });
        let top = self.contexts.last().copied();
        match (top, byte) {
            (Some(Context::Quotes), b'\'')
            | (Some(Context::DoubleQuotes), b'"')
            | (Some(Context::Backticks), b'`')
            | (Some(Context::Parameter), b'}')
            | (Some(Context::Brackets), b']')
            | (Some(Context::Command(0) | Context::Arithmetic(0)), b')') => self.leave(),
            (Some(Context::Comment), b'\n') => {
                self.leave();
                self.new_line();
            }
            (Some(Context::Quotes | Context::Comment), _) => {}
            (_, b'\\') => self.escaped = true,
            // A subshell in a command reads the same, and ends with the same parentheses.
            (Some(Context::Command(0)), b'(') if self.before.ends_with(b"$(") => {
                self.change(Context::Arithmetic(1));
            }
            (Some(Context::Command(open)), b'(') => self.change(Context::Command(open + 1)),
            (Some(Context::Command(open)), b')') => self.change(Context::Command(open - 1)),
            (Some(Context::Arithmetic(open)), b'(') => self.change(Context::Arithmetic(open + 1)),
            (Some(Context::Arithmetic(open)), b')') => self.change(Context::Arithmetic(open - 1)),
            (_, b'(') if last == Some(b'$') => self.contexts.push(Context::Command(0)),
            (_, b'{') if last == Some(b'$') => self.contexts.push(Context::Parameter),
            (_, b'`') => self.contexts.push(Context::Backticks),
            (Some(Context::DoubleQuotes), _) => {}
            (_, b'"') => self.contexts.push(Context::DoubleQuotes),
            (_, b'\'') => {
                if last == Some(b'$') {
                    self.lost = Some("after $'...', which shells read in different ways");
                }
                self.contexts.push(Context::Quotes);
            }
            (_, b'[') if last == Some(b'[') && top != Some(Context::Brackets) => {
                self.contexts.extend([Context::Brackets, Context::Brackets]);
            }
            (Some(Context::Brackets), b'[') => self.contexts.push(Context::Brackets),
            (_, b'[')
                if last
                    .is_some_and(|last| last.is_ascii_alphanumeric() || b"_$".contains(&last)) =>
            {
                self.contexts.push(Context::Brackets);
            }
            (_, b'(') if last == Some(b'=') => {
                self.lost = Some("in or after =(...), a list in some shells");
            }
            (_, b'(') if last == Some(b'(') => {
                self.lost = Some(
                    "in or after ((...)); write a blank between the two if they are subshells",
                );
            }
            (_, b'#') if last.is_none_or(|last| b" \t\n;&|()".contains(&last)) => {
                self.contexts.push(Context::Comment);
            }
            (Some(Context::Arithmetic(_)), _) => {}
            // Three `<` introduce a literal text.
            (_, b'<') if self.before.ends_with(b"<<") => {
                self.here_documents = self.here_documents.saturating_sub(1);
            }
            (_, b'<') if last == Some(b'<') => self.here_documents += 1,
            (_, b'e') if self.before.ends_with(b"cas") && self.is_in_quotes() => {
                self.lost = Some("after a `case` in quotes, whose end cannot be determined");
            }
            (_, b'\n') => self.new_line(),
            _ => {}
        }
    }

    fn leave(&mut self) {
        self.contexts.pop();
    }

    fn change(&mut self, to: Context) {
        self.contexts.pop();
        self.contexts.push(to);
    }

    fn is_in_quotes(&self) -> bool {
        self.contexts
            .iter()
            .any(|context| matches!(context, Context::DoubleQuotes | Context::Backticks))
    }

    fn new_line(&mut self) {
        self.in_here_document |= self.here_documents > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::template::Template;
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::Command;

    fn refusal(line: &str) -> Option<String> {
        Template::new(&[line], 2, true).err().map(|error| error.to_string())
    }

    #[test]
    fn an_unquoted_placeholder_is_accepted() {
        for line in [
            "echo {}",
            "sort {} | uniq -c > {.}.n",
            "x={}; echo \"$x\" 'a' {}",
            "for f in {}; do echo $(cat {} | wc -c) `date`; done",
            "echo \"it's\" {} 'a \"b' {} \\\" {} a#b {}",
            "case {} in a) echo {};; esac",
            "cat <<EOF > {}\ntext\nEOF",
            "(cd {//} && ls) # note\ncat {}",
            "echo \"$(date)\" ${x:-a} $((1+2)) {}",
            "echo '{#}' \"{%}\" {}",
            "awk '{print $1}' {}",
            "cat <<< {}",
            "echo {1} {2}",
            "[ {} = a ] && [ -e {} ] || ls *.[ch] {}",
            "[[ -e a ]]; x[1]=2; y=${x[0]}; cat {}",
            "cat \\\n{}",
        ] {
            assert_eq!(refusal(line), None, "{line}");
        }
    }

    #[test]
    fn placeholders_elsewhere_are_refused_with_their_place() {
        for (line, place) in [
            ("echo \"{}\"", "in double quotes"),
            ("echo 'a {} b'", "in single quotes"),
            ("echo $'{}'", "$'...'"),
            ("echo $'\\'{}", "$'...'"),
            ("echo $\"{}\"", "in double quotes"),
            ("echo `cat {}`", "in backticks"),
            ("true # {}", "in a comment"),
            ("cat <<EOF\n{}\nEOF", "here-document"),
            ("cat << {}\n", "here-document"),
            ("echo \"$(cat {})\"", "in double quotes"),
            ("echo \"`cat {}`\"", "in double quotes"),
            ("echo $(( {} + 1 ))", "in arithmetic"),
            ("(( {} ))", "((...))"),
            ("echo ${x:-{}}", "in ${...}"),
            ("echo ${}", "after a $"),
            ("f() { echo ${1}; }; f", "after a $"),
            ("echo \\{}", "after a \\"),
            // In dash these are text or errors, in bash they are evaluated, and a subscript may have a command in it.
            ("echo $[ {} ]", "$[...]"),
            ("x[{}]=5", "NAME[...]"),
            ("x[1+y[2]+{}]=5", "NAME[...]"),
            ("x[\"a]\" {}]=5", "NAME[...]"),
            ("z=([{}]=3)", "=(...)"),
            ("z+=( {} )", "=(...)"),
            ("[[ {} -eq 1 ]]", "[[...]]"),
            ("[[ a -eq x[1] && {} -eq 1 ]]", "[[...]]"),
            // This is not a comment, so the quote is a quote.
            ("echo \\ #'\n{} '", "in single quotes"),
            ("echo a\\\n#'\n {} '", "in single quotes"),
            ("echo $(\\\n( {} + 1 ))", "in arithmetic"),
            ("(\\\n( {} ))", "((...))"),
            ("echo $\\\n{}", "after a $"),
            ("cat <\\\n<EOF\n{}\nEOF", "here-document"),
            ("echo \"$(case a in a) echo \"{}\";; esac)\"", "`case`"),
            // Inputs that no placeholder asks for are appended.
            ("echo a # note", "in a comment"),
            ("echo \"a", "in double quotes"),
        ] {
            let refusal = refusal(line).unwrap_or_else(|| panic!("{line} is not refused"));
            assert!(refusal.contains(place) && refusal.contains("--shell"), "{line}: {refusal}");
        }
    }

    /// What the shell prints for one input.
    fn run(line: &str, input: &[u8]) -> Vec<u8> {
        let template = Template::new(&[line], 1, true).unwrap();
        let words = template.expand(&[input], 1, 1);
        let words: Vec<_> = words.iter().map(|word| std::ffi::OsStr::from_bytes(word)).collect();
        Command::new(words[0]).args(&words[1..]).output().unwrap().stdout
    }

    #[test]
    fn no_input_is_executed_as_a_command() {
        let inputs: [&[u8]; 12] = [
            b"$(echo x)",
            b"`echo x`",
            b"\"; echo x; \"",
            b"'; echo x; '",
            b"a\necho x",
            b"$HOME ${HOME} $1 $nearq_1",
            b"* ?",
            b" a  b ",
            b"\\\\ \\n \\",
            b"-n",
            b"",
            b"\xff\xc3",
        ];
        for input in inputs {
            let expected = [b"<", input, b">"].concat();
            for line in [
                "printf '<%s>' {}",
                "f() { printf '<%s>' {}; }; f other",
                "set -- other; printf '<%s>' {}",
                "x={}; printf '<%s>' \"$x\"",
                "sleep 0 & printf '<%s>' {}; wait",
                "printf '<%s>' $# > /dev/null; printf '<'; printf %s {} | cat; printf '>'",
            ] {
                assert_eq!(run(line, input), expected, "{line} with {input:?}");
            }
        }
        assert_eq!(run("echo $# $1; : {}", b"a"), b"0\n", "the line has no arguments");
    }
}

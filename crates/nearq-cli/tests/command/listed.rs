//! Properties of jobs that hold for every command and all inputs, for the fuzzer and for the tests beside it.

use std::io::{self, Write};
use std::os::fd::OwnedFd;

use nearq_processes::jobs::{Each, Inputs, Separator, Template};

/// The number of bytes that fit into a pipe without a reader.
const MOST: usize = 60 << 10;

/// How many jobs are checked.
const JOBS: usize = 50;

/// Text that occurs only in inputs: a command that contains it is not checked.
const MARK: &str = "\u{1}mark\u{1}";

/// The first line is the command, with blanks between its words. The first line begins with a letter (`w` for words, `s` for a shell, `z`
/// for words with inputs that end with a zero byte) and a digit, which is the number of inputs of a job. All other lines are inputs.
/// Returns the number of jobs.
pub(crate) fn check(bytes: &[u8]) -> usize {
    let [kind, digit, rest @ ..] = bytes else { return 0 };
    if rest.windows(MARK.len()).any(|window| window == MARK.as_bytes()) {
        return 0;
    }
    let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    let (command, list) = rest.split_at(end);
    let list = list.get(1..MOST.min(list.len())).unwrap_or_default();
    let words: Vec<&[u8]> =
        command.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    let each = usize::from(digit % 10).max(1);
    let separator = if *kind == b'z' { Separator::NULL } else { Separator::LINE };
    let groups = grouped(list, separator, each);
    let shell = *kind == b's';
    let template = match Template::new(&words, each, shell) {
        Ok(template) => template,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return 0;
        }
    };
    for (number, group) in groups.iter().take(JOBS).enumerate() {
        let number = number as u64 + 1;
        let expanded = template.expand(group, number, 1);
        if let Some(program) = template.program() {
            assert_eq!(expanded.first().map_or(&b""[..], Vec::as_slice), program);
        }
        let shown = template.show(group, number, 1);
        if shell {
            check_line(&template, group, number);
        } else {
            assert_eq!(unquoted(&shown), expanded, "{}", String::from_utf8_lossy(&shown));
        }
    }
    groups.len()
}

/// The expected inputs of each job: each once, in order.
fn grouped(list: &[u8], separator: Separator, each: usize) -> Vec<Vec<Vec<u8>>> {
    let (reader, mut writer) = io::pipe().expect("two descriptors");
    writer.write_all(list).expect("it fits");
    drop(writer);
    let mut inputs = Inputs::stream(OwnedFd::from(reader).into(), separator, Each::of(each));
    while !inputs.left().1 {
        inputs.fill().expect("no input is too long");
    }
    let groups: Vec<_> = std::iter::from_fn(|| inputs.take()).collect();
    let all: Vec<&[u8]> = groups.iter().flatten().map(Vec::as_slice).collect();
    let last = list.strip_suffix(&[separator.byte]).unwrap_or(list);
    let expected = last.split(|&byte| byte == separator.byte);
    let expected =
        expected.filter(|input| separator.keeps_empty && !list.is_empty() || !input.is_empty());
    assert!(expected.eq(all.iter().copied()), "{list:?}: {all:?}");
    let full = groups.iter().rev().skip(1).all(|group| group.len() == each);
    assert!(full && groups.iter().all(|group| (1..=each).contains(&group.len())));
    groups
}

/// Nothing in a shell's line comes from inputs: with other inputs the line is the same, except for the numbers of the variables of the
/// inputs.
fn check_line(template: &Template, group: &[Vec<u8>], number: u64) {
    let script = |inputs: &[Vec<u8>]| {
        let words = template.expand(inputs, number, 1);
        assert_eq!(words[..2], [b"/bin/sh".to_vec(), b"-c".to_vec()]);
        let values = words.len() - 4;
        let mut line = words[2].clone();
        if values > 0 {
            let values = (1..=values).map(|n| format!("nearq_{n}=${{{n}}} "));
            let begin = values.collect::<Vec<_>>().concat() + "; set --; ";
            assert!(line.starts_with(begin.as_bytes()), "{}", String::from_utf8_lossy(&line));
            line.drain(..begin.len());
        }
        without_numbers(&line)
    };
    let marked: Vec<Vec<u8>> =
        (0..group.len()).map(|n| format!("{MARK}{n}/{MARK}.{MARK}").into_bytes()).collect();
    let (of_group, others) = (script(group), script(&marked));
    assert_eq!(of_group, others, "{}", String::from_utf8_lossy(&of_group));
    let has_mark = others.windows(MARK.len()).any(|window| window == MARK.as_bytes());
    assert!(!has_mark, "{}", String::from_utf8_lossy(&others));
}

/// The line without the numbers of its variables.
fn without_numbers(line: &[u8]) -> Vec<u8> {
    const BEGIN: &[u8] = b"\"$nearq_";
    let mut bare = Vec::new();
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(BEGIN) {
            bare.extend_from_slice(BEGIN);
            let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
            rest = &behind[digits..];
        } else {
            bare.push(byte);
            rest = after;
        }
    }
    bare
}

/// The words of a line, as a shell reads them, if its only quotes are single ones and `\'`.
fn unquoted(line: &[u8]) -> Vec<Vec<u8>> {
    let mut words = vec![Vec::new()];
    let mut within = false;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        let word = words.last_mut().expect("there is one");
        match byte {
            b'\'' => within = !within,
            byte if within => word.push(byte),
            b'\\' => word.extend(bytes.next()),
            b' ' => words.push(Vec::new()),
            byte => word.push(byte),
        }
    }
    assert!(!within, "a quote is open");
    words
}

//! Parses the command line of `nearq run`: the command and its lists of inputs, how many jobs run at a time, weights.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use nearq_home::Weights;
use nearq_processes::jobs::{Each, Inputs, Timeout, foreign_placeholder};

use super::bytes;

/// The command, and the lists after `:::`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) command: Vec<Vec<u8>>,
    pub(crate) lists: Vec<Vec<Vec<u8>>>,
}

/// The word that begins a list of inputs.
const LIST: &str = ":::";

/// Separators of GNU parallel that are not supported here.
const NOT_HERE: [(&str, &str); 3] = [
    (":::+", "give the inputs as lines and let --max-args 2 make pairs of them"),
    ("::::", "give files of inputs with --input FILE"),
    ("::::+", "give files of inputs with --input FILE"),
];

/// The answer to unknown placeholders.
pub(super) const PLACEHOLDERS: &str = "placeholders are {} {.} {/} {//} {/.}, such as {1} and {1.}, {#} and {%}; take other parts of an \
                                       input with --shell, as in x={}; echo \"${x%.tar.gz}\"";

impl Words {
    pub(crate) fn of(words: &[OsString]) -> Result<Self, String> {
        if let Some((word, instead)) =
            NOT_HERE.iter().find(|(not_here, _)| words.iter().any(|word| word == not_here))
        {
            return Err(format!("`{word}` is not supported here: {instead}"));
        }
        let mut parts = words.split(|word| word == LIST);
        let command: Vec<_> = parts.next().unwrap_or_default().iter().map(bytes).collect();
        if command.is_empty() {
            return Err("no command: give one, as in `nearq run gzip -9 ::: *.log`; \
                        `nearq run sh -c` runs each input as a line of shell code"
                .into());
        }
        if let Some(foreign) = command.iter().find_map(|word| foreign_placeholder(word)) {
            let foreign = String::from_utf8_lossy(foreign);
            return Err(format!("`{foreign}` is not supported here: {PLACEHOLDERS}"));
        }
        Ok(Self { command, lists: parts.map(|list| list.iter().map(bytes).collect()).collect() })
    }

    /// How many inputs a full job has.
    pub(crate) fn inputs_of_each(&self, max_args: usize) -> Result<usize, String> {
        match self.lists.len() {
            0 | 1 => Ok(max_args),
            lists if max_args == 1 => Ok(lists),
            lists => Err(format!(
                "--max-args {max_args}: with {lists} lists, each job gets one input from each; give only one list, or leave out --max-args"
            )),
        }
    }

    pub(crate) fn inputs(mut self, each: Each) -> Inputs {
        match self.lists.len() {
            1 => Inputs::list(self.lists.remove(0), each),
            _ => Inputs::combinations(self.lists),
        }
    }
}

/// `--jobs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Number(usize),
    Percent(usize),
    /// The number of CPUs plus this number, which may be negative.
    More(isize),
}

impl Width {
    /// How many jobs run at a time if `cpus` CPUs may be used.
    pub(crate) fn of(self, cpus: usize) -> usize {
        match self {
            Self::Number(0) => usize::MAX,
            Self::Number(number) => number,
            Self::Percent(percent) => (cpus.saturating_mul(percent) / 100).max(1),
            Self::More(more) => cpus.saturating_add_signed(more).max(1),
        }
    }
}

impl FromStr for Width {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let width = if let Some(percent) = text.strip_suffix('%') {
            number(percent).filter(|percent| *percent > 0).map(Self::Percent)
        } else if let Some(digits) = text.strip_prefix(['+', '-']) {
            let more = number(digits).map(|more| isize::try_from(more).unwrap_or(isize::MAX));
            more.map(|more| Self::More(if text.starts_with('-') { -more } else { more }))
        } else {
            number(text).map(Self::Number)
        };
        width.ok_or_else(|| {
            "give a number of jobs, +N or -N for N more or fewer than there are CPUs, a share of the CPUs such as 50%, \
             or 0 for as many as possible"
                .into()
        })
    }
}

/// A number without a sign; the standard library's parser accepts `+1` too.
fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A time: seconds, or parts with a unit, as in `1m30s`.
fn time(text: &str) -> Option<Duration> {
    if let Some(seconds) = decimal(text) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut all = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(['s', 'm', 'h', 'd'])?;
        let unit = match rest.as_bytes()[end] {
            b's' => 1.0,
            b'm' => 60.0,
            b'h' => 3600.0,
            _ => 86400.0,
        };
        let part = Duration::try_from_secs_f64(decimal(&rest[..end])? * unit).ok()?;
        all = all.checked_add(part)?;
        rest = &rest[end + 1..];
    }
    (!text.is_empty()).then_some(all)
}

/// A number without a sign and without an exponent.
fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_plain.then(|| text.parse().ok())?
}

/// `--delay`.
pub(crate) fn delay(text: &str) -> Result<Duration, String> {
    time(text).ok_or_else(|| "give seconds, or a time such as 0.5s, 10s, 5m or 1m30s".into())
}

/// `--timeout`.
pub(crate) fn timeout(text: &str) -> Result<Timeout, String> {
    let timeout = match text.strip_suffix('%') {
        Some(percent) => {
            decimal(percent).filter(|it| *it > 0.0).map(|it| Timeout::OfMedian(it / 100.0))
        }
        None => time(text).filter(|time| !time.is_zero()).map(Timeout::After),
    };
    timeout.ok_or_else(|| {
        "give seconds, or a time such as 10s, 5m or 1m30s, or a share of the median time of the jobs that succeeded, such as 200%; without \
         --timeout there is no limit"
            .into()
    })
}

/// `--retries`; `None` stands for any number.
pub(crate) fn retries(text: &str) -> Result<Retries, String> {
    let most = number(text).and_then(|number| u64::try_from(number).ok());
    let most = most.ok_or("give how many times a job runs at most, as in --retries 3, or 0 for as many times as it takes")?;
    Ok(Retries((most > 0).then_some(most)))
}

/// How many times a job runs at most; `None` for as many times as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries(pub(crate) Option<u64>);

/// `--delimiter`: one byte, or an escape sequence for it.
pub(crate) fn delimiter(text: &str) -> Result<u8, String> {
    let byte = match text.as_bytes() {
        [byte] => Some(*byte),
        [b'\\', escaped] => [
            (b'n', b'\n'),
            (b't', b'\t'),
            (b'r', b'\r'),
            (b'f', 12),
            (b'v', 11),
            (b'a', 7),
            (b'b', 8),
            (b'0', 0),
            (b'\\', b'\\'),
        ]
        .into_iter()
        .find_map(|(name, byte)| (name == *escaped).then_some(byte)),
        [b'\\', b'x', ..] => u8::from_str_radix(&text[2..], 16).ok(),
        [b'\\', ..] => u8::from_str_radix(&text[1..], 8).ok(),
        _ => None,
    };
    byte.ok_or_else(|| {
        "give one byte, as in `-d ,`, or one of \\n \\t \\0 \\xHH; if the separator is longer, turn the inputs into lines with `sed`".into()
    })
}

/// `-I`, which xargs and parallel have for other placeholders too.
pub(crate) fn placeholder(text: &str) -> Result<(), String> {
    if text == "{}" {
        return Ok(());
    }
    Err("the placeholder is always {}: write {} in the command where the input belongs".into())
}

/// `--home`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Auto,
    /// No job has a home.
    None,
    Node(usize),
}

impl FromStr for Home {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if text == "none" {
            return Ok(Self::None);
        }
        let node = number(text).map(Self::Node);
        node.ok_or_else(|| {
            "give auto, none or the number of a node; `nearq topo` shows them".into()
        })
    }
}

/// `--weight`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Print the list of available weights.
    Help,
    Set(String, u32),
}

impl FromStr for Weight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "help" {
            return Ok(Self::Help);
        }
        let parts = text
            .split_once('=')
            .and_then(|(name, value)| Some((name, u32::try_from(number(value)?).ok()?)));
        let (name, value) =
            parts.ok_or("give NAME=N with a whole number; --weight help lists the names")?;
        Ok(Self::Set(name.to_owned(), value))
    }
}

/// The list of weights.
pub(crate) fn weights_help() -> String {
    let usual = Weights::default();
    let mut text = String::from("NAME=DEFAULT (LEAST to MOST)\n");
    for name in Weights::names() {
        let value = usual.get(name).unwrap_or_default();
        let (least, most) = Weights::bounds(name).unwrap_or_default();
        let about = Weights::about(name).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}={value} ({least} to {most})\n    {about}");
    }
    text
}

/// `--max-args`.
pub(crate) fn max_args(text: &str) -> Result<usize, String> {
    let number = number(text).filter(|number| *number > 0);
    number.ok_or_else(|| "give the number of inputs of each job, at least 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Words, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Words::of(&words)
    }

    fn list(text: &str) -> Vec<Vec<u8>> {
        text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn input_lists_begin_with_three_colons() {
        assert_eq!(words("gzip -9").unwrap(), Words { command: list("gzip -9"), lists: vec![] });
        let two = words("echo {1} ::: a b ::: 1").unwrap();
        let lists = vec![list("a b"), list("1")];
        assert_eq!(two, Words { command: list("echo {1}"), lists });
        assert_eq!(two.inputs_of_each(1), Ok(2));
        assert!(two.inputs_of_each(3).unwrap_err().starts_with("--max-args 3: with 2 lists"));
        assert_eq!(two.inputs(Each::of(1)).left(), (2, true));
        assert_eq!(words("echo ::: a b c").unwrap().inputs(Each::of(2)).left(), (2, true));
        assert!(words("echo :::").unwrap().inputs(Each::of(1)).is_over());
    }

    #[test]
    fn a_missing_command_or_unsupported_syntax_is_refused_with_advice() {
        assert!(words("::: a").unwrap_err().starts_with("no command: "));
        assert!(Words::of(&[]).unwrap_err().starts_with("no command: "));
        assert!(words("echo ::: a :::+ b").unwrap_err().contains("--max-args 2"));
    }

    #[test]
    fn widths() {
        let width = |text: &str| text.parse::<Width>().map(|width| width.of(6));
        assert_eq!(width("3"), Ok(3));
        assert_eq!(width("0"), Ok(usize::MAX));
        assert_eq!([width("100%"), width("50%"), width("1%")], [Ok(6), Ok(3), Ok(1)]);
        assert_eq!(
            [width("+1"), width("+0"), width("-2"), width("-9")],
            [Ok(7), Ok(6), Ok(4), Ok(1)]
        );
        assert_eq!(width("+99999999999999999999"), width("x"));
        assert!(
            ["", "x", "+", "-", "+-1", "++1", "0%", "+5%", "1.5"]
                .iter()
                .all(|text| width(text).is_err())
        );
    }

    #[test]
    fn times_have_units_and_shares_a_percent_sign() {
        let millis = |text: &str| delay(text).map(|time| time.as_millis()).ok();
        let times = ["10", "1.5", ".5", "10s", "0.5m", "1m30s", "2h", "1d", "0"].map(millis);
        let expected = [10_000, 1_500, 500, 10_000, 30_000, 90_000, 7_200_000, 86_400_000, 0];
        assert_eq!(times, expected.map(Some));
        for wrong in [
            "",
            "s",
            ".",
            "-1",
            "+1",
            "1e3",
            "1x",
            "1m2",
            "100ms",
            "inf",
            "9e99",
            "99999999999999999999d",
        ] {
            assert!(delay(wrong).is_err() && timeout(wrong).is_err(), "{wrong}");
        }
        assert_eq!(timeout("200%"), Ok(Timeout::OfMedian(2.0)));
        assert_eq!(timeout("2m"), Ok(Timeout::After(Duration::from_mins(2))));
        assert!(["0", "0%", "-5%", "%"].iter().all(|text| timeout(text).is_err()));
        assert_eq!(["1", "0"].map(retries), [Ok(Retries(Some(1))), Ok(Retries(None))]);
        assert!(retries("-1").is_err() && retries("x").is_err());
    }

    #[test]
    fn delimiters() {
        let bytes = [",", "\\n", "\\t", "\\0", "\\x2c", "\\054", "\\\\", "\\"].map(delimiter);
        assert_eq!(bytes, [b',', b'\n', b'\t', 0, b',', b',', b'\\', b'\\'].map(Ok));
        assert!(["", ",,", "ä", "\\xyz", "\\q"].iter().all(|text| delimiter(text).is_err()));
    }

    #[test]
    fn signed_numbers_are_refused() {
        assert!(max_args("+2").is_err() && "+1".parse::<Home>().is_err());
        assert!("stay_ms=+5".parse::<Weight>().is_err() && max_args("2") == Ok(2));
    }

    #[test]
    fn homes_and_weights() {
        assert_eq!("auto".parse(), Ok(Home::Auto));
        assert_eq!("1".parse(), Ok(Home::Node(1)));
        assert!("node1".parse::<Home>().unwrap_err().contains("nearq topo"));
        assert_eq!("stay_ms=5".parse(), Ok(Weight::Set("stay_ms".into(), 5)));
        assert!("stay_ms".parse::<Weight>().is_err());
        assert!(weights_help().contains("stay_ms="));
    }
}

//! `nearq set`: changes settings while the process runs, and prints the values that are then in effect.

use std::collections::BTreeMap;

use clap::Args;
use nearq_command::screen::{Side, columns, plain};
use nearq_control::protocol::{Set, Setting, Settings, SettingsReply};

use crate::attach;
use crate::output::{self, Failure};

const LEGEND: &str = "\
QUEUE is a queue's name, or # and its number if several have the same name
(quote it: '#3'). Without QUEUE, settings of the process are changed. Either all
changes are made, or none. Afterwards the value in effect of each key is printed, as
`nearq get` shows it.

Values have the same form as in the kernel's files:
  0 or 1                    switches; also off and on, no and yes, false and true
  0-3,8                     CPUs as a list; an empty value or `all` means all CPUs
  0xff  000000ff,ffffffff   CPUs as a mask: with 0x, or in groups of 8 digits
  default  cache  ...       scopes, by their exact names
`nearq knobs` lists the keys and the values that each allows.

The process must allow changes: start it with NEARQ_CONTROL=full, or be root; a
program can also allow them itself.

Examples:
  nearq set 4711 crypt affinity_scope=numa affinity_strict=1
  nearq set 4711 crypt cpumask=0-3,8
  nearq set 4711 '#3' max_active=16
  nearq set 4711 default_affinity_scope=cache";

/// The arguments of `nearq set`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND, override_usage = "nearq set [--json] <PID> [QUEUE] <KEY=VALUE>...")]
pub(crate) struct Options {
    /// The process
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: u32,

    /// The changes, after the queue if they are for a queue
    #[arg(value_name = "KEY=VALUE", required = true)]
    words: Vec<String>,

    /// Print an array of the settings that were changed: `key`, `configured`, `effective`, `writable`
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (queue, changes) = parse(&options.words).map_err(Failure::input)?;
    let keys: Vec<&str> = changes.iter().map(|(key, _)| *key).collect();
    let set = Set {
        queue: queue.map(String::from),
        changes: changes.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        until_closed: false,
    };
    let SettingsReply { settings } =
        attach::connect(options.pid)?.call(&set).map_err(attach::failure)?;
    let now = in_effect(&settings, queue.is_some(), &keys);
    if options.json {
        return output::json(&now);
    }
    let rows: Vec<Vec<String>> =
        now.iter().map(|setting| vec![plain(&setting.key), plain(&setting.effective)]).collect();
    output::print_text(&columns(&[Side::Left; 2], &rows))
}

/// The queue, if one was given, and keys with their values, in the given order.
type Wanted<'a> = (Option<&'a str>, Vec<(&'a str, &'a str)>);

/// Parses the words: those with `=` are changes; a first word without `=` is the queue.
fn parse(words: &[String]) -> Result<Wanted<'_>, String> {
    const HOW: &str = "give KEY=VALUE, such as affinity_scope=cache; `nearq knobs` lists the keys";
    let (queue, changes) = match words {
        [first, rest @ ..] if !first.contains('=') => (Some(first.as_str()), rest),
        all => (None, all),
    };
    if changes.is_empty() {
        return Err(format!("nothing to change; {HOW}"));
    }
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for change in changes {
        let (key, value) = match change.split_once('=') {
            Some((key, value)) if !key.is_empty() => (key, value),
            _ => return Err(format!("`{change}` is not a change; {HOW}")),
        };
        if wanted.iter().any(|(other, _)| *other == key) {
            return Err(format!("{key} is given twice; give each key once"));
        }
        wanted.push((key, value));
    }
    Ok((queue, wanted))
}

/// The settings in the process's answer that were changed.
fn in_effect(settings: &Settings, of_queue: bool, keys: &[&str]) -> Vec<Setting> {
    let process = settings.process.iter().filter(|_| !of_queue).flat_map(|one| &one.settings);
    let queues = settings.queues.iter().filter(|_| of_queue).flat_map(|one| &one.settings);
    let by_key: BTreeMap<&str, &Setting> =
        process.chain(queues).map(|setting| (setting.key.as_str(), setting)).collect();
    keys.iter().filter_map(|key| by_key.get(key).map(|setting| (*setting).clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        parse(&words).map(|wanted| format!("{wanted:?}"))
    }

    #[test]
    fn an_argument_with_an_equals_sign_is_a_change() {
        assert_eq!(
            parsed("crypt nice=-5 cpumask=").unwrap(),
            r#"(Some("crypt"), [("nice", "-5"), ("cpumask", "")])"#
        );
        assert_eq!(parsed("spin=1=2").unwrap(), r#"(None, [("spin", "1=2")])"#);
        for (line, why) in [
            ("crypt", "nothing to change; give KEY=VALUE"),
            ("crypt nice", "`nice` is not a change; give KEY=VALUE"),
            ("=5", "`=5` is not a change"),
            ("crypt nice=1 nice=2", "nice is given twice"),
        ] {
            assert!(parsed(line).unwrap_err().contains(why), "{line}");
        }
    }
}

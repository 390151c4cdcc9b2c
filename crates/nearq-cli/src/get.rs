//! `nearq get`: the settings as configured, and as they are in effect.
//!
//! A single word after the process is a queue's name or a key of the process. It is taken as a queue if a queue of that name exists; with
//! `--process` it is always a key.

use std::io;

use clap::Args;
use nearq_command::screen::{Side, fitted, plain, width_of};
use nearq_control::client::{Client, ClientError};
use nearq_control::protocol::{GetSettings, Refusal, Setting, Settings, SettingsReply, some_of};

use crate::attach;
use crate::output::{self, Failure};

const LEGEND: &str = "\
Columns:
  KEY         the name for `nearq set`; `nearq knobs` describes it
  MODE        rw, or r if it cannot be changed for that kind of queue
  CONFIGURED  the value that was set, as `nearq set` takes it; - if none was
  EFFECTIVE   the value in effect; `default (cache_shard)` is inherited; CPUs are shown as a
              list and as the kernel's mask

QUEUE is a queue's name, or # and its number if several have the same name
(quote it: '#3'). A single word is a queue if there is one of that name, else a key
of the process; with --process it is always a key. With a key, only the value in
effect is printed, for scripts.

Examples:
  nearq get 4711                           the process and all its queues
  nearq get 4711 crypt                     one queue
  nearq get 4711 crypt affinity_scope      one value
  nearq get 4711 default_affinity_scope    one value of the process
  nearq get 4711 --process                 the process alone";

/// The arguments of `nearq get`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The process
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: u32,

    /// A queue, or a key of the process
    #[arg(value_name = "QUEUE")]
    queue: Option<String>,

    /// A key: print the value in effect and nothing else
    #[arg(value_name = "KEY", conflicts_with = "process")]
    key: Option<String>,

    /// Print only the process's own settings; a word after PID is a key
    #[arg(long)]
    process: bool,

    /// Print JSON: `process` and `queues` with their `settings`, or one setting with `key`, `configured`, `effective`, `writable`
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut client = attach::connect(options.pid)?;
    let (settings, key) = asked(&mut client, options)?;
    if let Some(key) = key {
        let setting = setting_named(&settings, &key)?;
        if options.json {
            return output::json(setting);
        }
        return output::print(&format!("{}\n", plain(&setting.effective)));
    }
    if options.json {
        return output::json(&settings);
    }
    output::print_text(&text(&settings, width_of(&io::stdout())))
}

/// The settings that were asked for, and the key if one was given.
fn asked(client: &mut Client, options: &Options) -> Result<(Settings, Option<String>), Failure> {
    let mut call = |queue: Option<&String>| -> Result<Settings, ClientError> {
        let SettingsReply { settings } = client.call(&GetSettings { queue: queue.cloned() })?;
        Ok(settings)
    };
    let mut of_process = || call(None).map(|all| Settings { queues: Vec::new(), ..all });
    if options.process {
        return Ok((of_process().map_err(attach::failure)?, options.queue.clone()));
    }
    let Some(word) = &options.queue else {
        return Ok((call(None).map_err(attach::failure)?, None));
    };
    let refused = match call(Some(word)) {
        Ok(settings) => return Ok((settings, options.key.clone())),
        Err(refused) => refused,
    };
    // Without a runtime there are no queues at all.
    let no_queue = matches!(
        &refused,
        ClientError::Refused(Refusal::NoSuchQueue { .. } | Refusal::NotHere { .. })
    );
    if options.key.is_none() && no_queue {
        let process = call(None).map(|all| Settings { queues: Vec::new(), ..all });
        if let Ok(process) = process {
            if setting_named(&process, word).is_ok() {
                return Ok((process, Some(word.clone())));
            }
            return Err(Failure::input(format!(
                "{refused}; the process has no setting of that name either; `nearq get {}` lists its queues and settings",
                options.pid
            )));
        }
    }
    Err(attach::failure(refused))
}

/// The setting with that key.
fn setting_named<'a>(settings: &'a Settings, key: &str) -> Result<&'a Setting, Failure> {
    let all = || {
        let process = settings.process.iter().flat_map(|process| &process.settings);
        process.chain(settings.queues.iter().flat_map(|queue| &queue.settings))
    };
    all().find(|setting| setting.key == key).ok_or_else(|| {
        let keys: Vec<&str> = all().map(|setting| setting.key.as_str()).collect();
        Failure::input(format!(
            "there is no setting `{key}` here; the settings are {}",
            some_of(&keys)
        ))
    })
}

/// A table for the process, and one for each queue, in lines of at most `width` columns if that is given.
fn text(settings: &Settings, width: Option<usize>) -> String {
    let process = settings.process.iter().map(|process| ("process".to_owned(), &process.settings));
    let queues = settings
        .queues
        .iter()
        .map(|queue| (format!("queue {} (#{})", plain(&queue.name), queue.id), &queue.settings));
    let tables: Vec<String> = process
        .chain(queues)
        .map(|(title, settings)| format!("{title}\n{}", table(settings, width)))
        .collect();
    tables.join("\n")
}

fn table(settings: &[Setting], width: Option<usize>) -> String {
    let head = ["  KEY", "MODE", "CONFIGURED", "EFFECTIVE"].map(String::from);
    let mut rows = vec![head.to_vec()];
    rows.extend(settings.iter().map(|setting| {
        let configured = if setting.configured.is_empty() { "-" } else { &setting.configured };
        vec![
            format!("  {}", plain(&setting.key)),
            if setting.writable { "rw" } else { "r" }.to_owned(),
            plain(configured),
            plain(&setting.effective),
        ]
    }));
    // The value in effect stays: what was set is left out first, then whether it can be.
    fitted(&[Side::Left; 4], &rows, &[2, 1], width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::{ProcessSettings, QueueSettings};

    fn setting(key: &str, configured: &str, effective: &str, writable: bool) -> Setting {
        Setting {
            key: key.into(),
            configured: configured.into(),
            effective: effective.into(),
            writable,
        }
    }

    #[test]
    fn requested_and_effective_values_are_shown() {
        let settings = Settings {
            process: Some(ProcessSettings {
                settings: vec![setting("cpumask", "", "0-7 (000000ff)", true)],
            }),
            queues: vec![QueueSettings {
                id: 3,
                name: "crypt".into(),
                settings: vec![
                    setting("per_cpu", "", "0", false),
                    setting("affinity_scope", "default", "default (cache_shard)", true),
                ],
            }],
        };
        assert_eq!(
            text(&settings, None),
            "process\n\
             \x20 KEY      MODE  CONFIGURED  EFFECTIVE\n\
             \x20 cpumask  rw    -           0-7 (000000ff)\n\
             \nqueue crypt (#3)\n\
             \x20 KEY             MODE  CONFIGURED  EFFECTIVE\n\
             \x20 per_cpu         r     -           0\n\
             \x20 affinity_scope  rw    default     default (cache_shard)\n"
        );
        assert_eq!(setting_named(&settings, "affinity_scope").unwrap().configured, "default");
        assert!(setting_named(&settings, "nice").is_err());
    }
}

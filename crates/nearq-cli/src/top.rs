//! `nearq top`: shows what the queues of a running process do, and updates it at intervals.
//!
//! ```text
//!   source ──► model ──► view ──► terminal      answers become rows and rates; rows become a screen
//!      ▲        state ◄── keys ◄─────┘          keys change what is shown, or send a question
//!      └───────────────────┘
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `source` | queries the process, in a thread of its own |
//! | `model` | turns two samples into rows, rates and histories |
//! | `columns`, `format` | what the columns show, and how numbers are printed |
//! | `state`, `keys` | the user's choices, and the keys that make them |
//! | `view`, `paint` | the screen, from the state alone |
//! | `chooser` | asks which process, if there are several |
//! | `print` | the output for scripts |
//! | `terminal` | takes over the terminal and restores it |

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a Linux program: its threads are the system's"
)]

mod chooser;
mod columns;
mod format;
#[cfg(test)]
#[path = "../tests/command/top/invented.rs"]
mod invented;
mod keys;
mod model;
mod paint;
mod print;
#[cfg(test)]
mod screens;
mod source;
mod state;
mod terminal;
mod view;

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nearq_command::threads;
use nearq_control::client::Client;
use nearq_control::protocol::{GetProcess, Process};
use ratatui::crossterm::event::Event;

use crate::attach;
use crate::output::{self, Failure};
use columns::Column;
use keys::Command;
use model::Model;
use paint::Paint;
use source::Source;
use state::{Filter, Question, Sort, State};
use terminal::{Screen, UiEvent};

/// The arguments of `nearq top`.
#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub(crate) struct Options {
    /// The process; if not given, the only one that can be inspected, or a list to choose from
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: Option<u32>,

    /// Print the table once, after one interval and with all columns, and exit
    #[arg(long)]
    once: bool,

    /// Print a line of JSON at each interval: totals, rates and times of each queue, and the pods
    #[arg(long)]
    json: bool,

    /// Seconds between updates, 0.1 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval, allow_negative_numbers = true)]
    interval: Duration,

    /// Do not time items: P50 to RUN99 stay empty, unless another program has items timed
    #[arg(long)]
    no_timing: bool,

    /// The column to sort by, in lower case: `name` for WORKQUEUE, `items` for ITEMS/S, `cpu` for CPU%, `moves` for CMW/RPR, otherwise its
    /// heading; HISTORY is not allowed
    #[arg(long, value_name = "COLUMN", default_value = "items", value_parser = column)]
    sort: Column,

    /// Reverse the order: smallest numbers first, text from Z to A
    #[arg(long)]
    reverse: bool,

    /// Show only queues whose name matches a regular expression; an invalid expression is searched for literally
    #[arg(long, value_name = "REGEX", default_value = "")]
    filter: String,
}

/// The legend, and examples.
fn after_help() -> String {
    let keys = keys::KEYS.iter().map(|(key, what)| format!("  {key:<12} {what}\n"));
    format!(
        "\
Columns; rates are per second, and times are those of the last interval:
{}
On a narrow terminal some columns are left out; `c` shows them. The line `pods` has a cell for each pool: how much of the time of its
pod's CPUs goes to its items, from none to all. `-` is a value that does not apply to the queue, or a time that was not measured. For P50
to RUN99, at most 20000 items a second are timed while `top` runs; --no-timing turns that off.

Keys:
{}
Examples:
  nearq top                              the only process, or a list to choose from
  nearq top 4711 --sort depth            the queues with the most waiting items first
  nearq top 4711 --once --filter '^kc'   for a script: a table of the queues whose names begin with kc
  nearq top 4711 --json -i 10 >>log      a line of JSON every ten seconds
  NO_COLOR=1 nearq top                   without colours

To change a setting, the process must run with NEARQ_CONTROL=full, or you must be root.",
        columns::legend(),
        keys.collect::<String>()
    )
}

fn interval(text: &str) -> Result<Duration, String> {
    let [least, greatest] = keys::INTERVALS;
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|interval| (least..=greatest).contains(interval))
        .ok_or_else(|| "give a number of seconds from 0.1 to 3600".to_owned())
}

fn column(text: &str) -> Result<Column, String> {
    Column::named(text).ok_or_else(|| format!("give one of {}", Column::keys().join(", ")))
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let sort = Sort { column: options.sort, reverse: options.reverse };
    let filter = Filter::new(&options.filter);
    if options.once || options.json {
        return for_scripts(options, sort, &filter);
    }
    let (pid, (mut screen, sender, happened)) =
        match options.pid.map_or_else(only_one, |pid| Ok(Some(pid)))? {
            Some(pid) => (pid, Screen::open()?),
            None => {
                let mut opened = Screen::open()?;
                match chooser::choose(&mut opened.0, &opened.2)? {
                    Some(pid) => (pid, opened),
                    None => return Ok(()),
                }
            }
        };
    let (client, process) = connect(pid)?;
    let mut state = State::new(pid, process, options.interval, sort, filter);
    state.size = terminal::size();
    let timing = !options.no_timing;
    let source = Source { pid, client, interval: options.interval, timing, answers: sender };
    let (questions, asked) = mpsc::channel();
    threads::start("source", move || source.run(&asked))?;
    watch(&mut state, &mut screen, &happened, &questions)
}

/// Shows the state until the user ends it.
fn watch(
    state: &mut State,
    screen: &mut Screen,
    happened: &Receiver<UiEvent>,
    questions: &Sender<Question>,
) -> Result<(), Failure> {
    let paint = Paint::of_environment();
    loop {
        screen.draw(|area, buffer| view::draw(state, &paint, area, buffer))?;
        // The thread that receives signals never ends before this one.
        let Ok(first) = happened.recv() else { return Ok(()) };
        // Events that have arrived meanwhile are drawn together.
        for event in [first].into_iter().chain(happened.try_iter()) {
            let command = match event {
                UiEvent::Input(Event::Key(key)) => keys::press(state, key),
                UiEvent::Input(Event::Resize(..)) => {
                    state.size = terminal::size();
                    Command::Nothing
                }
                UiEvent::Input(_) => Command::Nothing,
                UiEvent::Answer(answer) => {
                    state.learn(answer);
                    Command::Nothing
                }
                UiEvent::Signal(signal) => {
                    screen.handle_signal(signal)?;
                    Command::Nothing
                }
                UiEvent::KeysUnreadable(error) => return Err(terminal::keys_unreadable(&error)),
                UiEvent::Broken => return Err(terminal::broken()),
            };
            match command {
                Command::Nothing => {}
                Command::End => return Ok(()),
                Command::Stop => screen.stop()?,
                Command::Redraw => screen.redraw().map_err(terminal::unusable)?,
                // After the last answer no thread receives questions; the screen already says so.
                Command::Ask(question) => drop(questions.send(question)),
            }
        }
    }
}

/// Connects, and asks which process it is.
fn connect(pid: u32) -> Result<(Client, Process), Failure> {
    let mut client = attach::connect(pid)?;
    let process = client.call(&GetProcess {}).map_err(attach::failure)?.process;
    if !process.runtime {
        return Err(Failure::input(format!(
            "process {pid} has no queues, only mutexes; `nearq dump {pid} --locks` shows those"
        )));
    }
    Ok((client, process))
}

/// The only process that can be inspected; none if there are several.
fn only_one() -> Result<Option<u32>, Failure> {
    match attach::processes()?.as_slice() {
        [] => Err(Failure::run(
            "no process can be inspected: none of yours is using nearq, or they run with NEARQ_CONTROL=off; start one with NEARQ_CONTROL=read",
        )),
        [process] => Ok(Some(process.pid)),
        _ => Ok(None),
    }
}

/// `--once` and `--json`.
fn for_scripts(options: &Options, sort: Sort, filter: &Filter) -> Result<(), Failure> {
    let Some(pid) = options.pid.map_or_else(only_one, |pid| Ok(Some(pid)))? else {
        let found = attach::processes()?;
        let pids: Vec<_> = found.iter().map(|found| found.pid.to_string()).collect();
        let pids = pids.join(", ");
        return Err(Failure::input(format!(
            "there are several processes; give the PID of one: {pids}"
        )));
    };
    let (mut client, process) = connect(pid)?;
    let mut model = Model::default();
    let mut next = Instant::now();
    loop {
        let statistics = source::sample(&mut client, !options.no_timing);
        model.add_sample(statistics.map_err(|error| Failure::run(source::why_gone(pid, &error)))?);
        if model.ready {
            let text = if options.json {
                print::json(pid, &process, &model, filter, sort)
            } else {
                print::table(&model, filter, sort)
            };
            let is_read = if options.json {
                output::try_print(&text)?
            } else {
                output::try_print_text(&text)?
            };
            if options.once || !is_read {
                return Ok(());
            }
        }
        next += options.interval;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

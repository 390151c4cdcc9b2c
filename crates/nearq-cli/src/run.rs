//! `nearq run`: runs a command for each of many inputs, several at a time, each at home on a node.
//!
//! | file | holds |
//! |---|---|
//! | `options` | the options, and the help |
//! | `arguments` | parsing of the command line: inputs, widths, weights |
//! | `foreign` | options of xargs and parallel that are not supported, and what to do instead |
//! | `queue` | `--from`: jobs from a queue on a server |
//! | `source` | where jobs come from, which of them run, and where their outputs go |
//! | `audience` | output while jobs run: bar, notices |
//! | `joblog` | the job log, and what it says about an earlier run |
//! | `account` | output afterwards: table, JSON |
//! | `near` | `--near`: the nodes of devices, and a GPU for each process |
//! | `tree` | `--tree`: one command, and each program that it executes chooses its home |
//!
//! `nearq_processes::jobs` runs the jobs.

mod account;
mod arguments;
mod audience;
mod foreign;
mod joblog;
mod near;
mod options;
mod queue;
mod source;
mod tree;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use nearq_command::Patient;
use nearq_command::screen::plain;
use nearq_home::{Nodes, Weights};
use nearq_platform::{Linux, Machine, Placement as _};
use nearq_processes::jobs::{self, Homes, Inputs, Order, Plan, Source, Template};
use nearq_processes::tree::Choose as TreeChoose;
use nearq_topology::CpuSet;

use crate::output::{self, Failure};
pub(crate) use arguments::delay;
use arguments::{Home, Weight, Width};
use audience::RunDisplay;
pub(crate) use foreign::refused;
use near::Near;
pub(crate) use options::Options;
use options::{Choose, Scope};
use source::Jobs;

/// The exit status if the run itself failed, as in `timeout` and `env`. Lower ones are the number of failed jobs; higher ones mean that the
/// command cannot be executed.
const OWN_FAILURE: u8 = 125;

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let machine = Linux::machine().map_err(Failure::run)?;
    let weights = options.weights()?;
    let Some(weights) = weights else {
        return output::print(&arguments::weights_help()).map(|()| ExitCode::SUCCESS);
    };
    let near = Near::of(&options.near, &machine)?;
    let homes = options.homes(&machine, weights, near.as_ref())?;
    if !options.dry_run {
        // The outputs of jobs and programs go to standard output. If it is closed, that would show only afterwards, or never: they would
        // write to /dev/null.
        output::open().map_err(|failure| Failure::with_status(OWN_FAILURE, failure))?;
    }
    if let Some(near) = &near {
        near.print(options.verbose || options.dry_run, &homes.nodes);
        if options.becomes_command(near, &homes)? {
            return near.become_command(options, &homes);
        }
    }
    if options.tree {
        return tree::run(&options.tree(&machine, homes, near.as_ref())?);
    }
    let cpus = machine.limits.parallelism().min(machine.limits.housekeeping().len()).max(1);
    let width = options.width(cpus, near.as_ref())?;
    let queue = options.queue(width)?;
    let jobs = options.jobs(near.as_ref())?;
    let tag = options.tag(jobs.count)?;
    let results = options.results(&jobs)?;
    let Jobs { template, inputs, earlier, .. } = jobs;
    if options.dry_run {
        return preview(&template, inputs, width, &homes);
    }
    let (source, dead): (Box<dyn Source>, _) = match queue {
        Some(queue) => (queue.source, Some(queue.dead)),
        None => (Box::new(inputs), None),
    };
    let has_command = options.retry_failed || !options.command.is_empty();
    let nodes = homes.nodes.clone();
    let to_error = options.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let mut display = RunDisplay::new(options, &nodes, earlier)?;
    if options.verbose {
        display.print_line(&about(&homes, options.home));
    }
    let plan = Plan {
        template: has_command.then_some(template),
        source,
        width,
        halt: options.halt,
        order: options.order(),
        tty: options.tty,
        to_error,
        tag,
        results,
        retries: options.retries.0,
        timeout: options.timeout,
        delay: options.delay,
        own_slots: options.repeats(),
        around: display.around(),
        homes,
    };
    let outcome = jobs::run(plan, &mut display).map_err(|error| match error {
        jobs::Error::Program(error) => Failure::with_status(error.exit_status(), error),
        error @ (jobs::Error::Source(_) | jobs::Error::System(_)) => {
            Failure::with_status(OWN_FAILURE, error)
        }
    })?;
    let finished = display.finish(options, &outcome);
    if let Some(signal) = outcome.signal {
        if let Err(failure) = finished {
            failure.report("nearq");
        }
        jobs::die_by(signal);
    }
    // A job of a queue that has failed runs again, here or elsewhere, unless it was given up. But a run that it has ended has failed.
    let failed = match dead {
        Some(dead) if options.halt == jobs::Halt::Never => dead(),
        Some(dead) => dead().max(outcome.failed),
        None => outcome.failed,
    };
    finished.map(|()| ExitCode::from(jobs::exit_status(failed)))
}

/// Why there are no homes, with this `--home` on these nodes; `None` if there are some.
fn why_none(home: Home, nodes: &Nodes) -> Option<&'static str> {
    match home {
        Home::None => Some("none were requested (--home none)"),
        _ if nodes.is_all() => Some("none are needed, because all usable CPUs belong to one node"),
        _ => None,
    }
}

/// The available homes, in one line.
fn about(homes: &Homes, home: Home) -> String {
    if let Some(why) = why_none(home, &homes.nodes) {
        return format!("homes: {why}; the CPUs and memory of jobs are left alone");
    }
    let all: Vec<String> =
        homes.nodes.iter().map(|node| format!("{} (CPUs {})", node.id, node.cpus)).collect();
    let which = match homes.fixed {
        Some(home) => format!("node {} for all jobs, of", homes.nodes.get(home).id),
        None => "the least loaded of".to_owned(),
    };
    let how = if homes.strict { "strict" } else { "soft" };
    format!("homes: {which} {}; {how}", all.join(", "))
}

fn preview(
    template: &Template,
    inputs: Inputs,
    width: usize,
    homes: &Homes,
) -> Result<ExitCode, Failure> {
    let single = homes.nodes.is_all();
    let stdout = io::stdout();
    let to_terminal = stdout.is_terminal();
    let refused = |error: io::Error| {
        Failure::with_status(OWN_FAILURE, format!("standard output cannot be written: {error}"))
    };
    let mut out = BufWriter::new(Patient::stdout().map_err(refused)?);
    let mut printed = Ok(());
    let read = jobs::preview(template, inputs, width, homes, |home, command| {
        let mut line = Vec::new();
        if !single {
            line.extend_from_slice(format!("{}\t", homes.nodes.get(home).id).as_bytes());
        }
        if to_terminal {
            line.extend_from_slice(plain(&String::from_utf8_lossy(&command)).as_bytes());
        } else {
            line.extend_from_slice(&command);
        }
        line.push(b'\n');
        printed = out.write_all(&line);
        // Stop if standard output has no reader any more, or cannot be written.
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    match printed.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(refused(error)),
        _ => {}
    }
    read.map_err(|error| {
        Failure::with_status(
            OWN_FAILURE,
            format!("the inputs could not be read to their end: {error}"),
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn order(&self) -> Order {
        match (self.keep_order, self.ungroup) {
            (true, _) => Order::Input,
            (_, true) => Order::None,
            _ if self.tty => Order::None,
            // Programs near devices often run for long.
            _ if self.repeats()
                && !(self.tag || self.tagstring.is_some() || self.results.is_some()) =>
            {
                Order::None
            }
            _ => Order::End,
        }
    }

    /// How many jobs run at a time if `cpus` CPUs may be used.
    fn width(&self, cpus: usize, near: Option<&Near>) -> Result<usize, Failure> {
        if !self.tty {
            let usual = near.and_then(Near::width).map_or(Width::Percent(100), Width::Number);
            return Ok(self.jobs.unwrap_or(usual).of(cpus));
        }
        if self.jobs.is_some_and(|jobs| jobs != Width::Number(1)) {
            return Err(Failure::input(
                "--tty and --jobs: jobs have the terminal one at a time; leave out one of the two",
            ));
        }
        if let Err(error) = File::open("/dev/tty") {
            return Err(Failure::input(format!(
                "--tty: there is no terminal ({error}); leave out --tty, or run the command from a terminal"
            )));
        }
        Ok(1)
    }

    /// `None` if the list of weights is asked for.
    fn weights(&self) -> Result<Option<Weights>, Failure> {
        let mut weights = Weights::default();
        for weight in &self.weight {
            let Weight::Set(name, value) = weight else { return Ok(None) };
            weights
                .set(name, *value)
                .map_err(|error| Failure::input(format!("--weight: {error}")))?;
        }
        Ok(Some(weights))
    }

    /// The homes. Isolated CPUs belong to none, unless a node is named, by `--home` or `--near`, that has no others.
    fn homes(
        &self,
        machine: &Machine,
        weights: Weights,
        near: Option<&Near>,
    ) -> Result<Homes, Failure> {
        let among = |cpus| self.homes_among(&cpus, machine, weights.clone(), near);
        let limits = &machine.limits;
        among(limits.housekeeping()).or_else(|_| among(limits.effective()))
    }

    fn homes_among(
        &self,
        allowed: &CpuSet,
        machine: &Machine,
        weights: Weights,
        near: Option<&Near>,
    ) -> Result<Homes, Failure> {
        if self.strict && self.home == Home::None {
            return Err(Failure::input(
                "--strict: with --home none there is no home to bind jobs to; leave out one of the two",
            ));
        }
        let nodes = match self.scope {
            Scope::Numa => Nodes::of(&machine.topology, allowed),
            Scope::Cache => Nodes::by_cache(&machine.topology, allowed),
        };
        let fixed = match self.home {
            Home::Auto | Home::None => None,
            Home::Node(id) => {
                let index = nodes.index_of(id);
                Some(index.map_err(|error| Failure::input(format!("--home {id}: {error}")))?)
            }
        };
        let nodes = if self.home == Home::None { nodes.joined() } else { nodes };
        let homes = Homes { nodes, fixed, strict: self.strict, weights, slots: Vec::new() };
        near.map_or(Ok(homes.clone()), |near| near.homes(homes))
    }

    fn tree(
        &self,
        machine: &Machine,
        homes: Homes,
        near: Option<&Near>,
    ) -> Result<tree::Tree, Failure> {
        if self.command.is_empty() {
            return Err(Failure::input(
                "no command: give one, as in `nearq run --tree -- make -j20`",
            ));
        }
        if self.command.iter().any(|word| word == ":::") {
            return Err(Failure::input(
                "--tree runs one command and has no inputs: leave out the ::: and everything after it, or leave out --tree",
            ));
        }
        Ok(tree::Tree {
            command: self.command.clone(),
            without: why_none(self.home, &homes.nodes),
            widest: near.map_or_else(|| machine.limits.effective(), |_| homes.nodes.cpus()),
            variables: near.map_or_else(Vec::new, |near| near.variables().to_vec()),
            nodes: homes.nodes,
            fixed: homes.fixed,
            weights: homes.weights,
            choose: match self.choose {
                Choose::Exec => TreeChoose::Exec,
                Choose::Fork => TreeChoose::Fork,
                Choose::Lazy => TreeChoose::Lazy,
            },
            strict: homes.strict,
            verbose: self.verbose,
            summary: self.summary,
            json: self.json.clone(),
        })
    }
}

/// The bytes of an argument.
fn bytes(word: &OsString) -> Vec<u8> {
    word.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;

    #[test]
    fn the_option_or_the_machine_explains_missing_homes() {
        let machine = |text: &str| {
            let machine = Topology::from_synthetic(text).unwrap();
            Nodes::of(&machine, machine.online())
        };
        let (one, several) = (machine("core:4"), machine("numa:2 core:2"));
        for home in [Home::Auto, Home::Node(0)] {
            assert!(why_none(home, &one).unwrap().contains("belong to one node"));
            assert_eq!(why_none(home, &several), None);
        }
        // With `--home none`, all nodes are joined into one.
        for nodes in [one, several.joined(), several] {
            let why = why_none(Home::None, &nodes).unwrap();
            assert!(why.contains("--home none") && !why.contains("one node"), "{why}");
            let weights = Weights::default();
            let homes = Homes { nodes, fixed: None, strict: false, weights, slots: Vec::new() };
            assert!(about(&homes, Home::None).contains(why));
        }
    }
}

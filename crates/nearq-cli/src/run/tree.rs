//! `nearq run --tree`: runs one command; each program that it executes chooses its home.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use nearq_command::screen::{Side, fitted, width_of};
use nearq_home::{Nodes, Weights};
use nearq_processes::tree::{self, Choose, Summary};
use nearq_topology::CpuSet;
use serde_json::{Value, json};

use super::account::seconds;
use crate::output::{self, Failure};

/// The name of the library's file.
const LIBRARY: &str = "libnearq_tree.so";
/// The variable that names its path.
const VARIABLE: &str = "NEARQ_TREE_LIBRARY";

/// What to run, and how.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The command and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Variables that programs get.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Why there are no homes, if there are none.
    pub(crate) without: Option<&'static str>,
    /// The available homes.
    pub(crate) nodes: Nodes,
    /// The index of the home of all programs, if all are to have the same home.
    pub(crate) fixed: Option<usize>,
    /// The CPUs that the tree may use.
    pub(crate) widest: CpuSet,
    /// How homes are kept.
    pub(crate) weights: Weights,
    /// When programs choose their home.
    pub(crate) choose: Choose,
    /// Programs are never let out of their home.
    pub(crate) strict: bool,
    /// Whether to print the available homes beforehand.
    pub(crate) verbose: bool,
    /// Whether to print a summary to standard error afterwards.
    pub(crate) summary: bool,
    /// Where to write everything that is known at the end.
    pub(crate) json: Option<PathBuf>,
}

/// Runs the command. Ends this process with the exit status or the signal of the command.
pub(crate) fn run(options: &Tree) -> Result<ExitCode, Failure> {
    let nodes = &options.nodes;
    if let Some(why) = options.without {
        if options.verbose {
            print_notice(&format!("homes: {why}; the command runs without nearq's library"));
        }
        if options.summary || options.json.is_some() {
            print_notice(&format!("--summary and --json: nothing is counted without homes: {why}"));
        }
        let error = tree::become_command(&options.command, &options.variables);
        return Err(Failure::with_status(error.exit_status(), error));
    }
    let library = library()?;
    if options.verbose {
        let all: Vec<String> =
            nodes.iter().map(|node| format!("{} (CPUs {})", node.id, node.cpus)).collect();
        let how = if options.strict { "strict" } else { "soft" };
        let which = match options.fixed {
            Some(home) => format!("node {} for all programs, of", nodes.get(home).id),
            None => format!("the least loaded at {}, of", options.choose.as_str()),
        };
        print_notice(&format!("homes: {which} {}; {how}", all.join(", ")));
    }
    let tree = tree::Tree {
        nodes: nodes.clone(),
        widest: options.widest.clone(),
        weights: options.weights.clone(),
        choose: options.choose,
        fixed: options.fixed,
        strict: options.strict,
        variables: options.variables.clone(),
        library,
        command: options.command.clone(),
    };
    let report = |summary: &Summary| {
        if options.summary {
            output::print_aside(&text(nodes, summary, width_of(&io::stderr())));
        }
        if let Some(path) = &options.json {
            // With `-`, the JSON goes to standard output, after the output of the command.
            if let Err(failure) = output::json_to("--json", path, &value(nodes, summary)) {
                failure.report("nearq");
            }
        }
    };
    match tree.run(&print_notice, report) {
        Ok(end) => end.follow(),
        Err(error) => Err(Failure::with_status(error.exit_status(), error)),
    }
}

fn print_notice(text: &str) {
    output::print_aside(&format!("nearq: {text}\n"));
}

/// Finds the library: at the path in the variable, beside this program, or where an installation puts it. If there is none, or the loader
/// cannot load it, the library inside this program is written to a file.
fn library() -> Result<PathBuf, Failure> {
    if let Some(named) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        let named = PathBuf::from(named);
        return loadable(&named).map_err(|why| {
            Failure::input(format!(
                "{VARIABLE}: --tree cannot use {}: {why}; set it to the path of {LIBRARY}, or unset it",
                named.display()
            ))
        });
    }
    let executable = env::current_exe().unwrap_or_default();
    let folder = executable.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib/nearq").join(LIBRARY)];
    if let Some(found) = places.iter().find_map(|path| loadable(path).ok()) {
        return Ok(found);
    }
    tree::library::file().map_err(|error| {
        Failure::run(format!("--tree: {error}; or set {VARIABLE} to the path of {LIBRARY}"))
    })
}

/// The path by which the loader can load that file, or why it cannot.
fn loadable(file: &Path) -> Result<PathBuf, &'static str> {
    let path = fs::canonicalize(file).ok().filter(|path| path.is_file());
    let path = path.ok_or("there is no such file")?;
    // The loader ends a name at a blank or a colon.
    if path.to_str().is_none_or(|path| path.contains([' ', ':'])) {
        return Err(
            "the loader cannot load it: its path contains a blank or a colon, or is not UTF-8",
        );
    }
    Ok(path)
}

/// The summary as text, its table in lines of at most `width` columns if that is given.
fn text(nodes: &Nodes, summary: &Summary, width: Option<usize>) -> String {
    let head = ["HOME", "CPUS", "CHOSEN", "AT-HOME", "AWAY"].map(String::from);
    let mut rows = vec![head.to_vec()];
    for (index, node) in nodes.iter().enumerate() {
        let (home, away) = summary.cpu_time.get(index).copied().unwrap_or_default();
        let chosen = summary.counts.chosen.get(index).copied().unwrap_or(0);
        rows.push(vec![
            node.id.to_string(),
            node.cpus.to_string(),
            chosen.to_string(),
            seconds(home),
            seconds(away),
        ]);
    }
    let sides = [Side::Right, Side::Left, Side::Right, Side::Right, Side::Right];
    // The home, and the CPU time on it and elsewhere, stay.
    let mut text = fitted(&sides, &rows, &[1, 2], width);
    let counts = &summary.counts;
    let lines = [
        (summary.let_out, ["time let out of a home", "times let out of a home"]),
        (summary.brought_home, ["time brought back", "times brought back"]),
        (
            summary.used,
            [
                "home assigned to a process that had run for some time",
                "homes assigned to processes that had run for some time",
            ],
        ),
        (
            summary.inherited,
            [
                "home kept by a process whose parent had ended",
                "homes kept by processes whose parent had ended",
            ],
        ),
        (
            counts.left_alone,
            [
                "program left alone because it chose its own CPUs",
                "programs left alone because they chose their own CPUs",
            ],
        ),
        (
            counts.full,
            [
                "program without a home: the table was full",
                "programs without a home: the table was full",
            ],
        ),
        (
            counts.affinity_refused,
            [
                "program without a home: setting its CPUs was refused",
                "programs without a home: setting their CPUs was refused",
            ],
        ),
        (
            counts.memory_refused,
            [
                "program without memory from its home: setting the memory policy was refused",
                "programs without memory from their home: setting the memory policy was refused",
            ],
        ),
        (
            summary.statically_linked,
            [
                "statically linked program, which chooses no home",
                "statically linked programs, which choose no home",
            ],
        ),
        (
            summary.more_rights,
            [
                "program with more privileges than its caller, which chooses no home",
                "programs with more privileges than their caller, which choose no home",
            ],
        ),
        (
            summary.strangers,
            [
                "entry of a process that does not belong to this tree, removed",
                "entries of processes that do not belong to this tree, removed",
            ],
        ),
        (
            summary.still_narrow as u64,
            ["thread that could not get all CPUs back", "threads that could not get all CPUs back"],
        ),
    ];
    for (count, [one, several]) in lines {
        if count > 0 {
            text += &format!("{count} {}\n", if count == 1 { one } else { several });
        }
    }
    text
}

/// The summary as JSON.
fn value(nodes: &Nodes, summary: &Summary) -> Value {
    let homes: Vec<Value> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| {
            let (home, away) = summary.cpu_time.get(index).copied().unwrap_or_default();
            json!({
                "home": node.id,
                "memory": node.memory,
                "cpus": node.cpus.iter().collect::<Vec<_>>(),
                "chosen": summary.counts.chosen.get(index),
                "cpu_home_s": home.as_secs_f64(),
                "cpu_away_s": away.as_secs_f64(),
            })
        })
        .collect();
    json!({
        "homes": homes,
        "let_out": summary.let_out,
        "brought_home": summary.brought_home,
        "given_late": summary.used,
        "inherited": summary.inherited,
        "left_alone": summary.counts.left_alone,
        "table_full": summary.counts.full,
        "affinity_refused": summary.counts.affinity_refused,
        "memory_refused": summary.counts.memory_refused,
        "statically_linked": summary.statically_linked,
        "more_rights": summary.more_rights,
        "strangers": summary.strangers,
        "still_narrow": summary.still_narrow,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_summary_has_only_what_happened() {
        let places = [(0, "0-3".parse().unwrap()), (1, "4-7".parse().unwrap())];
        let nodes = Nodes::pretended(&places, &[vec![10, 20], vec![20, 10]]);
        let mut summary = Summary::default();
        summary.counts.chosen = vec![12, 3];
        summary.cpu_time = vec![(Duration::from_millis(1250), Duration::from_millis(10)); 2];
        summary.let_out = 2;
        summary.inherited = 1;
        assert_eq!(
            text(&nodes, &summary, None),
            "HOME  CPUS  CHOSEN  AT-HOME  AWAY\n\
             \x20  0  0-3       12     1.25  0.01\n\
             \x20  1  4-7        3     1.25  0.01\n\
             2 times let out of a home\n\
             1 home kept by a process whose parent had ended\n"
        );
        let narrow = text(&nodes, &summary, Some(30));
        assert!(narrow.starts_with("HOME  CHOSEN  AT-HOME  AWAY\n"), "{narrow}");
        let value = value(&nodes, &summary);
        assert_eq!(value["homes"][1]["chosen"], 3);
        assert_eq!(value["let_out"], 2);
    }
}

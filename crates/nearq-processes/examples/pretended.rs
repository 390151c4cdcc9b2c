//! A tree of processes on pretended homes on a machine of one node: the CPUs that may be used, one home each or in two halves.
//! For the tests of trees.
//!
//! ```text
//! pretended [choose=exec|fork|lazy] [home=0|1] [strict] [memory=NODE] [summary=FILE] -- COMMAND ARGUMENTS
//! ```

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::ffi::OsString;
use std::fs;

use nearq_home::{Nodes, Weights};
use nearq_platform::{Linux, Placement as _, Threads as _};
use nearq_processes::tree::{Choose, Summary, Tree, library};
use nearq_topology::CpuSet;

fn main() {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let at = words.iter().position(|word| word == "--").expect("a command behind --");
    let command = words.split_off(at + 1);
    let text = |word: &OsString| word.to_str().expect("options are text").to_owned();
    let options: Vec<String> = words[..at].iter().map(text).collect();
    let value = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));

    let allowed = Linux::affinity(Linux::current_thread()).expect("a thread knows its CPUs");
    let memory = value("memory=").map_or(0, |node| node.parse().expect("a number"));
    let cpus: Vec<usize> = allowed.iter().collect();
    let (first, second) = cpus.split_at(cpus.len() / 2);
    let halves = [first, second].map(|half| half.iter().copied().collect::<CpuSet>());
    let places = halves.map(|half| (memory, half));
    let library = library::file().expect("this machine can have the library");
    let tree = Tree {
        variables: Vec::new(),
        nodes: Nodes::pretended(&places, &[vec![10, 20], vec![20, 10]]),
        widest: allowed,
        weights: Weights::default(),
        choose: match value("choose=") {
            Some("fork") => Choose::Fork,
            Some("lazy") => Choose::Lazy,
            _ => Choose::Exec,
        },
        fixed: value("home=").map(|home| home.parse().expect("a number")),
        strict: options.iter().any(|option| option == "strict"),
        library,
        command,
    };
    let report = |summary: &Summary| {
        if let Some(file) = value("summary=") {
            fs::write(file, format!("{summary:#?}\n")).expect("the summary can be written");
        }
    };
    match tree.run(&|text| eprintln!("pretended: {text}"), report) {
        Ok(end) => end.follow(),
        Err(error) => {
            eprintln!("pretended: {error}");
            std::process::exit(error.exit_status().into());
        }
    }
}

//! The environment variables that do not correspond to a setting of [`settings_table`](crate::settings_table).

/// The program that reads a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Programs that use the library.
    Program,
    /// Programs that use rayon on nearq's workers, or on a pool for each pod.
    Rayon,
    /// Programs under the preload library.
    Preload,
    /// The command `nearq`, and the programs that it starts.
    Command,
    /// Programs under `nearq run --tree`.
    Tree,
    /// The project's own tests.
    Tests,
}

impl Reader {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Reader::Program => "programs",
            Reader::Rayon => "programs that use rayon with nearq",
            Reader::Preload => "programs under the preload library",
            Reader::Command => "the command nearq",
            Reader::Tree => "programs under nearq run --tree",
            Reader::Tests => "the project's tests",
        }
    }
}

/// A variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The program that reads it.
    pub reader: Reader,
    /// The allowed values, in words.
    pub values: &'static str,
    /// What it does, in a sentence.
    pub what: &'static str,
}

const fn variable(
    name: &'static str,
    reader: Reader,
    values: &'static str,
    what: &'static str,
) -> Variable {
    Variable { name, reader, values, what }
}

const SWITCH: &str = "0 or 1";

/// The variables, by the program that reads them.
pub const VARIABLES: &[Variable] = &[
    variable(
        "NEARQ_CONTROL",
        Reader::Program,
        "off, read or full; read if not set. 0, no and false mean off; 1, on, yes and true mean read; anything else means off",
        "What tools of the process's user may do: nothing, inspect, or inspect and change; root may always change what can be inspected",
    ),
    variable(
        "NEARQ_HOME_WEIGHTS",
        Reader::Program,
        "NAME=NUMBER, several with commas between them",
        "The weights for homes; docs/home.md lists their names",
    ),
    variable(
        "NEARQ_LOCK_DOMAINS",
        Reader::Program,
        "cache (or l3), node or package; cache if not set",
        "The groups of CPUs for which mutexes have queues, and reader-writer locks counts",
    ),
    variable(
        "NEARQ_RAYON_SCOPE",
        Reader::Rayon,
        "cpu, smt, cache, cache_shard, numa or system",
        "The scope of all pools of nearq's rayon-core, and of the pools that a program shares with nearq-rayon",
    ),
    variable(
        "NEARQ_RAYON_STRICT",
        Reader::Rayon,
        SWITCH,
        "Whether the workers of nearq's rayon-core never leave their pod",
    ),
    variable(
        "NEARQ_RAYON_NICE",
        Reader::Rayon,
        "-20 (most favoured) to 19",
        "The nice value of the workers of nearq's rayon-core",
    ),
    variable(
        "NEARQ_PRELOAD_ONLY",
        Reader::Preload,
        "names of programs, with commas between them",
        "Replace mutexes only in programs with these names",
    ),
    variable(
        "NEARQ_PRELOAD_NOT",
        Reader::Preload,
        "names of programs, with commas between them",
        "Do not replace mutexes in these programs",
    ),
    variable(
        "NEARQ_PRELOAD_STATISTICS",
        Reader::Preload,
        SWITCH,
        "Print a line to standard error at exit: how often threads had to wait, and how",
    ),
    variable(
        "NEARQ_RUN",
        Reader::Command,
        "set by `nearq run` for its jobs",
        "Marks the processes of a run, so that they can be ended if `nearq` is killed; do not set it by hand",
    ),
    variable(
        "NEARQ_JOB",
        Reader::Command,
        "set by `nearq run --from` for its jobs",
        "The stream of the job and its sequence there, as in JOBS:17: a name that it has whenever it runs",
    ),
    variable(
        "NEARQ_JOB_TRIES",
        Reader::Command,
        "set by `nearq run --from` for its jobs",
        "How many times the job was given to a worker, this time included",
    ),
    variable(
        "NEARQ_TREE_LIBRARY",
        Reader::Command,
        "a file",
        "The path of libnearq_tree.so, which `nearq run --tree` preloads; if not set: beside nearq, or in ../lib/nearq/, or else the one inside nearq",
    ),
    variable(
        "NEARQ_TREE_CHOOSE",
        Reader::Tree,
        "exec, fork or lazy; set by `nearq run --tree`; anything else means exec",
        "When a program chooses its home: when it is executed, also when it forks, or only after 50 ms of CPU time",
    ),
    variable(
        "NEARQ_TREE",
        Reader::Tree,
        "set by `nearq run --tree`",
        "Where the tree's table is, and how the inherited CPUs were changed; programs without it are left alone",
    ),
    variable(
        "NEARQ_VARIANT",
        Reader::Tests,
        "the name of a variant; .ci/variants lists them",
        "The runtime leaves out that step; only in the copy of the checkout into which `cargo xtask variants` plants them",
    ),
    variable(
        "NEARQ_COMMAND",
        Reader::Tests,
        "a file",
        "The command `nearq`, for the tests of the Python package",
    ),
    variable(
        "NEARQ_FREEZE",
        Reader::Tests,
        "write",
        "Tests that compare a command's output with a recorded file write the file instead",
    ),
    variable(
        "NEARQ_HOSTILE",
        Reader::Tests,
        "a number",
        "How many hostile connections the control socket's test makes",
    ),
    variable(
        "NEARQ_LONG",
        Reader::Tests,
        "1",
        "Tests that have two sizes use the larger one, as in .ci/long",
    ),
    variable(
        "NEARQ_LONG_MINUTES",
        Reader::Tests,
        "minutes",
        "How long the open-ended steps of .ci/long run: 10 if not set",
    ),
    variable(
        "NEARQ_MACHINES",
        Reader::Tests,
        "a folder",
        "Where descriptions of machines are, to compare with the topology's",
    ),
    variable("NEARQ_SOAK_SEEDS", Reader::Tests, "a number", "How many seeds the soak runs"),
    variable("NEARQ_SOAK_FROM", Reader::Tests, "a number", "The first of those seeds"),
    variable(
        "NEARQ_STRESS_SECONDS",
        Reader::Tests,
        "seconds",
        "How long the loadable scheduler is under load on each shape of a machine",
    ),
    variable(
        "NEARQ_STRESS_SHAPES",
        Reader::Tests,
        "names of shapes, with spaces between them",
        "On which shapes of a machine it is under load: all if not set",
    ),
    variable("NEARQ_TORTURE_SECONDS", Reader::Tests, "seconds", "How long the mutex is tortured"),
    variable("NEARQ_TORTURE_SEED", Reader::Tests, "a number", "The torture's seed"),
    variable(
        "NEARQ_VM",
        Reader::Tests,
        "a folder",
        "Where the script that boots virtual machines is",
    ),
    variable(
        "NEARQ_VM_KERNEL",
        Reader::Tests,
        "a file",
        "The kernel that virtual machines boot, in place of the script's own",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::settings_table;

    const PREFIX: &str = "NEARQ_";
    /// Names that tests invent, and pass to processes of their own.
    const INVENTED: [&str; 5] = ["TEST_", "X", "Y", "A_SETTING_THAT_NOBODY_HAS", "RAYON"];

    /// All files below a folder that may contain code.
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("the project can be read") {
            let path = entry.expect("the project can be read").path();
            let name = path.file_name().expect("it has a name").to_string_lossy();
            let extension = path.extension().map(|extension| extension.to_string_lossy());
            if path.is_dir() {
                if name != "target" {
                    sources(&path, found);
                }
            } else if matches!(extension.as_deref(), None | Some("rs" | "sh" | "c" | "py" | "toml"))
            {
                found.push(path);
            }
        }
    }

    /// The variables that a text names.
    fn named(text: &str) -> impl Iterator<Item = String> {
        text.split(PREFIX).skip(1).map(|rest| {
            let end =
                rest.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_');
            format!("{PREFIX}{}", &rest[..end.unwrap_or(rest.len())])
        })
    }

    #[test]
    fn every_variable_of_the_project_is_in_one_table() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut files = Vec::new();
        for folder in
            ["crates", "compat", "examples", "packaging", "python", "verify", "xtask", ".ci"]
        {
            sources(&root.join(folder), &mut files);
        }
        let names =
            settings_table::all().map(|desc| desc.environment).filter(|name| !name.is_empty());
        let listed: Vec<&str> =
            names.chain(VARIABLES.iter().map(|variable| variable.name)).collect();
        let once: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(once.len(), listed.len(), "each occurs once");

        let mut used = BTreeSet::new();
        for file in files.iter().filter(|file| !file.ends_with("src/variables.rs")) {
            let Ok(text) = fs::read_to_string(file) else { continue };
            used.extend(named(&text));
        }
        let invented = |name: &str| {
            let name = &name[PREFIX.len()..];
            name.is_empty()
                || INVENTED
                    .iter()
                    .any(|one| *one == name || one.ends_with('_') && name.starts_with(one))
        };
        let missing: Vec<&String> =
            used.iter().filter(|name| !once.contains(name.as_str()) && !invented(name)).collect();
        assert!(missing.is_empty(), "in neither table: {missing:?}");
        let unused: Vec<&&str> = once.iter().filter(|name| !used.contains(**name)).collect();
        assert!(unused.is_empty(), "nothing reads {unused:?}");
    }
}

//! `nearq bench` and `nearq sim`: this program replaces itself by another program, `nearq-bench`, with the same arguments. `nearq-bench` is
//! separate because building it takes longer than building everything else.
//!
//! `nearq-bench` is searched for beside this program, then in the folders of PATH. If `cargo run` started this program from cargo's target
//! directory, cargo first builds `nearq-bench`, in the same profile and target directory. So it exists in a fresh checkout, and is never
//! older than its sources.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use nearq_command::output::page;
use nearq_processes::jobs::find;

use crate::output::{self, Failure};

/// The program.
const EXPERIMENTS: &str = "nearq-bench";
/// The commands of `nearq-bench`: the first argument selects one.
pub(crate) const COMMANDS: [&str; 2] = ["bench", "sim"];
/// A file that cargo creates in each target directory.
const TAG: &str = "CACHEDIR.TAG";

/// The arguments of these commands, `--help` included: `nearq-bench` parses them.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Whether the arguments are `help bench` or the like.
pub(crate) fn help_is_asked_for(mut arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.next().is_some_and(|first| first == "help")
        && arguments.next().is_some_and(|second| COMMANDS.iter().any(|name| second == *name))
}

/// Becomes `nearq-bench`, with this program's arguments; returns only if that fails.
pub(crate) fn run() -> Result<(), Failure> {
    let executable = env::current_exe()
        .map_err(|error| Failure::run(format!("cannot find the file of this program: {error}")))?;
    if let Some(build) = Build::of(&executable, |name| env::var_os(name)) {
        build.run()?;
    }
    output::open()?;
    become_program(env::args_os().skip(1))
}

/// Becomes `nearq-bench` as it is, with these arguments; returns only if that fails.
pub(crate) fn become_program(arguments: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let program = program(&env::current_exe().unwrap_or_default(), env::var_os("PATH").as_deref())?;
    let error = Command::new(&program).args(arguments).exec();
    Err(Failure::run(format!("{}: {error}", program.display())))
}

/// Whether there is a `nearq-bench`.
pub(crate) fn is_there() -> bool {
    program(&env::current_exe().unwrap_or_default(), env::var_os("PATH").as_deref()).is_ok()
}

/// The file of `nearq-bench`: beside `executable`, or else in the folders of `path`.
fn program(executable: &Path, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let beside = executable.with_file_name(EXPERIMENTS);
    let found = find(beside.as_os_str().as_bytes(), None)
        .or_else(|_| find(EXPERIMENTS.as_bytes(), path))
        .map_err(|_| {
            Failure::input(format!(
                "`bench` and `sim` need the program {EXPERIMENTS}, which is neither {} nor in a folder of PATH; \
                 build it in the sources with `cargo build --release --package {EXPERIMENTS}`, and copy it to one of these places",
                beside.display()
            ))
        })?;
    Ok(OsString::from_vec(found.into_bytes()).into())
}

/// How to have cargo build `nearq-bench` beside this program.
#[derive(Debug, PartialEq)]
struct Build {
    cargo: OsString,
    profile: OsString,
    /// The target directory, and the target if one was given.
    folder: PathBuf,
    target: Option<OsString>,
}

impl Build {
    /// The information that `cargo run` puts into the environment, if `cargo run` started this program.
    fn of(executable: &Path, variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let cargo = variable("CARGO")?;
        // `cargo run` of another package, whose target directory is not ours, sets the variable too.
        if variable("CARGO_MANIFEST_DIR")? != env!("CARGO_MANIFEST_DIR") {
            return None;
        }
        // TARGET-DIRECTORY/PROFILE/nearq or TARGET-DIRECTORY/TARGET/PROFILE/nearq; in the second case cargo may tag both folders.
        let profile = executable.parent()?;
        let above = profile.parent()?;
        let is_tagged = |folder: &&Path| folder.join(TAG).is_file();
        let (folder, target) = match above.parent().filter(is_tagged) {
            Some(folder) => (folder, Some(above.file_name()?.to_owned())),
            None => (Some(above).filter(is_tagged)?, None),
        };
        let profile = match profile.file_name()? {
            debug if debug == "debug" => OsStr::new("dev"),
            other => other,
        };
        Some(Self { cargo, profile: profile.to_owned(), folder: folder.to_owned(), target })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.cargo);
        command.args(["build", "--color", "never", "--package", EXPERIMENTS]);
        command.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
        command.arg("--profile").arg(&self.profile).arg("--target-dir").arg(&self.folder);
        if let Some(target) = &self.target {
            command.arg("--target").arg(target);
        }
        command
    }

    /// Builds `nearq-bench`. Prints nothing if there is nothing to do.
    fn run(&self) -> Result<(), Failure> {
        let failed = |why: &dyn std::fmt::Display| {
            Failure::run(format!("{EXPERIMENTS} is not built: {why}"))
        };
        let mut cargo = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&format!("{}: {error}", self.cargo.display())))?;
        let stderr = cargo.stderr.take().expect("it is piped");
        // Stop at a line that cannot be read: the exit status says how cargo ended.
        relay(BufReader::new(stderr).lines().map_while(Result::ok), &mut io::stderr());
        let status = cargo.wait().map_err(|error| failed(&error))?;
        if status.success() { Ok(()) } else { Err(failed(&format!("`cargo build`: {status}"))) }
    }
}

/// Passes on cargo's messages while it builds, after a line that says what is built. Leaves out the message that it has finished.
fn relay(stderr: impl Iterator<Item = String>, out: &mut impl io::Write) {
    let mut is_first = true;
    for line in stderr.filter(|line| !line.trim_start().starts_with("Finished")) {
        let note = if std::mem::take(&mut is_first) {
            format!("nearq: cargo builds {EXPERIMENTS}, which `bench` and `sim` need\n")
        } else {
            String::new()
        };
        // If standard error is not read, the build continues.
        let _ = writeln!(out, "{note}{}", page(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A temporary folder for one test, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("nearq-experiments-{name}-{}", std::process::id());
            let folder = Self(env::temp_dir().join(name));
            fs::create_dir_all(&folder.0).unwrap();
            folder
        }

        /// Makes a folder with a tag.
        fn tagged(&self, name: &str) -> PathBuf {
            let folder = self.0.join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(TAG), "").unwrap();
            folder
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn under_cargo(name: &str) -> Option<OsString> {
        match name {
            "CARGO" => Some("/bin/cargo".into()),
            "CARGO_MANIFEST_DIR" => Some(env!("CARGO_MANIFEST_DIR").into()),
            _ => None,
        }
    }

    fn program_file(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // An existing program: a newly written one cannot be executed if another thread forks while the file is open for writing.
        std::os::unix::fs::symlink("/bin/sh", path).unwrap();
    }

    #[test]
    fn the_program_is_found_beside_the_command_and_then_in_path() {
        let folder = Folder::new("found");
        let executable = folder.0.join("bin/nearq");
        let (beside, far) = (folder.0.join("bin/nearq-bench"), folder.0.join("far/nearq-bench"));
        let path = OsString::from(format!("/nowhere:{}", folder.0.join("far").display()));
        let line = program(&executable, Some(&path)).unwrap_err().to_string();
        for part in
            [beside.to_str().unwrap(), "PATH", "cargo build --release --package nearq-bench"]
        {
            assert!(line.contains(part) && !line.contains('\n'), "{part} is missing from {line}");
        }
        program_file(&far);
        assert_eq!(program(&executable, Some(&path)).unwrap(), far);
        assert!(program(&executable, Some(OsStr::new("/nowhere"))).is_err());
        program_file(&beside);
        assert_eq!(program(&executable, Some(&path)).unwrap(), beside);
    }

    #[test]
    fn cargo_gets_the_profile_and_target_directory_of_the_command() {
        let folder = Folder::new("cargo");
        let target = folder.tagged("built");
        let build = |executable: &str| Build::of(&target.join(executable), under_cargo);
        let expected = |profile: &str, target_name: Option<&str>| Build {
            cargo: "/bin/cargo".into(),
            profile: profile.into(),
            folder: target.clone(),
            target: target_name.map(OsString::from),
        };
        assert_eq!(build("release/nearq"), Some(expected("release", None)));
        assert_eq!(build("debug/nearq"), Some(expected("dev", None)));
        let musl = "x86_64-unknown-linux-musl";
        assert_eq!(build(&format!("{musl}/debug/nearq")), Some(expected("dev", Some(musl))));
        folder.tagged(&format!("built/{musl}"));
        assert_eq!(build(&format!("{musl}/fast/nearq")), Some(expected("fast", Some(musl))));
        let command = expected("release", Some(musl)).command();
        let arguments: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        let line = arguments.join(" ");
        for part in [
            "build ",
            "--package nearq-bench",
            "nearq-cli/Cargo.toml",
            "--profile release",
            &format!("--target-dir {}", target.display()),
            &format!("--target {musl}"),
        ] {
            assert!(line.contains(part), "{part} is missing from {line}");
        }
    }

    #[test]
    fn nothing_is_built_without_cargo_run() {
        let folder = Folder::new("installed");
        let executable = folder.tagged("target").join("release/nearq");
        assert!(Build::of(&executable, under_cargo).is_some());
        assert_eq!(Build::of(&executable, |_| None), None);
        let other = |name: &str| {
            if name == "CARGO_MANIFEST_DIR" { Some("/other".into()) } else { under_cargo(name) }
        };
        assert_eq!(Build::of(&executable, other), None, "another package was run");
        assert_eq!(Build::of(&folder.0.join("bin/nearq"), under_cargo), None, "it is installed");
        assert_eq!(Build::of(Path::new("/nearq"), under_cargo), None);
    }

    #[test]
    fn cargo_output_has_a_heading_and_no_work_is_silent() {
        let relayed = |lines: &[&str]| {
            let mut out = Vec::new();
            relay(lines.iter().map(ToString::to_string), &mut out);
            String::from_utf8(out).unwrap()
        };
        let finished = "    Finished `release` profile [optimized] target(s) in 0.06s";
        assert_eq!(relayed(&[finished]), "");
        assert_eq!(
            relayed(&["   Compiling aes", "   Compiling nearq-bench", finished]),
            "nearq: cargo builds nearq-bench, which `bench` and `sim` need\n   Compiling aes\n   Compiling nearq-bench\n"
        );
    }

    #[test]
    fn help_can_be_requested_in_two_ways() {
        let asked = |line: &str| help_is_asked_for(line.split(' ').map(OsString::from));
        assert!(asked("help bench") && asked("help sim soak"));
        assert!(
            !asked("help") && !asked("help topo") && !asked("topo bench") && !asked("benchmark")
        );
    }
}

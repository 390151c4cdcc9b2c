//! The job of a real machine: C files that are made up and compiled, or real files that are compressed; as items, and as a tree of
//! processes.

use super::{HOMES, Plan, SYSTEM, WRITEBACK};
use crate::Error;
use crate::harness::failed;
use nearq::{AffinityScope, Runtime, home::Home};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

// The job of a real machine: C files that are made up and compiled, or real files that are compressed.
//
// Compiling is what the document did. The files are made up, so that every machine has the same and none need be fetched: functions of
// arithmetic, arrays and branches, some hundred to a file, different in each. If there is no compiler, programs and libraries of the
// machine itself are compressed. One command is run for each file, and leaves one file behind as a sign that it is done.

/// What is done with each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Compiled.
    Compile,
    /// Compressed.
    Compress,
}

/// Functions of a C file. One takes some milliseconds to compile with optimisation. The tests check what is done with a file, not how long
/// that takes.
const FUNCTIONS: usize = if cfg!(test) { 10 } else { 120 };
/// The least and the most bytes of a file that is compressed.
const SIZES: [u64; 2] = [1 << 20, 16 << 20];
/// Folders that this process has made: each has a name of its own.
static FOLDERS: AtomicUsize = AtomicUsize::new(0);
/// Where files to compress are searched for.
const PLACES: [&str; 4] = ["/usr/bin", "/usr/lib", "/lib", "/usr/local/bin"];

impl Kind {
    /// All, by their names.
    pub(super) const ALL: [(&str, Kind); 2] =
        [("compile", Kind::Compile), ("compress", Kind::Compress)];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Compile => "compile",
            Kind::Compress => "compress",
        }
    }
}

/// The files, and what is done with each. Its folder is removed with it.
#[derive(Debug)]
pub struct Job {
    kind: Kind,
    /// The program and its arguments before those of the file.
    program: Vec<String>,
    folder: PathBuf,
    inputs: Vec<PathBuf>,
}

impl Job {
    /// Makes or finds `files` files.
    pub fn prepare(kind: Option<Kind>, files: usize, folder: Option<&Path>) -> Result<Self, Error> {
        let compiler = ["cc", "gcc", "clang"].into_iter().find(|name| works(name, "--version"));
        let kind = kind.unwrap_or(if compiler.is_some() { Kind::Compile } else { Kind::Compress });
        let program = match kind {
            Kind::Compile => {
                let compiler = compiler.ok_or_else(|| {
                    Error::input(
                        "--kind compile: there is no C compiler (cc, gcc, clang); install one, or give --kind compress",
                    )
                })?;
                vec![compiler.to_owned(), "-O2".into(), "-c".into()]
            }
            Kind::Compress => {
                let name = ["xz", "gzip"].into_iter().find(|name| works(name, "--version"));
                let name = name.ok_or_else(|| {
                    Error::input(
                        "there is neither a C compiler nor xz nor gzip; install one of them",
                    )
                })?;
                vec![name.to_owned(), "-c".into()]
            }
        };
        let parent = folder.map_or_else(std::env::temp_dir, Path::to_owned);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("nearq-bench-numa.{}.{number}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| failed_at(&folder, &error))?;
        let mut job = Job { kind, program, folder, inputs: Vec::new() };
        job.inputs = match kind {
            Kind::Compile => job.make_up(files)?,
            Kind::Compress => found(files)?,
        };
        Ok(job)
    }

    fn make_up(&self, files: usize) -> Result<Vec<PathBuf>, Error> {
        let name = |number| self.folder.join(format!("part{number}.c"));
        let inputs: Vec<PathBuf> = (0..files).map(name).collect();
        for (number, path) in inputs.iter().enumerate() {
            fs::write(path, c_file(number)).map_err(|error| failed_at(path, &error))?;
        }
        Ok(inputs)
    }

    /// What is done with each.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The command for a file, for people.
    pub fn command_line(&self) -> String {
        format!("{} FILE", self.program.join(" "))
    }

    /// The folder of its files and of what is made from them.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn output(&self, file: usize) -> PathBuf {
        self.folder.join(format!("part{file}.out"))
    }

    fn written(&self, file: usize) -> PathBuf {
        self.folder.join(format!("part{file}.written"))
    }

    /// Reads what a file's command has left in memory and writes it away, to the disk.
    fn write_back(&self, file: usize) -> Result<(), Error> {
        let (from, to) = (self.output(file), self.written(file));
        let bytes = fs::read(&from).map_err(|error| failed_at(&from, &error))?;
        let write = || {
            let mut file = fs::File::create(&to)?;
            file.write_all(&bytes)?;
            file.sync_data()
        };
        write().map_err(|error| failed_at(&to, &error))
    }

    /// The command for a file, as a line for a shell; it leaves its output behind.
    pub(super) fn shell(&self, file: usize) -> String {
        let quoted =
            |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
        let (input, output) = (quoted(&self.inputs[file]), quoted(&self.output(file)));
        match self.kind {
            Kind::Compile => format!("{} -o {output} {input}", self.program.join(" ")),
            Kind::Compress => format!("{} {input} > {output}", self.program.join(" ")),
        }
    }

    /// Does one file, in a process of its own, and waits for it.
    pub(super) fn do_one(&self, file: usize) -> Result<(), Error> {
        let (input, output) = (&self.inputs[file], self.output(file));
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).stdin(Stdio::null());
        match self.kind {
            Kind::Compile => command.arg("-o").arg(&output).arg(input),
            Kind::Compress => {
                let out = fs::File::create(&output).map_err(|error| failed_at(&output, &error))?;
                command.arg(input).stdout(out)
            }
        };
        let status = command
            .status()
            .map_err(|error| Error::run(format!("{}: {error}", self.program[0])))?;
        if status.success() {
            return Ok(());
        }
        Err(Error::run(format!("{} of {}: {status}", self.program.join(" "), input.display())))
    }

    /// Removes what earlier runs have left.
    pub(super) fn clean(&self) -> Result<(), Error> {
        let files = 0..self.inputs.len();
        for path in files.flat_map(|file| [self.output(file), self.written(file)]) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed_at(&path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that the first `files` files were done, and written away if they had to be.
    pub(super) fn check(&self, files: usize, written: bool) -> Result<(), Error> {
        let outputs = (0..files).map(|file| self.output(file));
        let copies = (0..files).filter(|_| written).map(|file| self.written(file));
        let missing = outputs
            .chain(copies)
            .find(|path| !fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0));
        missing
            .map_or(Ok(()), |path| Err(Error::run(format!("{} was not created", path.display()))))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether a program exists and ends with success.
pub(super) fn works(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn failed_at(path: &Path, error: &std::io::Error) -> Error {
    Error::run(format!("{}: {error}", path.display()))
}

/// Programs and libraries of this machine, the largest first, again and again if there are too few.
fn found(files: usize) -> Result<Vec<PathBuf>, Error> {
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for place in PLACES {
        let Ok(entries) = fs::read_dir(place) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let readable = fs::File::open(entry.path()).is_ok();
            if metadata.is_file() && (SIZES[0]..=SIZES[1]).contains(&metadata.len()) && readable {
                found.push((metadata.len(), entry.path()));
            }
        }
    }
    found.sort_unstable();
    if found.is_empty() {
        return Err(Error::run(format!(
            "there is no file of {} to {} MiB to compress in {}",
            SIZES[0] >> 20,
            SIZES[1] >> 20,
            PLACES.join(", ")
        )));
    }
    Ok(found.iter().rev().map(|(_, path)| path.clone()).cycle().take(files).collect())
}

/// A C file that is made up: always the same for one number, and different for each number.
fn c_file(number: usize) -> String {
    let mut random = fastrand::Rng::with_seed(number as u64 + 1);
    let mut text = String::from("typedef struct { long a[64]; int b[32]; double c[16]; } state;\n");
    for function in 0..FUNCTIONS {
        let _ = writeln!(
            text,
            "long f{number}_{function}(state *s, long x) {{\n  long y = {};",
            random.u16(..)
        );
        for _ in 0..random.usize(4..12) {
            let (one, two) = (random.usize(0..64), random.usize(0..64));
            let _ = match random.u8(0..5) {
                0 => writeln!(
                    text,
                    "  for (int i = 0; i < {two}; i++) y += s->a[i] * (x ^ s->a[{one}]);"
                ),
                1 => writeln!(
                    text,
                    "  if (y % {} == x) s->b[{}] ^= (int)(y >> {});",
                    one + 2,
                    two % 32,
                    one % 31
                ),
                2 => writeln!(text, "  s->c[{}] = s->c[{}] * 1.5 + (double)y;", one % 16, two % 16),
                3 => writeln!(
                    text,
                    "  switch (x & 7) {{ case 0: y ^= {one}; break; case 3: y += x * {two}; break; default: y -= {one}; }}"
                ),
                _ => writeln!(text, "  s->a[{one}] += y; x = (x << {}) | (y & {two});", one % 13),
            };
        }
        if function > 0 {
            let _ = writeln!(text, "  y += f{number}_{}(s, x + y);", random.usize(0..function));
        }
        text.push_str("  return x ^ y;\n}\n");
    }
    text
}

// The job as a tree of processes under `nearq run --tree`: `make`, or `xargs` and shells.

/// What starts the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Make,
    Xargs,
}

/// The available means to start them, or why there are none.
pub(super) fn maker() -> Result<Maker, String> {
    if works("make", "--version") {
        Ok(Maker::Make)
    } else if works("xargs", "--version") {
        Ok(Maker::Xargs)
    } else {
        Err("there is neither make nor xargs; install one of them".into())
    }
}

/// Does the job under the command `nearq`, with homes or without.
pub(super) fn do_as_tree(nearq: &Path, homes: bool, job: &Job, plan: &Plan) -> Result<(), Error> {
    let maker = maker().map_err(Error::run)?;
    let mut command = Command::new(nearq);
    command.args(["run", "--tree", "--home", if homes { "auto" } else { "none" }, "--"]);
    let failed = |error: std::io::Error| Error::run(format!("{}: {error}", nearq.display()));
    let status = match maker {
        Maker::Make => {
            let rules = job.folder().join("Makefile");
            fs::write(&rules, makefile(job, plan)).map_err(failed)?;
            let jobs = format!("-j{}", plan.jobs);
            command.args(["make", "-s", "-f"]).arg(&rules).arg(jobs).stdin(Stdio::null()).status()
        }
        Maker::Xargs => {
            let lines = job.folder().join("commands");
            let text: String = (0..plan.files).fold(String::new(), |mut text, file| {
                let _ = writeln!(text, "{}", job.shell(file));
                text
            });
            fs::write(&lines, text).map_err(failed)?;
            let input = fs::File::open(&lines).map_err(failed)?;
            let jobs = plan.jobs.to_string();
            command.args(["xargs", "-P", &jobs, "-d", "\n", "-n", "1", "sh", "-c"]);
            command.stdin(input).status()
        }
    };
    let status = status.map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::run(format!("{} run --tree: {status}", nearq.display())))
}

/// One target for each file. Inside a shell's quotes, characters that `make` would interpret are doubled.
fn makefile(job: &Job, plan: &Plan) -> String {
    let mut text = String::from("all:");
    for file in 0..plan.files {
        let _ = write!(text, " t{file}");
    }
    text.push('\n');
    for file in 0..plan.files {
        let _ = write!(text, "t{file}:\n\t{}\n", job.shell(file).replace('$', "$$"));
    }
    text
}

// The job as items of an unbound queue: each starts a process and waits for it.

/// The scope of a row's queue.
pub(super) fn scope_of(row: &str) -> AffinityScope {
    if [SYSTEM, WRITEBACK].contains(&row) { AffinityScope::System } else { AffinityScope::Numa }
}

/// Does the job on a runtime of its own.
pub(super) fn do_as_items(row: &str, job: &Arc<Job>, plan: &Plan) -> Result<(), Error> {
    let runtime = Runtime::builder().build().map_err(failed)?;
    let queue =
        runtime.workqueue_builder("files").affinity_scope(scope_of(row)).max_active(plan.jobs);
    let queue = queue.build().map_err(failed)?;
    let mut items = Vec::with_capacity(plan.files);
    for file in 0..plan.files {
        let (job, inside) = (Arc::clone(job), runtime.clone());
        let item = move || inside.block_in_place(|| job.do_one(file));
        items.push(if row == HOMES {
            queue.task().home(&Home::pick_in(&runtime)).spawn(item)
        } else {
            queue.spawn(item)
        });
    }
    items.into_iter().try_for_each(|item| item.join().map_err(failed)?)
}

/// Does the job by threads of its own, each of which waits for one command at a time. An item for each file writes its output away.
pub(super) fn do_with_writeback(row: &str, job: &Arc<Job>, plan: &Plan) -> Result<(), Error> {
    let runtime = Runtime::builder().build().map_err(failed)?;
    let queue = runtime.workqueue_builder("writeback").affinity_scope(scope_of(row));
    let queue = queue.build().map_err(failed)?;
    let next = AtomicUsize::new(0);
    let make = || {
        let mut items = Vec::new();
        loop {
            // Relaxed: only the number counts.
            let file = next.fetch_add(1, Ordering::Relaxed);
            if file >= plan.files {
                break;
            }
            job.do_one(file)?;
            let (job, inside) = (Arc::clone(job), runtime.clone());
            items.push(queue.spawn(move || inside.block_in_place(|| job.write_back(file))));
        }
        items.into_iter().try_for_each(|item| item.join().map_err(failed)?)
    };
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..plan.jobs.min(plan.files)).map(|_| scope.spawn(make)).collect();
        // The scope waits for those that are not joined here.
        makers.into_iter().try_for_each(|maker| {
            maker.join().unwrap_or_else(|_| Err(Error::run("a thread panicked")))
        })
    })
}

#[cfg(test)]
#[path = "tests/job.rs"]
mod job_tests;

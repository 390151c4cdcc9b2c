//! `nearq knobs`: all settings, as a page for the terminal and as `docs/knobs.md`.

use std::fmt::Write as _;

use clap::Args;
use nearq_command::screen;
use nearq_control::builder_settings::{BUILDER_SETTINGS, BuilderSetting};
use nearq_control::settings_table::{Owner, SettingDesc, of};
use nearq_control::variables::{Reader, VARIABLES, Variable};
use serde_json::{Value, json};

use crate::output::{self, Failure};

const LEGEND: &str = "\
For each key:
  values       the values that are allowed
  kernel       the corresponding file or parameter of the kernel
  environment  the variable that sets it when the process starts
  API          the call that sets it from within the program

Examples:
  nearq knobs | less
  nearq knobs affinity_scope
  nearq knobs --json | jq -r '.settings[] | select(.writable).key'
  nearq knobs --markdown > docs/knobs.md";

/// The arguments of `nearq knobs`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// Print only this one: a key, the name of a variable, or a call such as RuntimeBuilder::thread_limit
    #[arg(value_name = "KEY", conflicts_with = "markdown")]
    key: Option<String>,

    /// Print the tables in Markdown
    #[arg(long)]
    markdown: bool,

    /// Print an object: `settings`, each with its `owner` (queue or process) and whether it can be set, `calls` and `variables`
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
}

/// The variables that users may set.
fn variables() -> impl Iterator<Item = &'static Variable> {
    VARIABLES.iter().filter(|variable| variable.reader != Reader::Tests)
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if options.markdown {
        return output::print(&markdown());
    }
    if options.json {
        return output::json(&value(options.key.as_deref())?);
    }
    let width = screen::width();
    match &options.key {
        Some(key) => output::print_text(&entries_of(key, width).ok_or_else(|| unknown(key))?),
        None => output::print_text(&text(width)),
    }
}

/// Whether a setting has that key, or is set by that variable.
fn is_named(desc: &SettingDesc, key: &str) -> bool {
    desc.key == key || code_name(desc.environment) == key
}

/// All settings, calls and variables as JSON, or those of that name.
fn value(key: Option<&str>) -> Result<Value, Failure> {
    let mut settings = Vec::new();
    for (owner, name) in [(Owner::Queue, "queue"), (Owner::Process, "process")] {
        let wanted = of(owner).filter(|desc| key.is_none_or(|key| is_named(desc, key)));
        settings.extend(wanted.map(|desc| {
            json!({
                "key": desc.key,
                "owner": name,
                "writable": desc.writable,
                "what": desc.what,
                "values": desc.values,
                "kernel": desc.kernel,
                "environment": desc.environment,
                "api": desc.api,
            })
        }));
    }
    let calls = BUILDER_SETTINGS.iter().filter(|call| key.is_none_or(|key| call.api == key));
    let calls: Vec<Value> = calls
        .map(|call| json!({ "api": call.api, "values": call.values, "what": call.what }))
        .collect();
    let variables = variables().filter(|variable| key.is_none_or(|key| variable.name == key));
    let variables: Vec<Value> = variables
        .map(|variable| {
            json!({
                "name": variable.name,
                "reader": variable.reader.name(),
                "values": variable.values,
                "what": variable.what,
            })
        })
        .collect();
    match key {
        Some(key) if settings.is_empty() && calls.is_empty() && variables.is_empty() => {
            Err(unknown(key))
        }
        _ => Ok(json!({ "settings": settings, "calls": calls, "variables": variables })),
    }
}

/// The entries of that key or variable, each under its title.
fn entries_of(key: &str, width: usize) -> Option<String> {
    let mut found = String::new();
    for owner in [Owner::Queue, Owner::Process] {
        for desc in of(owner).filter(|desc| is_named(desc, key)) {
            let (title, how) = title(owner);
            let _ = write!(found, "{title}: {how}\n\n{}\n", entry(desc, width));
        }
    }
    let calls = BUILDER_SETTINGS.iter().filter(|call| call.api == key);
    found.extend(calls.map(|call| call_entry(call, width) + "\n"));
    let variables = variables().filter(|variable| variable.name == key);
    found.extend(variables.map(|variable| variable_entry(variable, width) + "\n"));
    (!found.is_empty()).then(|| found.trim_end().to_owned() + "\n")
}

/// The refusal of an unknown key.
fn unknown(key: &str) -> Failure {
    let keys = [Owner::Queue, Owner::Process].into_iter().flat_map(of).map(|desc| desc.key);
    let names = variables().map(|variable| variable.name);
    let calls = BUILDER_SETTINGS.iter().map(|call| call.api);
    let mut keys: Vec<&str> = keys.chain(names).chain(calls).collect();
    keys.sort_unstable();
    keys.dedup();
    Failure::input(format!(
        "there is no setting, variable or call `{key}`; there are {}",
        keys.join(", ")
    ))
}

/// What the settings of an owner are called, and how they are set.
const fn title(owner: Owner) -> (&'static str, &'static str) {
    match owner {
        Owner::Queue => ("Settings of a queue", "nearq set PID QUEUE key=value"),
        Owner::Process => ("Settings of the process", "nearq set PID key=value"),
    }
}

/// The facts about a setting besides its description; empty ones are left out.
fn facts(desc: &SettingDesc) -> impl Iterator<Item = (&'static str, &'static str)> {
    let facts = [
        ("values", desc.values),
        ("kernel", desc.kernel),
        ("environment", desc.environment),
        ("API", desc.api),
    ];
    facts.into_iter().filter(|(_, fact)| !fact.is_empty())
}

/// The page, for a terminal of `width` columns.
fn text(width: usize) -> String {
    let mut text = screen::wrapped("", WORDS.split(' '), width) + "\n";
    for owner in [Owner::Queue, Owner::Process] {
        let (title, how) = title(owner);
        let _ = writeln!(text, "{title}: {how}\n");
        text.extend(of(owner).map(|desc| entry(desc, width) + "\n"));
    }
    let _ = writeln!(text, "{CALLS}: {IN_CODE}\n");
    text.extend(BUILDER_SETTINGS.iter().map(|call| call_entry(call, width) + "\n"));
    text += "Other variables of the environment\n\n";
    text.extend(variables().map(|variable| variable_entry(variable, width) + "\n"));
    text.trim_end().to_owned() + "\n"
}

/// The lines of a setting.
fn entry(desc: &SettingDesc, width: usize) -> String {
    let fixed = if desc.writable { "" } else { " (cannot be set)" };
    let mut text = format!("{}{fixed}\n", desc.key);
    text += &screen::wrapped("    ", desc.what.split(' '), width);
    for (name, fact) in facts(desc) {
        text += &screen::wrapped(&format!("    {name:<11}  "), fact.split(' '), width);
    }
    text
}

/// The lines of a builder's call.
fn call_entry(call: &BuilderSetting, width: usize) -> String {
    let mut text = format!("{}\n", call.api);
    text += &screen::wrapped("    ", call.what.split(' '), width);
    text + &screen::wrapped("    values       ", call.values.split(' '), width)
}

/// A variable's lines.
fn variable_entry(variable: &Variable, width: usize) -> String {
    let mut text = format!("{} (for {})\n", variable.name, variable.reader.name());
    text += &screen::wrapped("    ", variable.what.split(' '), width);
    text + &screen::wrapped("    values       ", variable.values.split(' '), width)
}

/// What the settings are called that neither `nearq set` nor the environment can change, and how they are set.
const CALLS: &str = "Settings that only the program makes";
const IN_CODE: &str = "calls of the builders";

/// Remarks that apply to several rows of the tables.
const WORDS: &str = "\
Settings whose values are 0 or 1 also take off or on, no or yes, false or true, in small or capital letters. An empty variable \
counts as not set. A variable with an invalid value causes one warning and counts as not set, except NEARQ_CONTROL, which then means \
off.";

const HEAD: &str = "\
# What can be set

This page is a reference for programmers and operators. It lists all settings: their keys for `nearq get` and `nearq set`, the kernel's
parameters that they correspond to, the environment variables that are read when the process starts, and their names in the API.
[`control.md`](control.md) says how to use them. This page is the output of `nearq knobs --markdown`.
";

/// The page in Markdown.
fn markdown() -> String {
    let mut text = format!("{HEAD}\n{}", screen::wrapped("", WORDS.split(' '), 138));
    for owner in [Owner::Queue, Owner::Process] {
        let (title, how) = title(owner);
        let _ = write!(
            text,
            "\n## {title}\n\n`{how}`\n\n| key | kernel | environment | API | values | what it does |\n|---|---|---|---|---|---|\n"
        );
        for desc in of(owner) {
            let fixed = if desc.writable { "" } else { " (cannot be set)" };
            let cells = [code(desc.kernel), code(desc.environment), code(desc.api)].join(" | ");
            let _ = writeln!(
                text,
                "| `{}`{fixed} | {cells} | {} | {} |",
                desc.key, desc.values, desc.what
            );
        }
    }
    let _ = write!(
        text,
        "\n## {CALLS}\n\nThey are {IN_CODE} of queues and of the runtime.\n\n| call | takes | what it does |\n|---|---|---|\n"
    );
    for call in BUILDER_SETTINGS {
        let _ = writeln!(text, "| `{}` | {} | {} |", call.api, call.values, call.what);
    }
    text += "\n## Other variables of the environment\n\n| variable | read by | values | what it does |\n|---|---|---|---|\n";
    for variable in variables() {
        let reader = variable.reader.name();
        let (name, values, what) = (variable.name, variable.values, variable.what);
        let _ = writeln!(text, "| `{name}` | {reader} | {values} | {what} |");
    }
    text
}

/// A name in Markdown; a remark in parentheses that follows it is not part of it.
fn code(name: &str) -> String {
    match name.split_once(" (") {
        _ if name.is_empty() => String::new(),
        Some((name, remark)) => format!("`{name}` ({remark}"),
        None => format!("`{name}`"),
    }
}

/// A name without the remark in parentheses.
fn code_name(name: &str) -> &str {
    name.split_once(" (").map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::settings_table::all;

    #[test]
    fn the_page_is_what_the_command_prints() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/knobs.md");
        let page = std::fs::read_to_string(page).expect("docs/knobs.md can be read");
        assert!(page == markdown(), "docs/knobs.md differs; make it with `nearq knobs --markdown`");
    }

    #[test]
    fn everything_fits_into_80_columns() {
        let text = text(80);
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{long:#?}");
        for desc in all() {
            assert!(text.lines().any(|line| line.split(' ').next() == Some(desc.key)));
            for (_, fact) in facts(desc) {
                assert!(fact.split(' ').all(|word| text.contains(word)), "{fact}");
            }
        }
        assert!(variables().all(|variable| text.contains(variable.name)));
        assert!(BUILDER_SETTINGS.iter().all(|call| text.contains(call.api)));
        let of_tests = VARIABLES.iter().filter(|variable| variable.reader == Reader::Tests);
        let shown: Vec<&str> =
            of_tests.map(|one| one.name).filter(|name| text.contains(name)).collect();
        assert!(shown.is_empty(), "internal variables are shown: {shown:?}");
    }

    #[test]
    fn one_setting_is_found_by_its_key_or_its_variable() {
        let cpumask = entries_of("cpumask", 80).unwrap();
        assert!(
            cpumask.contains("\ncpumask\n    ") && cpumask.contains("nearq set PID"),
            "{cpumask}"
        );
        assert!(!cpumask.contains("affinity_scope\n"), "{cpumask}");
        assert!(
            entries_of("NEARQ_CONTROL", 80).unwrap().starts_with("NEARQ_CONTROL (for programs)\n")
        );
        let of_variable = all().find(|desc| !desc.environment.is_empty()).unwrap();
        let shown = entries_of(code_name(of_variable.environment), 80).unwrap();
        assert!(shown.contains(&format!("\n{}\n", of_variable.key)), "{shown}");
        let call = entries_of("RuntimeBuilder::thread_limit", 80).unwrap();
        assert!(
            call.starts_with("RuntimeBuilder::thread_limit\n") && call.contains("4096"),
            "{call}"
        );
        assert_eq!(entries_of("NEARQ_LONG", 80), None);
        let refusal = unknown("nise").to_string();
        assert!(refusal.contains("`nise`") && refusal.contains("nice"), "{refusal}");
    }

    #[test]
    fn the_json_has_every_setting_call_and_variable() {
        let everything = value(None).unwrap();
        let keys = everything["settings"].as_array().unwrap().iter().map(|one| &one["key"]);
        assert!(keys.eq(all().map(|desc| desc.key)));
        assert_eq!(everything["variables"].as_array().unwrap().len(), variables().count());
        let calls = everything["calls"].as_array().unwrap().iter().map(|one| &one["api"]);
        assert!(calls.eq(BUILDER_SETTINGS.iter().map(|call| call.api)));
        let call = value(Some("RuntimeBuilder::thread_limit")).unwrap();
        assert_eq!((&call["settings"], &call["variables"]), (&json!([]), &json!([])));
        assert_eq!(call["calls"].as_array().unwrap().len(), 1);
        let nice = value(Some("nice")).unwrap();
        let [setting] = nice["settings"].as_array().unwrap().as_slice() else { panic!("{nice}") };
        assert_eq!((&setting["owner"], &setting["writable"]), (&"queue".into(), &true.into()));
        assert_eq!(nice["variables"], json!([]));
        let control = value(Some("NEARQ_CONTROL")).unwrap();
        assert_eq!(control["variables"][0]["reader"], "programs");
        assert!(value(Some("nise")).unwrap_err().to_string().contains("`nise`"));
    }

    #[test]
    fn no_cell_contains_a_column_separator() {
        let table = markdown();
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        let columns: Vec<usize> = rows.map(|row| row.matches(" |").count()).collect();
        assert_eq!(columns.len(), all().count() + BUILDER_SETTINGS.len() + variables().count());
        assert!(columns.iter().all(|count| [3, 4, 6].contains(count)), "{columns:?}");
    }
}

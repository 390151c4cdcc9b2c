//! Completion in real shells: what a shell offers for an unfinished line, with an invented process whose queue is called `crypt`. And the
//! manual pages.

use std::process::Command;

use crate::PROGRAM;
use crate::common::{Folder, nearq, prints, refuses, skipped};
use crate::steering::{Answers, serve};

/// The words that a shell offers for the last of `words`; `None`, after a line that says so, if there is no such shell.
fn offered(
    shell: &str,
    arguments: &[&str],
    script: &str,
    folder: &Folder,
    words: &[&str],
) -> Option<Vec<String>> {
    let mut command = Command::new(shell);
    command.args(arguments).args(["-c", script, shell]).args(words);
    // These have no name before the arguments.
    if ["fish", "elvish"].contains(&shell) {
        command = Command::new(shell);
        command.args(arguments).args(["-c", script]).args(words);
    }
    let path = std::path::Path::new(PROGRAM).parent().unwrap().display();
    command.env("PATH", format!("{path}:/usr/bin:/bin")).env("XDG_RUNTIME_DIR", folder.path(""));
    command.env("HOME", folder.path("")).env_remove("XDG_CONFIG_HOME");
    let Ok(output) = command.output() else {
        skipped(
            &format!("completion in {shell}"),
            "there is no such shell",
            &format!("apt-get install {shell}"),
        );
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{shell} {words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text.lines().filter(|line| !line.is_empty()).map(String::from).collect())
}

/// Elvish has this module only where it reads keys: what the script hands to it is printed instead.
fn give_elvish_its_module(folder: &Folder) {
    let modules = folder.path(".config/elvish/lib");
    std::fs::create_dir_all(&modules).unwrap();
    let module = "var completion: = (ns [&arg-completer=[&]])\n\
                  fn complete-filename {|word| echo FILES }\n\
                  fn complex-candidate {|word &display='' &code-suffix=''| echo $word }\n";
    std::fs::write(format!("{modules}/edit.elv"), module).unwrap();
}

/// Checks what a shell offers. The candidates of `wanted` must be among those that are offered.
fn check(shell: &str, arguments: &[&str], script: &str) {
    let folder = serve(&format!("completions-{shell}"), Answers::Plainly);
    give_elvish_its_module(&folder);
    let pid = std::process::id().to_string();
    let lines: [(&[&str], &[&str]); 7] = [
        (&["d"], &["dump"]),
        (&["dump", ""], &[&pid]),
        (&["set", &pid, ""], &["crypt", "default_affinity_scope="]),
        (&["set", &pid, "crypt", "affinity_sc"], &["affinity_scope="]),
        (&["set", &pid, "crypt", "affinity_scope=ca"], &["affinity_scope=cache"]),
        (&["metrics", "--format", "p"], &["prometheus"]),
        (&["metrics", "--fo"], &["--format"]),
    ];
    for (words, wanted) in lines {
        let Some(found) = offered(shell, arguments, script, &folder, words) else { return };
        for word in wanted {
            // bash replaces only what comes after `=`.
            let after = word
                .split_once('=')
                .map_or(*word, |(_, after)| if after.is_empty() { word } else { after });
            let is_it = |line: &String| {
                let value = line.split('\t').next().unwrap_or_default();
                value == *word || shell == "bash" && value == after
            };
            assert!(found.iter().any(is_it), "{shell}: {words:?} offers {found:?}, not {word}");
        }
        let typed = words.last().unwrap().split('=').next_back().unwrap();
        let is_foreign = |line: &&String| !line.split('=').any(|part| part.starts_with(typed));
        assert_eq!(found.iter().find(is_foreign), None, "{shell}: {words:?}");
    }
    // Names with characters that shells read as something else, typed in part; and those that mean something else as words.
    let names = &["a b", "it's", "back\\slash", "net:rx", "$(touch PWNED)", "#2", "two\nlines"];
    let named = serve(&format!("completions-named-{shell}"), Answers::Named(names));
    give_elvish_its_module(&named);
    let typed = [
        ("a\\ ", "a b"),
        ("\"a ", "a b"),
        ("back", "back\\slash"),
        ("it", "it's"),
        ("net", "net:rx"),
        ("net:r", "net:rx"),
        ("\\$", "$(touch PWNED)"),
        ("", "#6"),
        ("", "#7"),
    ];
    for (typed, wanted) in typed {
        // Elvish gives a completer words without their quotes.
        let unquoted = typed.replace(['\\', '"'], "");
        let words = ["get", &pid, if shell == "elvish" { &unquoted } else { typed }];
        let Some(found) = offered(shell, arguments, script, &named, &words) else { return };
        let is_it = |line: &String| {
            let value = line.split('\t').next().unwrap_or_default();
            match shell {
                // Quoted for the line, unless a quote is open there; only what comes after a colon is replaced.
                "bash" => {
                    let after = wanted.split_once(':').filter(|_| typed.contains(':'));
                    let wanted = after.map_or(wanted, |(_, after)| after);
                    let is_kept = |c: char| c.is_ascii_alphanumeric() || c == ':';
                    let quote = |c: char| if is_kept(c) { c.to_string() } else { format!("\\{c}") };
                    let quoted: String = wanted.chars().map(quote).collect();
                    value == if typed.starts_with('"') { wanted.to_owned() } else { quoted }
                }
                // Quoted for `_describe`; the test has cut the line at a colon.
                "zsh" => value == wanted.replace('\\', "\\\\").replace(":rx", "\\"),
                _ => value == wanted,
            }
        };
        assert!(found.iter().any(is_it), "{shell}: {typed:?} offers {found:?}, not {wanted}");
    }
    // Files, because jobs have files as arguments.
    std::fs::write(folder.path("input-file"), "").unwrap();
    let start = folder.path("input-f");
    if let Some(found) = offered(shell, arguments, script, &folder, &["topo", "--svg", &start]) {
        assert!(
            found.iter().any(|line| line.contains("input-file") || line == "FILES"),
            "{shell}: {found:?}"
        );
    }
}

#[test]
fn bash_completes_processes_queues_keys_and_values() {
    let script = "source <(nearq completions bash)\n\
                  compopt() { [[ $2 != default ]] || echo FILES; }\n\
                  COMP_WORDS=(nearq) COMP_LINE=\"nearq $*\"; for word in \"$@\"; do\n\
                  mapfile -t parts < <(sed 's/[=:]/\\n&\\n/' <<< \"$word\"); COMP_WORDS+=(\"${parts[@]}\"); done\n\
                  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n\
                  complete -p nearq > /dev/null && _nearq && printf '%s\\n' \"${COMPREPLY[@]}\"";
    check("bash", &["--norc"], script);
}

#[test]
fn zsh_completes_processes_queues_keys_and_values() {
    // Without a terminal there is no completion: what the script hands to zsh's functions is printed instead.
    let script = "compdef() { }\n\
                  _describe() { print -rl -- \"${(@)${(P@)3}%%:*}\" }\n\
                  _files() { print FILES }\n\
                  eval \"$(nearq completions zsh)\"\n\
                  words=(nearq \"$@\") CURRENT=$#words\n\
                  _nearq || true";
    check("zsh", &["-f"], script);
}

#[test]
fn fish_completes_processes_queues_keys_and_values() {
    let script = "nearq completions fish | source; complete -C \"nearq $argv\"";
    check("fish", &["--no-config"], script);
}

#[test]
fn elvish_completes_processes_queues_keys_and_values() {
    let script = "use edit; eval (nearq completions elvish | slurp)\n\
                  $edit:completion:arg-completer[nearq] nearq $@args";
    check("elvish", &[], script);
}

#[test]
fn candidates_of_a_hostile_process_steer_no_terminal() {
    let folder = serve("completions-hostile", Answers::Well);
    for words in [&["dump", ""][..], &["trace", "PID", ""], &["set", "PID", ""]] {
        let pid = std::process::id().to_string();
        let words = words.iter().map(|&word| if word == "PID" { &pid } else { word });
        let mut command = nearq();
        command.args(["__complete", "--"]).args(words).env("XDG_RUNTIME_DIR", folder.path(""));
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().count() > 1, "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("FORGED")), "{text:?}");
    }
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let folder = Folder::new("manual");
    prints(&["man", &folder.path("")]);
    let page = std::fs::read_to_string(folder.path("nearq-set.1")).unwrap();
    for part in [".SH NAME\nnearq\\-set", "\\fBnearq set\\fR", ".SH OPTIONS", "Examples:\n"] {
        assert!(page.contains(part), "{part} is missing from {page}");
    }
    let main = std::fs::read_to_string(folder.path("nearq.1")).unwrap();
    // Name, section, date, source and manual.
    let title = main.lines().find(|line| line.starts_with(".TH")).unwrap();
    assert!(
        title.starts_with(".TH nearq 1 \"\" \"nearq ") && title.ends_with("\" nearq"),
        "{title}"
    );
    let refused = refuses(&["man", &folder.path("none")]);
    assert!(
        refused.contains("none/nearq.1") && refused.contains("a folder that exists"),
        "{refused}"
    );
    for command in crate::steering::subcommands() {
        let is_here = !["help", "bench", "sim"].contains(&command.as_str());
        if is_here {
            assert!(
                std::fs::exists(folder.path(&format!("nearq-{command}.1"))).unwrap(),
                "{command}"
            );
            assert!(main.contains(&format!("nearq\\-{command}(1)")), "{command}");
        }
    }
}

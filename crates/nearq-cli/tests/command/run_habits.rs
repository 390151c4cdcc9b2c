//! `nearq run` as users of xargs and GNU parallel type it: a command line works as it does there, or is refused with advice on what to do
//! instead. With `--shell`, no input is ever run as a command.

use crate::common::{Folder, errors, nearq, prints, refuses};
use std::io::Write as _;
use std::process::Stdio;

/// The output of the command with the given standard input.
fn output_with_input(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = nearq();
    command.arg("run").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

#[test]
fn supported_options_of_xargs_and_parallel_work_the_same() {
    assert_eq!(prints(&["run", "-k", "-I{}", "echo", "<{}>", ":::", "a b", "c"]), "<a b>\n<c>\n");
    assert_eq!(output_with_input(&["-r", "echo"], b""), b"");
    assert_eq!(output_with_input(&["--no-run-if-empty", "echo"], b"a\n"), b"a\n");
    assert_eq!(output_with_input(&["-k", "-d,", "echo"], b"a,b,,c"), b"a\nb\n\nc\n");
    assert_eq!(output_with_input(&["-k", "-d", "\\n", "printf", "<%s>"], b"a\n\nb\n"), b"<a><><b>");
    assert_eq!(prints(&["run", "-k", "-N2", "echo", "{2}", "{1}", ":::", "a", "b"]), "b a\n");
    assert_eq!(
        prints(&["run", "--dryrun", "echo", ":::", "a"]).rsplit('\t').next(),
        Some("echo a\n")
    );
    for jobs in ["-j+1", "-j-1", "-j-100", "-j100%", "-j0", "-P2"] {
        assert_eq!(prints(&["run", jobs, "echo", ":::", "a"]), "a\n", "{jobs}");
    }
    assert_eq!(prints(&["run", "-j", "-1", "--halt", "soon,fail=1", "echo", ":::", "a"]), "a\n");
    let output = nearq().args(["run", "-t", "echo", ":::", "a"]).output().unwrap();
    assert!(errors(&output).contains("echo a"), "{}", errors(&output));
}

#[test]
fn one_more_job_than_cpus_runs_with_plus_one() {
    let folder = Folder::new("run-plus");
    let begun = folder.path("begun");
    let cpus = std::thread::available_parallelism().unwrap().get();
    // Each job waits until all run at once, so with one slot less the jobs would wait for ever.
    let script = format!(
        "touch {begun}$0; until [ $(ls {begun}* | wc -l) -gt {cpus} ]; do sleep 0.01; done; echo $0"
    );
    let mut command = nearq();
    command.args(["run", "-j+1", "sh", "-c", &script, ":::"]);
    let output = command.args((0..=cpus).map(|number| number.to_string())).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), cpus + 1);
}

#[test]
fn unsupported_options_suggest_an_alternative() {
    for (option, part) in [
        ("-L1", "-n N"),
        ("-i", "write {}"),
        ("-I%", "write {}"),
        ("--replace", "write {}"),
        ("-X", "-n N"),
        ("-s1000", "-n N"),
        ("-p", "--dry-run"),
        ("-E_", "sed"),
        ("--ctag", "--tag"),
        ("--files", "--results"),
        ("--termseq=TERM", "SIGTERM"),
        ("--resume", "--joblog FILE"),
        ("--results=x.csv", "--json FILE"),
        ("--colsep=,", "-n 2"),
        ("-C,", "-n 2"),
        ("--pipe", "split"),
        ("--eta", "bar"),
        ("--line-buffer", "--ungroup"),
        ("-Shost", "ssh"),
        ("--will-cite", "leave it out"),
        ("--nice=3", "nice -n"),
        ("--trim=lr", "sed"),
        ("--show-limits", "getconf"),
        ("--plus", "--shell"),
        ("--process-slot-var=X", "{%}"),
        ("-z", "nearq run --help"),
        ("--jbos", "--jobs"),
        ("-d,,", "one byte"),
        ("-j+x", "+N"),
    ] {
        let line = refuses(&["run", option, "echo", ":::", "a"]);
        assert!(line.contains(part) && !line.contains("as a value"), "{option}: {line}");
    }
    for word in ["{..}", "x{/..}.bak", "{+/}", "{-1}", "{-2/}", "{2..}", "{= s/a/b/ =}"] {
        let line = refuses(&["run", "echo", word, ":::", "a"]);
        assert!(line.contains("placeholders are {}"), "{word}: {line}");
    }
    for word in ["{1..3}", "{-}", "{print $1}", "{=", "{", "a{0}", "{-x}"] {
        let output = nearq().args(["run", "echo", word, ":::", "a"]).output().unwrap();
        assert_eq!(output.stdout, format!("{word} a\n").as_bytes());
    }
    let line = refuses(&["run", "--tree", "echo", ":::", "a"]);
    assert!(line.contains("has no inputs"), "{line}");
    let line = refuses(&["run", "-I{}", "echo", ":::", "a"]);
    assert!(line.contains("there is no {}"), "{line}");
    let output = nearq().args(["run", "--", "--tags", "echo", ":::", "a"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(errors(&output).contains("before a `--`"), "{}", errors(&output));
    // That tip would be misleading for other commands too.
    let line = refuses(&["dump", "-x"]);
    assert!(!line.contains("as a value"), "{line}");
}

#[test]
fn no_input_is_run_by_the_shell() {
    let folder = Folder::new("run-injection");
    let mark = folder.path("mark");
    let touch = format!("touch {mark}");
    let inputs = [
        format!("$({touch})"),
        format!("`{touch}`"),
        format!("\"; {touch}; \""),
        format!("'; {touch}; '"),
        format!("a\n{touch}\n"),
        format!("a[$({touch})]"),
        format!("-n $({touch})"),
    ];
    let input = inputs.join("\0") + "\0";
    for line in [
        "echo {}",
        "echo '{}'",
        "echo \"{}\"",
        "echo \"a `echo {}`\"",
        "true # {}",
        "cat <<E\n{}\nE\n",
        "echo $'{}'",
        "echo ${x:-{}}",
        "echo $(({}))",
        "x={}; echo \"$x\"",
        "cat <<< {}",
        "echo \"$(echo \"{}\")\"",
        "echo \"$(case a in a) echo \"{}\" ;; esac)\"",
        "{}",
        "{} x",
        "f() { {}; }; f",
        "echo \\{}",
        "echo $${}",
    ] {
        let mut command = nearq();
        command.args(["run", "-0", "--shell", line]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // A refused command reads no input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait().unwrap();
        assert!(!std::path::Path::new(&mark).exists(), "{line}");
    }
    let line = refuses(&["run", "--shell", "echo \"{}\"", ":::", "a"]);
    assert!(line.contains("in double quotes") && line.contains("outside of quotes"), "{line}");
}

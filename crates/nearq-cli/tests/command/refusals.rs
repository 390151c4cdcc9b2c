//! Bad input: one clear line that names the value and what is allowed, exit status 2, and nothing half-done.

use crate::common::{Folder, errors, nearq, refuses};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

/// Checks that the line names all of `parts`.
fn names(arguments: &[&str], parts: &[&str]) {
    let line = refuses(arguments);
    for part in parts {
        assert!(line.contains(part), "nearq {arguments:?} does not name {part}: {line}");
    }
}

#[test]
fn no_command_shows_the_help() {
    let output = nearq().output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("Usage: nearq"), "{}", errors(&output));
}

#[test]
fn unknown_commands_and_options_are_refused() {
    names(&["frobnicate"], &["'frobnicate'", "`topo`", "`bench`", "`sim`"]);
    names(&["topo", "--colour"], &["'--colour'", "`nearq topo --help`"]);
    names(&["topo", "all"], &["'all'", "`nearq topo --help`"]);
    names(&["topo", "--scope"], &["--scope", "`nearq topo --help`"]);
    names(&["topo", "--on", "core:1", "--on", "core:2"], &["--on", "multiple times"]);
}

#[test]
fn unknown_scopes_are_refused() {
    let scopes = ["'llc'", "cpu", "smt", "cache_shard", "cache", "numa", "system"];
    names(&["topo", "--scope", "llc"], &scopes);
    names(&["topo", "--scope", ""], &scopes[1..]);
}

#[test]
fn invalid_shard_sizes_are_refused() {
    for size in ["0", "-1", "4097", "8.5", "many", ""] {
        names(&["topo", "--shard-size", size], &["--shard-size", size, "from 1 to 4096"]);
    }
}

#[test]
fn invalid_machines_are_refused() {
    let allowed = [
        "here",
        "ryzen-3900x",
        "tx7-itanium2",
        "hwloc XML file",
        "sysfs:DIR",
        "pack:2 numa:2 l3:2 core:4 pu:2",
    ];
    for name in ["", "nosuch.xml", "ryzen", "a\nb", "core"] {
        names(&["topo", "--on", name], &allowed);
    }
    names(&["topo", "--on", "nosuch.xml"], &["\"nosuch.xml\""]);
    for synthetic in ["core:0", "core:x", "core:2 pack:2", "thing:3", "pack:2 :"] {
        let quoted = format!("{synthetic:?}");
        names(&["topo", "--on", synthetic], &["--on", &quoted, "pack:2 numa:2 l3:2 core:4 pu:2"]);
    }
}

#[test]
fn machines_that_are_too_large_are_refused() {
    for synthetic in ["core:99999", "pack:64 core:64 pu:2"] {
        names(&["topo", "--on", synthetic], &["--on", synthetic, "4096"]);
    }
}

#[test]
fn files_without_a_machine_are_refused() {
    let folder = Folder::new("no-machine");
    for (name, text) in [
        ("empty.xml", ""),
        ("text.xml", "these are no angle brackets"),
        ("cut.xml", "<topology version=\"2.0\"><object type=\"Machine\">"),
        ("other.xml", "<html><body/></html>"),
    ] {
        fs::write(folder.path(name), text).unwrap();
        names(&["topo", "--on", &folder.path(name)], &[name, "hwloc's XML"]);
    }
    fs::write(folder.path("binary.xml"), [0xff, 0xfe, 0]).unwrap();
    names(&["topo", "--on", &folder.path("binary.xml")], &["binary.xml"]);
    let folder_itself = format!("sysfs:{}", folder.path(""));
    names(&["topo", "--on", &folder_itself], &["sysfs:", "/sys"]);
    names(&["topo", "--on", "sysfs:/no/such/folder"], &["/no/such/folder", "path that exists"]);
    names(&["topo", "--on", "sysfs:"], &["\"sysfs:\"", "no such file"]);
    for (link, target, why) in
        [("circle", "circle", "Too many levels"), ("nowhere", "none", "No such file")]
    {
        std::os::unix::fs::symlink(target, folder.path(link)).unwrap();
        names(&["topo", "--on", &folder.path(link)], &[link, why]);
    }
}

#[test]
fn arguments_that_are_not_utf8_are_refused() {
    let output =
        nearq().args(["topo", "--on"]).arg(std::ffi::OsStr::from_bytes(b"core:\xff")).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(errors(&output), "nearq: \"core:\\xff\": arguments must be UTF-8\n");
}

#[test]
fn unwritable_files_are_refused() {
    let missing = "/no such folder/file";
    names(&["topo", "--svg", missing], &["--svg /no such folder/file", "cannot be written"]);
}

/// An option that would have no effect is refused.
#[test]
fn options_without_effect_are_refused() {
    for (line, parts) in [
        ("topo --scope smt", ["--svg", "--help"]),
        ("topo --costs", ["--costs", "--on"]),
        ("homes --pages --json", ["--pages", "--json"]),
        ("knobs nice --markdown", ["KEY", "--markdown"]),
        ("dump 1 --json --masks", ["--json", "--masks"]),
        ("trace 1 --json --output x", ["--json", "--output"]),
        ("run --strict --home none true ::: a", ["--strict", "--home none"]),
        ("run --joblog - true ::: a", ["--joblog", "file"]),
    ] {
        names(&line.split(' ').collect::<Vec<_>>(), &parts);
    }
}

//! The copyright notices of the crates of others that a program links, as Debian's machine-readable copyright file has them.
//!
//! A crate that offers a choice of licences is listed under the first of `COMMON` that it offers. Their texts are in `packaging/copyright`;
//! the text of any other licence comes from the crate's own files.

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Licences whose text the file has already, by their names in `Cargo.toml`.
const COMMON: [&str; 2] = ["MIT", "Apache-2.0"];

/// Prints a paragraph for each crate of others that the crates `names` of a workspace link when they are built for `target`.
pub(crate) fn print(manifest: &str, target: &str, names: &[&str]) -> Result<String, String> {
    let mut command = MetadataCommand::new();
    let options = ["--locked", "--filter-platform", target].map(str::to_owned);
    command.manifest_path(manifest).other_options(options);
    let metadata = command.exec().map_err(|error| error.to_string())?;
    let linked = linked(&metadata, names)?;
    let paragraphs: Result<Vec<String>, String> =
        linked.into_iter().filter(|package| package.source.is_some()).map(paragraph).collect();
    Ok(paragraphs?.join("\n\n"))
}

/// The crates that those of these names link, themselves included, by their names. What runs only while they are built is not linked.
fn linked<'m>(metadata: &'m Metadata, names: &[&str]) -> Result<Vec<&'m Package>, String> {
    let packages: HashMap<&PackageId, &Package> =
        metadata.packages.iter().map(|package| (&package.id, package)).collect();
    let resolve = metadata.resolve.as_ref().ok_or("cargo lists no dependencies")?;
    let mut left: Vec<&PackageId> = Vec::new();
    for name in names {
        let mut members = metadata.workspace_packages().into_iter();
        let found = members.find(|package| package.name == *name);
        left.push(&found.ok_or_else(|| format!("there is no crate {name} in the workspace"))?.id);
    }
    let mut found = BTreeMap::new();
    while let Some(id) = left.pop() {
        let package = packages[id];
        let is_macro = |kind: &TargetKind| *kind == TargetKind::ProcMacro;
        if package.targets.iter().any(|target| target.kind.iter().any(is_macro))
            || found.insert((package.name.as_str(), &package.version), package).is_some()
        {
            continue;
        }
        let node = resolve.nodes.iter().find(|node| node.id == *id).ok_or("a crate is missing")?;
        let is_linked = |kinds: &[cargo_metadata::DepKindInfo]| {
            kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        };
        let used = node.deps.iter().filter(|used| is_linked(&used.dep_kinds));
        left.extend(used.map(|used| &used.pkg));
    }
    Ok(found.into_values().collect())
}

/// The paragraph of a crate.
fn paragraph(package: &Package) -> Result<String, String> {
    let name = format!("{}-{}", package.name, package.version);
    let licence = package.license.as_deref().ok_or_else(|| format!("{name} names no licence"))?;
    let folder = package.manifest_path.parent().ok_or("a manifest is in a folder")?;
    let files = notices(folder.as_std_path()).map_err(|error| format!("{folder}: {error}"))?;
    let texts: Vec<&str> = files.values().map(String::as_str).collect();
    let mut holders = holders(&texts);
    if holders.is_empty() {
        holders.extend(package.authors.iter().cloned());
    }
    if holders.is_empty() {
        holders.push(format!("The authors of {}", package.name));
    }
    let mut text = format!("Files: {name}/*\nCopyright: {}\n", holders.join("\n           "));
    let chosen = COMMON.into_iter().find(|common| {
        let is_choice = !licence.contains(" AND ") && !licence.contains('(');
        is_choice && licence.split(['/', ' ']).any(|word| word == *common)
    });
    if let Some(chosen) = chosen {
        let _ = write!(text, "License: {chosen}");
    } else {
        let called = licence.replace('/', " or ").replace(" OR ", " or ").replace(" AND ", " and ");
        let _ = write!(text, "License: {called}");
        let own = files.iter().filter(|(file, _)| !file.contains("APACHE"));
        let own: Vec<String> = own.map(|(_, text)| indented(&without_apache(text))).collect();
        if own.is_empty() {
            return Err(format!("{name} has no file with the text of its licence, {licence}"));
        }
        let _ = write!(text, "\n{}", own.join("\n .\n"));
    }
    if let Some((_, notice)) = files.iter().find(|(file, _)| file.starts_with("NOTICE")) {
        let _ = write!(text, "\nComment:\n{}", indented(notice));
    }
    Ok(text)
}

/// The files of a crate about its licences, by their names in capital letters.
fn notices(folder: &Path) -> std::io::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_notice = ["LICEN", "COPYING", "COPYRIGHT", "UNLICENSE", "NOTICE"]
            .iter()
            .any(|start| name.starts_with(start));
        if is_notice && entry.file_type()?.is_file() {
            files.insert(name, fs::read_to_string(entry.path())?);
        }
    }
    Ok(files)
}

/// Who holds the copyright, by the lines of these texts, each once.
fn holders(texts: &[&str]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
    let holders = lines.filter_map(|line| {
        let rest = line.strip_prefix("Copyright ")?;
        // Without the sign, a line has a year at its beginning, or else it is a sentence about copyrights.
        let signs = ["(c)", "(C)", "©"];
        let named = signs.iter().find_map(|sign| rest.strip_prefix(sign)).map(str::trim);
        let holder = named
            .or_else(|| rest.starts_with(|first: char| first.is_ascii_digit()).then_some(rest))?;
        let holder = holder.trim_end_matches([',', '.']);
        (!holder.is_empty() && !holder.contains(['[', '{'])).then(|| holder.to_owned())
    });
    holders.filter(|holder| seen.insert(holder.clone())).collect()
}

/// A text in which a line stands for the whole Apache License 2.0, whose text Debian has elsewhere.
fn without_apache(text: &str) -> String {
    let mut lines = text.lines();
    let mut kept: Vec<String> = Vec::new();
    while let Some(line) = lines.next() {
        let mut rest = lines.clone();
        let is_title = line.trim() == "Apache License"
            && rest.next().is_some_and(|line| line.trim().starts_with("Version 2.0"));
        if is_title && rest.any(|line| line.trim() == "END OF TERMS AND CONDITIONS") {
            lines = rest;
            kept.push("The Apache License 2.0: see the paragraph License: Apache-2.0.".to_owned());
        } else {
            kept.push(line.to_owned());
        }
    }
    kept.join("\n")
}

/// A text as the continuation of a field: each line begins with a blank, and an empty one is a full stop.
fn indented(text: &str) -> String {
    let lines = text.trim_end().lines().skip_while(|line| line.trim().is_empty());
    let lines: Vec<String> = lines
        .map(|line| match line.trim_end() {
            "" => " .".to_owned(),
            line => format!(" {line}"),
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_found_and_sentences_are_not() {
        let texts = [
            "MIT License\n\nCopyright (c) 2015 A. Person\nCopyright 2017 The Example Project.\n",
            "   Copyright [yyyy] [name of copyright owner]\nCopyright notices must be kept.\n",
            "Copyright © The Others\nCopyright (c) 2015 A. Person\n",
        ];
        assert_eq!(holders(&texts), ["2015 A. Person", "2017 The Example Project", "The Others"]);
    }

    #[test]
    fn texts_become_continuation_lines() {
        assert_eq!(indented("\n\nOne\n\n  two \n\n"), " One\n .\n   two");
    }

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_is_not() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let text = print(manifest, "x86_64-unknown-linux-gnu", &["nearq-cli"]).unwrap();
        let has = |name: &str| text.contains(&format!("Files: {name}-"));
        assert!(has("clap_builder") && has("libc") && has("ratatui"), "{text}");
        // A procedural macro, a crate of tests, and one of ours.
        assert!(!has("syn") && !has("proptest") && !has("nearq-topology"), "{text}");
        // Neither MIT nor Apache-2.0: its text is there.
        let zlib = "License: Zlib\n Copyright (c) ";
        assert!(
            text.contains(zlib) && text.contains("\n .\n This software is provided 'as-is'"),
            "{text}"
        );
        let paragraphs = text.split("\n\n");
        for paragraph in paragraphs {
            let fields = ["Files: ", "\nCopyright: ", "\nLicense: "];
            assert!(fields.iter().all(|field| paragraph.contains(field)), "{paragraph}");
        }
        assert!(print(manifest, "x86_64-unknown-linux-gnu", &["nosuch"]).is_err());
    }

    #[test]
    fn the_text_of_the_apache_license_is_replaced_where_it_is_whole() {
        let whole = "before\n   Apache License\n Version 2.0, January 2004\n TERMS\n END OF TERMS AND CONDITIONS\nafter";
        assert_eq!(
            without_apache(whole),
            "before\nThe Apache License 2.0: see the paragraph License: Apache-2.0.\nafter"
        );
        let part = "Apache License\nVersion 2.0, January 2004\nthe rest is missing";
        assert_eq!(without_apache(part), part);
    }
}

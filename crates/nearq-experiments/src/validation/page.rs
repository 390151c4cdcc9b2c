//! The page of many comparisons, in Markdown.

use super::Comparison;
use crate::Error;
use std::fs;
use std::path::Path;

const HEAD: &str = "# How right the simulator is

The experiments on machines that were measured with `nearq sim calibrate`, beside the same experiments on the simulated machine. This page is
made by `nearq sim score docs/results/validation --output docs/results/validation.md` from the files in [validation](validation); do not edit
it. [calibrate.md](../calibrate.md) says how to add your machine.

A ratio is the simulated figure divided by the measured one; the error factor is the ratio or its inverse, whichever is larger. The table
has their geometric means. A simulated figure is inside the band if it lies between the measured quartiles, widened by 25 %, or by 10 % for
`blocking`. A sign is right if the simulation has a difference between two rows, or a gain, in the measured direction; only those that the
quartiles show are counted. `noisy`: other programs used more than 3 % of the CPUs during the run, or the calibration was noisy.
";

/// A cell of a table: without what would end it.
fn cell(text: &str) -> String {
    nearq_topology::safe_text::plain(text).replace('|', "\\|")
}

/// The page of all comparisons in a folder, in the order of their names.
///
/// # Errors
/// If the folder has none, or a file of it is something else.
pub fn page(folder: &Path) -> Result<String, Error> {
    let named = |path: &Path, what: &dyn std::fmt::Display| {
        Error::input(format!("{}: {what}", path.display()))
    };
    let entries = fs::read_dir(folder).map_err(|error| {
        named(folder, &format!("{error}; give the folder that holds the JSON files of comparisons"))
    })?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path).map_err(|error| named(path, &error))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let comparison = Comparison::from_json(&text).map_err(|error| named(path, &error))?;
        all.push((name.unwrap_or_default(), comparison));
    }
    if all.is_empty() {
        return Err(named(
            folder,
            &"no .json file; write some with nearq bench NAME --beside-simulated FILE --json FILE",
        ));
    }
    Ok(render(&all))
}

fn render(all: &[(String, Comparison)]) -> String {
    let mut text = HEAD.to_owned();
    text += "\n| file | experiment | machine | ratio | error factor | signs right | rank correlation | inside | noisy |\n|---|---|---|---|---|---|---|---|---|\n";
    let known = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    for (name, one) in all {
        let score = &one.score;
        let model = one.environment.cpu_model.as_deref().unwrap_or("unknown");
        text += &format!(
            "| [{name}](validation/{name}) | {} | {}, {} CPUs | {} | {} | {} of {} | {} | {} of {} | {} |\n",
            cell(&one.experiment),
            cell(model),
            one.environment.cpus,
            known(score.geometric_mean),
            known(score.error_factor),
            score.signs[0],
            score.signs[1],
            known(score.rank_correlation),
            score.inside[0],
            score.inside[1],
            if one.is_noisy() { "yes" } else { "no" },
        );
    }
    for (name, one) in all {
        text += &format!("\n## {name}\n\n");
        text += &format!(
            "`nearq bench {}` beside {}; Linux {}, commit {}.\n",
            cell(&one.experiment),
            cell(&one.machine.about),
            cell(one.environment.kernel.as_deref().unwrap_or("unknown")),
            cell(one.commit.as_deref().unwrap_or("unknown")),
        );
        if let Some(warning) = one.environment.warning() {
            text += &format!("The machine was noisy: {}.\n", cell(&warning));
        }
        text += &format!("\n{}\n\n", cell(&one.score.line()));
        text += "| scenario | row | metric | measured | quartiles | simulated | ratio | band |\n|---|---|---|---|---|---|---|---|\n";
        for figure in &one.compared {
            let rounded = nearq_report::rounded;
            text += &format!(
                "| {} | {} | {} | {} | {} to {} | {} | {} | {} |\n",
                cell(&figure.scenario),
                cell(&figure.row),
                cell(&figure.metric),
                rounded(figure.measured),
                rounded(figure.quartiles[0]),
                rounded(figure.quartiles[1]),
                rounded(figure.simulated),
                figure.ratio().map_or("-".into(), |ratio| format!("{ratio:.2}")),
                if figure.inside { "inside" } else { "outside" },
            );
        }
    }
    text
}

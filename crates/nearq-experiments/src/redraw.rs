//! Pictures of experiments that ran before, from the JSON that they wrote.

use crate::{blocking, dispatch, home, join, lines, lock, numa, rwlock, scopes};
use nearq_report::{Error, Report};

/// Whether the picture of a report, with goals, is the one that its JSON gives.
#[cfg(test)]
pub(crate) fn is_drawn_from_the_json(report: &Report) -> bool {
    // The library numbers the elements that it draws, across the whole process.
    let without_numbers = |svg: &str| {
        let parts = svg.split("kuva-clip-");
        parts
            .map(|part| part.trim_start_matches(|letter: char| letter.is_ascii_digit()))
            .collect::<String>()
    };
    let read = Report::from_json(&report.to_json()).expect("what was written is read");
    let drawn = redraw(&read, true).expect("all is in the JSON");
    without_numbers(&drawn) == without_numbers(&report.svg)
}

/// The picture of a report that was read from its JSON; with the project's goals, if it has some.
///
/// # Errors
/// If the JSON of that experiment lacks something that its picture shows.
pub fn redraw(report: &Report, goals: bool) -> Result<String, Error> {
    Ok(match report.experiment {
        "blocking" if report.parameters["blocks"].is_number() => {
            blocking::detection::render::picture(report, goals)
        }
        "blocking" => blocking::render::picture(report),
        "dispatch" => dispatch::render::picture(report, goals),
        "home" => home::render::picture(report),
        "join" => join::render::picture(report),
        "lines" => lines::picture(report),
        "lock" if report.parameters["surface"] == true => lock::surface::picture(report),
        "lock" => lock::render::picture(report),
        "numa" => numa::render::picture(report),
        "rwlock" => rwlock::render::picture(report),
        "scopes" => scopes::render::picture(report),
        other => {
            return Err(Error::input(format!(
                "the JSON of {other} has not all that its picture shows; run it again with --svg"
            )));
        }
    })
}

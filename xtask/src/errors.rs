//! An error reads the same however it is printed: the `Debug` form of every error type is the same text as its `Display` form, because
//! `main() -> Result` and `unwrap` print the `Debug` form.

use std::path::Path;

use crate::sources;

/// The error types of the crates whose `Debug` form differs from their `Display` form.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut offences = Vec::new();
    sources::each(&root.join("crates"), &mut |path, text| {
        if path.components().any(|part| part.as_os_str() == "src") {
            let wrong = unlike(text).into_iter();
            offences.extend(wrong.map(|error| {
                format!("{}: the error {error} has no debug_as_display!", path.display())
            }));
        }
    })?;
    Ok(offences)
}

/// The error types of a file that have no `debug_as_display!`.
fn unlike(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.starts_with("impl"));
    let errors = lines.filter_map(|line| {
        let (before, after) = line.split_once("Error for ")?;
        let is_the_trait = before.ends_with("::") || before.ends_with(' ');
        is_the_trait.then(|| after.split([' ', '<', '{']).next().unwrap_or(after))
    });
    errors
        .filter(|error| !text.contains(&format!("debug_as_display!({error});")))
        .filter(|error| !reads_as_display(text, error))
        .collect()
}

/// Whether a generic error, for which there is no macro, implements `Debug` by its `Display`.
fn reads_as_display(text: &str, error: &str) -> bool {
    let implementation = text.split_once(&format!("Debug for {error}<"));
    let body = implementation.and_then(|(_, after)| after.split_once("\n}\n"));
    body.is_some_and(|(body, _)| body.contains("Display::fmt(self"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_whose_debug_is_derived_is_found() {
        let text = "impl std::error::Error for Bad {}\nnearq_topology::debug_as_display!(Good);\n\
                    impl Error for Good {\nimpl<T> From<Error> for Other {}\n";
        assert_eq!(unlike(text), ["Bad"]);
    }

    #[test]
    fn a_generic_error_may_implement_debug_by_its_display() {
        let text = "impl<F> std::error::Error for Kept<F> {\n}\nimpl<F> fmt::Debug for Kept<F> {\n    \
                    fmt::Display::fmt(self, f)\n}\nimpl<F> Error for Lost<F> {\n}\n\
                    impl<F> fmt::Debug for Lost<F> {\n    f.write_str(\"\")\n}\n";
        assert_eq!(unlike(text), ["Lost"]);
    }
}

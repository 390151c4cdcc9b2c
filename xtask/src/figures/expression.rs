//! How a figure is computed from recorded values: `max([lock | short {16,32} | nearq auto | wait_us_max] / 1000)`.
//!
//! `[…]` is a recorded value ([`super::records`]). `{a,b}` in it makes a list with one value for each word, and an operation on a list
//! applies to each of its values. `+ - * /` and brackets are as usual; `min`, `max` and `gmean` (the geometric mean) reduce all the lists
//! that they are given to one value.

use super::records::Records;

/// A parsed expression.
#[derive(Debug)]
pub(super) enum Expression {
    Number(f64),
    /// The paths of recorded values, one for each value of a list.
    Recorded(Vec<String>),
    Both(char, Box<Expression>, Box<Expression>),
    Of(Function, Vec<Expression>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    Min,
    Max,
    GeometricMean,
}

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Expression, String> {
        let mut rest = text;
        let expression = sum(&mut rest)?;
        if rest.trim().is_empty() {
            Ok(expression)
        } else {
            Err(format!("cannot be read from here on: {rest}"))
        }
    }

    /// Whether it contains a recorded value. A figure without one has no source.
    pub(super) fn is_recorded(&self) -> bool {
        match self {
            Expression::Number(_) => false,
            Expression::Recorded(_) => true,
            Expression::Both(_, left, right) => left.is_recorded() || right.is_recorded(),
            Expression::Of(_, arguments) => arguments.iter().any(Expression::is_recorded),
        }
    }

    /// Its value, which must be a single one.
    pub(super) fn value(&self, records: &mut Records) -> Result<f64, String> {
        match self.values(records)?.as_slice() {
            [value] if value.is_finite() => Ok(*value),
            values => Err(format!("expected one value, got {values:?}")),
        }
    }

    fn values(&self, records: &mut Records) -> Result<Vec<f64>, String> {
        match self {
            Expression::Number(value) => Ok(vec![*value]),
            Expression::Recorded(paths) => paths.iter().map(|path| records.value(path)).collect(),
            Expression::Both(operator, left, right) => {
                let (left, right) = (left.values(records)?, right.values(records)?);
                let length = left.len().max(right.len());
                if [left.len(), right.len()].iter().any(|len| *len != 1 && *len != length) {
                    return Err(format!(
                        "{} values and {} do not go together",
                        left.len(),
                        right.len()
                    ));
                }
                let both = |at: usize| {
                    let (left, right) = (left[at % left.len()], right[at % right.len()]);
                    match operator {
                        '+' => left + right,
                        '-' => left - right,
                        '*' => left * right,
                        _ => left / right,
                    }
                };
                Ok((0..length).map(both).collect())
            }
            Expression::Of(function, arguments) => {
                let mut values = Vec::new();
                for argument in arguments {
                    values.extend(argument.values(records)?);
                }
                Ok(vec![function.of(&values)])
            }
        }
    }
}

impl Function {
    #[expect(clippy::cast_precision_loss, reason = "a few values")]
    fn of(self, values: &[f64]) -> f64 {
        match self {
            Function::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Function::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Function::GeometricMean => {
                (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
            }
        }
    }
}

/// Takes a character off the front if it is one of these.
fn take(rest: &mut &str, of: &str) -> Option<char> {
    *rest = rest.trim_start();
    let first = rest.chars().next().filter(|first| of.contains(*first))?;
    *rest = &rest[first.len_utf8()..];
    Some(first)
}

fn sum(rest: &mut &str) -> Result<Expression, String> {
    chain(rest, "+-", product)
}

fn product(rest: &mut &str) -> Result<Expression, String> {
    chain(rest, "*/", operand)
}

/// Parses operands that are separated by operators of the same precedence.
fn chain(
    rest: &mut &str,
    operators: &str,
    operand: fn(&mut &str) -> Result<Expression, String>,
) -> Result<Expression, String> {
    let mut left = operand(rest)?;
    while let Some(operator) = take(rest, operators) {
        left = Expression::Both(operator, Box::new(left), Box::new(operand(rest)?));
    }
    Ok(left)
}

fn operand(rest: &mut &str) -> Result<Expression, String> {
    if take(rest, "(").is_some() {
        let inside = sum(rest)?;
        return take(rest, ")").map(|_| inside).ok_or_else(|| format!("expected ) here: {rest}"));
    }
    if take(rest, "[").is_some() {
        let (path, after) = rest.split_once(']').ok_or("no ] after [")?;
        *rest = after;
        return Ok(Expression::Recorded(alternatives(path)?));
    }
    for (name, function) in
        [("min(", Function::Min), ("max(", Function::Max), ("gmean(", Function::GeometricMean)]
    {
        if let Some(after) = rest.strip_prefix(name) {
            *rest = after;
            let mut arguments = vec![sum(rest)?];
            while take(rest, ",").is_some() {
                arguments.push(sum(rest)?);
            }
            return take(rest, ")")
                .map(|_| Expression::Of(function, arguments))
                .ok_or_else(|| format!("expected ) here: {rest}"));
        }
    }
    let end = rest
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(rest.len());
    let (number, after) = rest.split_at(end);
    let value = number.parse().map_err(|_| format!("expected a value here: {rest}"))?;
    *rest = after;
    Ok(Expression::Number(value))
}

/// Expands `a {b,c} d` into `a b d` and `a c d`.
fn alternatives(path: &str) -> Result<Vec<String>, String> {
    let Some((before, after)) = path.split_once('{') else { return Ok(vec![path.into()]) };
    let (words, after) = after.split_once('}').ok_or("no } after {")?;
    let rest = alternatives(after)?;
    let mut paths = Vec::new();
    for word in words.split(',') {
        paths.extend(rest.iter().map(|rest| format!("{before}{word}{rest}")));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn value(text: &str) -> Result<f64, String> {
        let mut records = Records::new(Path::new("/nowhere"));
        records
            .insert("r", serde_json::json!({"parameters": {"a": 2.0, "b": 8.0, "x": {"c": 5.0}}}));
        Expression::parse(text)?.value(&mut records)
    }

    #[test]
    fn values_are_computed() {
        assert_eq!(value("[r | parameters | a] * (1 + 2) - 10 / 4"), Ok(3.5));
        assert_eq!(value("max([r | parameters | {a,b}] / 2)"), Ok(4.0));
        assert_eq!(value("min([r | parameters | {a,b}], 1)"), Ok(1.0));
        assert_eq!(value("gmean([r | parameters | {a,b}])").map(f64::round), Ok(4.0));
        assert_eq!(value("[r | parameters | x | c]"), Ok(5.0));
    }

    #[test]
    fn recorded_and_unrecorded_values_are_distinguished() {
        let is_recorded = |text: &str| Expression::parse(text).expect(text).is_recorded();
        assert!(
            is_recorded("1 - [r | parameters | a]") && is_recorded("max(1, [r | parameters | a])")
        );
        assert!(!is_recorded("42") && !is_recorded("min(1, 2) * (3 + 4)"));
    }

    #[test]
    fn expressions_without_a_value_are_refused() {
        for text in [
            "",
            "1 +",
            "[r | parameters | {a,b}]",
            "[r | parameters | d]",
            "1 / 0",
            "max(1",
            "[q | parameters | a]",
        ] {
            assert!(value(text).is_err(), "{text}");
        }
    }
}

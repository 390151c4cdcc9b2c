//! Licence expressions (SPDX): whether what an expression asks for is among what is allowed.
//!
//! ```text
//! any    = all { ("OR" | "/") all }
//! all    = one { "AND" one }
//! one    = "(" any ")" | licence [ "WITH" exception ]
//! ```
//! `WITH` binds closest, then `AND`, then `OR`. A licence with an exception is another licence than the one without, and
//! is allowed only if it is named so. The slash is cargo's old way to write `OR`.

/// Whether the expression can be met with licences that `allowed` says yes to; or what is wrong with the expression.
pub(crate) fn is_met(expression: &str, allowed: impl Fn(&str) -> bool) -> Result<bool, String> {
    let tokens = tokens(expression)?;
    let mut parser = Parser { tokens: &tokens, allowed: &allowed };
    let met = parser.any()?;
    match parser.tokens.first() {
        None => Ok(met),
        Some(token) => Err(format!("{token:?} was not expected")),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Or,
    And,
    With,
    Open,
    Close,
    Name(String),
}

fn tokens(expression: &str) -> Result<Vec<Token>, String> {
    // Marks become words of their own, the rest is split where there is space.
    let mut spaced = String::new();
    for c in expression.chars() {
        match c {
            '(' | ')' | '/' => spaced.extend([' ', c, ' ']),
            _ => spaced.push(c),
        }
    }
    spaced
        .split_whitespace()
        .map(|word| {
            Ok(match word {
                "OR" | "/" => Token::Or,
                "AND" => Token::And,
                "WITH" => Token::With,
                "(" => Token::Open,
                ")" => Token::Close,
                name if name.chars().all(|c| c.is_ascii_alphanumeric() || "-.+:".contains(c)) => {
                    Token::Name(name.into())
                }
                other => return Err(format!("{other:?} is no licence's name")),
            })
        })
        .collect()
}

struct Parser<'a, F> {
    tokens: &'a [Token],
    allowed: &'a F,
}

impl<F: Fn(&str) -> bool> Parser<'_, F> {
    fn next_is(&mut self, token: &Token) -> bool {
        let found = self.tokens.first() == Some(token);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut met = self.all()?;
        while self.next_is(&Token::Or) {
            // Not `||`: the rest must be read even where the answer is known.
            met |= self.all()?;
        }
        Ok(met)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut met = self.one()?;
        while self.next_is(&Token::And) {
            met &= self.one()?;
        }
        Ok(met)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.next_is(&Token::Open) {
            let met = self.any()?;
            return if self.next_is(&Token::Close) {
                Ok(met)
            } else {
                Err("a \")\" is missing".into())
            };
        }
        let mut licence = self.name()?;
        if self.next_is(&Token::With) {
            licence = format!("{licence} WITH {}", self.name()?);
        }
        Ok((self.allowed)(&licence))
    }

    fn name(&mut self) -> Result<String, String> {
        let Some((Token::Name(name), rest)) = self.tokens.split_first() else {
            return Err("a licence's name is missing".into());
        };
        self.tokens = rest;
        Ok(name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With MIT, Zlib and Apache-2.0 WITH LLVM-exception allowed.
    fn met(expression: &str) -> Result<bool, String> {
        is_met(expression, |name| ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].contains(&name))
    }

    #[test]
    fn single_licences() {
        assert_eq!(met("MIT"), Ok(true));
        assert_eq!(met("GPL-3.0-only"), Ok(false));
        assert_eq!(met("mit"), Ok(false), "names are compared as they are");
    }

    #[test]
    fn one_of_several_is_enough() {
        assert_eq!(met("GPL-2.0+ OR MIT"), Ok(true));
        assert_eq!(met("MIT/GPL-2.0"), Ok(true), "the old way");
        assert_eq!(met("GPL-2.0 / AGPL-3.0"), Ok(false));
    }

    #[test]
    fn all_of_several_are_needed() {
        assert_eq!(met("MIT AND Zlib"), Ok(true));
        assert_eq!(met("MIT AND GPL-2.0"), Ok(false));
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert_eq!(met("GPL-2.0 AND GPL-3.0 OR MIT"), Ok(true));
        assert_eq!(met("MIT OR GPL-2.0 AND GPL-3.0"), Ok(true));
        assert_eq!(met("GPL-2.0 AND (GPL-3.0 OR MIT)"), Ok(false));
        assert_eq!(met("(MIT OR Apache-2.0) AND Unicode-3.0"), Ok(false));
        assert_eq!(met("(MIT OR Apache-2.0) AND (Zlib)"), Ok(true));
    }

    #[test]
    fn an_exception_makes_another_licence() {
        assert_eq!(met("Apache-2.0"), Ok(false));
        assert_eq!(met("Apache-2.0 WITH LLVM-exception"), Ok(true));
        assert_eq!(met("MIT WITH LLVM-exception"), Ok(false));
        assert_eq!(met("Apache-2.0 WITH LLVM-exception OR GPL-2.0"), Ok(true));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in [
            "",
            "MIT OR",
            "OR MIT",
            "(MIT",
            "MIT)",
            "MIT Zlib",
            "MIT WITH",
            "()",
            "MIT, Zlib",
            "MIT AND OR Zlib",
        ] {
            assert!(met(text).is_err(), "{text:?}");
        }
    }
}

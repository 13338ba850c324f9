//! May we use every dependency's license?
//!
//! Reads the SPDX expressions that `cargo metadata` reports: of an `OR` one side must be allowed, of
//! an `AND` both. A package without an expression must be named in [`EXCEPTIONS`] with the reason.

use super::{Findings, Tree};
use crate::command::{cargo, output};
use anyhow::{Context, Result};
use serde_json::Value;

/// Licenses that Apache-2.0 work can be shipped with.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages whose license is not evident from the expression, with the reason why they are acceptable.
const EXCEPTIONS: &[(&str, &str)] = &[];

pub(super) fn check(_tree: &Tree, findings: &mut Findings) -> Result<()> {
    let metadata = output(&mut cargo(["metadata", "--locked", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("`cargo metadata` is not JSON")?;
    let packages = metadata.get("packages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for package in packages {
        let text = |key| package.get(key).and_then(Value::as_str);
        let name = text("name").unwrap_or_default();
        let license = text("license").unwrap_or_default();
        if !is_allowed(license) && !EXCEPTIONS.iter().any(|(excepted, _)| *excepted == name) {
            let version = text("version").unwrap_or_default();
            findings.errors.push(format!("license of {name} {version}: `{license}` is not on the list"));
        }
    }
    Ok(())
}

/// Whether an SPDX expression can be met by allowed licenses alone; what does not parse is not allowed.
fn is_allowed(expression: &str) -> bool {
    // Old manifests write `MIT/Apache-2.0` for a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { rest: spaced.split_whitespace().collect::<Vec<_>>(), at: 0 };
    words.either() == Some(true) && words.peek().is_none()
}

/// Reads an expression by descent: `OR` binds weaker than `AND`, `WITH` belongs to its license.
struct Words<'a> {
    rest: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.at = self.at.saturating_add(1);
        word
    }

    fn either(&mut self) -> Option<bool> {
        let mut allowed = self.both()?;
        while self.peek() == Some("OR") {
            self.next();
            allowed |= self.both()?;
        }
        Some(allowed)
    }

    fn both(&mut self) -> Option<bool> {
        let mut allowed = self.one()?;
        while self.peek() == Some("AND") {
            self.next();
            allowed &= self.one()?;
        }
        Some(allowed)
    }

    fn one(&mut self) -> Option<bool> {
        match self.next()? {
            "(" => {
                let allowed = self.either()?;
                (self.next()? == ")").then_some(allowed)
            }
            "OR" | "AND" | "WITH" | ")" => None,
            license if self.peek() == Some("WITH") => {
                self.next();
                let exception = self.next()?;
                Some(ALLOWED.contains(&format!("{license} WITH {exception}").as_str()))
            }
            license => Some(ALLOWED.contains(&license)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_expression(expression: &str, allowed: bool) {
        assert_eq!(is_allowed(expression), allowed, "{expression}");
    }

    #[test]
    fn one_side_of_a_choice_is_enough() {
        check_expression("MIT", true);
        check_expression("GPL-3.0-only", false);
        check_expression("MIT OR GPL-3.0-only", true);
        check_expression("GPL-3.0-only/MIT", true);
        check_expression("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only", true);
    }

    #[test]
    fn both_sides_of_a_conjunction_are_needed() {
        check_expression("MIT AND Unicode-3.0", true);
        check_expression("MIT AND GPL-3.0-only", false);
        check_expression("(MIT OR Apache-2.0) AND GPL-3.0-only", false);
        check_expression("(GPL-3.0-only OR Apache-2.0) AND (MIT)", true);
    }

    #[test]
    fn an_unknown_exception_is_not_the_plain_license() {
        check_expression("MIT WITH some-exception", false);
    }

    #[test]
    fn unparsable_license_is_rejected() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "MIT MIT", "AND MIT"] {
            check_expression(expression, false);
        }
    }
}

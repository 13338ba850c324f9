//! Validators of checked expressions, which an environment lists; the checker runs them.
//!
//! Hosts and libraries add their own with [`Validator::Custom`].

use super::TypedAst;
use crate::source::Issues;

/// Something to examine in a checked expression.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Validator {
    /// The literal in `duration('1h')` is a duration.
    DurationLiterals,
    /// The literal in `timestamp('2020-01-01T00:00:00Z')` is a timestamp.
    TimestampLiterals,
    /// The literal in `text.matches('[a-z]+')` is a regular expression.
    RegexLiterals,
    /// The elements of a list literal, the keys and the values of a map literal have one type: not even `dyn` is mixed with others.
    HomogeneousLiterals,
    /// Maximum nesting depth of comprehensions. Those over an empty list literal are not counted.
    NestingLimit(usize),
    /// The host's or a library's own.
    Custom(CustomValidator),
}

/// A validator of the host or of a library.
#[derive(Clone, Copy, Debug)]
pub struct CustomValidator {
    /// A validator's name is its identity: an environment holds it once.
    pub name: &'static str,
    /// Reports errors.
    pub validate: fn(&TypedAst, &mut Issues),
    /// In the operands of these functions, literals may be mixed: `format` takes a list of anything.
    pub mixed_literals_within: &'static [&'static str],
}

impl Validator {
    /// The name, by which an environment knows whether it has the validator already.
    pub fn name(&self) -> &'static str {
        match self {
            Validator::DurationLiterals => "cel.validator.duration",
            Validator::TimestampLiterals => "cel.validator.timestamp",
            Validator::RegexLiterals => "cel.validator.matches",
            Validator::HomogeneousLiterals => "cel.validator.homogeneous_literals",
            Validator::NestingLimit(_) => "cel.validator.comprehension_nesting_limit",
            Validator::Custom(custom) => custom.name,
        }
    }
}

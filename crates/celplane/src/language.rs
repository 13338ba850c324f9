//! The whole language, for expressions that are not written for any place in the API.

use cel::checker::Validator;
use cel::env::{Builder, Env};
use cel::library;
use cel::syntax::macros;

/// Whatever version is the last one.
const LATEST: u32 = u32::MAX;

/// The whole language: every library in its last version, no variables.
pub(crate) fn builder() -> Builder {
    Env::builder()
        .library(&library::standard())
        .library(&library::optionals(LATEST))
        .library(&library::strings(LATEST))
        .library(&library::lists(LATEST))
        .library(&library::sets())
        .library(&library::math(LATEST))
        .library(&library::encoders())
        .library(&library::regex(LATEST))
        .library(&library::bindings())
        .library(&library::two_variable_comprehensions())
        .macros(macros::EXISTS_ONE)
        .syntax(|syntax| syntax.optional_syntax = true)
        .validator(Validator::DurationLiterals)
        .validator(Validator::TimestampLiterals)
        .validator(Validator::RegexLiterals)
}

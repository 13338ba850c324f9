//! The whole language, for expressions that are not written for any place in the API.

use cel::checker::Validator;
use cel::env::{Builder, Env};
use cel::library;
use cel::syntax::macros;
use cel_kubernetes::libraries as kubernetes;

/// Latest version of every library.
const LATEST: u32 = u32::MAX;

/// The whole language: every library in its last version, Kubernetes' and our own too, and no variables.
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
        .library(&kubernetes::lists::lists(LATEST))
        .library(&kubernetes::regex::regex())
        .library(&kubernetes::urls::urls())
        .library(&kubernetes::quantity::quantity())
        .library(&kubernetes::ip::ip())
        .library(&kubernetes::cidr::cidr())
        .library(&kubernetes::format::format())
        .library(&kubernetes::semver::semver(LATEST))
        .library(&kubernetes::celplane::celplane())
        .macros(macros::EXISTS_ONE)
        .syntax(|syntax| syntax.optional_syntax = true)
        .validator(Validator::DurationLiterals)
        .validator(Validator::TimestampLiterals)
        .validator(Validator::RegexLiterals)
}

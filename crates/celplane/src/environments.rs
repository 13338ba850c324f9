//! The environments that expressions can be written for, by name: one line each in a list.

use anyhow::Context;
use cel::checker::Validator;
use cel::env::{Builder, Env};
use cel::library;
use cel::types::Type;

/// An environment that expressions can be written for.
pub(crate) struct Environment {
    /// Its name.
    pub(crate) name: &'static str,
    build: fn() -> anyhow::Result<Env>,
}

impl Environment {
    /// Builds it.
    pub(crate) fn build(&self) -> anyhow::Result<Env> {
        (self.build)().with_context(|| format!("environment `{}`", self.name))
    }
}

/// All environments.
const ENVIRONMENTS: &[Environment] = &[Environment { name: "base", build: base }];

/// The environment with this name.
pub(crate) fn find(name: &str) -> Option<&'static Environment> {
    ENVIRONMENTS.iter().find(|environment| environment.name == name)
}

/// Whatever version is the last one.
const LATEST: u32 = u32::MAX;

/// The whole language: every library in its last version, no variables.
pub(crate) fn language() -> Builder {
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
        .syntax(|syntax| syntax.optional_syntax = true)
        .validator(Validator::DurationLiterals)
        .validator(Validator::TimestampLiterals)
        .validator(Validator::RegexLiterals)
}

/// The variables of `base`: one or two of each kind of type, none of a known size.
const BASE_VARIABLES: &[(&str, &str)] = &[
    ("x", "int"),
    ("y", "int"),
    ("u", "uint"),
    ("d", "double"),
    ("s", "string"),
    ("t", "string"),
    ("b", "bool"),
    ("by", "bytes"),
    ("l", "list(int)"),
    ("ls", "list(string)"),
    ("m", "map(string, int)"),
    ("ms", "map(string, string)"),
    ("dur", "duration"),
    ("ts", "timestamp"),
    ("a", "dyn"),
];

/// The language as Kubernetes sets it up, with variables of all kinds of types.
fn base() -> anyhow::Result<Env> {
    let mut builder = Env::builder()
        .library(&library::standard())
        .library(&library::optionals(2))
        .library(&library::strings(2))
        .library(&library::sets())
        .library(&library::two_variable_comprehensions())
        .library(&library::lists(3))
        .syntax(|syntax| syntax.optional_syntax = true)
        .validator(Validator::DurationLiterals)
        .validator(Validator::TimestampLiterals)
        .validator(Validator::RegexLiterals)
        .validator(Validator::HomogeneousLiterals)
        .options(|options| {
            options.presence_test_has_cost = false;
        });
    for (name, notation) in BASE_VARIABLES {
        builder = builder.variable(name, Type::parse(notation).context("the notation of a type")?);
    }
    Ok(builder.build()?)
}

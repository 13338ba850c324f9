//! The environment of the recorded cases: the language as Kubernetes sets it up, without Kubernetes' own libraries.

use cel::checker::Validator;
use cel::env::Env;
use cel::library;
use cel::types::Type;

/// Variables of all kinds of types, none of a known size.
pub(crate) fn base() -> Env {
    let variables = [
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
    let builder = Env::builder()
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
        .validator(Validator::HomogeneousLiterals);
    let builder =
        variables.iter().fold(builder, |builder, (name, of)| builder.variable(name, Type::parse(of).unwrap()));
    builder
        .options(|options| {
            options.presence_test_has_cost = false;
        })
        .build()
        .unwrap()
}

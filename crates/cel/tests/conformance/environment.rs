//! The environment of a case: every library of the language, and what the case declares.

use cel::cost::Price;
use cel::env::{Env, Implementation};
use cel::library;
use cel::value::EvalError;

use super::case::{Case, Declaration};
use super::proto::{self, field, repeated, word};

/// Latest version of every library.
const LATEST: u32 = u32::MAX;

/// The environment of a case.
pub(crate) fn of(case: &Case) -> Env {
    let mut builder = Env::builder()
        .library(&library::standard())
        .library(&library::optionals(LATEST))
        .library(&library::strings(LATEST))
        .library(&library::lists(LATEST))
        .library(&library::math(LATEST))
        .library(&library::encoders())
        .library(&library::bindings())
        .library(&library::two_variable_comprehensions())
        .syntax(|syntax| syntax.optional_syntax = true)
        // The reference runs the suite with this option, too.
        .options(|options| {
            options.error_on_bad_presence_test = true;
            // As the reference runs the suite: folded constants can make an error of run time one of planning.
            options.constant_folding = false;
        })
        .container(&case.container);
    for (name, declaration) in case.declarations() {
        builder = match declaration {
            Declaration::Variable(of) => builder.variable(name, proto::type_of(of)),
            Declaration::Overload(overload) => {
                let id = field(overload, "overload_id").map(word).unwrap();
                // Functions are declared to be checked; none is ever called.
                let never = Implementation::Native(|_| Err(EvalError::other("not implemented")));
                builder.overload(id, &signature(name, overload), Price::ONE, never)
            }
        };
    }
    builder.build().unwrap()
}

fn signature(name: &str, overload: &serde_json::Value) -> String {
    let parameters: Vec<String> = repeated(overload, "params").map(|it| proto::type_of(it).to_string()).collect();
    let result = proto::type_of(field(overload, "result_type").unwrap());
    format!("{name}({}) -> {result}", parameters.join(", "))
}

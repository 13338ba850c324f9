//! Kubernetes' functions and a variable of each kind: for tests and tools, not for any field of the API.

use std::sync::Arc;

use cel::cost::NoHints;
use cel::env::EnvError;
use cel::types::Type;

use super::{Dialect, Language};
use crate::compile::{Environment, ExpressionLimits, ResultRule};

/// The variables and the notation of their types.
pub const VARIABLES: [(&str, &str); 15] = [
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

const LIMITS: ExpressionLimits =
    ExpressionLimits { text_bytes: usize::MAX, estimated_cost: None, runtime_cost: 1_000_000 };

/// The environment with a variable of each kind.
pub fn environment(dialect: Dialect) -> Result<Environment, EnvError> {
    environment_in(&dialect.language()?)
}

/// Like `environment`, in a language that other environments share: takes a fraction of the time.
pub fn environment_in(language: &Language) -> Result<Environment, EnvError> {
    let mut builder = language.builder();
    for (name, notation) in VARIABLES {
        builder = builder.variable(name, Type::parse(notation).unwrap_or(Type::Dyn));
    }
    Ok(Environment { env: builder.build()?, hints: Arc::new(NoHints), result: ResultRule::Any, limits: LIMITS })
}

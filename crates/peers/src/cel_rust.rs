//! The crate `cel` (cel-rust), newest version. It has no Kubernetes libraries, so no semver.

use bench::cases::{Case, Input};
use bench::engine::{Batch, Engine, Evaluation, batch};
use peer_cel::{Context, Env, Value};
use std::sync::Arc;

use super::{node, taint, variable};

pub(super) const ENGINE: Engine = Engine { name: "cel 0.15", compile, evaluate };

fn compile(case: &Case) -> Option<Batch> {
    evaluate(case)?;
    let env = Arc::new(Env::stdlib());
    let expression = case.expression;
    Some(batch(move || env.compile(expression)))
}

fn evaluate(case: &Case) -> Option<Evaluation> {
    let env = Arc::new(Env::stdlib());
    let program = env.compile(case.expression).ok()?;
    let mut context = Context::with_env(env);
    match &case.input {
        Input::Taint(fields) => context.add_variable_from_value(variable(&case.input), taint(fields)),
        Input::Node(labels) => context.add_variable_from_value(variable(&case.input), node(labels)),
    }
    let Ok(Value::Bool(verdict)) = program.execute(&context) else {
        return None;
    };
    let batch = batch(move || program.execute(&context));
    Some(Evaluation { verdict, batch })
}

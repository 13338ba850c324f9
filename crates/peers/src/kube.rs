//! The crate `kube-cel`: the Kubernetes libraries on its own, older `cel`.

use bench::cases::{Case, Input};
use bench::engine::{Batch, Engine, Evaluation, batch};
use kube_cel::KubeCelExt as _;
use kube_cel::cel::{Context, Program, Value};

use super::{node, taint, variable};

pub(super) const ENGINE: Engine = Engine { name: "kube-cel 0.8", compile, evaluate };

fn compile(case: &Case) -> Option<Batch> {
    evaluate(case)?;
    let expression = case.expression;
    Some(batch(move || Program::compile(expression)))
}

fn evaluate(case: &Case) -> Option<Evaluation> {
    let program = Program::compile(case.expression).ok()?;
    let mut context = Context::default().with_all();
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

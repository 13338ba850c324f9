//! Our engine, in the environments that placement uses, and the phases of its work one by one.

use crate::cases::{Case, Input};
use crate::engine::{Batch, Engine, Evaluation, batch};
use cel::checker::TypedAst;
use cel::program::{Program, Verdict};
use cel::source::Source;
use cel_kubernetes::compile::{CompiledExpression, Environment};
use cel_kubernetes::environments::node_affinity::{Labels, Node};
use cel_kubernetes::environments::toleration::Taint;
use cel_kubernetes::environments::{Dialect, node_affinity, toleration};

/// Our engine.
pub const ENGINE: Engine = Engine { name: "ours", compile, evaluate };

/// The environment of the place that the case's expression is written for.
#[must_use]
pub fn environment(case: &Case) -> Option<Environment> {
    match case.input {
        Input::Taint(_) => toleration::environment(Dialect::KUBERNETES).ok(),
        Input::Node(_) => node_affinity::environment(Dialect::KUBERNETES).ok(),
    }
}

fn compile(case: &Case) -> Option<Batch> {
    let environment = environment(case)?;
    let expression = case.expression;
    environment.compile(expression).ok()?;
    Some(batch(move || environment.compile(expression)))
}

fn evaluate(case: &Case) -> Option<Evaluation> {
    let compiled = environment(case)?.compile(case.expression).ok()?;
    let mut verdict = verdict(compiled, &case.input)?;
    let first = match verdict() {
        Verdict::TRUE => true,
        Verdict::FALSE => false,
        _ => return None,
    };
    Some(Evaluation { verdict: first, batch: Box::new(move |count| (0..count).for_each(|_| _ = verdict())) })
}

/// Evaluates again and again, on input that is read in place.
fn verdict(compiled: CompiledExpression, input: &Input) -> Option<Box<dyn FnMut() -> Verdict>> {
    use std::hint::black_box;
    Some(match input {
        Input::Taint(fields) => {
            let field = |name: &str| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
            let taint =
                Taint { key: field("key")?, value: field("value")?, effect: field("effect")?, time_added: None };
            Box::new(move || black_box(compiled.verdict(black_box(&taint))))
        }
        Input::Node(labels) => {
            let labels: Labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            Box::new(move || black_box(compiled.verdict(&Node { labels: black_box(&labels) })))
        }
    })
}

/// A phase of our work: its name, and the work to repeat for a case.
pub type Phase = (&'static str, fn(&Case) -> Option<Batch>);

/// The phases from text to verdict, in their order. The first four add up to what [`ENGINE`] compiles, nearly.
pub const PHASES: [Phase; 6] = [
    ("parse", parse),
    ("check", check),
    ("plan", plan),
    ("estimate", estimate),
    ("compile", compile),
    ("evaluate", |case| evaluate(case).map(|evaluation| evaluation.batch)),
];

fn parse(case: &Case) -> Option<Batch> {
    let environment = environment(case)?;
    let expression = case.expression;
    Some(batch(move || environment.env.parse(&Source::new(expression))))
}

/// The checker takes the tree, so that a copy of it is counted too.
fn check(case: &Case) -> Option<Batch> {
    let environment = environment(case)?;
    let ast = environment.env.parse(&Source::new(case.expression)).ok()?;
    Some(batch(move || cel::checker::check(&environment.env, ast.clone())))
}

fn plan(case: &Case) -> Option<Batch> {
    let typed = typed(case)?;
    Some(batch(move || Program::new(&typed)))
}

fn estimate(case: &Case) -> Option<Batch> {
    let environment = environment(case)?;
    let typed = typed(case)?;
    Some(batch(move || cel::cost::estimate(&typed, environment.hints.as_ref())))
}

fn typed(case: &Case) -> Option<TypedAst> {
    environment(case)?.env.compile(case.expression).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    #[test]
    fn every_phase_of_every_case_can_be_repeated() {
        for case in cases::all() {
            for (name, phase) in PHASES {
                phase(&case).unwrap_or_else(|| panic!("{name} of {}", case.name))(2);
            }
        }
    }
}

//! One evaluation, part by part.

use cel::program::Trace;
use cel::syntax::ast::ExprKind;
use cel::value::Value;
use cel_kubernetes::compile::{CompiledExpression, not_a_bool};
use cel_kubernetes::environments::node_affinity::{self, Labels};
use cel_kubernetes::environments::toleration;

/// Trace of an expression's evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The answer, or why there is none.
    pub result: Result<bool, String>,
    /// Actual cost.
    pub cost: u64,
    /// Cost limit.
    pub cost_max: u64,
    /// The evaluated parts, in order; constants and whole inputs are omitted.
    pub steps: Vec<Step>,
    /// Number of omitted steps.
    pub omitted: usize,
}

/// A part of an expression and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The part, as it was written.
    pub text: String,
    /// Value of the part, or its error.
    pub value: Result<String, String>,
    /// Cost of the evaluation up to this step.
    pub cost: u64,
}

impl Evaluation {
    pub(super) fn of_taint(compiled: &CompiledExpression, taint: &toleration::Taint<'_>) -> Self {
        let (evaluation, trace) = compiled.trace(taint);
        Self::new(compiled, &evaluation, &trace)
    }

    pub(super) fn of_labels(compiled: &CompiledExpression, labels: &Labels) -> Self {
        let node = node_affinity::Node { labels };
        let (evaluation, trace) = compiled.trace(&node);
        Self::new(compiled, &evaluation, &trace)
    }

    fn new(compiled: &CompiledExpression, evaluation: &cel::program::Evaluation<'_>, trace: &Trace<'_>) -> Self {
        let result = match &evaluation.result {
            Ok(Value::Bool(truth)) => Ok(*truth),
            Ok(other) => Err(not_a_bool(other).unwrap_or_default()),
            Err(error) => Err(error.to_string()),
        };
        Evaluation {
            result,
            cost: evaluation.cost,
            cost_max: compiled.cost().max,
            steps: steps(compiled, trace),
            omitted: trace.omitted(),
        }
    }
}

fn steps(compiled: &CompiledExpression, trace: &Trace<'_>) -> Vec<Step> {
    let ast = compiled.typed().ast();
    let mut steps: Vec<Step> = Vec::new();
    for step in trace.steps() {
        let expr = &ast[step.id];
        let is_plain = matches!(expr.kind, ExprKind::Literal(_) | ExprKind::Comprehension(_));
        let text = ast.source().snippet(expr.span).trim();
        // Nodes added by a macro have no text, or that of the whole macro.
        if text.is_empty() || (is_plain && ast.macro_call(step.id).is_none()) {
            continue;
        }
        let value = match &step.result {
            Ok(Value::Object(_) | Value::Map(_)) => continue,
            Ok(Value::String(text)) => Ok(format!("{:?}", text.as_str())),
            Ok(value) => Ok(value.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let is_new = steps.last().is_none_or(|last| last.text != text || last.value != value);
        if is_new {
            steps.push(Step { text: text.to_owned(), value, cost: step.cost });
        }
    }
    steps
}

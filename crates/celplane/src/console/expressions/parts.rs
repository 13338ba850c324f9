//! The parts of an expression: where each stands, its type, its value, and what it may cost and did cost.

use std::collections::HashMap;

use api::json::{self, Value};
use cel::checker::TypedAst;
use cel::program::Trace;
use cel::source::Span;
use cel::syntax::ast::{Ast, ExprId, ExprKind};
use cel::value::Value as Cel;
use cel_kubernetes::compile::Environment;

use crate::output::unsigned;

/// Parts that are drawn; further ones would not be readable.
const PARTS_MAX: usize = 200;
/// Parts whose cost is estimated.
const ESTIMATES_MAX: usize = 60;
/// Characters of a value.
const TEXT_MAX: usize = 2_000;
/// Elements of a list that are written out within an expression.
const ELEMENTS_MAX: usize = 20;

/// A part of an expression: its place in the text, and its node.
struct Part {
    span: Span,
    id: ExprId,
}

/// Every part with a text of its own, the outermost first. Offsets count UTF-16 units, as pages do.
pub(super) fn of(ast: &Ast, typed: Option<&TypedAst>, environment: Option<&Environment>, trace: &Trace<'_>) -> Value {
    let text = ast.source().text();
    let offset = |at: u32| {
        let before = text.get(..usize::try_from(at).unwrap_or(usize::MAX)).unwrap_or(text);
        unsigned(u64::try_from(before.encode_utf16().count()).unwrap_or(u64::MAX))
    };
    let found = parts(ast);
    let outcomes = outcomes(ast, trace);
    let mut estimates = 0_usize;
    let all = found.iter().map(|part| {
        let mut object = json::Object::new();
        object.insert("start", offset(part.span.start));
        object.insert("end", offset(part.span.end));
        if let Some(typed) = typed {
            object.insert("type", typed.type_of(part.id).to_string());
        }
        if let Some(environment) = environment.filter(|_| estimates < ESTIMATES_MAX) {
            estimates = estimates.saturating_add(1);
            // Parts that refer to the variable of a loop have no meaning, and no estimate, by themselves.
            if let Ok(typed) = environment.env.compile(ast.source().snippet(part.span)) {
                object.insert("estimated", super::range(cel::cost::estimate(&typed, environment.hints.as_ref())));
            }
        }
        if let Some(outcome) = outcomes.get(&part.span) {
            match &outcome.result {
                Ok(value) => object.insert("value", value.as_str()),
                Err(error) => object.insert("error", error.as_str()),
            };
            object.insert("cost", unsigned(outcome.cost));
            object.insert("times", unsigned(outcome.times));
        }
        Value::Object(object)
    });
    Value::Array(all.collect())
}

fn parts(ast: &Ast) -> Vec<Part> {
    let mut found: Vec<Part> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut pending = vec![ast.root()];
    while let Some(id) = pending.pop() {
        let expr = &ast[id];
        let has_text = !ast.source().snippet(expr.span).trim().is_empty();
        if has_text && !matches!(expr.kind, ExprKind::Literal(_)) && seen.insert(expr.span) {
            found.push(Part { span: expr.span, id });
        }
        let first = pending.len();
        children(&expr.kind, &mut |child| pending.push(child));
        if let Some(children) = pending.get_mut(first..) {
            children.reverse();
        }
        if found.len() >= PARTS_MAX {
            break;
        }
    }
    found
}

fn children(kind: &ExprKind, visit: &mut dyn FnMut(ExprId)) {
    match kind {
        ExprKind::Literal(_) | ExprKind::Ident(_) => {}
        ExprKind::Select { operand, .. } => visit(*operand),
        ExprKind::Call { target, args, .. } => target.iter().chain(args).for_each(|id| visit(*id)),
        ExprKind::List(elements) => elements.iter().for_each(|it| visit(it.value)),
        ExprKind::Map(entries) => entries.iter().for_each(|it| {
            visit(it.key);
            visit(it.value);
        }),
        ExprKind::Struct { fields, .. } => fields.iter().for_each(|it| visit(it.value)),
        ExprKind::Comprehension(fold) => {
            [fold.range, fold.init, fold.condition, fold.step, fold.result].into_iter().for_each(visit);
        }
    }
}

struct Outcome {
    result: Result<String, String>,
    cost: u64,
    times: u64,
}

/// The last outcome of each part, the cost of all its evaluations, and their number.
fn outcomes(ast: &Ast, trace: &Trace<'_>) -> HashMap<Span, Outcome> {
    let mut outcomes: HashMap<Span, Outcome> = HashMap::new();
    let steps = trace.steps();
    let is_within = |inner: Span, outer: Span| inner.start >= outer.start && inner.end <= outer.end;
    for (index, step) in steps.iter().enumerate() {
        let span = ast[step.id].span;
        if span.end <= span.start {
            continue;
        }
        // The parts of a part are evaluated directly before it.
        let before = steps.get(..index).unwrap_or_default().iter().rev();
        let before = before.take(1_000).find(|it| {
            let other = ast[it.id].span;
            other == span || !is_within(other, span)
        });
        let cost = step.cost.saturating_sub(before.map_or(0, |it| it.cost));
        let result = match &step.result {
            Ok(value) => Ok(text_of(value, false)),
            Err(error) => Err(error.to_string()),
        };
        let outcome = outcomes.entry(span).or_insert(Outcome { result: Ok(String::new()), cost: 0, times: 0 });
        outcome.result = result;
        outcome.cost = outcome.cost.saturating_add(cost);
        outcome.times = outcome.times.saturating_add(1);
    }
    outcomes
}

/// A value as text. Within an expression, large values are only described.
pub(super) fn text_of(value: &Cel<'_>, is_whole: bool) -> String {
    match value {
        Cel::Object(object) if !is_whole => object.type_name().to_owned(),
        Cel::Map(map) if !is_whole => format!("map of {}", map.len()),
        Cel::List(list) if !is_whole && list.len() > ELEMENTS_MAX => format!("list of {}", list.len()),
        value => {
            let text = crate::literal::text(value);
            match text.char_indices().nth(TEXT_MAX) {
                Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
                None => text,
            }
        }
    }
}

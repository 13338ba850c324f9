//! Validation of checked expressions: literals that can never be valid, and limits on the shape.
//!
//! Follows the order, the positions and the texts of cel-go's `cel/validator.go`.

use super::assign::is_same;
use super::format::ShownType;
use super::{Reference, TypedAst};
use crate::env::{Function, Implementation, Validator};
use crate::regex::Regex;
use crate::source::Issues;
use crate::syntax::ast::{ExprId, ExprKind, Literal};
use crate::types::Type;
use crate::value::Value;

impl Validator {
    /// Whether there may be something to report.
    fn is_needed(&self, seen: VisitedKinds) -> bool {
        match self {
            Validator::DurationLiterals | Validator::TimestampLiterals | Validator::RegexLiterals => seen.literal_calls,
            Validator::HomogeneousLiterals => seen.mixable_literals,
            Validator::NestingLimit(_) => seen.comprehensions,
            Validator::Custom(_) => true,
        }
    }

    fn validate(&self, checked: &TypedAst, issues: &mut Issues) {
        match self {
            Validator::DurationLiterals => check_first_argument(checked, issues, DURATION, converts),
            Validator::TimestampLiterals => check_first_argument(checked, issues, TIMESTAMP, converts),
            Validator::RegexLiterals => check_first_argument(checked, issues, MATCHES, is_regex),
            Validator::HomogeneousLiterals => check_homogeneous(checked, issues),
            Validator::NestingLimit(limit) => check_nesting(checked, issues, *limit),
            Validator::Custom(custom) => (custom.validate)(checked, issues),
        }
    }
}

const DURATION: &str = "duration";
const TIMESTAMP: &str = "timestamp";
const MATCHES: &str = "matches";

/// Kinds of nodes that the checker visited, so that a tree is searched only for nodes that it may contain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VisitedKinds {
    /// Whether there is a call of a function whose literal arguments are validated.
    pub(super) literal_calls: bool,
    /// Whether there is a list or map literal with several entries.
    pub(super) mixable_literals: bool,
    pub(super) comprehensions: bool,
}

impl VisitedKinds {
    pub(super) fn call(&mut self, function: &Function, first_is_literal: bool) {
        self.literal_calls |= first_is_literal && matches!(&*function.name, DURATION | TIMESTAMP | MATCHES);
    }
}

/// Runs the environment's validators.
pub(super) fn validate(checked: TypedAst, seen: VisitedKinds) -> Result<TypedAst, Issues> {
    let mut issues: Option<Issues> = None;
    for validator in checked.env.validators().iter().filter(|validator| validator.is_needed(seen)) {
        let issues = issues.get_or_insert_with(|| Issues::new(checked.ast.source()));
        validator.validate(&checked, issues);
    }
    match issues {
        Some(issues) if !issues.is_empty() => Err(issues),
        _ => Ok(checked),
    }
}

/// Examines the first argument of each call of a function, where it is a literal.
///
/// cel-go counts arguments without the receiver, so of `matches('a', 'b')` it is the text that is examined, not the pattern.
fn check_first_argument(
    checked: &TypedAst,
    issues: &mut Issues,
    function: &str,
    is_valid: fn(&TypedAst, ExprId, &Literal) -> bool,
) {
    for id in checked.ast.postorder(checked.ast.root()) {
        let ExprKind::Call { args, .. } = &checked.ast[id].kind else { continue };
        let Some(argument) = args.first() else { continue };
        let ExprKind::Literal(literal) = &checked.ast[*argument].kind else { continue };
        if checked.called_name(id) == Some(function) && !is_valid(checked, id, literal) {
            issues.report(checked.ast[*argument].position, format!("invalid {function} argument"));
        }
    }
}

/// Whether the called function accepts the literal.
fn converts(checked: &TypedAst, call: ExprId, literal: &Literal) -> bool {
    let Reference::Function { function, overloads, .. } = checked.reference(call) else { return true };
    let operands = [Value::from(literal)];
    // Null checks where a time is expected, but no overload takes it.
    let Some(overload) = overloads.of(function).find(|overload| overload.accepts(&operands)) else { return false };
    match &overload.implementation {
        Implementation::Native(code) => code(&operands).is_ok(),
        Implementation::Closure(code) => code(&operands).is_ok(),
        Implementation::Singleton => function.singleton.is_none_or(|shared| (shared.call)(&operands).is_ok()),
        Implementation::Builtin => true,
    }
}

fn is_regex(_: &TypedAst, _: ExprId, literal: &Literal) -> bool {
    match literal {
        Literal::String(pattern) => Regex::new(pattern).is_ok(),
        _ => true,
    }
}

fn check_homogeneous(checked: &TypedAst, issues: &mut Issues) {
    let mut mismatch = |id: ExprId, expected: &Type, actual: &Type| {
        let message = format!("expected type '{}' but found '{}'", ShownType(expected), ShownType(actual));
        issues.report(checked.ast[id].position, message);
    };
    let literals = literals_to_compare(checked);
    for id in &literals {
        let ExprKind::List(elements) = &checked.ast[*id].kind else { continue };
        let mut types =
            elements.iter().map(|element| (element.value, entry_type(checked, element.value, element.optional)));
        let Some((_, expected)) = types.next() else { continue };
        if let Some((other, actual)) = types.find(|(_, actual)| !is_same(expected, actual)) {
            mismatch(other, expected, actual);
        }
    }
    for id in &literals {
        let ExprKind::Map(entries) = &checked.ast[*id].kind else { continue };
        let mut entries = entries
            .iter()
            .map(|entry| (entry, checked.type_of(entry.key), entry_type(checked, entry.value, entry.optional)));
        let Some((_, key, value)) = entries.next() else { continue };
        for (entry, actual_key, actual_value) in entries {
            if !is_same(key, actual_key) {
                mismatch(entry.key, key, actual_key);
            }
            if !is_same(value, actual_value) {
                mismatch(entry.value, value, actual_value);
            }
        }
    }
}

/// The type of an element or a map's value; an optional one has the type of its content.
fn entry_type(checked: &TypedAst, id: ExprId, optional: bool) -> &Type {
    let of = checked.type_of(id);
    if optional { of.as_optional().unwrap_or(of) } else { of }
}

/// List and map literals with several entries, children first, but for those in functions that take mixed ones.
fn literals_to_compare(checked: &TypedAst) -> Vec<ExprId> {
    let ast = &checked.ast;
    let has_several = |id: ExprId| match &ast[id].kind {
        ExprKind::List(elements) => elements.len() > 1,
        ExprKind::Map(entries) => entries.len() > 1,
        _ => false,
    };
    let mixed_within = |id: ExprId| {
        let customs = checked.env.validators().iter().filter_map(|validator| match validator {
            Validator::Custom(custom) => Some(custom.mixed_literals_within),
            _ => None,
        });
        let name = checked.called_name(id);
        name.is_some_and(|name| customs.flatten().any(|function| *function == name))
    };
    let mut found = Vec::new();
    // Each node on the path down, its next child, and whether it is inside a function that accepts mixed
    // literals.
    let mut path = vec![(ast.root(), 0_usize, false)];
    while let Some((id, next, mixed)) = path.last_mut() {
        match ast[*id].kind.child(*next) {
            Some(child) => {
                *next = next.saturating_add(1);
                let mixed = *mixed || mixed_within(*id);
                path.push((child, 0, mixed));
            }
            None => {
                if !*mixed && has_several(*id) {
                    found.push(*id);
                }
                path.pop();
            }
        }
    }
    found
}

fn check_nesting(checked: &TypedAst, issues: &mut Issues, limit: usize) {
    let ast = &checked.ast;
    let loops = |id: ExprId| match &ast[id].kind {
        ExprKind::Comprehension(it) => !matches!(&ast[it.range].kind, ExprKind::List(elements) if elements.is_empty()),
        _ => false,
    };
    // Each node on the path down, its next child, and its number of enclosing loops, including itself.
    let mut path = vec![(ast.root(), 0_usize, usize::from(loops(ast.root())))];
    while let Some((id, next, nesting)) = path.last_mut() {
        match ast[*id].kind.child(*next) {
            Some(child) => {
                *next = next.saturating_add(1);
                let nesting = nesting.saturating_add(usize::from(loops(child)));
                path.push((child, 0, nesting));
            }
            None => {
                if *nesting > limit && matches!(ast[*id].kind, ExprKind::Comprehension(_)) {
                    issues.report(ast[*id].position, "comprehension exceeds nesting limit");
                }
                path.pop();
            }
        }
    }
}

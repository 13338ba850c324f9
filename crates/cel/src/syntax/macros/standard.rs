//! The macros of the language itself: `has`, `all`, `exists`, `exists_one`, `map`, `filter`.
//!
//! Follows cel-go's `parser/macro.go`.

use super::{Arity, ExpandResult, Expansion, Macro, MacroError};
use crate::syntax::ast::{ACCUMULATOR, Comprehension, ExprId, ExprKind, Literal, Name, operator};

/// `has(a.b)`, `all`, `exists`, `exists_one`, `map` with and without a condition, `filter`.
pub static STANDARD: &[Macro] = &[
    Macro::global("has", Arity::Exact(1), expand_has),
    Macro::member("all", Arity::Exact(2), expand_all),
    Macro::member("exists", Arity::Exact(2), expand_exists),
    Macro::member("exists_one", Arity::Exact(2), expand_exists_one),
    Macro::member("map", Arity::Exact(2), expand_map),
    Macro::member("map", Arity::Exact(3), expand_map),
    Macro::member("filter", Arity::Exact(2), expand_filter),
];

/// `existsOne`, a later name for `exists_one` that cel-go's environments do not have by themselves.
pub static EXISTS_ONE: &[Macro] = &[Macro::member("existsOne", Arity::Exact(2), expand_exists_one)];

/// A fold without its range and its variables.
pub(super) struct Fold {
    pub(super) init: ExprId,
    pub(super) condition: ExprId,
    pub(super) step: ExprId,
    pub(super) result: ExprId,
}

impl Fold {
    /// True while the predicate holds for every element.
    pub(super) fn all(make: &mut Expansion<'_>, predicate: ExprId) -> Fold {
        let init = make.bool(true);
        let accumulator = make.accumulator();
        let condition = make.call(operator::NOT_STRICTLY_FALSE, [accumulator]);
        let accumulator = make.accumulator();
        let step = make.call(operator::LOGICAL_AND, [accumulator, predicate]);
        Fold { init, condition, step, result: make.accumulator() }
    }

    /// True once the predicate holds for an element.
    pub(super) fn exists(make: &mut Expansion<'_>, predicate: ExprId) -> Fold {
        let init = make.bool(false);
        let accumulator = make.accumulator();
        let not = make.call(operator::LOGICAL_NOT, [accumulator]);
        let condition = make.call(operator::NOT_STRICTLY_FALSE, [not]);
        let accumulator = make.accumulator();
        let step = make.call(operator::LOGICAL_OR, [accumulator, predicate]);
        Fold { init, condition, step, result: make.accumulator() }
    }

    /// Counts the elements for which the predicate holds, and asks whether it was one.
    pub(super) fn exists_one(make: &mut Expansion<'_>, predicate: ExprId) -> Fold {
        let init = make.literal(Literal::Int(0));
        let condition = make.bool(true);
        let accumulator = make.accumulator();
        let one = make.literal(Literal::Int(1));
        let more = make.call(operator::ADD, [accumulator, one]);
        let step = keep_if(make, Some(predicate), more);
        let accumulator = make.accumulator();
        let one = make.literal(Literal::Int(1));
        Fold { init, condition, step, result: make.call(operator::EQUALS, [accumulator, one]) }
    }

    /// Collects an expression's values in a list, where the condition holds.
    pub(super) fn collect(make: &mut Expansion<'_>, filter: Option<ExprId>, element: ExprId) -> Fold {
        let init = make.list(&[]);
        let condition = make.bool(true);
        let accumulator = make.accumulator();
        let list = make.list(&[element]);
        let more = make.call(operator::ADD, [accumulator, list]);
        let step = keep_if(make, filter, more);
        Fold { init, condition, step, result: make.accumulator() }
    }

    /// The fold over `range`.
    pub(super) fn over(
        self,
        make: &mut Expansion<'_>,
        range: ExprId,
        variable: Name,
        second_variable: Option<Name>,
    ) -> ExprId {
        let Fold { init, condition, step, result } = self;
        make.comprehension(Comprehension {
            range,
            variable,
            second_variable,
            accumulator: ACCUMULATOR,
            init,
            condition,
            step,
            result,
        })
    }
}

/// `filter ? step : accumulator`, or just the step.
pub(super) fn keep_if(make: &mut Expansion<'_>, filter: Option<ExprId>, step: ExprId) -> ExprId {
    match filter {
        None => step,
        Some(filter) => {
            let accumulator = make.accumulator();
            make.call(operator::CONDITIONAL, [filter, step, accumulator])
        }
    }
}

const NOT_A_SIMPLE_NAME: &str = "argument must be a simple name";
const NOT_AN_IDENTIFIER: &str = "argument is not an identifier";

fn expand_has(make: &mut Expansion<'_>, _: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    let [arg] = args else { return Ok(None) };
    match &make.ast()[*arg].kind {
        // cel-go: a test of a test is a test.
        ExprKind::Select { operand, field, .. } => {
            let (operand, field) = (*operand, field.clone());
            Ok(Some(make.presence_test(operand, field)))
        }
        _ => Err(make.error(*arg, "invalid argument to has() macro")),
    }
}

type FoldFn = fn(&mut Expansion<'_>, ExprId) -> Fold;

fn expand_quantifier(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId], fold: FoldFn) -> ExpandResult {
    let (Some(range), [variable, predicate]) = (target, args) else { return Ok(None) };
    let name = make.iteration_variable(*variable, NOT_A_SIMPLE_NAME)?;
    let fold = fold(make, *predicate);
    Ok(Some(fold.over(make, range, name, None)))
}

fn expand_all(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    expand_quantifier(make, target, args, Fold::all)
}

fn expand_exists(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    expand_quantifier(make, target, args, Fold::exists)
}

fn expand_exists_one(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    expand_quantifier(make, target, args, Fold::exists_one)
}

/// `range.map(variable, [condition,] element)`
pub(super) fn make_map(make: &mut Expansion<'_>, range: ExprId, args: &[ExprId]) -> Result<Option<ExprId>, MacroError> {
    let (variable, filter, element) = match args {
        [variable, element] => (*variable, None, *element),
        [variable, filter, element] => (*variable, Some(*filter), *element),
        _ => return Ok(None),
    };
    let name = make.iteration_variable(variable, NOT_AN_IDENTIFIER)?;
    let fold = Fold::collect(make, filter, element);
    Ok(Some(fold.over(make, range, name, None)))
}

fn expand_map(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    match target {
        Some(range) => make_map(make, range, args),
        None => Ok(None),
    }
}

fn expand_filter(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    let (Some(range), [variable, filter]) = (target, args) else { return Ok(None) };
    let name = make.iteration_variable(*variable, NOT_AN_IDENTIFIER)?;
    let fold = Fold::collect(make, Some(*filter), *variable);
    Ok(Some(fold.over(make, range, name, None)))
}

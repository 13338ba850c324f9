//! Macros on optional values: `optMap` and `optFlatMap`.
//!
//! Follows cel-go's `cel/library.go`; the functions they call are left to the library of optional values.

use super::{Arity, ExpandResult, Expansion, Macro};
use crate::syntax::ast::{ExprId, Name, operator};

/// `optional.optMap(variable, value)` and `optional.optFlatMap(variable, optional)`.
pub static OPTIONAL: &[Macro] = &[
    Macro::member("optMap", Arity::Exact(2), expand_opt_map),
    Macro::member("optFlatMap", Arity::Exact(2), expand_opt_flat_map),
];

fn expand_opt_map(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    expand(make, target, args, "optMap() variable name must be a simple identifier", true)
}

fn expand_opt_flat_map(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    expand(make, target, args, "optFlatMap() variable name must be a simple identifier", false)
}

/// `target.hasValue() ? result : optional.none()`, the result with the value bound to the variable.
fn expand(
    make: &mut Expansion<'_>,
    target: Option<ExprId>,
    args: &[ExprId],
    message: &'static str,
    wrap: bool,
) -> ExpandResult {
    let (Some(target), [variable, result]) = (target, args) else { return Ok(None) };
    let Some(name) = make.ident_name(*variable).cloned() else {
        return Err(make.error(*variable, message));
    };
    let has_value = make.member_call(Name::from_static("hasValue"), target, []);
    let copy = make.copy(target)?;
    let value = make.member_call(Name::from_static("value"), copy, []);
    let bound = make.bind(name, value, *result);
    let present = if wrap { make.call(Name::from_static("optional.of"), [bound]) } else { bound };
    let none = make.call(Name::from_static("optional.none"), []);
    Ok(Some(make.call(operator::CONDITIONAL, [has_value, present, none])))
}

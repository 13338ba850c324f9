//! The macro `list.sortBy(variable, key)`.
//!
//! Follows cel-go's `ext/lists.go`; the function `@sortByAssociatedKeys` is left to the library of lists.

use super::standard::make_map;
use super::{Arity, ExpandResult, Expansion, Macro};
use crate::syntax::ast::{ExprId, ExprKind, Name};

/// `list.sortBy(variable, key)`
pub static SORT_BY: &[Macro] = &[Macro::member("sortBy", Arity::Exact(2), expand_sort_by)];

const INPUT: Name = Name::from_static("@__sortBy_input__");

fn expand_sort_by(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    let Some(target) = target else { return Ok(None) };
    if matches!(make.ast()[target].kind, ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. }) {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(make.error(target, message));
    }
    let range = make.ident(INPUT);
    let Some(keys) = make_map(make, range, args)? else { return Ok(None) };
    let list = make.ident(INPUT);
    let sorted = make.member_call(Name::from_static("@sortByAssociatedKeys"), list, [keys]);
    Ok(Some(make.bind(INPUT, target, sorted)))
}

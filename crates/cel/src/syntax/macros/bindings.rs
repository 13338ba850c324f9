//! The macro `cel.bind(variable, value, expression)`.
//!
//! Follows cel-go's `ext/bindings.go`.

use super::{Arity, ExpandResult, Expansion, Macro};
use crate::syntax::ast::ExprId;

/// `cel.bind(variable, value, expression)`
pub static BINDINGS: &[Macro] = &[Macro::member("bind", Arity::Exact(3), expand_bind)];

fn expand_bind(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    let (Some(target), [variable, value, result]) = (target, args) else { return Ok(None) };
    if make.ident_name(target).is_none_or(|name| *name != "cel") {
        return Ok(None);
    }
    let Some(name) = make.ident_name(*variable).cloned() else {
        return Err(make.error(*variable, "cel.bind() variable names must be simple identifiers"));
    };
    Ok(Some(make.bind(name, *value, *result)))
}

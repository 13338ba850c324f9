//! Macros over index and element, or key and value: quantifiers, `transformList`, `transformMap`, `transformMapEntry`.
//!
//! Follows cel-go's `ext/comprehensions.go`; the function `cel.@mapInsert` is left to the library of that name.

use super::standard::{Fold, keep_if};
use super::{Arity, ExpandResult, Expansion, Macro, MacroError};
use crate::syntax::ast::{ExprId, Name};

/// `all`, `exists`, `existsOne`, `exists_one`, `transformList`, `transformMap`, `transformMapEntry`.
pub static TWO_VARIABLE: &[Macro] = &[
    Macro::member("all", Arity::Exact(3), expand_all),
    Macro::member("exists", Arity::Exact(3), expand_exists),
    Macro::member("existsOne", Arity::Exact(3), expand_exists_one),
    Macro::member("exists_one", Arity::Exact(3), expand_exists_one),
    Macro::member("transformList", Arity::Exact(3), expand_transform_list),
    Macro::member("transformList", Arity::Exact(4), expand_transform_list),
    Macro::member("transformMap", Arity::Exact(3), expand_transform_map),
    Macro::member("transformMap", Arity::Exact(4), expand_transform_map),
    Macro::member("transformMapEntry", Arity::Exact(3), expand_transform_map_entry),
    Macro::member("transformMapEntry", Arity::Exact(4), expand_transform_map_entry),
];

/// The function that adds an entry, or the entries of a map, to a map.
pub const MAP_INSERT: Name = Name::from_static("cel.@mapInsert");

fn variables(make: &Expansion<'_>, first: ExprId, second: ExprId) -> Result<(Name, Name), MacroError> {
    let name = |id| make.ident_name(id).cloned().ok_or_else(|| make.error(id, "argument must be a simple name"));
    let (first_name, second_name) = (name(first)?, name(second)?);
    if first_name == second_name {
        return Err(make.error(second, format!("duplicate variable name: {first_name}")));
    }
    make.check_iteration_variable(first, &first_name)?;
    make.check_iteration_variable(second, &second_name)?;
    Ok((first_name, second_name))
}

fn expand_quantifier(
    make: &mut Expansion<'_>,
    target: Option<ExprId>,
    args: &[ExprId],
    fold: fn(&mut Expansion<'_>, ExprId) -> Fold,
) -> ExpandResult {
    let (Some(range), [first, second, predicate]) = (target, args) else { return Ok(None) };
    let (first, second) = variables(make, *first, *second)?;
    let fold = fold(make, *predicate);
    Ok(Some(fold.over(make, range, first, Some(second))))
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

/// The arguments of a transformation: two variables, perhaps a condition, and what each element becomes.
struct Transformation {
    range: ExprId,
    first: Name,
    second: Name,
    filter: Option<ExprId>,
    element: ExprId,
}

impl Transformation {
    fn read(make: &Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> Result<Option<Self>, MacroError> {
        let Some(range) = target else { return Ok(None) };
        let (first, second, filter, element) = match args {
            [first, second, element] => (*first, *second, None, *element),
            [first, second, filter, element] => (*first, *second, Some(*filter), *element),
            _ => return Ok(None),
        };
        let (first, second) = variables(make, first, second)?;
        Ok(Some(Transformation { range, first, second, filter, element }))
    }

    /// A fold that starts with an empty map and inserts into it what `entry` says.
    fn insert(self, make: &mut Expansion<'_>, entry: &[ExprId]) -> ExprId {
        let accumulator = make.accumulator();
        let insert = make.call(MAP_INSERT, [&[accumulator], entry].concat());
        let step = keep_if(make, self.filter, insert);
        let fold = Fold { init: make.map(&[]), condition: make.bool(true), step, result: make.accumulator() };
        fold.over(make, self.range, self.first, Some(self.second))
    }
}

fn expand_transform_list(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    let Some(it) = Transformation::read(make, target, args)? else { return Ok(None) };
    let fold = Fold::collect(make, it.filter, it.element);
    Ok(Some(fold.over(make, it.range, it.first, Some(it.second))))
}

fn expand_transform_map(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    let Some(it) = Transformation::read(make, target, args)? else { return Ok(None) };
    let key = make.ident(it.first.clone());
    let entry = [key, it.element];
    Ok(Some(it.insert(make, &entry)))
}

fn expand_transform_map_entry(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    let Some(it) = Transformation::read(make, target, args)? else { return Ok(None) };
    let entry = [it.element];
    Ok(Some(it.insert(make, &entry)))
}

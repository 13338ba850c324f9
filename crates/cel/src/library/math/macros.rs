//! `math.least(…)` and `math.greatest(…)`: any number of arguments becomes a call with one, two, or a list.
//!
//! Literals that are not numbers are rejected at once; other non-numbers are found by the checker.

use crate::syntax::ast::{ExprId, ExprKind, Literal, Name};
use crate::syntax::macros::{Arity, ExpandResult, Expansion, Macro};

pub(super) static MACROS: &[Macro] = &[
    Macro::member("least", Arity::Variadic, |make, target, args| expand(make, target, args, &LEAST)),
    Macro::member("greatest", Arity::Variadic, |make, target, args| expand(make, target, args, &GREATEST)),
];

struct ExtremeMacro {
    function: Name,
    no_argument: &'static str,
    bad_single: &'static str,
    bad_literal: &'static str,
}

const LEAST: ExtremeMacro = ExtremeMacro {
    function: Name::from_static("math.@min"),
    no_argument: "math.least() requires at least one argument",
    bad_single: "math.least() invalid single argument value",
    bad_literal: "math.least() simple literal arguments must be numeric",
};

const GREATEST: ExtremeMacro = ExtremeMacro {
    function: Name::from_static("math.@max"),
    no_argument: "math.greatest() requires at least one argument",
    bad_single: "math.greatest() invalid single argument value",
    bad_literal: "math.greatest() simple literal arguments must be numeric",
};

fn expand(make: &mut Expansion<'_>, target: Option<ExprId>, args: &[ExprId], extreme: &ExtremeMacro) -> ExpandResult {
    let Some(target) = target else { return Ok(None) };
    if make.ident_name(target).is_none_or(|name| *name != "math") {
        return Ok(None);
    }
    match args {
        [] => return Err(make.error(target, extreme.no_argument)),
        [single] => {
            if !may_be_number(make, *single) && !is_list_of_numbers(make, *single) {
                return Err(make.error(*single, extreme.bad_single));
            }
        }
        several => {
            if let Some(bad) = several.iter().find(|argument| !may_be_number(make, **argument)) {
                return Err(make.error(*bad, extreme.bad_literal));
            }
        }
    }
    let args = if args.len() > 2 { vec![make.list(args)] } else { args.to_vec() };
    Ok(Some(make.call(extreme.function.clone(), args)))
}

fn may_be_number(make: &Expansion<'_>, id: ExprId) -> bool {
    match &make.ast()[id].kind {
        ExprKind::Literal(literal) => matches!(literal, Literal::Int(_) | Literal::Uint(_) | Literal::Double(_)),
        ExprKind::List(_) | ExprKind::Map(_) | ExprKind::Struct { .. } => false,
        _ => true,
    }
}

fn is_list_of_numbers(make: &Expansion<'_>, id: ExprId) -> bool {
    match &make.ast()[id].kind {
        ExprKind::List(elements) => {
            !elements.is_empty() && elements.iter().all(|element| may_be_number(make, element.value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::env::Env;
    use crate::library;

    #[track_caller]
    fn check(expression: &str, expected: Result<&str, &str>) {
        let env = Env::builder().library(&library::standard()).library(&library::math(2)).build().unwrap();
        let answer = env.compile(expression).map(|typed| typed.result_type().to_string());
        match (answer, expected) {
            (Ok(of), Ok(expected)) => assert_eq!(of, expected),
            (Err(issues), Err(expected)) => assert!(issues.to_string().contains(expected), "{issues}"),
            (answer, _) => panic!("{answer:?}"),
        }
    }

    #[test]
    fn least_and_greatest_take_any_number_of_numbers() {
        check("math.least(1)", Ok("int"));
        check("math.least(1, 2.5)", Ok("dyn"));
        check("math.greatest(1, 2, 3)", Ok("int"));
        check("math.greatest([1.5, 2.5])", Ok("double"));
        check("math.least()", Err("math.least() requires at least one argument"));
        check("math.least('a')", Err("math.least() invalid single argument value"));
        check("math.greatest([])", Err("math.greatest() invalid single argument value"));
        check("math.greatest(1, 'a')", Err("math.greatest() simple literal arguments must be numeric"));
        check("{'least': 1}.least(1)", Err("undeclared reference to 'least'"));
    }
}

//! Our own library: `semver.compare(version, range)` and `format(text, arguments…)`.
//!
//! Kubernetes has neither; the enhancement proposals that we implement use both. Versions and ranges are read tolerantly,
//! see [`api::semver`]; a range that is written in the expression is read when the expression is checked.

use api::semver::{Version, VersionRange};
use cel::checker::{CustomValidator, TypedAst, Validator};
use cel::cost::{Cost, Price, STRING_TRAVERSAL_FACTOR};
use cel::env::{Library, Overload, PlanTime, PreparedCall};
use cel::source::Issues;
use cel::syntax::ast::{ExprId, ExprKind, Literal, Name};
use cel::syntax::macros::{Arity, ExpandResult, Expansion, Macro};
use cel::value::{EvalError, Value};

use super::{at_plan_time, library, native, price, text};

/// The library.
pub fn celplane() -> Library {
    Library { macros: MACROS, validators: VALIDATORS, ..library("celplane", 0, OVERLOADS) }
}

const COMPARE: &str = "semver.compare";

/// Price of `semver(string)`, plus one.
const COMPARE_PRICE: Price = Price::Sized {
    estimate: |site| site.size(0).times_factor(STRING_TRAVERSAL_FACTOR).plus(Cost::exactly(1)).into(),
    actual: |operands, _| price::read(price::size(operands, 0)).saturating_add(1),
    when_dynamic: true,
};

static OVERLOADS: &[Overload] = &[at_plan_time(
    PlanTime::Prepare(prepare_compare),
    native("celplane_semver_compare", ":semver.compare(string, string) -> bool", COMPARE_PRICE, |operands| {
        compare(&parse_range(text(operands, 1)?)?, text(operands, 0)?).map(Value::Bool)
    }),
)];

static MACROS: &[Macro] = &[Macro::global("format", Arity::Variadic, expand_format)];

fn prepare_compare(constants: &[Option<&Value<'static>>]) -> Option<Result<PreparedCall, EvalError>> {
    let range = constants.get(1).copied().flatten()?.as_str()?;
    Some(parse_range(range).map(|range| PreparedCall::test(move |version| compare(&range, version))))
}

fn parse_range(text: &str) -> Result<VersionRange, EvalError> {
    VersionRange::parse(text).map_err(|error| {
        let reason = std::error::Error::source(&error).map(|reason| format!(": {reason}")).unwrap_or_default();
        EvalError::other(format!("{error}{reason}"))
    })
}

fn compare(range: &VersionRange, version: &str) -> Result<bool, EvalError> {
    match Version::parse_tolerant(version) {
        Ok(version) => Ok(range.matches(&version)),
        Err(error) => Err(EvalError::other(error.to_string())),
    }
}

/// The literal in `semver.compare(version, '>=1.28.0')` is a range.
static VALIDATORS: &[Validator] = &[Validator::Custom(CustomValidator {
    name: "celplane.validator.range",
    validate: check_ranges,
    mixed_literals_within: &[],
})];

fn check_ranges(checked: &TypedAst, issues: &mut Issues) {
    let ast = checked.ast();
    for id in ast.postorder(ast.root()) {
        if checked.called_name(id) != Some(COMPARE) {
            continue;
        }
        let ExprKind::Call { args, .. } = &ast[id].kind else { continue };
        let Some(range) = args.get(1) else { continue };
        if let ExprKind::Literal(Literal::String(text)) = &ast[*range].kind
            && VersionRange::parse(text).is_err()
        {
            issues.report(ast[*range].position, "invalid range argument");
        }
    }
}

/// `format(text, a, b)` is `text.format([a, b])`.
fn expand_format(expansion: &mut Expansion<'_>, _: Option<ExprId>, args: &[ExprId]) -> ExpandResult {
    let Some((text, arguments)) = args.split_first() else { return Ok(None) };
    let arguments = expansion.list(arguments);
    Ok(Some(expansion.member_call(Name::from_static("format"), *text, [arguments])))
}

#[cfg(test)]
mod tests {
    use cel::program::{Bindings, Program};
    use cel::types::Type;

    use super::*;
    use crate::libraries::{Minor, base};

    fn compile(expression: &str) -> Result<TypedAst, String> {
        let builder = base(Minor::CURRENT).library(&celplane()).variable("v", Type::String).variable("r", Type::String);
        builder.build().unwrap().compile(expression).map_err(|issues| issues.to_string())
    }

    /// The value and the cost with `v` and `r` bound.
    #[track_caller]
    fn check(expression: &str, version: &str, range: &str, answer: &str, cost: u64) {
        let program = Program::new(&compile(expression).unwrap()).unwrap();
        let input = Bindings::new().bind("v", version).bind("r", range);
        let evaluation = program.eval(&input);
        let shown = evaluation.result.map_or_else(|error| format!("error: {error}"), |value| value.to_string());
        assert_eq!((shown.as_str(), evaluation.cost), (answer, cost));
    }

    #[test]
    fn versions_are_compared_tolerantly() {
        check("semver.compare(v, '>=1.28.0')", "v1.30", "", "true", 3);
        check("semver.compare(v, '>=1.28.0 <2 || =3.1.0')", "3.1", "", "true", 3);
        check("semver.compare(v, '>=1.28.0, <2')", "2.0.0", "", "false", 3);
        check("semver.compare(v, r)", "1.2.3-alpha.123", "<1.2.3", "true", 5);
        check("semver.compare(v, r)", "1.2.3", "<", "error: comparator `<` has no version", 4);
        check("semver.compare(v, '<2')", "x", "", "error: Invalid character(s) found in major number \"x\"", 3);
    }

    #[test]
    fn a_bad_range_literal_does_not_check() {
        let issues = compile("semver.compare(v, '>=') || true").unwrap_err();
        assert!(issues.starts_with("ERROR: <input>:1:19: invalid range argument\n"), "{issues}");
        assert!(compile("semver.compare(v)").is_err());
    }

    #[test]
    fn the_macro_formats() {
        check("format('%s/%s', v, r)", "a", "b", "a/b", 13);
        check("format(v, 1, 'x')", "%d %s", "", "1 x", 2);
        assert!(compile("format('%d', v)").unwrap_err().contains("error during formatting"));
        assert!(compile("format()").is_err());
    }
}

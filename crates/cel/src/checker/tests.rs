//! Checking: types, references, overloads, and the texts of errors.

use super::*;
use crate::cost::Price;
use crate::env::{Builder, FieldType, Implementation, TypeProvider};
use crate::source::Source;
use crate::syntax::macros;
use crate::types::Type;
use crate::value::Value;
use std::sync::Arc;

/// `demo.Point` has `x` and `y`, `demo.Color.RED` is a constant.
#[derive(Debug)]
struct Demo;

impl TypeProvider for Demo {
    fn find_type(&self, name: &str) -> Option<Type> {
        (name == "demo.Point").then(|| Type::object("demo.Point"))
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<FieldType> {
        let field_type = match (type_name, field) {
            ("demo.Point", "x" | "y") => Type::Int,
            ("demo.Point", "label") => Type::Wrapper(crate::types::Primitive::String),
            _ => return None,
        };
        Some(FieldType { field_type })
    }

    fn find_constant(&self, name: &str) -> Option<Value<'static>> {
        (name == "demo.Color.RED").then_some(Value::Int(1))
    }
}

const SIGNATURES: &[&str] = &[
    "_&&_(bool, bool) -> bool",
    "_||_(bool, bool) -> bool",
    "!_(bool) -> bool",
    "@not_strictly_false(bool) -> bool",
    "_?_:_(bool, T, T) -> T",
    "_==_(T, T) -> bool",
    "_<_(int, int) -> bool",
    "_<_(int, double) -> bool",
    "_+_(int, int) -> int",
    "_+_(string, string) -> string",
    "_+_(list(T), list(T)) -> list(T)",
    "_[_](list(T), int) -> T",
    "_[_](map(K, V), K) -> V",
    "_?._(dyn, string) -> optional(dyn)",
    "@in(T, list(T)) -> bool",
    "@in(K, map(K, V)) -> bool",
    "dyn(T) -> dyn",
    "type(T) -> type(T)",
    "size(string) -> int",
    "size(list(T)) -> int",
    "string.startsWith(string) -> bool",
    "string.size() -> int",
    ":demo.twice(int) -> int",
    ":optional.of(T) -> optional(T)",
    ":optional.none() -> optional(T)",
    "duration(string) -> duration",
];

fn builder() -> Builder {
    let mut builder = Env::builder()
        .types(Arc::new(Demo))
        .macros(macros::STANDARD)
        .macros(macros::TWO_VARIABLE)
        .syntax(|syntax| syntax.optional_syntax = true)
        .options(|options| options.homogeneous_literals = true)
        .variable("x", Type::Int)
        .variable("s", Type::String)
        .variable("l", Type::list(Type::Int))
        .variable("m", Type::map(Type::String, Type::Int))
        .variable("a", Type::Dyn)
        .variable("any", Type::Any)
        .variable("t", Type::Timestamp)
        .variable("point", Type::object("demo.Point"))
        .variable("demo.origin", Type::object("demo.Point"));
    for signature in SIGNATURES {
        builder = builder.overload(signature, signature, Price::ONE, Implementation::Builtin);
    }
    builder
}

#[track_caller]
fn check_with(env: &Env, text: &str, answer: &str) {
    let ast = crate::syntax::parse(&Source::new(text), env.macros(), env.syntax()).unwrap();
    let actual = match check(env, ast) {
        Ok(checked) => checked.result_type().to_string(),
        Err(issues) => {
            let lines = issues.sorted().into_iter();
            lines.map(|issue| format!("{}: {}", issue.location.column, issue.message)).collect::<Vec<_>>().join("\n")
        }
    };
    assert_eq!(actual, answer, "{text}");
}

#[track_caller]
fn accepts(text: &str, of: &str) {
    check_with(&builder().build().unwrap(), text, of);
}

#[track_caller]
fn rejects(text: &str, issues: &str) {
    check_with(&builder().build().unwrap(), text, issues);
}

#[test]
fn names_are_looked_for_in_scopes_then_in_the_environment() {
    accepts("x", "int");
    accepts(".x", "int");
    accepts("demo.origin", "demo.Point");
    accepts("demo.origin.y", "int");
    accepts("demo.Point", "type(demo.Point)");
    accepts("demo.Color.RED", "int");
    rejects("nope", "0: undeclared reference to 'nope' (in container '')");
    rejects("nope.nope2", "0: undeclared reference to 'nope' (in container '')");
    let inside = builder().container("demo.inner").build().unwrap();
    check_with(&inside, "origin.x", "int");
    check_with(&inside, "twice(x)", "int");
    check_with(&inside, "Point{x: 1}", "demo.Point");
    check_with(&inside, "nope", "0: undeclared reference to 'nope' (in container 'demo.inner')");
}

#[test]
fn a_leading_dot_means_the_environments_variable() {
    let env = builder().build().unwrap();
    for (text, global) in [("['a'].map(x, .x)", true), ("['a'].map(x, x)", false), ("['a'].map(y, .x)", false)] {
        let checked = env.compile(text).unwrap();
        let names = checked.ast.postorder(checked.ast.root());
        let found = names.filter_map(|id| match checked.reference(id) {
            Reference::Variable { name, global } if *name == "x" => Some(*global),
            _ => None,
        });
        assert_eq!(found.collect::<Vec<_>>(), [global], "{text}");
    }
    accepts("['a'].map(x, .x)", "list(int)");
    accepts("['a'].map(x, x)", "list(string)");
    // A variable of a comprehension hides qualified names that begin with it.
    rejects("[1].map(demo, demo.origin)", "18: type 'int' does not support field selection");
}

#[test]
fn fields_come_from_maps_objects_and_dynamic_values() {
    accepts("m.key", "int");
    accepts("a.b.c", "dyn");
    accepts("any.b", "dyn");
    accepts("has(point.x)", "bool");
    accepts("point.?x", "optional_type(int)");
    accepts("optional.of(m).a", "optional_type(int)");
    rejects("point.?x.y", "8: type 'int' does not support field selection");
    accepts("{}.a", "dyn");
    rejects("point.z", "5: undefined field 'z'");
    rejects("x.y", "1: type 'int' does not support field selection");
    rejects("t.y", "1: type 'timestamp' does not support field selection");
}

#[test]
fn overloads_are_chosen_by_operands() {
    accepts("s.startsWith('a')", "bool");
    accepts("demo.twice(x)", "int");
    accepts("a + a", "dyn");
    accepts("a + 1", "int");
    accepts("[] + [1]", "list(int)");
    accepts("[] + []", "list(dyn)");
    accepts("m['k']", "int");
    accepts("a['k']", "dyn");
    accepts("x == 1 ? a : 1", "dyn");
    accepts("type(x) == type(s)", "bool");
    accepts("x in [1]", "bool");
    accepts("point.label == null", "bool");
    rejects("x == null", "2: found no matching overload for '_==_' applied to '(int, null)'");
    rejects("s.startsWith(1)", "12: found no matching overload for 'startsWith' applied to 'string.(int)'");
    rejects("startsWith(s, 'a')", "10: found no matching overload for 'startsWith' applied to '(string, string)'");
    rejects("s.nope()", "6: undeclared reference to 'nope' (in container '')");
    rejects("nope()", "4: undeclared reference to 'nope' (in container '')");
    rejects("size()", "4: found no matching overload for 'size' applied to '()'");
    rejects("size(t)", "4: found no matching overload for 'size' applied to '(timestamp)'");
}

#[test]
fn a_failed_operand_causes_no_further_issue() {
    rejects(
        "size(nope) == 1 && s.startsWith(nope2)",
        "5: undeclared reference to 'nope' (in container '')\n32: undeclared reference to 'nope2' (in container '')",
    );
}

#[test]
fn each_operand_of_a_logical_operator_is_reported() {
    accepts("a && true || dyn(1)", "bool");
    rejects("1 && 's'", "0: expected type 'bool' but found 'int'\n5: expected type 'bool' but found 'string'");
}

#[test]
fn literals_have_one_type_or_become_dynamic() {
    accepts("[1, a]", "list(dyn)");
    accepts("[a, 1]", "list(dyn)");
    accepts("[[], [1]]", "list(list(int))");
    accepts("{'a': 1, 'b': 2}", "map(string, int)");
    accepts("{}", "map(dyn, dyn)");
    accepts("[?optional.of(1), 2]", "list(int)");
    accepts("{?'a': optional.none()}", "map(string, dyn)");
    rejects("[1, 's', true]", "4: expected type 'int' but found 'string'");
    rejects(
        "{1: 's', 's': 1}",
        "9: expected type 'int' but found 'string'\n14: expected type 'string' but found 'int'",
    );
    rejects("[?1]", "2: expected type 'optional_type(int)' but found 'int'");
    rejects("[[], 1]", "5: expected type 'list(_var0)' but found 'int'");
    let mixed = builder().options(|options| options.homogeneous_literals = false).build().unwrap();
    check_with(&mixed, "[1, 's']", "list(dyn)");
    check_with(&mixed, "{1: 's', 's': 1}", "map(dyn, dyn)");
}

#[test]
fn messages_have_declared_fields() {
    accepts("demo.Point{x: 1, label: null}", "demo.Point");
    accepts("demo.Point{?x: optional.of(1)}.x", "int");
    rejects("demo.Point{x: 's'}", "12: expected type of field 'x' is 'int' but provided type is 'string'");
    rejects("demo.Point{z: 's'}", "12: undefined field 'z'");
    rejects("demo.Nope{}", "9: undeclared reference to 'demo.Nope' (in container '')");
}

#[test]
fn comprehensions_take_lists_maps_and_dynamic_values() {
    accepts("l.all(i, i < 3)", "bool");
    accepts("m.map(k, k)", "list(string)");
    accepts("m.transformList(k, v, v)", "list(int)");
    accepts("l.transformList(i, v, i)", "list(int)");
    accepts("a.map(i, i)", "list(dyn)");
    rejects(
        "any.map(i, i)",
        "0: expression of type 'any' cannot be range of a comprehension (must be list, map, or dynamic)",
    );
    rejects(
        "s.all(c, true)",
        "0: expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)",
    );
    rejects("l.all(i, i)", "9: expected type 'bool' but found 'int'");
}

#[test]
fn numbers_of_different_types_compare_where_that_is_on() {
    accepts("1 < 1.5", "bool");
    let strict = builder().options(|options| options.cross_type_comparisons = false).build().unwrap();
    check_with(&strict, "1 < 1.5", "2: found no matching overload for '_<_' applied to '(int, double)'");
}

#[test]
fn trees_that_are_too_deep_are_refused() {
    let env = builder().build().unwrap();
    let mut ast = Ast::new(Source::new(""));
    let mut id = ast.add(ExprKind::Ident("x".into()), 0, Default::default());
    for _ in 0..100_000 {
        let args = vec![id];
        id = ast.add(ExprKind::Call { function: operator::LOGICAL_NOT, target: None, args }, 0, Default::default());
    }
    ast.set_root(id);
    let issues = check(&env, ast).unwrap_err();
    assert_eq!(issues.to_string(), "ERROR: <input>:-1:0: max recursion depth exceeded");
}

#[test]
fn literals_are_examined_where_the_environment_asks() {
    let convert: Implementation = Implementation::Native(|operands| match operands {
        [Value::String(text)] if text.as_str() != "bad" => Ok(Value::Null),
        _ => Err(crate::value::EvalError::no_such_overload()),
    });
    let env = builder()
        .overload("to_time", "timestamp(string) -> timestamp", Price::ONE, convert)
        .overload("matches", "string.matches(string) -> bool", Price::ONE, Implementation::Builtin)
        .overload("matches_global", "matches(string, string) -> bool", Price::ONE, Implementation::Builtin)
        .validator(Validator::TimestampLiterals)
        .validator(Validator::RegexLiterals)
        .build()
        .unwrap();
    check_with(&env, "timestamp('good')", "google.protobuf.Timestamp");
    check_with(&env, "timestamp(s)", "google.protobuf.Timestamp");
    check_with(&env, "[timestamp('bad')]", "11: invalid timestamp argument");
    check_with(&env, "s.matches('(')", "10: invalid matches argument");
    check_with(&env, "s.matches('a+')", "bool");
    // The first argument is examined, whatever it means.
    check_with(&env, "matches(s, '(')", "bool");
    check_with(&env, "matches('(', s)", "8: invalid matches argument");
}

#[test]
fn mixed_literals_are_reported_but_within_functions_that_take_them() {
    let format = CustomValidator { name: "format", validate: |_, _| {}, mixed_literals_within: &["format"] };
    let env = builder()
        .options(|options| options.homogeneous_literals = false)
        .overload("format", "string.format(list(dyn)) -> string", Price::ONE, Implementation::Builtin)
        .validator(Validator::HomogeneousLiterals)
        .validator(Validator::Custom(format))
        .build()
        .unwrap();
    check_with(&env, "[1, 2]", "list(int)");
    check_with(&env, "[1, 's', true]", "4: expected type 'int' but found 'string'");
    check_with(&env, "[dyn(1), 2]", "9: expected type 'dyn' but found 'int'");
    check_with(&env, "[1, ?optional.of(2)]", "list(int)");
    check_with(
        &env,
        "{1: 2, 's': 3, 4: 's'}",
        "7: expected type 'int' but found 'string'\n18: expected type 'int' but found 'string'",
    );
    check_with(&env, "''.format([1, [true, 's']])", "string");
    check_with(&env, "[''.format([1, 's']), 2]", "22: expected type 'string' but found 'int'");
}

#[test]
fn nested_loops_are_counted() {
    let env = builder().macros(macros::BINDINGS).validator(Validator::NestingLimit(1)).build().unwrap();
    check_with(&env, "l.all(i, i < 3) && l.all(i, i < 3)", "bool");
    check_with(&env, "l.all(i, l.all(j, j < i))", "14: comprehension exceeds nesting limit");
    check_with(&env, "cel.bind(v, l.all(i, i < 3), v)", "bool");
}

#[test]
fn a_custom_validator_sees_types() {
    fn no_dynamic_result(checked: &TypedAst, issues: &mut Issues) {
        if checked.result_type().is_dyn() {
            issues.report(0, "the result is dynamic");
        }
    }
    let custom = CustomValidator { name: "static", validate: no_dynamic_result, mixed_literals_within: &[] };
    let env = builder().validator(Validator::Custom(custom)).validator(Validator::Custom(custom)).build().unwrap();
    check_with(&env, "x", "int");
    check_with(&env, "a", "0: the result is dynamic");
}

//! The two parsers agree, trees survive being unparsed, and no text is too deep.

use proptest::prelude::*;

use super::ast::{Ast, Comprehension, ExprId, ExprKind, ListElement, Literal, MapEntry, Name, StructField, operator};
use super::macros::{Arity, BINDINGS, Macro, MacroTable, OPTIONAL, SORT_BY, STANDARD, TWO_VARIABLE};
use super::{Options, parse, parser, recovery, unparse, unparse_wrapped};
use crate::source::{Source, Span};

fn all_macros() -> MacroTable {
    MacroTable::new(STANDARD.iter().chain(TWO_VARIABLE).chain(OPTIONAL).chain(SORT_BY).chain(BINDINGS))
}

fn options() -> Options {
    Options { optional_syntax: true, keep_macro_calls: true, ..Options::default() }
}

fn error_of(text: &str) -> String {
    match parse(&Source::new(text), &all_macros(), &options()) {
        Ok(_) => String::new(),
        Err(issues) => issues.to_string(),
    }
}

fn places(ast: &Ast) -> Vec<(u32, Span)> {
    ast.preorder(ast.root()).map(|id| (ast[id].position, ast[id].span)).collect()
}

/// Asserts that the recovering parser agrees with every result of the direct parser.
fn parsers_agree(text: &str) {
    let (source, macros, options) = (Source::new(text), all_macros(), options());
    let direct = parser::parse(&source, &macros, &options);
    let recovering = recovery::parse(&source, &macros, &options);
    match (direct, recovering) {
        (Ok(direct), Ok(recovering)) => {
            assert!(direct.same_tree(&recovering), "{text}");
            assert_eq!(places(&direct), places(&recovering), "{text}");
        }
        (Ok(_), Err(issues)) => panic!("only the direct parser takes `{text}`\n{issues}"),
        (Err(parser::DirectParseFailure), _) => {}
    }
}

#[test]
fn direct_parser_accepts_valid_text() {
    for text in [
        "a.b.c(d, e[f]) + -g * 2 <= h ? [1, ?x,] : {'k': v, ?n: null,}",
        "has(a.b) && l.all(x, x > 0) || m.exists(k, v, k == v)",
        "T{a: 1, ?`b-c`: 2} == .pkg.T{} && x.?y[?0].orValue(b'z') in [r'\\', 1u, 0x1F, 1.5e3, '''q''']",
        "cel.bind(x, 1, x) + o.optMap(y, y).value() + l.sortBy(e, e.k)[0] // done",
    ] {
        let source = Source::new(text);
        assert!(parser::parse(&source, &all_macros(), &options()).is_ok(), "{text}");
        parsers_agree(text);
    }
}

#[test]
fn recovering_parser_reads_the_remaining_text() {
    // Reserved words can begin a type's name, and these sums are deeper than the direct parser goes.
    let deep = format!("{}1{}", "(1 < 1 + ".repeat(100), ")".repeat(100));
    for text in ["let{}", "for.x{a: 1}", &deep] {
        let source = Source::new(text);
        assert!(parser::parse(&source, &all_macros(), &options()).is_err(), "{text}");
        assert_eq!(error_of(text), "", "{text}");
    }
}

#[test]
fn limits_are_errors_and_never_overflow_the_stack() {
    let limit = "ERROR: <input>:-1:0: expression recursion limit exceeded: 250";
    let depth = "ERROR: <input>:-1:0: max recursion depth exceeded";
    for (text, error) in [
        ("(".repeat(100_000), limit),
        ("[".repeat(100_000), limit),
        ("{".repeat(100_000), limit),
        ("f(".repeat(50_000), limit),
        ("a?".repeat(10_000) + "b", ""),
        ("a?b:".repeat(24_000) + "c", limit),
        ("-(".repeat(50_000), limit),
        ("!".repeat(99_999) + "x", ""),
        ("-".repeat(99_999) + "x", ""),
        ("a".to_owned() + &".b".repeat(40_000), depth),
        ("a".to_owned() + &"[0]".repeat(30_000), depth),
        ("a".to_owned() + &".f()".repeat(20_000), depth),
        ("1".to_owned() + &"+1".repeat(40_000), depth),
        ("a".to_owned() + &"&&a".repeat(30_000), ""),
        (
            "x".repeat(100_001),
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000",
        ),
    ] {
        let found = error_of(&text);
        if text.starts_with("a?a?") {
            assert!(found.contains("Syntax error"), "{found}");
        } else {
            assert_eq!(found, error, "{}", text.chars().take(20).collect::<String>());
        }
    }
}

#[test]
fn text_at_the_depth_limit_is_parsed() {
    for (open, inner, close, depth) in [
        ("(", "1", ")", 249),
        ("[", "1", "]", 249),
        ("{1:", "1", "}", 249),
        ("f(", "1", ")", 249),
        ("T{a:", "1", "}", 249),
        ("a[", "1", "]", 249),
        ("a.b(", "1", ")", 249),
        ("!(", "b", ")", 249),
        ("l.all(i, ", "b", ")", 249),
        ("a?b:", "c", "", 249),
        ("1+(", "1", ")", 124),
    ] {
        let text = open.repeat(depth) + inner + &close.repeat(depth);
        assert_eq!(error_of(&text), "", "{open}");
        let text = open.repeat(depth + 2) + inner + &close.repeat(depth + 2);
        assert_ne!(error_of(&text), "", "{open}");
    }
}

#[test]
fn copies_of_copies_are_bounded() {
    let text = "a".to_owned() + &".optMap(x, x)".repeat(40);
    assert!(error_of(&text).contains("expression node count exceeds limit: 1000000"));
}

#[test]
fn macros_can_be_defined_by_a_closure() {
    let twice = Macro::from_closure("twice", Arity::Exact(1), false, |make, _, args| {
        let [arg] = args else { return Ok(None) };
        if make.ident_name(*arg).is_none() {
            return Err(make.error(*arg, "twice() takes a variable"));
        }
        let copy = make.copy(*arg)?;
        Ok(Some(make.call(operator::ADD, [*arg, copy])))
    });
    let macros = all_macros().with(&[twice]);
    let parse_text = |text: &str| parse(&Source::new(text), &macros, &Options::default());
    assert!(parse_text("twice(x)").unwrap().same_tree(&parse_text("x + x").unwrap()));
    assert_eq!(
        parse_text("1 + twice(2)").unwrap_err().to_string(),
        "ERROR: <input>:1:11: twice() takes a variable\n | 1 + twice(2)\n | ..........^"
    );
    assert!(parse_text("twice(x, y)").is_ok());
}

#[track_caller]
fn check_text(text: &str, expected: &str) {
    let ast = parse(&Source::new(text), &all_macros(), &options()).unwrap();
    assert_eq!(unparse(&ast), expected);
}

#[test]
fn text_is_written_as_cel_go_writes_it() {
    check_text("1+2*3-(4-5)", "1 + 2 * 3 - (4 - 5)");
    check_text("(a&&b)&&(c&&d)||e", "a && b && c && d || e");
    check_text("a&&(b&&(c&&d))", "a && (b && (c && d))");
    check_text("a ? b : (c ? d : e)", "a ? b : (c ? d : e)");
    check_text("a>b?f(x,y):z", "(a > b) ? (f(x, y)) : z");
    check_text("!(a||b)&&-(-x)>-(1)", "!(a || b) && -(-x) > -(1)");
    check_text("(-x).f(-1).g", "(-x).f(-1).g");
    check_text("'a\\'\\n\"é\\u0000'", "\"a'\\n\\\"é\\x00\"");
    check_text("b'a\\xff'", "b\"\\141\\377\"");
    check_text("[1u, 1.0, 1e6, 1e-7, 123456.5, -0.0]", "[1u, 1.0, 1e+06, 1e-07, 123456.5, -0.0]");
    check_text("a.?b[?c].`d-e`", "a.?b[?c].`d-e`");
    check_text("a.b.T{?x: 1, `in`: {?k: v}}", "a.b.T{?x: 1, `in`: {?k: v}}");
    check_text("has(a.b)&&l.all(x,l.exists(y,x==y))", "has(a.b) && l.all(x, l.exists(y, x == y))");
    check_text("o.optMap(x, x + 1).orValue(2)", "o.optMap(x, x + 1).orValue(2)");
}

#[test]
fn long_lines_can_be_broken_behind_logical_operators() {
    let ast = parse(&Source::new("aaaa && bbbb || cccc"), &all_macros(), &options()).unwrap();
    assert_eq!(unparse_wrapped(&ast, 8), "aaaa &&\nbbbb ||\ncccc");
    assert_eq!(unparse_wrapped(&ast, 80), "aaaa && bbbb || cccc");
}

/// A tree's plan, from which a tree is built.
#[derive(Clone, Debug)]
enum Plan {
    Literal(Literal),
    Ident(&'static str),
    Select(Box<Plan>, &'static str),
    Operator(Name, Vec<Plan>),
    OptionalSelect(Box<Plan>, &'static str),
    Call(&'static str, Vec<Plan>),
    MemberCall(&'static str, Box<Plan>, Vec<Plan>),
    List(Vec<(Plan, bool)>),
    Map(Vec<(Plan, Plan, bool)>),
    Message(&'static str, Vec<(&'static str, Plan, bool)>),
}

impl Plan {
    fn build(&self, ast: &mut Ast) -> ExprId {
        let mut all = |plans: &[Plan]| plans.iter().map(|plan| plan.build(ast)).collect::<Vec<_>>();
        let kind = match self {
            Plan::Literal(literal) => ExprKind::Literal(literal.clone()),
            Plan::Ident(name) => ExprKind::Ident(Name::from_static(name)),
            Plan::Select(operand, field) => {
                ExprKind::Select { operand: operand.build(ast), field: (*field).into(), test_only: false }
            }
            Plan::Operator(name, args) => ExprKind::Call { function: name.clone(), target: None, args: all(args) },
            Plan::OptionalSelect(operand, field) => {
                let operand = operand.build(ast);
                let field = ast.add(ExprKind::Literal(Literal::String((*field).into())), 0, Span::default());
                ExprKind::Call { function: operator::OPTIONAL_SELECT, target: None, args: vec![operand, field] }
            }
            Plan::Call(name, args) => ExprKind::Call { function: (*name).into(), target: None, args: all(args) },
            Plan::MemberCall(name, target, args) => {
                let args = all(args);
                ExprKind::Call { function: (*name).into(), target: Some(target.build(ast)), args }
            }
            Plan::List(elements) => {
                let mut element =
                    |(value, optional): &(Plan, bool)| ListElement { value: value.build(ast), optional: *optional };
                ExprKind::List(elements.iter().map(&mut element).collect())
            }
            Plan::Map(entries) => {
                let mut entry = |(key, value, optional): &(Plan, Plan, bool)| MapEntry {
                    position: 0,
                    key: key.build(ast),
                    value: value.build(ast),
                    optional: *optional,
                };
                ExprKind::Map(entries.iter().map(&mut entry).collect())
            }
            Plan::Message(name, fields) => {
                let mut field = |(name, value, optional): &(&'static str, Plan, bool)| StructField {
                    position: 0,
                    name: (*name).into(),
                    value: value.build(ast),
                    optional: *optional,
                };
                ExprKind::Struct { type_name: (*name).into(), fields: fields.iter().map(&mut field).collect() }
            }
        };
        ast.add(kind, 0, Span::default())
    }
}

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        Just(Literal::Null),
        any::<bool>().prop_map(Literal::Bool),
        any::<i64>().prop_map(Literal::Int),
        (0i64..3).prop_map(Literal::Int),
        any::<u64>().prop_map(Literal::Uint),
        any::<f64>().prop_filter("a number", |value| value.is_finite()).prop_map(Literal::Double),
        any::<String>().prop_map(|text| Literal::String(text.into())),
        any::<Vec<u8>>().prop_map(|bytes| Literal::Bytes(bytes.into())),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let field = || prop::sample::select(vec!["a", "b_2", "in", "true", "x-y", "let"]);
    let binary = [
        operator::LOGICAL_AND,
        operator::LOGICAL_OR,
        operator::EQUALS,
        operator::LESS,
        operator::IN,
        operator::ADD,
        operator::SUBTRACT,
        operator::MULTIPLY,
        operator::INDEX,
        operator::OPTIONAL_INDEX,
    ];
    let leaf = prop_oneof![
        literal().prop_map(Plan::Literal),
        prop::sample::select(vec!["x", "y", ".z"]).prop_map(Plan::Ident)
    ];
    leaf.prop_recursive(6, 64, 4, move |inner| {
        let one = inner.clone().prop_map(Box::new);
        let some = prop::collection::vec(inner.clone(), 0..3);
        prop_oneof![
            (one.clone(), field()).prop_map(|(operand, field)| Plan::Select(operand, field)),
            (one.clone(), field()).prop_map(|(operand, field)| Plan::OptionalSelect(operand, field)),
            (prop::sample::select(binary.to_vec()), inner.clone(), inner.clone())
                .prop_map(|(name, left, right)| Plan::Operator(name, vec![left, right])),
            (prop::sample::select(vec![operator::NEGATE, operator::LOGICAL_NOT]), inner.clone())
                .prop_map(|(name, operand)| Plan::Operator(name, vec![operand])),
            [inner.clone(), inner.clone(), inner.clone()]
                .prop_map(|parts| Plan::Operator(operator::CONDITIONAL, parts.to_vec())),
            (prop::sample::select(vec!["f", ".g"]), some.clone()).prop_map(|(name, args)| Plan::Call(name, args)),
            (one, some).prop_map(|(target, args)| Plan::MemberCall("h", target, args)),
            prop::collection::vec((inner.clone(), any::<bool>()), 0..3).prop_map(Plan::List),
            prop::collection::vec((inner.clone(), inner.clone(), any::<bool>()), 0..3).prop_map(Plan::Map),
            (
                prop::sample::select(vec!["T", "a.T", ".a.T"]),
                prop::collection::vec((field(), inner, any::<bool>()), 0..3)
            )
                .prop_map(|(name, fields)| Plan::Message(name, fields)),
        ]
    })
}

/// Pieces of text that are often next to each other in expressions, right and wrong ones.
fn token_soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b.c",
        "x.map(y, y)",
        "f(",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        ",",
        ":",
        "?",
        "!",
        "-",
        "+",
        "*",
        "==",
        "<",
        "in",
        "&&",
        "||",
        "1",
        "-2",
        "0x",
        "1.5",
        "1u",
        "'s'",
        "b'q'",
        "\"\"\"",
        "r'",
        "`a-b`",
        "true",
        "null",
        "let",
        "has(a.b)",
        "has(",
        "l.all(i, i)",
        ".all(",
        "T{",
        "T{a: 1}",
        " ",
        "\n",
        "// c\n",
        "$",
        "é",
        "&",
        "cel.bind(",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.join(""))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_tree_survives_being_unparsed(plan in plan()) {
        let mut ast = Ast::new(Source::new(""));
        let root = plan.build(&mut ast);
        ast.set_root(root);
        let text = unparse(&ast);
        let again = parse(&Source::new(&text), &all_macros(), &options());
        let again = again.unwrap_or_else(|issues| panic!("`{text}` does not parse\n{issues}"));
        prop_assert!(ast.same_tree(&again), "`{}` is another tree, {:?}", text, plan);
    }

    #[test]
    fn text_survives_being_unparsed(text in token_soup()) {
        if let Ok(ast) = parse(&Source::new(&text), &all_macros(), &options()) {
            let unparsed = unparse(&ast);
            let again = parse(&Source::new(&unparsed), &all_macros(), &options());
            let again = again.unwrap_or_else(|issues| panic!("`{text}` became `{unparsed}`\n{issues}"));
            prop_assert!(ast.same_tree(&again), "`{}` became `{}`", text, unparsed);
            prop_assert_eq!(unparse(&again), unparsed);
        }
    }

    #[test]
    fn the_parsers_agree(text in token_soup()) {
        parsers_agree(&text);
    }

    #[test]
    fn the_parsers_agree_on_trees(plan in plan()) {
        let mut ast = Ast::new(Source::new(""));
        let root = plan.build(&mut ast);
        ast.set_root(root);
        parsers_agree(&unparse(&ast));
    }

    #[test]
    fn any_text_gets_an_answer(text in any::<String>()) {
        parsers_agree(&text);
    }
}

#[test]
fn comprehensions_without_their_call_are_shown() {
    let mut ast = Ast::new(Source::new(""));
    let x = ast.add(ExprKind::Ident(Name::from_static("x")), 0, Span::default());
    let name = Name::from_static("i");
    let kind = ExprKind::Comprehension(Box::new(Comprehension {
        range: x,
        variable: name.clone(),
        second_variable: None,
        accumulator: name,
        init: x,
        condition: x,
        step: x,
        result: x,
    }));
    let root = ast.add(kind, 0, Span::default());
    ast.set_root(root);
    assert_eq!(unparse(&ast), "@comprehension(x, i, i, x, x, x, x)");
}

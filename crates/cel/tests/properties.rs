//! Properties of all expressions and inputs, tested on random ones.
//!
//! Expressions are well typed, over the variables in `input.rs`, and use the language widely; inputs make them succeed,
//! fail, and stop halfway. What a property leaves out, and why, stands beside it.

mod expression;
mod input;

use std::sync::LazyLock;

use crate::golden::listed;

use cel::checker::TypedAst;
use cel::cost;
use cel::env::Env;
use cel::library;
use cel::program::{Evaluation, Limits, Program, Verdict};
use cel::syntax::unparse;
use cel::types::Type;
use cel::value::ErrorKind;
use expression::{Generator, Kind, LanguageSubset};
use input::{Choices, Input, VARIABLES};
use proptest::prelude::*;

static FOLDING: LazyLock<Env> = LazyLock::new(|| environment(true));
static PLAIN: LazyLock<Env> = LazyLock::new(|| environment(false));

/// The language and its libraries; `fold` computes constant parts when a program is planned.
fn environment(fold: bool) -> Env {
    let builder = Env::builder()
        .library(&library::standard())
        .library(&library::optionals(2))
        .library(&library::strings(2))
        .library(&library::sets())
        .library(&library::two_variable_comprehensions())
        .library(&library::lists(3))
        .syntax(|syntax| {
            syntax.optional_syntax = true;
            syntax.keep_macro_calls = true;
        })
        .options(|options| {
            options.presence_test_has_cost = false;
            options.constant_folding = fold;
        });
    VARIABLES
        .iter()
        .fold(builder, |builder, (name, of)| builder.variable(name, Type::parse(of).unwrap()))
        .build()
        .unwrap()
}

fn compile(env: &Env, text: &str) -> TypedAst {
    env.compile(text).unwrap_or_else(|issues| panic!("{issues}"))
}

/// Value or error as text that distinguishes kinds of values.
fn shown(evaluation: &Evaluation<'_>) -> String {
    match &evaluation.result {
        Ok(value) => format!("{} {value}", value.type_name()),
        Err(error) => format!("{:?} {error}", error.kind()),
    }
}

/// Bytes that decide on an expression, and bytes that decide on its input.
fn bytes() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    (prop::collection::vec(any::<u8>(), 0..160), prop::collection::vec(any::<u8>(), 0..160))
}

/// Whether the set contains the result of an evaluation.
fn holds(verdict: Verdict, found: &Evaluation<'_>) -> bool {
    verdict.can_be(match &found.result {
        Ok(value) => value.verdict(),
        Err(_) => Verdict::ERROR,
    })
}

/// Number of expressions that each property is tried on.
const CASES: u32 = 600;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    /// The estimate's maximum is what an evaluation can cost.
    ///
    /// Left out is what the reference itself estimates too low: selections and indices on something else than a variable,
    /// values of type `dyn`, what `flatten` makes, `join`, and failed operands that would have been empty.
    #[test]
    fn an_evaluation_costs_at_most_its_estimate((expression, input) in bytes()) {
        let text = Generator::new(&expression, LanguageSubset::Estimate).expression(Kind::Any);
        let typed = compile(&FOLDING, &text);
        let estimated = cost::estimate(&typed, &input::Sizes);
        if let Ok(program) = Program::new(&typed) {
            let input = Input::known(&mut Choices::new(&input));
            let evaluation = program.eval(&input);
            prop_assert!(evaluation.cost <= estimated.max, "`{text}` costs {} > {}: {}", evaluation.cost, estimated.max, shown(&evaluation));
        }
    }

    /// The same program on the same input gives the same answer at the same cost, whatever happened before, traced or not, as a
    /// whole or element by element;
    /// with a limit, it either gives that answer or says that the limit was exceeded.
    #[test]
    fn an_evaluation_is_deterministic((expression, input) in bytes(), limit in 0..200_u64) {
        let text = Generator::new(&expression, LanguageSubset::Language).expression(Kind::Any);
        let (first, second) = (Program::new(&compile(&FOLDING, &text)), Program::new(&compile(&FOLDING, &text)));
        let (Ok(first), Ok(second)) = (first, second) else { return Ok(()) };
        let input = Input::known(&mut Choices::new(&input));
        let answer = first.eval(&input);
        let limited = first.eval_within(&input, Limits::cost(limit));
        for again in [first.eval(&input), second.eval(&input), second.trace(&input, Limits::NONE).0] {
            prop_assert_eq!(shown(&answer), shown(&again), "{}", text);
            prop_assert_eq!(answer.cost, again.cost, "{}", text);
        }
        for limits in [Limits::NONE, Limits::cost(limit)] {
            let (evaluation, listed) = (first.eval_within(&input, limits), listed::evaluate(&first, &input, limits));
            prop_assert_eq!((shown(&evaluation), evaluation.cost), (shown(&listed), listed.cost), "{}", text);
            prop_assert_eq!(first.verdict_within(&input, limits), evaluation.verdict(), "{}", text);
        }
        if matches!(&limited.result, Err(error) if error.kind() == ErrorKind::CostLimit) {
            prop_assert!(limited.cost > limit, "{}", text);
        } else {
            prop_assert_eq!((shown(&answer), answer.cost), (shown(&limited), limited.cost), "{}", text);
            prop_assert!(limited.cost <= limit, "{}", text);
        }
    }

    /// Planning with and without folding of constants gives programs with the same answer.
    ///
    /// Where folding finds that a constant part fails, there is no program to compare.
    #[test]
    fn folding_changes_no_answer((expression, input) in bytes()) {
        let text = Generator::new(&expression, LanguageSubset::Language).expression(Kind::Any);
        let folded = Program::new(&compile(&FOLDING, &text));
        let plain = Program::new(&compile(&PLAIN, &text));
        let (Ok(folded), Ok(plain)) = (folded, plain) else { return Ok(()) };
        let input = Input::known(&mut Choices::new(&input));
        prop_assert_eq!(shown(&folded.eval(&input)), shown(&plain.eval(&input)), "{}", text);
    }

    /// The verdict of an evaluation on partly known input contains the result on every completion of that
    /// input.
    #[test]
    fn verdict_contains_the_result_of_every_completion((expression, input) in bytes(), more in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = Generator::new(&expression, LanguageSubset::Language).expression(Kind::Bool);
        let Ok(program) = Program::new(&compile(&FOLDING, &text)) else { return Ok(()) };
        let mut choices = Choices::new(&input);
        let partial = Input::partial(&mut choices);
        let verdict = program.eval(&partial).verdict();
        let mut more = Choices::new(&more);
        for _ in 0..12 {
            let completion = partial.completed(&mut more);
            let found = program.eval(&completion);
            prop_assert!(holds(verdict, &found), "`{}` on {:?} is {:?} but becomes {} on {:?}", text, partial, verdict, shown(&found), completion);
        }
    }

    /// The text written from a tree, with macros restored, parses to the same tree.
    #[test]
    fn a_written_tree_is_read_as_the_same_tree((expression, _) in bytes()) {
        let text = Generator::new(&expression, LanguageSubset::Language).expression(Kind::Any);
        let ast = compile(&FOLDING, &text).ast().clone();
        let written = unparse(&ast);
        let again = compile(&FOLDING, &written);
        prop_assert!(ast.same_tree(again.ast()), "`{}` became `{}`", text, written);
        prop_assert!(!written.contains("@result"), "`{}` became `{}`", text, written);
    }
}

#[test]
fn most_generated_predicates_have_an_answer_and_many_do_not_know() {
    let (mut definite, mut unknown, mut failed) = (0, 0, 0);
    let mut state = 1_u64;
    for _ in 0..2_000 {
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        let bytes: Vec<u8> = (0..160).map(|_| byte()).collect();
        let text = Generator::new(&bytes, LanguageSubset::Language).expression(Kind::Bool);
        let Ok(program) = Program::new(&compile(&FOLDING, &text)) else { continue };
        let partial = Input::partial(&mut Choices::new(&bytes[80..]));
        match program.eval(&partial).result {
            Ok(cel::value::Value::Unknown(_)) => unknown += 1,
            Ok(_) => definite += 1,
            Err(_) => failed += 1,
        }
    }
    assert!(definite > 400 && unknown > 200 && failed > 100, "{definite} definite, {unknown} unknown, {failed} failed");
}

//! Any text through the phases of the language: parser and back, checker and estimate, evaluation.

use std::sync::LazyLock;

use cel::cost;
use cel::program::{Activation, EmptyActivation, Limits, ListSink, Program};
use cel::source::Source;
use cel::syntax::unparse;
use cel::value::{ErrorKind, Value};
use cel_kubernetes::compile::Environment;
use cel_kubernetes::environments::{Dialect, base};

use crate::bindings::bindings;
use crate::expressions::expression;

/// Cost limit of an evaluation.
pub(crate) const COST_MAX: u64 = 100_000;

/// Kubernetes' functions, a variable of each kind, and the calls that macros replaced.
pub(crate) static BASE: LazyLock<Environment> = LazyLock::new(|| {
    let mut environment = base::environment(Dialect::CELPLANE).expect("the declarations are right");
    let builder = environment.env.extend().syntax(|syntax| syntax.keep_macro_calls = true);
    environment.env = builder.build().expect("the declarations are right");
    environment
});

/// A text that parses can be written again from its tree, and what is written then is the same tree.
pub fn cel_parse_unparse(data: &[u8]) {
    let text = expression(data);
    let Ok(ast) = BASE.env.parse(&Source::new(&text)) else {
        return;
    };
    let written = unparse(&ast);
    match BASE.env.parse(&Source::new(&written)) {
        Ok(again) => assert!(ast.same_tree(&again), "`{text}` became `{written}`"),
        // What is written may be longer than what was read, and then too long.
        Err(issues) => assert!(issues.to_string().contains("exceeds limit"), "`{text}` became `{written}`\n{issues}"),
    }
}

/// Any text compiles or has issues with pictures; what compiles has an estimate, and a program or a reason for none.
pub fn cel_check_estimate(data: &[u8]) {
    let text = expression(data);
    match BASE.env.compile(&text) {
        Err(issues) => {
            assert!(!issues.is_empty());
            assert!(issues.to_string().starts_with("ERROR: <input>:"));
        }
        Ok(typed) => {
            // The minimum can be above the maximum, where the reference's own arithmetic wraps around.
            let _ = cost::estimate(&typed, &cost::NoHints);
            if let Err(error) = Program::new(&typed) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

/// An evaluation ends, stays within its limit or reports that it did not, and is repeatable.
pub fn cel_evaluate(data: &[u8]) {
    let (seed, data) = data.split_at(data.len().min(1));
    let Ok(typed) = BASE.env.compile(&expression(data)) else {
        return;
    };
    let Ok(program) = Program::new(&typed) else {
        return;
    };
    evaluate_on(&program, &EmptyActivation);
    let seed = seed.first().copied().unwrap_or_default();
    evaluate_on(&program, &bindings(seed));
}

/// Counts elements.
struct Count(usize);

impl ListSink for Count {
    fn begin(&mut self) {}

    fn element(&mut self, _value: &Value<'_>) {
        self.0 += 1;
    }

    fn end(&mut self) {}
}

/// Evaluates twice, then element by element, then only for the verdict.
pub(crate) fn evaluate_on(program: &Program, input: &dyn Activation) {
    let first = program.eval_within(input, Limits::cost(COST_MAX));
    let second = program.eval_within(input, Limits::cost(COST_MAX));
    assert_eq!(first.cost, second.cost);
    let over = matches!(&first.result, Err(error) if error.kind() == ErrorKind::CostLimit);
    assert_eq!(first.cost > COST_MAX, over, "cost {} and {:?}", first.cost, first.result);
    // Values can share their parts many times over, so that all of their text is too much.
    let shown = |result: &Result<Value<'_>, _>| Head::of(format_args!("{result:?}"));
    assert_eq!(shown(&first.result), shown(&second.result));
    let listed = program.eval_list(input, Limits::cost(COST_MAX), &mut Count(0));
    assert_eq!(first.cost, listed.cost);
    match &listed.result {
        Ok(None) => assert!(matches!(&first.result, Ok(Value::List(_)))),
        Ok(Some(value)) => assert_eq!(shown(&first.result), Head::of(format_args!("{:?}", Ok::<_, ()>(value)))),
        Err(error) => assert_eq!(first.result.as_ref().err(), Some(error)),
    }
    assert_eq!(program.verdict_within(input, Limits::cost(COST_MAX)), first.verdict());
}

/// The beginning of a text that is too long to be written whole.
struct Head(String);

impl Head {
    fn of(what: std::fmt::Arguments<'_>) -> String {
        let mut head = Head(String::new());
        // An error means that the text is longer, which is as good.
        let _ = std::fmt::write(&mut head, what);
        head.0
    }
}

impl std::fmt::Write for Head {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() > 4096 {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

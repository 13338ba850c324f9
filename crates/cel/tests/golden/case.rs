//! One recorded case, and where our answer differs from it.

use cel::cost::{self, NoHints};
use cel::env::Env;
use cel::program::{Activation, Limits, Program};
use cel::value::Value;
use serde::Deserialize;

use crate::typed_json::{decode, encode};

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) expr: String,
    #[serde(default)]
    input: serde_json::Map<String, serde_json::Value>,
    expect: Expect,
}

#[derive(Deserialize)]
struct Expect {
    compile_error: Option<String>,
    r#type: Option<String>,
    cost_min: Option<u64>,
    cost_max: Option<u64>,
    value: Option<serde_json::Value>,
    eval_error: Option<String>,
    actual_cost: Option<u64>,
    #[serde(default)]
    cost_varies: bool,
}

/// What an evaluation may cost.
const COST_LIMIT: u64 = 1_000_000;

impl Case {
    /// Values may be nested deeper than JSON readers like.
    pub(crate) fn read(line: &str) -> Case {
        let mut reader = serde_json::Deserializer::from_str(line);
        reader.disable_recursion_limit();
        Case::deserialize(&mut reader).unwrap()
    }

    /// The first thing in which our answer differs, if there is one.
    pub(crate) fn difference(&self, env: &Env) -> Option<String> {
        let typed = match env.compile(&self.expr) {
            Ok(typed) => typed,
            Err(issues) => return self.compile_difference(Some(format!("compilation failed: {issues}"))),
        };
        let program = match Program::new(&typed) {
            Ok(program) => program,
            Err(error) => return self.compile_difference(Some(format!("program instantiation failed: {error}"))),
        };
        if let Some(difference) = self.compile_difference(None) {
            return Some(difference);
        }
        let result_type = typed.result_type().to_string();
        if self.expect.r#type.as_deref() != Some(&result_type) {
            return Some(different("type", &self.expect.r#type, &Some(result_type)));
        }
        let estimated = cost::estimate(&typed, &NoHints);
        let expected = (self.expect.cost_min, self.expect.cost_max);
        if expected != (Some(estimated.min), Some(estimated.max)) {
            return Some(different("estimated cost", &expected, &(Some(estimated.min), Some(estimated.max))));
        }
        self.evaluation_difference(&program)
    }

    fn compile_difference(&self, ours: Option<String>) -> Option<String> {
        let (expected, ours) =
            (self.expect.compile_error.as_deref().map(without_wording), ours.as_deref().map(without_wording));
        (expected != ours).then(|| different("compile error", &expected, &ours))
    }

    fn evaluation_difference(&self, program: &Program) -> Option<String> {
        let input = Input(self.input.iter().map(|(name, value)| (name.as_str(), decode(value))).collect());
        let evaluation = program.eval_within(&input, Limits::cost(COST_LIMIT));
        let (value, error) = match &evaluation.result {
            Ok(value) => (Some(encode(value)), None),
            Err(error) => (None, Some(error.message().to_owned())),
        };
        let expected = &self.expect;
        // What the reference answers with a panic of its own is some error.
        let panicked = expected.eval_error.as_ref().is_some_and(|error| error.starts_with("internal error: "));
        if error != expected.eval_error && !(panicked && error.is_some()) {
            return Some(different("error", &expected.eval_error, &error) + &format!(", value {value:?}"));
        }
        if value != expected.value {
            return Some(different("value", &expected.value, &value));
        }
        let cost = Some(evaluation.cost);
        (cost != expected.actual_cost && !expected.cost_varies && !panicked)
            .then(|| different("actual cost", &expected.actual_cost, &cost))
    }
}

fn different(what: &str, expected: &impl std::fmt::Debug, ours: &impl std::fmt::Debug) -> String {
    format!("{what}: expected {expected:?}, ours is {ours:?}")
}

/// The text, without the words behind `Syntax error: `.
fn without_wording(text: &str) -> String {
    let lines = text.lines().map(|line| match line.find(": Syntax error: ") {
        Some(at) if line.contains("ERROR: <input>:") => &line[..at + ": Syntax error".len()],
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The variables that have a value.
struct Input<'c>(Vec<(&'c str, Value<'static>)>);

impl Activation for Input<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        self.0.iter().find(|(bound, _)| *bound == name).map(|(_, value)| value.borrowed())
    }
}

//! One recorded case, and our answer to it.

use cel::cost::{self, NoHints};
use cel::env::Env;
use cel::program::{Activation, Evaluation, Limits, Program};
use cel::value::Value;
use serde::Deserialize;

use super::answer::Answer;
use super::listed;
use super::suite::Outcome;
use super::typed_json::decode;

#[derive(Deserialize)]
struct Case {
    id: String,
    expr: String,
    #[serde(default)]
    input: serde_json::Map<String, serde_json::Value>,
    expect: Answer,
}

/// Cost limit of an evaluation.
const COST_LIMIT: u64 = 1_000_000;

/// Runs the case on a line.
pub(crate) fn run(line: &str, env: &Env) -> Outcome {
    // Values may be nested deeper than JSON readers like.
    let mut reader = serde_json::Deserializer::from_str(line);
    reader.disable_recursion_limit();
    let case = Case::deserialize(&mut reader).unwrap();
    let difference = case.expect.difference(&case.answer(env));
    Outcome { id: case.id, expression: case.expr, difference }
}

impl Case {
    fn answer(&self, env: &Env) -> Answer {
        let typed = match env.compile(&self.expr) {
            Ok(typed) => typed,
            Err(issues) => return Answer::compile_error(format!("compilation failed: {issues}")),
        };
        let program = match Program::new(&typed) {
            Ok(program) => program,
            Err(error) => return Answer::compile_error(format!("program instantiation failed: {error}")),
        };
        let estimated = cost::estimate(&typed, &NoHints);
        let answer = Answer {
            r#type: Some(typed.result_type().to_string()),
            cost_min: Some(estimated.min),
            cost_max: Some(estimated.max),
            ..Answer::default()
        };
        let input = Input(self.input.iter().map(|(name, value)| (name.as_str(), decode(value).unwrap())).collect());
        let limits = Limits::cost(COST_LIMIT);
        let evaluation = program.eval_within(&input, limits);
        assert_eq!(program.verdict_within(&input, limits), evaluation.verdict(), "{}", self.expr);
        let listed = listed::evaluate(&program, &input, limits);
        let shown = |evaluation: &Evaluation<'_>| format!("{:?}", evaluation.result.as_ref().map(ToString::to_string));
        assert_eq!((shown(&listed), listed.cost), (shown(&evaluation), evaluation.cost), "{}", self.expr);
        answer.with_evaluation(&evaluation)
    }
}

/// The variables that have a value.
struct Input<'c>(Vec<(&'c str, Value<'static>)>);

impl Activation for Input<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        self.0.iter().find(|(bound, _)| *bound == name).map(|(_, value)| value.borrowed())
    }
}

//! `celplane cel batch`: many expressions, one JSON object a line, answered in the format of recorded evaluations.
//!
//! Reads `{"id","env","expr","input","schema"}` and writes the same with `"expect"`: compile error, type, estimated cost,
//! value, evaluation error and actual cost. A line is written before the next one is read, so large files stream.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::ExitCode;

use anyhow::Context;
use cel::cost::{self, NoHints};
use cel::env::Env;
use cel::program::{Activation, Limits, Program};
use cel::value::Value;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::environments;
use crate::typed_json;

/// Answer many expressions: JSON lines on standard input, the same with "expect" on standard output.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// What an evaluation may cost, as Kubernetes has it.
const COST_LIMIT: u64 = 1_000_000;

/// A line of input. What is not looked at is passed on as it was written.
#[derive(Deserialize)]
struct Question<'l> {
    #[serde(borrow)]
    id: Option<&'l RawValue>,
    env: String,
    expr: String,
    #[serde(borrow)]
    input: Option<&'l RawValue>,
    #[serde(borrow)]
    schema: Option<&'l RawValue>,
}

/// A line of output.
#[derive(Serialize)]
struct Answer<'l> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'l RawValue>,
    env: &'l str,
    expr: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'l RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'l RawValue>,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
enum Outcome {
    #[serde(rename = "expect")]
    Expect(Expect),
    /// There is no such environment, or the input is not in its form.
    #[serde(rename = "error")]
    Error(String),
}

/// What was found out about an expression.
#[derive(Default, Serialize)]
struct Expect {
    compile_error: Option<String>,
    r#type: Option<String>,
    cost_min: Option<u64>,
    cost_max: Option<u64>,
    value: Option<Json>,
    eval_error: Option<String>,
    actual_cost: Option<u64>,
}

impl Arguments {
    /// Fails when a line is no question, after all lines before it were answered.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        answer_all(std::io::stdin().lock(), std::io::stdout().lock())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn answer_all(mut questions: impl BufRead, mut answers: impl Write) -> anyhow::Result<()> {
    let mut environments = BTreeMap::new();
    let mut line = String::new();
    for number in 1_u64.. {
        line.clear();
        if questions.read_line(&mut line)? == 0 {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        let question: Question<'_> = serde_json::from_str(&line).with_context(|| format!("line {number}"))?;
        let outcome = match answer(&question, &mut environments) {
            Ok(expect) => Outcome::Expect(expect),
            Err(error) => Outcome::Error(format!("{error:#}")),
        };
        let Question { id, env, expr, input, schema } = &question;
        let answer = Answer { id: *id, env, expr, input: *input, schema: *schema, outcome };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        answers.write_all(&text)?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(question: &Question<'_>, environments: &mut BTreeMap<&'static str, Env>) -> anyhow::Result<Expect> {
    let environment = environments::find(&question.env).with_context(|| format!("unknown environment `{}`", question.env))?;
    let env = match environments.entry(environment.name) {
        std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::btree_map::Entry::Vacant(entry) => entry.insert(environment.build()?),
    };
    let input = Input::read(question.input)?;
    let typed = match env.compile(&question.expr) {
        Ok(typed) => typed,
        Err(issues) => return Ok(Expect::not_compiled(format!("compilation failed: {issues}"))),
    };
    let program = match Program::new(&typed) {
        Ok(program) => program,
        Err(error) => return Ok(Expect::not_compiled(format!("program instantiation failed: {error}"))),
    };
    let estimated = cost::estimate(&typed, &NoHints);
    let evaluation = program.eval_within(&input, Limits::cost(COST_LIMIT));
    let (value, eval_error) = match &evaluation.result {
        Ok(value) => (Some(typed_json::encode(value)), None),
        Err(error) => (None, Some(error.message().to_owned())),
    };
    Ok(Expect {
        compile_error: None,
        r#type: Some(typed.result_type().to_string()),
        cost_min: Some(estimated.min),
        cost_max: Some(estimated.max),
        value,
        eval_error,
        actual_cost: Some(evaluation.cost),
    })
}

impl Expect {
    fn not_compiled(error: String) -> Expect {
        Expect { compile_error: Some(error), ..Expect::default() }
    }
}

/// The variables that have a value.
struct Input(BTreeMap<String, Value<'static>>);

impl Input {
    fn read(json: Option<&RawValue>) -> anyhow::Result<Input> {
        let Some(json) = json else { return Ok(Input(BTreeMap::new())) };
        let variables: BTreeMap<String, Json> = serde_json::from_str(json.get()).context("input")?;
        let variables = variables.into_iter().map(|(name, value)| {
            let value = typed_json::decode(&value).with_context(|| format!("input `{name}`"))?;
            Ok((name, value))
        });
        Ok(Input(variables.collect::<anyhow::Result<_>>()?))
    }
}

impl Activation for Input {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        self.0.get(name).map(Value::borrowed)
    }
}

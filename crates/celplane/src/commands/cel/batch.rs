//! `celplane cel batch`: many expressions, one JSON object a line, answered in the format of recorded evaluations.
//!
//! Reads `{"id","env","expr","input","schema"}` and writes the same with `"expect"`: compile error, type, estimated cost,
//! value, evaluation error and actual cost. A line is written before the next one is read, so large files stream.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use cel_kubernetes::recorded::{self, Respondent};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Evaluate many expressions: JSON lines on standard input, the same lines with "expect" on standard output
///
/// A line has "expr", "env" (as --env, or "base"), and where needed "input" (the variables by name), "schema"
/// (an OpenAPI schema, for columns and rules) and an "id" of any form, which is copied to the output. "expect"
/// holds "compile_error", or "type", "static_cost" and "value" or "eval_error" with "runtime_cost". For an
/// invalid line the output is {"line": N, "error": "…"} and the exit code is 1; the other lines are still
/// evaluated.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// A line of input. Unknown fields are copied to the output unchanged.
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
    Expect(recorded::Answer),
    /// The environment does not exist, or the input does not fit it.
    #[serde(rename = "error")]
    Error(String),
}

impl Arguments {
    /// 1 when a line is not a question; all others are answered.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let all_are_questions = answer_all(std::io::stdin().lock(), crate::output::stdout())?;
        Ok(if all_are_questions { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A line that cannot be answered.
#[derive(Serialize)]
struct InvalidLine {
    line: u64,
    error: String,
}

/// Whether all lines were questions.
fn answer_all(mut questions: impl BufRead, mut answers: impl Write) -> anyhow::Result<bool> {
    let mut all_are_questions = true;
    let mut respondent = Respondent::default();
    let mut line = String::new();
    for number in 1_u64.. {
        line.clear();
        if questions.read_line(&mut line)? == 0 {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        let question: Question<'_> = match serde_json::from_str(&line) {
            Ok(question) => question,
            Err(error) => {
                all_are_questions = false;
                let mut text = serde_json::to_vec(&InvalidLine { line: number, error: error.to_string() })?;
                text.push(b'\n');
                answers.write_all(&text)?;
                answers.flush()?;
                continue;
            }
        };
        let Question { id, env, expr, input, schema } = &question;
        let outcome = respondent.answer(&recorded::Question {
            place: env,
            expression: expr,
            input: input.map(RawValue::get),
            schema: schema.map(RawValue::get),
        });
        let outcome = match outcome {
            Ok(answer) => Outcome::Expect(answer),
            Err(error) => Outcome::Error(format!("{:#}", anyhow::Error::new(error))),
        };
        let answer = Answer { id: *id, env, expr, input: *input, schema: *schema, outcome };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        answers.write_all(&text)?;
        answers.flush()?;
    }
    Ok(all_are_questions)
}

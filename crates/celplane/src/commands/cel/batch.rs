//! `celplane cel batch`: many expressions, one JSON object a line, answered in the format of recorded evaluations.
//!
//! Reads `{"id","env","expr","input","schema"}` and writes the same with `"expect"`: compile error, type, estimated cost,
//! value, evaluation error and actual cost. A line is written before the next one is read, so large files stream.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{BufRead, Write};
use std::process::ExitCode;

use anyhow::Context;
use api::json;
use cel_kubernetes::compile::{Environment, ResultRule, not_a_bool};
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::schema::TypedSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::places::{self, Place};
use crate::typed_json;

/// Answer many expressions: JSON lines on standard input, the same with "expect" on standard output.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

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
    #[serde(skip_serializing_if = "Option::is_none")]
    result_error: Option<String>,
}

impl Arguments {
    /// Fails when a line is no question, after all lines before it were answered.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        answer_all(std::io::stdin().lock(), std::io::stdout().lock())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn answer_all(mut questions: impl BufRead, mut answers: impl Write) -> anyhow::Result<()> {
    let mut environments = Environments::default();
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

fn answer(question: &Question<'_>, environments: &mut Environments) -> anyhow::Result<Expect> {
    let place = Place::find(&question.env).with_context(|| format!("unknown environment `{}`", question.env))?;
    let schema = match question.schema {
        Some(schema) if place.needs_schema() => Some(places::read_schema(&parse(schema)?)?),
        _ => None,
    };
    let environment = environments.find(place, question.schema, schema.as_ref())?;
    let compiled = match environment.compile(&question.expr) {
        Ok(compiled) => compiled,
        Err(error) => return Ok(Expect { compile_error: Some(error.to_string()), ..Expect::default() }),
    };
    let input = place.input(question.input.map(parse).transpose()?, schema)?;
    Ok(input.with(|input| {
        let evaluation = compiled.eval(input);
        let (value, eval_error) = match &evaluation.result {
            Ok(value) => (Some(typed_json::encode(value)), None),
            Err(error) => (None, Some(error.message().to_owned())),
        };
        let must_be_bool = environment.result == ResultRule::BoolOrUnknown;
        let result_error = match &evaluation.result {
            Ok(value) if must_be_bool => not_a_bool(value),
            _ => None,
        };
        Expect {
            compile_error: None,
            r#type: Some(compiled.result_type().to_string()),
            cost_min: Some(compiled.cost().min),
            cost_max: Some(compiled.cost().max),
            value,
            eval_error,
            actual_cost: Some(evaluation.cost),
            result_error,
        }
    }))
}

fn parse(text: &RawValue) -> anyhow::Result<json::Value> {
    Ok(json::parse(text.get().as_bytes())?)
}

/// Environments that were built before: one per place, and the last one with a schema.
#[derive(Default)]
struct Environments {
    fixed: BTreeMap<Place, Environment>,
    last_with_schema: Option<(String, Environment)>,
}

impl Environments {
    fn find(
        &mut self,
        place: Place,
        text: Option<&RawValue>,
        schema: Option<&TypedSchema>,
    ) -> anyhow::Result<&Environment> {
        let build = || Ok::<_, anyhow::Error>(place.environment(Dialect::KUBERNETES, schema)?.without_estimate_limit());
        if place.needs_schema() {
            let key = format!("{place:?} {}", text.map_or("", RawValue::get));
            let last = match self.last_with_schema.take() {
                Some(last) if last.0 == key => last,
                _ => (key, build()?),
            };
            return Ok(&self.last_with_schema.insert(last).1);
        }
        Ok(match self.fixed.entry(place) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(build()?),
        })
    }
}

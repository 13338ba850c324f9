//! Recorded evaluations: questions about expressions, and answers in a form that can be stored and compared.
//!
//! The reference implementation's answers are stored so, our tests compare ours with them, and `celplane cel batch` answers so. There
//! is no reading and writing of files here.

pub mod answer;
pub mod typed_json;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use api::json;

pub use answer::Answer;

use crate::compile::{Environment, ResultRule, not_a_bool};
use crate::environments::Dialect;
use crate::places::{InputError, Place};
use crate::schema::TypedSchema;

/// A question about an expression.
#[derive(Debug, Clone, Copy)]
pub struct Question<'q> {
    /// The name of the place that holds the expression.
    pub place: &'q str,
    /// The expression.
    pub expression: &'q str,
    /// Input as JSON. Without it, variables have no value.
    pub input: Option<&'q str>,
    /// The schema that types the input, as JSON, where the place needs one.
    pub schema: Option<&'q str>,
}

/// Answers questions in Kubernetes' own environments, which it builds once: one per place, and the last one with a schema.
#[derive(Debug, Default)]
pub struct Respondent {
    fixed: BTreeMap<Place, Environment>,
    last_with_schema: Option<(String, Environment)>,
}

impl Respondent {
    /// Finds out about an expression. Fails where the question makes no sense: an unknown place, an input of another form.
    pub fn answer(&mut self, question: &Question<'_>) -> Result<Answer, InputError> {
        let place = Place::find(question.place)
            .ok_or_else(|| InputError::new(format!("unknown environment `{}`", question.place)))?;
        let schema = match question.schema {
            Some(schema) if place.needs_schema() => Some(crate::places::read_schema(&parse(schema)?)?),
            _ => None,
        };
        let environment = self.environment(place, question.schema, schema.as_ref())?;
        let compiled = match environment.compile(question.expression) {
            Ok(compiled) => compiled,
            Err(error) => return Ok(Answer::compile_error(error.to_string())),
        };
        let answer = Answer {
            r#type: Some(compiled.result_type().to_string()),
            cost_min: Some(compiled.cost().min),
            cost_max: Some(compiled.cost().max),
            ..Answer::default()
        };
        let must_be_bool = environment.result == ResultRule::BoolOrUnknown;
        let input = place.input(question.input.map(parse).transpose()?, schema, &|_, value| typed_value(value))?;
        Ok(input.with(|input| {
            let evaluation = compiled.eval(input);
            let result_error = match &evaluation.result {
                Ok(value) if must_be_bool => not_a_bool(value),
                _ => None,
            };
            Answer { result_error, ..answer.with_evaluation(&evaluation) }
        }))
    }

    fn environment(
        &mut self,
        place: Place,
        text: Option<&str>,
        schema: Option<&TypedSchema>,
    ) -> Result<&Environment, InputError> {
        let build = || Ok::<_, InputError>(place.environment(Dialect::KUBERNETES, schema)?.without_estimate_limit());
        if place.needs_schema() {
            let key = format!("{place:?} {}", text.unwrap_or_default());
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

fn parse(text: &str) -> Result<json::Value, InputError> {
    json::parse(text.as_bytes()).map_err(|error| InputError::new("not JSON").because(error))
}

/// Variables of the base environment are written with their types.
fn typed_value(value: &json::Value) -> Result<cel::value::Value<'static>, InputError> {
    let value = serde_json::from_str(&json::to_string(value));
    let value = value.map_err(|error| InputError::new("not JSON").because(error))?;
    typed_json::decode(&value).map_err(|error| InputError::new(error.to_string()))
}

//! Recorded results of an expression, and their comparison.
//!
//! Texts are compared exactly, except for the wording of syntax errors, which belongs to the reference's parser
//! generator: there, the positions must agree. This file depends only on the language, because the tests of the
//! crate `cel` include it.

use cel::program::Evaluation;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::typed_json;

/// Facts about an expression. If it does not compile, only the error is set.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// Compile error.
    pub compile_error: Option<String>,
    /// The type of its value.
    pub r#type: Option<String>,
    /// Minimum estimated cost.
    pub cost_min: Option<u64>,
    /// Maximum estimated cost.
    pub cost_max: Option<u64>,
    /// Value, see [`typed_json`].
    pub value: Option<Json>,
    /// Evaluation error.
    pub eval_error: Option<String>,
    /// Actual cost, whether the evaluation succeeded or failed.
    pub actual_cost: Option<u64>,
    /// Error if the value does not have the required type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_error: Option<String>,
    /// Whether the actual cost depends on chance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cost_varies: bool,
}

impl Answer {
    /// The answer about an expression that does not compile.
    pub fn compile_error(text: String) -> Answer {
        Answer { compile_error: Some(text), ..Answer::default() }
    }

    /// Adds the result of an evaluation.
    #[must_use]
    pub fn with_evaluation(mut self, evaluation: &Evaluation<'_>) -> Answer {
        match &evaluation.result {
            Ok(value) => self.value = Some(typed_json::encode(value)),
            Err(error) => self.eval_error = Some(error.message().to_owned()),
        }
        self.actual_cost = Some(evaluation.cost);
        self
    }

    /// The first thing in which an answer differs from this one, which was recorded.
    pub fn difference(&self, ours: &Answer) -> Option<String> {
        // A panic of the reference is recorded as an error.
        let panicked = self.eval_error.as_ref().is_some_and(|error| error.starts_with("internal error: "));
        let is_some_error = panicked && ours.eval_error.is_some();
        let loosely = |text: &Option<String>| text.as_deref().map(without_wording);
        compare("compile error", &loosely(&self.compile_error), &loosely(&ours.compile_error))
            .or_else(|| compare("type", &self.r#type, &ours.r#type))
            .or_else(|| compare("estimated cost", &(self.cost_min, self.cost_max), &(ours.cost_min, ours.cost_max)))
            .or_else(|| if is_some_error { None } else { compare("error", &self.eval_error, &ours.eval_error) })
            .or_else(|| compare("value", &self.value, &ours.value))
            .or_else(|| compare("error of the result", &self.result_error, &ours.result_error))
            .or_else(|| match self.cost_varies || is_some_error {
                true => None,
                false => compare("actual cost", &self.actual_cost, &ours.actual_cost),
            })
    }
}

fn compare<T: PartialEq + std::fmt::Debug>(what: &str, recorded: &T, ours: &T) -> Option<String> {
    (recorded != ours).then(|| format!("{what}: expected {recorded:?}, ours is {ours:?}"))
}

/// The text, without the wording behind `Syntax error: `.
fn without_wording(text: &str) -> String {
    const MARK: &str = ": Syntax error: ";
    let lines = text.lines().map(|line| match line.split_once(MARK) {
        Some((place, _)) if place.contains("ERROR: <input>:") => format!("{place}{MARK}"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        serde_json::from_str(text).unwrap()
    }

    #[track_caller]
    fn check(recorded: &str, ours: &str, difference: Option<&str>) {
        assert_eq!(answer(recorded).difference(&answer(ours)).as_deref(), difference);
    }

    #[test]
    fn first_difference_is_reported() {
        check(r#"{"value":{"int":"1"},"actual_cost":1}"#, r#"{"value":{"int":"1"},"actual_cost":1}"#, None);
        let difference = "actual cost: expected Some(1), ours is Some(2)";
        check(r#"{"actual_cost":1}"#, r#"{"actual_cost":2}"#, Some(difference));
        check(r#"{"actual_cost":null,"cost_varies":true}"#, r#"{"actual_cost":2}"#, None);
        let difference = r#"error: expected Some("a"), ours is Some("b")"#;
        check(r#"{"eval_error":"a","actual_cost":1}"#, r#"{"eval_error":"b","actual_cost":2}"#, Some(difference));
    }

    #[test]
    fn wording_is_compared_loosely_and_places_are_not() {
        let at = |column: u8, words: &str| {
            format!(r#"{{"compile_error":"compilation failed: ERROR: <input>:1:{column}: Syntax error: {words}"}}"#)
        };
        check(&at(1, "mismatched input"), &at(1, "what is this?"), None);
        assert!(answer(&at(1, "a")).difference(&answer(&at(2, "a"))).is_some());
    }

    #[test]
    fn a_panic_of_the_reference_is_some_error() {
        let recorded = r#"{"eval_error":"internal error: nil","actual_cost":1}"#;
        check(recorded, r#"{"eval_error":"no such key: a","actual_cost":2}"#, None);
        assert!(answer(recorded).difference(&answer(r#"{"value":{"int":"1"},"actual_cost":1}"#)).is_some());
    }
}

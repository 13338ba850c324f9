//! `celplane cel cost`: what an expression may cost, and what it costs on an input.

use std::process::ExitCode;

use api::json;
use cel::cost::Cost;

use super::expression::Expression;
use crate::output::{Output, unsigned};

/// Print the estimated cost of an expression and, with an input, its actual cost.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    expression: Expression,

    #[command(flatten)]
    output: Output,
}

impl Arguments {
    /// Fails, in the sense of the exit code, when the expression does not compile, or costs more than its place allows.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let scene = self.expression.scene()?;
        let limits = scene.environment.limits;
        let compiled = match scene.environment.without_estimate_limit().compile(self.expression.text()) {
            Ok(compiled) => compiled,
            Err(error) => return Ok(self.output.fail(&self.expression.explain(&error))?),
        };
        let evaluated = scene.can_evaluate.then(|| {
            scene.input.with(|input| {
                let evaluation = compiled.eval(input);
                (evaluation.cost, evaluation.result.err().map(|error| error.message().to_owned()))
            })
        });
        let estimated = compiled.cost();
        let mut text = format!("estimated  {}", range(estimated));
        let mut document = json::Object::new();
        document.insert("estimated", range_document(estimated));
        if let Some(limit) = limits.estimated_cost {
            text.push_str(&format!("\nlimit      {limit}"));
            document.insert("limit", unsigned(limit));
        }
        if let Some((actual, error)) = &evaluated {
            text.push_str(&format!("\nactual     {actual}"));
            document.insert("actual", unsigned(*actual));
            if let Some(error) = error {
                text.push_str(&format!("\nerror      {error}"));
                document.insert("error", error.as_str());
            }
        }
        self.output.print(&text, || json::Value::Object(document))?;
        let is_beyond = limits.estimated_cost.is_some_and(|limit| estimated.max > limit)
            || evaluated.is_some_and(|(actual, _)| actual > limits.runtime_cost);
        Ok(if is_beyond { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Formats minimum and maximum cost.
pub(super) fn range(cost: Cost) -> String {
    match cost {
        Cost { min, max: u64::MAX } => format!("at least {min}"),
        Cost { min, max } if min == max => min.to_string(),
        Cost { min, max } => format!("{min} to {max}"),
    }
}

/// The same for programs. What has no bound has the largest number for one.
pub(super) fn range_document(cost: Cost) -> json::Value {
    api::json!({ "min": (unsigned(cost.min)), "max": (unsigned(cost.max)) })
}

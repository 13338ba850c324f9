//! `celplane cel eval`: the value of an expression.

use std::process::ExitCode;

use cel::program::Limits;
use cel_kubernetes::compile::{ResultRule, not_a_bool};

use super::expression::Expression;
use crate::output::{Output, complain_line, document, unsigned};

/// Evaluate an expression and print its value.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    expression: Expression,

    #[command(flatten)]
    output: Output,

    /// Also print the actual cost, on standard error.
    #[arg(long)]
    cost: bool,

    /// Stop the evaluation at this cost; defaults to the limit of the environment.
    #[arg(long, value_name = "COST")]
    cost_limit: Option<u64>,
}

impl Arguments {
    /// Fails, in the sense of the exit code, when the expression does not compile or has no value.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let scene = self.expression.scene()?;
        let mut environment = scene.environment.without_estimate_limit();
        // Parts of an expression have values of other types, and are printed with a warning.
        let rule = std::mem::replace(&mut environment.result, ResultRule::Any);
        let compiled = match environment.compile(self.expression.text()) {
            Ok(compiled) => compiled,
            Err(error) => return Ok(self.output.fail(&self.expression.explain(&error))?),
        };
        let limits = Limits::cost(self.cost_limit.unwrap_or(environment.limits.runtime_cost));
        Ok(scene.input.with(|input| -> std::io::Result<ExitCode> {
            let evaluation = compiled.eval_within(input, limits);
            if self.cost {
                complain_line!("cost: {}", evaluation.cost);
            }
            let part = rule.check(compiled.result_type()).err();
            let must_be_bool = rule == ResultRule::BoolOrUnknown && part.is_none();
            let value = match &evaluation.result {
                Ok(value) => match must_be_bool.then(|| not_a_bool(value)).flatten() {
                    Some(error) => return self.output.fail(&format!("ERROR: {error}")),
                    None => value,
                },
                Err(error) => return self.output.fail(&format!("ERROR: {error}")),
            };
            self.output.print(&crate::literal::text(value), || {
                let of = compiled.result_type().to_string();
                api::json!({ "value": (document(value)), "type": of, "cost": (unsigned(evaluation.cost)) })
            })?;
            if let Some(part) = part {
                complain_line!("warning: as a whole, the expression {part}");
            }
            Ok(ExitCode::SUCCESS)
        })?)
    }
}

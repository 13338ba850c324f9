//! `celplane cel check`: the type and the estimated cost of an expression, or what is wrong with it.

use std::process::ExitCode;

use super::cost::{range, range_document};
use super::expression::Expression;
use crate::output::Output;

/// Check an expression: print its type and estimated cost, or its errors.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    expression: Expression,

    #[command(flatten)]
    output: Output,
}

impl Arguments {
    /// Fails, in the sense of the exit code, when the expression does not compile, or is beyond its place's limits.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let environment = self.expression.scene()?.environment;
        let compiled = match environment.compile(self.expression.text()) {
            Ok(compiled) => compiled,
            Err(error) => return Ok(self.output.fail(&self.expression.explain(&error))?),
        };
        let (of, cost) = (compiled.result_type().to_string(), compiled.cost());
        self.output.print(&format!("type  {of}\ncost  {}", range(cost)), || {
            api::json!({ "type": (of.as_str()), "cost": (range_document(cost)) })
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

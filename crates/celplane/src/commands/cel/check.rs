//! `celplane cel check`: the type and the estimated cost of an expression, or what is wrong with it.

use std::process::ExitCode;

use cel::cost::{self, Cost, NoHints};

use super::expression::Expression;

/// Check an expression: print its type and what it costs, or what is wrong with it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    expression: Expression,
}

impl Arguments {
    /// Fails, in the sense of the exit code, when the expression does not compile.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(typed) = self.expression.compile()? else { return Ok(ExitCode::FAILURE) };
        println!("type  {}", typed.result_type());
        println!("cost  {}", range(cost::estimate(&typed, &NoHints)));
        Ok(ExitCode::SUCCESS)
    }
}

fn range(cost: Cost) -> String {
    match cost {
        Cost { min, max: u64::MAX } => format!("at least {min}"),
        Cost { min, max } if min == max => min.to_string(),
        Cost { min, max } => format!("{min} to {max}"),
    }
}

//! `celplane cel eval`: the value of an expression.

use std::process::ExitCode;

use cel::program::{Bindings, Limits, Program};

use super::expression::Expression;

/// Evaluate an expression and print its value.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    expression: Expression,

    /// Print the value as JSON that keeps types: {"int":"1"}.
    #[arg(long)]
    json: bool,

    /// Also print what the evaluation cost.
    #[arg(long)]
    cost: bool,

    /// Stop when the evaluation has cost more than this.
    #[arg(long, value_name = "COST", default_value_t = u64::MAX, hide_default_value = true)]
    cost_limit: u64,
}

impl Arguments {
    /// Fails, in the sense of the exit code, when the expression does not compile or has no value.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(typed) = self.expression.compile()? else { return Ok(ExitCode::FAILURE) };
        let program = match Program::new(&typed) {
            Ok(program) => program,
            Err(error) => return Ok(super::expression::fail(&error)),
        };
        let variables = self.expression.variables().iter();
        let input = variables.fold(Bindings::new(), |input, it| input.bind(&it.name, it.value.borrowed()));
        let evaluation = program.eval_within(&input, Limits::cost(self.cost_limit));
        if self.cost {
            eprintln!("cost: {}", evaluation.cost);
        }
        match &evaluation.result {
            Ok(value) if self.json => println!("{}", cel_kubernetes::recorded::typed_json::encode(value)),
            Ok(value) => println!("{}", crate::literal::text(value)),
            Err(error) => return Ok(super::expression::fail(error)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

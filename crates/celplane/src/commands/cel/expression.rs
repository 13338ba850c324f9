//! What the subcommands have in common: an expression, the variables it may use, and how failures are shown.

use std::fmt::Display;
use std::process::ExitCode;

use cel::checker::TypedAst;
use cel::env::Env;
use cel::source::Source;

use crate::language;
use crate::input::Variable;

/// An expression and its variables.
#[derive(clap::Args)]
pub(crate) struct Expression {
    /// The expression.
    #[arg(value_name = "EXPRESSION", allow_hyphen_values = true)]
    text: String,

    /// A variable; may be given several times. The value is JSON or else a string: x=1, s=hello, 'l=[1, 2]'. A type decides
    /// how it is read: u:uint=1, t:timestamp=2026-01-01T00:00:00Z, 'm:map(string, double)={"a": 1}'.
    #[arg(long = "var", value_name = "NAME[:TYPE]=VALUE")]
    variables: Vec<Variable>,
}

impl Expression {
    /// The variables.
    pub(crate) fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The expression's text.
    pub(crate) fn source(&self) -> Source {
        Source::new(&self.text)
    }

    /// The whole language, and the variables.
    pub(crate) fn env(&self) -> anyhow::Result<Env> {
        let language = language::builder();
        let declared = self.variables.iter().fold(language, |env, it| env.variable(&it.name, it.of.clone()));
        Ok(declared.build()?)
    }

    /// Parses and checks. What is wrong is printed, and there is no tree then.
    pub(crate) fn compile(&self) -> anyhow::Result<Option<TypedAst>> {
        match self.env()?.compile_source(&self.source()) {
            Ok(typed) => Ok(Some(typed)),
            Err(issues) => {
                eprintln!("{issues}");
                Ok(None)
            }
        }
    }
}

/// Shows why there is no value.
pub(crate) fn fail(error: &dyn Display) -> ExitCode {
    eprintln!("ERROR: {error}");
    ExitCode::FAILURE
}

//! Text → program, within the limits of the place that holds the expression.

use std::sync::Arc;

use cel::checker::TypedAst;
use cel::cost::{Cost, SizeHints};
use cel::env::Env;
use cel::program::{
    Activation, Effort, Evaluation, Limits, ListEvaluation, ListSink, Memory, PlanError, Program, Trace, Verdict,
};
use cel::source::Issues;
use cel::types::Type;
use cel::value::Value;

/// Rules of a place in the API that accepts expressions: variables and functions, type of the result, limits on
/// cost.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Variables and functions of the expressions.
    pub env: Env,
    /// Sizes of the input.
    pub hints: Arc<dyn Hints>,
    /// Required type of the result.
    pub result: ResultRule,
    /// Limits on length and cost.
    pub limits: ExpressionLimits,
}

/// Size hints that can be shared between threads.
pub trait Hints: SizeHints + std::fmt::Debug + Send + Sync {}

impl<T: SizeHints + std::fmt::Debug + Send + Sync> Hints for T {}

/// Required type of an expression's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultRule {
    /// A truth value, or something whose type is only known at run time.
    BoolOrUnknown,
    /// A truth value.
    Bool,
    /// Text.
    String,
    /// Anything.
    Any,
}

/// Limits on the length and cost of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpressionLimits {
    /// The text's length at most.
    pub text_bytes: usize,
    /// The estimated cost at most; nothing where it is only reported.
    pub estimated_cost: Option<u64>,
    /// The cost of one evaluation at most.
    pub runtime_cost: u64,
}

impl ExpressionLimits {
    /// The limits of expressions in pods, volumes and claims.
    pub const PLACEMENT: ExpressionLimits =
        ExpressionLimits { text_bytes: 10 * 1024, estimated_cost: Some(1_000_000), runtime_cost: 1_000_000 };
}

/// A reason to reject an expression. The texts are those that users of the API see.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The text is too long.
    #[error("may not be more than {max} bytes")]
    TooLong {
        /// Maximum length in bytes.
        max: usize,
    },
    /// The expression does not parse or does not type-check.
    #[error("compilation failed: {0}")]
    Issues(Issues),
    /// The expression has the wrong result type.
    #[error("{0}")]
    WrongType(String),
    /// A constant part of it fails.
    #[error("program instantiation failed: {0}")]
    Plan(PlanError),
    /// The estimated cost exceeds the limit.
    #[error("too complex, exceeds cost limit")]
    TooExpensive {
        /// Estimated cost.
        estimated: u64,
        /// Limit of the estimated cost.
        limit: u64,
    },
}

/// An expression that is ready to run.
#[derive(Debug)]
pub struct CompiledExpression {
    program: Program,
    typed: TypedAst,
    cost: Cost,
    runtime_cost_max: u64,
}

impl Environment {
    /// Compiles an expression: parses, checks, plans, estimates.
    pub fn compile(&self, text: &str) -> Result<CompiledExpression, CompileError> {
        if text.len() > self.limits.text_bytes {
            return Err(CompileError::TooLong { max: self.limits.text_bytes });
        }
        let typed = self.env.compile(text).map_err(CompileError::Issues)?;
        self.result.check(typed.result_type())?;
        let program = Program::new(&typed).map_err(CompileError::Plan)?;
        let cost = cel::cost::estimate(&typed, self.hints.as_ref());
        match self.limits.estimated_cost {
            Some(limit) if cost.max > limit => Err(CompileError::TooExpensive { estimated: cost.max, limit }),
            _ => Ok(CompiledExpression { program, typed, cost, runtime_cost_max: self.limits.runtime_cost }),
        }
    }

    /// The same place without limits on length and estimate, for tools that report them.
    #[must_use]
    pub fn without_estimate_limit(mut self) -> Self {
        self.limits.text_bytes = usize::MAX;
        self.limits.estimated_cost = None;
        self
    }
}

impl ResultRule {
    /// Checks the type of a result.
    ///
    /// # Errors
    /// [`CompileError::WrongType`], in the words that users of the API see.
    pub fn check(self, found: &Type) -> Result<(), CompileError> {
        let wrong = match self {
            ResultRule::Any => return Ok(()),
            ResultRule::BoolOrUnknown if matches!(found, Type::Bool | Type::Any) => return Ok(()),
            ResultRule::Bool if *found == Type::Bool => return Ok(()),
            ResultRule::String if *found == Type::String => return Ok(()),
            ResultRule::BoolOrUnknown => format!("must evaluate to bool or the unknown type, not {found}"),
            ResultRule::Bool => "cel expression must evaluate to a bool".to_owned(),
            ResultRule::String => "messageExpression must evaluate to a string".to_owned(),
        };
        Err(CompileError::WrongType(wrong))
    }
}

/// Returns an error in the reference's words if a value that must be a boolean is not one.
///
/// An expression of unknown type passes the checker; only its value shows whether it is a boolean.
pub fn not_a_bool(value: &Value<'_>) -> Option<String> {
    let reason = match value {
        Value::Bool(_) => return None,
        Value::Int(_) | Value::Uint(_) => format!("unsupported type conversion from '{}' to bool", value.type_name()),
        Value::String(_) => "unsupported native conversion from string to 'bool'".to_owned(),
        Value::Double(_) => "type conversion error from Double to 'bool'".to_owned(),
        Value::Bytes(_) => "type conversion error from Bytes to 'bool'".to_owned(),
        other => {
            let name = other.type_name();
            let name = name.rsplit_once('.').map_or(name.as_ref(), |(_, name)| name);
            format!("type conversion error from '{name}' to 'bool'")
        }
    };
    Some(format!("CEL result of type {} could not be converted to bool: {reason}", value.type_name()))
}

impl CompiledExpression {
    /// Evaluates within the place's limit.
    pub fn eval<'a>(&'a self, input: &'a dyn Activation) -> Evaluation<'a> {
        self.program.eval_within(input, Limits::cost(self.runtime_cost_max))
    }

    /// Returns the verdict of a predicate within the place's limit: the same as [`Evaluation::verdict`], but
    /// faster.
    pub fn verdict(&self, input: &dyn Activation) -> Verdict {
        self.program.verdict_within(input, Limits::cost(self.runtime_cost_max))
    }

    /// Returns the possible results of a predicate on partly known input, and the cost of computing them.
    ///
    /// Where the estimate is above the place's limit, a completion may exceed it: that is an error, too.
    pub fn possible(
        &self,
        input: &dyn Activation,
        limits: Limits<'_>,
        memory: &mut Memory,
        effort: Effort,
    ) -> (Verdict, u64) {
        let evaluation = self.program.eval_partial(input, limits, memory, effort);
        let too_costly = if self.may_exceed_its_limit() { Verdict::ERROR } else { Verdict::NONE };
        (evaluation.verdict() | too_costly, evaluation.cost)
    }

    /// Whether the estimate is above the place's limit at run time.
    pub fn may_exceed_its_limit(&self) -> bool {
        self.cost.max > self.runtime_cost_max
    }

    /// Whether the order of evaluation decides if there is an error.
    pub fn can_end_early(&self) -> bool {
        self.program.can_end_early()
    }

    /// Whether the expression builds a list.
    pub fn makes_list(&self) -> bool {
        self.program.makes_list()
    }

    /// Evaluates within other limits; a list that the expression builds is passed to the sink.
    pub fn eval_list<'a>(
        &'a self,
        input: &'a dyn Activation,
        limits: Limits<'_>,
        sink: &mut dyn ListSink,
    ) -> ListEvaluation<'a> {
        self.program.eval_list(input, limits, sink)
    }

    /// Evaluates within other limits.
    pub fn eval_within<'a>(&'a self, input: &'a dyn Activation, limits: Limits<'_>) -> Evaluation<'a> {
        self.program.eval_within(input, limits)
    }

    /// Evaluates within the place's limit, and reports the value of each part.
    pub fn trace<'a>(&'a self, input: &'a dyn Activation) -> (Evaluation<'a>, Trace<'a>) {
        self.program.trace(input, Limits::cost(self.runtime_cost_max))
    }

    /// Minimum and maximum estimated cost.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The type of its value.
    pub fn result_type(&self) -> &Type {
        self.typed.result_type()
    }

    /// The checked tree, for explanations and analyses.
    pub fn typed(&self) -> &TypedAst {
        &self.typed
    }

    /// Size of the program in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.program.memory_bytes()
    }
}

#[cfg(test)]
mod tests;

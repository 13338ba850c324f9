//! Calls: operands, code, price.

use super::machine::{EvalResult, Machine, TestResult};
use super::node::{CallNode, Code, Equality, EqualityText, Node, Question, QuestionTest};
use super::trace::Tracer;
use crate::cost::traversal_cost;
use crate::env::{Implementation, Price, ResolvedOverload};
use crate::value::{ErrorKind, EvalError, Str, UnknownValue, Value};

impl<'a, T: Tracer<'a>> Machine<'_, 'a, T> {
    /// The value of a call.
    #[inline(always)]
    pub(super) fn eval_call(&mut self, call: &'a CallNode) -> EvalResult<'a> {
        match self.ask(call) {
            Some(answer) => answer.map(Value::Bool),
            None => self.eval_any_call(call),
        }
    }

    /// Evaluates a call as a predicate.
    #[inline(always)]
    pub(super) fn test_call(&mut self, call: &'a CallNode) -> Result<TestResult<'a>, EvalError> {
        match self.ask(call) {
            Some(answer) => answer.map(TestResult::Is),
            None => self.eval_any_call(call).map(TestResult::from),
        }
    }

    /// Evaluates a predicate on text directly. Returns `None`, without side effects, if the operand is not text
    /// that can be read without evaluation.
    #[inline(always)]
    fn ask(&mut self, call: &'a CallNode) -> Option<Result<bool, EvalError>> {
        match (&call.question, &*call.operands) {
            (Some(question), [subject, other]) if !T::ENABLED => {
                self.read_text(subject).map(|text| self.answer(call, question, text, other))
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn answer(
        &mut self,
        call: &'a CallNode,
        question: &'a Question,
        text: &'a str,
        other: &'a Node,
    ) -> Result<bool, EvalError> {
        let answer = match &question.test {
            QuestionTest::Texts(test, other) => Ok(test(text, other)),
            QuestionTest::Prepared(test) => test(text),
        };
        let cost = match question.fixed_cost {
            Some(cost) => cost,
            None => price_of_answer(call, text, other, answer.as_ref()),
        };
        self.charge(cost)?;
        answer
    }

    #[inline(never)]
    fn eval_any_call(&mut self, call: &'a CallNode) -> EvalResult<'a> {
        match &*call.operands {
            [node] => {
                let mut operand = Value::Null;
                self.eval_operand(node, &mut operand)?;
                self.finish_call(call, std::slice::from_ref(&operand))
            }
            [first, second] if !call.stops_early => {
                let mut operands = [Value::Null, Value::Null];
                let [left, right] = &mut operands;
                self.eval_operand(first, left)?;
                self.eval_operand(second, right)?;
                self.finish_call(call, &operands)
            }
            [first, second] => {
                let mut operands = [Value::Null, Value::Null];
                match self.eval_in_order(&[first, second], &mut operands)? {
                    Some(early) => early,
                    None => self.finish_call(call, &operands),
                }
            }
            [first, second, third] => {
                let mut operands = [Value::Null, Value::Null, Value::Null];
                match self.eval_in_order(&[first, second, third], &mut operands)? {
                    Some(early) => early,
                    None => self.finish_call(call, &operands),
                }
            }
            nodes => {
                let nodes: Vec<&Node> = nodes.iter().collect();
                let mut operands = vec![Value::Null; nodes.len()];
                match self.eval_in_order(&nodes, &mut operands)? {
                    Some(early) => early,
                    None => self.finish_call(call, &operands),
                }
            }
        }
    }

    /// The value of an operand, written to where it is needed. A failure becomes a value, so that the others are still evaluated.
    #[inline(always)]
    fn eval_operand(&mut self, node: &'a Node, out: &mut Value<'a>) -> Result<(), EvalError> {
        match self.eval_into(node, out) {
            Err(error) => {
                *out = as_operand(Err(error))?;
                Ok(())
            }
            ok => ok,
        }
    }

    /// Evaluates operands up to the first that fails. Only if that is the last one is the call priced nevertheless.
    fn eval_in_order(
        &mut self,
        nodes: &[&'a Node],
        operands: &mut [Value<'a>],
    ) -> Result<Option<EvalResult<'a>>, EvalError> {
        let last = nodes.len().saturating_sub(1);
        for (index, (operand, node)) in operands.iter_mut().zip(nodes).enumerate() {
            match as_operand(self.eval(node))? {
                Value::Error(error) if index < last => return Ok(Some(Err(error))),
                value => *operand = value,
            }
        }
        Ok(None)
    }

    /// Calls, if no operand failed, and charges in either case.
    #[inline(always)]
    fn finish_call(&mut self, call: &'a CallNode, operands: &[Value<'a>]) -> EvalResult<'a> {
        if operands.iter().any(is_failed) {
            return self.finish_failed_call(call, operands);
        }
        if matches!(call.price, Price::Fixed(_)) {
            self.count_reading(operands)?;
        }
        let result = run(&call.code, &call.name, operands);
        if let Err(error) = &result
            && call.price.fails_on(operands)
        {
            return Err(aborted(error));
        }
        self.charge(call.price.actual(operands, result.as_ref()))?;
        match result {
            Err(error) => undetermined_is_unknown(error),
            Ok(value) => {
                self.count_result(&value)?;
                Ok(value)
            }
        }
    }

    #[cold]
    fn finish_failed_call(&mut self, call: &'a CallNode, operands: &[Value<'a>]) -> EvalResult<'a> {
        // A failure occurs in every completion of unknown operands.
        let error = operands.iter().find_map(|operand| match operand {
            Value::Error(error) => Some(error.clone()),
            _ => None,
        });
        let Some(error) = error else { return self.call_unknown(call, operands) };
        if call.price.fails_on(operands) {
            return Err(aborted(&error));
        }
        self.charge(call.price.actual(operands, Err(&error)))?;
        Err(error)
    }

    #[inline(always)]
    pub(super) fn test_equality(&mut self, equality: &'a Equality) -> Result<TestResult<'a>, EvalError> {
        // Most comparisons are of a text with a constant.
        if let Some(known) = &equality.text
            && !T::ENABLED
            && let Some(text) = self.read_text(if known.on_the_left { &equality.right } else { &equality.left })
        {
            let is_equal = text == known.text.as_str();
            self.charge(known.comparison_cost(text, is_equal))?;
            return Ok(TestResult::Is(is_equal != equality.negated));
        }
        self.test_equality_of_values(equality)
    }

    #[inline(never)]
    fn test_equality_of_values(&mut self, equality: &'a Equality) -> Result<TestResult<'a>, EvalError> {
        let (mut left, mut right) = (Value::Null, Value::Null);
        self.eval_operand(&equality.left, &mut left)?;
        self.eval_operand(&equality.right, &mut right)?;
        if let (Value::String(left), Value::String(right)) = (&left, &right) {
            self.charge(text_comparison_cost(left, right))?;
            return Ok(TestResult::Is((left.as_str() == right.as_str()) != equality.negated));
        }
        self.test_any_equality(&left, &right, equality.negated)
    }

    fn test_any_equality(
        &mut self,
        left: &Value<'a>,
        right: &Value<'a>,
        negated: bool,
    ) -> Result<TestResult<'a>, EvalError> {
        // `==` of values of library types costs 1 regardless of their size; Kubernetes defines no price for
        // `!=`.
        let is_opaque = matches!(left, Value::Opaque(_)) && !negated;
        self.charge(if is_opaque { 1 } else { equality_cost(left, right) })?;
        for operand in [left, right] {
            if let Value::Error(error) = operand {
                return Err(error.clone());
            }
        }
        if matches!(left, Value::Unknown(_)) || matches!(right, Value::Unknown(_)) {
            return self.test_unknown_equality(left, right, negated);
        }
        match left.equals_in_evaluation(right) {
            Ok(equal) => Ok(TestResult::Is(equal != negated)),
            Err(error) if error.kind() == ErrorKind::Undetermined => {
                undetermined_is_unknown(error).map(TestResult::from)
            }
            Err(fatal) if fatal.is_fatal() => Err(fatal),
            // An error is not equal, so `!=` is true.
            Err(_) if negated => Ok(TestResult::Is(true)),
            Err(error) => Err(error),
        }
    }
}

/// Cost of a predicate on text whose price depends on the text.
#[inline(never)]
fn price_of_answer(call: &CallNode, text: &str, other: &Node, answer: Result<&bool, &EvalError>) -> u64 {
    let other = other.constant().map_or(Value::Null, Value::borrowed);
    let truth = answer.map(|truth| Value::Bool(*truth));
    call.price.actual(&[Value::str(text), other], truth.as_ref().map_err(|error| *error))
}

impl EqualityText {
    /// The shorter text is read from end to end.
    #[inline(always)]
    fn comparison_cost(&self, text: &str, is_equal: bool) -> u64 {
        // A non-empty text costs at least 1.
        if is_equal || self.cost <= 1 && !text.is_empty() { self.cost } else { self.cost_of_unequal(text) }
    }

    #[inline(never)]
    fn cost_of_unequal(&self, text: &str) -> u64 {
        self.cost.min(text_traversal_cost(text))
    }
}

/// Cost of reading a text from end to end.
fn text_traversal_cost(text: &str) -> u64 {
    match text.len() {
        0 => 0,
        // At most ten bytes are at most ten code points.
        1..=10 => 1,
        _ => traversal_cost(Str::Borrowed(text).code_points() as u64),
    }
}

/// The shorter text is read from end to end.
#[inline]
fn text_comparison_cost(left: &Str<'_>, right: &Str<'_>) -> u64 {
    match left.len().min(right.len()) {
        0 => 0,
        // At most ten bytes are at most ten code points, and cost 1.
        1..=10 => 1,
        _ => traversal_cost(left.code_points().min(right.code_points()) as u64),
    }
}

/// Ends an evaluation whose price is undefined because of `cause`. cel-go panics there.
#[cold]
pub(super) fn aborted(cause: &EvalError) -> EvalError {
    EvalError::new(ErrorKind::Aborted, format!("internal error: a failed operand has no size: {cause}"))
}

#[inline]
fn is_failed(operand: &Value<'_>) -> bool {
    matches!(operand, Value::Error(_) | Value::Unknown(_))
}

/// An answer that depends on something unknown inside an operand is itself unknown.
#[cold]
pub(super) fn undetermined_is_unknown(error: EvalError) -> EvalResult<'static> {
    if error.kind() == ErrorKind::Undetermined { Ok(Value::Unknown(UnknownValue::anything())) } else { Err(error) }
}

/// A failed operand becomes a value, so that the others are still evaluated; only a fatal error ends it all.
#[inline]
fn as_operand(result: EvalResult<'_>) -> EvalResult<'_> {
    match result {
        Err(error) if !error.is_fatal() => Ok(Value::Error(error)),
        other => other,
    }
}

/// The smaller operand is read from end to end.
#[inline]
fn equality_cost(left: &Value<'_>, right: &Value<'_>) -> u64 {
    traversal_cost(left.size().min(right.size()))
}

#[inline(always)]
pub(super) fn run<'a>(code: &Code, name: &str, operands: &[Value<'a>]) -> EvalResult<'a> {
    match code {
        Code::Native(function) => function(operands),
        Code::Prepared(prepared) => prepared.run(operands),
        Code::Singleton(singleton) => match operands.first() {
            Some(first) if !(singleton.accepts)(first) => {
                Err(EvalError::new(ErrorKind::NoSuchOverload, format!("no such overload: {name}")))
            }
            _ => (singleton.call)(operands),
        },
        Code::Guarded(function, index) => match function.overloads.get(*index) {
            Some(overload) if overload.accepts(operands) => run_overload(overload, operands),
            _ => Err(no_such_overload(name, operands)),
        },
        Code::Dispatch(function, overloads) => {
            match overloads.of(function).find(|overload| overload.accepts(operands)) {
                Some(overload) => run_overload(overload, operands),
                None => Err(no_such_overload(name, operands)),
            }
        }
    }
}

fn run_overload<'a>(overload: &ResolvedOverload, operands: &[Value<'a>]) -> EvalResult<'a> {
    match &overload.implementation {
        Implementation::Native(function) => function(operands),
        Implementation::Closure(function) => function(operands),
        Implementation::Builtin | Implementation::Singleton => Err(EvalError::no_such_overload()),
    }
}

#[cold]
fn no_such_overload(name: &str, operands: &[Value<'_>]) -> EvalError {
    let types: Vec<_> = operands.iter().map(Value::type_name).collect();
    EvalError::new(ErrorKind::NoSuchOverload, format!("no such overload: {name}({})", types.join(", ")))
}

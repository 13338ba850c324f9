//! Functions: one entry per overload holds signature, price, version and code.

use std::fmt;
use std::sync::Arc;

use super::Price;
use crate::syntax::ast::Name;
use crate::types::{OpaqueType, Signature, Type};
use crate::value::{EvalError, Value};

/// Computes a call for which some operands are [`Value::Unknown`] and none has failed: returns a value, or an
/// unknown value that is correct for every completion. Returns `None` if nothing is known about the result.
///
/// How operands fail is none of its business, and those that can be a few values only come to it one by one.
pub type PartialFunction = for<'v> fn(&[Value<'v>]) -> Option<Value<'v>>;

/// The code of a function. Receives the operands, the receiver first.
pub type NativeFunction = for<'v> fn(&[Value<'v>]) -> Result<Value<'v>, EvalError>;

/// Code that was made for a certain call when the program was planned, for instance around a regular expression.
pub type PreparedFn = Arc<dyn for<'v> Fn(&[Value<'v>]) -> Result<Value<'v>, EvalError> + Send + Sync>;

/// A prepared predicate on the text of the first operand: needs no values.
pub type PreparedTest = Arc<dyn Fn(&str) -> Result<bool, EvalError> + Send + Sync>;

/// Makes code for a call from those of its operands that are constant, or leaves it to run time.
pub type PrepareFn = fn(&[Option<&Value<'static>>]) -> Option<Result<PreparedCall, EvalError>>;

/// A call after preparation by [`PrepareFn`].
#[derive(Clone)]
pub enum PreparedCall {
    /// Code for any call.
    Call(PreparedFn),
    /// Code for a question about the text in the first operand; other operands have no such overload.
    Test(PreparedTest),
}

impl PreparedCall {
    /// Code for any call.
    pub fn new<F>(call: F) -> Self
    where
        F: for<'v> Fn(&[Value<'v>]) -> Result<Value<'v>, EvalError> + Send + Sync + 'static,
    {
        PreparedCall::Call(Arc::new(call))
    }

    /// Runs the code.
    #[inline]
    pub fn run<'v>(&self, operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
        match (self, operands.first()) {
            (PreparedCall::Call(call), _) => call(operands),
            (PreparedCall::Test(test), Some(Value::String(text))) => test(text).map(Value::Bool),
            (PreparedCall::Test(_), _) => Err(EvalError::no_such_overload()),
        }
    }

    /// Code for a question about the text in the first operand.
    pub fn test(test: impl Fn(&str) -> Result<bool, EvalError> + Send + Sync + 'static) -> Self {
        PreparedCall::Test(Arc::new(test))
    }
}

/// A predicate on two texts.
pub type TextTest = fn(&str, &str) -> bool;

/// The version of a library in which a function appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LibraryVersion(pub u32);

/// One overload of a function, as libraries list them.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// cel-go's identifier of the overload.
    pub id: &'static str,
    /// `receiver.function(parameter, …) -> result`, in the notation of [`Signature::parse`].
    pub signature: &'static str,
    /// The library's version that brought it.
    pub since: LibraryVersion,
    /// Cost of a call.
    pub price: Price,
    /// Implementation of the call.
    pub call: Call,
    /// Work that the planner can do before the first call.
    pub plan_time: PlanTime,
}

/// Implementation of a call.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// The evaluator knows: logical operators, equality, indexing, selection.
    Builtin,
    /// All overloads of the function share one implementation, see [`Singleton`].
    Singleton,
    /// Runs this code.
    Native(NativeFunction),
}

/// Work that the planner can do before a call runs for the first time.
#[derive(Clone, Copy)]
pub enum PlanTime {
    /// Nothing.
    Nothing,
    /// Nothing, but a call stops at the first operand that fails: cel-go's functions of any number of operands.
    InTurn,
    /// Computes calls with constant operands once, at the same cost. An error stays a run-time error.
    Compute,
    /// Computes calls with one constant operand; they cost nothing, and an error means that there is no program.
    /// These are cel-go's type conversions.
    Convert,
    /// Makes code for this call, if the operands that are constant allow it. An error means that there is no program.
    Prepare(PrepareFn),
    /// Like `Compute`, where cel-go does the same: its call then stops at the first failing operand.
    Replace(PrepareFn),
}

impl fmt::Debug for PlanTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PlanTime::Nothing => "Nothing",
            PlanTime::InTurn => "InTurn",
            PlanTime::Compute => "Compute",
            PlanTime::Convert => "Convert",
            PlanTime::Prepare(_) => "Prepare",
            PlanTime::Replace(_) => "Replace",
        })
    }
}

/// One implementation for all overloads of a function, which dispatches on the first operand.
#[derive(Clone, Copy, Debug)]
pub struct Singleton {
    /// The function's name.
    pub function: &'static str,
    /// Whether a first operand is accepted; for others the call fails with `no such overload: FUNCTION`.
    pub accepts: fn(&Value<'_>) -> bool,
    /// The code.
    pub call: NativeFunction,
    /// Result of the call if both operands are text: needs no values, and must agree with `call`.
    pub texts: Option<TextTest>,
}

/// The code of a declared overload.
#[derive(Clone)]
pub enum Implementation {
    /// The evaluator's own.
    Builtin,
    /// The function's [`Singleton`].
    Singleton,
    /// A plain function.
    Native(NativeFunction),
    /// A closure of the host.
    Closure(PreparedFn),
}

impl fmt::Debug for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Implementation::Builtin => "Builtin",
            Implementation::Singleton => "Singleton",
            Implementation::Native(_) => "Native",
            Implementation::Closure(_) => "Closure",
        })
    }
}

/// An overload whose signature has been read.
#[derive(Clone, Debug)]
pub struct ResolvedOverload {
    /// cel-go's identifier of the overload.
    pub id: Name,
    /// Parameters and result.
    pub signature: Signature,
    /// Whether a parameter or the result has a type parameter.
    pub generic: bool,
    /// The signature with its type parameters numbered, if it has any.
    pub(crate) pattern: Option<Pattern>,
    /// Cost of a call.
    pub price: Price,
    /// Implementation of the call.
    pub implementation: Implementation,
    /// Work that the planner can do before the first call.
    pub plan_time: PlanTime,
}

/// The types of a generic signature, its type parameters written as variables `0`, `1`, ….
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) parameters: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) variable_count: u32,
}

/// A function: its name and overloads, at most 64.
#[derive(Clone, Debug)]
pub struct Function {
    /// The function's name.
    pub name: Name,
    /// The overloads, in the order in which they were declared.
    pub overloads: Vec<ResolvedOverload>,
    /// The implementation that all overloads share.
    pub singleton: Option<Singleton>,
    /// Implementation for unknown operands.
    pub partial: Option<PartialFunction>,
}

/// Maximum number of overloads of a function: one bit each in a checked call.
pub(crate) const OVERLOADS_MAX: usize = 64;

impl Overload {
    /// An overload with a fixed price of 1, in the library since its first version.
    pub const fn new(id: &'static str, signature: &'static str, call: NativeFunction) -> Overload {
        Overload {
            id,
            signature,
            since: LibraryVersion(0),
            price: Price::ONE,
            call: Call::Native(call),
            plan_time: PlanTime::Nothing,
        }
    }
}

impl Singleton {
    /// An implementation for all overloads of a function.
    pub const fn new(function: &'static str, accepts: fn(&Value<'_>) -> bool, call: NativeFunction) -> Self {
        Singleton { function, accepts, call, texts: None }
    }

    /// One that asks something of two texts.
    pub const fn of_texts(
        function: &'static str,
        accepts: fn(&Value<'_>) -> bool,
        call: NativeFunction,
        texts: TextTest,
    ) -> Self {
        Singleton { function, accepts, call, texts: Some(texts) }
    }
}

impl ResolvedOverload {
    /// An overload with the host's own closure.
    pub(crate) fn new(id: Name, signature: Signature, price: Price, implementation: Implementation) -> Self {
        let pattern = Pattern::new(&signature);
        let generic = pattern.is_some();
        ResolvedOverload { id, signature, generic, pattern, price, implementation, plan_time: PlanTime::Nothing }
    }

    /// Whether the operands have the kinds of the parameters.
    pub fn accepts(&self, operands: &[Value<'_>]) -> bool {
        let parameters = &self.signature.parameters;
        parameters.len() == operands.len() && parameters.iter().zip(operands).all(|(of, value)| is_of_type(value, of))
    }
}

impl Pattern {
    fn new(signature: &Signature) -> Option<Self> {
        let mut names = Vec::new();
        let result = numbered(&signature.result, &mut names);
        let parameters = signature.parameters.iter().map(|parameter| numbered(parameter, &mut names)).collect();
        let variable_count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        (variable_count > 0).then_some(Pattern { parameters, result, variable_count })
    }
}

/// The type with each type parameter replaced by its number, in the order of their first appearance.
fn numbered<'t>(value_type: &'t Type, names: &mut Vec<&'t Name>) -> Type {
    match value_type {
        Type::Param(name) => {
            let number = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len().saturating_sub(1)
            });
            Type::Var(u32::try_from(number).unwrap_or(u32::MAX))
        }
        Type::List(element) => Type::list(numbered(element, names)),
        Type::Map(entry) => Type::map(numbered(&entry.0, names), numbered(&entry.1, names)),
        Type::Type(Some(inner)) => Type::type_of(numbered(inner, names)),
        Type::Opaque(opaque) => {
            let parameters = opaque.parameters.iter().map(|parameter| numbered(parameter, names)).collect();
            Type::Opaque(Arc::new(OpaqueType { name: opaque.name.clone(), parameters }))
        }
        other => other.clone(),
    }
}

/// Whether the value is of the type, judged by its kind: elements are not examined.
fn is_of_type(value: &Value<'_>, value_type: &Type) -> bool {
    match (value_type, value) {
        (Type::Dyn | Type::Any | Type::Param(_) | Type::Var(_) | Type::Error, _) => true,
        (Type::Null, Value::Null)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Uint, Value::Uint(_))
        | (Type::Double, Value::Double(_))
        | (Type::String, Value::String(_))
        | (Type::Bytes, Value::Bytes(_))
        | (Type::Duration, Value::Duration(_))
        | (Type::Timestamp, Value::Timestamp(_))
        | (Type::Map(_), Value::Map(_))
        | (Type::Type(_), Value::Type(_))
        | (Type::Wrapper(_), Value::Null) => true,
        // As in cel-go, the first element represents all.
        (Type::List(element), Value::List(list)) => list.get(0).is_none_or(|first| is_of_type(&first, element)),
        (Type::Wrapper(primitive), value) => is_of_type(value, &primitive.unwrapped()),
        (Type::Opaque(_), Value::Optional(_)) => value_type.as_optional().is_some(),
        (Type::Opaque(_) | Type::Object(_), Value::Opaque(opaque)) => opaque.type_of().name() == value_type.name(),
        (Type::Object(name), Value::Object(object)) => object.type_name() == name.as_str(),
        _ => false,
    }
}

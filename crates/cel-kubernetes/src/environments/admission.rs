//! Expressions of admission policies, where they are evaluated: conditions, variables, validations, messages, annotations
//! and mutations.
//!
//! Objects can be anything here; [`super::policy`] holds the same expressions against schemas and only warns. Follows
//! `compile.go`, `composition.go` and `activation.go` of Kubernetes' `apiserver/pkg/admission/plugin/cel`.

mod patch_types;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use api::json;
use cel::env::{Env, EnvError, FieldType, TypeProvider};
use cel::program::{Activation, Limits, Program};
use cel::syntax::ast::Name;
use cel::types::Type;
use cel::value::{EvalError, HostObject, Value};

use self::patch_types::{JSON_PATCH, OBJECT, ObjectValue, Operation};
use super::Language;
use super::policy::{VARIABLES_TYPE, namespace, plain, request};
use crate::declared::DeclaredTypes;
use crate::unstructured;

/// The cost of one expression at most.
pub const EXPRESSION_COST_MAX: u64 = 1_000_000;
/// The cost of all validations of a policy under one binding and parameter at most; also that of one mutation.
pub const POLICY_COST_MAX: u64 = 10_000_000;
/// The cost of all match conditions of a policy at most.
pub const CONDITIONS_COST_MAX: u64 = 2_500_000;

/// The variables and types that an expression may refer to, besides the request and its objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scope {
    /// Whether `params` is available.
    pub params: bool,
    /// Whether `authorizer` is available.
    pub authorizer: bool,
    /// Whether the types `Object` and `JSONPatch` are available.
    pub patch_types: bool,
}

/// The value that an expression must yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    /// A truth value: conditions and validations.
    Bool,
    /// Text: messages.
    String,
    /// Text or null: audit annotations.
    StringOrNull,
    /// Anything: variables.
    Anything,
    /// An object to apply.
    Object,
    /// A list of operations of a JSON patch.
    JsonPatch,
}

impl ResultKind {
    fn check(self, found: &Type) -> Result<(), String> {
        let is_right = match self {
            ResultKind::Anything => true,
            ResultKind::Bool => *found == Type::Bool,
            ResultKind::String => *found == Type::String,
            ResultKind::StringOrNull => matches!(found, Type::String | Type::Null),
            ResultKind::Object => *found == Type::object(OBJECT),
            ResultKind::JsonPatch => *found == Type::list(Type::object(JSON_PATCH)),
        };
        let wanted = match self {
            _ if is_right => return Ok(()),
            ResultKind::StringOrNull => "one of [string null_type]",
            ResultKind::Bool => "bool",
            ResultKind::String => "string",
            ResultKind::Anything => "dyn",
            ResultKind::Object => "Object",
            ResultKind::JsonPatch => "list(JSONPatch)",
        };
        Err(format!("must evaluate to {wanted} but got {found}"))
    }
}

/// A reason to reject an expression; the texts are Kubernetes'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The expression does not parse, does not type-check, or has the wrong type.
    #[error("{0}")]
    Invalid(String),
    /// A constant part of it fails, or the compiler does.
    #[error("{0}")]
    Internal(String),
}

/// Compiles expressions of policies. Environments without variables of a policy's own are built once.
#[derive(Debug)]
pub struct Compiler {
    language: Language,
    declared: Arc<DeclaredTypes>,
    plain: [OnceLock<Env>; 8],
}

impl Compiler {
    /// A compiler of a language.
    #[must_use]
    pub fn new(language: &Language) -> Self {
        let roots = [("namespaceObject", Arc::new(namespace())), ("request", Arc::new(request()))];
        let declared = Arc::new(DeclaredTypes::new(roots).with_keywords_as_fields());
        Self { language: language.clone(), declared, plain: Default::default() }
    }

    /// Compiles an expression outside of a policy that declares variables.
    ///
    /// # Errors
    /// The expression cannot be used.
    pub fn compile(&self, expression: &str, yields: ResultKind, scope: Scope) -> Result<Program, CompileError> {
        let index =
            usize::from(scope.params) | usize::from(scope.authorizer) << 1 | usize::from(scope.patch_types) << 2;
        let Some(place) = self.plain.get(index) else {
            return Err(CompileError::Internal("no such environment".to_owned()));
        };
        let env = match place.get() {
            Some(env) => env,
            None => {
                let env = self.environment(scope, None).map_err(internal)?;
                place.get_or_init(|| env)
            }
        };
        compile(env, expression, yields).map(|(program, _)| program)
    }

    /// Starts a policy, whose expressions may refer to `variables`.
    #[must_use]
    pub fn policy(&self, has_params: bool) -> PolicyCompiler<'_> {
        PolicyCompiler { compiler: self, has_params, variables: Arc::default(), built: Default::default() }
    }

    fn environment(&self, scope: Scope, variables: Option<Arc<Vec<(Name, Type)>>>) -> Result<Env, EnvError> {
        let mut builder = self.language.builder();
        for (name, of) in self.declared.variables() {
            builder = builder.variable(name, of.clone());
        }
        builder = builder.variable("object", Type::Dyn).variable("oldObject", Type::Dyn);
        if scope.params {
            builder = builder.variable("params", Type::Dyn);
        }
        if scope.authorizer {
            let of = |name: &str| Type::object(format!("kubernetes.authorization.{name}"));
            builder = builder.variable("authorizer", of("Authorizer"));
            builder = builder.variable("authorizer.requestResource", of("ResourceCheck"));
        }
        if scope.patch_types {
            builder = builder.library(&crate::libraries::json_patch::json_patch());
        }
        if variables.is_some() {
            builder = builder.variable("variables", Type::object(VARIABLES_TYPE));
        }
        let types = Types { declared: self.declared.clone(), variables, patch_types: scope.patch_types };
        builder.types(Arc::new(types)).build()
    }
}

fn internal(error: EnvError) -> CompileError {
    CompileError::Internal(format!("unexpected error loading CEL environment: {error}"))
}

fn compile(env: &Env, expression: &str, yields: ResultKind) -> Result<(Program, Type), CompileError> {
    let typed =
        env.compile(expression).map_err(|issues| CompileError::Invalid(format!("compilation failed: {issues}")))?;
    yields.check(typed.result_type()).map_err(CompileError::Invalid)?;
    let program = Program::new(&typed)
        .map_err(|error| CompileError::Internal(format!("program instantiation failed: {error}")))?;
    Ok((program, typed.result_type().clone()))
}

/// Compiles the expressions of one policy: variables first, each of which the ones after it may refer to.
#[derive(Debug)]
pub struct PolicyCompiler<'c> {
    compiler: &'c Compiler,
    has_params: bool,
    variables: Arc<Vec<(Name, Type)>>,
    /// Environments with the variables so far: without and with the authorizer, without and with types of patches.
    built: [OnceLock<Env>; 4],
}

impl PolicyCompiler<'_> {
    /// Adds a variable. One that does not compile can be anything, and evaluates to its error.
    ///
    /// # Errors
    /// The expression cannot be used.
    pub fn add_variable(&mut self, name: &str, expression: &str) -> Result<Program, CompileError> {
        let result = compile(self.environment(true, false)?, expression, ResultKind::Anything);
        let of = result.as_ref().map_or(Type::Dyn, |(_, of)| plain(of));
        self.built = Default::default();
        let variables = Arc::make_mut(&mut self.variables);
        variables.retain(|(known, _)| known != name);
        variables.push((name.into(), of));
        result.map(|(program, _)| program)
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression cannot be used.
    pub fn compile(
        &self,
        expression: &str,
        yields: ResultKind,
        authorizer: bool,
        patch_types: bool,
    ) -> Result<Program, CompileError> {
        compile(self.environment(authorizer, patch_types)?, expression, yields).map(|(program, _)| program)
    }

    fn environment(&self, authorizer: bool, patch_types: bool) -> Result<&Env, CompileError> {
        let Some(place) = self.built.get(usize::from(authorizer) | usize::from(patch_types) << 1) else {
            return Err(CompileError::Internal("no such environment".to_owned()));
        };
        if let Some(env) = place.get() {
            return Ok(env);
        }
        let scope = Scope { params: self.has_params, authorizer, patch_types };
        let env = self.compiler.environment(scope, Some(self.variables.clone())).map_err(internal)?;
        Ok(place.get_or_init(|| env))
    }
}

/// The types of the request, of a policy's own variables, and of patches.
#[derive(Debug)]
struct Types {
    declared: Arc<DeclaredTypes>,
    variables: Option<Arc<Vec<(Name, Type)>>>,
    patch_types: bool,
}

impl TypeProvider for Types {
    fn find_type(&self, name: &str) -> Option<Type> {
        if name == VARIABLES_TYPE && self.variables.is_some() {
            return Some(Type::object(VARIABLES_TYPE));
        }
        let declared = self.declared.find_type(name);
        declared.or_else(|| self.patch_types.then(|| patch_types::find_type(name)).flatten())
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<FieldType> {
        if let (VARIABLES_TYPE, Some(variables)) = (type_name, &self.variables) {
            let (_, of) = variables.iter().find(|(name, _)| name == field)?;
            return Some(FieldType { field_type: of.clone() });
        }
        let declared = self.declared.find_field(type_name, field);
        declared.or_else(|| self.patch_types.then(|| patch_types::find_field(type_name, field)).flatten())
    }

    fn field_names(&self, type_name: &str) -> Vec<Name> {
        match (type_name, &self.variables) {
            (VARIABLES_TYPE, Some(variables)) => variables.iter().map(|(name, _)| name.clone()).collect(),
            _ => self.declared.field_names(type_name),
        }
    }

    fn construct<'v>(&self, type_name: &str, fields: Vec<(Name, Value<'v>)>) -> Result<Value<'v>, EvalError> {
        if self.patch_types && patch_types::find_type(type_name).is_some() {
            return patch_types::construct(type_name, fields);
        }
        self.declared.construct(type_name, fields)
    }
}

/// A variable of a policy: its program, or why there is none.
#[derive(Debug)]
pub struct Variable {
    /// The name.
    pub name: Name,
    /// The program, or the error that evaluating it yields.
    pub program: Result<Program, CompileError>,
}

/// A function that stops an evaluation when it returns true.
pub type Interrupt<'a> = Option<&'a (dyn Fn() -> bool + Sync)>;

/// The documents and values that expressions see.
#[derive(Clone, Default)]
pub struct Documents<'a> {
    /// `object`
    pub object: Option<&'a json::Value>,
    /// `oldObject`
    pub old_object: Option<&'a json::Value>,
    /// `params`
    pub params: Option<&'a json::Value>,
    /// `request`
    pub request: Option<&'a json::Value>,
    /// `namespaceObject`
    pub namespace: Option<&'a json::Value>,
    /// Set when `namespaceObject` is read although the namespace is not known, which is an error.
    pub unknown_namespace: Option<&'a AtomicBool>,
    /// `authorizer` and `authorizer.requestResource`
    pub authorizer: Option<(Value<'a>, Value<'a>)>,
    /// Ends evaluations.
    pub interrupt: Interrupt<'a>,
}

/// The input of the expressions of a policy that see the same values of its variables. Variables are evaluated when they are
/// first read, and once.
pub struct Input<'a> {
    documents: Documents<'a>,
    variables: &'a [Variable],
    values: Box<[OnceLock<Value<'static>>]>,
    /// Variables under evaluation, to end those that refer to themselves.
    open: Box<[AtomicBool]>,
    cost: AtomicU64,
    /// Bytes that the values of variables may still take.
    left: AtomicU64,
}

/// Maximum number of bytes that the values of all variables of a policy take together.
const VARIABLE_BYTES_MAX: u64 = 64 << 20;

impl<'a> Input<'a> {
    /// The input of one set of expressions.
    #[must_use]
    pub fn new(documents: Documents<'a>, variables: &'a [Variable]) -> Self {
        let values = variables.iter().map(|_| OnceLock::new()).collect();
        let open = variables.iter().map(|_| AtomicBool::new(false)).collect();
        let (cost, left) = (AtomicU64::new(0), AtomicU64::new(VARIABLE_BYTES_MAX));
        Self { documents, variables, values, open, cost, left }
    }

    fn limits(&self) -> Limits<'a> {
        Limits { cost: EXPRESSION_COST_MAX, interrupt: self.documents.interrupt }
    }

    /// Evaluates an expression. Its cost, including variables that it reads first, is subtracted from the
    /// budget.
    ///
    /// # Errors
    /// [`EvaluationError::OutOfBudget`] ends the whole set; the other is about this expression only.
    pub fn eval<'e>(&'e self, program: &'e Program, budget: &mut u64) -> Result<Value<'e>, EvaluationError> {
        let evaluation = program.eval_within(self, self.limits());
        let cost = evaluation.cost.saturating_add(self.cost.swap(0, Ordering::Relaxed));
        *budget = budget.checked_sub(cost).ok_or(EvaluationError::OutOfBudget)?;
        evaluation.result.map_err(|error| EvaluationError::Failed(error.to_string()))
    }

    fn variable(&self, index: usize) -> Value<'_> {
        let (Some(variable), Some(value), Some(open)) =
            (self.variables.get(index), self.values.get(index), self.open.get(index))
        else {
            return Value::Null;
        };
        if value.get().is_none() {
            if open.swap(true, Ordering::Relaxed) {
                let why = format!("composited variable {} refers to itself", api::go_text::quote(&variable.name));
                return Value::Error(EvalError::other(why));
            }
            // No other thread sets it: evaluation stays on one thread, and a variable is evaluated once.
            _ = value.set(self.evaluate(variable));
            open.store(false, Ordering::Relaxed);
        }
        value.get().map_or(Value::Null, Value::borrowed)
    }

    fn evaluate(&self, variable: &Variable) -> Value<'static> {
        let name = || api::go_text::quote(&variable.name);
        let program = match &variable.program {
            Ok(program) => program,
            Err(error) => {
                let why = format!("composited variable {} fails to compile: {error}", name());
                return Value::Error(EvalError::other(why));
            }
        };
        let evaluation = program.eval_within(self, self.limits());
        self.cost.fetch_add(evaluation.cost, Ordering::Relaxed);
        let mut left = self.left.load(Ordering::Relaxed);
        let owned = evaluation.result.and_then(|value| value.try_into_owned(&mut left));
        self.left.store(left, Ordering::Relaxed);
        match owned {
            Ok(value) => value,
            Err(error) => {
                let why = format!("composited variable {} fails to evaluate: {error}", name());
                Value::Error(EvalError::other(why))
            }
        }
    }
}

/// A reason why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The set of expressions costs too much.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    OutOfBudget,
    /// The evaluation failed.
    #[error("{0}")]
    Failed(String),
}

impl Activation for Input<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        let documents = &self.documents;
        // An absent document is null; `params` too, where a binding refers to none.
        Some(match name {
            "object" => documents.object.map_or(Value::Null, unstructured::value),
            "oldObject" => documents.old_object.map_or(Value::Null, unstructured::value),
            "params" => documents.params.map_or(Value::Null, unstructured::value),
            "request" => documents.request.map_or(Value::Null, unstructured::value),
            "namespaceObject" => match (documents.namespace, documents.unknown_namespace) {
                (None, Some(read)) => {
                    read.store(true, Ordering::Relaxed);
                    Value::Error(EvalError::other("the namespace is not known"))
                }
                (namespace, _) => namespace.map_or(Value::Null, unstructured::value),
            },
            "authorizer" => documents.authorizer.as_ref()?.0.borrowed(),
            "authorizer.requestResource" => documents.authorizer.as_ref()?.1.borrowed(),
            "variables" => Value::Object(self),
            _ => return None,
        })
    }
}

impl HostObject for Input<'_> {
    fn type_name(&self) -> &str {
        VARIABLES_TYPE
    }

    fn get(&self, field: &str) -> Option<Value<'_>> {
        // If two variables have the same name, the later one counts.
        let index = self.variables.iter().rposition(|variable| variable.name == *field)?;
        Some(self.variable(index))
    }

    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(&'v str, Value<'v>) -> ControlFlow<()>) {
        for (index, variable) in self.variables.iter().enumerate() {
            if visit(&variable.name, self.variable(index)).is_break() {
                return;
            }
        }
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Documents may hold secrets.
        f.debug_struct("Input").field("variables", &self.variables.len()).finish_non_exhaustive()
    }
}

/// Returns the document that is the result of an expression of [`ResultKind::Object`].
///
/// # Errors
/// A part has the type of another place, or no form in JSON.
pub fn applied_object(value: &Value<'_>) -> Result<json::Value, String> {
    let Some(object) = value.as_opaque::<ObjectValue>() else {
        return Err(format!("unsupported return type from ApplyConfiguration expression: {}", value.type_name()));
    };
    match object.misplaced() {
        Some(why) => Err(format!("type mismatch: {why}")),
        None => object.to_json(),
    }
}

/// Returns the operations that are the result of an expression of [`ResultKind::JsonPatch`], as documents.
///
/// # Errors
/// A value has no form in JSON.
pub fn patch_operations(value: &Value<'_>) -> Result<Vec<json::Value>, String> {
    let Value::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let operation = |value: Value<'_>| match value.as_opaque::<Operation>() {
        Some(operation) => operation.to_json(),
        None => {
            let found = value.go_type_name();
            Err(format!("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got {found}"))
        }
    };
    list.iter().map(operation).collect()
}

#[cfg(test)]
mod tests;

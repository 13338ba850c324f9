//! Documents → policies and bindings that are ready to evaluate.
//!
//! Each expression is compiled once. One that does not compile is kept with its error, which evaluation yields: policies may
//! have been stored by a server that accepted more.

use std::sync::Arc;

use api::json::Value;
use cel::program::Program;
use cel_kubernetes::environments::admission::{CompileError, Compiler, PolicyCompiler, ResultKind, Scope, Variable};

use super::request::GroupVersionKind;
use super::rules::{Constraints, LabelRule, label_rule};

/// An expression, and its program or the reason why there is none.
#[derive(Debug)]
pub struct Expression {
    /// The text.
    pub(super) text: Box<str>,
    /// The program.
    pub(super) program: Result<Program, CompileError>,
}

/// Behavior when evaluation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is refused.
    Fail,
    /// The policy is skipped.
    Ignore,
}

/// A policy of either kind.
#[derive(Debug)]
pub struct Policy<B> {
    /// The name.
    pub name: Arc<str>,
    pub(super) failure_policy: FailurePolicy,
    pub(super) param_kind: Option<GroupVersionKind>,
    pub(super) constraints: Constraints,
    pub(super) conditions: Box<[Expression]>,
    pub(super) variables: Box<[Variable]>,
    pub(super) body: B,
}

/// The validations of a ValidatingAdmissionPolicy.
#[derive(Debug)]
pub struct ValidatingBody {
    pub(super) validations: Box<[Validation]>,
    pub(super) annotations: Box<[(Box<str>, Expression)]>,
}

/// One validation.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: Box<str>,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: &'static str,
}

/// The mutations of a MutatingAdmissionPolicy.
#[derive(Debug)]
pub struct MutatingBody {
    pub(super) mutations: Box<[(PatchType, Expression)]>,
    pub(super) reinvoked: bool,
}

/// The kind of a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchType {
    Apply,
    JsonPatch,
}

/// The compiler of a policy: with variables, or without.
enum Sources<'c> {
    Plain(&'c Compiler, bool),
    Composed(PolicyCompiler<'c>),
}

impl Sources<'_> {
    fn compile(&self, text: &str, yields: ResultKind, authorizer: bool) -> Expression {
        let patch_types = matches!(yields, ResultKind::Object | ResultKind::JsonPatch);
        let program = match self {
            Sources::Plain(compiler, params) => {
                compiler.compile(text, yields, Scope { params: *params, authorizer, patch_types })
            }
            Sources::Composed(compiler) => compiler.compile(text, yields, authorizer, patch_types),
        };
        Expression { text: text.into(), program }
    }
}

/// Reads `paramKind`.
pub(crate) fn param_kind(spec: &Value) -> Option<GroupVersionKind> {
    spec.optional("paramKind").map(|kind| GroupVersionKind::new(kind.text("apiVersion"), kind.text("kind")))
}

impl<B> Policy<B> {
    fn compile(policy: &Value, compiler: &Compiler, body: impl FnOnce(&Value, &Sources<'_>) -> B) -> Self {
        let spec = policy.field("spec");
        let param_kind = param_kind(spec);
        let has_params = param_kind.is_some();
        let mut variables = Vec::new();
        let sources = if spec.list("variables").is_empty() {
            Sources::Plain(compiler, has_params)
        } else {
            let mut composed = compiler.policy(has_params);
            for variable in spec.list("variables") {
                let program = composed.add_variable(variable.text("name"), variable.text("expression"));
                variables.push(Variable { name: variable.text("name").into(), program });
            }
            Sources::Composed(composed)
        };
        let condition = |condition: &Value| sources.compile(condition.text("expression"), ResultKind::Bool, true);
        Self {
            name: policy.field("metadata").text("name").into(),
            failure_policy: match spec.text("failurePolicy") {
                "Ignore" => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            constraints: Constraints::new(spec.field("matchConstraints")),
            conditions: spec.list("matchConditions").iter().map(condition).collect(),
            body: body(spec, &sources),
            param_kind,
            variables: variables.into(),
        }
    }

    /// The kind of its parameters, if it has any.
    #[must_use]
    pub fn param_kind(&self) -> Option<&GroupVersionKind> {
        self.param_kind.as_ref()
    }

    /// Behavior when the policy cannot be evaluated.
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy
    }

    /// The constraints of the policy.
    #[must_use]
    pub fn constraints(&self) -> &Constraints {
        &self.constraints
    }
}

const REASONS: [&str; 5] = ["Invalid", "Forbidden", "Unauthorized", "RequestEntityTooLarge", "NotFound"];

impl Policy<()> {
    /// Compiles constraints and conditions alone.
    pub(super) fn filter(policy: &Value, compiler: &Compiler) -> Self {
        Self::compile(policy, compiler, |_, _| ())
    }
}

impl Policy<ValidatingBody> {
    /// Compiles a ValidatingAdmissionPolicy.
    #[must_use]
    pub fn validating(policy: &Value, compiler: &Compiler) -> Self {
        Self::compile(policy, compiler, |spec, sources| {
            let validation = |validation: &Value| Validation {
                expression: sources.compile(validation.text("expression"), ResultKind::Bool, true),
                message: validation.text("message").trim().into(),
                message_expression: Some(validation.text("messageExpression"))
                    .filter(|text| !text.is_empty())
                    .map(|text| sources.compile(text, ResultKind::String, false)),
                reason: REASONS.iter().find(|it| **it == validation.text("reason")).copied().unwrap_or("Invalid"),
            };
            let annotation = |annotation: &Value| {
                let expression = sources.compile(annotation.text("valueExpression"), ResultKind::StringOrNull, true);
                (annotation.text("key").into(), expression)
            };
            ValidatingBody {
                validations: spec.list("validations").iter().map(validation).collect(),
                annotations: spec.list("auditAnnotations").iter().map(annotation).collect(),
            }
        })
    }
}

impl Policy<MutatingBody> {
    /// Compiles a MutatingAdmissionPolicy.
    #[must_use]
    pub fn mutating(policy: &Value, compiler: &Compiler) -> Self {
        Self::compile(policy, compiler, |spec, sources| {
            let mutation = |mutation: &Value| {
                let (patch_type, field, yields) = match mutation.text("patchType") {
                    "JSONPatch" => (PatchType::JsonPatch, "jsonPatch", ResultKind::JsonPatch),
                    _ => (PatchType::Apply, "applyConfiguration", ResultKind::Object),
                };
                (patch_type, sources.compile(mutation.field(field).text("expression"), yields, true))
            };
            MutatingBody {
                mutations: spec.list("mutations").iter().map(mutation).collect(),
                reinvoked: spec.text("reinvocationPolicy") == "IfNeeded",
            }
        })
    }
}

/// The actions of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The request is refused.
    Deny,
    /// The client is warned.
    Warn,
    /// The audit event is annotated.
    Audit,
}

impl Action {
    /// The name in bindings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Action::Deny => "Deny",
            Action::Warn => "Warn",
            Action::Audit => "Audit",
        }
    }
}

/// A binding of either kind. There may be many of a policy, so they are small.
#[derive(Debug)]
pub struct Binding {
    /// The name.
    pub name: Arc<str>,
    /// The policy that it is about.
    pub policy: Arc<str>,
    pub(super) constraints: Option<Box<Constraints>>,
    pub(super) param_ref: Option<Box<ParamRef>>,
    actions: Actions,
}

/// Actions in their order, each at most once.
#[derive(Debug, Clone, Copy, Default)]
struct Actions {
    list: [Option<Action>; 3],
}

impl Actions {
    fn new(actions: impl Iterator<Item = Action>) -> Self {
        let mut all = Self::default();
        for action in actions {
            if !all.list.contains(&Some(action))
                && let Some(place) = all.list.iter_mut().find(|it| it.is_none())
            {
                *place = Some(action);
            }
        }
        all
    }
}

/// A reference to parameters.
#[derive(Debug)]
pub struct ParamRef {
    pub(super) target: ParamTarget,
    pub(super) namespace: Box<str>,
    pub(super) must_exist: bool,
}

/// The selection of parameter resources: by name or by labels.
#[derive(Debug)]
pub(super) enum ParamTarget {
    Name(Box<str>),
    Selector(LabelRule),
    Neither,
}

impl Binding {
    /// Reads a ValidatingAdmissionPolicyBinding or MutatingAdmissionPolicyBinding.
    #[must_use]
    pub fn new(binding: &Value) -> Self {
        Self::of_policy(binding, binding.field("spec").text("policyName").into())
    }

    /// As [`Binding::new`], with the name of its policy, which the bindings of a policy can share.
    #[must_use]
    pub fn of_policy(binding: &Value, policy: Arc<str>) -> Self {
        let spec = binding.field("spec");
        let action = |name: &str| match name {
            "Deny" => Some(Action::Deny),
            "Warn" => Some(Action::Warn),
            "Audit" => Some(Action::Audit),
            _ => None,
        };
        let reference = |reference: &Value| {
            let target = match (reference.text("name"), reference.optional("selector")) {
                ("", None) => ParamTarget::Neither,
                ("", Some(selector)) => ParamTarget::Selector(label_rule(selector)),
                (name, _) => ParamTarget::Name(name.into()),
            };
            Box::new(ParamRef {
                target,
                namespace: reference.text("namespace").into(),
                must_exist: reference.text("parameterNotFoundAction") == "Deny",
            })
        };
        Self {
            name: binding.field("metadata").text("name").into(),
            policy,
            constraints: spec.optional("matchResources").map(|it| Box::new(Constraints::new(it))),
            param_ref: spec.optional("paramRef").map(reference),
            actions: Actions::new(spec.texts("validationActions").filter_map(action)),
        }
    }

    /// The actions, in their order.
    pub(super) fn actions(&self) -> impl Iterator<Item = Action> {
        self.actions.list.into_iter().flatten()
    }

    /// The constraints of the binding, if it has its own.
    #[must_use]
    pub fn constraints(&self) -> Option<&Constraints> {
        self.constraints.as_deref()
    }
}

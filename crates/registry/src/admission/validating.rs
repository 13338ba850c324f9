//! Evaluates ValidatingAdmissionPolicies.
//!
//! Follows `dispatcher.go` and `validator.go` of Kubernetes' `apiserver/pkg/admission/plugin/policy/validating`.

use std::sync::Arc;
use std::time::Duration;

use api::json::{Object, Value};
use cel::value::Value as CelValue;
use cel_kubernetes::environments::admission::{Documents, EXPRESSION_COST_MAX, Input, POLICY_COST_MAX};

use super::catalog::{Catalog, Hook, Matches};
use super::cluster::{self, Cluster, ParamError, Parameters};
pub use super::evaluation::{ConditionCheck, Deadline};
use super::evaluation::{Error, OUT_OF_TIME, Session, VersionedDocuments, evaluate};
use super::policy::{Action, Binding, FailurePolicy, Policy, ValidatingBody, Validation};
use super::request::Request;
use super::rules::{Match, MatchError};

/// The outcome of all policies for a request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The refusals; the first one is reported.
    pub denials: Vec<Denial>,
    /// The warnings.
    pub warnings: Vec<String>,
    /// Failures for the audit annotation [`FAILURES_KEY`].
    pub failures: Vec<Value>,
    /// Annotations of the audit event.
    pub annotations: Vec<(String, String)>,
    /// Evaluations to count in the metrics.
    pub checks: Vec<Check>,
    /// Evaluations of match conditions to count.
    pub conditions: Vec<ConditionCheck>,
    /// Policies that could not be evaluated because an input is unknown, which happens only offline.
    pub unknown: Vec<(Arc<str>, String)>,
    /// Whether the namespace of the request does not exist.
    pub lacks_namespace: bool,
}

/// The audit annotation that holds failed validations.
pub const FAILURES_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";
/// Maximum number of failures in the audit annotation.
const FAILURES_MAX: usize = 50;
/// The length of an annotation's value at most.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;
/// The length of an evaluated message at most.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The policy.
    pub policy: Arc<str>,
    /// The binding; none if the policy itself is misconfigured.
    pub binding: Option<Arc<str>>,
    /// The message.
    pub message: String,
    /// The machine-readable reason.
    pub reason: &'static str,
}

impl Denial {
    /// The whole text.
    #[must_use]
    pub fn text(&self) -> String {
        let (policy, message) = (&self.policy, &self.message);
        match &self.binding {
            Some(binding) => {
                format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}")
            }
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
        }
    }

    /// The HTTP code of the reason.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self.reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        }
    }
}

/// A check that is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The policy.
    pub policy: Arc<str>,
    /// The binding.
    pub binding: Arc<str>,
    /// `allow`, `deny`, `warn` or `audit`.
    pub action: &'static str,
    /// `no_error`, `invalid_error`, `compile_error` or `out_of_budget`.
    pub error: &'static str,
    /// The duration of the policy's evaluation.
    pub elapsed: Duration,
}

/// The class of an error in metrics.
pub(super) fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

/// The decision about one validation.
#[derive(Debug)]
struct Decision {
    denied: bool,
    is_error: bool,
    message: String,
    reason: &'static str,
}

impl Decision {
    fn admit() -> Self {
        Self { denied: false, is_error: false, message: String::new(), reason: "" }
    }

    fn failure(policy: FailurePolicy, message: String) -> Self {
        Self { denied: policy == FailurePolicy::Fail, is_error: true, message, reason: "" }
    }
}

/// An evaluated audit annotation.
#[derive(Debug)]
enum Annotation {
    Value(Box<str>, String),
    Error(String),
}

/// The evaluation of a policy with one parameter.
#[derive(Debug, Default)]
struct PolicyEvaluation {
    decisions: Vec<Decision>,
    annotations: Vec<Annotation>,
    elapsed: Duration,
    unknown: Option<String>,
}

impl PolicyEvaluation {
    fn only(decision: Decision) -> Self {
        Self { decisions: vec![decision], ..Self::default() }
    }
}

/// Evaluates all policies that match a request.
#[must_use]
pub fn evaluate_all(
    catalog: &Catalog<ValidatingBody>,
    request: &Request,
    cluster: &dyn Cluster,
    deadline: Deadline<'_>,
) -> Outcome {
    let interrupt = || (deadline.now)() > deadline.end;
    let session = Session::new(request, cluster, &interrupt, deadline);
    let mut outcome = Outcome::default();
    let mut matches = Matches::new(catalog, request, cluster);
    let parameters = Parameters::new(cluster);
    // The end of one evaluation is the start of the next: one reading of the clock for each policy.
    let mut reading = (deadline.now)();
    for hook in catalog.candidates(request) {
        match matches.of(hook) {
            Ok(None) => {}
            Ok(Some(found)) => {
                let run = Run {
                    session: &session,
                    hook,
                    parameters: &parameters,
                    outcome: &mut outcome,
                    deadline,
                    reading: &mut reading,
                };
                run.policy(&found);
            }
            Err(MatchError::Refused(why)) => outcome.misconfigured(&hook.policy, None, &why),
            Err(MatchError::Unknown(why)) => outcome.unknown.push((hook.policy.name.clone(), why)),
        }
        // One refusal is enough once there is no time left: the others would only cost more.
        if outcome.lacks_namespace || (deadline.is_over(reading) && !outcome.denials.is_empty()) {
            break;
        }
    }
    outcome.conditions = session.condition_checks();
    outcome
}

impl Outcome {
    fn misconfigured(&mut self, policy: &Policy<ValidatingBody>, binding: Option<&Binding>, why: &str) {
        if policy.failure_policy == FailurePolicy::Ignore {
            return;
        }
        let of = if binding.is_some() { "binding" } else { "policy" };
        self.denials.push(Denial {
            policy: policy.name.clone(),
            binding: binding.map(|binding| binding.name.clone()),
            message: format!("failed to configure {of}: {why}"),
            reason: "Invalid",
        });
    }
}

/// One policy of a request.
struct Run<'r, 's> {
    session: &'r Session<'s>,
    hook: &'r Hook<ValidatingBody>,
    parameters: &'r Parameters<'r>,
    outcome: &'r mut Outcome,
    deadline: Deadline<'r>,
    /// The last reading of the clock.
    reading: &'r mut Duration,
}

impl Run<'_, '_> {
    fn policy(mut self, found: &Match) {
        let (policy, cluster, request) = (&self.hook.policy, self.session.cluster, self.session.request);
        match cluster::check_param_kind(policy.param_kind.as_ref(), cluster) {
            Ok(()) => {}
            Err(ParamError::Refused(why)) => return self.outcome.misconfigured(policy, None, &why),
            Err(ParamError::Unknown(why)) => return self.outcome.unknown.push((policy.name.clone(), why)),
        }
        let mut collected: Vec<(Box<str>, Vec<String>)> = Vec::new();
        // Without parameters, all bindings have the same result.
        let mut without_params: Option<PolicyEvaluation> = None;
        for binding in &self.hook.bindings {
            match binding.constraints.as_ref().map_or(Ok(Some(Match::Requested)), |it| it.matches(request, cluster)) {
                Ok(None) => continue,
                Ok(Some(_)) => {}
                Err(MatchError::Refused(why)) => {
                    self.outcome.misconfigured(policy, Some(binding), &why);
                    continue;
                }
                Err(MatchError::Unknown(why)) => {
                    self.outcome.unknown.push((policy.name.clone(), why));
                    continue;
                }
            }
            if self.is_out_of_time(binding, &mut collected) {
                continue;
            }
            let Some(params) = self.params(binding) else { continue };
            let versioned = match self.session.versioned(found) {
                Ok(versioned) => versioned,
                Err(why) => {
                    let why = format!("failed to convert object version: {why}");
                    self.outcome.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            };
            if self.session.lacks_namespace() {
                self.outcome.lacks_namespace = true;
                return;
            }
            if params.is_empty() {
                let evaluated = without_params.get_or_insert_with(|| self.evaluate(&versioned, None));
                settle(self.outcome, policy, binding, evaluated, &mut collected);
            }
            for param in &params {
                if self.is_out_of_time(binding, &mut collected) {
                    break;
                }
                let evaluated = self.evaluate(&versioned, Some(param));
                settle(self.outcome, policy, binding, &evaluated, &mut collected);
            }
        }
        for (key, values) in collected {
            self.outcome.annotations.push((format!("{}/{key}", policy.name), values.join(", ")));
        }
    }

    /// Whether there is no time left for a binding or its next parameter, which then fails.
    fn is_out_of_time(&mut self, binding: &Binding, collected: &mut Vec<(Box<str>, Vec<String>)>) -> bool {
        let is_over = self.deadline.is_over(*self.reading);
        if is_over && self.outcome.denials.is_empty() {
            let policy = &self.hook.policy;
            let failed = PolicyEvaluation::only(Decision::failure(policy.failure_policy, OUT_OF_TIME.to_owned()));
            settle(self.outcome, policy, binding, &failed, collected);
        }
        is_over
    }

    /// The parameters under a binding: an empty list where it refers to none, nothing where it does not apply.
    fn params(&mut self, binding: &Binding) -> Option<Vec<Arc<Value>>> {
        let policy = &self.hook.policy;
        let (Some(kind), Some(reference)) = (policy.param_kind.as_ref(), binding.param_ref.as_deref()) else {
            return Some(Vec::new());
        };
        let found = self.parameters.of(kind, reference, &self.session.request.namespace);
        // Many parameters take time of their own.
        *self.reading = (self.deadline.now)();
        match found {
            Ok(params) => Some(params).filter(|params| !params.is_empty()),
            Err(ParamError::Refused(why)) => {
                self.outcome.misconfigured(policy, Some(binding), &why);
                None
            }
            Err(ParamError::Unknown(why)) => {
                self.outcome.unknown.push((policy.name.clone(), why));
                None
            }
        }
    }

    fn evaluate(&mut self, versioned: &VersionedDocuments, params: Option<&Value>) -> PolicyEvaluation {
        let mut evaluated = evaluate_policy(self.session, &self.hook.policy, versioned, params);
        let now = (self.deadline.now)();
        evaluated.elapsed = now.saturating_sub(std::mem::replace(self.reading, now));
        evaluated.unknown = self.session.unknown();
        evaluated
    }
}

/// Turns an evaluation under a binding into refusals, warnings and annotations.
fn settle(
    outcome: &mut Outcome,
    policy: &Policy<ValidatingBody>,
    binding: &Binding,
    evaluated: &PolicyEvaluation,
    collected: &mut Vec<(Box<str>, Vec<String>)>,
) {
    if let Some(why) = &evaluated.unknown {
        outcome.unknown.push((policy.name.clone(), why.clone()));
        return;
    }
    let count = |outcome: &mut Outcome, action: &'static str, error: &'static str| {
        outcome.checks.push(Check {
            policy: policy.name.clone(),
            binding: binding.name.clone(),
            action,
            error,
            elapsed: evaluated.elapsed,
        });
    };
    for (index, decision) in evaluated.decisions.iter().enumerate() {
        // Kubernetes: a refusal counts as an error by its text, whether there was one or not.
        let error = error_type(&decision.message);
        if !decision.denied {
            if decision.is_error {
                count(outcome, "allow", error);
            }
            continue;
        }
        for action in binding.actions() {
            match action {
                Action::Deny => {
                    outcome.denials.push(denial(policy, binding, decision.message.clone(), decision.reason));
                    count(outcome, "deny", error);
                }
                Action::Audit => {
                    if outcome.failures.len() < FAILURES_MAX {
                        outcome.failures.push(failure(policy, binding, index, &decision.message));
                    }
                    count(outcome, "audit", error);
                }
                Action::Warn => {
                    outcome.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                        policy.name, binding.name, decision.message
                    ));
                    count(outcome, "warn", error);
                }
            }
        }
    }
    for annotation in &evaluated.annotations {
        match annotation {
            Annotation::Error(why) => {
                outcome.denials.push(denial(policy, binding, why.clone(), ""));
                count(outcome, "deny", error_type(why));
            }
            Annotation::Value(key, value) => {
                let at = collected.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
                    collected.push((key.clone(), Vec::new()));
                    collected.len().saturating_sub(1)
                });
                if let Some((_, values)) = collected.get_mut(at)
                    && !values.contains(value)
                {
                    values.push(value.clone());
                }
            }
        }
    }
}

fn denial(policy: &Policy<ValidatingBody>, binding: &Binding, message: String, reason: &'static str) -> Denial {
    let reason = if reason.is_empty() { "Invalid" } else { reason };
    Denial { policy: policy.name.clone(), binding: Some(binding.name.clone()), message, reason }
}

/// A failed validation as audit annotations show it.
fn failure(policy: &Policy<ValidatingBody>, binding: &Binding, index: usize, message: &str) -> Value {
    let mut failure = Object::new();
    failure.insert("message", message);
    failure.insert("policy", &*policy.name);
    failure.insert("binding", &*binding.name);
    failure.insert("expressionIndex", i64::try_from(index).unwrap_or(i64::MAX));
    let actions = binding.actions().map(|action| Value::String(action.name().into())).collect();
    failure.insert("validationActions", Value::Array(actions));
    Value::Object(failure)
}

fn evaluate_policy(
    session: &Session<'_>,
    policy: &Policy<ValidatingBody>,
    versioned: &VersionedDocuments,
    params: Option<&Value>,
) -> PolicyEvaluation {
    let on_failure = |why: String| PolicyEvaluation::only(Decision::failure(policy.failure_policy, why));
    match session.meets_conditions(policy, versioned, params) {
        Ok(true) => {}
        Ok(false) => return PolicyEvaluation::default(),
        Err(why) => return on_failure(why),
    }
    let input = Input::new(session.documents(versioned, params), &policy.variables);
    let mut budget = POLICY_COST_MAX;
    // Empty as long as every validation holds, which is the common case and then needs no allocation.
    let mut results: Vec<Result<bool, String>> = Vec::new();
    for (index, validation) in policy.body.validations.iter().enumerate() {
        let result = match evaluate(&validation.expression, &input, &mut budget) {
            Ok(value) => Ok(value.as_bool() == Some(true)),
            Err(Error::One(why)) => Err(why),
            Err(Error::Set(why)) => return on_failure(why),
        };
        if result != Ok(true) && results.is_empty() {
            results.resize(index, Ok(true));
        }
        if result != Ok(true) || !results.is_empty() {
            results.push(result);
        }
    }
    if results.is_empty() && !must_evaluate_messages(policy, budget) {
        return match annotations(session, policy, versioned, params) {
            Ok(annotations) => PolicyEvaluation { annotations, ..PolicyEvaluation::default() },
            Err(why) => on_failure(why),
        };
    }
    results.resize(policy.body.validations.len(), Ok(true));
    let messages = messages(session, policy, versioned, params, &results, budget);
    let decisions = results
        .into_iter()
        .zip(&policy.body.validations)
        .enumerate()
        .map(|(index, (result, validation))| match (result, &messages) {
            (Err(why), _) => Decision::failure(policy.failure_policy, why),
            (Ok(_), Err(why)) => Decision::failure(policy.failure_policy, format!("failed messageExpression: {why}")),
            (Ok(true), _) => Decision::admit(),
            (Ok(false), Ok(messages)) => {
                let evaluated = messages.get(index).and_then(Option::as_deref).unwrap_or_default();
                let message = message(validation, evaluated);
                Decision { denied: true, is_error: false, message, reason: validation.reason }
            }
        })
        .collect();
    match annotations(session, policy, versioned, params) {
        Ok(annotations) => PolicyEvaluation { decisions, annotations, ..PolicyEvaluation::default() },
        Err(why) => on_failure(why),
    }
}

/// The text of a refusal: the evaluated message, the fixed one, or the expression.
fn message(validation: &Validation, evaluated: &str) -> String {
    match (evaluated, &*validation.message) {
        ("", "") => format!("failed expression: {}", validation.expression.text.trim()),
        ("", fixed) => fixed.to_owned(),
        (evaluated, _) => evaluated.to_owned(),
    }
}

/// The evaluated messages of failed validations; none where there is no usable one.
///
/// # Errors
/// The budget is used up.
fn messages(
    session: &Session<'_>,
    policy: &Policy<ValidatingBody>,
    versioned: &VersionedDocuments,
    params: Option<&Value>,
    results: &[Result<bool, String>],
    mut budget: u64,
) -> Result<Vec<Option<String>>, String> {
    let validations = &policy.body.validations;
    let must_evaluate = must_evaluate_messages(policy, budget);
    if !must_evaluate && !results.contains(&Ok(false)) {
        return Ok(Vec::new());
    }
    let documents = Documents { authorizer: None, ..session.documents(versioned, params) };
    let input = Input::new(documents, &policy.variables);
    let mut messages = Vec::with_capacity(validations.len());
    for (validation, result) in validations.iter().zip(results) {
        let needed = must_evaluate || *result == Ok(false);
        let message = match validation.message_expression.as_ref().filter(|_| needed) {
            None => None,
            Some(expression) => match evaluate(expression, &input, &mut budget) {
                Ok(value) => value.as_str().map(str::trim).filter(|it| is_usable(it)).map(str::to_owned),
                Err(Error::One(_)) => None,
                Err(Error::Set(why)) => return Err(why),
            },
        };
        messages.push(message);
    }
    Ok(messages)
}

/// Whether messages are evaluated even if no validation needs them. Kubernetes evaluates all, and fails if that costs too much;
/// as long as the cost cannot reach the limit, unused messages are skipped.
fn must_evaluate_messages(policy: &Policy<ValidatingBody>, budget: u64) -> bool {
    let count = policy.body.validations.iter().filter(|it| it.message_expression.is_some()).count();
    let cost_max = (count.saturating_add(policy.variables.len()) as u64).saturating_mul(EXPRESSION_COST_MAX);
    count > 0 && cost_max > budget
}

fn is_usable(message: &str) -> bool {
    message.len() <= MESSAGE_BYTES_MAX && !message.contains('\n')
}

/// The audit annotations of a policy.
///
/// # Errors
/// The budget is used up.
fn annotations(
    session: &Session<'_>,
    policy: &Policy<ValidatingBody>,
    versioned: &VersionedDocuments,
    params: Option<&Value>,
) -> Result<Vec<Annotation>, String> {
    if policy.body.annotations.is_empty() {
        return Ok(Vec::new());
    }
    // Kubernetes compiles them with an authorizer and evaluates them without.
    let documents = Documents { authorizer: None, ..session.documents(versioned, params) };
    let input = Input::new(documents, &policy.variables);
    let mut budget = POLICY_COST_MAX;
    let mut annotations = Vec::new();
    for (key, expression) in &policy.body.annotations {
        match evaluate(expression, &input, &mut budget) {
            Ok(CelValue::Null) => {}
            Ok(value) => match value.as_str().map(str::trim) {
                Some("") => {}
                Some(text) => annotations.push(Annotation::Value(key.clone(), shortened(text).to_owned())),
                None => annotations.push(Annotation::Error(format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                    expression.text,
                    value.type_name()
                ))),
            },
            Err(Error::Set(why)) => return Err(why),
            Err(Error::One(_)) if policy.failure_policy == FailurePolicy::Ignore => {}
            Err(Error::One(why)) => annotations.push(Annotation::Error(why)),
        }
    }
    Ok(annotations)
}

/// The start of a text that fits into an annotation.
fn shortened(text: &str) -> &str {
    let end = text.floor_char_boundary(ANNOTATION_BYTES_MAX);
    text.get(..end).unwrap_or(text)
}

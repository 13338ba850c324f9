//! Evaluates MutatingAdmissionPolicies.
//!
//! Each mutation sees the object that the one before left. Follows `dispatcher.go`, `reinvocationcontext.go` and `patch` of
//! Kubernetes' `apiserver/pkg/admission/plugin/policy/mutating`.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::json::Value;
use cel_kubernetes::environments::admission::{Input, POLICY_COST_MAX, applied_object, patch_operations};

use super::catalog::{Catalog, Hook, Matches};
use super::cluster::{self, Cluster, ParamError, Parameters, PatchError};
use super::evaluation::{ConditionCheck, Deadline, Error, OUT_OF_TIME, Session, VersionedDocuments, evaluate};
use super::policy::{Binding, Expression, FailurePolicy, MutatingBody, PatchType, Policy};
use super::request::{GroupVersionKind, Request};
use super::rules::{Match, MatchError};
use super::validating::{Check, error_type};

/// Policy, binding, and namespace and name of the parameter.
type Key = (Arc<str>, Arc<str>, String);

/// State that one pass of a request's mutations leaves to the next.
#[derive(Debug, Default)]
pub struct Reinvocation {
    /// Whether this is the second pass.
    pub is_second: bool,
    /// Whether there must be a second pass.
    pub is_needed: bool,
    previously: BTreeSet<Key>,
    again: BTreeSet<Key>,
    last_output: Option<Value>,
}

impl Reinvocation {
    fn require(&mut self) {
        self.again.append(&mut self.previously);
    }
}

/// The outcome of all policies for a request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The object, if it was patched.
    pub object: Option<Value>,
    /// The refusals.
    pub denials: Vec<Denial>,
    /// An error that ends the request, regardless of failure policies.
    pub error: Option<(u16, String)>,
    /// Evaluations to count in the metrics.
    pub checks: Vec<Check>,
    /// Evaluations of match conditions to count.
    pub conditions: Vec<ConditionCheck>,
    /// Policies that could not be evaluated because an input is unknown, which happens only offline.
    pub unknown: Vec<(Arc<str>, String)>,
    /// Whether the namespace of the request does not exist.
    pub lacks_namespace: bool,
}

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
            Some(binding) => format!("policy '{policy}' with binding '{binding}' denied request: {message}"),
            None => format!("policy {} denied request: {message}", api::go_text::quote(policy)),
        }
    }
}

/// A policy, a binding and a parameter that match.
struct Invocation<'c> {
    hook: &'c Hook<MutatingBody>,
    binding: &'c Binding,
    found: Match,
    param: Option<Arc<Value>>,
}

impl Invocation<'_> {
    fn key(&self) -> Key {
        let param = self.param.as_deref().map(|param| {
            let text = |field: &str| param.text_at(&["metadata", field]).to_owned();
            format!("{}/{}", text("namespace"), text("name"))
        });
        (self.hook.policy.name.clone(), self.binding.name.clone(), param.unwrap_or_default())
    }
}

/// Evaluates all policies that match a request, and patches its object.
#[must_use]
pub fn evaluate_all(
    catalog: &Catalog<MutatingBody>,
    request: &Request,
    cluster: &dyn Cluster,
    deadline: Deadline<'_>,
    reinvocation: &mut Reinvocation,
) -> Outcome {
    let interrupt = || (deadline.now)() > deadline.end;
    let mut outcome = Outcome::default();
    let mut matches = Matches::new(catalog, request, cluster);
    let mut collection = Collection {
        request,
        cluster,
        parameters: Parameters::new(cluster),
        deadline,
        outcome: &mut outcome,
        invocations: Vec::new(),
    };
    for hook in catalog.candidates(request) {
        match matches.of(hook) {
            Ok(None) => {}
            Ok(Some(found)) => collection.add(hook, &found),
            Err(MatchError::Refused(why)) => collection.outcome.misconfigured(&hook.policy, None, &why),
            Err(MatchError::Unknown(why)) => collection.outcome.unknown.push((hook.policy.name.clone(), why)),
        }
    }
    let invocations = collection.invocations;
    if invocations.is_empty() {
        return outcome;
    }
    let session = Session::new(request, cluster, &interrupt, deadline);
    if session.lacks_namespace() {
        outcome.lacks_namespace = true;
        return outcome;
    }
    Pass { session: &session, deadline, outcome: &mut outcome, reinvocation, current: Vec::new() }.run(&invocations);
    outcome.conditions = session.condition_checks();
    outcome
}

/// Collects the invocations of a request.
struct Collection<'c, 'r> {
    request: &'r Request,
    cluster: &'r dyn Cluster,
    parameters: Parameters<'r>,
    deadline: Deadline<'r>,
    outcome: &'r mut Outcome,
    invocations: Vec<Invocation<'c>>,
}

impl<'c> Collection<'c, '_> {
    fn add(&mut self, hook: &'c Hook<MutatingBody>, found: &Match) {
        let (policy, cluster) = (&hook.policy, self.cluster);
        match cluster::check_param_kind(policy.param_kind.as_ref(), cluster) {
            Ok(()) => {}
            Err(ParamError::Refused(why)) => return self.outcome.misconfigured(policy, None, &why),
            Err(ParamError::Unknown(why)) => return self.outcome.unknown.push((policy.name.clone(), why)),
        }
        for binding in &hook.bindings {
            let constraints = binding.constraints.as_ref();
            match constraints.map_or(Ok(Some(Match::Requested)), |it| it.matches(self.request, cluster)) {
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
            let invocation = |param| Invocation { hook, binding, found: found.clone(), param };
            let (Some(kind), Some(reference)) = (policy.param_kind.as_ref(), binding.param_ref.as_deref()) else {
                self.invocations.push(invocation(None));
                continue;
            };
            if self.deadline.is_over((self.deadline.now)()) {
                self.outcome.out_of_time(policy, binding);
                continue;
            }
            match self.parameters.of(kind, reference, &self.request.namespace) {
                Ok(params) => self.invocations.extend(params.into_iter().map(|param| invocation(Some(param)))),
                Err(ParamError::Refused(why)) => self.outcome.misconfigured(policy, Some(binding), &why),
                Err(ParamError::Unknown(why)) => self.outcome.unknown.push((policy.name.clone(), why)),
            }
        }
    }
}

impl Outcome {
    fn misconfigured(&mut self, policy: &Policy<MutatingBody>, binding: Option<&Binding>, why: &str) {
        let of = if binding.is_some() { "binding" } else { "policy" };
        self.deny(policy, binding, format!("failed to configure {of}: {why}"), "Forbidden");
    }

    /// Refuses the request because there is no time left for a binding. One refusal is enough.
    fn out_of_time(&mut self, policy: &Policy<MutatingBody>, binding: &Binding) {
        if self.denials.is_empty() {
            self.deny(policy, Some(binding), OUT_OF_TIME.to_owned(), "Invalid");
        }
    }

    fn deny(
        &mut self,
        policy: &Policy<MutatingBody>,
        binding: Option<&Binding>,
        message: String,
        reason: &'static str,
    ) {
        if policy.failure_policy == FailurePolicy::Ignore {
            return;
        }
        let binding = binding.map(|binding| binding.name.clone());
        self.denials.push(Denial { policy: policy.name.clone(), binding, message, reason });
    }
}

/// One pass over the invocations.
struct Pass<'p, 's> {
    session: &'p Session<'s>,
    deadline: Deadline<'p>,
    outcome: &'p mut Outcome,
    reinvocation: &'p mut Reinvocation,
    /// The object in each version that a policy matched, with all mutations so far; the flag is set once a mutation
    /// changed it.
    current: Vec<(VersionedDocuments, bool)>,
}

impl Pass<'_, '_> {
    fn run(mut self, invocations: &[Invocation<'_>]) {
        let request = self.session.request;
        if self.reinvocation.is_second && self.reinvocation.last_output.as_ref() != request.object.as_deref() {
            // Other plugins changed the object in between.
            self.reinvocation.require();
        }
        let mut last = None;
        for invocation in invocations {
            match self.invoke(invocation) {
                Some(at) => last = Some(at),
                None if self.outcome.error.is_some() => return,
                None => {}
            }
        }
        let patched = last.and_then(|at| self.current.get(at)).filter(|(_, is_patched)| *is_patched);
        if let Some((versioned, _)) = patched
            && let Some(object) = &versioned.object
        {
            self.reinvocation.require();
            self.reinvocation.is_needed = true;
            let object = if versioned.kind == request.kind {
                Ok(object.as_ref().clone())
            } else {
                self.session.cluster.convert(request, object, &request.kind)
            };
            match object {
                Ok(object) => self.outcome.object = Some(object),
                Err(why) => self.outcome.error = Some((500, format!("failed to convert object: {why}"))),
            }
        }
        let output = self.outcome.object.as_ref().or(request.object.as_deref());
        self.reinvocation.last_output = output.cloned();
    }

    /// The place of the documents in the version of an invocation.
    fn place(&mut self, invocation: &Invocation<'_>) -> Result<usize, String> {
        let kind = match &invocation.found {
            Match::Requested => &self.session.request.kind,
            Match::Equivalent(other) => &other.1,
        };
        if let Some(at) = self.current.iter().position(|(versioned, _)| versioned.kind == *kind) {
            return Ok(at);
        }
        let versioned = self.session.versioned(&invocation.found)?;
        self.current.push((VersionedDocuments::clone(&versioned), false));
        Ok(self.current.len().saturating_sub(1))
    }

    /// Runs the mutations of an invocation; the place of the documents if it applies.
    fn invoke(&mut self, invocation: &Invocation<'_>) -> Option<usize> {
        let (policy, binding, params) = (&invocation.hook.policy, invocation.binding, invocation.param.as_deref());
        if self.deadline.is_over((self.deadline.now)()) {
            self.outcome.out_of_time(policy, binding);
            return None;
        }
        let at = match self.place(invocation) {
            Ok(at) => at,
            Err(why) => {
                self.outcome.misconfigured(policy, None, &why);
                return None;
            }
        };
        let (versioned, _) = self.current.get(at)?;
        match self.session.meets_conditions(policy, versioned, params) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(why) => {
                self.outcome.deny(policy, Some(binding), why, "Invalid");
                return None;
            }
        }
        let key = invocation.key();
        if self.reinvocation.is_second && !self.reinvocation.again.contains(&key) {
            return None;
        }
        let before = versioned.object.clone();
        for (patch_type, expression) in &policy.body.mutations {
            let (versioned, _) = self.current.get(at)?;
            let Some(object) = versioned.object.clone() else { continue };
            let started = (self.deadline.now)();
            let result = match self.deadline.is_over(started) {
                true => Err(PatchError::Policy(OUT_OF_TIME.to_owned())),
                false => self.patch(*patch_type, expression, policy, versioned, &object, params),
            };
            let elapsed = (self.deadline.now)().saturating_sub(started);
            if let Some(why) = self.session.unknown() {
                self.outcome.unknown.push((policy.name.clone(), why));
                return None;
            }
            let (action, error) = match &result {
                Ok(_) => ("allow", "no_error"),
                Err(PatchError::Policy(why) | PatchError::Final(_, why)) => ("deny", error_type(why)),
            };
            let (policy_name, binding_name) = (policy.name.clone(), binding.name.clone());
            let check = Check { policy: policy_name, binding: binding_name, action, error, elapsed };
            self.outcome.checks.push(check);
            match result {
                Ok(patched) => {
                    if let Some((versioned, is_patched)) = self.current.get_mut(at) {
                        versioned.object = patched.map(Arc::new).or(Some(object));
                        *is_patched = true;
                    }
                }
                Err(PatchError::Policy(why)) => self.outcome.deny(policy, Some(binding), why, "Invalid"),
                Err(PatchError::Final(code, why)) => {
                    self.outcome.error = Some((code, why));
                    return None;
                }
            }
        }
        let after = self.current.get(at).and_then(|(versioned, _)| versioned.object.clone());
        if before != after {
            self.reinvocation.require();
            self.reinvocation.is_needed = true;
        }
        if policy.body.reinvoked {
            self.reinvocation.previously.insert(key);
        }
        Some(at)
    }

    /// Returns the object after a mutation; `None` if a test of the patch fails.
    fn patch(
        &self,
        patch_type: PatchType,
        expression: &Expression,
        policy: &Policy<MutatingBody>,
        versioned: &VersionedDocuments,
        object: &Value,
        params: Option<&Value>,
    ) -> Result<Option<Value>, PatchError> {
        let (session, request) = (self.session, self.session.request);
        if let Err(error) = &expression.program {
            return Err(PatchError::Policy(error.to_string()));
        }
        let input = Input::new(session.documents(versioned, params), &policy.variables);
        let mut budget = POLICY_COST_MAX;
        let value = evaluate(expression, &input, &mut budget).map_err(|error| match error {
            Error::One(why) | Error::Set(why) => PatchError::Policy(why),
        })?;
        let kind = &versioned.kind;
        let patched = match patch_type {
            PatchType::Apply => {
                let patch = applied_object(&value).map_err(PatchError::Policy)?;
                session.cluster.apply(request, kind, object, patch).map(Some)?
            }
            PatchType::JsonPatch => {
                let operations = patch_operations(&value).map_err(PatchError::Policy)?;
                session.cluster.patch(request, kind, object, operations)?
            }
        };
        match unknown_conversion(request, kind, session.cluster) {
            Some(why) => Err(PatchError::Policy(why)),
            None => Ok(patched),
        }
    }
}

/// Kubernetes: objects of built-in kinds that matched in another version cannot be turned back.
fn unknown_conversion(request: &Request, kind: &GroupVersionKind, cluster: &dyn Cluster) -> Option<String> {
    if *kind == request.kind || !cluster.is_built_in(kind) {
        return None;
    }
    let (from, to) =
        (format!("{}.{}", kind.version, kind.kind), format!("{}.{}", request.kind.version, request.kind.kind));
    Some(format!("converting ({from}) to ({to}): unknown conversion"))
}

//! Common evaluation of validating and mutating policies for a request.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::json::Value;
use cel::value::Value as CelValue;
use cel_kubernetes::environments::admission::{CONDITIONS_COST_MAX, Documents, EvaluationError, Input};
use cel_kubernetes::libraries::authorization::{ResourceCheck, authorizer_value, request_resource_value};

use super::cluster::{Cluster, MissingNamespace};
use super::policy::{Expression, FailurePolicy, Policy};
use super::request::{GroupVersionKind, Request, namespace_document};
use super::rules::Match;

/// The time, and when evaluation must end: before each policy, binding and parameter, and in loops of expressions.
///
/// A caller that evaluates several times for one request, such as policies, their reinvocation and the match conditions of
/// webhooks, gives each evaluation the time that those before it left.
#[derive(Clone, Copy)]
pub struct Deadline<'a> {
    /// A monotonic clock.
    pub now: &'a (dyn Fn() -> Duration + Sync),
    /// The reading of the clock at which evaluation ends.
    pub end: Duration,
}

impl Deadline<'_> {
    /// Whether a reading of the clock is after the end.
    pub(super) fn is_over(&self, reading: Duration) -> bool {
        reading > self.end
    }
}

/// The message of a policy that there is no time left for. It ends as that of an expression that is stopped.
pub(super) const OUT_OF_TIME: &str =
    "the time to evaluate admission policies and match conditions of a request is used up: operation interrupted";

/// An evaluation of match conditions that is counted. Kubernetes does not count those that all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionCheck {
    /// The policy or webhook.
    pub name: Arc<str>,
    /// The number of conditions that failed, up to the first one that does not hold.
    pub errors: usize,
    /// The duration of the evaluation.
    pub elapsed: Duration,
}

/// The documents of a request in one version.
#[derive(Clone)]
pub(super) struct VersionedDocuments {
    pub(super) kind: GroupVersionKind,
    pub(super) object: Option<Arc<Value>>,
    pub(super) old: Option<Arc<Value>>,
    /// The variable `request`; under another version, match conditions see the resource of the request itself.
    request: Value,
    request_of_conditions: Option<Value>,
}

/// The evaluation of one request.
pub(super) struct Session<'s> {
    pub(super) request: &'s Request,
    pub(super) cluster: &'s dyn Cluster,
    interrupt: &'s (dyn Fn() -> bool + Sync),
    deadline: Deadline<'s>,
    requested: OnceCell<Rc<VersionedDocuments>>,
    authorizer: (CelValue<'static>, CelValue<'static>),
    /// The variable `namespaceObject`.
    namespace: Result<Option<Value>, MissingNamespace>,
    namespace_read: AtomicBool,
    conditions: RefCell<Vec<ConditionCheck>>,
}

impl<'s> Session<'s> {
    pub(super) fn new(
        request: &'s Request,
        cluster: &'s dyn Cluster,
        interrupt: &'s (dyn Fn() -> bool + Sync),
        deadline: Deadline<'s>,
    ) -> Self {
        let check = ResourceCheck {
            group: request.resource.group.clone(),
            resource: request.resource.resource.clone(),
            subresource: request.subresource.clone(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            ..ResourceCheck::default()
        };
        let authorizer = cluster.authorizer();
        let namespace = match request.namespace_seen() {
            Some(name) => cluster.namespace(name).map(|namespace| Some(namespace_document(&namespace))),
            None => Ok(None),
        };
        Self {
            request,
            cluster,
            interrupt,
            deadline,
            requested: OnceCell::new(),
            authorizer: (
                authorizer_value(authorizer.clone(), request.user.clone()),
                request_resource_value(authorizer, request.user.clone(), check),
            ),
            namespace,
            namespace_read: AtomicBool::new(false),
            conditions: RefCell::default(),
        }
    }

    /// Takes the evaluations of match conditions to count.
    pub(super) fn condition_checks(&self) -> Vec<ConditionCheck> {
        self.conditions.take()
    }

    /// Whether the namespace of the request does not exist.
    pub(super) fn lacks_namespace(&self) -> bool {
        self.namespace == Err(MissingNamespace::NotFound)
    }

    /// The documents of the request in the version that matched.
    pub(super) fn versioned(&self, found: &Match) -> Result<Rc<VersionedDocuments>, String> {
        let request = self.request;
        let (resource, kind) = match found {
            Match::Requested => {
                let make = || {
                    Rc::new(VersionedDocuments {
                        kind: request.kind.clone(),
                        object: request.object.clone(),
                        old: request.old.clone(),
                        request: request.document(&request.resource, &request.kind),
                        request_of_conditions: None,
                    })
                };
                return Ok(self.requested.get_or_init(make).clone());
            }
            Match::Equivalent(other) => (&other.0, &other.1),
        };
        let convert = |document: &Option<Arc<Value>>| match document {
            Some(document) => self.cluster.convert(request, document, kind).map(|it| Some(Arc::new(it))),
            None => Ok(None),
        };
        Ok(Rc::new(VersionedDocuments {
            kind: kind.clone(),
            object: convert(&request.object)?,
            old: convert(&request.old)?,
            request: request.document(resource, kind),
            request_of_conditions: Some(request.document(&request.resource, kind)),
        }))
    }

    /// The input of validations, annotations and mutations.
    pub(super) fn documents<'d>(
        &'d self,
        versioned: &'d VersionedDocuments,
        params: Option<&'d Value>,
    ) -> Documents<'d> {
        Documents {
            object: versioned.object.as_deref(),
            old_object: versioned.old.as_deref(),
            params,
            request: Some(&versioned.request),
            namespace: self.namespace.as_ref().ok().and_then(Option::as_ref),
            unknown_namespace: self.namespace.is_err().then_some(&self.namespace_read),
            authorizer: Some((self.authorizer.0.borrowed(), self.authorizer.1.borrowed())),
            interrupt: Some(self.interrupt),
        }
    }

    /// Returns the missing input since the last call: only offline.
    pub(super) fn unknown(&self) -> Option<String> {
        if self.namespace_read.swap(false, Ordering::Relaxed) {
            return Some(format!("namespace `{}` is not known", self.request.namespace));
        }
        self.cluster.undecided()
    }

    /// Whether all match conditions hold.
    ///
    /// # Errors
    /// A condition fails, and the failure policy is not to ignore that.
    pub(super) fn meets_conditions<B>(
        &self,
        policy: &Policy<B>,
        versioned: &VersionedDocuments,
        params: Option<&Value>,
    ) -> Result<bool, String> {
        if policy.conditions.is_empty() {
            return Ok(true);
        }
        let started = (self.deadline.now)();
        if self.deadline.is_over(started) {
            return failed(policy.failure_policy, OUT_OF_TIME.to_owned());
        }
        let (result, errors) = self.evaluate_conditions(policy, versioned, params);
        if result != Ok(true) {
            let elapsed = (self.deadline.now)().saturating_sub(started);
            self.conditions.borrow_mut().push(ConditionCheck { name: policy.name.clone(), errors, elapsed });
        }
        result
    }

    /// Whether all match conditions hold, and the number of failed ones to count.
    fn evaluate_conditions<B>(
        &self,
        policy: &Policy<B>,
        versioned: &VersionedDocuments,
        params: Option<&Value>,
    ) -> (Result<bool, String>, usize) {
        let documents = Documents {
            request: Some(versioned.request_of_conditions.as_ref().unwrap_or(&versioned.request)),
            // Kubernetes: conditions do not see the namespace.
            namespace: None,
            unknown_namespace: None,
            ..self.documents(versioned, params)
        };
        let input = Input::new(documents, &policy.variables);
        let mut budget = CONDITIONS_COST_MAX;
        let (mut is_false, mut errors, mut count) = (false, Vec::new(), 0_usize);
        for condition in &policy.conditions {
            match evaluate(condition, &input, &mut budget) {
                Ok(value) => is_false |= value.as_bool() == Some(false),
                // Kubernetes counts the errors of conditions, not that their budget is used up.
                Err(Error::Set(why)) => return (failed(policy.failure_policy, why), 0),
                Err(Error::One(why)) => {
                    count = count.saturating_add(usize::from(!is_false));
                    if !errors.contains(&why) {
                        errors.push(why);
                    }
                }
            }
        }
        // A condition that does not hold wins over one that fails.
        let result = match errors.as_slice() {
            _ if is_false => Ok(false),
            [] => Ok(true),
            [one] => failed(policy.failure_policy, one.clone()),
            all => failed(policy.failure_policy, format!("[{}]", all.join(", "))),
        };
        (result, count)
    }
}

fn failed(policy: FailurePolicy, why: String) -> Result<bool, String> {
    match policy {
        FailurePolicy::Fail => Err(why),
        FailurePolicy::Ignore => Ok(false),
    }
}

/// A reason why an expression has no value, in Kubernetes' words.
pub(super) enum Error {
    /// This expression fails.
    One(String),
    /// The budget is used up: the whole set of expressions fails.
    Set(String),
}

/// Evaluates one expression of a set.
pub(super) fn evaluate<'e>(
    expression: &'e Expression,
    input: &'e Input<'_>,
    budget: &mut u64,
) -> Result<CelValue<'e>, Error> {
    let program = match &expression.program {
        Ok(program) => program,
        Err(error) => return Err(Error::One(format!("compilation error: {error}"))),
    };
    input.eval(program, budget).map_err(|error| match error {
        EvaluationError::OutOfBudget => Error::Set(error.to_string()),
        EvaluationError::Failed(why) => {
            Error::One(format!("expression '{}' resulted in error: {why}", expression.text))
        }
    })
}

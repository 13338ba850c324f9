//! `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy`: the policies that users write.
//!
//! Evaluation is `registry::admission`, pure; here are its inputs. [`source`] compiles policies when they change, [`world`]
//! lends objects, rights and versions. Evaluation runs on threads for blocking work. All evaluations of a request share one
//! time: both kinds of policies, both passes of mutations, and the match conditions of webhooks.

mod metrics;
mod source;
pub(super) mod world;

use locks::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::json::Value;
use cel_kubernetes::libraries::authorization::User;
use registry::admission::mutating::{self, Reinvocation};
use registry::admission::request::is_exempt;
use registry::admission::validating::{self, Deadline};
use registry::admission::{self, GroupVersionKind, GroupVersionResource, MutatingBody, Request, ValidatingBody};
use registry::conversion;

pub(crate) use self::metrics::PolicyMetrics;
use self::source::Source;
use self::world::World;
use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::wire::deadline::{self, EvaluationTime};
use crate::wire::status::{Failure, Result};

/// All evaluations for one request take at most this long together.
const EVALUATION_MAX: Duration = Duration::from_secs(10);

pub(super) fn operation(operation: Operation) -> admission::Operation {
    match operation {
        Operation::Create => admission::Operation::Create,
        Operation::Update => admission::Operation::Update,
        Operation::Delete => admission::Operation::Delete,
        Operation::Connect => admission::Operation::Connect,
    }
}

fn is_asked<B: 'static>(source: &Source<B>, attributes: &Attributes<'_>) -> bool {
    !source.is_empty()
        && !is_exempt(attributes.resource_name())
        && source.may_match(attributes.resource_name(), operation(attributes.operation))
}

/// The request as policies see it; documents are in the version of the request.
pub(super) fn request(attributes: &Attributes<'_>, object: Option<Value>) -> Request {
    let kind = attributes.kind;
    let (group, plural) = attributes.resource_name();
    let is_namespace = (group, plural) == ("", "namespaces");
    let namespace =
        if is_namespace && attributes.namespace.is_empty() { attributes.name } else { attributes.namespace };
    let user = attributes.user;
    let options = (attributes.options)();
    Request {
        operation: operation(attributes.operation),
        kind: GroupVersionKind {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            kind: kind.kind.to_owned(),
        },
        resource: GroupVersionResource {
            group: group.to_owned(),
            version: attributes.version.to_owned(),
            resource: plural.to_owned(),
        },
        subresource: attributes.subresource.to_owned(),
        name: attributes.name.to_owned(),
        namespace: namespace.to_owned(),
        user: Arc::new(User {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }),
        dry_run: attributes.dry_run,
        options,
        object: object.map(Arc::new),
        old: attributes.old.map(|old| Arc::new(attributes.requested(old))),
    }
}

/// Runs an evaluation on a thread for blocking work. It ends when the evaluations of the request used up their time, and
/// with the request.
pub(super) async fn evaluate<T: Send + 'static>(work: impl FnOnce(Deadline<'_>) -> T + Send + 'static) -> Result<T> {
    let (evaluation, asked, remaining) = (EvaluationTime::of_request(), Instant::now(), deadline::remaining());
    let work = move || {
        let started = Instant::now();
        let now = move || started.elapsed();
        let left = evaluation.left_of(EVALUATION_MAX);
        let end = remaining.map_or(left, |remaining| left.min(remaining.saturating_sub(asked.elapsed())));
        let result = work(Deadline { now: &now, end });
        evaluation.add(now());
        result
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Failure::internal("the evaluation of admission policies failed"))
}

fn lacks_namespace(request: &Request) -> Box<Failure> {
    Failure::not_found(crate::resources::NAMESPACES, &request.namespace)
}

fn causes<'a>(texts: impl Iterator<Item = String> + 'a) -> Value {
    Value::Array(texts.map(|message| api::json!({"message": message})).collect())
}

/// The plugin for policies that refuse.
pub(super) struct ValidatingAdmissionPolicy {
    cluster: Arc<dyn Cluster>,
    source: Arc<Source<ValidatingBody>>,
}

impl ValidatingAdmissionPolicy {
    pub(super) fn new(cluster: &Arc<dyn Cluster>) -> Self {
        let source = Source::new(cluster, "validatingadmissionpolicies", admission::Policy::validating);
        Self { cluster: cluster.clone(), source: Arc::new(source) }
    }

    async fn check(&self, attributes: &Attributes<'_>) -> Result<()> {
        let request = Arc::new(request(attributes, attributes.object.map(|object| attributes.requested(object))));
        let (source, cluster, asked) = (self.source.clone(), self.cluster.clone(), request.clone());
        let outcome = evaluate(move |deadline| {
            let catalog = source.current();
            validating::evaluate_all(catalog.catalog(), &asked, &World::new(cluster, &asked), deadline)
        })
        .await?;
        self.cluster.policy_metrics().validating.observe(&outcome.checks);
        self.cluster.condition_metrics().policies(&outcome.conditions, attributes.operation.name());
        if outcome.lacks_namespace {
            return Err(lacks_namespace(&request));
        }
        for warning in outcome.warnings {
            attributes.warn(warning);
        }
        for (key, value) in &outcome.annotations {
            attributes.annotate(key, value);
        }
        if !outcome.failures.is_empty() {
            attributes.annotate(validating::FAILURES_KEY, &api::json::to_string(&Value::Array(outcome.failures)));
        }
        let Some(denial) = outcome.denials.first() else { return Ok(()) };
        let text = denial.text();
        let mut failure = attributes.forbidden(attributes.object.or(attributes.old).unwrap_or(&Value::Null), &text);
        (failure.code, failure.reason) = (denial.code(), denial.reason);
        Err(failure.with_detail("causes", causes(std::iter::once(text))))
    }
}

impl Plugin for ValidatingAdmissionPolicy {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        is_asked(&self.source, attributes)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        Box::pin(self.check(attributes))
    }
}

tokio::task_local! {
    /// State shared by the mutation passes of one request.
    static REINVOCATION: Mutex<Reinvocation>;
}

/// The name of the plugin whose changes can bring a second pass.
pub(super) const MUTATING: &str = "MutatingAdmissionPolicy";
/// The name of the plugin that only refuses.
pub(super) const VALIDATING: &str = "ValidatingAdmissionPolicy";

/// Runs the passes of a request's mutations.
pub(super) async fn in_passes<T>(passes: impl Future<Output = T>) -> T {
    REINVOCATION.scope(Mutex::default(), passes).await
}

/// Whether a policy requires a second pass.
pub(super) fn needs_second_pass() -> bool {
    REINVOCATION.with(|state| state.lock().is_needed)
}

/// Starts the second pass.
pub(super) fn begin_second_pass() {
    REINVOCATION.with(|state| state.lock().is_second = true);
}

/// The plugin for policies that change objects.
pub(super) struct MutatingAdmissionPolicy {
    cluster: Arc<dyn Cluster>,
    source: Arc<Source<MutatingBody>>,
}

impl MutatingAdmissionPolicy {
    pub(super) fn new(cluster: &Arc<dyn Cluster>) -> Self {
        let source = Source::new(cluster, "mutatingadmissionpolicies", admission::Policy::mutating);
        Self { cluster: cluster.clone(), source: Arc::new(source) }
    }

    async fn change(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
        let given = (!object.is_null()).then(|| attributes.requested(object));
        let request = Arc::new(request(attributes, given));
        let take = |state: &Mutex<Reinvocation>| std::mem::take(&mut *state.lock());
        let mut state = REINVOCATION.try_with(take).unwrap_or_default();
        let (source, cluster, asked) = (self.source.clone(), self.cluster.clone(), request.clone());
        let (outcome, state) = evaluate(move |deadline| {
            let catalog = source.current();
            let world = World::new(cluster, &asked);
            let outcome = mutating::evaluate_all(catalog.catalog(), &asked, &world, deadline, &mut state);
            (outcome, state)
        })
        .await?;
        // Outside of the chain there is no second pass.
        _ = REINVOCATION.try_with(|it| *it.lock() = state);
        self.cluster.policy_metrics().mutating.observe(&outcome.checks);
        self.cluster.condition_metrics().policies(&outcome.conditions, attributes.operation.name());
        if outcome.lacks_namespace {
            return Err(lacks_namespace(&request));
        }
        match outcome.error {
            None => {}
            Some((500, why)) => return Err(Failure::internal(why)),
            Some((_, why)) => return Err(Failure::new(503, "ServiceUnavailable", why)),
        }
        if let Some(first) = outcome.denials.first() {
            let mut failure = attributes.forbidden(object, "");
            failure.message = first.text();
            failure.reason = first.reason;
            let texts = outcome.denials.iter().map(mutating::Denial::text);
            return Err(failure.with_detail("causes", causes(texts)));
        }
        if let Some(mut changed) = outcome.object {
            if attributes.is_whole() && attributes.resource.custom.is_none() {
                conversion::to_stored(attributes.resource, attributes.version, &mut changed);
            }
            *object = changed;
        }
        Ok(())
    }
}

impl Plugin for MutatingAdmissionPolicy {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Delete && is_asked(&self.source, attributes)
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value) -> Verdict<'a> {
        if object.is_null() {
            return done(Ok(()));
        }
        Box::pin(self.change(attributes, object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn end() -> Duration {
        evaluate(|deadline| deadline.end).await.ok().unwrap()
    }

    #[tokio::test]
    async fn evaluations_of_a_request_share_their_time() {
        let request = async {
            assert!(end().await <= EVALUATION_MAX);
            EvaluationTime::of_request().add(Duration::from_secs(4));
            assert!(end().await <= Duration::from_secs(6));
            EvaluationTime::of_request().add(Duration::from_secs(7));
            assert_eq!(end().await, Duration::ZERO);
            // The next object of a collection.
            assert!(deadline::with_own_evaluation(end()).await > Duration::ZERO);
        };
        deadline::within(Duration::from_secs(3600), request).await.unwrap();
        // A request that ends earlier ends its evaluations.
        let short = deadline::within(Duration::from_secs(5), end()).await.unwrap();
        assert!(short <= Duration::from_secs(5));
    }
}

//! `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`: the webhooks that users configure.
//!
//! [`source`] compiles configurations when they change and finds those for a request by an index, [`review`] is the document
//! that is sent and answered, [`patch`] applies the changes of an answer, [`backends`](crate::outbound::backends) calls. Mutating webhooks are called one after the other,
//! in the order of the names of their configurations; validating ones all at once. Follows
//! `apiserver/pkg/admission/plugin/webhook` of Kubernetes.

mod metrics;
mod patch;
mod review;
mod source;

use locks::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::go_text::quote;
use api::json::{self, Object, Value};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use registry::admission::rules::{Match, MatchError};
use registry::admission::{GroupVersionKind, GroupVersionResource, Request};

pub(crate) use self::metrics::WebhookMetrics;
use self::review::{Answer, ReviewError};
use self::source::{Source, Webhook};
use super::policies::world::World;
use super::policies::{evaluate, operation, request};
use super::{Attributes, Cluster, Plugin, Verdict};
use crate::outbound::backends::NoAnswer;
use crate::random;
use crate::resources;
use crate::storage::recorder::RegardingObject;
use crate::wire::deadline;
use crate::wire::status::{Failure, Result};

/// Reviews of rights and tokens are never sent to webhooks, nor is the configuration of admission itself, so that a webhook
/// can always be removed.
fn is_exempt((group, plural): (&str, &str)) -> bool {
    match group {
        "admissionregistration.k8s.io" => true,
        "authentication.k8s.io" | "authorization.k8s.io" => plural.ends_with("reviews"),
        _ => false,
    }
}

/// A kind of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Mutating,
    Validating,
}

impl Type {
    /// The name in metrics.
    fn label(self) -> &'static str {
        match self {
            Type::Mutating => "admit",
            Type::Validating => "validating",
        }
    }
}

/// A failed call, or a refusal.
enum Refusal {
    /// The call failed: the failure policy decides.
    Call(FailedCall),
    /// The webhook refuses.
    Denial(Box<Failure>),
    /// The server cannot call the webhook, or not use its answer.
    Internal(Box<Failure>),
}

/// A call that failed.
struct FailedCall {
    /// The text for the client, which can contain parts of the answer.
    why: String,
    /// The code in metrics.
    code: u16,
    /// The class in logs, which contain nothing of the answer: it can repeat the object, and thus a Secret.
    class: &'static str,
}

impl Refusal {
    fn of_call(class: &'static str, why: impl Into<String>, code: u16) -> Self {
        Self::Call(FailedCall { why: why.into(), code, class })
    }
}

/// A webhook to call, with the documents that it sees.
struct Invocation {
    webhook: Arc<Webhook>,
    /// Position among all webhooks.
    place: usize,
    resource: GroupVersionResource,
    kind: GroupVersionKind,
    object: Value,
    old: Value,
}

/// The plugin for one kind of webhooks.
pub(super) struct Webhooks {
    cluster: Arc<dyn Cluster>,
    source: Arc<Source>,
    kind: Type,
}

/// The passes of one request's mutations.
#[derive(Default)]
struct Passes {
    is_second: bool,
    is_needed: bool,
    has_patched: bool,
    last_output: Option<Value>,
    /// Webhooks that were called and can be called again.
    previous: HashSet<String>,
    /// Webhooks that must be called again.
    again: HashSet<String>,
}

impl Passes {
    fn require_again(&mut self) {
        self.again.extend(self.previous.drain());
    }
}

tokio::task_local! {
    static PASSES: Mutex<Passes>;
}

fn with_passes<T: Default>(work: impl FnOnce(&mut Passes) -> T) -> T {
    PASSES.try_with(|it| work(&mut it.lock())).unwrap_or_default()
}

/// The name of the plugin whose changes can bring a second pass.
pub(super) const MUTATING: &str = "MutatingAdmissionWebhook";
/// The name of the plugin that only refuses.
pub(super) const VALIDATING: &str = "ValidatingAdmissionWebhook";

/// Runs the passes of a request's mutations.
pub(super) async fn in_passes<T>(passes: impl Future<Output = T>) -> T {
    PASSES.scope(Mutex::default(), passes).await
}

/// Whether a webhook requires a second pass.
pub(super) fn needs_second_pass() -> bool {
    with_passes(|passes| passes.is_needed)
}

/// Starts the second pass.
pub(super) fn begin_second_pass() {
    with_passes(|passes| passes.is_second = true);
}

impl Webhooks {
    pub(super) fn mutating(cluster: &Arc<dyn Cluster>) -> Self {
        let source = Arc::new(Source::new(cluster, "mutatingwebhookconfigurations"));
        Self { cluster: cluster.clone(), source, kind: Type::Mutating }
    }

    pub(super) fn validating(cluster: &Arc<dyn Cluster>) -> Self {
        let source = Arc::new(Source::new(cluster, "validatingwebhookconfigurations"));
        Self { cluster: cluster.clone(), source, kind: Type::Validating }
    }

    /// The webhooks that may be called, compiled on a thread for blocking work.
    async fn candidates(&self, attributes: &Attributes<'_>) -> Result<Vec<(usize, Arc<Webhook>)>> {
        let source = self.source.clone();
        let compiled = evaluate(move |_| source.current()).await?;
        Ok(compiled.candidates(attributes.resource_name(), operation(attributes.operation)))
    }

    /// Returns the documents for a webhook's call, or none if the webhook is not called for the request.
    async fn invocation(
        &self,
        attributes: &Attributes<'_>,
        (place, webhook): (usize, &Arc<Webhook>),
        asked: &Arc<Request>,
    ) -> Result<Option<Invocation>> {
        let world = World::new(self.cluster.clone(), asked);
        let found = match webhook.filter.matches(asked, &world) {
            Ok(None) => return Ok(None),
            Ok(Some(found)) => found,
            Err(MatchError::Refused(why)) if why.ends_with(" not found") => {
                return Err(Failure::not_found(resources::NAMESPACES, &asked.namespace));
            }
            Err(MatchError::Refused(why) | MatchError::Unknown(why)) => return Err(Failure::internal(why)),
        };
        if webhook.filter.has_conditions() {
            let (filter, cluster, asked, found) = (webhook.clone(), self.cluster.clone(), asked.clone(), found.clone());
            let met = evaluate(move |deadline| {
                let world = World::new(cluster, &asked);
                filter.filter.meets_conditions(&asked, &world, &found, deadline)
            });
            let (met, check) = met.await?;
            if let Some(check) = check {
                let (operation, is_excluded) = (attributes.operation.name(), met == Ok(false));
                self.cluster.condition_metrics().webhook(&check, self.kind.label(), operation, is_excluded);
            }
            match met {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(why) => {
                    let (group, plural) = attributes.resource_name();
                    return Err(Failure::forbidden(group, plural, attributes.name, &why));
                }
            }
        }
        let (resource, kind) = match &found {
            Match::Requested => (asked.resource.clone(), asked.kind.clone()),
            Match::Equivalent(other) => (**other).clone(),
        };
        let (mut object, mut old) = (Value::Null, Value::Null);
        for (document, into) in [(&asked.object, &mut object), (&asked.old, &mut old)] {
            *into = match (document, &found) {
                (None, _) => Value::Null,
                (Some(document), Match::Requested) => (**document).clone(),
                (Some(document), Match::Equivalent(_)) => {
                    patch::converted(&world, asked, document, &kind).await.map_err(Failure::internal)?
                }
            };
        }
        Ok(Some(Invocation { webhook: webhook.clone(), place, resource, kind, object, old }))
    }

    /// Calls a webhook; none if the call is skipped.
    async fn call(
        &self,
        attributes: &Attributes<'_>,
        invocation: &Invocation,
        asked: &Request,
    ) -> std::result::Result<Option<Answer>, Refusal> {
        let webhook = &invocation.webhook;
        if attributes.dry_run && !webhook.allows_dry_run {
            let why = format!("admission webhook {} does not support dry run", quote(&webhook.name));
            return Err(Refusal::Internal(Failure::bad_request(why)));
        }
        let Some(version) = webhook.version else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Refusal::of_call("UnknownReviewVersion", why, 400));
        };
        let uid = String::from_utf8(random::uid_text()).unwrap_or_default();
        let request = asked.document(&invocation.resource, &invocation.kind);
        let review = review::of(version, &uid, request, invocation.object.clone(), invocation.old.clone());
        let body = json::to_string(&review).into();
        let timeout = Duration::from_secs(webhook.timeout_seconds);
        let timeout = deadline::remaining().map_or(timeout, |remaining| remaining.min(timeout));
        let answer = match self.cluster.backends().call(&webhook.backend, body, timeout).await {
            Ok(answer) => answer,
            Err(NoAnswer::Unreachable(why)) => {
                return Err(Refusal::of_call("Unreachable", format!("failed to call webhook: {why}"), 503));
            }
            Err(NoAnswer::Rejected(why, code)) => {
                return Err(Refusal::of_call("HTTPError", format!("failed to call webhook: {why}"), code));
            }
            Err(NoAnswer::Simulated) => {
                self.skip(attributes, webhook);
                return Ok(None);
            }
        };
        let answer = review::read(&answer, version, &uid, self.kind == Type::Mutating).map_err(|bad| {
            let (class, why) = match bad {
                ReviewError::Unreadable(why) => ("UnreadableReview", format!("failed to call webhook: {why}")),
                ReviewError::Invalid(why) => ("InvalidReview", format!("received invalid webhook response: {why}")),
            };
            Refusal::of_call(class, why, 503)
        })?;
        for (key, value) in &answer.annotations {
            if is_annotation_key(key) {
                attributes.annotate(&format!("{}/{key}", webhook.name), value);
            }
        }
        for warning in &answer.warnings {
            if !warning.is_empty() && !warning.chars().any(char::is_control) {
                attributes.warn(warning.clone());
            }
        }
        if !answer.allowed {
            return Err(Refusal::Denial(denial(&webhook.name, answer.status)));
        }
        Ok(Some(answer))
    }

    /// Reports that a webhook is not called.
    fn skip(&self, attributes: &Attributes<'_>, webhook: &Webhook) {
        self.cluster.webhook_metrics().skipped(&webhook.name, self.kind.label());
        let why = format!(
            "admission webhook {} was not called: the pods of its service are simulated; map it with --backend, or use --simulated-backends=fail",
            quote(&webhook.name)
        );
        let regarding = RegardingObject {
            api_version: "admissionregistration.k8s.io/v1",
            kind: match self.kind {
                Type::Mutating => "MutatingWebhookConfiguration",
                Type::Validating => "ValidatingWebhookConfiguration",
            },
            name: webhook.configuration.clone(),
            uid: webhook.configuration_uid.clone(),
        };
        self.cluster.recorder().warn(&regarding, "SimulatedBackend", why.clone());
        attributes.warn(why);
    }

    /// Counts the outcome of a call, and follows the failure policy of the webhook: a refusal, and whether it is ignored.
    fn judged<T>(
        &self,
        attributes: &Attributes<'_>,
        webhook: &Webhook,
        started: Instant,
        outcome: std::result::Result<T, Refusal>,
    ) -> std::result::Result<T, (Box<Failure>, bool)> {
        let call = metrics::Call {
            name: &webhook.name,
            kind: self.kind.label(),
            operation: attributes.operation.name(),
            elapsed: started.elapsed(),
        };
        let metrics = self.cluster.webhook_metrics();
        match outcome {
            Ok(value) => {
                metrics.accepted(&call, 200);
                Ok(value)
            }
            Err(Refusal::Denial(failure)) => {
                metrics.rejected(&call, "no_error", failure.code);
                Err((failure, false))
            }
            Err(Refusal::Internal(failure)) => {
                metrics.rejected(&call, "apiserver_internal_error", 0);
                Err((failure, false))
            }
            Err(Refusal::Call(FailedCall { why, code, class })) => {
                let why = format!("failed calling webhook {}: {why}", quote(&webhook.name));
                if webhook.ignores_failures {
                    metrics.failed_open(&call, code);
                    tracing::warn!(webhook = webhook.name, code, class, "Failed calling webhook, failing open");
                } else {
                    metrics.rejected(&call, "calling_webhook_error", code);
                }
                Err((Failure::internal(why), webhook.ignores_failures))
            }
        }
    }

    async fn check(&self, attributes: &Attributes<'_>) -> Result<()> {
        let candidates = self.candidates(attributes).await?;
        if candidates.is_empty() {
            return Ok(());
        }
        let object = attributes.object.map(|object| attributes.requested(object));
        let asked = Arc::new(request(attributes, object));
        let mut invocations = Vec::new();
        for (place, webhook) in &candidates {
            invocations.extend(self.invocation(attributes, (*place, webhook), &asked).await?);
        }
        let call = |(index, invocation): (usize, Invocation)| {
            let asked = &asked;
            async move {
                let started = Instant::now();
                let outcome = match self.call(attributes, &invocation, asked).await {
                    // The call was skipped.
                    Ok(None) => Ok(()),
                    outcome => self.judged(attributes, &invocation.webhook, started, outcome.map(|_| ())),
                };
                (index, outcome, invocation)
            }
        };
        let mut calls: FuturesUnordered<_> = invocations.into_iter().enumerate().map(call).collect();
        // All are awaited; the first refusal to arrive is reported.
        let mut first = Ok(());
        while let Some((index, outcome, invocation)) = calls.next().await {
            match outcome {
                Ok(()) => {}
                Err((_, true)) => {
                    let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                    attributes.annotate(&key, &invocation.webhook.name);
                }
                Err((failure, false)) => first = first.and(Err(failure)),
            }
        }
        first
    }

    async fn change(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
        let candidates = self.candidates(attributes).await?;
        with_passes(|passes| {
            if passes.is_second && passes.last_output.as_ref() != Some(&*object) {
                passes.require_again();
            }
        });
        let (is_second, given) = (with_passes(|passes| passes.is_second), !object.is_null());
        for (place, webhook) in &candidates {
            let document = given.then(|| attributes.requested(object));
            let asked = Arc::new(request(attributes, document));
            let Some(invocation) = self.invocation(attributes, (*place, webhook), &asked).await? else { continue };
            if is_second && !with_passes(|passes| passes.again.remove(&webhook.uid)) {
                continue;
            }
            let (started, round) =
                (Instant::now(), format!("round_{}_index_{}", u8::from(is_second), invocation.place));
            let outcome = match self.call(attributes, &invocation, &asked).await {
                // The call was skipped.
                Ok(None) => Ok(false),
                Ok(Some(answer)) => {
                    let patched = self.patched(attributes, &invocation, &asked, &answer, &round, object).await;
                    self.judged(attributes, webhook, started, patched)
                }
                Err(refusal) => self.judged(attributes, webhook, started, Err(refusal)),
            };
            let changed = match outcome {
                Ok(changed) => changed,
                Err((_, true)) => {
                    attributes.annotate(&failed_open_key(&round), &webhook.name);
                    false
                }
                Err((failure, false)) => {
                    annotate_mutation(attributes, webhook, &round, false);
                    return Err(failure);
                }
            };
            annotate_mutation(attributes, webhook, &round, changed);
            with_passes(|passes| {
                if changed {
                    passes.require_again();
                    passes.is_needed = true;
                }
                if webhook.is_reinvoked {
                    passes.previous.insert(webhook.uid.clone());
                }
            });
        }
        with_passes(|passes| passes.last_output = Some(object.clone()));
        Ok(())
    }

    /// Applies the patch of an answer to the object; whether that counts as a change.
    async fn patched(
        &self,
        attributes: &Attributes<'_>,
        invocation: &Invocation,
        asked: &Request,
        answer: &Answer,
        round: &str,
        object: &mut Value,
    ) -> std::result::Result<bool, Refusal> {
        let webhook = &invocation.webhook;
        let operations = patch::operations(&answer.patch)
            .map_err(|why| format!("received undecodable patch in webhook response: {why}"))
            .map_err(|why| Refusal::of_call("InvalidPatch", why, 503))?;
        if operations.is_empty() {
            return Ok(false);
        }
        let internal = |why: String| Refusal::Internal(Failure::internal(why));
        if invocation.object.is_null() {
            return Err(internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                quote(&webhook.name)
            )));
        }
        if answer.patch_type != "JSONPatch" {
            let code = denial(&webhook.name, answer.status.clone()).code;
            let why = format!("unsupported patch type {}", quote(&answer.patch_type));
            return Err(Refusal::of_call("UnsupportedPatchType", why, code));
        }
        let kind = &invocation.kind;
        let mut patched = patch::apply(&invocation.object, kind, &answer.patch).map_err(internal)?;
        let world = World::new(self.cluster.clone(), asked);
        world.prune(asked, kind, &mut patched);
        if attributes.is_whole() {
            patched = world.defaulted(asked, kind, patched);
        }
        let is_first = !with_passes(|passes| std::mem::replace(&mut passes.has_patched, true));
        let changed = is_first || patched != invocation.object;
        let patch = api::json!({
            "configuration": (webhook.configuration.as_str()), "webhook": (webhook.name.as_str()),
            "patch": operations, "patchType": "JSONPatch"
        });
        attributes.annotate_contents(&format!("patch.webhook.admission.k8s.io/{round}"), &json::to_string(&patch));
        *object = patch::stored(attributes, &world, asked, kind, patched).await.map_err(internal)?;
        Ok(changed)
    }
}

fn annotate_mutation(attributes: &Attributes<'_>, webhook: &Webhook, round: &str, mutated: bool) {
    let value = api::json!({
        "configuration": (webhook.configuration.as_str()), "webhook": (webhook.name.as_str()), "mutated": mutated
    });
    attributes.annotate(&format!("mutation.webhook.admission.k8s.io/{round}"), &json::to_string(&value));
}

/// The annotation that names a mutating webhook whose failure is ignored.
fn failed_open_key(round: &str) -> String {
    format!("failed-open.mutation.webhook.admission.k8s.io/{round}")
}

/// The last part of a key of annotations: a qualified name without a prefix.
fn is_annotation_key(key: &str) -> bool {
    let is_end = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
    key.len() <= 63
        && is_end(key.chars().next())
        && is_end(key.chars().last())
        && key.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.'))
}

/// The refusal of a webhook. Follows `ToStatusErr` in Kubernetes' `webhook/errors/statuserror.go`.
fn denial(name: &str, status: Option<Object>) -> Box<Failure> {
    let status = status.unwrap_or_default();
    let text = |field: &str| status.get(field).and_then(Value::as_str).filter(|it| !it.is_empty());
    let start = format!("admission webhook {} denied the request", quote(name));
    let message = match text("message").or_else(|| text("reason")) {
        Some(why) => format!("{start}: {why}"),
        None => format!("{start} without explanation"),
    };
    let code = status.get("code").and_then(Value::as_i64).unwrap_or_default().max(400);
    let mut failure = Failure::new(u16::try_from(code).unwrap_or(500), "", message);
    failure.given_reason = text("reason").map(ToOwned::to_owned);
    failure.given_status = text("status").filter(|it| *it != "Success").map(ToOwned::to_owned);
    failure.details = status.get("details").and_then(Value::as_object).cloned();
    failure
}

impl Plugin for Webhooks {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        !self.source.is_empty()
            && !is_exempt(attributes.resource_name())
            && self.source.may_match(attributes.resource_name(), operation(attributes.operation))
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value) -> Verdict<'a> {
        Box::pin(self.change(attributes, object))
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        Box::pin(self.check(attributes))
    }
}

//! Scales workloads by metrics.
//!
//! The controller reads the metrics of each autoscaler every 15 seconds. Each metric proposes a number of replicas; the largest
//! proposal, limited by the scaling policies and the bounds, is written to the workload. Follows Kubernetes
//! `pkg/controller/podautoscaler/horizontal.go`:
//!
//! - `source`: metrics from `metrics.k8s.io`, custom and external metrics from aggregated APIs.
//! - `calculator`: the replicas that a metric calls for; `metrics`: proposals and their texts.
//! - `behavior`: stabilization windows and policies.

mod behavior;
mod calculator;
mod metrics;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::autoscaling::v2::HorizontalPodAutoscaler;
use api::core::v1::{ObjectReference, Pod};
use api::json::Value;
use api::labels::Selector;
use api::time::Timestamp;
use client::controller::{Controller, Next};
use client::discovery::{Discovery, ServedResource};
use client::informer::{Change, Informer, Key};
use client::resources::ServedView as _;
use client::{Client, Document, Resource};
use locks::{Mutex, MutexGuard};

use self::behavior::{History, Range};
use self::calculator::{Calculator, Tolerances};
use self::metrics::{Evaluation, MissingMetrics, Proposal, Replicas};
use self::source::Source;
use crate::machinery::action::Action;
use crate::machinery::conditions::{self, Condition};
use crate::machinery::executor::{Executor, Failure};
use crate::manager::Context;
use crate::settings::Settings;
use crate::{machinery::edit, machinery::outcome};

/// Index of pods by namespace.
const BY_NAMESPACE: &str = "namespace";
/// Conflicts after which a rescale is given up until the next period.
const ATTEMPTS_MAX: usize = 5;

struct Autoscalers {
    autoscalers: Informer<Document<HorizontalPodAutoscaler>>,
    executor: Executor,
    settings: Arc<Settings>,
    discovery: Mutex<Arc<Discovery>>,
    pods: Informer<Pod>,
    /// Pod selectors of the targets that were examined.
    selectors: Mutex<BTreeMap<Key, Selector>>,
    /// Recent recommendations and changes.
    histories: Mutex<BTreeMap<Key, History>>,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let autoscalers = context.informers.all::<Document<HorizontalPodAutoscaler>>();
    let runner = Controller::new(context.name, &context.runtime).watch_changes(&autoscalers, |change| match change {
        Change::Updated { old, new } if old.spec == new.spec => None,
        _ => Some(edit::key(change.newest().metadata())),
    });
    let executor = context.executor();
    let settings = context.settings.clone();
    let pods = context.informers.all::<Pod>();
    pods.store().add_index(BY_NAMESPACE, |pod| vec![pod.metadata.namespace.clone()]);
    let (discovery, selectors, histories) = (Mutex::default(), Mutex::default(), Mutex::default());
    let controller = Arc::new(Autoscalers { autoscalers, executor, settings, discovery, pods, selectors, histories });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

/// Decision about a target.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// Scaling is disabled: the target has zero replicas.
    Disabled,
    /// The target is out of bounds: the new number of replicas, and the reason.
    Rescale(i32, &'static str),
    /// Metrics are required.
    AskMetrics,
}

fn judge(autoscaler: &HorizontalPodAutoscaler, current: i32) -> Verdict {
    let spec = &autoscaler.spec;
    let min = min_replicas(autoscaler);
    if current == 0 {
        // A target that another client scaled to zero stays there.
        let resumes = was_scaled_to_zero(autoscaler) && (min != 0 || has_metrics_without_pods(autoscaler));
        if resumes { Verdict::AskMetrics } else { Verdict::Disabled }
    } else if current > spec.max_replicas {
        Verdict::Rescale(spec.max_replicas, "Current number of replicas above Spec.MaxReplicas")
    } else if current < min {
        Verdict::Rescale(min, BELOW_MIN)
    } else {
        Verdict::AskMetrics
    }
}

const BELOW_MIN: &str = "Current number of replicas below Spec.MinReplicas";

fn min_replicas(autoscaler: &HorizontalPodAutoscaler) -> i32 {
    autoscaler.spec.min_replicas.unwrap_or(1)
}

/// Whether this controller scaled the target to zero.
fn was_scaled_to_zero(autoscaler: &HorizontalPodAutoscaler) -> bool {
    let condition = autoscaler.status.conditions.iter().find(|it| it.condition_type == "ScaledToZero");
    condition.is_some_and(|it| it.status == "True")
}

/// Whether a metric has values without any pod.
fn has_metrics_without_pods(autoscaler: &HorizontalPodAutoscaler) -> bool {
    let kind = |metric: &Value| matches!(metric.str_at(&["type"]), Some("Object" | "External"));
    autoscaler.spec.metrics.iter().any(kind)
}

/// A number of replicas and the reason for it.
struct Decision {
    replicas: i32,
    reason: String,
    /// Statuses of the metrics.
    metrics: Value,
}

/// The status that is to be written, in the making, and what else is to be done.
struct Draft {
    about: ObjectReference,
    object: Value,
    now: Timestamp,
    actions: Vec<Action>,
}

impl Draft {
    fn new(autoscaler: &Document<HorizontalPodAutoscaler>, now: Timestamp) -> Self {
        let about = client::events::reference(&**autoscaler);
        Self { about, object: autoscaler.to_value(), now, actions: Vec::new() }
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.actions.push(Action::warning(&self.about, reason, message));
    }

    fn condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let condition = Condition { kind, status, reason, message, observed_generation: None };
        conditions::set(self.object.make_list_at(&["status", "conditions"]), condition, self.now);
    }

    /// Sets the numbers of replicas; the desired one stays as it was if it is not known.
    fn replicas(&mut self, autoscaler: &HorizontalPodAutoscaler, current: i32, desired: Option<i32>, metrics: Value) {
        self.object.set_at(&["status", "observedGeneration"], autoscaler.metadata.generation);
        self.object.set_at(&["status", "currentReplicas"], current);
        if let Some(desired) = desired {
            self.object.set_at(&["status", "desiredReplicas"], desired);
        }
        self.object.set_at(&["status", "currentMetrics"], metrics);
    }

    fn finish(mut self, autoscaler: &Document<HorizontalPodAutoscaler>) -> Vec<Action> {
        if self.object.get("status") != autoscaler.value().get("status") {
            let (resource, object) = (HorizontalPodAutoscaler::RESOURCE, self.object);
            self.actions.push(Action::UpdateStatus { resource, object });
        }
        self.actions
    }
}

/// The statuses of all metrics. Kubernetes: each metric that cannot be had leaves an empty place in the list.
fn statuses(results: &[Result<Proposal, MissingMetrics>]) -> Value {
    let status = |result: &Result<Proposal, MissingMetrics>| match result {
        Ok(proposal) => proposal.status.clone(),
        Err(_) => api::json!({"type": ""}),
    };
    if results.is_empty() { Value::Null } else { Value::Array(results.iter().map(status).collect()) }
}

/// The largest proposal.
fn largest(results: &[Result<Proposal, MissingMetrics>]) -> (i32, &str) {
    let mut largest = (0, "");
    for proposal in results.iter().flatten() {
        if largest.0 == 0 || proposal.replicas > largest.0 {
            largest = (proposal.replicas, &proposal.name);
        }
    }
    largest
}

/// A reason why the pods of a target are ambiguous: reason and message of the condition, and the event's.
struct Ambiguity {
    event: &'static str,
    reason: &'static str,
    condition: String,
    message: String,
}

impl Autoscalers {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(autoscaler) = self.autoscalers.store().get_key(&key) else {
            self.selectors().remove(&key);
            self.histories().remove(&key);
            return Ok(Next::Done);
        };
        let mut draft = Draft::new(&autoscaler, self.executor.now());
        match self.scale(&autoscaler).await {
            Err(why) => {
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                draft.warn("FailedGetScale", why);
                draft.condition("AbleToScale", "False", "FailedGetScale", &message);
            }
            Ok((resource, scale)) => {
                let message = "the HPA controller was able to get the target's current scale";
                draft.condition("AbleToScale", "True", "SucceededGetScale", message);
                self.decide(&key, &autoscaler, &resource, scale, &mut draft).await;
            }
        }
        match outcome::next(self.executor.perform(&key, draft.finish(&autoscaler)).await)? {
            Next::Done => Ok(Next::After(self.settings.autoscaler_period)),
            next => Ok(next),
        }
    }

    /// Determines the number of replicas, and changes it.
    async fn decide(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        resource: &Resource,
        scale: Value,
        draft: &mut Draft,
    ) {
        let current = count(&scale, &["spec", "replicas"]);
        self.histories().entry(key.clone()).or_default().begin(current, draft.now);
        let decision = match judge(autoscaler, current) {
            Verdict::Disabled => {
                let message = "scaling is disabled since the replica count of the target is zero";
                draft.condition("ScalingActive", "False", "ScalingDisabled", message);
                return draft.replicas(autoscaler, current, Some(current), Value::Null);
            }
            Verdict::Rescale(replicas, reason) => {
                Decision { replicas, reason: reason.to_owned(), metrics: Value::Null }
            }
            Verdict::AskMetrics => match self.measure(key, autoscaler, &scale, draft).await {
                Some(decision) => decision,
                None => return,
            },
        };
        let Decision { replicas: desired, reason, metrics } = decision;
        if desired == current {
            return draft.replicas(autoscaler, current, Some(current), metrics);
        }
        let size = format!("New size: {desired}; reason: {reason}");
        if let Err(error) = self.rescale(key, autoscaler, resource, scale, desired).await {
            draft.warn("FailedRescale", format!("{size}; error: {error}"));
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            draft.condition("AbleToScale", "False", "FailedUpdateScale", &message);
            return draft.replicas(autoscaler, current, None, metrics);
        }
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        draft.condition("AbleToScale", "True", "SucceededRescale", &message);
        draft.actions.push(Action::normal(&draft.about, "SuccessfulRescale", size));
        let behavior = autoscaler.spec.behavior.as_ref();
        self.histories().entry(key.clone()).or_default().changed(behavior, current, desired, draft.now);
        if desired == 0 && min_replicas(autoscaler) == 0 && has_metrics_without_pods(autoscaler) {
            let message = "the HPA controller scaled the workload to zero";
            draft.condition("ScaledToZero", "True", "ScaledToZero", message);
        } else {
            let message = "the HPA controller did not scale the workload to zero";
            draft.condition("ScaledToZero", "False", "NotScaledToZero", message);
        }
        draft.replicas(autoscaler, current, Some(desired), metrics);
        draft.object.set_at(&["status", "lastScaleTime"], edit::time(draft.now));
    }

    /// The number of replicas that the metrics call for, within all limits; none if nothing can be decided.
    async fn measure(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        scale: &Value,
        draft: &mut Draft,
    ) -> Option<Decision> {
        let current = count(scale, &["spec", "replicas"]);
        let (text, pods) = match self.check_selector(key, scale) {
            Ok(found) => found,
            Err(Ambiguity { event, reason, condition, message }) => {
                draft.condition("ScalingActive", "False", reason, &condition);
                draft.replicas(autoscaler, current, None, Value::Null);
                draft.warn(event, message.clone());
                draft.warn("FailedComputeMetricsReplicas", message);
                return None;
            }
        };
        let results = self.evaluate(autoscaler, scale, &text, &pods, draft.now).await;
        for missing in results.iter().filter_map(|it| it.as_ref().err()) {
            draft.warn(missing.reason, missing.cause.clone());
        }
        let (proposed, metric) = largest(&results);
        let invalid = results.iter().filter(|it| it.is_err()).count();
        if invalid >= results.len() || (invalid > 0 && proposed < current) {
            let first = results.iter().find_map(|it| it.as_ref().err());
            if let Some(first) = first {
                let message = format!("the HPA was unable to compute the replica count: {}", first.cause);
                draft.condition("ScalingActive", "False", first.reason, &message);
            }
            draft.replicas(autoscaler, current, None, statuses(&results));
            let (all, first) = (results.len(), first.map(|it| it.failure.as_str()).unwrap_or_default());
            let failure = format!("invalid metrics ({invalid} invalid out of {all}), first error is: {first}");
            draft.warn("FailedComputeMetricsReplicas", failure);
            return None;
        }
        let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
        draft.condition("ScalingActive", "True", "ValidMetricFound", &message);
        let (replicas, reason) = self.limit(key, autoscaler, current, (proposed, metric), draft);
        Some(Decision { replicas, reason, metrics: statuses(&results) })
    }

    /// Brings a proposal within the limits of change and the bounds.
    fn limit(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        current: i32,
        (proposed, metric): (i32, &str),
        draft: &mut Draft,
    ) -> (i32, String) {
        let (spec, min) = (&autoscaler.spec, min_replicas(autoscaler));
        let mut reason = match proposed.cmp(&current) {
            std::cmp::Ordering::Greater => format!("{metric} above target"),
            std::cmp::Ordering::Less => "All metrics below target".to_owned(),
            std::cmp::Ordering::Equal => String::new(),
        };
        let range = Range { min, max: spec.max_replicas, current };
        let window = self.settings.autoscaler_downscale_stabilization;
        let limited = {
            let mut histories = self.histories();
            let history = histories.entry(key.clone()).or_default();
            history.limit(spec.behavior.as_ref(), proposed.max(0), range, window, draft.now)
        };
        draft.condition("AbleToScale", "True", limited.stabilized.0, limited.stabilized.1);
        let status = if limited.is_limited { "True" } else { "False" };
        draft.condition("ScalingLimited", status, limited.limit.0, limited.limit.1);
        if current == 0 && limited.replicas < min {
            if reason.is_empty() {
                BELOW_MIN.clone_into(&mut reason);
            }
            return (min, reason);
        }
        (limited.replicas, reason)
    }

    /// Evaluates all metrics, one after the other.
    async fn evaluate(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        scale: &Value,
        selector: &str,
        pods: &[Arc<Pod>],
        now: Timestamp,
    ) -> Vec<Result<Proposal, MissingMetrics>> {
        let spec = &autoscaler.spec;
        let objects = spec.metrics.iter().filter_map(|it| it.at(&["object", "describedObject"]));
        for object in objects {
            let text = |field: &str| object.str_at(&[field]).unwrap_or_default();
            // A kind that is not served fails when its metric is evaluated.
            let _ = self.served(text("apiVersion"), text("kind")).await;
        }
        let calculator = Calculator {
            pods,
            now,
            tolerances: self.tolerances(autoscaler),
            cpu_initialization: self.settings.autoscaler_cpu_initialization,
            initial_readiness_delay: self.settings.autoscaler_initial_readiness_delay,
        };
        let replicas =
            Replicas { spec: count(scale, &["spec", "replicas"]), status: count(scale, &["status", "replicas"]) };
        let source = Source { client: self.executor.client(), namespace: &autoscaler.metadata.namespace };
        let discovery = self.known();
        let mut evaluation = Evaluation::new(source, calculator, replicas, selector, &discovery);
        let mut results = Vec::with_capacity(spec.metrics.len());
        for metric in &spec.metrics {
            results.push(evaluation.evaluate(metric).await);
        }
        results
    }

    fn tolerances(&self, autoscaler: &HorizontalPodAutoscaler) -> Tolerances {
        let behavior = autoscaler.spec.behavior.as_ref();
        let own = |rules: Option<&api::autoscaling::v2::ScalingRules>| {
            let own = rules.and_then(|it| it.tolerance.as_ref()).map(|it| it.as_approximate_f64());
            own.unwrap_or(self.settings.autoscaler_tolerance)
        };
        Tolerances {
            down: own(behavior.and_then(|it| it.scale_down.as_ref())),
            up: own(behavior.and_then(|it| it.scale_up.as_ref())),
        }
    }

    fn selectors(&self) -> MutexGuard<'_, BTreeMap<Key, Selector>> {
        self.selectors.lock()
    }

    fn histories(&self) -> MutexGuard<'_, BTreeMap<Key, History>> {
        self.histories.lock()
    }

    fn known(&self) -> Arc<Discovery> {
        self.discovery.lock().clone()
    }

    /// The target's selector and its pods, unless another autoscaler has the same pods.
    fn check_selector(&self, key: &Key, scale: &Value) -> Result<(String, Vec<Arc<Pod>>), Ambiguity> {
        let text = scale.str_at(&["status", "selector"]).unwrap_or_default();
        if text.is_empty() {
            return Err(Ambiguity {
                event: "SelectorRequired",
                reason: "InvalidSelector",
                condition: "the HPA target's scale is missing a selector".to_owned(),
                message: "selector is required".to_owned(),
            });
        }
        let unclear = |event: &'static str, message: String| Ambiguity {
            event,
            reason: event,
            condition: message.clone(),
            message,
        };
        let selector = Selector::parse(text).map_err(|error| {
            let message = format!("couldn't convert selector into a corresponding internal selector object: {error}");
            unclear("InvalidSelector", message)
        })?;
        let mut pods = self.pods.store().by_index(BY_NAMESPACE, &key.namespace);
        pods.retain(|pod| selector.matches(&pod.metadata.labels));
        let mut selectors = self.selectors();
        selectors.insert(key.clone(), selector);
        let rivals = rivals(&selectors, &key.namespace, &pods);
        if rivals.len() > 1 {
            let two = rivals.into_iter().take(2).collect::<Vec<_>>().join(" ");
            let message = format!("pods by selector {text} are controlled by more than one HPA (e.g. [{two}])");
            return Err(unclear("AmbiguousSelector", message));
        }
        Ok((text.to_owned(), pods))
    }

    /// Finds a kind among the served ones, which are read again if it is not known.
    async fn served(&self, api_version: &str, kind: &str) -> Result<Option<ServedResource>, client::Error> {
        let found = find(&self.known(), api_version, kind);
        if found.is_some() {
            return Ok(found);
        }
        let fresh = Arc::new(self.executor.client().discover().await?);
        let found = find(&fresh, api_version, kind);
        *self.discovery.lock() = fresh;
        Ok(found)
    }

    /// The target's resource and its scale, or why there is none.
    async fn scale(&self, autoscaler: &HorizontalPodAutoscaler) -> Result<(Resource, Value), String> {
        let client: &Client = self.executor.client();
        let target = &autoscaler.spec.scale_target_ref;
        let served = self.served(&target.api_version, &target.kind).await.map_err(|error| error.to_string())?;
        let Some(served) = served else {
            let group = target.api_version.split_once('/').map_or("", |(group, _)| group);
            return Err(source::no_match(&target.kind, group));
        };
        let objects = client.documents(served.resource.clone());
        match objects.get_below(&autoscaler.metadata.namespace, &target.name, "scale").await {
            Ok(scale) => Ok((served.resource, scale)),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn rescale(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        resource: &Resource,
        mut scale: Value,
        desired: i32,
    ) -> Result<(), client::Error> {
        let objects = self.executor.client().documents(resource.clone());
        let name = &autoscaler.spec.scale_target_ref.name;
        let mut attempt = 1;
        loop {
            scale.set_at(&["spec", "replicas"], desired);
            match objects.update_below(&key.namespace, name, "scale", &scale).await {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {
                    attempt = attempt.saturating_add(1);
                    scale = objects.get_below(&key.namespace, name, "scale").await?;
                }
                result => return result.map(drop),
            }
        }
    }
}

/// A number of replicas of a scale.
fn count(scale: &Value, path: &[&str]) -> i32 {
    i32::try_from(scale.int_at(path)).unwrap_or(i32::MAX)
}

/// A kind in its version, or in another one that is served. Kubernetes: the version of a reference is a hint.
fn find(discovery: &Discovery, api_version: &str, kind: &str) -> Option<ServedResource> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let in_group = || discovery.resources.iter().find(|it| it.resource.group == group && it.resource.kind == kind);
    discovery.find(api_version, kind).or_else(in_group).cloned()
}

/// The autoscalers whose selectors match one of the pods; no more than two are looked for.
fn rivals(selectors: &BTreeMap<Key, Selector>, namespace: &str, pods: &[Arc<Pod>]) -> BTreeSet<String> {
    let all = || selectors.iter().filter(|(key, _)| key.namespace == namespace);
    let mut rivals = BTreeSet::new();
    if all().take(2).count() < 2 {
        return rivals;
    }
    let mut last = None;
    for labels in pods.iter().map(|pod| &pod.metadata.labels) {
        // Most pods of a target have the same labels.
        if last == Some(labels) {
            continue;
        }
        last = Some(labels);
        for (key, _) in all().filter(|(_, selector)| selector.matches(labels)) {
            rivals.insert(key.to_string());
            if rivals.len() > 1 {
                return rivals;
            }
        }
    }
    rivals
}

#[cfg(test)]
mod tests;

//! Keeps the number of replicas within an autoscaler's bounds.
//!
//! There is no metrics API here: a target within its bounds stays as it is, and the autoscaler says that it gets no
//! metrics, as Kubernetes' does without a metrics server. Follows Kubernetes `pkg/controller/podautoscaler/horizontal.go`.

mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::autoscaling::v2::HorizontalPodAutoscaler;
use api::core::v1::Pod;
use api::json::Value;
use api::labels::Selector;
use api::time::Timestamp;
use client::controller::{Controller, Next};
use client::discovery::Discovery;
use client::informer::{Change, Informer, Key};
use client::resources::Served as _;
use client::{Client, Document, Resource};

use crate::action::Action;
use crate::conditions::{self, Condition};
use crate::executor::{Executor, Failure};
use crate::manager::{Context, now};
use crate::settings::Settings;
use crate::{edit, outcome};

struct Autoscalers {
    autoscalers: Informer<Document<HorizontalPodAutoscaler>>,
    executor: Executor,
    settings: Arc<Settings>,
    discovery: Mutex<Arc<Discovery>>,
    pods: Informer<Pod>,
    /// Which pods the targets of autoscalers have, as far as they were looked at.
    selectors: Mutex<BTreeMap<Key, Selector>>,
}

/// Runs the controller until the end is asked for.
pub async fn run(context: Context) {
    let autoscalers = context.informers.all::<Document<HorizontalPodAutoscaler>>();
    let runner = Controller::new(context.name, &context.runtime).watch_changes(&autoscalers, |change| match change {
        Change::Updated { old, new } if old.spec == new.spec => None,
        _ => Some(edit::key(change.newest().metadata())),
    });
    let executor = context.executor();
    let settings = context.settings.clone();
    let pods = context.informers.all::<Pod>();
    let (discovery, selectors) = (Mutex::default(), Mutex::default());
    let controller = Arc::new(Autoscalers { autoscalers, executor, settings, discovery, pods, selectors });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

/// What is to be done about a target.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// It has no replicas, by somebody's wish.
    Disabled,
    /// It is out of bounds: how many it should have, and why.
    Rescale(i32, &'static str),
    /// Only metrics can say more.
    AskMetrics,
}

fn judge(autoscaler: &HorizontalPodAutoscaler, current: i32) -> Verdict {
    let spec = &autoscaler.spec;
    let min = spec.min_replicas.unwrap_or(1);
    if current == 0 {
        if min == 0 { Verdict::AskMetrics } else { Verdict::Disabled }
    } else if current > spec.max_replicas {
        Verdict::Rescale(spec.max_replicas, "Current number of replicas above Spec.MaxReplicas")
    } else if current < min {
        Verdict::Rescale(min, "Current number of replicas below Spec.MinReplicas")
    } else {
        Verdict::AskMetrics
    }
}

/// The status that is to be written, in the making.
struct Draft {
    object: Value,
    now: Timestamp,
}

impl Draft {
    fn new(autoscaler: &Document<HorizontalPodAutoscaler>, now: Timestamp) -> Self {
        Self { object: autoscaler.to_value(), now }
    }

    fn condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let condition = Condition { kind, status, reason, message, observed_generation: None };
        if let Some(list) = edit::list(&mut self.object, &["status", "conditions"]) {
            conditions::set(list, condition, self.now);
        }
    }

    fn replicas(&mut self, autoscaler: &HorizontalPodAutoscaler, current: i32, desired: i32) {
        self.current(autoscaler, current);
        edit::set(&mut self.object, &["status", "desiredReplicas"], desired);
        edit::set(&mut self.object, &["status", "currentMetrics"], Value::Null);
    }

    fn current(&mut self, autoscaler: &HorizontalPodAutoscaler, current: i32) {
        edit::set(&mut self.object, &["status", "observedGeneration"], autoscaler.metadata.generation);
        edit::set(&mut self.object, &["status", "currentReplicas"], current);
    }

    /// Kubernetes: each metric that cannot be had leaves an empty place in the list.
    fn metrics(&mut self, count: usize) {
        let places = vec![api::json!({"type": ""}); count];
        let list = if places.is_empty() { Value::Null } else { Value::Array(places) };
        edit::set(&mut self.object, &["status", "currentMetrics"], list);
    }

    fn action(self, autoscaler: &Document<HorizontalPodAutoscaler>) -> Option<Action> {
        let changed = self.object.get("status") != autoscaler.value().get("status");
        changed.then_some(Action::UpdateStatus { resource: HorizontalPodAutoscaler::RESOURCE, object: self.object })
    }
}

/// Why the pods of a target cannot be told from others: reason and message of the condition, and the event's.
struct Unclear {
    event: &'static str,
    reason: &'static str,
    condition: String,
    message: String,
}

impl Autoscalers {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(autoscaler) = self.autoscalers.store().get_key(&key) else {
            self.selectors().remove(&key);
            return Ok(Next::Done);
        };
        let about = client::events::reference(&**autoscaler);
        let mut draft = Draft::new(&autoscaler, now());
        let mut actions = Vec::new();
        match self.scale(&autoscaler).await {
            Err(why) => {
                actions.push(Action::warning(&about, "FailedGetScale", why.clone()));
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                draft.condition("AbleToScale", "False", "FailedGetScale", &message);
            }
            Ok((resource, scale)) => {
                let current = i32::try_from(edit::int(&scale, &["spec", "replicas"])).unwrap_or(i32::MAX);
                let message = "the HPA controller was able to get the target's current scale";
                draft.condition("AbleToScale", "True", "SucceededGetScale", message);
                match judge(&autoscaler, current) {
                    Verdict::Disabled => {
                        let message = "scaling is disabled since the replica count of the target is zero";
                        draft.condition("ScalingActive", "False", "ScalingDisabled", message);
                        draft.replicas(&autoscaler, current, current);
                    }
                    Verdict::Rescale(desired, why) => {
                        let size = format!("New size: {desired}; reason: {why}");
                        match self.rescale(&key, &autoscaler, &resource, scale, desired).await {
                            Ok(()) => {
                                let message =
                                    format!("the HPA controller was able to update the target scale to {desired}");
                                draft.condition("AbleToScale", "True", "SucceededRescale", &message);
                                actions.push(Action::normal(&about, "SuccessfulRescale", size));
                                let message = "the HPA controller did not scale the workload to zero";
                                draft.condition("ScaledToZero", "False", "NotScaledToZero", message);
                                draft.replicas(&autoscaler, current, desired);
                                let time = edit::time(draft.now);
                                edit::set(&mut draft.object, &["status", "lastScaleTime"], time);
                            }
                            Err(error) => {
                                let message = format!("{size}; error: {error}");
                                actions.push(Action::warning(&about, "FailedRescale", message));
                                let message =
                                    format!("the HPA controller was unable to update the target scale: {error}");
                                draft.condition("AbleToScale", "False", "FailedUpdateScale", &message);
                                draft.current(&autoscaler, current);
                            }
                        }
                    }
                    Verdict::AskMetrics => {
                        draft.current(&autoscaler, current);
                        let failure = match self.check_selector(&key, &scale) {
                            Err(Unclear { event, reason, condition, message }) => {
                                draft.condition("ScalingActive", "False", reason, &condition);
                                draft.metrics(0);
                                actions.push(Action::warning(&about, event, message.clone()));
                                message
                            }
                            Ok(()) => {
                                let (missing, failure) = metrics::missing(&autoscaler);
                                if let Some(first) = missing.first() {
                                    let message =
                                        format!("the HPA was unable to compute the replica count: {}", first.cause);
                                    draft.condition("ScalingActive", "False", first.reason, &message);
                                }
                                draft.metrics(missing.len());
                                let told = missing.into_iter();
                                actions.extend(told.map(|it| Action::warning(&about, it.reason, it.cause)));
                                failure
                            }
                        };
                        actions.push(Action::warning(&about, "FailedComputeMetricsReplicas", failure));
                    }
                }
            }
        }
        actions.extend(draft.action(&autoscaler));
        match outcome::next(self.executor.perform(&key, actions).await)? {
            Next::Done => Ok(Next::After(self.settings.autoscaler_period)),
            next => Ok(next),
        }
    }

    fn selectors(&self) -> MutexGuard<'_, BTreeMap<Key, Selector>> {
        self.selectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the target says which pods are its, and no other autoscaler has them.
    fn check_selector(&self, key: &Key, scale: &Value) -> Result<(), Unclear> {
        let text = scale.str_at(&["status", "selector"]).unwrap_or_default();
        if text.is_empty() {
            return Err(Unclear {
                event: "SelectorRequired",
                reason: "InvalidSelector",
                condition: "the HPA target's scale is missing a selector".to_owned(),
                message: "selector is required".to_owned(),
            });
        }
        let unclear = |event: &'static str, message: String| Unclear {
            event,
            reason: event,
            condition: message.clone(),
            message,
        };
        let selector = Selector::parse(text).map_err(|error| {
            let message = format!("couldn't convert selector into a corresponding internal selector object: {error}");
            unclear("InvalidSelector", message)
        })?;
        let mut selectors = self.selectors();
        selectors.insert(key.clone(), selector.clone());
        let all = || selectors.iter().filter(|(other, _)| other.namespace == key.namespace);
        if all().count() == 1 {
            return Ok(());
        }
        let pods = self.pods.store().list();
        let own = pods.iter().filter(|it| it.metadata.namespace == key.namespace).map(|it| &it.metadata.labels);
        let rivals = own
            .filter(|labels| selector.matches(*labels))
            .flat_map(|labels| all().filter(|(_, it)| it.matches(labels)).map(|(other, _)| other.to_string()));
        let rivals: BTreeSet<String> = rivals.collect();
        if rivals.len() > 1 {
            let two = rivals.into_iter().take(2).collect::<Vec<_>>().join(" ");
            let message = format!("pods by selector {text} are controlled by more than one HPA (e.g. [{two}])");
            return Err(unclear("AmbiguousSelector", message));
        }
        Ok(())
    }

    /// The target's resource and its scale, or why there is none.
    async fn scale(&self, autoscaler: &HorizontalPodAutoscaler) -> Result<(Resource, Value), String> {
        let client: &Client = self.executor.client();
        let target = &autoscaler.spec.scale_target_ref;
        let known = || self.discovery.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known().find(&target.api_version, &target.kind).is_none() {
            let fresh = client.discover().await.map_err(|error| error.to_string())?;
            *self.discovery.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        }
        let discovery = known();
        let Some(served) = discovery.find(&target.api_version, &target.kind) else {
            let group = target.api_version.split_once('/').map_or("", |(group, _)| group);
            return Err(format!("no matches for kind \"{}\" in group \"{group}\"", target.kind));
        };
        let objects = client.documents(served.resource.clone());
        match objects.get_below(&autoscaler.metadata.namespace, &target.name, "scale").await {
            Ok(scale) => Ok((served.resource.clone(), scale)),
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
        edit::set(&mut scale, &["spec", "replicas"], desired);
        match objects.update_below(&key.namespace, name, "scale", &scale).await {
            Err(error) if error.is_conflict() => {
                let mut latest = objects.get_below(&key.namespace, name, "scale").await?;
                edit::set(&mut latest, &["spec", "replicas"], desired);
                objects.update_below(&key.namespace, name, "scale", &latest).await.map(drop)
            }
            result => result.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept_and_all_else_is_the_metrics_matter() {
        let autoscaler = |min: i32| -> HorizontalPodAutoscaler {
            let spec = api::json!({"spec": {"minReplicas": min, "maxReplicas": 4, "metrics": [
                {"type": "Resource", "resource": {"name": "cpu"}}]}});
            api::json::from_value(&spec).expect("an autoscaler")
        };
        let below = Verdict::Rescale(2, "Current number of replicas below Spec.MinReplicas");
        assert_eq!(judge(&autoscaler(2), 1), below);
        assert_eq!(judge(&autoscaler(2), 9), Verdict::Rescale(4, "Current number of replicas above Spec.MaxReplicas"));
        assert_eq!(judge(&autoscaler(2), 3), Verdict::AskMetrics);
        assert_eq!(judge(&autoscaler(2), 0), Verdict::Disabled);
    }

    #[test]
    fn metrics_that_cannot_be_had_leave_places_until_the_next_rescale() {
        let object = api::json!({"metadata": {"name": "h", "generation": 2}, "spec": {}});
        let autoscaler: Document<HorizontalPodAutoscaler> = Document::new(object).expect("an autoscaler");
        let mut draft = Draft::new(&autoscaler, Timestamp { seconds: 0, nanos: 0 });
        draft.current(&autoscaler, 3);
        draft.metrics(2);
        let status =
            api::json!({"observedGeneration": 2, "currentReplicas": 3, "currentMetrics": [{"type": ""}, {"type": ""}]});
        assert_eq!(draft.object.get("status"), Some(&status));
        draft.replicas(&autoscaler, 3, 4);
        assert_eq!(draft.object.at(&["status", "currentMetrics"]), Some(&Value::Null));
    }

    #[test]
    fn a_status_is_written_when_it_differs() {
        let object = api::json!({"metadata": {"name": "h"}, "spec": {}});
        let autoscaler: Document<HorizontalPodAutoscaler> = Document::new(object).expect("an autoscaler");
        let now = Timestamp { seconds: 0, nanos: 0 };
        let mut draft = Draft::new(&autoscaler, now);
        draft.condition("AbleToScale", "True", "SucceededGetScale", "m");
        let Some(Action::UpdateStatus { object, .. }) = draft.action(&autoscaler) else { panic!("it is new") };
        let again: Document<HorizontalPodAutoscaler> = Document::new(object).expect("an autoscaler");
        let mut draft = Draft::new(&again, now);
        draft.condition("AbleToScale", "True", "SucceededGetScale", "m");
        assert_eq!(draft.action(&again), None);
    }
}

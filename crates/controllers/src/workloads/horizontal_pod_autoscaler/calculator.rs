//! The number of replicas that a metric calls for: pure functions of pods, metrics and time.
//!
//! Pods that are not ready count as idle when replicas are added, pods without metrics as idle when they are added and as
//! busy when they are removed; neither may reverse the direction. Values are thousandths, as in Kubernetes. Follows
//! `pkg/controller/podautoscaler/replica_calculator.go`; sums beyond the range of numbers stay at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Container, Pod, PodCondition};
use api::json::Text;
use api::quantity::Quantity;
use api::time::Timestamp;
use matching::resources::{self, is_pod_level, is_sidecar};

/// The value of a metric for one pod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PodMetric {
    /// In thousandths.
    pub(super) value: i64,
    /// End of the measured period.
    pub(super) at: Timestamp,
    /// Length of the measured period.
    pub(super) window: Duration,
}

/// Values by the name of the pod.
pub(super) type PodMetrics = BTreeMap<Text, PodMetric>;

/// Ratios of usage to target that change nothing: from `1 - down` to `1 + up`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    fn accept(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// A proposal by a share of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Utilization {
    pub(super) replicas: i32,
    /// Usage in percent of the requests.
    pub(super) percent: i32,
    /// Average usage of a pod.
    pub(super) average: i64,
}

/// Computes replicas for the pods of one target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Calculator<'a> {
    /// The pods that the target's selector matches.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) now: Timestamp,
    pub(super) tolerances: Tolerances,
    /// Period after the start of a pod in which its processor time counts only while it is ready.
    pub(super) cpu_initialization: Duration,
    /// Period after the start of a pod in which a change to "not ready" is its first state.
    pub(super) initial_readiness_delay: Duration,
}

/// Pods by their part in the calculation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Groups {
    ready: usize,
    unready: BTreeSet<Text>,
    missing: BTreeSet<Text>,
    ignored: BTreeSet<Text>,
}

const NO_PODS: &str = "no pods returned by selector while calculating replica count";
const NO_METRICS: &str = "did not receive metrics for targeted pods (pods might be unready)";

impl Calculator<'_> {
    /// Replicas for a target utilization of a resource, of the whole pods or of one container each.
    ///
    /// # Errors
    /// Kubernetes' text.
    pub(super) fn by_utilization(
        &self,
        current: i32,
        target_percent: i32,
        resource: &str,
        container: &str,
        mut metrics: PodMetrics,
    ) -> Result<Utilization, String> {
        let groups = self.group(&mut metrics, resource)?;
        let requests = self.requests(container, resource)?;
        let (ratio, percent, average) = utilization(&metrics, &requests, target_percent)?;
        // Kubernetes: on a scale-down, pods without metrics use their whole request, or the target if that is more.
        let busy = |pod: &Text| {
            let share = i128::from(target_percent.max(100));
            let whole = i128::from(requests.get(pod).copied().unwrap_or_default()).saturating_mul(share);
            clamped(whole.checked_div(100).unwrap_or_default())
        };
        let again = |metrics: &PodMetrics| utilization(metrics, &requests, target_percent).map(|it| it.0);
        let replicas = self.settle(current, ratio, &groups, metrics, busy, again)?;
        Ok(Utilization { replicas, percent, average })
    }

    /// Replicas and average for a target value per pod.
    ///
    /// # Errors
    /// Kubernetes' text.
    pub(super) fn by_average(
        &self,
        current: i32,
        target: i64,
        resource: &str,
        mut metrics: PodMetrics,
    ) -> Result<(i32, i64), String> {
        let groups = self.group(&mut metrics, resource)?;
        let (ratio, usage) = usage(&metrics, target);
        let again = |metrics: &PodMetrics| Ok(self::usage(metrics, target).0);
        let replicas = self.settle(current, ratio, &groups, metrics, |_| target, again)?;
        Ok((replicas, usage))
    }

    /// Replicas for the value of one object, or the sum of external values, and a target for all pods together.
    ///
    /// # Errors
    /// Kubernetes' text.
    pub(super) fn by_value(&self, current: i32, target: i64, value: i64) -> Result<i32, String> {
        let ratio = float(value) / float(target);
        if current == 0 {
            return Ok(rounded_up(ratio));
        }
        if self.tolerances.accept(ratio) {
            return Ok(current);
        }
        if self.pods.is_empty() {
            return Err(format!("unable to calculate ready pods: {NO_PODS}"));
        }
        let is_ready = |pod: &&Arc<Pod>| {
            pod.status.phase == "Running" && ready_condition(pod).is_some_and(|it| it.status == "True")
        };
        Ok(rounded_up(ratio * count(self.pods.iter().filter(is_ready).count())))
    }

    /// Replicas and value per pod for the value of one object, or the sum of external values, and a target per pod.
    pub(super) fn by_value_per_pod(&self, status_replicas: i32, target: i64, value: i64) -> (i32, i64) {
        let ratio = float(value) / (float(target) * f64::from(status_replicas));
        let replicas = match self.tolerances.accept(ratio) {
            true => status_replicas,
            false => rounded_up(float(value) / float(target)),
        };
        let per_pod = match value == i64::MAX {
            true => i64::MAX,
            false => whole((float(value) / f64::from(status_replicas)).ceil()),
        };
        (replicas, per_pod)
    }

    /// The number of replicas once pods without metrics and pods that are not ready are taken into account.
    fn settle(
        &self,
        current: i32,
        ratio: f64,
        groups: &Groups,
        mut metrics: PodMetrics,
        busy: impl Fn(&Text) -> i64,
        again: impl Fn(&PodMetrics) -> Result<f64, String>,
    ) -> Result<i32, String> {
        let adds_with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !adds_with_unready && groups.missing.is_empty() {
            return Ok(match self.tolerances.accept(ratio) {
                true => current,
                false => rounded_up(ratio * count(groups.ready)),
            });
        }
        let mut set = |pod: &Text, value: i64| {
            metrics.insert(pod.clone(), PodMetric { value, at: Timestamp::ZERO, window: Duration::ZERO });
        };
        if ratio < 1.0 {
            groups.missing.iter().for_each(|pod| set(pod, busy(pod)));
        } else if ratio > 1.0 {
            groups.missing.iter().for_each(|pod| set(pod, 0));
        }
        if adds_with_unready {
            groups.unready.iter().for_each(|pod| set(pod, 0));
        }
        let new_ratio = again(&metrics)?;
        let is_reversed = (ratio < 1.0 && new_ratio > 1.0) || (ratio > 1.0 && new_ratio < 1.0);
        if self.tolerances.accept(new_ratio) || is_reversed {
            return Ok(current);
        }
        let replicas = rounded_up(new_ratio * count(metrics.len()));
        // The number of pods that were counted can reverse the direction, too.
        let is_reversed = (new_ratio < 1.0 && replicas > current) || (new_ratio > 1.0 && replicas < current);
        Ok(if is_reversed { current } else { replicas })
    }

    /// Groups the pods, and removes the metrics of those that do not count.
    fn group(&self, metrics: &mut PodMetrics, resource: &str) -> Result<Groups, String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.to_owned());
        }
        let mut groups = Groups::default();
        for pod in self.pods {
            let name = pod.metadata.name.clone();
            if pod.metadata.deletion_timestamp.is_some() || pod.status.phase == "Failed" {
                groups.ignored.insert(name);
            } else if pod.status.phase == "Pending" {
                groups.unready.insert(name);
            } else {
                match metrics.get(&name) {
                    None => drop(groups.missing.insert(name)),
                    Some(metric) if resource == "cpu" && self.is_unready(pod, metric) => {
                        groups.unready.insert(name);
                    }
                    Some(_) => groups.ready = groups.ready.saturating_add(1),
                }
            }
        }
        metrics.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
        if metrics.is_empty() { Err(NO_METRICS.to_owned()) } else { Ok(groups) }
    }

    /// Whether the processor time of a pod says nothing about its load yet.
    fn is_unready(&self, pod: &Pod, metric: &PodMetric) -> bool {
        let (Some(condition), Some(started)) = (ready_condition(pod), pod.status.start_time) else { return true };
        let changed = condition.last_transition_time.unwrap_or(Timestamp::ZERO);
        let is_false = condition.status == "False";
        if started.plus(self.cpu_initialization) > self.now {
            return is_false || metric.at < changed.plus(metric.window);
        }
        is_false && started.plus(self.initial_readiness_delay) > changed
    }

    /// Requests in thousandths by pod.
    fn requests(&self, container: &str, resource: &str) -> Result<BTreeMap<Text, i64>, String> {
        let request = |pod: &Arc<Pod>| Ok((pod.metadata.name.clone(), request(pod, container, resource)?));
        self.pods.iter().map(request).collect()
    }
}

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    pod.status.conditions.iter().find(|it| it.condition_type == "Ready")
}

/// The request of a pod, or of one of its containers. A request of the pod as a whole replaces those of containers.
fn request(pod: &Pod, container: &str, resource: &str) -> Result<i64, String> {
    let name = &pod.metadata.name;
    let has_own = pod.spec.resources.as_ref().is_some_and(|it| it.requests.keys().any(|name| is_pod_level(name)));
    if has_own && container.is_empty() {
        let all = resources::requests(&pod.spec, resources::Options::default());
        let own = all.get(resource).map(Quantity::milli_value);
        return own.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"));
    }
    let amount = |it: &Container| {
        let missing = || format!("missing request for {resource} in container {} of Pod {name}", it.name);
        it.resources.requests.get(resource).map(Quantity::milli_value).ok_or_else(missing)
    };
    let sidecars = pod.spec.init_containers.iter().filter(|it| is_sidecar(it));
    let mut containers = pod.spec.containers.iter().chain(sidecars);
    if container.is_empty() {
        return containers.try_fold(0_i64, |sum, it| Ok(sum.saturating_add(amount(it)?)));
    }
    match containers.find(|it| it.name == container) {
        Some(found) => amount(found),
        None => Err(format!("container {container} not found in Pod {name}")),
    }
}

/// Ratio of utilization to target, utilization in percent, and average usage.
fn utilization(
    metrics: &PodMetrics,
    requests: &BTreeMap<Text, i64>,
    target_percent: i32,
) -> Result<(f64, i32, i64), String> {
    let known = metrics.iter().filter_map(|(pod, metric)| Some((metric.value, *requests.get(pod)?)));
    let (mut used, mut requested, mut pods) = (0_i128, 0_i128, 0_i128);
    for (value, request) in known {
        used = used.saturating_add(i128::from(value));
        requested = requested.saturating_add(i128::from(request));
        pods = pods.saturating_add(1);
    }
    let percent = used.saturating_mul(100).checked_div(requested);
    let percent = percent.ok_or_else(|| "no metrics returned matched known pods".to_owned())?;
    let percent = i32::try_from(percent).unwrap_or(i32::MAX);
    let average = clamped(used.checked_div(pods).unwrap_or_default());
    Ok((f64::from(percent) / f64::from(target_percent), percent, average))
}

/// Ratio of the average value to the target, and that average.
fn usage(metrics: &PodMetrics, target: i64) -> (f64, i64) {
    let sum = metrics.values().fold(0_i128, |sum, it| sum.saturating_add(i128::from(it.value)));
    let average = clamped(sum.checked_div(i128::try_from(metrics.len()).unwrap_or(1)).unwrap_or_default());
    (float(average) / float(target), average)
}

fn clamped(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[expect(clippy::cast_precision_loss, reason = "Kubernetes computes ratios as floats")]
fn float(value: i64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "there are fewer pods than 2^52")]
fn count(value: usize) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, reason = "out of range, the conversion stays at the end of the range")]
fn whole(value: f64) -> i64 {
    value as i64
}

/// The next whole number; numbers beyond the range stay at its end.
#[expect(clippy::cast_possible_truncation, reason = "out of range, the conversion stays at the end of the range")]
fn rounded_up(value: f64) -> i32 {
    value.ceil() as i32
}

#[cfg(test)]
mod tests;

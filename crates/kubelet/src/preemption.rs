//! Room for critical pods: which others end so that a node can take one.
//!
//! A critical pod, such as a static pod, is not rejected for lack of resources. Other or less important pods
//! are evicted: those without requests first, and as few as possible. Follows `preemption/preemption.go` of
//! Kubernetes' kubelet.

use std::cmp::Ordering;
use std::fmt::Write as _;

use api::core::v1::Pod;
use api::json::Text;
use matching::resources::{QosClass, qos_class};

use crate::admission::{Rejection, is_static, requested};
use crate::static_pods::is_mirror;

/// Reason of an evicted pod.
pub const REASON: &str = "Preempting";
/// Message of the event and the status.
pub const MESSAGE: &str = "Preempted in order to admit critical pod";
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The pods that must end so that a pod can be admitted, of `others` in the order of their creation.
///
/// # Errors
/// The reason why it still cannot be admitted.
pub fn victims<'p>(
    pod: &Pod,
    objections: Vec<Rejection>,
    others: impl Iterator<Item = &'p Pod>,
) -> Result<Vec<&'p Pod>, Rejection> {
    let (short, hard): (Vec<_>, Vec<_>) = objections.into_iter().partition(|it| it.shortage.is_some());
    match (is_critical(pod), short, hard.into_iter().next()) {
        (false, short, hard) => match short.into_iter().next().or(hard) {
            Some(first) => Err(first),
            None => Ok(Vec::new()),
        },
        (true, _, Some(hard)) => Err(hard),
        (true, short, None) => {
            let needs = Needs(short.into_iter().filter_map(|it| it.shortage).collect());
            choose(pod, others, &needs).map_err(|missing| {
                let message = format!(
                    "Unexpected error while attempting to recover from admission failure: preemption: error finding a set \
                     of pods to preempt: no set of running pods found to reclaim resources: {missing}"
                );
                Rejection::new("UnexpectedAdmissionError", message)
            })
        }
    }
}

fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || is_mirror(pod) || pod.spec.priority.is_some_and(|it| it >= CRITICAL_PRIORITY)
}

fn gives_way(other: &Pod, to: &Pod) -> bool {
    is_critical(to) && !is_critical(other)
        || matches!((to.spec.priority, other.spec.priority), (Some(high), Some(low)) if high > low)
}

fn choose<'p>(pod: &Pod, others: impl Iterator<Item = &'p Pod>, needs: &Needs) -> Result<Vec<&'p Pod>, Needs> {
    let (mut best_effort, mut burstable, mut guaranteed) = (Vec::new(), Vec::new(), Vec::new());
    for other in others.filter(|other| gives_way(other, pod)) {
        match qos_class(&other.spec) {
            QosClass::BestEffort => best_effort.push(other),
            QosClass::Burstable => burstable.push(other),
            QosClass::Guaranteed => guaranteed.push(other),
        }
    }
    let all = [best_effort.as_slice(), &burstable, &guaranteed].concat();
    let missing = needs.without(&all);
    if !missing.0.is_empty() {
        return Err(missing);
    }
    // Pods of a class to evict if all of the lower ones were evicted; then the lower ones are spared again.
    let cheaper = [best_effort.as_slice(), &burstable].concat();
    let guaranteed = nearest(guaranteed, needs.without(&cheaper))?;
    let burstable = nearest(burstable, needs.without(&[best_effort.as_slice(), &guaranteed].concat()))?;
    let best_effort = nearest(best_effort, needs.without(&[burstable.as_slice(), &guaranteed].concat()))?;
    Ok([best_effort, burstable, guaranteed].concat())
}

/// Pods that together free the required resources, each time the one that is closest to the rest.
fn nearest(mut pods: Vec<&Pod>, mut needs: Needs) -> Result<Vec<&Pod>, Needs> {
    let mut chosen = Vec::new();
    while !needs.0.is_empty() {
        let mut best: Option<(usize, f64, &Pod)> = None;
        for (index, pod) in pods.iter().enumerate() {
            let distance = needs.distance(pod);
            let is_better = best.is_none_or(|(_, known, other)| match distance.total_cmp(&known) {
                Ordering::Less => true,
                Ordering::Equal => asks_no_more(pod, other),
                Ordering::Greater => false,
            });
            if is_better {
                best = Some((index, distance, *pod));
            }
        }
        let Some((index, _, pod)) = best else { return Err(needs) };
        needs = needs.without(&[pod]);
        chosen.push(pods.swap_remove(index));
    }
    Ok(chosen)
}

fn asks_no_more(pod: &Pod, other: &Pod) -> bool {
    let amounts = |pod: &Pod| (request(pod, "memory"), request(pod, "cpu"));
    amounts(pod) <= amounts(other)
}

fn request(pod: &Pod, resource: &str) -> i64 {
    if resource == "pods" { 1 } else { requested(pod).get(resource) }
}

/// Amounts of resources to free.
#[derive(Debug)]
struct Needs(Vec<(Text, i64)>);

impl Needs {
    /// Returns the remaining amounts after the eviction of these pods.
    fn without(&self, pods: &[&Pod]) -> Needs {
        let left = self.0.iter().map(|(name, amount)| {
            let freed = pods.iter().map(|pod| request(pod, name)).fold(0, i64::saturating_add);
            (name.clone(), amount.saturating_sub(freed))
        });
        Needs(left.filter(|(_, amount)| *amount > 0).collect())
    }

    /// Distance between the resources of this pod and the required ones: each resource counts by the missing
    /// share.
    fn distance(&self, pod: &Pod) -> f64 {
        let share = |(name, amount): &(Text, i64)| {
            let left = amount.saturating_sub(request(pod, name)).max(0);
            (left as f64 / *amount as f64).powi(2)
        };
        self.0.iter().map(share).sum()
    }
}

impl std::fmt::Display for Needs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('[')?;
        self.0.iter().try_for_each(|(name, amount)| write!(f, "(res: {name}, q: {amount}), "))?;
        f.write_char(']')
    }
}

#[cfg(test)]
mod tests;

//! Use of device constraints, and the waiting time of claims with expressions.
//!
//! The metrics that KEP-5254 proposes. Its labels, the names of claim and template, are unbounded; here they
//! are namespace and template, and combinations beyond a thousand count as `other`.

use locks::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use api::core::v1::Pod;
use api::json::Text;
use api::resource::v1::{DeviceConstraint, ResourceClaim};
use client::Document;
use client::informer::{Change, Informer};
use telemetry::metrics::{Family, Histogram, Registry};
use tokio::time::Instant;

use super::CLAIM_NAME;

/// Maximum number of label pairs.
const SERIES_MAX: usize = 1000;
const OTHER: &str = "other";
/// From 1 ms to 10 minutes.
const SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];

/// A claim's namespace, and its template; empty for a claim without a template.
type Labels = (String, String);

/// Shows the metrics of all claims.
pub(super) fn publish(registry: &Registry, claims: &Informer<Document<ResourceClaim>>, pods: &Informer<Pod>) {
    let count = |name: &'static str, help: &'static str, is_meant: fn(&DeviceConstraint) -> bool| {
        let (claims, pods) = (claims.clone(), pods.clone());
        registry.computed(name, help, &["namespace", "template_name"], move || {
            let all = claims.store().list();
            let meant = all.iter().filter(|claim| claim.spec.devices.constraints.iter().any(is_meant));
            counted(meant.map(|claim| labels_of(claim, &pods)))
        });
    };
    count(
        "resourceclaim_controller_with_cel_constraint",
        "[ALPHA] Number of ResourceClaims with a CEL device constraint",
        |constraint| constraint.cel.is_some(),
    );
    count(
        "resourceclaim_controller_with_match_attribute_constraint",
        "[ALPHA] Number of ResourceClaims with a matchAttribute device constraint",
        |constraint| constraint.match_attribute.is_some(),
    );
    let waits = Waits {
        durations: registry.family(
            "resourceclaim_controller_with_cel_constraint_latency",
            "[ALPHA] Seconds from when a ResourceClaim with a CEL device constraint is seen until it is allocated",
            &["namespace", "template_name"],
            SECONDS,
        ),
        since: Mutex::default(),
        known: Mutex::default(),
    };
    let pods = pods.clone();
    claims.on_change(move |_, change| waits.see(change, &pods));
}

/// The template is that of the pod for which the claim was created.
fn labels_of(claim: &ResourceClaim, pods: &Informer<Pod>) -> Labels {
    let namespace = &claim.metadata.namespace;
    let template = || {
        let owner = claim.metadata.controller().filter(|owner| owner.kind == "Pod")?;
        let pod = pods.store().get(namespace, &owner.name)?;
        let of_pod = claim.metadata.annotations.get(CLAIM_NAME)?;
        pod.spec.resource_claims.iter().find(|it| it.name == *of_pod)?.resource_claim_template_name.clone()
    };
    (namespace.to_string(), template().unwrap_or_default().to_string())
}

/// Counts by label pair, limited in number.
fn counted(labels: impl Iterator<Item = Labels>) -> Vec<(Vec<String>, f64)> {
    let mut counts: BTreeMap<Labels, u32> = BTreeMap::new();
    for labels in labels {
        let is_full = counts.len() >= SERIES_MAX && !counts.contains_key(&labels);
        let labels = if is_full { (OTHER.to_owned(), OTHER.to_owned()) } else { labels };
        let count = counts.entry(labels).or_default();
        *count = count.saturating_add(1);
    }
    counts.into_iter().map(|((namespace, template), count)| (vec![namespace, template], f64::from(count))).collect()
}

/// Claims with expressions that have no devices yet.
struct Waits {
    durations: Arc<Family<Histogram>>,
    since: Mutex<HashMap<Text, Instant>>,
    known: Mutex<HashSet<Labels>>,
}

impl Waits {
    fn see(&self, change: &Change<Document<ResourceClaim>>, pods: &Informer<Pod>) {
        let claim = change.newest();
        let uid = &claim.metadata.uid;
        let mut since = self.since.lock();
        if matches!(change, Change::Deleted(_)) {
            since.remove(uid);
        } else if claim.status.allocation.is_none() {
            if claim.spec.devices.constraints.iter().any(|it| it.cel.is_some()) {
                since.entry(uid.clone()).or_insert_with(Instant::now);
            }
        } else if let Some(since) = since.remove(uid) {
            let (namespace, template) = self.bounded(labels_of(claim, pods));
            self.durations.with(&[&namespace, &template]).observe_duration(since.elapsed());
        }
    }

    fn bounded(&self, labels: Labels) -> Labels {
        let mut known = self.known.lock();
        if known.len() < SERIES_MAX || known.contains(&labels) {
            known.insert(labels.clone());
            return labels;
        }
        (OTHER.to_owned(), OTHER.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_series_are_combined() {
        let label = |number: usize| ("default".to_owned(), format!("t{number:05}"));
        let counts = counted((0..1200).chain([0, 1]).map(label));
        assert_eq!(counts.len(), SERIES_MAX + 1);
        let of = |name: &str| counts.iter().find(|(labels, _)| labels.iter().any(|it| it == name)).unwrap().1;
        assert!((of("t00000") - 2.0).abs() < f64::EPSILON);
        assert!((of(OTHER) - 200.0).abs() < f64::EPSILON);
    }
}

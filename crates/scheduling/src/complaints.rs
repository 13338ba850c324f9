//! Complaints behind the rejection of a pod, each reported once per pod.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::json::Text;
pub use matching::complaints::Complaint;
use matching::complaints::{REPORTED_MAX, about_gates, about_labels, about_taint};
use matching::taints;

use crate::cluster::{Cluster, PodInfo};
use crate::diagnosis::Diagnosis;

/// The complaints that were reported before.
pub(crate) type ReportedComplaints = BTreeSet<(Text, Text)>;

/// Returns the complaints behind a rejection that were not reported before; similar ones are merged, and their
/// nodes counted.
pub(crate) fn find(
    pod: &PodInfo,
    diagnosis: &Diagnosis,
    cluster: &Cluster,
    reported: &mut ReportedComplaints,
) -> Vec<Complaint> {
    let mut new = NewComplaints { all: Vec::new(), places: HashMap::new(), reported };
    if !can_fail(pod) {
        return new.all;
    }
    // Nodes that have the same taints have the same complaints about them.
    let mut of_sets: HashMap<_, Vec<usize>> = HashMap::new();
    for node in diagnosis.by_node.iter().filter_map(|(id, _)| cluster.cache.node(*id)) {
        let (name, matching) = (node.name(), &node.object.matching);
        match of_sets.get(&Arc::as_ptr(&matching.taints)) {
            Some(places) => places.iter().for_each(|place| new.count(*place)),
            None => {
                let hard = matching.taints.taints().iter().filter(|taint| taints::is_hard(taint));
                let found = hard.flat_map(|taint| about_taint(pod.matcher.tolerations(), name, taint));
                let places = found.filter_map(|complaint| new.add(complaint)).collect();
                of_sets.insert(Arc::as_ptr(&matching.taints), places);
            }
        }
        for complaint in about_labels(&pod.matcher, matching) {
            new.add(complaint);
        }
    }
    new.all
}

/// Returns the fields of a pod that have no effect because their gate is off, unless they were reported before.
pub(crate) fn gates_off(pod: &PodInfo, reported: &mut ReportedComplaints) -> Vec<Complaint> {
    let mut new = NewComplaints { all: Vec::new(), places: HashMap::new(), reported };
    for complaint in about_gates(pod.spec(), &pod.matcher, "scheduler") {
        new.add(complaint);
    }
    new.all
}

/// Complaints that were not reported before.
struct NewComplaints<'t> {
    all: Vec<Complaint>,
    places: HashMap<(Text, Text), usize>,
    reported: &'t mut ReportedComplaints,
}

impl NewComplaints<'_> {
    /// Adds a complaint, or counts its node. Returns the place of the complaint, if it is reported.
    fn add(&mut self, complaint: Complaint) -> Option<usize> {
        let key = complaint.key();
        if let Some(place) = self.places.get(&key).copied() {
            self.count(place);
            return Some(place);
        }
        if self.all.len() >= REPORTED_MAX || !self.reported.insert(key.clone()) {
            return None;
        }
        let place = self.all.len();
        self.places.insert(key, place);
        self.all.push(complaint);
        Some(place)
    }

    fn count(&mut self, place: usize) {
        if let Some(complaint) = self.all.get_mut(place) {
            complaint.add_nodes(1);
        }
    }
}

/// Whether the pod has expressions or compares versions.
fn can_fail(pod: &PodInfo) -> bool {
    let spec = pod.spec();
    let required = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = required.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|selector| selector.node_selector_terms.as_slice()).unwrap_or_default();
    let is_semver = |operator: &str| operator.starts_with("Semver");
    spec.tolerations.iter().any(|it| !it.expression.is_empty() || is_semver(&it.operator))
        || terms.iter().any(|term| {
            !term.match_cel_expressions.is_empty() || term.match_expressions.iter().any(|it| is_semver(&it.operator))
        })
}

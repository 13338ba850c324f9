//! Results of the scheduler for each node, and the details of taints, terms and volumes.

use std::collections::HashMap;

use api::well_known::{EFFECT_NO_SCHEDULE, NO_PROVISIONER, TAINT_UNSCHEDULABLE};
use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Taint};
use api::json::Text;
use matching::explain::{Explainer, Reason, TaintReason, TermReason};
use matching::volumes::{Seeker, VolumeMatcher, class_of_claim};
use matching::{CompileCache, Features, Node, PodMatcher, taints, topology, volumes};

use scheduling::explain::{Explanation, NodeExplanation};

use super::cluster::Cluster;
use super::devices::{DeviceReport, Devices};

/// Result of a node.
#[derive(Debug)]
pub(super) struct NodeReport {
    /// Name of the node.
    pub(super) name: String,
    /// The node is cordoned, and the pod does not tolerate that.
    pub(super) is_cordoned: bool,
    /// Taints and the results of the tolerations.
    pub(super) taints: Vec<(Taint, TaintReason)>,
    /// The first taint that keeps the pod away.
    pub(super) untolerated: Option<usize>,
    /// `spec.nodeSelector`.
    pub(super) node_selector: Vec<Reason>,
    /// The required terms.
    pub(super) required: Option<Vec<TermReason>>,
    /// Node selector and required terms hold.
    pub(super) affinity_holds: bool,
    /// The preferred terms.
    pub(super) preferred: Vec<TermReason>,
    /// Score of the preferred terms.
    pub(super) score: i64,
    /// Parse errors of preferred terms.
    pub(super) preferred_error: Option<String>,
    /// The pod's claims.
    pub(super) volumes: Vec<VolumeReport>,
    /// Results of the scheduler's plugins; `None` if the pod is rejected regardless of the node.
    pub(super) plugins: Option<NodeExplanation>,
    /// Result of the pod's device claims.
    pub(super) devices: DeviceReport,
}

/// Result of a claim of the pod on a node.
#[derive(Debug)]
pub(super) struct VolumeReport {
    /// The claim.
    pub(super) claim: String,
    /// The volume that it has or would get.
    pub(super) volume: Option<String>,
    /// The pod can have it here.
    pub(super) holds: bool,
    /// In words.
    pub(super) detail: String,
    /// The volume's terms.
    pub(super) terms: Option<Vec<TermReason>>,
}

impl NodeReport {
    /// Whether the pod fits.
    pub(super) fn fits(&self) -> bool {
        self.plugins.as_ref().is_some_and(NodeExplanation::fits)
    }

    /// Number of taints with the effect `PreferNoSchedule` that are not tolerated.
    pub(super) fn soft_count(&self) -> usize {
        let soft = self.taints.iter().filter(|(taint, _)| taints::is_soft(taint));
        soft.filter(|(_, reason)| reason.tolerated_by.is_none()).count()
    }
}

/// Judges all nodes.
pub(super) fn judge(
    cluster: &Cluster,
    cache: &CompileCache,
    features: Features,
    known: &mut Explanation,
    devices: &Devices,
) -> Vec<NodeReport> {
    let mut by_plugins: HashMap<Text, NodeExplanation> =
        known.nodes.drain(..).map(|node| (node.node.clone(), node)).collect();
    let matcher = PodMatcher::new(&cluster.spec, cache, &features);
    let explainer = Explainer { spec: &cluster.spec, cache, features };
    let sets = taints::Sets::new();
    let volumes: Vec<(&PersistentVolume, VolumeMatcher)> =
        cluster.volumes.iter().map(|volume| (volume, VolumeMatcher::new(volume, cache, &features))).collect();
    cluster
        .nodes
        .iter()
        .map(|view| {
            let node = Node::new(view, &sets);
            let verdict = matcher.taints(&node.taints);
            let cordon = Taint {
                key: TAINT_UNSCHEDULABLE.into(),
                effect: EFFECT_NO_SCHEDULE.into(),
                ..Taint::default()
            };
            NodeReport {
                name: node.name.to_string(),
                is_cordoned: view.spec.unschedulable && !matcher.tolerations().tolerate(&cordon),
                taints: view.spec.taints.iter().map(|taint| (taint.clone(), explainer.taint(taint))).collect(),
                untolerated: verdict.first_untolerated.map(usize::from),
                node_selector: explainer.node_selector(&node),
                required: explainer.required(&node),
                affinity_holds: matcher.required().matches(&node),
                preferred: explainer.preferred(&node),
                score: matcher.preferred().score(&node),
                preferred_error: (!matcher.preferred().errors().is_empty())
                    .then(|| matcher.preferred().errors().message()),
                volumes: claims(cluster, &explainer, &volumes, &node),
                plugins: by_plugins.remove(&node.name),
                devices: devices.judge(view, &node),
            }
        })
        .collect()
}

fn claims(
    cluster: &Cluster,
    explainer: &Explainer<'_>,
    all: &[(&PersistentVolume, VolumeMatcher)],
    node: &Node,
) -> Vec<VolumeReport> {
    let mut taken: Vec<&str> = Vec::new();
    let mut reports = Vec::new();
    for (name, claim) in cluster.claims_of_pod() {
        let report = match claim {
            None => VolumeReport {
                claim: name.to_owned(),
                volume: None,
                holds: false,
                detail: "the claim does not exist".to_owned(),
                terms: None,
            },
            Some(claim) => one_claim(cluster, explainer, all, node, claim, &taken),
        };
        if let Some(volume) = &report.volume
            && let Some((volume, _)) = all.iter().find(|(it, _)| it.metadata.name == *volume)
        {
            taken.push(&volume.metadata.name);
        }
        reports.push(report);
    }
    reports
}

fn one_claim(
    cluster: &Cluster,
    explainer: &Explainer<'_>,
    all: &[(&PersistentVolume, VolumeMatcher)],
    node: &Node,
    claim: &PersistentVolumeClaim,
    taken: &[&str],
) -> VolumeReport {
    let report = |volume: Option<&PersistentVolume>, holds: bool, detail: String| VolumeReport {
        claim: claim.metadata.name.to_string(),
        volume: volume.map(|volume| volume.metadata.name.to_string()),
        holds,
        detail,
        terms: volume.and_then(|volume| explainer.volume(volume, node)),
    };
    let bound = &claim.spec.volume_name;
    if !bound.is_empty() {
        return match all.iter().find(|(volume, _)| volume.metadata.name == *bound) {
            None => report(None, false, format!("volume {bound} does not exist")),
            Some((volume, matcher)) => match matcher.check(&node.labels) {
                Ok(()) => report(Some(volume), true, "the volume is accessible".to_owned()),
                Err(error) => report(Some(volume), false, format!("volume node affinity: {error}")),
            },
        };
    }
    let offered = all.iter().map(|(volume, matcher)| (*volume, matcher));
    let is_taken = |volume: &PersistentVolume| taken.contains(&volume.metadata.name.as_str());
    match volumes::find(claim, offered, Seeker::Scheduler(&node.labels), is_taken) {
        Err(error) => return report(None, false, error.to_string()),
        Ok(Some(volume)) => return report(Some(volume), true, "would be bound".to_owned()),
        Ok(None) => {}
    }
    let class = class_of_claim(claim);
    let found = cluster.classes.iter().find(|it| it.metadata.name == class && !class.is_empty());
    match found {
        Some(it) if it.provisioner != NO_PROVISIONER => {
            if topology::allows(&it.allowed_topologies, &node.labels) {
                report(None, true, format!("would be provisioned by {}", it.provisioner))
            } else {
                report(None, false, format!("class {class} does not provision volumes in this topology"))
            }
        }
        _ => report(None, false, "no volume fits the claim here".to_owned()),
    }
}

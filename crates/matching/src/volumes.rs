//! Matching of claims and volumes, and of volumes and nodes.
//!
//! Follows `component-helpers/storage/volume`: scheduler and binder share these rules.

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::json::Text;
use api::labels::{Selector, SelectorError};
use api::meta::v1::StringMap;
use api::quantity::Quantity;
use api::well_known::ANNOTATION_STORAGE_CLASS_BETA;

use crate::expressions::CompileCache;
use crate::features::Features;
use crate::node::{Labels, Node};
use crate::node_selector::NodeSelector;

/// Matches the nodes from which a volume is accessible: built once per volume.
#[derive(Debug, Default)]
pub struct VolumeMatcher {
    pub(crate) selector: Option<NodeSelector>,
}

/// The party that searches for a volume.
#[derive(Debug, Clone, Copy)]
pub enum Seeker<'n> {
    /// The scheduler, for a node with these labels.
    Scheduler(&'n Labels),
    /// The binder; claims that wait for their first pod get only volumes that were bound to them before.
    Binder {
        /// Whether the claim waits for its first pod.
        waits_for_pod: bool,
    },
}

impl VolumeMatcher {
    /// Builds the matcher of a volume.
    pub fn new(volume: &PersistentVolume, cache: &CompileCache, features: &Features) -> Self {
        let required = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        VolumeMatcher { selector: required.map(|selector| NodeSelector::new(selector, cache, features)) }
    }

    /// Checks that the volume can be reached from a node with these labels.
    ///
    /// # Errors
    /// The reason, in Kubernetes' words.
    pub fn check(&self, labels: &Labels) -> Result<(), String> {
        let Some(selector) = &self.selector else { return Ok(()) };
        match selector.try_matches(&nameless(labels)) {
            Ok(true) => Ok(()),
            Ok(false) => Err("no matching NodeSelectorTerms".to_owned()),
            Err(errors) => Err(errors.message()),
        }
    }
}

/// Kubernetes matches volumes by labels alone: a requirement on the node's name always holds.
pub(crate) fn nameless(labels: &Labels) -> Node {
    Node { labels: labels.clone(), ..Node::default() }
}

/// Whether a volume is bound to a claim, by the user or by a controller.
pub fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|bound| {
        bound.name == claim.metadata.name
            && bound.namespace == claim.metadata.namespace
            && (bound.uid.is_empty() || bound.uid == claim.metadata.uid)
    })
}

/// The volume that a claim gets: the one that is bound to it, or else the smallest that is large enough.
///
/// # Errors
/// The claim's selector is not valid.
pub fn find<'v>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = (&'v PersistentVolume, &'v VolumeMatcher)>,
    seeker: Seeker<'_>,
    is_excluded: impl Fn(&PersistentVolume) -> bool,
) -> Result<Option<&'v PersistentVolume>, SelectorError> {
    let selector = claim.spec.selector.as_ref().map(api::meta::v1::LabelSelector::to_selector).transpose()?;
    let zero = Quantity::default();
    let wanted = claim.spec.resources.requests.get("storage").unwrap_or(&zero);
    let mut smallest: Option<(&PersistentVolume, &Quantity)> = None;
    for (volume, matcher) in volumes {
        let capacity = volume.spec.capacity.get("storage").unwrap_or(&zero);
        let is_bound = is_bound_to(volume, claim);
        if is_excluded(volume)
            || (volume.spec.claim_ref.is_some() && !is_bound)
            || capacity < wanted
            || mode(volume.spec.volume_mode.as_ref()) != mode(claim.spec.volume_mode.as_ref())
            || attributes_class(&volume.spec.volume_attributes_class_name)
                != attributes_class(&claim.spec.volume_attributes_class_name)
            || volume.metadata.is_deleting()
        {
            continue;
        }
        let is_reachable = match seeker {
            Seeker::Scheduler(labels) => matcher.check(labels).is_ok(),
            Seeker::Binder { .. } => true,
        };
        if is_bound {
            // A volume that is bound to the claim but out of reach leaves the claim without one.
            return Ok(is_reachable.then_some(volume));
        }
        let is_offered = match seeker {
            Seeker::Scheduler(_) => has_access_modes(claim, volume),
            Seeker::Binder { waits_for_pod } => !waits_for_pod,
        };
        if is_reachable
            && is_offered
            && is_available(volume, claim, selector.as_ref())
            && smallest.is_none_or(|(_, least)| least > capacity)
        {
            smallest = Some((volume, capacity));
        }
    }
    Ok(smallest.map(|(volume, _)| volume))
}

/// Class name of a claim; empty if it has none.
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
    annotated_class(&claim.metadata.annotations).unwrap_or(class)
}

/// The name of a volume's class.
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    annotated_class(&volume.metadata.annotations).unwrap_or(&volume.spec.storage_class_name)
}

/// The deprecated annotation for a class, which still takes precedence.
fn annotated_class(annotations: &StringMap) -> Option<&str> {
    annotations.get(ANNOTATION_STORAGE_CLASS_BETA).map(Text::as_str)
}

fn is_available(volume: &PersistentVolume, claim: &PersistentVolumeClaim, selector: Option<&Selector>) -> bool {
    volume.status.phase == "Available"
        && selector.is_none_or(|selector| selector.matches(&volume.metadata.labels))
        && class_of_volume(volume) == class_of_claim(claim)
}

fn has_access_modes(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode))
}

fn mode(mode: Option<&Text>) -> &str {
    mode.map_or("Filesystem", Text::as_str)
}

fn attributes_class(class: &Option<Text>) -> &str {
    class.as_deref().unwrap_or_default()
}

//! Number of pods to create, or pods to delete.

use std::collections::HashMap;
use std::sync::Arc;

use api::core::v1::Pod;
use api::time::Timestamp;

use crate::machinery::pods::{RankedPod, is_active, sort_for_deletion};

/// No more than this is made or deleted at a time.
const BURST: usize = 500;

/// Change of the number of pods.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// The number is correct.
    None,
    /// Number of missing pods.
    Create(usize),
    /// These are too many.
    Delete(Vec<Arc<Pod>>),
}

/// Compares the active pods with the wanted number. `related` are all pods of ReplicaSets with the same controller: a
/// node that runs many of them loses some first.
pub(crate) fn decide(wanted: i32, active: &[Arc<Pod>], related: &[Arc<Pod>], now: Timestamp) -> Change {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if active.len() < wanted {
        return Change::Create(wanted.saturating_sub(active.len()).min(BURST));
    }
    let surplus = active.len().saturating_sub(wanted).min(BURST);
    if surplus == 0 {
        return Change::None;
    }
    let mut crowds: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        let crowd = crowds.entry(&pod.spec.node_name).or_default();
        *crowd = crowd.saturating_add(1);
    }
    let crowd = |pod: &Pod| crowds.get(pod.spec.node_name.as_str()).copied().unwrap_or(0);
    let mut ranked: Vec<RankedPod> =
        active.iter().map(|pod| RankedPod { pod: pod.clone(), crowd: crowd(pod) }).collect();
    sort_for_deletion(&mut ranked, now);
    Change::Delete(ranked.into_iter().take(surplus).map(|ranked| ranked.pod).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(count: usize) -> Vec<Arc<Pod>> {
        let named = |number: usize| {
            let mut pod = Pod::default();
            pod.metadata.name = number.to_string().into();
            pod.spec.node_name = if number.is_multiple_of(3) { "crowded".into() } else { number.to_string().into() };
            Arc::new(pod)
        };
        (0..count).map(named).collect()
    }

    #[test]
    fn the_difference_is_made_up_within_bounds() {
        let now = Timestamp::ZERO;
        assert_eq!(decide(3, &pods(3), &[], now), Change::None);
        assert_eq!(decide(5, &pods(3), &[], now), Change::Create(2));
        assert_eq!(decide(5000, &pods(3), &[], now), Change::Create(500));
        assert!(matches!(decide(-1, &pods(600), &[], now), Change::Delete(pods) if pods.len() == 500));
    }

    #[test]
    fn crowded_nodes_lose_pods_first() {
        let all = pods(6);
        let Change::Delete(deleted) = decide(4, &all, &all, Timestamp::ZERO) else { panic!("none is deleted") };
        assert!(deleted.iter().all(|pod| pod.spec.node_name == "crowded"), "{deleted:?}");
    }
}

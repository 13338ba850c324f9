//! The search for nodes that fit: from where the last one ended, until enough are found.

use std::sync::Arc;

use super::Filters;
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::diagnosis::Diagnosis;
use crate::framework::{Code, Status};
use crate::profile::Profile;

/// Below this many nodes all are looked at.
const NODES_MIN: usize = 100;
const PERCENTAGE_MIN: usize = 5;

/// A search for nodes.
#[derive(Debug, Clone, Copy)]
pub struct Search<'c> {
    /// The plugins.
    pub profile: &'c Profile,
    /// Everything they look at.
    pub cluster: &'c Cluster,
    /// Where in the order of nodes to begin.
    pub start: usize,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Found {
    /// The nodes that fit.
    pub feasible: Vec<NodeId>,
    /// What was said against others.
    pub diagnosis: Diagnosis,
    /// How many nodes were looked at.
    pub evaluated: usize,
}

/// How many nodes that fit are enough.
pub fn nodes_to_find(all: usize, percentage: Option<u32>) -> usize {
    if all < NODES_MIN {
        return all;
    }
    let adaptive = || 50_usize.saturating_sub(all.checked_div(125).unwrap_or(0)).max(PERCENTAGE_MIN);
    let percentage = match percentage {
        Some(percentage) if percentage > 0 => percentage as usize,
        _ => adaptive(),
    };
    if percentage >= 100 {
        return all;
    }
    all.saturating_mul(percentage).checked_div(100).unwrap_or(0).max(NODES_MIN)
}

impl Search<'_> {
    /// The nodes that fit the pod.
    ///
    /// # Errors
    /// Something went wrong; the attempt ends.
    pub fn run(&self, pod: &PodInfo) -> Result<Found, Status> {
        let cache = &self.cluster.cache;
        let mut found = Found::default();
        found.diagnosis.nodes = cache.order().len();
        let filters = match Filters::new(self.profile, pod, self.cluster) {
            Ok(filters) => filters,
            Err(refused) if !refused.status.code.is_rejection() => {
                return Err(pre_filter_failed(refused.status));
            }
            Err(refused) => {
                found.diagnosis.plugins.extend(&refused.narrowed_by);
                found.diagnosis.add_plugin(&refused.status);
                found.diagnosis.pre_filter = Some(refused.status.message());
                found.diagnosis.others = Some(Arc::new(refused.status));
                return Ok(found);
            }
        };
        // Room was made for the pod: that node is most likely the only one.
        let nominated = self.cluster.nominated.node_of(&pod.uid).or(Some(&pod.nominated_node));
        if let Some(node) = nominated.and_then(|name| cache.node_named(name))
            && filters.ask_with_nominated(pod, node, self.cluster).is_ok()
        {
            found.feasible.push(node.id);
            found.evaluated = 1;
            return Ok(found);
        }
        match &filters.nodes {
            Some(names) => {
                let plugins: Vec<&str> = filters.narrowed_by.iter().copied().collect();
                let text = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
                found.diagnosis.others = Some(Arc::new(Status::unresolvable(text)));
                found.diagnosis.plugins.extend(&filters.narrowed_by);
                let nodes = names.iter().filter_map(|name| cache.node_named(name));
                self.look_at(pod, &filters, nodes, names.len(), &mut found)?;
            }
            None => {
                let order = cache.order();
                let start = self.start.checked_rem(order.len()).unwrap_or(0);
                let (before, after) = order.split_at_checked(start).unwrap_or((&[], order));
                let nodes = after.iter().chain(before).filter_map(|id| cache.node(*id));
                let enough = nodes_to_find(order.len(), self.profile.percentage_of_nodes_to_score);
                self.look_at(pod, &filters, nodes, enough, &mut found)?;
            }
        }
        Ok(found)
    }

    fn look_at<'n>(
        &self,
        pod: &PodInfo,
        filters: &Filters<'_>,
        nodes: impl Iterator<Item = &'n NodeInfo>,
        enough: usize,
        found: &mut Found,
    ) -> Result<(), Status> {
        let mut statuses = Statuses::default();
        for node in nodes {
            if found.feasible.len() >= enough {
                break;
            }
            found.evaluated = found.evaluated.saturating_add(1);
            match filters.ask_with_nominated(pod, node, self.cluster) {
                Ok(()) => found.feasible.push(node.id),
                Err(status) if status.code == Code::Error => return Err(filter_failed(status)),
                Err(status) => {
                    found.diagnosis.add_plugin(&status);
                    found.diagnosis.by_node.push((node.id, statuses.share(status)));
                }
            }
        }
        Ok(())
    }
}

fn pre_filter_failed(status: Status) -> Status {
    let text = format!("running PreFilter plugin \"{}\": {}", status.plugin, status.message());
    Status { reasons: vec![text.into()], ..status }
}

fn filter_failed(status: Status) -> Status {
    let text = format!("running \"{}\" filter plugin: {}", status.plugin, status.message());
    Status { reasons: vec![text.into()], ..status }
}

/// Equal statuses are kept once: thousands of nodes say the same.
#[derive(Debug, Default)]
struct Statuses {
    recent: Vec<Arc<Status>>,
}

const RECENT: usize = 16;

impl Statuses {
    fn share(&mut self, status: Status) -> Arc<Status> {
        if let Some(known) = self.recent.iter().find(|known| ***known == status) {
            return known.clone();
        }
        let shared = Arc::new(status);
        if self.recent.len() >= RECENT {
            self.recent.remove(0);
        }
        self.recent.push(shared.clone());
        shared
    }
}

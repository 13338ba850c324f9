//! The search for nodes that fit: from where the last one ended, until enough are found.

use std::sync::Arc;

use super::{Filters, PreFilterRejection};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::diagnosis::Diagnosis;
use crate::framework::{Code, Point, Status};
use crate::memory::{Memory, ShapeMemory};
use crate::profile::Profile;
use crate::timing::{Timer, status_of};

/// Below this number, all nodes are evaluated.
const NODES_MIN: usize = 100;
const PERCENTAGE_MIN: usize = 5;

/// A search for nodes.
#[derive(Debug, Clone, Copy)]
pub struct Search<'c> {
    /// The plugins.
    pub profile: &'c Profile,
    /// State that the plugins read.
    pub cluster: &'c Cluster,
    /// Position in the order of nodes at which to begin.
    pub start: usize,
}

/// Result of a search.
#[derive(Debug, Default)]
pub struct SearchResult {
    /// The nodes that fit.
    pub feasible: Vec<NodeId>,
    /// Rejections of other nodes.
    pub diagnosis: Diagnosis,
    /// Number of evaluated nodes.
    pub evaluated: usize,
    /// The plugins that were run, in order.
    pub asked: Vec<&'static str>,
}

/// Number of fitting nodes after which the search stops.
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
    pub fn run(&self, pod: &PodInfo) -> Result<SearchResult, Status> {
        self.run_with(pod, None, &mut Timer::off())
    }

    /// Like [`run`](Self::run), but with cached results from other pods of the same shape.
    ///
    /// # Errors
    /// Something went wrong; the attempt ends.
    pub fn run_remembering(&self, pod: &PodInfo, memory: &mut Memory) -> Result<SearchResult, Status> {
        self.run_timed(pod, memory, &mut Timer::off())
    }

    /// Like [`run_remembering`](Self::run_remembering), but measured.
    ///
    /// # Errors
    /// Something went wrong; the attempt ends.
    pub fn run_timed(&self, pod: &PodInfo, memory: &mut Memory, timer: &mut Timer) -> Result<SearchResult, Status> {
        memory.begin(pod);
        self.run_with(pod, memory.of(pod), timer)
    }

    fn run_with(
        &self,
        pod: &PodInfo,
        memory: Option<&mut ShapeMemory>,
        timer: &mut Timer,
    ) -> Result<SearchResult, Status> {
        match Filters::timed(self.profile, pod, self.cluster, timer) {
            Ok(filters) => self.look(pod, &filters, memory, timer),
            Err(refused) => self.refused(refused),
        }
    }

    /// Result if PreFilter plugins reject all nodes.
    ///
    /// # Errors
    /// Something went wrong; the attempt ends.
    pub(super) fn refused(&self, refused: PreFilterRejection) -> Result<SearchResult, Status> {
        if !refused.status.code.is_rejection() {
            return Err(pre_filter_failed(refused.status));
        }
        let mut found = SearchResult::default();
        found.diagnosis.nodes = self.cluster.cache.order().len();
        found.diagnosis.plugins.extend(&refused.narrowed_by);
        found.diagnosis.add_plugin(&refused.status);
        found.diagnosis.pre_filter = Some(refused.status.message());
        found.diagnosis.others = Some(Arc::new(refused.status));
        Ok(found)
    }

    /// Evaluates nodes in turn.
    ///
    /// # Errors
    /// Something went wrong; the attempt ends.
    pub(super) fn look(
        &self,
        pod: &PodInfo,
        filters: &Filters<'_>,
        memory: Option<&mut ShapeMemory>,
        timer: &mut Timer,
    ) -> Result<SearchResult, Status> {
        let mut found = SearchResult::default();
        found.diagnosis.nodes = self.cluster.cache.order().len();
        found.asked = filters.asked.iter().map(|asked| asked.name).collect();
        let begun = timer.begin();
        let searched = self.search(pod, filters, memory, &mut found);
        let status = match &searched {
            Ok(()) if found.feasible.is_empty() => Code::Unschedulable.name(),
            searched => status_of(searched),
        };
        timer.end(begun, Point::Filter, "", status);
        for asked in &filters.asked {
            let is_against = found.diagnosis.plugins.contains(&asked.name);
            if let Some(timing) = asked.timing(is_against) {
                timer.add(timing);
            }
        }
        searched?;
        Ok(found)
    }

    fn search(
        &self,
        pod: &PodInfo,
        filters: &Filters<'_>,
        memory: Option<&mut ShapeMemory>,
        found: &mut SearchResult,
    ) -> Result<(), Status> {
        let cache = &self.cluster.cache;
        // Room was made for the pod: that node is most likely the only one.
        let nominated = self.cluster.nominated.node_of(&pod.uid).or(Some(&pod.nominated_node));
        if let Some(node) = nominated.and_then(|name| cache.node_named(name)) {
            let Err(status) = filters.ask_with_nominated(pod, node, self.cluster) else {
                found.feasible.push(node.id);
                found.evaluated = 1;
                return Ok(());
            };
            // Its rejection counts even if it is not among the remaining nodes.
            let is_out = filters.nodes.as_ref().is_some_and(|names| !names.contains(node.name()));
            if is_out && status.code.is_rejection() {
                found.diagnosis.add_plugin(&status);
                found.diagnosis.by_node.push((node.id, Arc::new(status)));
            }
        }
        match &filters.nodes {
            Some(names) => {
                let plugins: Vec<&str> = filters.narrowed_by.iter().copied().collect();
                let text = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
                found.diagnosis.others = Some(Arc::new(Status::unresolvable(text)));
                found.diagnosis.plugins.extend(&filters.narrowed_by);
                let nodes: Vec<&NodeInfo> = names.iter().filter_map(|name| cache.node_named(name)).collect();
                let enough = self.enough(nodes.len());
                self.look_at(pod, filters, nodes.into_iter(), enough, memory, found)
            }
            None => {
                let order = cache.order();
                let start = self.start.checked_rem(order.len()).unwrap_or(0);
                let (before, after) = order.split_at_checked(start).unwrap_or((&[], order));
                let nodes = after.iter().chain(before).filter_map(|id| cache.node(*id));
                self.look_at(pod, filters, nodes, self.enough(order.len()), memory, found)
            }
        }
    }

    /// Number of fitting nodes that suffice: one, if no plugin scores nodes.
    pub(super) fn enough(&self, all: usize) -> usize {
        let has_scores = self.profile.at(Point::Score).next().is_some();
        if has_scores { nodes_to_find(all, self.profile.percentage_of_nodes_to_score) } else { all.min(1) }
    }

    fn look_at<'n>(
        &self,
        pod: &PodInfo,
        filters: &Filters<'_>,
        nodes: impl Iterator<Item = &'n NodeInfo>,
        enough: usize,
        memory: Option<&mut ShapeMemory>,
        found: &mut SearchResult,
    ) -> Result<(), Status> {
        let mut statuses = Statuses::default();
        let (first, depends_on) = filters.rememberable();
        let mut verdicts = memory.filter(|_| first > 0).map(|memory| {
            memory.begin_verdicts(filters.asked.iter().take(first).map(|asked| asked.name), depends_on, self.cluster);
            &mut memory.verdicts
        });
        let nominated = &self.cluster.nominated;
        let waits_here = |node: &NodeInfo| !nominated.is_empty() && !nominated.on(node.name()).is_empty();
        for node in nodes {
            if found.feasible.len() >= enough {
                break;
            }
            found.evaluated = found.evaluated.saturating_add(1);
            let rejected = match &mut verdicts {
                // Nominated pods affect the result, but are not part of the cached state.
                Some(verdicts) if !waits_here(node) => {
                    let remembered = verdicts.get_or_ask(node, || {
                        let answer = filters.ask_some(0, first, node);
                        statuses.note(answer)
                    })?;
                    match remembered {
                        Some(status) => Some(status),
                        None => statuses.note(filters.ask_some(first, usize::MAX, node))?,
                    }
                }
                _ => statuses.note(filters.ask_with_nominated(pod, node, self.cluster))?,
            };
            match rejected {
                None => found.feasible.push(node.id),
                Some(status) => {
                    found.diagnosis.add_plugin(&status);
                    found.diagnosis.by_node.push((node.id, status));
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

/// Status of a failed filter.
pub(crate) fn filter_failed(status: Status) -> Status {
    let text = format!("running \"{}\" filter plugin: {}", status.plugin, status.message());
    Status { reasons: vec![text.into()], ..status }
}

/// Deduplicates equal statuses: thousands of nodes have the same one.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    recent: Vec<Arc<Status>>,
}

const RECENT: usize = 16;

impl Statuses {
    /// A rejection to be counted; anything else that is wrong ends the attempt.
    pub(super) fn note(&mut self, answer: Result<(), Status>) -> Result<Option<Arc<Status>>, Status> {
        match answer {
            Ok(()) => Ok(None),
            Err(status) if status.code == Code::Error => Err(filter_failed(status)),
            Err(status) => Ok(Some(self.share(status))),
        }
    }

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

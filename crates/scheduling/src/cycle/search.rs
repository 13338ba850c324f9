//! The search for nodes that fit: from where the last one ended, until enough are found.

use std::sync::Arc;

use super::{Filters, Refused};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::diagnosis::Diagnosis;
use crate::framework::{Code, Point, Status};
use crate::memory::{Memory, Remembered};
use crate::profile::Profile;
use crate::timing::{Timer, status_of};

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
    /// The plugins that had to be asked, in order.
    pub asked: Vec<&'static str>,
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
        self.run_with(pod, None, &mut Timer::off())
    }

    /// As [`run`](Self::run), with answers that are remembered from other pods of the same shape.
    ///
    /// # Errors
    /// Something went wrong; the attempt ends.
    pub fn run_remembering(&self, pod: &PodInfo, memory: &mut Memory) -> Result<Found, Status> {
        self.run_timed(pod, memory, &mut Timer::off())
    }

    /// As [`run_remembering`](Self::run_remembering), measured.
    ///
    /// # Errors
    /// Something went wrong; the attempt ends.
    pub fn run_timed(&self, pod: &PodInfo, memory: &mut Memory, timer: &mut Timer) -> Result<Found, Status> {
        memory.begin(pod);
        self.run_with(pod, memory.of(pod), timer)
    }

    fn run_with(&self, pod: &PodInfo, memory: Option<&mut Remembered>, timer: &mut Timer) -> Result<Found, Status> {
        match Filters::timed(self.profile, pod, self.cluster, timer) {
            Ok(filters) => self.look(pod, &filters, memory, timer),
            Err(refused) => self.refused(refused),
        }
    }

    /// What is found where plugins are against all nodes.
    ///
    /// # Errors
    /// Something went wrong; the attempt ends.
    pub(super) fn refused(&self, refused: Refused) -> Result<Found, Status> {
        if !refused.status.code.is_rejection() {
            return Err(pre_filter_failed(refused.status));
        }
        let mut found = Found::default();
        found.diagnosis.nodes = self.cluster.cache.order().len();
        found.diagnosis.plugins.extend(&refused.narrowed_by);
        found.diagnosis.add_plugin(&refused.status);
        found.diagnosis.pre_filter = Some(refused.status.message());
        found.diagnosis.others = Some(Arc::new(refused.status));
        Ok(found)
    }

    /// Looks at nodes in turn.
    ///
    /// # Errors
    /// Something went wrong; the attempt ends.
    pub(super) fn look(
        &self,
        pod: &PodInfo,
        filters: &Filters<'_>,
        memory: Option<&mut Remembered>,
        timer: &mut Timer,
    ) -> Result<Found, Status> {
        let mut found = Found::default();
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
        memory: Option<&mut Remembered>,
        found: &mut Found,
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
            // What is said of it counts, also where it is not among the nodes that are left.
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

    /// How many of this many nodes are enough: one, where no plugin prefers any.
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
        memory: Option<&mut Remembered>,
        found: &mut Found,
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
                // Pods for which room is being made count, and are not part of what is remembered.
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

/// What is said where a filter fails.
pub(crate) fn filter_failed(status: Status) -> Status {
    let text = format!("running \"{}\" filter plugin: {}", status.plugin, status.message());
    Status { reasons: vec![text.into()], ..status }
}

/// Equal statuses are kept once: thousands of nodes say the same.
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

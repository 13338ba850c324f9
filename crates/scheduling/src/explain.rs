//! All facts about a pod and the nodes: for diagnosis, not for decisions.
//!
//! A decision stops at the first plugin that rejects a node, and evaluates a part of the nodes; here every
//! plugin is run on every node. The results are those of the same plugins. [`remedies`] searches for a single
//! change that would help.

pub mod remedies;

use api::core::v1::Pod;
use api::json::Text;

use crate::cluster::{NodeInfo, PodInfo};
use crate::complaints::{self, Complaint};
use crate::cycle::{self, Filters, Search};
use crate::framework::{Point, Status};
use crate::preemption::Nomination;
use crate::scheduler::{NO_NODES, Scheduler};
use crate::timing::Timer;

/// Explanation of a pod's placement.
#[derive(Debug, Default)]
pub struct Explanation {
    /// Reason why the pod is not tried at all.
    pub gate: Option<Status>,
    /// Rejection that is independent of the node.
    pub refused: Option<Status>,
    /// The nodes, in the order in which the scheduler evaluates them.
    pub nodes: Vec<NodeExplanation>,
    /// Plugins that have nothing against any node.
    pub silent: Vec<&'static str>,
    /// The message for the pod's events, if no node fits.
    pub message: Option<String>,
    /// Node on which pods would be preempted, if no node fits.
    pub nomination: Option<Nomination>,
    /// Faulty expressions and values, if no node fits.
    pub complaints: Vec<Complaint>,
}

/// Explanation of a pod on a node.
#[derive(Debug)]
pub struct NodeExplanation {
    /// The node.
    pub node: Text,
    /// Results of the plugins that were run, in order.
    pub verdicts: Vec<(&'static str, Result<(), Status>)>,
    /// Scores by plugin, if the node fits.
    pub scores: Vec<NodeScore>,
    /// The sum of all scores with their weights, where it fits.
    pub total: Option<i64>,
}

/// Score of a node by one plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeScore {
    /// The plugin.
    pub plugin: &'static str,
    /// Weight of the score.
    pub weight: i64,
    /// Raw score.
    pub raw: i64,
    /// Between 0 and 100.
    pub normalized: i64,
}

impl NodeExplanation {
    /// Whether no plugin rejects the node.
    pub fn fits(&self) -> bool {
        self.verdicts.iter().all(|(_, verdict)| verdict.is_ok())
    }

    /// Rejections of the node, in order.
    pub fn rejections(&self) -> impl Iterator<Item = (&'static str, &Status)> {
        self.verdicts.iter().filter_map(|(plugin, verdict)| Some((*plugin, verdict.as_ref().err()?)))
    }
}

impl Explanation {
    /// Number of nodes that fit.
    pub fn fitting(&self) -> usize {
        self.nodes.iter().filter(|node| node.fits()).count()
    }
}

impl Scheduler {
    /// Runs every plugin on every node. The pod need not be known to the scheduler.
    ///
    /// # Errors
    /// Something went wrong with scores.
    pub fn explain(&mut self, pod: &Pod) -> Result<Explanation, Status> {
        let pod = self.view(pod);
        let mut known = self.explain_view(&pod)?;
        if known.gate.is_none() && known.fitting() == 0 {
            self.explain_failure(&pod, &mut known)?;
        }
        Ok(known)
    }

    /// Adds the message and the actions of the scheduler for a pod that fits nowhere.
    fn explain_failure(&mut self, pod: &PodInfo, known: &mut Explanation) -> Result<(), Status> {
        if self.cluster().cache.order().is_empty() {
            known.message = Some(NO_NODES.to_owned());
            return Ok(());
        }
        let Some(profile) = self.profile(pod) else { return Ok(()) };
        let mut diagnosis = Search { profile, cluster: self.cluster(), start: 0 }.run(pod)?.diagnosis;
        known.complaints = complaints::find(pod, &diagnosis, self.cluster(), &mut Default::default());
        known.nomination = self.make_room(pod, &mut diagnosis, &mut Timer::off()).nomination;
        known.message = Some(diagnosis.message());
        Ok(())
    }

    fn explain_view(&self, pod: &PodInfo) -> Result<Explanation, Status> {
        let cluster = self.cluster();
        let mut known = Explanation::default();
        let name = &pod.spec().scheduler_name;
        let profile =
            self.profile(pod).ok_or_else(|| Status::error(format!("no profile for scheduler name \"{name}\"")))?;
        known.gate = profile.at(Point::PreEnqueue).find_map(|enabled| {
            let closed = enabled.plugin.pre_enqueue(pod, cluster).err()?;
            Some(closed.by(enabled.name()))
        });
        let filters = match Filters::new(profile, pod, cluster) {
            Ok(filters) => filters,
            Err(refused) => {
                known.refused = Some(refused.status);
                return Ok(known);
            }
        };
        known.silent.clone_from(&filters.skipped);
        let nodes: Vec<&NodeInfo> = cluster.cache.order().iter().filter_map(|id| cluster.cache.node(*id)).collect();
        for node in &nodes {
            let mut verdicts: Vec<(&'static str, Result<(), Status>)> = Vec::new();
            if filters.nodes.as_ref().is_some_and(|only| !only.contains(node.name())) {
                let by: Vec<&'static str> = filters.narrowed_by.iter().copied().collect();
                let text = format!("node(s) didn't satisfy plugin(s) [{}]", by.join(" "));
                verdicts.push((by.first().copied().unwrap_or_default(), Err(Status::unresolvable(text))));
            }
            verdicts.extend(filters.asked.iter().map(|asked| (asked.name, asked.filter.filter(node))));
            if verdicts.iter().all(|(_, verdict)| verdict.is_ok())
                && let Err(status) = filters.ask_with_nominated(pod, node, cluster)
            {
                verdicts.push((status.plugin, Err(status)));
            }
            known.nodes.push(NodeExplanation { node: node.name().clone(), verdicts, scores: Vec::new(), total: None });
        }
        let fitting = nodes.iter().zip(&known.nodes).filter(|(_, known)| known.fits());
        let fitting: Vec<_> = fitting.map(|(node, _)| node.id).collect();
        let scores = cycle::score(profile, pod, cluster, &fitting)?;
        for (place, explained) in known.nodes.iter_mut().filter(|node| node.fits()).enumerate() {
            explained.total = scores.total.get(place).map(|(_, total)| *total);
            explained.scores = scores
                .by_plugin
                .iter()
                .filter_map(|by| {
                    let (raw, normalized) = (by.raw.get(place)?.1, by.normalized.get(place)?.1);
                    Some(NodeScore { plugin: by.plugin, weight: by.weight, raw, normalized })
                })
                .collect();
        }
        Ok(known)
    }

    /// Number of nodes that a pod fits, and the names of the first ones.
    fn fitting(&mut self, pod: &Pod) -> (usize, Vec<Text>) {
        let pod = self.view(pod);
        let cluster = self.cluster();
        let Some(profile) = self.profile(&pod) else { return (0, Vec::new()) };
        let Ok(filters) = Filters::new(profile, &pod, cluster) else { return (0, Vec::new()) };
        let nodes = cluster.cache.order().iter().filter_map(|id| cluster.cache.node(*id));
        let is_worth_a_look = |node: &&NodeInfo| filters.nodes.as_ref().is_none_or(|only| only.contains(node.name()));
        let fitting = nodes.filter(is_worth_a_look);
        let fitting = fitting.filter(|node| filters.ask_with_nominated(&pod, node, cluster).is_ok());
        let names: Vec<Text> = fitting.map(|node| node.name().clone()).collect();
        (names.len(), names.into_iter().take(NAMED).collect())
    }
}

/// Maximum number of node names.
const NAMED: usize = 3;

#[cfg(test)]
mod tests;
